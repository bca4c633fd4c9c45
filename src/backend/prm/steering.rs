//! Flow steering: the table of received frames, and entries that lead to raw packet queue pairs.
//!
//! Entries that look at the same fields are a group, a range of the table. Of entries that match a frame the first one
//! counts, so groups stand in the order of how much they look at. The table is there while it has entries.
#![forbid(unsafe_code)]

use super::{Core, cmd_queue::Lane, lock};
use crate::{
    Error, Result,
    backend::{FlowId, FrameMatch},
    mlx5::{
        cmd::{
            Command, CreateFlowGroupIn, CreateFlowTableIn, DeleteFteIn, DestroyFlowGroupIn,
            DestroyFlowTableIn, FlowTableType, SetFlowTableRootIn, SetFteIn,
        },
        context::{
            DestFormatStruct, FlowAction, FlowContext, FlowDestination, FlowTableContext, FteMatchParam,
            FteMatchSetLyr24,
        },
        ids::Qpn,
    },
};
use std::{collections::BTreeMap, sync::Mutex};

/// Entries of a group.
const GROUP_ENTRIES: u32 = 64;
/// Sets of fields that a group may look at.
const N_GROUPS: u32 = 16;
/// `match_criteria_enable`: the outer headers.
const OUTER_HEADERS: u8 = 1;

/// What frames enter first, while there are rules.
#[derive(Debug, Default)]
pub(super) struct Steering {
    table: Mutex<Option<FlowTable>>,
}

#[derive(Debug)]
struct FlowTable {
    id: u32,
    /// Numbers of the groups, by their places.
    groups: BTreeMap<u32, u32>,
    /// Whose entries there are, by their places in the table.
    entries: BTreeMap<u32, (Qpn, FrameMatch)>,
}

/// Which fields of a rule are given, a bit each.
fn fields(frames: &FrameMatch) -> u8 {
    [frames.dmac.is_some(), frames.smac.is_some(), frames.ethertype.is_some(), frames.vlan.is_some()]
        .into_iter()
        .fold(0, |bits, given| bits << 1 | u8::from(given))
}

/// Place of the group that looks at these fields: the more they are, the earlier.
fn group_of(fields: u8) -> u32 {
    let earlier = |other: &u8| {
        let (n, n_other) = (fields.count_ones(), other.count_ones());
        n_other > n || n_other == n && *other > fields
    };
    (0..N_GROUPS as u8).filter(earlier).count() as u32
}

fn with_macs(headers: FteMatchSetLyr24, dmac: [u8; 6], smac: [u8; 6]) -> FteMatchSetLyr24 {
    let split = |[a, b, c, d, e, f]: [u8; 6]| (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, f]));
    let ((dmac_47_16, dmac_15_0), (smac_47_16, smac_15_0)) = (split(dmac), split(smac));
    headers
        .with_dmac_47_16(dmac_47_16)
        .with_dmac_15_0(dmac_15_0)
        .with_smac_47_16(smac_47_16)
        .with_smac_15_0(smac_15_0)
}

/// What the fields of a rule must hold, as entries have it.
fn values(frames: &FrameMatch) -> FteMatchParam {
    let headers = FteMatchSetLyr24::new()
        .with_ethertype(frames.ethertype.unwrap_or(0))
        .with_cvlan_tag(frames.vlan.is_some())
        .with_first_vid(frames.vlan.unwrap_or(0));
    let (dmac, smac) = (frames.dmac.unwrap_or_default(), frames.smac.unwrap_or_default());
    FteMatchParam::new().with_outer_headers(with_macs(headers, dmac, smac))
}

/// The bits that a rule looks at, as groups have them.
fn criteria(frames: &FrameMatch) -> FteMatchParam {
    let mac = |given: bool| if given { [0xff; 6] } else { [0; 6] };
    let headers = FteMatchSetLyr24::new()
        .with_ethertype(if frames.ethertype.is_some() { 0xffff } else { 0 })
        .with_cvlan_tag(frames.vlan.is_some())
        .with_first_vid(if frames.vlan.is_some() { 0xfff } else { 0 });
    FteMatchParam::new().with_outer_headers(with_macs(
        headers,
        mac(frames.dmac.is_some()),
        mac(frames.smac.is_some()),
    ))
}

impl FlowTable {
    /// An empty one, which frames enter.
    fn create(core: &Core) -> Result<Self> {
        let context = FlowTableContext::new().with_log_size((N_GROUPS * GROUP_ENTRIES).ilog2() as u8);
        let input = CreateFlowTableIn::request().with_table_type(FlowTableType::NIC_RX);
        let id = core.cmd.call(&input.with_flow_table_context(context))?.table_id();
        let root = SetFlowTableRootIn::request().with_table_type(FlowTableType::NIC_RX).with_table_id(id);
        let table = Self { id, groups: BTreeMap::new(), entries: BTreeMap::new() };
        match core.cmd.call(&root) {
            Ok(_) => Ok(table),
            // What refused to be the root is of no use; why it refused is the error to tell.
            Err(error) => table.destroy(core).and(Err(error)),
        }
    }

    fn destroy(self, core: &Core) -> Result<()> {
        for group in self.groups.values() {
            let input = DestroyFlowGroupIn::request().with_table_type(FlowTableType::NIC_RX);
            core.cmd.call(&input.with_table_id(self.id).with_group_id(*group))?;
        }
        let input = DestroyFlowTableIn::request().with_table_type(FlowTableType::NIC_RX);
        core.cmd.call(&input.with_table_id(self.id))?;
        Ok(())
    }

    fn group(&mut self, core: &Core, frames: &FrameMatch) -> Result<u32> {
        let place = group_of(fields(frames));
        if let Some(group) = self.groups.get(&place) {
            return Ok(*group);
        }
        let first = place * GROUP_ENTRIES;
        let input = CreateFlowGroupIn::request()
            .with_table_type(FlowTableType::NIC_RX)
            .with_table_id(self.id)
            .with_start_flow_index(first)
            .with_end_flow_index(first + GROUP_ENTRIES - 1)
            .with_match_criteria_enable(if fields(frames) == 0 { 0 } else { OUTER_HEADERS })
            .with_match_criteria(criteria(frames));
        let group = core.cmd.call(&input)?.group_id();
        self.groups.insert(place, group);
        Ok(group)
    }

    fn add(&mut self, core: &Core, qpn: Qpn, tirn: u32, frames: &FrameMatch) -> Result<FlowId> {
        if let Some((owner, _)) = self.entries.values().find(|(_, other)| other == frames) {
            return Err(Error::invalid(format!(
                "{frames:?} already go to queue pair {owner}; remove that rule first"
            )));
        }
        let first = group_of(fields(frames)) * GROUP_ENTRIES;
        let mut places = first..first + GROUP_ENTRIES;
        let Some(index) = places.find(|index| !self.entries.contains_key(index)) else {
            return Err(Error::invalid(format!(
                "{GROUP_ENTRIES} rules look at the same fields as {frames:?}, which is all there is room for; remove one"
            )));
        };
        let group_id = self.group(core, frames)?;
        let context = FlowContext::new()
            .with_group_id(group_id)
            .with_action(FlowAction::FWD_DEST.0)
            .with_destination_list_size(1)
            .with_match_value(values(frames));
        let destination = DestFormatStruct::new()
            .with_destination_type(FlowDestination::TYPE_TIR)
            .with_destination_id(tirn);
        let input = SetFteIn::request()
            .with_table_type(FlowTableType::NIC_RX)
            .with_table_id(self.id)
            .with_flow_index(index)
            .with_flow_context(context);
        core.cmd.exec(Lane::Regular, &input, &destination.to_bytes(), 0)?;
        self.entries.insert(index, (qpn, *frames));
        Ok(FlowId(index))
    }

    fn remove(&mut self, core: &Core, index: u32) -> Result<()> {
        let input = DeleteFteIn::request().with_table_type(FlowTableType::NIC_RX);
        core.cmd.call(&input.with_table_id(self.id).with_flow_index(index))?;
        self.entries.remove(&index);
        Ok(())
    }
}

impl Steering {
    /// Has frames go to the TIR of a queue pair.
    pub(super) fn add(&self, core: &Core, qpn: Qpn, tirn: u32, frames: &FrameMatch) -> Result<FlowId> {
        if let Some(vlan) = frames.vlan.filter(|vlan| *vlan > 0xfff) {
            return Err(Error::invalid(format!("VLAN {vlan}: numbers have 12 bits, 0 to 4095")));
        }
        let mut table = lock(&self.table);
        let added = match &mut *table {
            Some(table) => table.add(core, qpn, tirn, frames),
            empty => empty.insert(FlowTable::create(core)?).add(core, qpn, tirn, frames),
        };
        Self::tidy(&mut table, core)?;
        added
    }

    /// Ends a rule of a queue pair.
    pub(super) fn remove(&self, core: &Core, qpn: Qpn, flow: FlowId) -> Result<()> {
        let mut slot = lock(&self.table);
        let table =
            slot.as_mut().filter(|table| table.entries.get(&flow.0).is_some_and(|(owner, _)| *owner == qpn));
        let Some(table) = table else {
            return Err(Error::invalid(format!("queue pair {qpn} has no rule {}", flow.0)));
        };
        table.remove(core, flow.0)?;
        Self::tidy(&mut slot, core)
    }

    /// Ends all rules of a queue pair.
    pub(super) fn remove_all(&self, core: &Core, qpn: Qpn) -> Result<()> {
        let mut slot = lock(&self.table);
        let Some(table) = slot.as_mut() else { return Ok(()) };
        let own = table.entries.iter().filter(|(_, (owner, _))| *owner == qpn);
        let own: Vec<_> = own.map(|(index, _)| *index).collect();
        own.into_iter().try_for_each(|index| table.remove(core, index))?;
        Self::tidy(&mut slot, core)
    }

    /// Frames go where they went before, once there are no rules.
    fn tidy(slot: &mut Option<FlowTable>, core: &Core) -> Result<()> {
        match slot.take_if(|table| table.entries.is_empty()) {
            Some(table) => table.destroy(core),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_stand_in_the_order_of_what_they_look_at() {
        let mut places: Vec<_> = (0..16u8).map(|fields| (group_of(fields), fields.count_ones())).collect();
        places.sort_unstable();
        assert!(places.iter().map(|(place, _)| *place).eq(0..16), "{places:?}");
        assert!(places.is_sorted_by(|(_, a), (_, b)| a >= b), "{places:?}");
        assert_eq!((group_of(15), group_of(0)), (0, 15));
    }
}
