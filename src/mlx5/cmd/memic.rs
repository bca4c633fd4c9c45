//! Pieces of memory on the device.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::layout::{layout, wire_enum};

layout! {
    /// Takes a piece out of a range of BAR0.
    pub struct AllocMemicIn, 32, "alloc_memic_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        /// 64 bytes shifted left by this.
        0x0c [7:0] log_memic_addr_alignment: u8,
        /// Where the piece may be: an offset in BAR0.
        0x10 [63:0] range_start_addr: u64,
        0x18 [31:0] range_size: u32,
        /// Bytes.
        0x1c [31:0] memic_size: u32,
    }

    /// Output of ALLOC_MEMIC.
    pub struct AllocMemicOut, 16, "alloc_memic_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        /// Where the piece is: an offset in BAR0.
        0x08 [63:0] memic_start_addr: u64,
    }

    /// Gives a piece back.
    pub struct DeallocMemicIn, 32, "dealloc_memic_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x10 [63:0] memic_start_addr: u64,
        0x18 [31:0] memic_size: u32,
    }

    /// Output of DEALLOC_MEMIC.
    pub struct DeallocMemicOut, 16, "dealloc_memic_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Gives a piece a second address, at which accesses are operations; or takes that away.
    pub struct ModifyMemicIn, 64, "modify_memic_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        /// [`ModifyMemicOpMod`].
        0x04 [15:0] op_mod: u16,
        /// [`MemicOperation`].
        0x0c [7:0] memic_operation_type: MemicOperation,
        /// The piece: an offset in BAR0.
        0x10 [63:0] memic_start_addr: u64,
    }

    /// Output of MODIFY_MEMIC.
    pub struct ModifyMemicOut, 64, "modify_memic_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        /// The second address: an offset in BAR0.
        0x10 [63:0] memic_operation_addr: u64,
    }
}

wire_enum! {
    /// What MODIFY_MEMIC does with the second address.
    pub struct ModifyMemicOpMod(u16), "modify_memic_op_mod" {
        ALLOC = 0,
        DEALLOC = 1,
    }

    /// What an access to the second address of a piece does; bits of `memic_operations` too.
    pub struct MemicOperation(u8), "memic_operation_type" {
        /// A store is added to what is there.
        INCREMENT = 0,
        /// A load gives what is there, and leaves ones.
        TEST_AND_SET = 1,
    }
}

command! { ALLOC_MEMIC, AllocMemicIn => AllocMemicOut }
command! { DEALLOC_MEMIC, DeallocMemicIn => DeallocMemicOut }
command! { MODIFY_MEMIC, ModifyMemicIn => ModifyMemicOut }
