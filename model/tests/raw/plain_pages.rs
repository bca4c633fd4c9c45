//! UAR pages that are plain memory, beside one that is trapped; BlueFlame in them.

use crate::{
    rig::{Cq, Page, Qp, Rig},
    rules,
};
use mlx5_direct::backend::pci::PciFunction;
use mlx5_model::Rule;

/// Registers of event queues: consumer index and arm, consumer index only; of completion queues: arm.
const EQ_ARM: usize = 0x40;
const EQ_NOARM: usize = 0x48;
const CQ_ARM: usize = 0x20;
const FIRST_UAR: u32 = 8;

/// A QP of 16 WQEBBs on a page of its own, which its CQ has too.
struct Side {
    page: Page,
    cq: Cq,
    qp: Qp,
    n_armed: u32,
}

fn side(rig: &mut Rig, uar: u32, eqn: u32) -> Side {
    let pd = rig.alloc_pd();
    let cq = rig.create_cq(uar, 4, eqn);
    let (mac, gid) = (rig.mac(), rig.set_gid());
    let qp = rig.create_qp(pd, uar, &cq, 4);
    rig.connect(&qp, qp.number, mac, gid);
    Side { page: rig.map_uar(uar), cq, qp, n_armed: 0 }
}

fn settle(rig: &Rig) {
    while rig.model.step() {}
}

fn eq_doorbell(eqn: u32, consumer: u32) -> [u8; 4] {
    (eqn << 24 | consumer).to_be_bytes()
}

impl Side {
    /// One completion with an event.
    fn event(&mut self, rig: &Rig) {
        let word = ((self.n_armed & 3) << 28 | self.cq.ci & 0xff_ffff).to_be_bytes();
        self.n_armed += 1;
        rig.write(self.cq.record + 4, &word);
        let mut doorbell = [0; 8];
        doorbell[..4].copy_from_slice(&word);
        doorbell[4..].copy_from_slice(&self.cq.number.to_be_bytes());
        self.page.store64(CQ_ARM, doorbell);
        settle(rig);
        let doorbell = self.qp.nop(rig);
        self.page.ring(doorbell);
        settle(rig);
        assert!(self.cq.poll(rig, true).is_some());
    }
}

#[test]
fn sparse_is_exact_in_the_first_page_only() {
    let mut rig = Rig::new("bar=sparse,drive=step");
    rig.bring_up();
    let (first, second) = (rig.alloc_uar(), rig.alloc_uar());
    assert_eq!(first, FIRST_UAR);
    let (eqn, _) = rig.create_eq(first, 6, 0, 0);
    let mut plain = side(&mut rig, second, eqn);
    // Merged doorbells: the first WQE is named, the record says two.
    let doorbell = plain.qp.nop(&rig);
    plain.qp.nop(&rig);
    plain.page.ring(doorbell);
    settle(&rig);
    assert!(plain.cq.poll(&rig, true).is_some() && plain.cq.poll(&rig, true).is_some());
    rig.model.assert_clean();
    // Event queues ring in the first page, and there nothing is forgiven.
    rig.function.bar_write32(u64::from(first) << 12 | EQ_ARM as u64, eqn << 24 | 5);
    assert_eq!(rules(&rig), [Rule::EqConsumerForward]);
    if cfg!(target_arch = "x86_64") {
        let mut trapped = side(&mut rig, first, eqn);
        let doorbell = trapped.qp.nop(&rig);
        trapped.qp.nop(&rig);
        trapped.page.ring(doorbell);
        assert_eq!(rules(&rig), [Rule::DoorbellNamesLastWqe]);
        trapped.page.store32(EQ_NOARM, eq_doorbell(eqn, 7));
        assert_eq!(rules(&rig), [Rule::EqConsumerForward]);
    }
}

#[test]
fn the_first_page_is_the_first_again_after_a_restart() {
    let mut rig = Rig::new("bar=sparse,drive=step");
    for _ in 0..3 {
        rig.bring_up();
        assert_eq!([rig.alloc_uar(), rig.alloc_uar()][0], FIRST_UAR);
        rig.tear_down();
        assert_eq!(rules(&rig), [Rule::LeakAtClose], "two pages");
    }
}

/// Several event queues share one register, and none has a record: a consumer index may never be seen. No event is lost
/// for that.
#[test]
fn event_queues_that_overwrite_each_others_doorbell_go_on() {
    let mut rig = Rig::new("bar=mapped,drive=step");
    rig.bring_up();
    let uar = rig.alloc_uar();
    let (one, ring) = rig.create_eq(uar, 2, 0, 0);
    let (other, _) = rig.create_eq(uar, 2, 1, 0);
    let mut side = side(&mut rig, uar, one);
    for n in 0..30u32 {
        side.event(&rig);
        let eqe = rig.read(ring + u64::from(n % 4) * 64, 64);
        assert_eq!(u32::from(eqe[63] & 1), n >> 2 & 1, "event {n}");
        side.page.store32(EQ_ARM, eq_doorbell(one, n + 1));
        side.page.store32(EQ_ARM, eq_doorbell(other, 0));
    }
    rig.model.assert_clean();
}

/// A completion queue whose software sleeps.
struct Sleeper {
    cq: Cq,
    qp: Qp,
    arm_sn: u32,
    n_woken: u32,
}

impl Sleeper {
    /// Not waited for: the next arm on the page may overwrite the doorbell.
    fn arm(&self, rig: &Rig, page: &Page) {
        let word = self.arm_sn << 28 | (self.cq.ci & 0xff_ffff);
        rig.write(self.cq.record + 4, &word.to_be_bytes());
        page.store64(CQ_ARM, (u64::from(word) << 32 | u64::from(self.cq.number)).to_be_bytes());
    }
}

/// Completion queues share one register, and the record of one never armed reads like that of a first arm. Whatever the
/// order of arms, completions and events: who has counted all events, polled and armed is woken by the next completion.
#[test]
fn completion_queues_that_overwrite_each_others_doorbell_wake_their_software() {
    for seed in 0..300 {
        completion_queues_wake(seed);
    }
}

#[track_caller]
fn completion_queues_wake(seed: u64) {
    const EQ_LOG: u32 = 8;
    let mut rig = Rig::new("bar=mapped,drive=step");
    rig.bring_up();
    let (uar, pd) = (rig.alloc_uar(), rig.alloc_pd());
    let (eqn, eq) = rig.create_eq(uar, EQ_LOG, 0, 0);
    let (mac, gid) = (rig.mac(), rig.set_gid());
    let mut sleepers = [(); 3].map(|()| {
        let cq = rig.create_cq(uar, 4, eqn);
        let qp = rig.create_qp(pd, uar, &cq, 4);
        rig.connect(&qp, qp.number, mac, gid);
        Sleeper { cq, qp, arm_sn: 0, n_woken: 0 }
    });
    let page = rig.map_uar(uar);
    let mut n_events = 0;
    let mut count_events = |sleepers: &mut [Sleeper], most: usize| {
        for _ in 0..most {
            let eqe = rig.read(eq + u64::from(n_events % (1 << EQ_LOG)) * 64, 64);
            if u32::from(eqe[63] & 1) != n_events >> EQ_LOG & 1 {
                break;
            }
            n_events += 1;
            let cqn = u32::from_be_bytes(eqe[0x38..0x3c].try_into().unwrap());
            let woken = sleepers
                .iter_mut()
                .find(|sleeper| sleeper.cq.number == cqn)
                .expect("an event of one of ours");
            (woken.arm_sn, woken.n_woken) = ((woken.arm_sn + 1) & 3, woken.n_woken + 1);
            page.store32(EQ_NOARM, eq_doorbell(eqn, n_events));
        }
    };
    let mut state = seed;
    let mut random = |below: u64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) % below
    };
    for _ in 0..40 {
        let sleeper = &mut sleepers[random(3) as usize];
        match random(5) {
            0 | 1 => sleeper.arm(&rig, &page),
            2 => {
                let doorbell = sleeper.qp.nop(&rig);
                page.ring(doorbell);
                settle(&rig);
                if random(2) == 0 {
                    sleeper.cq.poll(&rig, true).expect("the completion");
                }
            }
            3 => count_events(&mut sleepers, random(3) as usize),
            _ => settle(&rig),
        }
        for sleeper in &mut sleepers {
            while sleeper.qp.pi.wrapping_sub(sleeper.cq.ci as u16) > 8
                && sleeper.cq.poll(&rig, true).is_some()
            {}
        }
    }
    for at in 0..sleepers.len() {
        settle(&rig);
        count_events(&mut sleepers, usize::MAX);
        let sleeper = &mut sleepers[at];
        while sleeper.cq.poll(&rig, true).is_some() {}
        sleeper.arm(&rig, &page);
        settle(&rig);
        let n_woken = sleeper.n_woken;
        let doorbell = sleeper.qp.nop(&rig);
        page.ring(doorbell);
        settle(&rig);
        count_events(&mut sleepers, usize::MAX);
        assert!(sleepers[at].n_woken > n_woken, "seed {seed}: completion queue {at} sleeps for ever");
    }
    rig.model.assert_clean();
}

/// Alone on its page a queue that is full is full, but not while a doorbell waits to be seen.
#[test]
fn an_event_queue_alone_on_a_plain_page_overruns() {
    let mut rig = Rig::new("bar=mapped,drive=step");
    rig.bring_up();
    let uar = rig.alloc_uar();
    let (eqn, _) = rig.create_eq(uar, 2, 0, 0);
    let mut side = side(&mut rig, uar, eqn);
    for n in 0..12u32 {
        if n % 4 == 0 {
            side.page.store32(EQ_NOARM, eq_doorbell(eqn, n));
        }
        side.event(&rig);
    }
    rig.model.assert_clean();
    side.event(&rig);
    assert_eq!(rules(&rig), [Rule::EqOverrun]);
}

/// As `mlx5_ib_test_wc`: a NOP that asks for a completion in its copy and not in the ring.
#[test]
fn a_wqe_that_came_whole_is_not_read_from_the_ring() {
    const CE: usize = 11;
    let mut rig = Rig::new("bar=sparse,drive=step");
    rig.bring_up();
    let (first, uar) = (rig.alloc_uar(), rig.alloc_uar());
    let (eqn, _) = rig.create_eq(first, 6, 0, 0);
    let mut side = side(&mut rig, uar, eqn);
    let mut post = |rig: &Rig, opcode: u8, n_bytes: usize, change: &dyn Fn(&mut [u8; 64])| {
        let slot = side.qp.send + u64::from(side.qp.pi & 15) * 64;
        side.qp.wqe(rig, opcode, &[]);
        let mut copy = side.qp.wqe_bytes(rig);
        rig.write(slot + CE as u64, &[0]);
        change(&mut copy);
        side.qp.record(rig);
        let buffer = 0x800 + usize::from(side.qp.pi & 1) * 0x100;
        for (at, eight) in copy.as_chunks::<8>().0.iter().enumerate().take(n_bytes / 8) {
            side.page.store64(buffer + at * 8, *eight);
        }
        settle(rig);
        side.cq.poll(rig, true).is_some()
    };
    for lap in 0..20 {
        assert!(post(&rig, 0, 64, &|_| ()), "lap {lap}: the copy was whole");
        assert!(!post(&rig, 0, 8, &|_| ()), "lap {lap}: a doorbell alone");
        assert!(!post(&rig, 0, 56, &|_| ()), "lap {lap}: a word is missing");
        assert!(!post(&rig, 0, 64, &|copy| copy[0] ^= 1), "lap {lap}: the copy is not the ring's WQE");
        assert!(post(&rig, 0, 64, &|_| ()), "lap {lap}");
        // What came late of the last copy in this buffer is not of the next.
        assert!(!post(&rig, 0, 8, &|_| ()) && !post(&rig, 0, 8, &|_| ()), "lap {lap}");
    }
    assert_eq!(rig.function.n_blue_flames(), 0, "NOPs are not counted");
    rig.model.assert_clean();
}
