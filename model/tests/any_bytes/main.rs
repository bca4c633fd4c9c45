//! Whatever a driver or a peer sends: the model does not panic, allocate without bound, or hang.

#[path = "../../../tests/support/any_bytes.rs"]
mod any_bytes;
#[allow(dead_code)] // each test program uses its part
#[path = "../raw/rig.rs"]
mod rig;

use any_bytes::{Measured, Rng, bytes, damage, for_seeds};
use mlx5_direct::{backend::pci::PciFunction, mlx5};
use mlx5_model::wire::Packet;
use rig::{Qp, Raw, Rig};
use std::time::Duration;

#[global_allocator]
static MEMORY: Measured = Measured::new();

fn assert_bounded() {
    let largest = MEMORY.largest();
    // The card's own memory is mapped; a ring of the largest size is some MiB.
    assert!(largest <= 256 << 20, "an allocation of {largest} bytes");
}

/// Objects that commands may be about.
struct Card {
    rig: Rig,
    numbers: Vec<u32>,
    qp: Qp,
}

impl Card {
    fn new() -> Self {
        let mut rig = Rig::new("ports=1,drive=step");
        rig.bring_up();
        let (uar, pd) = (rig.alloc_uar(), rig.alloc_pd());
        let (eqn, _) = rig.create_eq(uar, 6, 0, 1);
        let cq = rig.create_cq(uar, 6, eqn);
        let qp = rig.create_qp(pd, uar, &cq, 4);
        let gid = rig.set_gid();
        rig.connect(&qp, qp.number, rig.mac(), gid);
        let numbers = vec![uar, pd, eqn, cq.number, qp.number, 0, 1, 0xff_ffff];
        Self { rig, numbers, qp }
    }
}

/// Input of a command that exists, or nearly: its opcode, and something in its fields.
fn command(rng: &mut Rng, card: &Card) -> Raw {
    let all = mlx5::commands();
    let desc = all[rng.usize(..all.len())];
    let opcode = if rng.u8(..20) == 0 { rng.u16(..) } else { desc.opcode.0 };
    let fixed = desc.input.size_bytes.max(16);
    let mut input = Raw::new(fixed);
    for field in desc.input.fields {
        let in_dword = field.bit_offset % 32 + field.bit_width <= 32;
        if rng.u8(..3) == 0 && in_dword && field.bit_width < 32 {
            let (hi, lo) = field.hi_lo();
            let number = card.numbers[rng.usize(..card.numbers.len())];
            let value = if rng.bool() { number } else { rng.u32(..) >> rng.u8(..32) };
            let value = value & ((1 << field.bit_width) - 1);
            input = input.set(field.dword_offset_bytes(), hi as u32, lo as u32, value);
        }
    }
    for _ in 0..rng.usize(..4) {
        damage(rng, &mut input.0);
    }
    // Lists of addresses: some of memory that is there.
    for _ in 0..rng.usize(..12) {
        let page = if rng.bool() { rig::MEMORY + 0x1000 * rng.u64(..4096) } else { rng.u64(..) };
        input = input.list(&[page]);
    }
    if rng.u8(..8) == 0 {
        input.0.truncate(rng.usize(..=input.0.len()));
        input.0.resize(input.0.len().max(4), 0);
    }
    input.set(0, 31, 16, opcode.into())
}

#[test]
fn commands_are_executed_or_refused() {
    for_seeds("-p mlx5-model --test any_bytes commands", 60, |rng| {
        let card = Card::new();
        for _ in 0..200 {
            let input = command(rng, &card);
            let out_bytes = if rng.bool() { 16 } else { rng.usize(8..4200) };
            let answer = card.rig.exec(&input, out_bytes);
            assert!(answer.delivery != 0 || answer.bytes.len() >= 8, "{answer:x?}");
        }
        for violation in card.rig.model.take_violations() {
            assert!(violation.to_string().contains(violation.rule.text()));
        }
    });
    assert_bounded();
}

#[test]
fn entries_of_the_command_queue_are_read_or_refused() {
    for_seeds("-p mlx5-model --test any_bytes entries", 300, |rng| {
        let card = Card::new();
        for _ in 0..20 {
            card.rig.lay(0, &command(rng, &card).0, rng.usize(8..600), rng.u8(1..));
            let mut entry = card.rig.read(rig::MEMORY, 64);
            (0..rng.usize(1..4)).for_each(|_| damage(rng, &mut entry));
            entry[63] |= 1;
            card.rig.write(rig::MEMORY, &entry);
            card.rig.ring(rng.u32(..) | 1);
            for _ in 0..4 {
                card.rig.function.relax(Duration::from_micros(20));
            }
        }
    });
    assert_bounded();
}

#[test]
fn wqes_are_executed_or_refused() {
    for_seeds("-p mlx5-model --test any_bytes wqes", 300, |rng| {
        let mut card = Card::new();
        let page = card.rig.map_uar(card.numbers[0]);
        for _ in 0..10 {
            let opcodes = [0x00, 0x08, 0x09, 0x0a, 0x0d, 0x0e, 0x10, 0x11, 0x12, 0x14, 0x25, 0x01, 0x0c];
            let opcode = if rng.u8(..10) == 0 { rng.u8(..) } else { opcodes[rng.usize(..opcodes.len())] };
            let n_segments = rng.usize(..20);
            let mut rest = bytes(rng, n_segments * 16);
            rest.resize(n_segments * 16, 0);
            let mut doorbell = card.qp.long_wqe(&card.rig, opcode, rng.u32(..), &rest);
            if rng.u8(..8) == 0 {
                damage(rng, &mut doorbell);
            }
            page.ring(doorbell);
            for _ in 0..4 {
                card.rig.function.relax(Duration::from_micros(20));
            }
        }
    });
    assert_bounded();
}

#[test]
fn stores_to_a_uar_page_are_taken_or_passed_over() {
    for_seeds("-p mlx5-model --test any_bytes stores", 100, |rng| {
        let card = Card::new();
        let page = card.rig.map_uar(card.numbers[0]);
        for _ in 0..50 {
            let word = rng.u64(..) & if rng.bool() { u64::MAX } else { 0xff_ff };
            match rng.bool() {
                true => page.store64(rng.usize(..512) * 8, word.to_be_bytes()),
                false => page.store32(rng.usize(..1024) * 4, (word as u32).to_be_bytes()),
            }
            card.rig.function.relax(Duration::from_micros(20));
        }
    });
    assert_bounded();
}

#[test]
fn frames_are_parsed_or_refused() {
    for_seeds("-p mlx5-model --test any_bytes frames", 30_000, |rng| {
        let mut frame = bytes(rng, 300);
        // Ethernet of a kind that goes on.
        if frame.len() > 60 && rng.u8(..4) != 0 {
            let ethertype: [u8; 2] =
                *rng.choice(&[[8, 0], [0x86, 0xdd], [0x89, 0x15], [0x81, 0]]).expect("some");
            frame[12..14].copy_from_slice(&ethertype);
            if ethertype == [8, 0] {
                frame[14] = 0x45;
                frame[23] = 17;
                frame[36..38].copy_from_slice(&4791u16.to_be_bytes());
            }
        }
        for packet in [Packet::parse(&frame), Packet::parse_infiniband(&frame)] {
            match packet {
                Ok(packet) => assert!(packet.payload.len() <= frame.len()),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    });
    assert_bounded();
}
