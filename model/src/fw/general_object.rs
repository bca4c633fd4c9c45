//! General objects: numbers that are reserved, so that no queue pair gets them, and addresses that are paced as a queue pair is.
#![forbid(unsafe_code)]

use super::{
    Function, caps,
    dct::FIRST_DCTN,
    dispatch::{Input, Output, done, out},
    refusal::Refusal,
};
use mlx5_direct::mlx5::cmd::{
    AvQpMapping, CreateGeneralObjectIn, CreateGeneralObjectOut, DestroyGeneralObjectIn, GeneralObjectType,
    ModifyGeneralObjectIn,
};
use zerocopy::FromBytes;

/// Numbers that are reserved in one go.
pub(super) const LOG_RESERVED_QPNS: u8 = 5;
/// How often.
pub(super) const LOG_MAX_RESERVATIONS: u8 = 10;
/// First of them: behind the DCTs.
const FIRST_RESERVED_QPN: u32 = FIRST_DCTN * 2;

/// Types of general objects, as a set of bits.
pub(super) const TYPES: u64 = 1 << GeneralObjectType::SCHEDULING_ELEMENT.0
    | 1 << GeneralObjectType::RESERVED_QPN.0
    | 1 << GeneralObjectType::AV_QP_MAPPING.0;

/// A run of reserved numbers.
#[derive(Debug)]
pub(crate) struct Reservation;

/// An address that is paced as a queue pair is. There is no congestion here, so it is kept and has no effect.
#[derive(Debug)]
pub(crate) struct PacedAddress;

impl Function {
    pub(super) fn create_general_object(&mut self, input: &Input<'_>) -> Output {
        let (head, contents) = input.get_with_list::<CreateGeneralObjectIn>()?;
        let id = match head.obj_type() {
            GeneralObjectType::RESERVED_QPN if head.log_obj_range() != LOG_RESERVED_QPNS => {
                return Err(Refusal::OBJECT_RANGE);
            }
            GeneralObjectType::RESERVED_QPN => {
                FIRST_RESERVED_QPN + (self.reserved_qpns.insert(Reservation)? << LOG_RESERVED_QPNS)
            }
            GeneralObjectType::AV_QP_MAPPING => {
                let (mapping, _) =
                    AvQpMapping::read_from_prefix(contents).map_err(|_| Refusal::INPUT_SHORT)?;
                if !self.qps.contains(mapping.qpn()) {
                    return Err(Refusal::NO_SUCH_OBJECT);
                }
                if u16::from(mapping.remote_address_vector().src_addr_index()) >= caps::ROCE_TABLE_SIZE {
                    return Err(Refusal::QP_GID_INDEX);
                }
                self.paced_addresses.insert(PacedAddress)?
            }
            GeneralObjectType::SCHEDULING_ELEMENT => self.create_element_object(contents)?,
            _ => return Err(Refusal::OBJECT_TYPE),
        };
        out(CreateGeneralObjectOut::new().with_obj_id(id))
    }

    pub(super) fn modify_general_object(&mut self, input: &Input<'_>) -> Output {
        let (head, contents) = input.get_with_list::<ModifyGeneralObjectIn>()?;
        if head.obj_type() != GeneralObjectType::SCHEDULING_ELEMENT {
            return Err(Refusal::OBJECT_TYPE);
        }
        self.modify_element_object(head.obj_id(), contents)?;
        done()
    }

    pub(super) fn destroy_general_object(&mut self, input: &Input<'_>) -> Output {
        let input: DestroyGeneralObjectIn = input.get()?;
        let id = input.obj_id();
        let was_there = match input.obj_type() {
            GeneralObjectType::RESERVED_QPN => {
                let at = id.checked_sub(FIRST_RESERVED_QPN);
                let run = at.filter(|at| at.is_multiple_of(1 << LOG_RESERVED_QPNS));
                run.and_then(|at| self.reserved_qpns.remove(at >> LOG_RESERVED_QPNS)).is_some()
            }
            GeneralObjectType::AV_QP_MAPPING => self.paced_addresses.remove(id).is_some(),
            GeneralObjectType::SCHEDULING_ELEMENT => {
                self.remove_element(id)?;
                true
            }
            _ => return Err(Refusal::OBJECT_TYPE),
        };
        if was_there { done() } else { Err(Refusal::NO_SUCH_OBJECT) }
    }
}
