//! WQEs of a send queue, and stores to a UAR page.

use crate::{
    any_bytes::{Choices, damage},
    card::Card,
    rig::Raw,
};
use mlx5_direct::backend::pci::PciFunction;
use std::time::Duration;

/// WQEs of any segments: executed or refused, and completed as this queue pair's if at all.
pub(crate) fn check(mut choices: Choices) {
    const OPCODES: [u8; 13] = [0x00, 0x08, 0x09, 0x0a, 0x0d, 0x0e, 0x10, 0x11, 0x12, 0x14, 0x25, 0x01, 0x0c];
    let mut card = Card::new();
    let page = card.rig.map_uar(card.numbers[0]);
    for _ in 0..10 {
        if choices.ended() {
            break;
        }
        let opcode = if choices.one_in(10) { choices.u8() } else { *choices.one_of(&OPCODES) };
        let rest: Vec<u8> = (0..choices.below(20)).flat_map(|_| segment(&mut choices, &card)).collect();
        let mut doorbell = card.qp.long_wqe(&card.rig, opcode, choices.u32(), &rest);
        if choices.one_in(8) {
            damage(&mut choices, &mut doorbell);
        }
        page.ring(doorbell);
        for _ in 0..4 {
            card.rig.function.relax(Duration::from_micros(20));
        }
    }
    while let Some(cqe) = card.cq.poll(&card.rig, true) {
        let qpn = u32::from_be_bytes([0, cqe[57], cqe[58], cqe[59]]);
        assert_eq!(qpn, card.qp.number, "{cqe:x?}");
    }
    card.assert_named();
}

/// 16 bytes: any, or what names memory that is there.
fn segment(choices: &mut Choices, card: &Card) -> Vec<u8> {
    let mut segment = Raw::new(16);
    let at = card.data + choices.below(0x4000) as u64;
    let len = choices.below(0x4000) as u32;
    match choices.below(4) {
        // Of a list of memory.
        0 => segment = segment.set(0, 31, 0, len).set(4, 31, 0, card.key).set64(8, at),
        // Of the peer's memory.
        1 => segment = segment.set64(0, at).set(8, 31, 0, card.key),
        2 => choices.fill(&mut segment.0),
        _ => segment.0[0] = choices.u8(),
    }
    if choices.one_in(8) {
        damage(choices, &mut segment.0);
    }
    segment.0
}

/// Stores of either width to a UAR page.
pub(crate) fn check_stores(mut choices: Choices) {
    let card = Card::new();
    let page = card.rig.map_uar(card.numbers[0]);
    for _ in 0..50 {
        if choices.ended() {
            break;
        }
        let word = choices.u64() & if choices.bool() { u64::MAX } else { 0xff_ff };
        match choices.bool() {
            true => page.store64(choices.below(512) * 8, word.to_be_bytes()),
            false => page.store32(choices.below(1024) * 4, (word as u32).to_be_bytes()),
        }
        card.rig.function.relax(Duration::from_micros(20));
    }
    card.assert_named();
}
