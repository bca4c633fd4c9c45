//! Event queues.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::context::eqc::Eqc;
use crate::mlx5::eqe::EventType;
use crate::mlx5::{ids::Eqn, layout::layout};

layout! {
    /// Makes an event queue; page addresses follow.
    pub struct CreateEqIn, 272, "create_eq_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x10 [struct] eq_context_entry: Eqc,
        /// Bit n of the first qword: event type n; then types from 64 on.
        0x58 [bytes] event_bitmask: [u8; 32],
    }

    /// Output of CREATE_EQ.
    pub struct CreateEqOut, 16, "create_eq_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [7:0] eq_number: Eqn,
    }

    /// Reads an event queue back.
    pub struct QueryEqIn, 16, "query_eq_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [7:0] eq_number: Eqn,
    }

    /// Output of QUERY_EQ.
    pub struct QueryEqOut, 272, "query_eq_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [struct] eq_context_entry: Eqc,
        0x58 [63:0] event_bitmask: u64,
    }

    /// Ends an event queue.
    pub struct DestroyEqIn, 16, "destroy_eq_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [7:0] eq_number: Eqn,
    }

    /// Output of DESTROY_EQ.
    pub struct DestroyEqOut, 16, "destroy_eq_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

command! { CREATE_EQ, CreateEqIn => CreateEqOut }
command! { QUERY_EQ, QueryEqIn => QueryEqOut }
command! { DESTROY_EQ, DestroyEqIn => DestroyEqOut }

impl CreateEqIn {
    /// With an event type added to [`event_bitmask`](Self::event_bitmask).
    #[must_use]
    pub fn with_event(self, event: EventType) -> Self {
        let mut mask = self.event_bitmask();
        mask[event_byte(event)] |= 1 << (event.0 % 8);
        self.with_event_bitmask(mask)
    }

    /// Whether the queue gets events of this type.
    pub fn has_event(&self, event: EventType) -> bool {
        self.event_bitmask()[event_byte(event)] >> (event.0 % 8) & 1 != 0
    }
}

/// Byte of the mask, four big-endian qwords, that holds an event type's bit.
fn event_byte(event: EventType) -> usize {
    let bit = usize::from(event.0);
    bit / 64 * 8 + 7 - bit % 64 / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_bits_are_counted_in_big_endian_qwords() {
        let create = CreateEqIn::new().with_event(EventType::CMD).with_event(EventType::PAGE_REQUEST);
        assert_eq!(create.event_bitmask()[..8], 0xc00_u64.to_be_bytes());
        assert!(create.has_event(EventType::CMD) && !create.has_event(EventType::PORT_CHANGE));
        let high = CreateEqIn::new().with_event(EventType(64));
        assert_eq!(high.event_bitmask()[8..16], 1_u64.to_be_bytes());
    }

    /// Bit n of the first qword is event n, bit 0 of the second is event 64.
    #[test]
    fn every_event_has_a_bit_of_its_own() {
        let qword = |create: &CreateEqIn, n: usize| {
            u64::from_be_bytes(*create.event_bitmask()[8 * n..].first_chunk().unwrap())
        };
        let mut all = CreateEqIn::new();
        for event in 0..=255 {
            let one = CreateEqIn::new().with_event(EventType(event));
            for n in 0..4 {
                let expected = if n == usize::from(event / 64) { 1 << (event % 64) } else { 0 };
                assert_eq!(qword(&one, n), expected, "event {event}");
            }
            for other in 0..=255 {
                assert_eq!(one.has_event(EventType(other)), other == event);
            }
            assert_eq!(one.with_event(EventType(event)), one);
            all = all.with_event(EventType(event));
        }
        assert_eq!(all.event_bitmask(), [0xff; 32]);
    }
}
