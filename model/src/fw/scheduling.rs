//! Scheduling trees. As of rates, what they say is kept and checked; nothing is slowed down.
#![forbid(unsafe_code)]

use super::{
    Function,
    dispatch::{Input, Output, done, out},
    refusal::Refusal,
};
use mlx5_direct::mlx5::{
    caps::QosCap,
    cmd::{
        CreateSchedulingElementIn, CreateSchedulingElementOut, DestroySchedulingElementIn,
        ModifySchedulingElementIn, QuerySchedulingElementIn, QuerySchedulingElementOut, SchedElem,
        SchedulingContext, SchedulingElementType, SchedulingHierarchy, TsarType, sched_select,
    },
};
use zerocopy::FromBytes;

/// log2 of the elements, and of the queue groups among them. Linux makes a send queue of an interface for each group.
pub(super) const LOG_MAX_ELEMENTS: u8 = 8;
const LOG_MAX_QUEUE_GROUPS: u8 = 4;

/// An element of a tree.
#[derive(Debug)]
pub(crate) struct Element {
    context: SchedulingContext,
    n_children: u32,
}

impl Element {
    fn is_group(&self) -> bool {
        self.context.element_type() == SchedulingElementType::QUEUE_GROUP
    }
}

/// What QUERY_HCA_CAP says of them.
pub(super) fn capabilities(qos: QosCap) -> QosCap {
    qos.with_nic_sq_scheduling(true)
        .with_nic_qp_scheduling(true)
        .with_nic_bw_share(true)
        .with_nic_rate_limit(true)
        .with_nic_element_type(1 << SchedulingElementType::TSAR.0 | 1 << SchedulingElementType::QUEUE_GROUP.0)
        .with_nic_tsar_type(1 << TsarType::DWRR.0)
        .with_log_max_qos_nic_queue_group(LOG_MAX_QUEUE_GROUPS)
}

/// The element that a general object describes.
fn object(contents: &[u8]) -> Result<SchedElem, Refusal> {
    let (element, _) = SchedElem::read_from_prefix(contents).map_err(|_| Refusal::INPUT_SHORT)?;
    Ok(element)
}

fn of_nic(hierarchy: SchedulingHierarchy) -> Result<(), Refusal> {
    if hierarchy == SchedulingHierarchy::NIC { Ok(()) } else { Err(Refusal::SCHEDULING_ELEMENT) }
}

impl Function {
    pub(super) fn create_scheduling_element(&mut self, input: &Input<'_>) -> Output {
        let input: CreateSchedulingElementIn = input.get()?;
        let id = self.add_element(input.scheduling_hierarchy(), input.scheduling_context())?;
        out(CreateSchedulingElementOut::new().with_scheduling_element_id(id))
    }

    pub(super) fn query_scheduling_element(&mut self, input: &Input<'_>) -> Output {
        let input: QuerySchedulingElementIn = input.get()?;
        of_nic(input.scheduling_hierarchy())?;
        let element = self.elements.get(input.scheduling_element_id()).ok_or(Refusal::NO_SUCH_OBJECT)?;
        out(QuerySchedulingElementOut::new().with_scheduling_context(element.context))
    }

    pub(super) fn modify_scheduling_element(&mut self, input: &Input<'_>) -> Output {
        let input: ModifySchedulingElementIn = input.get()?;
        of_nic(input.scheduling_hierarchy())?;
        let (id, select) = (input.scheduling_element_id(), input.modify_bitmask());
        self.change_element(id, select, input.scheduling_context())?;
        done()
    }

    pub(super) fn destroy_scheduling_element(&mut self, input: &Input<'_>) -> Output {
        let input: DestroySchedulingElementIn = input.get()?;
        of_nic(input.scheduling_hierarchy())?;
        self.remove_element(input.scheduling_element_id())?;
        done()
    }

    pub(super) fn create_element_object(&mut self, contents: &[u8]) -> Result<u32, Refusal> {
        let element = object(contents)?;
        self.add_element(element.scheduling_hierarchy(), element.sched_context())
    }

    pub(super) fn modify_element_object(&mut self, id: u32, contents: &[u8]) -> Result<(), Refusal> {
        let element = object(contents)?;
        of_nic(element.scheduling_hierarchy())?;
        self.change_element(id, element.modify_field_select() as u32, element.sched_context())
    }

    fn add_element(
        &mut self,
        hierarchy: SchedulingHierarchy,
        context: SchedulingContext,
    ) -> Result<u32, Refusal> {
        of_nic(hierarchy)?;
        let parent = context.parent_element_id();
        let is_sound = match context.element_type() {
            SchedulingElementType::TSAR => context.element_attributes().tsar_type() == TsarType::DWRR,
            SchedulingElementType::QUEUE_GROUP => parent != 0,
            _ => false,
        };
        if !is_sound {
            return Err(Refusal::SCHEDULING_ELEMENT);
        }
        if parent != 0 {
            let parent = self.elements.get(parent).ok_or(Refusal::NO_SUCH_OBJECT)?;
            if parent.context.element_type() != SchedulingElementType::TSAR {
                return Err(Refusal::SCHEDULING_ELEMENT);
            }
        }
        let n_groups = self.elements.iter().filter(|(_, element)| element.is_group()).count();
        if context.element_type() == SchedulingElementType::QUEUE_GROUP
            && n_groups >= 1 << LOG_MAX_QUEUE_GROUPS
        {
            return Err(Refusal::TABLE_FULL);
        }
        let id = self.elements.insert(Element { context, n_children: 0 })?;
        if let Some(parent) = self.elements.get_mut(parent) {
            parent.n_children += 1;
        }
        Ok(id)
    }

    /// What is not selected may be anything: Linux leaves the type out.
    fn change_element(&mut self, id: u32, select: u32, new: SchedulingContext) -> Result<(), Refusal> {
        let element = self.elements.get_mut(id).ok_or(Refusal::NO_SUCH_OBJECT)?;
        if select & sched_select::BW_SHARE != 0 {
            element.context.set_bw_share(new.bw_share());
        }
        if select & sched_select::MAX_AVERAGE_BW != 0 {
            element.context.set_max_average_bw(new.max_average_bw());
        }
        Ok(())
    }

    /// Ends an element. Queues that name it send as those that name none.
    pub(super) fn remove_element(&mut self, id: u32) -> Result<(), Refusal> {
        let element = self.elements.get(id).ok_or(Refusal::NO_SUCH_OBJECT)?;
        let (n_children, parent) = (element.n_children, element.context.parent_element_id());
        if n_children != 0 {
            return Err(self.in_use("scheduling element", id, n_children));
        }
        self.elements.remove(id);
        if let Some(parent) = self.elements.get_mut(parent) {
            parent.n_children -= 1;
        }
        Ok(())
    }

    /// Whether a queue may name a queue group; 0 is none.
    pub(super) fn check_queue_group(&self, id: u32) -> Result<(), Refusal> {
        let is_group = self.elements.get(id).is_some_and(Element::is_group);
        if id == 0 || is_group { Ok(()) } else { Err(Refusal::NO_SUCH_OBJECT) }
    }
}
