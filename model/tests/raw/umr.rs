//! UMR work requests as Linux and libmlx5 write them, and what their keys then open.

use crate::{
    keys::{ALL_RIGHTS, KLM, KSM, Key, LOCAL_RIGHTS, MTT, PAGE, World, klm},
    rig::{Raw, pages},
    rules,
};
use mlx5_model::Rule;

pub(crate) const UMR: u8 = 0x25;
pub(crate) const DONE: (u8, u8) = (0, 0);
const ERROR: u8 = 0xd;
const MW_BIND_ERR: (u8, u8) = (ERROR, 0x06);
const LOCAL_QP_OP_ERR: (u8, u8) = (ERROR, 0x02);
pub(crate) const LOCAL_PROT_ERR: (u8, u8) = (ERROR, 0x04);
pub(crate) const REMOTE_ACCESS_ERR: (u8, u8) = (ERROR, 0x13);

/// Flags of the UMR control segment.
pub(crate) const INLINE: u32 = 0x80;
const FAIL_IF_FREE: u32 = 0x40;
const FAIL_IF_NOT_FREE: u32 = 0x20;
pub(crate) const OFFSET: u32 = 0x10;
/// Bits of `mkey_mask`.
const LEN: u32 = 1;
const PAGE_SIZE: u32 = 2;
const START_ADDR: u32 = 0x40;
const PD: u32 = 0x80;
const KEY: u32 = 0x2000;
const RIGHTS: u32 = 0x3e_0000;
const FREE: u32 = 0x2000_0000;

/// The segments behind the control segment, without a list.
pub(crate) fn umr(flags: u32, n_octowords: u32, mask: u32) -> Raw {
    Raw::new(112).set(0, 31, 24, flags).set(4, 31, 16, n_octowords).set(12, 31, 0, mask)
}

/// The same with a context that makes a key valid: its range, all rights, variant 0x43.
fn enabling(flags: u32, n_octowords: u32, start: u64, len_bytes: u64) -> Raw {
    umr(flags, n_octowords, LEN | PAGE_SIZE | START_ADDR | KEY | RIGHTS | FREE)
        .set(48, 14, 10, ALL_RIGHTS)
        .set(52, 31, 8, 0xff_ffff)
        .set(52, 7, 0, 0x43)
        .set64(64, start)
        .set64(72, len_bytes)
        .set(104, 4, 0, 12)
}

/// The bytes behind the control segment as libmlx5 writes them to bind a window, but for the numbers.
fn libmlx5_bind(
    flags: u32,
    mask: u32,
    rights: u32,
    owner: u32,
    range: (u64, u64),
    lkey: u32,
    addr: u64,
) -> Raw {
    let wqe = Raw::new(176)
        .set(0, 31, 24, flags)
        .set(4, 31, 16, 4)
        .set(12, 31, 0, mask)
        .put(56, &[0xa5; 8])
        .set(48, 23, 0, 0xa5_00a5)
        .set(48, 15, 8, rights)
        .set(52, 31, 0, owner)
        .set64(64, range.0)
        .set64(72, range.1)
        .put(80, &[0xa5; 32]);
    let [head, addr] = klm(lkey, addr, range.1 as u32);
    wqe.set64(112, head).set64(120, addr)
}

/// As Linux registers memory: a queue pair of no domain, a key from its cache, the list in memory.
#[test]
fn the_kernel_registers_and_revokes() {
    let mut world = World::new();
    let mut qp = {
        let (len, record) = ((16 << 5) + (64 << 5), world.rig.alloc(8, 0));
        let memory = world.rig.alloc(len, 0);
        let input = Raw::cmd(0x500, 272)
            .set(0x18, 23, 16, 0xc)
            .set(0x18 + 0x08, 22, 19, 5)
            .set(0x18 + 0x08, 14, 11, 5)
            .set(0x18 + 0x0c, 23, 0, world.uar)
            .set(0x18 + 0x7c, 23, 0, world.cq.number)
            .set(0x18 + 0x9c, 23, 0, world.cq.number)
            .set64(0x18 + 0xa0, record)
            .list(&pages(memory, len));
        let number = world.rig.run(input).ok().dword(8);
        crate::rig::Qp { number, send: memory + (16 << 5), record, log_sq: 5, pi: 0 }
    };
    world.rig.connect(&qp, 0, world.mac, world.gid);
    std::mem::swap(&mut world.qp, &mut qp);

    let cached = Key::new(world.pd, MTT).free(16).create(&world.rig);
    let everything = Key::new(world.pd, 0).set(0x0c, 31, 31, 1).create(&world.rig);
    // Pages 6, 4 and 2 of the memory in this order, and a list padded to 64 bytes with what was there.
    let list = world.rig.alloc(64, 0xa5);
    for (n, page) in [6u64, 4, 2].into_iter().enumerate() {
        world.rig.write(list + 8 * n as u64, &((world.memory + page * PAGE) | 3).to_be_bytes());
    }
    let data = Raw::new(16).set(0, 31, 0, 64).set(4, 31, 0, everything).set64(8, list).0;
    let start = 0x7f00_0000_0123;
    let mut wqe = enabling(FAIL_IF_NOT_FREE, 4, start, 0x2800).set(12, 7, 7, 1).set(60, 23, 0, world.pd);
    wqe.0.extend(&data);
    assert_eq!(world.post(UMR, cached, &wqe.0), DONE);
    let mkc = world.query(cached);
    assert_eq!((mkc[0] & 0x40, mkc[7]), (0, 0x43));
    assert_eq!(mkc[0x10..0x20], [start.to_be_bytes(), 0x2800u64.to_be_bytes()].concat());
    // Once more: it is not free now.
    assert_eq!(world.post(UMR, cached & !0xff | 0x43, &wqe.0), MW_BIND_ERR);
    std::mem::swap(&mut world.qp, &mut qp);

    let key = cached & !0xff | 0x43;
    let sent = world.fill(0, 0x1800, 0);
    assert_eq!(world.write((start, key), (world.memory, world.local), 0x1800), DONE);
    assert_eq!(world.bytes(6 * PAGE + 0x123, 0xedd), sent[..0xedd]);
    assert_eq!(world.bytes(4 * PAGE, 0x923), sent[0xedd..]);
    // The padding of the list is behind the key's end.
    assert_eq!(world.write((start + 0x27ff, key), (world.memory, world.local), 2), REMOTE_ACCESS_ERR);
    world.rig.model.assert_clean();
}

/// IB_WR_REG_MR with the list in the WQE, access, IB_WR_LOCAL_INV as Linux writes it.
#[test]
fn fast_registration_and_local_invalidate() {
    let mut world = World::new();
    let key = Key::new(world.pd, MTT).free(8).create(&world.rig);
    let start = 0x4000_0100;
    let mut wqe = enabling(INLINE, 4, start, 0x200);
    // One page, and seven entries that are old bytes of the ring.
    wqe.0.extend(((world.memory + 3 * PAGE) | 3).to_be_bytes());
    wqe.0.extend([0xa5; 56]);
    assert_eq!(world.post(UMR, key & !0xff | 0x43, &wqe.0), DONE);
    let key = key & !0xff | 0x43;
    let sent = world.fill(0, 0x200, 1);
    assert_eq!(world.write((start, key), (world.memory, world.local), 0x200), DONE);
    assert_eq!(world.bytes(3 * PAGE + 0x100, 0x200), sent);

    let invalidate = umr(INLINE, 0, FREE).set(48, 30, 30, 1).0;
    assert_eq!(world.post(UMR, key, &invalidate), DONE);
    assert_eq!(world.query(key)[0] & 0x40, 0x40);
    assert_eq!(world.write((start, key), (world.memory, world.local), 0x200), REMOTE_ACCESS_ERR);
    world.another_qp();
    // By a name that it does not have, a key is not invalidated.
    assert_eq!(world.post(UMR, key ^ 1, &invalidate), MW_BIND_ERR);
    world.rig.model.assert_clean();
}

/// What is changed without a list stays in place: rights, then the domain by the kernel alone.
#[test]
fn registration_again_changes_rights_only() {
    let mut world = World::new();
    let list: Vec<u64> = (0..2).map(|n| (world.memory + n * PAGE) | 3).collect();
    let key = Key::new(world.pd, MTT).range(0x1000, 0x2000, 12).list(&list).create(&world.rig);
    let read_only = umr(INLINE | FAIL_IF_FREE, 0, RIGHTS).set(48, 14, 10, 0b00101);
    assert_eq!(world.post(UMR, key, &read_only.0), DONE);
    let local = (world.memory + 4 * PAGE, world.local);
    assert_eq!(world.read((0x1000, key), local, 64), DONE);
    assert_eq!(world.write((0x1000, key), local, 64), REMOTE_ACCESS_ERR);
    world.another_qp();
    assert_eq!(world.post(UMR, key, &umr(INLINE, 0, PD).0), LOCAL_QP_OP_ERR);
    assert_eq!(rules(&world.rig), [Rule::UmrMask]);
}

/// ibv_bind_mw of both types by the bytes of libmlx5, which leaves parts of the context as the ring had them.
#[test]
fn memory_windows_open_and_close() {
    for type_2 in [false, true] {
        let mut world = World::new();
        let window = Key::new(world.pd, KLM).rights(1).free(4).create(&world.rig);
        let (addr, len) = (world.memory + PAGE + 0x10, 0x1800);
        let (flags, mask, owner) = match type_2 {
            false => (INLINE | OFFSET, 0x203c_2041, 0xffff_ff00),
            true => (INLINE | OFFSET | FAIL_IF_NOT_FREE, 0x203c_6041, world.peer.number << 8),
        };
        let bind = |world: &World, variant: u32| {
            libmlx5_bind(flags, mask, 0x20, owner | variant, (addr, len), world.local, addr).0
        };
        // The key that it has names it, not the one that it gets.
        let wqe = bind(&world, 2);
        world.swap();
        assert_eq!(world.post(UMR, window, &wqe), DONE);
        world.swap();
        let rkey = window & !0xff | 2;
        let sent = world.fill(0, 0x1000, 2);
        let local = (world.memory, world.local);
        assert_eq!(world.write((addr + 0x800, rkey), local, 0x1000), DONE);
        assert_eq!(world.bytes(PAGE + 0x810, 0x1000), sent);
        // Only writes were opened, and nothing beyond the window.
        let refused = |world: &mut World, outcome| {
            assert_eq!(outcome, REMOTE_ACCESS_ERR);
            world.another_qp();
        };
        let outcome = world.write((addr + 0x801, rkey), local, 0x1000);
        refused(&mut world, outcome);
        if type_2 {
            // It belongs to the QP that bound it.
            let outcome = world.write((addr, rkey), local, 8);
            refused(&mut world, outcome);
            continue;
        }
        let outcome = world.read((addr, rkey), local, 8);
        refused(&mut world, outcome);
        // Bound anew elsewhere, by its old name; then closed.
        let wqe = bind(&world, 3);
        assert_eq!(world.post(UMR, rkey, &wqe), DONE);
        let outcome = world.write((addr, rkey), local, 8);
        refused(&mut world, outcome);
        // As libmlx5 writes it: FREE, QPN and KEY; the low byte is 0 afterwards.
        let close = umr(0x98, 0, 0x2000_6000).set(48, 30, 30, 1).set(52, 31, 8, 0xff_ffff).0;
        assert_eq!(world.post(UMR, window & !0xff | 3, &close), DONE);
        assert_eq!(world.query(window)[..8], [0x40, 0, 0xa6, 0, 0xff, 0xff, 0xff, 0][..]);
        let wqe = bind(&world, 4);
        assert_eq!(world.post(UMR, window & !0xff, &wqe), DONE);
        world.rig.model.assert_clean();
    }
}

/// A key over pieces: in bounds of each, by the rights of each, in order.
#[test]
fn pieces_of_other_keys() {
    let mut world = World::new();
    let data = world.fill(0, 4 * PAGE, 3);
    let (memory, lkey) = (world.memory, world.local);
    let list =
        [klm(lkey, memory + 0x2000, 0x300), klm(lkey, memory + 5, 1), klm(lkey, memory + 0x1100, 0x1000)];
    let key = Key::new(world.pd, KLM).range(0x700, 0x1301, 0).list(list.as_flattened()).create(&world.rig);
    let expected = [&data[0x2000..0x2300], &data[5..6], &data[0x1100..0x2100]].concat();
    let into = (memory + 5 * PAGE, lkey);
    assert_eq!(world.read((0x700, key), into, 0x1301), DONE);
    assert_eq!(world.bytes(5 * PAGE, 0x1301), expected);
    assert_eq!(world.read((0x9ff, key), into, 3), DONE);
    assert_eq!(world.bytes(5 * PAGE, 3), expected[0x2ff..0x302]);
    // As a local key too.
    assert_eq!(
        world.write((memory + 5 * PAGE, lkey), (0x700, key), 8),
        REMOTE_ACCESS_ERR,
        "no remote rights"
    );
    world.another_qp();
    let whole = Key::new(world.pd, KLM)
        .range(0, PAGE, 0)
        .list(&klm(lkey, memory + 6 * PAGE, 0x1000))
        .create(&world.rig);
    assert_eq!(world.write((0x10, whole), (0x700, key), 0x400), DONE);
    assert_eq!(world.bytes(6 * PAGE + 0x10, 0x400), expected[..0x400]);
    // Longer than its pieces, and behind a piece that may not be written.
    let short = Key::new(world.pd, KLM).range(0, PAGE, 0).list(&klm(lkey, memory, 0x800)).create(&world.rig);
    assert_eq!(world.read((0x7ff, short), into, 2), REMOTE_ACCESS_ERR);
    world.another_qp();
    let read_only = Key::new(world.pd, KLM).rights(LOCAL_RIGHTS & 1).range(0, 64, 0);
    let read_only = read_only.list(&klm(lkey, memory, 64)).create(&world.rig);
    let behind = Key::new(world.pd, KLM).range(0, 64, 0).list(&klm(read_only, 0, 64)).create(&world.rig);
    assert_eq!(world.write((0, behind), into, 8), REMOTE_ACCESS_ERR);
    world.rig.model.assert_clean();
}

/// mlx5dv_wr_mr_interleaved: the list of libmlx5, three cycles of two pieces.
#[test]
fn an_interleaved_key_repeats() {
    let mut world = World::new();
    let data = world.fill(0, 4 * PAGE, 4);
    let key = Key::new(world.pd, KLM).free(4).create(&world.rig);
    let entry = |stride: u32, len: u32, offset: u64| {
        Raw::new(16)
            .set(0, 31, 16, stride)
            .set(0, 15, 0, len)
            .set(4, 31, 0, world.local)
            .set64(8, world.memory + offset)
            .0
    };
    let mut wqe = enabling(INLINE, 4, 0, 3 * 72).set(52, 7, 0, 0);
    wqe.0.extend(Raw::new(16).set(0, 31, 0, 72).set(4, 31, 0, 0x400).set(8, 31, 0, 3).set(12, 15, 0, 2).0);
    wqe.0.extend(entry(64, 64, 0));
    wqe.0.extend(entry(64, 8, 0x1000));
    wqe.0.extend([0; 16]);
    assert_eq!(world.post(UMR, key, &wqe.0), DONE);
    let cycle = |n: usize| [&data[64 * n..64 * n + 64], &data[0x1000 + 64 * n..0x1000 + 64 * n + 8]].concat();
    let expected = [cycle(0), cycle(1), cycle(2)].concat();
    let into = (world.memory + 5 * PAGE, world.local);
    assert_eq!(world.read((0, key & !0xff), into, 216), DONE);
    assert_eq!(world.bytes(5 * PAGE, 216), expected);
    assert_eq!(world.read((100, key & !0xff), into, 90), DONE);
    assert_eq!(world.bytes(5 * PAGE, 90), expected[100..190]);
    world.rig.model.assert_clean();
}

/// Pieces of one size from the key's start on, the null key among them; and keys that name keys, as deep as they may.
#[test]
fn pieces_of_one_size_and_nothing() {
    let mut world = World::new();
    let data = world.fill(0, 4 * PAGE, 5);
    let special = world.rig.exec(&Raw::cmd(0x203, 16), 32).ok();
    let null = special.dword(0x10);
    let (memory, lkey) = (world.memory, world.local);
    let list = [klm(lkey, memory + 0x2000, 0), klm(null, 0, 0), klm(lkey, memory + 0x1000, 0)];
    let key = Key::new(world.pd, KSM).range(0x10, 0x2ff0, 12).list(list.as_flattened()).create(&world.rig);
    let into = (memory + 5 * PAGE, lkey);
    world.fill(5 * PAGE, 3 * PAGE, 6);
    assert_eq!(world.read((0x10, key), into, 0x2ff0), DONE);
    assert_eq!(
        world.bytes(5 * PAGE, 0x2ff0),
        [&data[0x2000..0x3000], &[0; 0x1000][..], &data[0x1000..0x1ff0]].concat()
    );
    // What is written to it is gone.
    assert_eq!(world.write((0x1010, key), into, 0x1000), DONE);
    assert_eq!(world.bytes(0, 4 * PAGE as usize), data);

    let mut deep = lkey;
    for depth in 1..=5 {
        let at = if depth == 1 { memory } else { 0 };
        deep = Key::new(world.pd, KLM).range(0, 0x1000, 0).list(&klm(deep, at, 0x1000)).create(&world.rig);
        let outcome = world.read((0, deep), into, 8);
        assert_eq!(outcome, if depth <= 4 { DONE } else { REMOTE_ACCESS_ERR }, "depth {depth}");
    }
    world.rig.model.assert_clean();
}

/// What no key can do is a driver's mistake, and changes nothing.
#[test]
fn malformed_requests_are_named() {
    let list =
        |world: &World| Raw::new(16).set(0, 31, 0, 64).set(4, 31, 0, world.local).set64(8, world.memory).0;
    type Case = (&'static str, fn(Raw) -> Raw, &'static [Rule], (u8, u8));
    let cases: [Case; 7] = [
        ("a mask bit without a field", |wqe| wqe.set(12, 2, 2, 1), &[Rule::UmrMask], LOCAL_QP_OP_ERR),
        ("a list of three", |wqe| wqe.set(4, 31, 16, 3), &[Rule::UmrListFits], LOCAL_QP_OP_ERR),
        (
            "a list beyond the key",
            |wqe| wqe.set(0, 28, 28, 1).set(4, 15, 0, 8),
            &[Rule::UmrListFits],
            LOCAL_QP_OP_ERR,
        ),
        ("a list longer than its memory", |wqe| wqe.set(4, 31, 16, 8), &[Rule::UmrListFits], LOCAL_QP_OP_ERR),
        (
            "a list that is not in the WQE",
            |wqe| wqe.set(0, 31, 31, 1),
            &[Rule::DsCoversSegments],
            LOCAL_QP_OP_ERR,
        ),
        ("a reserved bit", |wqe| wqe.set(20, 0, 0, 1), &[Rule::ReservedBits], LOCAL_QP_OP_ERR),
        ("a list outside of its key", |wqe| wqe.set64(120, 0x1000), &[], LOCAL_PROT_ERR),
    ];
    for (what, spoil, broken, outcome) in cases {
        let mut world = World::new();
        let key = Key::new(world.pd, MTT).free(8).create(&world.rig);
        let mut wqe = enabling(0, 4, 0, PAGE);
        wqe.0.extend(list(&world));
        let wqe = spoil(wqe);
        assert_eq!(world.post(UMR, key, &wqe.0), outcome, "{what}");
        assert_eq!(rules(&world.rig), broken, "{what}");
        assert_eq!(world.query(key)[0] & 0x40, 0x40, "{what}");
    }
    // Keys that may not be changed: no mistake of a driver, since applications name them.
    let mut world = World::new();
    let fixed = Key::new(world.pd, MTT).set(0, 15, 15, 0).free(8).create(&world.rig);
    let other_pd = world.rig.alloc_pd();
    let foreign = Key::new(other_pd, MTT).free(8).create(&world.rig);
    for key in [fixed, foreign, 0xff_ff00] {
        assert_eq!(world.post(UMR, key, &umr(INLINE, 0, FREE).set(48, 30, 30, 1).0), MW_BIND_ERR);
        world.another_qp();
    }
    world.rig.model.assert_clean();
}
