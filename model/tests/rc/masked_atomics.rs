//! Atomics under masks, of 4 and of 8 bytes.

use super::{
    dc,
    world::{Setup, World},
    wqe::Wr,
};
use mlx5_direct::{
    cqe::{CqeOpcode, CqeSyndrome},
    wqe::{MaskedCas32Seg, MaskedCas64Seg, MaskedFa32Seg, MaskedFa64Seg, SendOpcode},
};
use mlx5_model::{
    exec::{Cqe, Rule},
    wire::{Fate, Opcode, Packet},
};

/// `ctrl.opmod` of 4 bytes, and of 8.
const WORDS_OF_4: u8 = 8;
const WORDS_OF_8: u8 = 9;
const FAR: usize = 0x100;

fn swap_8(swap: u64, compare: u64, swap_mask: u64, compare_mask: u64) -> Wr {
    let operands = MaskedCas64Seg::new()
        .with_swap(swap)
        .with_compare(compare)
        .with_swap_mask(swap_mask)
        .with_compare_mask(compare_mask);
    Wr::new(SendOpcode::ATOMIC_MASKED_CS).remote(FAR).masked(WORDS_OF_8, &operands.to_bytes()).local(0, 8)
}

fn swap_4(swap: u32, compare: u32, swap_mask: u32, compare_mask: u32) -> Wr {
    let operands = MaskedCas32Seg::new()
        .with_swap(swap)
        .with_compare(compare)
        .with_swap_mask(swap_mask)
        .with_compare_mask(compare_mask);
    Wr::new(SendOpcode::ATOMIC_MASKED_CS).remote(FAR).masked(WORDS_OF_4, &operands.to_bytes()).local(0, 4)
}

fn add_8(add: u64, boundary: u64) -> Wr {
    let operands = MaskedFa64Seg::new().with_add(add).with_field_boundary(boundary);
    Wr::new(SendOpcode::ATOMIC_MASKED_FA).remote(FAR).masked(WORDS_OF_8, &operands.to_bytes()).local(0, 8)
}

/// UCX leaves what is behind the operands as the ring had it.
fn add_4(add: u32, boundary: u32) -> Wr {
    let mut operands = MaskedFa32Seg::new().with_add(add).with_field_boundary(boundary).to_bytes();
    operands[8..].fill(0xa5);
    Wr::new(SendOpcode::ATOMIC_MASKED_FA).remote(FAR).masked(WORDS_OF_4, &operands).local(0, 4)
}

fn word(world: &World, node: usize, at: usize) -> u64 {
    u64::from_ne_bytes(world.nodes[node].side.bytes(at, 8).try_into().unwrap())
}

fn set(world: &mut World, value: u64) {
    world.nodes[1].side.memory[FAR..FAR + 8].copy_from_slice(&value.to_ne_bytes());
}

#[test]
fn words_of_8_bytes() {
    for (wr, old, new) in [
        (swap_8(0x1111, 0xa00d, 0x0ff0, 0xf00f), 0xabcd, 0xa11d),
        (swap_8(0x1111, 0xa00c, 0x0ff0, 0xf00f), 0xabcd, 0xabcd),
        (swap_8(7, 0, u64::MAX, 0), 0xabcd, 7),
        (add_8(0x1_0000_0001, 1 << 63 | 1 << 31), 0x7_ffff_ffff, 0x8_0000_0000),
        (add_8(3, 0), u64::MAX, 2),
        (add_8(0b1010, u64::MAX), 0b1100, 0b0110),
    ] {
        let mut world = World::pair(&Setup::default());
        set(&mut world, old);
        let opcode = wr.opcode;
        world.post(0, &wr);
        world.settle();
        assert_eq!((word(&world, 0, 0), word(&world, 1, FAR)), (old, new), "host order on both sides");
        let [done] = world.take_cqes(0)[..] else { panic!("one CQE") };
        assert_eq!((done.opcode, done.send_opcode, done.len), (CqeOpcode::REQ, opcode, 8));
        world.assert_clean();
    }
}

/// What comes back of 4 bytes is in the network's order; `atomic_req_8b_endianness_mode` is about 8.
#[test]
fn words_of_4_bytes() {
    for (wr, old, new) in [
        (swap_4(0x1111, 0xa00d, 0x0ff0, 0xf00f), 0xabcdu32, 0xa11du32),
        (swap_4(0x1111, 0xa00c, 0x0ff0, 0xf00f), 0xabcd, 0xabcd),
        (add_4(5, 0), u32::MAX, 4),
        (add_4(0x0001_0001, 0x8000_8000), 0x0003_ffff, 0x0004_0000),
        (add_4(0b1010, u32::MAX), 0b1100, 0b0110),
    ] {
        let mut world = World::pair(&Setup::default());
        world.nodes[1].side.memory[FAR - 4..FAR + 8].fill(0xff);
        world.nodes[1].side.memory[FAR..FAR + 4].copy_from_slice(&old.to_ne_bytes());
        world.post(0, &wr);
        world.settle();
        assert_eq!(world.nodes[0].side.bytes(0, 8), [&old.to_be_bytes()[..], &[0; 4]].concat());
        let around = [&[0xff; 4][..], &new.to_ne_bytes(), &[0xff; 4]].concat();
        assert_eq!(world.nodes[1].side.bytes(FAR - 4, 12), around, "and nothing beside the word");
        assert_eq!(world.take_cqes(0)[0].len, 4);
        world.assert_clean();
    }
}

/// The request is lost once, its answer once: the word is changed once.
#[test]
fn executed_once_whatever_is_lost() {
    for lost in [Opcode::MASKED_FETCH_ADD, Opcode::ATOMIC_ACKNOWLEDGE] {
        let mut world = World::pair(&Setup::default());
        set(&mut world, 10);
        let mut is_first = true;
        world.wire.interfere(Some(Box::new(move |_, _, frame: &mut Vec<u8>| {
            let is_it = Packet::parse(frame).unwrap().headers.bth.opcode == lost;
            if is_it && std::mem::take(&mut is_first) { Fate::Drop } else { Fate::Deliver }
        })));
        world.post(0, &add_8(5, 0));
        world.settle();
        assert_eq!((word(&world, 0, 0), word(&world, 1, FAR)), (10, 15), "{lost:?} was lost");
        assert_eq!(world.nodes[1].side.n_atomics, 1);
    }
}

#[test]
fn over_dc_and_into_the_cqe() {
    let mut world = dc::world_with(|qp| qp.cs_req_bytes = 32);
    set(&mut world, 10);
    let av = dc::to(&world, dc::dctn(0));
    world.post(0, &add_4(5, 0).at_target(av));
    world.post(0, &swap_8(0x77, 0, 0xff, 0).at_target(av));
    world.settle();
    let cqes: Vec<Cqe> = world.nodes[0].side.cqes.iter().map(|(_, cqe, _)| *cqe).collect();
    assert_eq!(cqes[0].bytes[..4], 10u32.to_be_bytes());
    assert_eq!(cqes[1].bytes[..8], 15u64.to_ne_bytes());
    assert_eq!(word(&world, 1, FAR), 0x77);
    world.assert_clean();
}

#[test]
fn what_is_no_masked_atomic() {
    let wrong = |wr: Wr| {
        let mut world = World::pair(&Setup::default());
        world.post(0, &wr);
        world.settle();
        let syndrome = world.take_cqes(0)[0].syndrome;
        let rules: Vec<Rule> = world.nodes[0].side.violations.iter().map(|(rule, _)| *rule).collect();
        (syndrome, rules)
    };
    let malformed = |rule| (CqeSyndrome::LOCAL_QP_OP_ERR, vec![rule]);
    let of_width = |opmod| {
        let mut wr = add_8(1, 0);
        wr.masked.as_mut().unwrap().0 = opmod;
        wr
    };
    for opmod in [0, 7, 10] {
        assert_eq!(wrong(of_width(opmod)), malformed(Rule::WqeOpmod), "opmod {opmod}");
    }
    assert_eq!(wrong(of_width(WORDS_OF_4)), malformed(Rule::AtomicLength));
    let mut plain = Wr::new(SendOpcode::ATOMIC_FA).remote(FAR).masked(WORDS_OF_8, &[0; 16]);
    plain = plain.local(0, 8);
    assert_eq!(wrong(plain), malformed(Rule::WqeOpmod), "a plain one has no width to choose");
    // The peer's word is not aligned.
    assert_eq!(wrong(add_8(1, 0).remote(FAR + 4)), (CqeSyndrome::REMOTE_INVAL_REQ_ERR, vec![]));
    assert_eq!(wrong(add_4(1, 0).remote(FAR + 4)), (CqeSyndrome(0), vec![]));
}
