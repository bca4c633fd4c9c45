//! Shared receive queues: the list, the limit, and what a driver may do wrong with them.

use crate::{
    completions::create_mkey,
    devx::create_umem,
    rig::{Cq, Page, Qp, Raw, Rig, pages},
    rules,
};
use mlx5_model::Rule;

const LOG_SIZE: u32 = 3;
const SRQ_CATAS_ERROR: u8 = 0x12;
const SRQ_LAST_WQE: u8 = 0x13;
const SRQ_RQ_LIMIT: u8 = 0x14;

/// A shared receive queue of 8 WQEs of 32 bytes, and two QPs that receive from it, each connected to itself.
struct Ready {
    rig: Rig,
    page: Page,
    cq: Cq,
    qps: Vec<Qp>,
    number: u32,
    ring: u64,
    record: u64,
    memory: u64,
    key: u32,
    events: u64,
    n_events: u64,
    posted: u16,
}

pub(crate) fn create_rmp(rig: &Rig, pd: u32, ring: u64, record: u64) -> u32 {
    let input = Raw::cmd(0x90c, 272)
        .set(0x20, 23, 20, 1)
        .set(0x58, 23, 0, pd)
        .set64(0x60, record)
        .set(0x70, 19, 16, 5)
        .set(0x70, 4, 0, LOG_SIZE)
        .list(&pages(ring, 32 << LOG_SIZE));
    rig.run(input).ok().dword(8)
}

fn create_qp(rig: &mut Rig, pd: u32, uar: u32, cq: &Cq, srqn: u32, user_index: u32) -> Qp {
    let send = rig.alloc(4096, 0);
    let record = rig.alloc(8, 0);
    let input = Raw::cmd(0x500, 272)
        .set(0x18 + 0x04, 23, 0, pd)
        .set(0x18 + 0x08, 14, 11, 4)
        .set(0x18 + 0x0c, 23, 0, uar)
        .set(0x18 + 0x10, 23, 0, user_index)
        .set(0x18 + 0x7c, 23, 0, cq.number)
        .set(0x18 + 0x9c, 23, 0, cq.number)
        .set64(0x18 + 0xa0, record)
        .set(0x18 + 0xac, 26, 24, 1)
        .set(0x18 + 0xac, 23, 0, srqn)
        .list(&pages(send, 64 << 4));
    Qp { number: rig.run(input).ok().dword(8), send, record, log_sq: 4, pi: 0 }
}

fn ready() -> Ready {
    ready_on(create_rmp)
}

/// Everything on a queue that `create` makes in a domain, of a ring and a record.
fn ready_on(create: impl Fn(&Rig, u32, u64, u64) -> u32) -> Ready {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    let (uar, pd) = (rig.alloc_uar(), rig.alloc_pd());
    let (_, events) = rig.create_eq(uar, 6, 0, 1 << SRQ_CATAS_ERROR | 1 << SRQ_LAST_WQE | 1 << SRQ_RQ_LIMIT);
    let (eqn, _) = rig.create_eq(uar, 6, 0, 0);
    let cq = rig.create_cq(uar, 6, eqn);
    let (mac, gid) = (rig.mac(), rig.set_gid());
    let (ring, record, memory) = (rig.alloc(32 << LOG_SIZE, 0), rig.alloc(8, 0), rig.alloc(4096, 0));
    let key = create_mkey(&rig, pd, memory, 4096);
    let number = create(&rig, pd, ring, record);
    let qps: Vec<_> = [0x77, 0xff_ffff].map(|user| create_qp(&mut rig, pd, uar, &cq, number, user)).into();
    for qp in &qps {
        rig.connect(qp, qp.number, mac, gid);
    }
    let page = rig.map_uar(uar);
    Ready { rig, page, cq, qps, number, ring, record, memory, key, events, n_events: 0, posted: 0 }
}

impl Ready {
    /// Fills in WQE `index`, with `next` after it, for 64 bytes of memory of its own.
    fn write(&self, index: u16, next: u16) {
        let wqe = Raw::new(32)
            .set(0, 15, 0, next.into())
            .set(0x10, 31, 0, 64)
            .set(0x14, 31, 0, self.key)
            .set64(0x18, self.memory + u64::from(index) * 64);
        self.rig.write(self.ring + u64::from(index) * 32, &wqe.0);
    }

    fn publish(&mut self, n: u16) {
        self.posted += n;
        self.rig.write(self.record, &u32::from(self.posted).to_be_bytes());
    }

    /// Sends `text` inline on a QP.
    fn send(&mut self, qp: usize, text: &[u8; 12]) {
        let mut rest = vec![0x80, 0, 0, 12];
        rest.extend(text);
        let doorbell = self.qps[qp].wqe(&self.rig, 0x0a, &rest);
        self.qps[qp].record(&self.rig);
        self.page.ring(doorbell);
        while self.rig.model.step() {}
    }

    /// Index and `srqn_or_user_index` of the receive CQEs since the last call.
    fn received(&mut self) -> Vec<(u16, u32)> {
        let cqes = std::iter::from_fn(|| self.cq.poll(&self.rig, true));
        cqes.filter(|cqe| cqe[63] >> 4 == 2)
            .map(|cqe| {
                let user = u32::from_be_bytes(cqe[32..36].try_into().unwrap()) & 0xff_ffff;
                (u16::from_be_bytes([cqe[60], cqe[61]]), user)
            })
            .collect()
    }

    /// Type and object of the next event.
    fn event(&mut self) -> Option<(u8, u32)> {
        let eqe = self.rig.read(self.events + self.n_events * 64, 64);
        (eqe[63] & 1 == 0).then(|| {
            self.n_events += 1;
            (eqe[1], u32::from_be_bytes(eqe[0x38..0x3c].try_into().unwrap()))
        })
    }

    fn arm(&self, limit: u32) -> crate::rig::Answer {
        let input = Raw::cmd(0x90d, 272)
            .set(8, 31, 28, 1)
            .set(8, 23, 0, self.number)
            .set(0x14, 0, 0, 1)
            .set(0x20, 23, 20, 1)
            .set(0x54, 15, 0, limit);
        self.rig.run(input)
    }

    fn limit(&self) -> u32 {
        let query = Raw::cmd(0x90f, 16).set(8, 23, 0, self.number);
        self.rig.exec(&query, 272).ok().dword(0x54) & 0xffff
    }
}

#[test]
fn the_list_leads_from_wqe_to_wqe() {
    let mut ready = ready();
    // From 0 on, in an order of software's own; the last one's `next` is only known later.
    for (index, next) in [(0, 5), (5, 1), (1, 7)] {
        ready.write(index, next);
    }
    ready.publish(3);
    for (n, qp) in [0, 1, 0].into_iter().enumerate() {
        ready.send(qp, &[n as u8; 12]);
    }
    let srqn = ready.number;
    // A user index of all ones asks for CQEs of version 0, which name the queue.
    assert_eq!(ready.received(), [(0, 0x77), (5, srqn), (1, 0x77)]);
    for (n, index) in [0u64, 5, 1].into_iter().enumerate() {
        assert_eq!(ready.rig.read(ready.memory + index * 64, 12), [n as u8; 12]);
    }
    // 1 led to 7, which was not posted then; what came back is posted again behind it.
    for (index, next) in [(7, 5), (5, 0)] {
        ready.write(index, next);
    }
    ready.publish(2);
    ready.send(0, b"seven seven ");
    ready.send(0, b"five again  ");
    assert_eq!(ready.received(), [(7, 0x77), (5, 0x77)]);
    ready.rig.model.assert_clean();
}

/// As UCX makes it, by DevX: a ring in one umem, the record in another. What stands where a list has the next WQE's index means
/// nothing.
#[test]
fn a_ring_is_taken_in_its_order() {
    let mut ready = ready_on(|rig, pd, ring, record| {
        let uid = rig.run(Raw::cmd(0xa04, 64)).ok().dword(8) & 0xffff;
        let rings = create_umem(rig, uid, ring, 32 << LOG_SIZE);
        let records = create_umem(rig, uid, record, 8);
        let input = Raw::cmd(0x90c, 272)
            .set(0, 15, 0, uid)
            .set(0x20, 23, 20, 1)
            .set(0x50, 31, 28, 1)
            .set(0x58, 23, 0, pd)
            .set(0x70, 19, 16, 5)
            .set(0x70, 4, 0, LOG_SIZE)
            .set(0x74, 31, 30, 3)
            .set(0x78, 31, 0, records)
            .set(0x7c, 31, 0, rings);
        rig.run(input).ok().dword(8)
    });
    let size = 1 << LOG_SIZE;
    for lap in 0..2 {
        for index in 0..size {
            ready.write(index, 0xbad);
        }
        // All of them: a ring has no end to keep.
        ready.publish(size);
        for n in 0..size {
            ready.send(0, &[n as u8 + lap; 12]);
        }
        let all: Vec<_> = (0..size).map(|index| (index, 0x77)).collect();
        assert_eq!(ready.received(), all);
        assert_eq!(ready.rig.read(ready.memory + 64, 12), [1 + lap; 12]);
    }
    ready.rig.model.assert_clean();
    ready.publish(size + 1);
    ready.send(0, b"one too many");
    assert_eq!(rules(&ready.rig), [Rule::ProducerWithinRing]);
}

#[test]
fn the_limit_is_told_once() {
    let mut ready = ready();
    for index in 0..6 {
        ready.write(index, index + 1);
    }
    ready.publish(6);
    assert_eq!((ready.limit(), ready.event()), (0, None));
    ready.arm(5).ok();
    assert_eq!((ready.limit(), ready.event()), (5, None));
    ready.send(0, b"five left   ");
    assert_eq!((ready.limit(), ready.event()), (5, None), "five are not fewer than five");
    ready.send(0, b"four left   ");
    assert_eq!((ready.limit(), ready.event()), (0, Some((SRQ_RQ_LIMIT, ready.number))));
    ready.send(0, b"three left  ");
    assert_eq!(ready.event(), None, "once");
    // Armed above what is there: at once.
    ready.arm(7).ok();
    assert_eq!((ready.limit(), ready.event()), (0, Some((SRQ_RQ_LIMIT, ready.number))));
    assert_ne!(ready.arm(8).status(), (0, 0), "no queue of 8 holds 8");
    ready.rig.model.assert_clean();
}

#[test]
fn a_queue_in_use_is_not_destroyed() {
    let ready = ready();
    let destroy = |rig: &Rig| rig.run(Raw::cmd(0x90e, 16).set(8, 23, 0, ready.number));
    assert_ne!(destroy(&ready.rig).status(), (0, 0));
    assert_eq!(rules(&ready.rig), [Rule::ObjectInUse]);
    for qp in &ready.qps {
        ready.rig.run(Raw::cmd(0x501, 16).set(8, 23, 0, qp.number)).ok();
    }
    destroy(&ready.rig).ok();
}

#[test]
fn a_qp_in_error_leaves_the_queue_to_others() {
    let mut ready = ready();
    ready.write(0, 1);
    ready.publish(1);
    let qp = ready.qps[0].number;
    ready.rig.run(Raw::cmd(0x507, 16).set(8, 23, 0, qp)).ok();
    while ready.rig.model.step() {}
    assert_eq!(ready.event(), Some((SRQ_LAST_WQE, qp)));
    assert_eq!(ready.received(), []);
    ready.send(1, b"still there ");
    assert_eq!(ready.received(), [(0, ready.number)]);
    ready.rig.model.assert_clean();
}

/// Mistakes of a driver, each with its rule; the queue is dead after them, and the driver told so.
#[test]
fn a_broken_list_is_named() {
    type Mistake = fn(&mut Ready);
    let mistakes: [(Rule, Mistake); 4] = [
        (Rule::SharedListSound, |ready| {
            ready.write(0, 8);
            ready.publish(1);
        }),
        // 0 leads to itself: it would be written twice.
        (Rule::SharedListSound, |ready| {
            ready.write(0, 0);
            ready.publish(2);
        }),
        // 0 → 1 → 0, without 0 having been posted again.
        (Rule::SharedListSound, |ready| {
            ready.write(0, 1);
            ready.write(1, 0);
            ready.publish(3);
        }),
        // All of them: the list would have no end.
        (Rule::ProducerWithinRing, |ready| {
            for index in 0..8 {
                ready.write(index, (index + 1) % 8);
            }
            ready.publish(8);
        }),
    ];
    for (rule, mistake) in mistakes {
        let mut ready = ready();
        mistake(&mut ready);
        for _ in 0..3 {
            ready.send(0, b"anything    ");
        }
        assert_eq!(rules(&ready.rig), [rule]);
        assert_eq!(ready.event(), Some((SRQ_CATAS_ERROR, ready.number)));
        let state = ready.rig.exec(&Raw::cmd(0x90f, 16).set(8, 23, 0, ready.number), 272).ok();
        assert_eq!(state.dword(0x20) >> 20 & 0xf, 3, "error");
    }
}

#[test]
fn what_creation_refuses() {
    let mut ready = ready();
    let pd = ready.rig.alloc_pd();
    let ring = ready.rig.alloc(4096, 0);
    let good = Raw::cmd(0x90c, 272)
        .set(0x20, 23, 20, 1)
        .set(0x58, 23, 0, pd)
        .set64(0x60, ready.record)
        .set(0x70, 19, 16, 5)
        .set(0x70, 4, 0, LOG_SIZE)
        .list(&pages(ring, 32 << LOG_SIZE));
    ready.rig.run(good.clone()).ok();
    for bad in [
        good.clone().set(0x20, 23, 20, 0),
        good.clone().set(0x50, 31, 28, 3),
        good.clone().set(0x74, 30, 30, 1).set(0x7c, 31, 0, 0xbad),
        good.clone().set(0x74, 31, 31, 1).set(0x78, 31, 0, 0xbad),
        good.clone().set(0x58, 23, 0, 0xbad),
        good.clone().set64(0x60, 4),
        good.clone().set(0x70, 4, 0, 16),
    ] {
        assert_ne!(ready.rig.run(bad).status(), (0, 0));
    }
    // A QP on a queue that does not exist.
    let qp = Raw::cmd(0x500, 272)
        .set(0x18 + 0x04, 23, 0, pd)
        .set(0x18 + 0x08, 15, 15, 1)
        .set(0x18 + 0x7c, 23, 0, ready.cq.number)
        .set(0x18 + 0x9c, 23, 0, ready.cq.number)
        .set(0x18 + 0xac, 26, 24, 1);
    assert_eq!(ready.rig.run(qp.clone().set(0x18 + 0xac, 23, 0, 0xbad)).syndrome(), 0x4d_007c);
    // With one, it needs neither a record nor a UAR page: it has no queue of its own.
    ready.rig.run(qp.set(0x18 + 0xac, 23, 0, ready.number)).ok();
    let broken = [Rule::ObjectExists, Rule::RecordAligned, Rule::WithinCapabilities, Rule::ObjectExists];
    assert_eq!(rules(&ready.rig), broken);
}
