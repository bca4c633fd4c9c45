//! Queue pairs: the state machine, a command for every transition.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::context::qpc::Qpc;
use crate::mlx5::{
    ids::Qpn,
    layout::{layout, wire_enum},
};

layout! {
    /// Reset to Init.
    pub struct Rst2initQpIn, 272, "rst2init_qp_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] qpn: Qpn,
        /// Fields of the context that count, beside those that the transition takes: [`QpOptParam`] bits.
        0x10 [31:0] opt_param_mask: u32,
        0x14 [31:0] ece: u32,
        0x18 [struct] qpc: Qpc,
    }

    /// Output of RST2INIT_QP.
    pub struct Rst2initQpOut, 16, "rst2init_qp_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x0c [31:0] ece: u32,
    }

    /// Init to Init, with new attributes.
    pub struct Init2initQpIn, 272, "init2init_qp_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        /// An extended context follows this structure (newer devices).
        0x08 [31:31] qpc_ext: bool,
        0x08 [23:0] qpn: Qpn,
        /// Fields of the context that count, beside those that the transition takes: [`QpOptParam`] bits.
        0x10 [31:0] opt_param_mask: u32,
        0x14 [31:0] ece: u32,
        0x18 [struct] qpc: Qpc,
        /// Bits 95:32 of [`opt_param_mask`](Self::opt_param_mask).
        0x108 [63:0] opt_param_mask_95_32: u64,
    }

    /// Output of INIT2INIT_QP.
    pub struct Init2initQpOut, 16, "init2init_qp_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x0c [31:0] ece: u32,
    }

    /// Init to Ready to Receive.
    pub struct Init2rtrQpIn, 272, "init2rtr_qp_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] qpn: Qpn,
        /// Fields of the context that count, beside those that the transition takes: [`QpOptParam`] bits.
        0x10 [31:0] opt_param_mask: u32,
        0x14 [31:0] ece: u32,
        0x18 [struct] qpc: Qpc,
    }

    /// Output of INIT2RTR_QP.
    pub struct Init2rtrQpOut, 16, "init2rtr_qp_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x0c [31:0] ece: u32,
    }

    /// Ready to Receive to Ready to Send.
    pub struct Rtr2rtsQpIn, 272, "rtr2rts_qp_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] qpn: Qpn,
        /// Fields of the context that count, beside those that the transition takes: [`QpOptParam`] bits.
        0x10 [31:0] opt_param_mask: u32,
        0x14 [31:0] ece: u32,
        0x18 [struct] qpc: Qpc,
    }

    /// Output of RTR2RTS_QP.
    pub struct Rtr2rtsQpOut, 16, "rtr2rts_qp_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x0c [31:0] ece: u32,
    }

    /// Ready to Send, with new attributes.
    pub struct Rts2rtsQpIn, 272, "rts2rts_qp_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        /// An extended context follows this structure (newer devices).
        0x08 [31:31] qpc_ext: bool,
        0x08 [23:0] qpn: Qpn,
        /// Fields of the context that count, beside those that the transition takes: [`QpOptParam`] bits.
        0x10 [31:0] opt_param_mask: u32,
        0x14 [31:0] ece: u32,
        0x18 [struct] qpc: Qpc,
        /// Bits 95:32 of [`opt_param_mask`](Self::opt_param_mask).
        0x108 [63:0] opt_param_mask_95_32: u64,
    }

    /// Output of RTS2RTS_QP.
    pub struct Rts2rtsQpOut, 16, "rts2rts_qp_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x0c [31:0] ece: u32,
    }

    /// Send queue error to Ready to Send (not RC).
    pub struct Sqerr2rtsQpIn, 272, "sqerr2rts_qp_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] qpn: Qpn,
        /// Fields of the context that count, beside those that the transition takes: [`QpOptParam`] bits.
        0x10 [31:0] opt_param_mask: u32,
        0x18 [struct] qpc: Qpc,
    }

    /// Output of SQERR2RTS_QP.
    pub struct Sqerr2rtsQpOut, 16, "sqerr2rts_qp_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Any state to Error: everything outstanding is flushed.
    pub struct Qp2errIn, 16, "qp_2err_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] qpn: Qpn,
    }

    /// Output of QP_2ERR.
    pub struct Qp2errOut, 16, "qp_2err_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Any state to Reset: everything outstanding is forgotten.
    pub struct Qp2rstIn, 16, "qp_2rst_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] qpn: Qpn,
    }

    /// Output of QP_2RST.
    pub struct Qp2rstOut, 16, "qp_2rst_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

wire_enum! {
    /// Bits of `opt_param_mask`: fields of the context that a transition may take.
    pub struct QpOptParam(u32), "qp_opt_param_mask_bit" {
        ALT_ADDR_PATH = 0x01,
        RRE = 0x02,
        RAE = 0x04,
        RWE = 0x08,
        PKEY_INDEX = 0x10,
        Q_KEY = 0x20,
        /// `min_rnr_nak`.
        RNR_TIMEOUT = 0x40,
        PRIMARY_ADDR_PATH = 0x80,
        /// `log_sra_max`.
        SRA_MAX = 0x100,
        /// `log_rra_max`.
        RRA_MAX = 0x200,
        PM_STATE = 0x400,
        RETRY_COUNT = 0x1000,
        RNR_RETRY = 0x2000,
        ACK_TIMEOUT = 0x4000,
        LAG_TX_AFF = 0x8000,
        /// `primary_address_path.vhca_port_num`.
        PRI_PORT = 0x10000,
        SRQN = 0x40000,
        CQN_RCV = 0x80000,
        DC_HS = 0x100000,
        DC_KEY = 0x200000,
        COUNTER_SET_ID = 0x2000000,
    }
}

command! { RST2INIT_QP, Rst2initQpIn => Rst2initQpOut }
command! { INIT2INIT_QP, Init2initQpIn => Init2initQpOut }
command! { INIT2RTR_QP, Init2rtrQpIn => Init2rtrQpOut }
command! { RTR2RTS_QP, Rtr2rtsQpIn => Rtr2rtsQpOut }
command! { RTS2RTS_QP, Rts2rtsQpIn => Rts2rtsQpOut }
command! { SQERR2RTS_QP, Sqerr2rtsQpIn => Sqerr2rtsQpOut }
command! { QP_2ERR, Qp2errIn => Qp2errOut }
command! { QP_2RST, Qp2rstIn => Qp2rstOut }
