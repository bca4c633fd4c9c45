//! The command table: which opcode is handled where, and in which phase of bring-up.
#![forbid(unsafe_code)]

use super::{Function, Phase, refusal::Refusal};
use crate::strict::{Queue, Rule, Violation};
use mlx5_direct::mlx5::{
    cmd::{CmdOpcode, INLINE_BYTES, MboxIn, MboxOut},
    commands,
    layout::{Desc, Kind, Layout},
};
use std::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Owner of objects that every process may name: Linux's completion EQs (`MLX5_SHARED_RESOURCE_UID`).
const SHARED_UID: u16 = 0xffff;

/// Where a command has its `uid`.
const UID_BYTES: Range<usize> = 2..4;

/// A delivered command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) bytes: &'a [u8],
    /// Room for the output.
    pub(crate) output_len_bytes: usize,
}

impl<'a> Input<'a> {
    /// The input's structure.
    pub(crate) fn get<T: Layout + FromBytes>(&self) -> Result<T, Refusal> {
        T::read_from_prefix(self.bytes).map(|(input, _)| input).map_err(|_| Refusal::INPUT_SHORT)
    }

    /// The input's structure and the list that follows it.
    pub(crate) fn get_with_list<T: Layout + FromBytes>(&self) -> Result<(T, &'a [u8]), Refusal> {
        T::read_from_prefix(self.bytes).map_err(|_| Refusal::INPUT_SHORT)
    }

    fn head(&self) -> MboxIn {
        let mut bytes = [0; 16];
        let n = self.bytes.len().min(16);
        bytes[..n].copy_from_slice(&self.bytes[..n]);
        MboxIn::from_bytes(bytes)
    }
}

pub(crate) type Output = Result<Vec<u8>, Refusal>;

/// A structure as an output.
pub(crate) fn out<T: IntoBytes + Immutable>(output: T) -> Output {
    Ok(output.as_bytes().to_vec())
}

/// An output that says no more than "done".
pub(crate) fn done() -> Output {
    out(MboxOut::new())
}

type Handler = fn(&mut Function, &Input<'_>) -> Output;

/// When a command is legal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    /// After ENABLE_HCA.
    Enabled,
    /// After ENABLE_HCA and before INIT_HCA.
    BeforeInit,
    /// After INIT_HCA.
    Initialised,
}

macro_rules! table {
    ($( $opcode:ident $when:ident $handler:ident, )*) => {
        fn lookup(opcode: CmdOpcode) -> Option<(When, Handler)> {
            match opcode { $( CmdOpcode::$opcode => Some((When::$when, Function::$handler)), )* _ => None }
        }

        /// The opcodes that the model executes.
        #[cfg(test)]
        const OPCODES: &[CmdOpcode] = &[$( CmdOpcode::$opcode ),*];
    };
}

table! {
    ENABLE_HCA Always enable_hca,
    DISABLE_HCA Enabled disable_hca,
    QUERY_ISSI Enabled query_issi,
    SET_ISSI Enabled set_issi,
    QUERY_PAGES Enabled query_pages,
    MANAGE_PAGES Enabled manage_pages,
    QUERY_HCA_CAP Enabled query_hca_cap,
    SET_HCA_CAP BeforeInit set_hca_cap,
    INIT_HCA BeforeInit init_hca,
    TEARDOWN_HCA Initialised teardown_hca,
    QUERY_ADAPTER Enabled query_adapter,
    SET_DRIVER_VERSION Enabled set_driver_version,
    QUERY_SPECIAL_CONTEXTS Initialised query_special_contexts,
    ACCESS_REG Enabled access_reg,
    NOP Enabled nop,
    ALLOC_UAR Initialised alloc_uar,
    DEALLOC_UAR Initialised dealloc_uar,
    ALLOC_PD Initialised alloc_pd,
    DEALLOC_PD Initialised dealloc_pd,
    ALLOC_TRANSPORT_DOMAIN Initialised alloc_transport_domain,
    DEALLOC_TRANSPORT_DOMAIN Initialised dealloc_transport_domain,
    ALLOC_XRCD Initialised alloc_xrcd,
    DEALLOC_XRCD Initialised dealloc_xrcd,
    ALLOC_Q_COUNTER Initialised alloc_q_counter,
    DEALLOC_Q_COUNTER Initialised dealloc_q_counter,
    QUERY_Q_COUNTER Initialised query_q_counter,
    CREATE_MKEY Initialised create_mkey,
    QUERY_MKEY Initialised query_mkey,
    DESTROY_MKEY Initialised destroy_mkey,
    CREATE_UCTX Initialised create_uctx,
    DESTROY_UCTX Initialised destroy_uctx,
    CREATE_UMEM Initialised create_umem,
    DESTROY_UMEM Initialised destroy_umem,
    CREATE_EQ Initialised create_eq,
    QUERY_EQ Initialised query_eq,
    DESTROY_EQ Initialised destroy_eq,
    CREATE_CQ Initialised create_cq,
    QUERY_CQ Initialised query_cq,
    MODIFY_CQ Initialised modify_cq,
    DESTROY_CQ Initialised destroy_cq,
    CREATE_GENERAL_OBJECT Initialised create_general_object,
    MODIFY_GENERAL_OBJECT Initialised modify_general_object,
    DESTROY_GENERAL_OBJECT Initialised destroy_general_object,
    CREATE_SCHEDULING_ELEMENT Initialised create_scheduling_element,
    QUERY_SCHEDULING_ELEMENT Initialised query_scheduling_element,
    MODIFY_SCHEDULING_ELEMENT Initialised modify_scheduling_element,
    DESTROY_SCHEDULING_ELEMENT Initialised destroy_scheduling_element,
    CREATE_DCT Initialised create_dct,
    QUERY_DCT Initialised query_dct,
    ARM_DCT_FOR_KEY_VIOLATION Initialised arm_dct,
    DRAIN_DCT Initialised drain_dct,
    DESTROY_DCT Initialised destroy_dct,
    CREATE_QP Initialised create_qp,
    QUERY_QP Initialised query_qp,
    DESTROY_QP Initialised destroy_qp,
    RST2INIT_QP Initialised modify_qp,
    INIT2INIT_QP Initialised modify_qp,
    INIT2RTR_QP Initialised modify_qp,
    RTR2RTS_QP Initialised modify_qp,
    RTS2RTS_QP Initialised modify_qp,
    SQERR2RTS_QP Initialised modify_qp,
    SQD_RTS_QP Initialised modify_qp,
    QP_2ERR Initialised modify_qp,
    QP_2RST Initialised modify_qp,
    SET_ROCE_ADDRESS Initialised set_roce_address,
    QUERY_ROCE_ADDRESS Initialised query_roce_address,
    QUERY_NIC_VPORT_CONTEXT Initialised query_nic_vport_context,
    MODIFY_NIC_VPORT_CONTEXT Initialised modify_nic_vport_context,
    QUERY_VPORT_STATE Initialised query_vport_state,
    MODIFY_VPORT_STATE Initialised modify_vport_state,
    QUERY_HCA_VPORT_CONTEXT Initialised query_hca_vport_context,
    QUERY_HCA_VPORT_GID Initialised query_hca_vport_gid,
    QUERY_HCA_VPORT_PKEY Initialised query_hca_vport_pkey,
    CREATE_FLOW_TABLE Initialised create_flow_table,
    DESTROY_FLOW_TABLE Initialised destroy_flow_table,
    MODIFY_FLOW_TABLE Initialised modify_flow_table,
    SET_FLOW_TABLE_ROOT Initialised set_flow_table_root,
    CREATE_FLOW_GROUP Initialised create_flow_group,
    DESTROY_FLOW_GROUP Initialised destroy_flow_group,
    SET_FLOW_TABLE_ENTRY Initialised set_flow_table_entry,
    DELETE_FLOW_TABLE_ENTRY Initialised delete_flow_table_entry,
    ALLOC_FLOW_COUNTER Initialised alloc_flow_counter,
    DEALLOC_FLOW_COUNTER Initialised dealloc_flow_counter,
    QUERY_FLOW_COUNTER Initialised query_flow_counter,
    CREATE_TIR Initialised create_tir,
    MODIFY_TIR Initialised modify_tir,
    DESTROY_TIR Initialised destroy_tir,
    CREATE_TIS Initialised create_tis,
    MODIFY_TIS Initialised modify_tis,
    QUERY_TIS Initialised query_tis,
    DESTROY_TIS Initialised destroy_tis,
    CREATE_RQT Initialised create_rqt,
    MODIFY_RQT Initialised modify_rqt,
    DESTROY_RQT Initialised destroy_rqt,
    CREATE_SQ Initialised create_sq,
    MODIFY_SQ Initialised modify_sq,
    QUERY_SQ Initialised query_sq,
    DESTROY_SQ Initialised destroy_sq,
    CREATE_RQ Initialised create_rq,
    MODIFY_RQ Initialised modify_rq,
    QUERY_RQ Initialised query_rq,
    DESTROY_RQ Initialised destroy_rq,
    CREATE_RMP Initialised create_rmp,
    QUERY_RMP Initialised query_rmp,
    MODIFY_RMP Initialised modify_rmp,
    DESTROY_RMP Initialised destroy_rmp,
    CREATE_XRC_SRQ Initialised create_xrc_srq,
    QUERY_XRC_SRQ Initialised query_xrc_srq,
    ARM_XRC_SRQ Initialised arm_xrc_srq,
    DESTROY_XRC_SRQ Initialised destroy_xrc_srq,
    CREATE_XRQ Initialised create_xrq,
    QUERY_XRQ Initialised query_xrq,
    ARM_XRQ Initialised arm_xrq,
    ARM_RQ Initialised arm_rq,
    DESTROY_XRQ Initialised destroy_xrq,
    ALLOC_MEMIC Initialised alloc_memic,
    DEALLOC_MEMIC Initialised dealloc_memic,
    MODIFY_MEMIC Initialised modify_memic,
    PAGE_FAULT_RESUME Initialised page_fault_resume,
    CREATE_PSV Initialised create_psv,
    DESTROY_PSV Initialised destroy_psv,
    SET_PP_RATE_LIMIT Initialised set_pp_rate_limit,
    ATTACH_TO_MCG Initialised attach_to_mcg,
    DETACH_FROM_MCG Initialised detach_from_mcg,
    MAD_IFC Initialised mad_ifc,
    QUERY_VPORT_COUNTER Initialised query_vport_counter,
    QUERY_VNIC_ENV Initialised query_vnic_env,
}

/// The part of an output that must fit: what the slot itself carries. What follows is cut to the room there is.
fn head_len_bytes(opcode: CmdOpcode) -> usize {
    let declared = commands().iter().find(|command| command.opcode == opcode);
    declared.map_or(INLINE_BYTES, |command| command.output.size_bytes.min(INLINE_BYTES))
}

/// A violation by a command, which is shown field by field.
pub(crate) fn of_command(violation: Violation, opcode: CmdOpcode, input: &[u8]) -> Violation {
    let violation = violation.on(Queue::Cmd);
    match commands().iter().find(|command| command.opcode == opcode) {
        Some(command) => violation.with_bytes_of(command.input, input),
        None => violation.with_bytes(input),
    }
}

/// Whether reserved bits of the input are zero.
fn check_reserved(function: &mut Function, opcode: CmdOpcode, input: &Input<'_>) {
    let Some(command) = commands().iter().find(|command| command.opcode == opcode) else { return };
    // What a user process sends has its `uid`, also where the command's own structure does not name that.
    let mut bytes = input.bytes.to_vec();
    bytes.get_mut(UID_BYTES).into_iter().for_each(|uid| uid.fill(0));
    if let Some((place, bit)) = reserved_bit(command.input, &bytes) {
        let detail =
            format!("{opcode}: {place}: bit {} of the dword at +0x{:x}", 31 - bit % 32, bit / 32 * 4);
        function.violate(of_command(Violation::new(Rule::CommandReserved, detail), opcode, input.bytes));
    }
}

/// The structure in which a reserved bit is set, and which of its bits.
fn reserved_bit(desc: &'static Desc, bytes: &[u8]) -> Option<(&'static str, usize)> {
    if let Some(bit) = desc.reserved_bit_set(bytes) {
        return Some((desc.prm, bit));
    }
    desc.fields.iter().find_map(|field| match field.kind {
        Kind::Struct(inner) => reserved_bit(inner, bytes.get(field.bit_offset / 8..)?),
        _ => None,
    })
}

/// Executes a command.
pub(crate) fn execute(function: &mut Function, opcode: CmdOpcode, input: &Input<'_>) -> Output {
    let (when, handler) = lookup(opcode).ok_or(Refusal::UNKNOWN_OPCODE)?;
    let refusal = match (when, function.phase) {
        (When::Always, _) => None,
        (_, Phase::Off) => Some(Refusal::NOT_ENABLED),
        (When::BeforeInit, Phase::Initialised) => Some(Refusal::INITIALISED),
        (When::Initialised, Phase::Enabled) => Some(Refusal::NOT_INITIALISED),
        _ => None,
    };
    if let Some(refusal) = refusal {
        let detail = format!("{opcode} came in phase {:?}: {}", function.phase, refusal.text);
        function.violate(of_command(Violation::new(Rule::CommandOrder, detail), opcode, input.bytes));
        return Err(refusal);
    }
    check_reserved(function, opcode, input);
    // What a queue pair has completed is there before a command changes it.
    function.run_cq_sessions(true);
    let uid = input.head().uid();
    if !matches!(uid, 0 | SHARED_UID) && !function.uctxs.contains(uid.into()) {
        return Err(Refusal::UID);
    }
    if input.output_len_bytes < head_len_bytes(opcode) {
        return Err(Refusal::OUTPUT_SHORT);
    }
    handler(function, input)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_declared_command_is_handled() {
        for command in mlx5_direct::mlx5::commands() {
            assert!(OPCODES.contains(&command.opcode), "{} has no handler", command.opcode);
        }
    }
}
