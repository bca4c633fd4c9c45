//! Flow steering: tables, groups and entries, as commands make them. What they do to frames is in `steer`.
#![forbid(unsafe_code)]

use super::{
    Function, caps,
    dispatch::{Input, Output, done, out},
    refusal::Refusal,
    table::Table,
    vport::own_vport,
};
use crate::eth::{Pattern, extracted};
use mlx5_direct::mlx5::{
    cmd::{
        AllocFlowCounterIn, AllocFlowCounterOut, CreateFlowGroupIn, CreateFlowGroupOut, CreateFlowTableIn,
        CreateFlowTableOut, DeallocFlowCounterIn, DeleteFteIn, DestroyFlowGroupIn, DestroyFlowTableIn,
        FlowTableType, ModifyFlowTableIn, QueryFlowCounterIn, QueryFlowCounterOut, SetFlowTableRootIn,
        SetFteIn, TrafficCounter,
    },
    context::{DestFormatStruct, FlowAction, FlowContext, FlowDestination, FlowTableContext, FteMatchParam},
};
use std::collections::BTreeMap;
use zerocopy::IntoBytes;

/// `table_miss_action`: to another table.
pub(super) const MISS_TO_TABLE: u8 = 1;
/// `modify_field_select` of MODIFY_FLOW_TABLE: the miss table.
const SELECT_MISS_TABLE: u16 = 1;
/// `op_mod` of SET_FLOW_TABLE_ENTRY: change an entry.
const MODIFY: u16 = 1;
/// What entries can do.
const ACTIONS: u16 = FlowAction::ALLOW.0 | FlowAction::DROP.0 | FlowAction::FWD_DEST.0 | FlowAction::COUNT.0;

/// A range of entries that look at the same fields.
#[derive(Debug)]
struct Group {
    first: u32,
    last: u32,
    enable: u8,
    criteria: FteMatchParam,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) context: FlowContext,
    pub(super) pattern: Pattern,
    pub(super) destinations: Vec<[u8; 8]>,
    /// Numbers of the counters that count what matches.
    pub(super) counters: Vec<u32>,
}

/// A flow table.
#[derive(Debug)]
pub(crate) struct FlowTable {
    pub(super) context: FlowTableContext,
    groups: Table<Group>,
    pub(super) entries: BTreeMap<u32, Entry>,
}

/// All flow tables of a function; only those of received Ethernet frames exist.
#[derive(Debug)]
pub(crate) struct Steering {
    pub(super) tables: Table<FlowTable>,
    pub(super) root: Option<u32>,
    pub(super) counters: Table<TrafficCounter>,
}

impl Steering {
    pub(crate) fn new() -> Self {
        let tables = Table::new(1, 1 << caps::LOG_MAX_FT_NUM);
        Self { tables, root: None, counters: Table::new(1, caps::MAX_FLOW_COUNTER) }
    }

    /// A driver takes Ethernet frames.
    pub(crate) fn has_root(&self) -> bool {
        self.root.is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.tables.len()
    }

    fn table(&mut self, number: u32) -> Result<&mut FlowTable, Refusal> {
        self.tables.get_mut(number).ok_or(Refusal::NO_SUCH_OBJECT)
    }

    fn check_miss(&self, context: &FlowTableContext) -> Result<(), Refusal> {
        let dangling =
            context.table_miss_action() == MISS_TO_TABLE && !self.tables.contains(context.table_miss_id());
        if dangling { Err(Refusal::FLOW_DESTINATION) } else { Ok(()) }
    }
}

fn received(kind: FlowTableType) -> Result<(), Refusal> {
    if kind == FlowTableType::NIC_RX { Ok(()) } else { Err(Refusal::FLOW_TABLE_TYPE) }
}

impl Function {
    pub(super) fn create_flow_table(&mut self, input: &Input<'_>) -> Output {
        let input: CreateFlowTableIn = input.get()?;
        own_vport(input.other_vport(), input.vport_number())?;
        received(input.table_type())?;
        let context = input.flow_table_context();
        if context.log_size() > caps::LOG_MAX_FT_SIZE || context.level() >= caps::MAX_FT_LEVEL {
            return Err(Refusal::FLOW_TABLE_SIZE);
        }
        self.steering.check_miss(&context)?;
        let groups = Table::new(0, 1 << caps::LOG_MAX_FT_SIZE);
        let number = self.steering.tables.insert(FlowTable { context, groups, entries: BTreeMap::new() })?;
        out(CreateFlowTableOut::new().with_table_id(number))
    }

    pub(super) fn destroy_flow_table(&mut self, input: &Input<'_>) -> Output {
        let input: DestroyFlowTableIn = input.get()?;
        own_vport(input.other_vport(), input.vport_number())?;
        let number = input.table_id();
        let n_groups = self.steering.table(number)?.groups.len() as u32;
        if n_groups != 0 {
            return Err(self.in_use("flow table", number, n_groups));
        }
        self.steering.tables.remove(number);
        if self.steering.root == Some(number) {
            self.steering.root = None;
        }
        done()
    }

    pub(super) fn modify_flow_table(&mut self, input: &Input<'_>) -> Output {
        let input: ModifyFlowTableIn = input.get()?;
        own_vport(input.other_vport(), input.vport_number())?;
        if input.modify_field_select() != SELECT_MISS_TABLE {
            return Err(Refusal::MODIFY_SELECT);
        }
        let new = input.flow_table_context();
        self.steering.check_miss(&new)?;
        let table = self.steering.table(input.table_id())?;
        table.context.set_table_miss_action(new.table_miss_action());
        table.context.set_table_miss_id(new.table_miss_id());
        done()
    }

    pub(super) fn set_flow_table_root(&mut self, input: &Input<'_>) -> Output {
        let input: SetFlowTableRootIn = input.get()?;
        own_vport(input.other_vport(), input.vport_number())?;
        received(input.table_type())?;
        self.steering.table(input.table_id())?;
        self.steering.root = Some(input.table_id());
        done()
    }

    pub(super) fn create_flow_group(&mut self, input: &Input<'_>) -> Output {
        let input: CreateFlowGroupIn = input.get()?;
        own_vport(input.other_vport(), input.vport_number())?;
        let group = Group {
            first: input.start_flow_index(),
            last: input.end_flow_index(),
            enable: input.match_criteria_enable(),
            criteria: input.match_criteria(),
        };
        if !Pattern::new(group.enable, &group.criteria, &group.criteria).is_within(&extracted()) {
            return Err(Refusal::FLOW_CRITERIA);
        }
        let table = self.steering.table(input.table_id())?;
        let overlaps = |other: &Group| group.first <= other.last && other.first <= group.last;
        if group.first > group.last
            || group.last >= 1 << table.context.log_size()
            || table.groups.iter().any(|(_, other)| overlaps(other))
        {
            return Err(Refusal::FLOW_INDEX);
        }
        out(CreateFlowGroupOut::new().with_group_id(table.groups.insert(group)?))
    }

    pub(super) fn destroy_flow_group(&mut self, input: &Input<'_>) -> Output {
        let input: DestroyFlowGroupIn = input.get()?;
        own_vport(input.other_vport(), input.vport_number())?;
        let number = input.group_id();
        let table = self.steering.table(input.table_id())?;
        let group = table.groups.get(number).ok_or(Refusal::NO_SUCH_OBJECT)?;
        let n_entries = table.entries.range(group.first..=group.last).count() as u32;
        if n_entries != 0 {
            return Err(self.in_use("flow group", number, n_entries));
        }
        table.groups.remove(number);
        done()
    }

    pub(super) fn set_flow_table_entry(&mut self, input: &Input<'_>) -> Output {
        let (input, list) = input.get_with_list::<SetFteIn>()?;
        own_vport(input.other_vport(), input.vport_number())?;
        let (index, context) = (input.flow_index(), input.flow_context());
        if context.action() & !ACTIONS != 0 {
            return Err(Refusal::FLOW_ACTION);
        }
        let n_destinations = context.destination_list_size() as usize;
        let n_counters = context.flow_counter_list_size() as usize;
        // Counters follow the destinations, in as many bytes each.
        let list = list.as_chunks::<8>().0.get(..n_destinations + n_counters).ok_or(Refusal::LIST_SHORT)?;
        let (destinations, counters) = list.split_at(n_destinations);
        for destination in destinations {
            self.check_destination(&DestFormatStruct::from_bytes(*destination))?;
        }
        if (context.action() & FlowAction::FWD_DEST.0 != 0) != (n_destinations != 0) {
            return Err(Refusal::FLOW_DESTINATION);
        }
        let counters: Vec<u32> =
            counters.iter().map(|[a, b, c, d, ..]| u32::from_be_bytes([*a, *b, *c, *d])).collect();
        if !counters.iter().all(|counter| self.steering.counters.contains(*counter)) {
            return Err(Refusal::NO_SUCH_OBJECT);
        }
        let table = self.steering.table(input.table_id())?;
        let group = table.groups.get(context.group_id()).ok_or(Refusal::NO_SUCH_OBJECT)?;
        if !(group.first..=group.last).contains(&index) {
            return Err(Refusal::FLOW_INDEX);
        }
        if table.entries.contains_key(&index) != (input.op_mod() == MODIFY) {
            return Err(Refusal::FLOW_INDEX);
        }
        let pattern = Pattern::new(group.enable, &group.criteria, &context.match_value());
        let destinations = destinations.to_vec();
        table.entries.insert(index, Entry { context, pattern, destinations, counters });
        done()
    }

    fn check_destination(&self, destination: &DestFormatStruct) -> Result<(), Refusal> {
        let number = destination.destination_id();
        let exists = match destination.destination_type() {
            FlowDestination::TYPE_FLOW_TABLE => self.steering.tables.contains(number),
            FlowDestination::TYPE_TIR => self.tirs.contains(number),
            _ => false,
        };
        if exists { Ok(()) } else { Err(Refusal::FLOW_DESTINATION) }
    }

    pub(super) fn delete_flow_table_entry(&mut self, input: &Input<'_>) -> Output {
        let input: DeleteFteIn = input.get()?;
        own_vport(input.other_vport(), input.vport_number())?;
        let table = self.steering.table(input.table_id())?;
        table.entries.remove(&input.flow_index()).ok_or(Refusal::NO_SUCH_OBJECT)?;
        done()
    }

    /// How many flow entries lead to a TIR.
    pub(super) fn n_flows_to_tir(&self, tir: u32) -> u32 {
        let leads = |bytes: &[u8; 8]| {
            let destination = DestFormatStruct::from_bytes(*bytes);
            destination.destination_type() == FlowDestination::TYPE_TIR && destination.destination_id() == tir
        };
        let entries = self.steering.tables.iter().flat_map(|(_, table)| table.entries.values());
        entries
            .filter(|entry| entry.context.action() & FlowAction::FWD_DEST.0 != 0)
            .filter(|entry| entry.destinations.iter().any(leads))
            .count() as u32
    }

    pub(super) fn alloc_flow_counter(&mut self, input: &Input<'_>) -> Output {
        let input: AllocFlowCounterIn = input.get()?;
        if input.flow_counter_bulk() != 0 || input.flow_counter_bulk_log_size() != 0 {
            return Err(Refusal::FLOW_COUNTER_BULK);
        }
        let number = self.steering.counters.insert(TrafficCounter::new())?;
        out(AllocFlowCounterOut::new().with_flow_counter_id(number))
    }

    pub(super) fn dealloc_flow_counter(&mut self, input: &Input<'_>) -> Output {
        let number = input.get::<DeallocFlowCounterIn>()?.flow_counter_id();
        let entries = self.steering.tables.iter().flat_map(|(_, table)| table.entries.values());
        let n_users = entries.filter(|entry| entry.counters.contains(&number)).count() as u32;
        if n_users != 0 {
            return Err(self.in_use("flow counter", number, n_users));
        }
        self.steering.counters.remove(number).ok_or(Refusal::NO_SUCH_OBJECT)?;
        done()
    }

    pub(super) fn query_flow_counter(&mut self, input: &Input<'_>) -> Output {
        let input: QueryFlowCounterIn = input.get()?;
        if input.dump_to_memory() {
            return Err(Refusal::FLOW_COUNTER_BULK);
        }
        let (first, n) = (input.flow_counter_id(), input.num_of_counters().max(1));
        if !self.steering.counters.contains(first) {
            return Err(Refusal::NO_SUCH_OBJECT);
        }
        let mut output = QueryFlowCounterOut::new().as_bytes().to_vec();
        // Linux asks for ranges with holes.
        for number in first..first.saturating_add(n.min(caps::MAX_FLOW_COUNTER)) {
            let counter = self.steering.counters.get_mut(number);
            let value = counter.as_ref().map_or(TrafficCounter::new(), |counter| **counter);
            output.extend_from_slice(value.as_bytes());
            if let (Some(counter), true) = (counter, input.clear()) {
                *counter = TrafficCounter::new();
            }
        }
        Ok(output)
    }
}
