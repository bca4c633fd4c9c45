//! ACCESS_REG and the registers behind it.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::layout::{layout, wire_enum};

layout! {
    /// Reads or writes a register, whose image follows.
    pub struct AccessRegisterIn, 16, "access_register_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: AccessRegOpMod,
        0x08 [15:0] register_id: RegisterId,
        0x0c [31:0] argument: u32,
    }

    /// Output of ACCESS_REG.
    pub struct AccessRegisterOut, 16, "access_register_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// HOST_ENDIANNESS, write only.
    pub struct RegisterHostEndianness, 16, "register_host_endianness" {
        /// 0 little endian.
        0x00 [31:31] he: bool,
    }

    /// NODE_DESC: the text that ibv_devinfo shows.
    pub struct NodeDescriptionReg, 64, "node_description_reg" {
        0x00 [bytes] desc: [u8; 64],
    }

    /// PAOS: port administrative and operational status.
    pub struct PaosReg, 16, "paos_reg" {
        0x00 [31:24] swid: u8,
        0x00 [23:16] local_port: u8,
        0x00 [11:8] admin_status: PaosStatus,
        0x00 [3:0] oper_status: PaosStatus,
        /// `admin_status` is written.
        0x04 [31:31] ase: bool,
        /// `e` is written.
        0x04 [30:30] ee: bool,
        /// Events on change.
        0x04 [1:0] e: u8,
    }

    /// PMTU: port MTU in bytes, headers included.
    pub struct PmtuReg, 16, "pmtu_reg" {
        0x00 [23:16] local_port: u8,
        0x04 [31:16] max_mtu: u16,
        0x08 [31:16] admin_mtu: u16,
        0x0c [31:16] oper_mtu: u16,
    }

    /// PTYS: link types and speeds, a bit each.
    pub struct PtysReg, 64, "ptys_reg" {
        0x00 [30:30] an_disable_admin: bool,
        0x00 [29:29] an_disable_cap: bool,
        0x00 [23:16] local_port: u8,
        /// 1 InfiniBand, 4 Ethernet.
        0x00 [2:0] proto_mask: u8,
        0x04 [31:28] an_status: u8,
        0x04 [15:0] data_rate_oper: u16,
        0x08 [31:0] ext_eth_proto_capability: u32,
        0x0c [31:0] eth_proto_capability: u32,
        0x10 [31:16] ib_link_width_capability: u16,
        0x10 [15:0] ib_proto_capability: u16,
        0x14 [31:0] ext_eth_proto_admin: u32,
        0x18 [31:0] eth_proto_admin: u32,
        0x1c [31:16] ib_link_width_admin: u16,
        0x1c [15:0] ib_proto_admin: u16,
        0x20 [31:0] ext_eth_proto_oper: u32,
        0x24 [31:0] eth_proto_oper: u32,
        0x28 [31:16] ib_link_width_oper: u16,
        0x28 [15:0] ib_proto_oper: u16,
        0x2c [3:0] connector_type: u8,
        0x30 [31:0] eth_proto_lp_advertise: u32,
    }

    /// PCAP: what software says of an InfiniBand port, in the bits of `PortInfo:CapabilityMask`.
    pub struct PcapReg, 20, "pcap_reg" {
        0x00 [23:16] local_port: u8,
        /// 128 bits, the highest first.
        0x04 [bytes] port_capability_mask: [u8; 16],
    }

    /// PPCNT: head of the port counters; 248 bytes of the group chosen follow.
    pub struct PpcntReg, 8, "ppcnt_reg" {
        0x00 [31:24] swid: u8,
        0x00 [23:16] local_port: u8,
        0x00 [15:14] pnat: u8,
        0x00 [5:0] grp: PpcntGroup,
        /// Zero the counters after reading.
        0x04 [31:31] clr: bool,
        0x04 [2:0] prio_tc: u8,
    }
}

wire_enum! {
    /// Direction of ACCESS_REG.
    pub struct AccessRegOpMod(u16), "access_register_op_mod" {
        WRITE = 0x00,
        READ = 0x01,
    }

    /// A register of ACCESS_REG.
    pub struct RegisterId(u16), "access_register_id" {
        QPTS = 0x4002,
        QETCR = 0x4005,
        QPDPM = 0x4013,
        QCAM = 0x4019,
        PCAP = 0x5001,
        PMLP = 0x5002,
        PMTU = 0x5003,
        PTYS = 0x5004,
        PAOS = 0x5006,
        PFCC = 0x5007,
        PPCNT = 0x5008,
        PPTB = 0x500b,
        PBMC = 0x500c,
        PVLC = 0x500f,
        PPLM = 0x5023,
        PDDR = 0x5031,
        PCMR = 0x5041,
        PCAM = 0x507f,
        NODE_DESC = 0x6001,
        HOST_ENDIANNESS = 0x7004,
        MCIA = 0x9014,
        MFRL = 0x9028,
        MPEIN = 0x9050,
        MPCNT = 0x9051,
        MTUTC = 0x9055,
        MCQS = 0x9060,
        MCQI = 0x9061,
        MCAM = 0x907f,
        DTOR = 0xc00e,
    }

    /// State of a port.
    pub struct PaosStatus(u8), "paos_status" {
        UP = 0x01,
        DOWN = 0x02,
    }

    /// A group of port counters.
    pub struct PpcntGroup(u8), "ppcnt_group" {
        IEEE_802_3_COUNTERS_GROUP = 0x00,
        RFC_2863_COUNTERS_GROUP = 0x01,
        RFC_2819_COUNTERS_GROUP = 0x02,
        RFC_3635_COUNTERS_GROUP = 0x03,
        ETHERNET_EXTENDED_COUNTERS_GROUP = 0x05,
        PER_PRIORITY_COUNTERS_GROUP = 0x10,
        PER_TRAFFIC_CLASS_COUNTERS_GROUP = 0x11,
        PHYSICAL_LAYER_COUNTERS_GROUP = 0x12,
        PER_TRAFFIC_CLASS_CONGESTION_GROUP = 0x13,
        PHYSICAL_LAYER_STATISTICAL_GROUP = 0x16,
        INFINIBAND_PORT_COUNTERS_GROUP = 0x20,
    }
}

command! { ACCESS_REG, AccessRegisterIn => AccessRegisterOut }
