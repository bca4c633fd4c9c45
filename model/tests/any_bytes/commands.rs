//! Commands, and entries of the command queue.

use crate::{
    any_bytes::{Choices, damage},
    card::Card,
    rig::{MEMORY, Raw},
};
use mlx5_direct::{
    backend::pci::PciFunction,
    mlx5::{self, layout::Field},
};
use std::time::Duration;

/// Input of a command that exists, or nearly: its opcode, and something in its fields.
pub(crate) fn command(choices: &mut Choices, card: &Card) -> Raw {
    let desc = choices.one_of(mlx5::commands());
    let opcode = if choices.one_in(20) { choices.u16() } else { desc.opcode.0 };
    let fixed = desc.input.size_bytes.max(16);
    let mut input = Raw::new(fixed);
    let narrow = |field: &&Field| field.bit_offset % 32 + field.bit_width <= 32 && field.bit_width < 32;
    let fields: Vec<_> = desc.input.fields.iter().filter(narrow).collect();
    for _ in 0..choices.below(16).min(fields.len()) {
        let field = choices.one_of(&fields);
        let (hi, lo) = field.hi_lo();
        let value = match choices.bool() {
            true => *choices.one_of(&card.numbers),
            false => choices.u32() >> choices.below(32),
        };
        let value = value & ((1 << field.bit_width) - 1);
        input = input.set(field.dword_offset_bytes(), hi as u32, lo as u32, value);
    }
    for _ in 0..choices.below(4) {
        damage(choices, &mut input.0);
    }
    // Lists of addresses: some of memory that is there.
    for _ in 0..choices.below(12) {
        let page = match choices.bool() {
            true => MEMORY + 0x1000 * choices.below(4096) as u64,
            false => choices.u64(),
        };
        input = input.list(&[page]);
    }
    if choices.one_in(8) {
        input.0.truncate(choices.below(input.0.len() + 1));
        input.0.resize(input.0.len().max(4), 0);
    }
    input.set(0, 31, 16, opcode.into())
}

/// Commands with something in their fields: each is answered.
pub(crate) fn check(mut choices: Choices) {
    let card = Card::new();
    for _ in 0..200 {
        if choices.ended() {
            break;
        }
        let input = command(&mut choices, &card);
        let out_bytes = if choices.bool() { 16 } else { 8 + choices.below(4192) };
        let answer = card.rig.exec(&input, out_bytes);
        assert!(answer.delivery != 0 || answer.bytes.len() >= 8, "{answer:x?}");
    }
    card.assert_named();
}

/// Entries of the command queue with anything in them, and doorbells for whatever slots.
pub(crate) fn check_entries(mut choices: Choices) {
    let card = Card::new();
    for _ in 0..20 {
        if choices.ended() {
            break;
        }
        let (input, out_bytes) = (command(&mut choices, &card), 8 + choices.below(592));
        card.rig.lay(0, &input.0, out_bytes, choices.u8().max(1));
        let mut entry = card.rig.read(MEMORY, 64);
        (0..1 + choices.below(3)).for_each(|_| damage(&mut choices, &mut entry));
        entry[63] |= 1;
        card.rig.write(MEMORY, &entry);
        card.rig.ring(choices.u32() | 1);
        for _ in 0..4 {
            card.rig.function.relax(Duration::from_micros(20));
        }
    }
    card.assert_named();
}
