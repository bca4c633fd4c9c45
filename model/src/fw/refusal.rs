//! Why firmware refuses a command: status, syndrome and the reason in words.
#![forbid(unsafe_code)]

use crate::strict::Rule;
use mlx5_direct::mlx5::cmd::CmdStatus;

/// A refusal. The syndrome is the model's own number; the trace has the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// Status of the command.
    pub status: CmdStatus,
    /// Syndrome of the command.
    pub syndrome: u32,
    /// The reason.
    pub text: &'static str,
}

macro_rules! refusals {
    ($( $name:ident = $syndrome:literal $status:ident $text:literal, )*) => {
        impl Refusal {
            $(
                #[doc = $text]
                pub const $name: Self = Self { status: CmdStatus::$status, syndrome: $syndrome, text: $text };
            )*

            /// Every refusal.
            pub const ALL: &[Self] = &[$( Self::$name ),*];

            /// The refusal with this syndrome.
            pub fn from_syndrome(syndrome: u32) -> Option<Self> {
                Self::ALL.iter().copied().find(|refusal| refusal.syndrome == syndrome)
            }
        }
    };
}

refusals! {
    UNKNOWN_OPCODE = 0x4d0001 BAD_OP_ERR "the opcode is unknown",
    BAD_OP_MOD = 0x4d0002 BAD_PARAM_ERR "the opcode has no such op_mod",
    INPUT_SHORT = 0x4d0003 BAD_INP_LEN_ERR "the input is shorter than the command's structure",
    OUTPUT_SHORT = 0x4d0004 BAD_OUTP_LEN_ERR "the output is shorter than the command's head",
    LIST_SHORT = 0x4d0005 BAD_INP_LEN_ERR "the list that follows the input's structure is shorter than it says",
    UID = 0x4d0006 BAD_PARAM_ERR "uid is not 0 and no context that CREATE_UCTX made",
    UMEM = 0x4d0007 BAD_PARAM_ERR "the umem does not exist, or is shorter than what is named of it",

    NOT_ENABLED = 0x4d0010 BAD_SYS_STATE_ERR "ENABLE_HCA comes first",
    ENABLED_TWICE = 0x4d0011 BAD_SYS_STATE_ERR "the function is initialised: TEARDOWN_HCA comes before ENABLE_HCA",
    NOT_INITIALISED = 0x4d0012 BAD_SYS_STATE_ERR "INIT_HCA comes first",
    INITIALISED = 0x4d0013 BAD_SYS_STATE_ERR "the function is initialised: TEARDOWN_HCA comes first",
    BOOT_PAGES_MISSING = 0x4d0014 BAD_SYS_STATE_ERR "boot pages were not given",
    INIT_PAGES_MISSING = 0x4d0015 BAD_SYS_STATE_ERR "init pages were not given",
    FUNCTION_ID = 0x4d0016 BAD_PARAM_ERR "function_id or vport_number is not 0",
    ISSI_UNKNOWN = 0x4d0017 BAD_PARAM_ERR "the ISSI is not supported",
    PROFILE = 0x4d0018 BAD_PARAM_ERR "the teardown profile is unknown",

    NO_PAGES = 0x4d0020 NO_RES_ERR "firmware has no page left for the object",
    PAGE_ALIGNMENT = 0x4d0021 BAD_PARAM_ERR "a page address is not a multiple of 4096",
    PAGE_NOT_MAPPED = 0x4d0022 BAD_PARAM_ERR "a page is not mapped for DMA with read and write permission",
    PAGE_TWICE = 0x4d0023 BAD_PARAM_ERR "a page was given before",

    CAP_GROUP = 0x4d0030 BAD_PARAM_ERR "the capability group does not exist",
    CAP_ABOVE_MAX = 0x4d0031 BAD_PARAM_ERR "a capability is set above what the device can do",

    NO_SUCH_OBJECT = 0x4d0040 BAD_RES_ERR "no object has this number",
    OBJECT_IN_USE = 0x4d0041 BAD_RES_STATE_ERR "the object is in use by another",
    TABLE_FULL = 0x4d0042 LIM_ERR "the table of these objects is full",
    NO_SUCH_PD = 0x4d0043 BAD_RES_ERR "the protection domain does not exist",
    NO_SUCH_UAR = 0x4d0044 BAD_RES_ERR "the UAR page is not allocated",
    NO_SUCH_EQ = 0x4d0045 BAD_RES_ERR "the EQ does not exist",
    NO_SUCH_CQ = 0x4d0046 BAD_RES_ERR "the CQ does not exist",
    NO_SUCH_COUNTER = 0x4d0047 BAD_RES_ERR "the counter set does not exist",

    QUEUE_SIZE = 0x4d0050 BAD_PARAM_ERR "the log of the queue's size is above the capability",
    PAGE_SIZE = 0x4d0051 BAD_PARAM_ERR "log_page_size makes pages that are not 4 KiB to 2 GiB",
    PAGE_OFFSET = 0x4d0052 BAD_PARAM_ERR "page_offset is not one that the queue's alignment allows",
    PAS_ALIGNMENT = 0x4d0053 BAD_PARAM_ERR "an entry of the page list is not aligned to the page size",
    QUEUE_NOT_MAPPED = 0x4d0054 BAD_PARAM_ERR "a page of the queue is not mapped for DMA as the queue needs",
    RECORD = 0x4d0055 BAD_PARAM_ERR "the doorbell record is not 8-byte aligned and mapped",
    VECTOR = 0x4d0056 BAD_PARAM_ERR "the MSI-X vector does not exist",
    CQE_SIZE = 0x4d0057 BAD_PARAM_ERR "the CQE size is not 64 or 128 bytes",
    MODIFY_SELECT = 0x4d0058 BAD_PARAM_ERR "a field is selected that cannot be modified",
    EVENT_TAKEN = 0x4d0059 BAD_PARAM_ERR "another EQ has one of these event types",

    CQ_RESIZE = 0x4d005a BAD_RES_STATE_ERR "the CQ was overrun, or has no room for the CQE that ends the old buffer, or the new one none for what is outstanding",

    ACCESS_MODE = 0x4d0060 BAD_PARAM_ERR "the mkey access mode is not supported",
    MKEY_LENGTH = 0x4d0061 BAD_PARAM_ERR "the mkey's length wraps or is above log_max_mrw_sz",
    MKEY_OCTWORDS = 0x4d0063 BAD_PARAM_ERR "translations_octword_size is above 2^28",
    MKEY_TRANSLATION = 0x4d0062 BAD_PARAM_ERR "the translation list does not cover the mkey's range",

    MEMIC_RANGE = 0x4d00f8 BAD_PARAM_ERR "the range is not inside MEMIC",
    MEMIC_SIZE = 0x4d00f9 BAD_PARAM_ERR "the size is not a multiple of 64 bytes, or 0",
    MEMIC_ALIGNMENT = 0x4d00fa BAD_PARAM_ERR "the alignment is above the capability",
    MEMIC_FULL = 0x4d00fb NO_RES_ERR "the range has no room for the piece",
    NO_SUCH_FAULT = 0x4d0140 BAD_RES_STATE_ERR "the driver has no page fault of this queue and type to answer",
    PSV_NUMBER = 0x4d0115 BAD_PARAM_ERR "CREATE_PSV makes one to four values",
    RATE_INDEX = 0x4d0113 BAD_PARAM_ERR "the number of the rate is 0, or not below the table's size",
    RATE = 0x4d0114 BAD_PARAM_ERR "the rate is outside the capability's, or in a unit that the model has not",
    MEMIC_OPERATION = 0x4d0110 BAD_PARAM_ERR "the operation is not one of memic_operations",
    MEMIC_OPERATION_STATE = 0x4d0111 BAD_RES_STATE_ERR "the piece has an address for this operation already, or has none",
    MEMIC_OPERATIONS_LEFT = 0x4d0112 BAD_RES_STATE_ERR "the piece still has an address for an operation",
    MKEY_MEMIC = 0x4d00fc BAD_PARAM_ERR "the mkey's range is not inside a piece of MEMIC",

    SERVICE_TYPE = 0x4d0070 BAD_PARAM_ERR "the model executes RC, UC, XRC, DCI, UD, QP0, QP1 and REG_UMR queue pairs only",
    QP_NO_QUEUE = 0x4d0071 BAD_PARAM_ERR "the QP has neither send nor receive queue",
    RQ_STRIDE = 0x4d0072 BAD_PARAM_ERR "the receive stride is above max_wqe_sz_rq",
    RQ_TYPE = 0x4d0073 BAD_PARAM_ERR "rq_type is none of a queue of its own, a shared one and none",
    QP_TRANSITION = 0x4d0074 BAD_QP_STATE_ERR "the QP's state does not allow this transition",
    QP_MTU = 0x4d0075 BAD_PARAM_ERR "the path MTU is unknown or above the port's",
    QP_SRQ = 0x4d007c BAD_RES_ERR "the shared receive queue or XRC domain does not exist",
    QP_OPT_PARAM = 0x4d0076 BAD_PARAM_ERR "opt_param_mask has a bit that the transition does not take",
    QP_GID_INDEX = 0x4d0077 BAD_PARAM_ERR "src_addr_index is outside the RoCE address table",
    QP_READS = 0x4d0078 BAD_PARAM_ERR "log_sra_max or log_rra_max is above the capability",
    QP_PORT = 0x4d0079 BAD_PARAM_ERR "vhca_port_num is not 1",
    QP_MESSAGE = 0x4d007a BAD_PARAM_ERR "log_msg_max is above the capability",
    QP_UDP_PORT = 0x4d006d BAD_PARAM_ERR "udp_sport is outside the range of the capabilities, or the QP is not of RC or UC",
    DCT_STATE = 0x4d007f BAD_RES_STATE_ERR "a DCT is destroyed before it is drained, or drained twice",
    DCI_STREAM = 0x4d006f BAD_PARAM_ERR "the DCI's stream is not in error",
    DCI_STREAMS = 0x4d006e BAD_PARAM_ERR "the logs of the DCI's streams are above the capability",
    QP_SIGNATURES = 0x4d007b BAD_PARAM_ERR "WQE signatures are asked for and not supported",
    CQE_COMPRESSION = 0x4d006b BAD_PARAM_ERR "the CQ compresses in a form that the device has not",
    SCATTER_TO_CQE = 0x4d006c BAD_PARAM_ERR "cs_req or cs_res is unknown, asks for 64 bytes where CQEs have no room for them, or is a datagram's",

    OBJECT_TYPE = 0x4d0048 BAD_PARAM_ERR "the device has no general objects of this type",
    OBJECT_RANGE = 0x4d0049 BAD_PARAM_ERR "log_obj_range is not the granularity of reserved QPNs",

    MULTICAST_SERVICE = 0x4d007e BAD_PARAM_ERR "only UD queue pairs join multicast groups",
    MULTICAST_GID = 0x4d007d BAD_PARAM_ERR "the GID is not a multicast address",

    ROCE_INDEX = 0x4d0080 BAD_PARAM_ERR "the index is outside the RoCE address table",
    ROCE_VERSION = 0x4d0082 BAD_PARAM_ERR "the RoCE version or layer 3 type is not supported",
    ROCE_ADDRESS = 0x4d0083 BAD_PARAM_ERR "an IPv4 RoCE address is not an IPv4-mapped address",

    REGISTER = 0x4d0090 BAD_PARAM_ERR "the register does not exist",
    REGISTER_READ_ONLY = 0x4d0091 BAD_PARAM_ERR "the register cannot be accessed this way",
    WQ_STATE = 0x4d00a0 BAD_RES_STATE_ERR "the work queue is not in the state that is named, or may not go there",
    WQ_TYPE = 0x4d00a1 BAD_PARAM_ERR "the type of the work queue is not one that the capabilities offer",
    SQ_STRIDE = 0x4d00a2 BAD_PARAM_ERR "the stride of a send queue is not 64 bytes",
    SQ_TIS = 0x4d00a3 BAD_PARAM_ERR "a send queue has one TIS or none",
    SCHEDULING_ELEMENT = 0x4d00a9 BAD_PARAM_ERR "a scheduling element is a TSAR by weights or a queue group under one, of the NIC's hierarchy",
    SRQ_LIMIT = 0x4d00a5 BAD_PARAM_ERR "the limit is not below the number of WQEs",
    XRQ_LIST = 0x4d00a6 BAD_PARAM_ERR "the device has no XRQs, or log_matching_list_sz is above the capability",
    XRQ_TOPOLOGY = 0x4d00a7 BAD_PARAM_ERR "the topology or offload of the XRQ is unknown",
    XRQ_SERVICE = 0x4d00a8 BAD_PARAM_ERR "only queue pairs of RC and DC targets receive by tags",
    RQT_SIZE = 0x4d00a4 BAD_PARAM_ERR "rqt_actual_size is above rqt_max_size, or that above the capability",

    FLOW_TABLE_TYPE = 0x4d00b0 BAD_PARAM_ERR "the model steers received Ethernet frames only",
    FLOW_TABLE_SIZE = 0x4d00b1 BAD_PARAM_ERR "log_size or level is above the capability",
    FLOW_INDEX = 0x4d00b2 BAD_PARAM_ERR "the range of entries is not free in its table, or the entry not in its group, or there already",
    FLOW_DESTINATION = 0x4d00b3 BAD_RES_ERR "a destination does not exist, or action and destinations do not agree",

    FLOW_CRITERIA = 0x4d00f4 BAD_PARAM_ERR "the criteria have a field that the model does not take out of packets",
    FLOW_ACTION = 0x4d00f5 BAD_PARAM_ERR "the action has a bit that the capabilities do not offer",
    FLOW_COUNTER_BULK = 0x4d00f6 BAD_PARAM_ERR "flow counters are made one at a time, and not dumped to memory",

    COUNTER_GROUP = 0x4d0093 BAD_PARAM_ERR "the port has no such group of counters",
    REGISTER_GROUP = 0x4d0094 BAD_PARAM_ERR "there is no such group of registers or features",
    PORT = 0x4d0092 BAD_PARAM_ERR "the port does not exist",
}

impl Refusal {
    /// The rule that a driver has broken who is refused so. None where drivers ask in order to find out, where their
    /// users ask, and where the command's handler tells more.
    pub fn rule(self) -> Option<Rule> {
        let rule = match self {
            Self::BOOT_PAGES_MISSING | Self::INIT_PAGES_MISSING | Self::ENABLED_TWICE => Rule::CommandOrder,
            Self::INPUT_SHORT | Self::OUTPUT_SHORT | Self::LIST_SHORT => Rule::CommandLength,
            Self::NO_SUCH_OBJECT
            | Self::NO_SUCH_PD
            | Self::NO_SUCH_UAR
            | Self::NO_SUCH_EQ
            | Self::NO_SUCH_CQ
            | Self::NO_SUCH_COUNTER
            | Self::QP_SRQ => Rule::ObjectExists,
            Self::CAP_ABOVE_MAX
            | Self::QUEUE_SIZE
            | Self::VECTOR
            | Self::CQE_SIZE
            | Self::RQ_STRIDE
            | Self::SQ_STRIDE
            | Self::QP_GID_INDEX
            | Self::QP_READS
            | Self::QP_PORT
            | Self::QP_MESSAGE
            | Self::DCI_STREAMS
            | Self::ROCE_INDEX
            | Self::XRQ_LIST
            | Self::RQT_SIZE => Rule::WithinCapabilities,
            Self::PAGE_SIZE | Self::PAGE_OFFSET | Self::PAS_ALIGNMENT | Self::PAGE_ALIGNMENT => {
                Rule::PageList
            }
            Self::QUEUE_NOT_MAPPED => Rule::DmaMapped,
            Self::RECORD => Rule::RecordAligned,
            Self::PAGE_TWICE => Rule::PageGivenOnce,
            Self::MKEY_LENGTH | Self::MKEY_TRANSLATION => Rule::KeyTranslation,
            Self::QP_OPT_PARAM => Rule::QpOptParam,
            _ => return None,
        };
        Some(rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syndromes_are_unique() {
        for (at, refusal) in Refusal::ALL.iter().enumerate() {
            assert_eq!(Refusal::from_syndrome(refusal.syndrome), Some(*refusal), "{at}");
        }
    }
}
