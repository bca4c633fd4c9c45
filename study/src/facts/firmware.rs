//! Syndromes of refused commands. Firmware's lists are not published; these have a cause in public.

use mlx5_direct::mlx5::cmd::CmdOpcode;

/// A firmware syndrome with a public cause. The same number may mean other things in other firmware.
#[derive(Debug)]
pub struct FirmwareSyndrome {
    /// The syndrome.
    pub syndrome: u32,
    /// The command that it was seen with.
    pub command: CmdOpcode,
    /// What it was.
    pub cause: &'static str,
    /// Who reported it.
    pub source: &'static str,
}

/// Every firmware syndrome with a public cause.
pub const FIRMWARE: &[FirmwareSyndrome] = &[
    seen(
        0x1ab444,
        CmdOpcode::DEALLOC_MODIFY_HEADER_CONTEXT,
        "the modify header is still used by a flow entry",
        "Linux, fix of 0d235c3fabb7; a later post-action fix",
    ),
    seen(
        0x179e84,
        CmdOpcode::DEALLOC_PACKET_REFORMAT_CONTEXT,
        "the packet reformat is still used by a flow entry",
        "Linux, post-action fix",
    ),
    seen(
        0x1e5585,
        CmdOpcode::ACCESS_REG,
        "PPCNT was read with a local_port other than 1 on a HCA with a function per port",
        "Linux, fix of 210b1f78076f (2022-08)",
    ),
    seen(
        0x25b161,
        CmdOpcode::DESTROY_QP,
        "follows a refused 2RST_QP with syndrome 0x7ea02d",
        "netdev thread 2021-02",
    ),
    seen(
        0x2c4154,
        CmdOpcode::CREATE_QP,
        "QP creation through DevX: the maintainer advises a firmware upgrade; UCX_IB_MLX5_DEVX_OBJECTS=\"\" works around it",
        "openucx/ucx 10451",
    ),
    seen(
        0x31b635,
        CmdOpcode::DEALLOC_PD,
        "the protection domain still has children (an mkey was not destroyed)",
        "Linux 2021-03",
    ),
    seen(
        0x4bb88f,
        CmdOpcode::RTR2RTS_QP,
        "retry_cnt was 20: the field has 3 bits, 7 at most",
        "charmplusplus/charm 2532, fixed by pull 2712",
    ),
    seen(
        0x563e2f,
        CmdOpcode::DESTROY_FLOW_GROUP,
        "the flow group still has entries: entries go first, then groups, then the table",
        "netdev thread, Azure VF",
    ),
    seen(0x587239, CmdOpcode::ALLOC_Q_COUNTER, "the limit of queue counters is reached", "DPDK, mlx5_prm.h"),
    seen(
        0x59c8a4,
        CmdOpcode::CREATE_MKEY,
        "mkeys are used up: many processes register, or leak, memory regions",
        "a cluster's incident log",
    ),
    seen(
        0x5a7939,
        CmdOpcode::ALLOC_UAR,
        "the UAR pages of the PCI BAR are used up: enlarge the BAR (mlxconfig PF_LOG_BAR_SIZE)",
        "openucx/ucx 6049",
    ),
    seen(
        0x62bbc6,
        CmdOpcode::CREATE_CQ,
        "firmware's text: create_cq: fail to allocate mtt index; seen after a tracing tool had left the device in a bad state",
        "snabbco/snabb 995",
    ),
    seen(
        0x63c66,
        CmdOpcode::SET_ROCE_ADDRESS,
        "seen after a VF was migrated: its GID table stays empty",
        "VF live-migration notes 2026-05",
    ),
    seen(
        0x66d6c3,
        CmdOpcode::DESTROY_FLOW_TABLE,
        "the flow table still has groups: a group's refused destruction comes before",
        "netdev thread, Azure VF",
    ),
    seen(
        0x7ea02d,
        CmdOpcode::QP_2RST,
        "firmware's text, as a maintainer quotes it: 2error_qp/2reset: invalid qp number",
        "netdev thread 2021-02",
    ),
    seen(
        0x823f8d,
        CmdOpcode::INIT2RTR_QP,
        "an uninitialised data-placement field in the request",
        "openucx/ucx pull 10478",
    ),
    seen(
        0x8708c3,
        CmdOpcode::SET_FLOW_TABLE_ENTRY,
        "a rule both drops and modifies headers, which firmware does not support",
        "Linux a2446bc77a16",
    ),
    seen(
        0x8fef,
        CmdOpcode::CREATE_EQ,
        "the driver's offsets into the capabilities were wrong",
        "netdev thread 2019-08",
    ),
    seen(
        0xaca205,
        CmdOpcode::SET_FLOW_TABLE_ENTRY,
        "destinations in tables of several kinds, which firmware steering does not support: a termination table is needed",
        "Linux, revert of 14624d7247fc",
    ),
    seen(
        0xcdb051,
        CmdOpcode::SET_FLOW_TABLE_ENTRY,
        "a rule forwards from uplink to uplink without a termination table",
        "Linux stable and netdev thread",
    ),
    seen(
        0xd61c0b,
        CmdOpcode::CREATE_SQ,
        "ts_format was left at its default while the device runs in real-time mode",
        "Linux, fix of cdd04f4d4d71",
    ),
    seen(
        0xf2ff71,
        CmdOpcode::SET_FLOW_TABLE_ENTRY,
        "seen with a post-action rule, beside a KASAN trace",
        "netdev thread",
    ),
];

const fn seen(
    syndrome: u32,
    command: CmdOpcode,
    cause: &'static str,
    source: &'static str,
) -> FirmwareSyndrome {
    FirmwareSyndrome { syndrome, command, cause, source }
}

/// The public cause of a firmware syndrome. Syndromes are asked for with their command, where it is known: another
/// command's is another matter.
pub fn firmware_syndrome(syndrome: u32, command: Option<CmdOpcode>) -> Option<&'static FirmwareSyndrome> {
    FIRMWARE
        .iter()
        .find(|entry| entry.syndrome == syndrome && command.is_none_or(|command| command == entry.command))
}
