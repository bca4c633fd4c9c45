//! Requests that copy memory (MMO), on queue pairs whose extended context allows it.

use crate::{
    keys::{Key, LOCAL_RIGHTS, MTT, PAGE, World},
    rig::Raw,
    rules,
};
use mlx5_model::{Rule, fw::Refusal};

const MMO: u8 = 0x2f;
const DONE: (u8, u8) = (0, 0);
const LOCAL_LENGTH_ERR: (u8, u8) = (0xd, 0x01);
const LOCAL_QP_OP_ERR: (u8, u8) = (0xd, 0x02);
const LOCAL_PROT_ERR: (u8, u8) = (0xd, 0x04);

const INIT: u16 = 0x502;
/// `opt_param_mask_95_32`: `mmo`.
const EXT_MMO: u64 = 8;

/// INIT2INIT with an extended context that allows copies.
fn allow(world: &World, mask: u64, is_extended: u32) -> Raw {
    Raw::cmd(0x50e, 272 + 192)
        .set(8, 31, 31, is_extended)
        .set(8, 23, 0, world.qp.number)
        .set(0x18 + 0x18 + 0x24, 23, 16, 1)
        .set64(0x108, mask)
        .set(0x110, 29, 29, 1)
}

impl World {
    /// A queue pair in INIT in place of the one that posts.
    fn fresh(&mut self) {
        self.qp = self.rig.create_qp(self.pd, self.uar, &self.cq, 5);
        self.rig.modify(INIT, &self.qp, 0, &Raw::new(232).set(0x18 + 0x24, 23, 16, 1)).ok();
    }

    /// Another, which may copy.
    fn copier(&mut self) {
        self.fresh();
        self.rig.run(allow(self, EXT_MMO, 1)).ok();
        self.rig.establish(&self.qp, self.peer.number, self.mac, self.gid);
    }

    /// Posts a copy.
    fn copy(&mut self, opmod: u8, from: (u64, u32, u32), to: (u64, u32, u32)) -> (u8, u8) {
        let piece = |(addr, key, len): (u64, u32, u32)| {
            Raw::new(16).set(0, 31, 0, len).set(4, 31, 0, key).set64(8, addr).0
        };
        let slot = u64::from(self.qp.pi & 31);
        let rest = [vec![0; 16], piece(from), piece(to)].concat();
        let mut doorbell = self.qp.long_wqe(&self.rig, MMO, 0, &rest);
        doorbell[0] = opmod;
        self.rig.write(self.qp.send + slot * 64, &[opmod]);
        self.page.ring(doorbell);
        while self.rig.model.step() {}
        let cqe = self.cq.poll(&self.rig, true).expect("a completion");
        assert_eq!(cqe[0x38], MMO);
        (cqe[63] >> 4, if cqe[63] >> 4 == 0xd { cqe[55] } else { 0 })
    }
}

#[test]
fn memory_is_copied_or_left_alone() {
    let mut world = World::new();
    let caps = world.rig.exec(&Raw::cmd(0x100, 16).set(4, 15, 0, 1), 4112).ok();
    assert_eq!(caps.dword(0x10 + 0xe8) >> 23 & 1, 1, "dma_mmo_qp");
    let max = 1 << (caps.dword(0x10 + 0x0c) >> 16 & 0x1f);
    let data = world.fill(0, 3 * PAGE, 5);
    let (memory, key) = (world.memory, world.local);
    world.copier();
    let n = 2 * PAGE as u32 + 5;
    assert_eq!(world.copy(1, (memory + 3, key, n), (memory + 4 * PAGE + 1, key, n)), DONE);
    assert_eq!(world.bytes(4 * PAGE + 1, n as usize), data[3..3 + n as usize]);

    // Where it may not read or write, beyond the end, and in another domain.
    let untouched = world.bytes(4 * PAGE, PAGE as usize);
    let pages: Vec<u64> = (0..8).map(|n| (memory + n * PAGE) | 3).collect();
    let whole =
        |pd: u32, rights: u32| Key::new(pd, MTT).rights(rights).range(memory, 8 * PAGE, 12).list(&pages);
    let read_only = whole(world.pd, LOCAL_RIGHTS & 1).create(&world.rig);
    let foreign = whole(world.rig.alloc_pd(), LOCAL_RIGHTS).create(&world.rig);
    let to = memory + 4 * PAGE;
    for (from, to) in [
        ((memory, key), (to, read_only)),
        ((memory, key), (to, foreign)),
        ((memory, foreign), (to, key)),
        ((memory, key), (memory + 8 * PAGE - 63, key)),
        ((memory, key + 1), (to, key)),
    ] {
        assert_eq!(world.copy(1, (from.0, from.1, 64), (to.0, to.1, 64)), LOCAL_PROT_ERR);
        world.copier();
    }
    assert_eq!(world.bytes(4 * PAGE, PAGE as usize), untouched);
    // Lengths that differ, nothing (which is 2 GiB), and more than the capability.
    for (from, to) in [(64, 65), (0, 0), (max + 1, max + 1)] {
        assert_eq!(world.copy(1, (memory, key, from), (memory, key, to)), LOCAL_LENGTH_ERR, "{from}");
        world.copier();
    }
    world.rig.model.assert_clean();
    // Other kinds of MMO are none that the model has.
    assert_eq!(world.copy(0, (memory, key, 64), (memory, key, 64)), LOCAL_QP_OP_ERR);
    assert_eq!(rules(&world.rig), [Rule::OpcodeKnown]);
}

#[test]
fn a_queue_pair_copies_if_its_extended_context_says_so() {
    let mut world = World::new();
    let piece = (world.memory, world.local, 64);
    assert_eq!(world.copy(1, piece, piece), LOCAL_QP_OP_ERR);
    assert_eq!(rules(&world.rig), [Rule::OpcodeKnown]);
    world.fresh();
    let refused =
        |input: Raw, refusal: Refusal| assert_eq!(world.rig.run(input).syndrome(), refusal.syndrome);
    refused(allow(&world, EXT_MMO, 0), Refusal::QP_OPT_PARAM);
    refused(allow(&world, EXT_MMO | 1, 1), Refusal::QP_OPT_PARAM);
    assert_eq!(rules(&world.rig), [Rule::QpOptParam; 2]);
    let mut short = allow(&world, EXT_MMO, 1);
    short.0.truncate(272 + 188);
    refused(short, Refusal::INPUT_SHORT);
    assert_eq!(rules(&world.rig), [Rule::CommandLength]);
    // A reset takes the permission back.
    world.copier();
    world.rig.modify(0x50a, &world.qp, 0, &Raw::new(232)).ok();
    world.rig.write(world.qp.record, &[0; 8]);
    world.qp.pi = 0;
    world.rig.connect(&world.qp, world.peer.number, world.mac, world.gid);
    assert_eq!(world.copy(1, piece, piece), LOCAL_QP_OP_ERR);
    assert_eq!(rules(&world.rig), [Rule::OpcodeKnown]);
}
