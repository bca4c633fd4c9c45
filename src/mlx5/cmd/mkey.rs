//! Memory keys.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::context::mkc::Mkc;
use crate::mlx5::{ids::Lkey, layout::layout};

layout! {
    /// Makes a memory key; MTT or KLM entries follow if `pg_access` is set.
    pub struct CreateMkeyIn, 272, "create_mkey_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        /// A translation list follows.
        0x0c [31:31] pg_access: bool,
        0x0c [30:30] mkey_umem_valid: bool,
        0x10 [struct] memory_key_mkey_entry: Mkc,
        /// Its length in 16-byte units.
        0x60 [31:0] translations_octword_actual_size: u32,
        0x64 [31:0] mkey_umem_id: u32,
        0x68 [63:0] mkey_umem_offset: u64,
    }

    /// Output of CREATE_MKEY.
    pub struct CreateMkeyOut, 16, "create_mkey_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        /// Key without its low byte: `mkey_index << 8 \| mkey_7_0`.
        0x08 [23:0] mkey_index: u32,
    }

    /// Reads a memory key back.
    pub struct QueryMkeyIn, 16, "query_mkey_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] mkey_index: u32,
        0x0c [31:31] pg_access: bool,
    }

    /// Output of QUERY_MKEY.
    pub struct QueryMkeyOut, 304, "query_mkey_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [struct] memory_key_mkey_entry: Mkc,
        /// First translation entries, if `pg_access` was set.
        0x110 [bytes] bsf0_klm0_pas_mtt0_1: [u8; 16],
        0x120 [bytes] bsf1_klm1_pas_mtt2_3: [u8; 16],
    }

    /// Ends a memory key.
    pub struct DestroyMkeyIn, 16, "destroy_mkey_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] mkey_index: u32,
    }

    /// Output of DESTROY_MKEY.
    pub struct DestroyMkeyOut, 16, "destroy_mkey_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Asks for the keys that every function has.
    pub struct QuerySpecialContextsIn, 16, "query_special_contexts_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of QUERY_SPECIAL_CONTEXTS.
    pub struct QuerySpecialContextsOut, 32, "query_special_contexts_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        /// For DUMP WQEs.
        0x08 [31:0] dump_fill_mkey: Lkey,
        /// Reserved lkey: physical addresses, for privileged QPs.
        0x0c [31:0] resd_lkey: Lkey,
        /// Reads zeros, swallows writes; where a driver pages it stands, inside an indirect key, for what is not there yet.
        0x10 [31:0] null_mkey: Lkey,
    }
}

command! { CREATE_MKEY, CreateMkeyIn => CreateMkeyOut }
command! { QUERY_MKEY, QueryMkeyIn => QueryMkeyOut }
command! { DESTROY_MKEY, DestroyMkeyIn => DestroyMkeyOut }
command! { QUERY_SPECIAL_CONTEXTS, QuerySpecialContextsIn => QuerySpecialContextsOut }
