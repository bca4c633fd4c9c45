//! MODIFY_CQ: moderation of events, and another buffer under a CQ in use.

use crate::{
    rig::{Cq, Page, Qp, Raw, Rig, pages},
    rules,
};
use mlx5_model::{Rule, fw::Refusal};
use std::time::Duration;

struct World {
    rig: Rig,
    cq: Cq,
    qp: Qp,
    page: Page,
    eqn: u32,
    eq: u64,
    n_events: u64,
    arm_sn: u32,
}

impl World {
    /// A QP of NOPs on a CQ of `1 << log` entries.
    fn new(log: u32) -> Self {
        let mut rig = Rig::new("drive=step");
        rig.bring_up();
        let (uar, pd) = (rig.alloc_uar(), rig.alloc_pd());
        let (eqn, eq) = rig.create_eq(uar, 6, 3, 0);
        let cq = rig.create_cq(uar, log, eqn);
        let (mac, gid) = (rig.mac(), rig.set_gid());
        let qp = rig.create_qp(pd, uar, &cq, 6);
        rig.connect(&qp, qp.number, mac, gid);
        let page = rig.map_uar(uar);
        Self { rig, cq, qp, page, eqn, eq, n_events: 0, arm_sn: 0 }
    }

    fn complete(&mut self) {
        let doorbell = self.qp.nop(&self.rig);
        self.page.ring(doorbell);
        while self.rig.model.step() {}
    }

    fn arm(&self) {
        let word = self.arm_sn << 28 | (self.cq.ci & 0xff_ffff);
        self.rig.write(self.cq.record + 4, &word.to_be_bytes());
        self.page.store64(0x20, (u64::from(word) << 32 | u64::from(self.cq.number)).to_be_bytes());
        while self.rig.model.step() {}
    }

    /// Consumes everything and arms again.
    fn arm_after_poll(&mut self) {
        while self.cq.poll(&self.rig, true).is_some() {}
        self.arm();
    }

    /// Whether an event came; takes it.
    fn event(&mut self) -> bool {
        let eqe = self.rig.read(self.eq + self.n_events * 64, 64);
        let came = eqe[63] & 1 == 0;
        if came {
            assert_eq!(eqe[1], 0, "a completion event");
            self.n_events += 1;
            self.arm_sn = (self.arm_sn + 1) & 3;
            self.page.store32(0x40, (self.eqn << 24 | self.n_events as u32).to_be_bytes());
        }
        came
    }

    fn pass(&self, micros: u64) {
        self.rig.model.advance(Duration::from_micros(micros));
        while self.rig.model.step() {}
    }

    /// MODIFY_CQ of fields.
    #[track_caller]
    fn moderate(&self, period_us: u32, max_count: u32) {
        let input = Raw::cmd(0x403, 272)
            .set(8, 23, 0, self.cq.number)
            .set(12, 31, 0, 0b11)
            .set(0x20, 27, 16, period_us)
            .set(0x20, 15, 0, max_count);
        self.rig.run(input).ok();
    }

    /// MODIFY_CQ with another buffer.
    fn resize(&mut self, log: u32, fill: u8) -> (u32, u64) {
        let len_bytes = (64u64 << log).clamp(4096, 1 << 20);
        let memory = self.rig.alloc(len_bytes, fill);
        let input = Raw::cmd(0x403, 272)
            .set(4, 15, 0, 1)
            .set(8, 23, 0, self.cq.number)
            .set(12, 31, 0, 0b111)
            .set(0x1c, 28, 24, log)
            .list(&pages(memory, len_bytes));
        (self.rig.run(input).syndrome(), memory)
    }

    fn query(&self) -> Vec<u8> {
        self.rig.exec(&Raw::cmd(0x402, 16).set(8, 23, 0, self.cq.number), 272).ok().bytes[0x10..0x50].to_vec()
    }
}

#[test]
fn a_resized_cq_goes_on_where_it_was() {
    let mut world = World::new(2);
    world.complete();
    world.complete();
    world.complete();
    world.cq.poll(&world.rig, true).unwrap();
    world.cq.poll(&world.rig, true).unwrap();
    world.cq.poll(&world.rig, false).unwrap();
    world.cq.ci -= 1;
    world.complete();
    // CQEs 2 and 3 are there; the old buffer ends with number 4, in the second lap's slot 0.
    let old = world.cq.memory;
    world.arm();
    assert!(world.event(), "what was not consumed");
    let (syndrome, memory) = world.resize(4, 0xf1);
    assert_eq!(syndrome, 0);
    assert_eq!(world.rig.read(old + 63, 1), [0x51]);
    // What libmlx5 does: CQE n goes to slot n + 1 of the new buffer, and the index one on.
    for n in [2u64, 3] {
        let mut cqe = world.rig.read(old + n * 64, 64);
        cqe[63] &= !1;
        world.rig.write(memory + (n + 1) * 64, &cqe);
    }
    (world.cq.memory, world.cq.log, world.cq.ci) = (memory, 4, 3);
    for _ in 0..2 {
        world.cq.poll(&world.rig, true).expect("a copied completion");
    }
    assert!(world.cq.poll(&world.rig, true).is_none());
    // Armed once more: the next completion is number 5, in the new buffer.
    world.arm();
    assert!(!world.event());
    world.complete();
    assert!(world.event());
    let cqe = world.cq.poll(&world.rig, true).expect("a completion in the new buffer");
    assert_eq!(u16::from_be_bytes([cqe[0x3c], cqe[0x3d]]), 4, "the fifth WQE");
    for _ in 0..20 {
        world.complete();
        world.cq.poll(&world.rig, true).expect("a completion, around the new end");
    }
    let cqc = world.query();
    assert_eq!((cqc[0x0c] & 0x1f, cqc[0x2f]), (4, 26));
    world.rig.model.assert_clean();
}

/// An arm that waits is not answered by the resize, and not lost.
#[test]
fn a_resize_keeps_the_arm() {
    let mut world = World::new(3);
    world.arm();
    let (syndrome, memory) = world.resize(2, 0xf1);
    assert_eq!(syndrome, 0);
    assert!(!world.event());
    (world.cq.memory, world.cq.log, world.cq.ci) = (memory, 2, 1);
    world.complete();
    assert!(world.event());
    assert!(world.cq.poll(&world.rig, true).is_some());
    world.rig.model.assert_clean();
}

#[test]
fn a_resize_without_room_is_refused() {
    let mut world = World::new(2);
    (0..3).for_each(|_| world.complete());
    let refused = Refusal::CQ_RESIZE.syndrome;
    // Three and the CQE that ends the old buffer fit in four; in two they do not.
    assert_eq!(world.resize(1, 0xf1).0, refused);
    assert_eq!(world.resize(23, 0xf1).0, Refusal::QUEUE_SIZE.syndrome);
    assert_eq!(rules(&world.rig), [Rule::WithinCapabilities]);
    world.complete();
    assert_eq!(world.resize(5, 0xf1).0, refused, "no slot left in the old buffer");
    (0..4).for_each(|_| assert!(world.cq.poll(&world.rig, true).is_some(), "nothing happened to the CQ"));
    world.rig.model.assert_clean();
    // A buffer that looks full.
    assert_eq!(world.resize(5, 0x00).0, 0);
    assert_eq!(rules(&world.rig), [Rule::RingInitialised]);
}

#[test]
fn events_wait_for_a_count_or_a_period() {
    let mut world = World::new(5);
    // From the last event on: the first one is long ago.
    world.pass(100);
    world.moderate(50, 3);
    world.arm();
    world.complete();
    assert!(world.event(), "the period was over");
    world.arm_after_poll();
    world.complete();
    assert!(!world.event());
    world.pass(49);
    assert!(!world.event());
    world.pass(1);
    assert!(world.event(), "the period");
    world.arm_after_poll();
    world.complete();
    world.complete();
    assert!(!world.event());
    world.complete();
    assert!(world.event(), "the count");
    world.pass(200);
    assert!(!world.event(), "once");
    // Not held back any more.
    world.moderate(0, 0);
    world.arm_after_poll();
    world.complete();
    assert!(world.event());
    world.rig.model.assert_clean();
}
