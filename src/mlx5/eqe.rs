//! Event queue entries: what the device has to tell outside of completions.

mod page_fault;

pub use page_fault::*;

use crate::mlx5::{
    ids::Cqn,
    layout::{layout, wire_enum},
};

layout! {
    /// Event queue entry (Linux `mlx5_eqe`).
    pub struct Eqe, 64, "eqe" {
        0x00 [23:16] type_: EventType,
        /// Depends on the type: [`PortChange`] for port events, [`PageFaultSubType`] for page faults.
        0x00 [7:0] sub_type: u8,
        /// One of the `Eqe…` structures of this module, by type.
        0x20 [bytes] event_data: [u8; 28],
        0x3c [15:8] signature: u8,
        /// Parity of the lap around the queue in which the entry was written: 0 in the first.
        0x3c [0:0] owner: bool,
    }

    /// COMP: a CQ that was armed has a completion.
    pub struct EqeComp, 28, "eqe_comp" {
        0x18 [23:0] cqn: Cqn,
    }

    /// CMD: commands have finished.
    pub struct EqeCmd, 28, "eqe_cmd" {
        /// A bit for every slot.
        0x00 [31:0] vector: u32,
    }

    /// PAGE_REQUEST: the device wants pages, or returns some.
    pub struct EqePageReq, 28, "eqe_page_req" {
        0x00 [31:31] ec_function: bool,
        /// All pages of the function, in one go.
        0x00 [30:30] release_all_pages: bool,
        0x00 [15:0] func_id: u16,
        /// Signed: positive to give, negative to reclaim.
        0x04 [31:0] num_pages: u32,
    }

    /// CQ_ERROR: a CQ is dead.
    pub struct EqeCqErr, 28, "eqe_cq_err" {
        0x00 [23:0] cqn: Cqn,
        0x08 [7:0] syndrome: CqErrorSyndrome,
    }

    /// Events of a QP, RQ, SQ or SRQ.
    pub struct EqeQpSrq, 28, "eqe_qp_srq" {
        0x14 [31:24] queue_type: EventQueueType,
        0x18 [23:0] qp_srq_n: u32,
    }

    /// XRQ_ERROR.
    pub struct EqeXrqErr, 28, "eqe_xrq_err" {
        0x14 [31:24] error_type: u8,
        0x14 [23:0] xrqn: u32,
    }

    /// DCT_DRAINED, DCT_KEY_VIOLATION.
    pub struct EqeDct, 28, "eqe_dct" {
        0x18 [23:0] dctn: u32,
    }

    /// PORT_CHANGE.
    pub struct EqePortState, 28, "eqe_port_state" {
        /// Counted from 1.
        0x08 [31:28] port_num: u8,
    }

    /// NIC_VPORT_CHANGE.
    pub struct EqeVportChange, 28, "eqe_vport_change" {
        0x00 [15:0] vport_num: u16,
    }

    /// PORT_MODULE_EVENT: a cable was plugged, pulled or failed.
    pub struct EqePortModule, 28, "eqe_port_module" {
        0x00 [23:16] module: u8,
        0x00 [3:0] status: PortModuleStatus,
        0x04 [11:8] error_type: PortModuleError,
    }

    /// TEMP_WARN_EVENT: a bit for every sensor.
    pub struct EqeTempWarning, 28, "eqe_temp_warning" {
        0x00 [63:0] sensor_warning_msb: u64,
        0x08 [63:0] sensor_warning_lsb: u64,
    }

    /// DB_BF_CONGESTION.
    pub struct EqeCongestion, 28, "eqe_congestion" {
        0x00 [31:24] type_: u8,
        0x00 [15:8] congestion_level: u8,
    }
}

wire_enum! {
    /// Kind of an event (`eqe.type`).
    pub struct EventType(u8), "event_type" {
        /// Completion.
        COMP = 0x00,
        PATH_MIG = 0x01,
        COMM_EST = 0x02,
        SQ_DRAINED = 0x03,
        CQ_ERROR = 0x04,
        WQ_CATAS_ERROR = 0x05,
        PATH_MIG_FAILED = 0x07,
        INTERNAL_ERROR = 0x08,
        PORT_CHANGE = 0x09,
        /// Commands have finished.
        CMD = 0x0a,
        /// The device wants pages, or returns some.
        PAGE_REQUEST = 0x0b,
        PAGE_FAULT = 0x0c,
        NIC_VPORT_CHANGE = 0x0d,
        ESW_FUNCTIONS_CHANGED = 0x0e,
        VHCA_STATE_CHANGE = 0x0f,
        WQ_INVAL_REQ_ERROR = 0x10,
        WQ_ACCESS_ERROR = 0x11,
        SRQ_CATAS_ERROR = 0x12,
        SRQ_LAST_WQE = 0x13,
        SRQ_RQ_LIMIT = 0x14,
        GPIO_EVENT = 0x15,
        PORT_MODULE_EVENT = 0x16,
        TEMP_WARN_EVENT = 0x17,
        XRQ_ERROR = 0x18,
        REMOTE_CONFIG = 0x19,
        DB_BF_CONGESTION = 0x1a,
        STALL_EVENT = 0x1b,
        DCT_DRAINED = 0x1c,
        DCT_KEY_VIOLATION = 0x1d,
        FPGA_ERROR = 0x20,
        FPGA_QP_ERROR = 0x21,
        GENERAL_EVENT = 0x22,
        MONITOR_COUNTER = 0x24,
        PPS_EVENT = 0x25,
        DEVICE_TRACER = 0x26,
        OBJECT_CHANGE = 0x27,
    }

    /// What changed of a port (`eqe.sub_type`).
    pub struct PortChange(u8), "event_port_change_subtype" {
        DOWN = 0x01,
        ACTIVE = 0x04,
        INITIALIZED = 0x05,
        LID = 0x06,
        PKEY = 0x07,
        GUID = 0x08,
        CLIENT_REREG = 0x09,
    }

    /// Kind of queue that an event names.
    pub struct EventQueueType(u8), "event_queue_type" {
        QP = 0x00,
        RQ = 0x01,
        SQ = 0x02,
        DCT = 0x06,
    }

    /// Why a CQ died.
    pub struct CqErrorSyndrome(u8), "cq_error_syndrome" {
        CQ_OVERRUN = 0x01,
        CQ_ACCESS_VIOLATION_ERROR = 0x02,
    }

    /// State of a cable module.
    pub struct PortModuleStatus(u8), "port_module_status" {
        PLUGGED = 0x01,
        UNPLUGGED = 0x02,
        ERROR = 0x03,
        DISABLED = 0x04,
    }

    /// Failure of a cable module.
    pub struct PortModuleError(u8), "port_module_error" {
        POWER_BUDGET_EXCEEDED = 0x00,
        LONG_RANGE_FOR_NON_MLNX = 0x01,
        BUS_STUCK = 0x02,
        NO_EEPROM_RETRY_TIMEOUT = 0x03,
        ENFORCE_PART_NUMBER_LIST = 0x04,
        UNKNOWN_IDENTIFIER = 0x05,
        HIGH_TEMPERATURE = 0x06,
        BAD_CABLE = 0x07,
        PCIE_POWER_SLOT_EXCEEDED = 0x0c,
    }
}

impl Eqe {
    /// The event's data as the structure that its type calls for.
    #[inline]
    pub fn data<T: From<[u8; 28]>>(&self) -> T {
        T::from(self.event_data())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mlx5::layout::painted;

    #[test]
    fn golden_bytes() {
        let eqe = Eqe::from_bytes([0xa5; 64]);
        assert_eq!(eqe.with_type_(EventType::CMD).to_bytes(), painted(&[(1, &[0x0a])]));
        assert_eq!(eqe.with_sub_type(PortChange::ACTIVE.0).to_bytes(), painted(&[(3, &[4])]));
        assert_eq!(eqe.with_owner(false).to_bytes(), painted(&[(63, &[0xa4])]));
        let data = EqeComp::new().with_cqn(Cqn::new(0x12_3456)).to_bytes();
        assert_eq!(eqe.with_event_data(data).to_bytes()[0x38..0x3c], [0, 0x12, 0x34, 0x56]);
        assert_eq!(eqe.with_event_data(data).data::<EqeComp>().cqn(), Cqn::new(0x12_3456));
    }

    #[test]
    fn page_requests_are_signed() {
        let request = EqePageReq::new().with_func_id(1).with_num_pages(-3_i32 as u32);
        assert_eq!(request.to_bytes()[..8], [0, 0, 0, 1, 0xff, 0xff, 0xff, 0xfd]);
        assert_eq!(request.num_pages() as i32, -3);
    }
}
