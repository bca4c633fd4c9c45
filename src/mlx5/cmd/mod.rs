//! Commands: what a driver asks of firmware, as inputs and outputs.
//!
//! A structure is the fixed part; page lists, translation entries and other lists follow it as bytes.
//! Contexts inside are those of [`context`](super::context).

mod alloc;
mod cap_reg;
mod caps;
mod cq;
mod dct;
mod eq;
mod flow;
mod flow_counter;
mod frame;
mod general_object;
mod hca;
mod issi;
mod link_counters;
mod mad;
mod mcg;
mod memic;
mod mkey;
mod opcode;
mod page_fault;
mod pages;
mod port_reg;
mod ppcnt;
mod psv;
mod qp;
mod qp_modify;
mod rate;
mod reg;
mod roce;
mod rq;
mod scheduling;
mod sq;
mod srq;
mod tir;
mod umem;
mod vport;
mod vport_counter;
mod xrq;

pub use alloc::*;
pub use cap_reg::*;
pub use caps::*;
pub use cq::*;
pub use dct::*;
pub use eq::*;
pub use flow::*;
pub use flow_counter::*;
pub use frame::*;
pub use general_object::*;
pub use hca::*;
pub use issi::*;
pub use link_counters::*;
pub use mad::*;
pub use mcg::*;
pub use memic::*;
pub use mkey::*;
pub use opcode::CmdOpcode;
pub use page_fault::*;
pub use pages::*;
pub use port_reg::*;
pub use ppcnt::*;
pub use psv::*;
pub use qp::*;
pub use qp_modify::*;
pub use rate::*;
pub use reg::*;
pub use roce::*;
pub use rq::*;
pub use scheduling::*;
pub use sq::*;
pub use srq::*;
pub use tir::*;
pub use umem::*;
pub use vport::*;
pub use vport_counter::*;
pub use xrq::*;

use super::layout::{Desc, Layout, layout, wire_enum};

/// A command's input.
pub trait Command: Layout {
    /// Its opcode.
    const OPCODE: CmdOpcode;
    /// Its output.
    type Out: Layout;

    /// An input with the opcode set and all else zero.
    fn request() -> Self;
}

/// A command in [`commands`](super::commands).
#[derive(Debug, Clone, Copy)]
pub struct CommandDesc {
    /// Opcode.
    pub opcode: CmdOpcode,
    /// Fixed part of the input.
    pub input: &'static Desc,
    /// Fixed part of the output.
    pub output: &'static Desc,
}

/// `OPCODE, In => Out`: makes `In` a [`Command`].
macro_rules! command {
    ($opcode:ident, $input:ident => $output:ident) => {
        impl super::Command for $input {
            const OPCODE: CmdOpcode = CmdOpcode::$opcode;
            type Out = $output;

            #[inline]
            fn request() -> Self {
                Self::new().with_opcode(CmdOpcode::$opcode)
            }
        }
    };
}
use command;

layout! {
    /// Head of every input (PRM `mbox_in`).
    pub struct MboxIn, 16, "mbox_in" {
        0x00 [31:16] opcode: CmdOpcode,
        /// DevX context in whose name the command runs; 0 for the driver's own.
        0x00 [15:0] uid: u16,
        /// Variant of the opcode.
        0x04 [15:0] op_mod: u16,
    }

    /// Head of every output (PRM `mbox_out`).
    pub struct MboxOut, 16, "mbox_out" {
        0x00 [31:24] status: CmdStatus,
        /// Tells firmware's developers why; 0 on success.
        0x04 [31:0] syndrome: u32,
    }
}

wire_enum! {
    /// What firmware says of a command (byte 0 of the output).
    pub struct CmdStatus(u8), "cmd_status" {
        OK = 0x00,
        /// Firmware failed.
        INT_ERR = 0x01,
        /// Unknown opcode, or not available.
        BAD_OP_ERR = 0x02,
        /// A field has a value that is out of range or not supported.
        BAD_PARAM_ERR = 0x03,
        /// The device is not in the state for it.
        BAD_SYS_STATE_ERR = 0x04,
        /// An object that is named does not exist.
        BAD_RES_ERR = 0x05,
        /// An object is in use by others.
        RES_BUSY = 0x06,
        /// A limit of the device is passed.
        LIM_ERR = 0x08,
        /// An object is not in the state for it.
        BAD_RES_STATE_ERR = 0x09,
        /// An index is out of range.
        IX_ERR = 0x0a,
        /// No objects, or no memory, are left.
        NO_RES_ERR = 0x0f,
        /// The QP is not in the state for it.
        BAD_QP_STATE_ERR = 0x10,
        /// A management packet is malformed.
        BAD_PKT_ERR = 0x30,
        /// The new CQ is too small for the CQEs outstanding.
        BAD_SIZE_OUTS_CQES_ERR = 0x40,
        /// Input too short.
        BAD_INP_LEN_ERR = 0x50,
        /// Output too short.
        BAD_OUTP_LEN_ERR = 0x51,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_carries_its_opcode() {
        assert_eq!(CreateCqIn::request().to_bytes()[..8], [4, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(
            QueryHcaCapIn::request().with_op_mod(CapType::ROCE.op_mod(true)).to_bytes()[..8],
            [1, 0, 0, 0, 0, 0, 0, 9]
        );
        assert_eq!(CapType::from_op_mod(9), (CapType::ROCE, true));
    }
}
