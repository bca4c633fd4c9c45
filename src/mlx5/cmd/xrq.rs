//! XRQs: shared receive queues with tag matching.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::context::Xrqc;
use crate::mlx5::layout::layout;

layout! {
    /// Makes an XRQ; its page list follows.
    pub struct CreateXrqIn, 336, "create_xrq_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x10 [struct] xrq_context: Xrqc,
    }

    /// Output of CREATE_XRQ.
    pub struct CreateXrqOut, 16, "create_xrq_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] xrqn: u32,
    }

    /// Reads the context.
    pub struct QueryXrqIn, 16, "query_xrq_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] xrqn: u32,
    }

    /// Output of QUERY_XRQ.
    pub struct QueryXrqOut, 336, "query_xrq_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [struct] xrq_context: Xrqc,
    }

    /// Ends an XRQ.
    pub struct DestroyXrqIn, 16, "destroy_xrq_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] xrqn: u32,
    }

    /// Output of DESTROY_XRQ.
    pub struct DestroyXrqOut, 16, "destroy_xrq_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Asks for an event when fewer than `lwm` WQEs are left.
    pub struct ArmXrqIn, 16, "arm_xrq_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] xrqn: u32,
        0x0c [15:0] lwm: u16,
    }

    /// Output of ARM_XRQ.
    pub struct ArmXrqOut, 16, "arm_xrq_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// The same, as Linux asks it of XRQs.
    pub struct ArmRqIn, 16, "arm_rq_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        /// 2 for an XRQ.
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] srq_number: u32,
        0x0c [15:0] lwm: u16,
    }

    /// Output of ARM_RQ.
    pub struct ArmRqOut, 16, "arm_rq_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

command! { CREATE_XRQ, CreateXrqIn => CreateXrqOut }
command! { QUERY_XRQ, QueryXrqIn => QueryXrqOut }
command! { DESTROY_XRQ, DestroyXrqIn => DestroyXrqOut }
command! { ARM_XRQ, ArmXrqIn => ArmXrqOut }
command! { ARM_RQ, ArmRqIn => ArmRqOut }
