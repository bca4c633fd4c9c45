//! A frame's way through the flow tables, from the root to TIRs.
#![forbid(unsafe_code)]

use super::{
    caps,
    flow::{MISS_TO_TABLE, Steering},
};
use mlx5_direct::mlx5::cmd::TrafficCounter;
use mlx5_direct::mlx5::context::{DestFormatStruct, FlowAction, FlowDestination, FteMatchParam};

/// A counter with one more frame.
fn counted(counter: TrafficCounter, frame_bytes: usize) -> TrafficCounter {
    TrafficCounter::new()
        .with_packets(counter.packets() + 1)
        .with_octets(counter.octets() + frame_bytes as u64)
}

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) tir: u32,
    /// Mark of the last entry with one.
    pub(crate) flow_tag: u32,
}

impl Steering {
    /// The TIRs that get a frame with these fields. A frame that no entry takes is dropped.
    pub(crate) fn steer(&mut self, fields: &FteMatchParam, frame_bytes: usize) -> Vec<Target> {
        let mut targets = Vec::new();
        // Entries lead to later tables only, but a table that is changed may come to lead back.
        let mut n_tables_left = usize::from(caps::MAX_FT_LEVEL) * 2;
        let mut next: Vec<(u32, u32)> = self.root.map(|root| (root, 0)).into_iter().collect();
        while let Some((table, flow_tag)) = next.pop() {
            if n_tables_left == 0 {
                break;
            }
            n_tables_left -= 1;
            let Some(table) = self.tables.get(table) else { continue };
            // In order of their index: the first that matches decides.
            let found = table.entries.values().find(|entry| entry.pattern.matches(fields));
            let Some(entry) = found else {
                if table.context.table_miss_action() == MISS_TO_TABLE {
                    next.push((table.context.table_miss_id(), flow_tag));
                }
                continue;
            };
            let does = |action: FlowAction| entry.context.action() & action.0 != 0;
            let flow_tag = match entry.context.flow_tag() {
                0 => flow_tag,
                own => own,
            };
            if does(FlowAction::COUNT) {
                for counter in &entry.counters {
                    if let Some(counter) = self.counters.get_mut(*counter) {
                        *counter = counted(*counter, frame_bytes);
                    }
                }
            }
            if does(FlowAction::DROP) || !does(FlowAction::FWD_DEST) {
                continue;
            }
            // The stack gives back the last first.
            for destination in
                entry.destinations.iter().rev().map(|bytes| DestFormatStruct::from_bytes(*bytes))
            {
                match destination.destination_type() {
                    FlowDestination::TYPE_TIR => {
                        targets.push(Target { tir: destination.destination_id(), flow_tag });
                    }
                    _ => next.push((destination.destination_id(), flow_tag)),
                }
            }
        }
        targets
    }
}
