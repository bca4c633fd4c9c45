//! Completion queues that compress, read as Linux, UCX and DPDK read them.

use crate::{
    completions::create_mkey,
    rig::{Cq, Page, Qp, Raw, Rig, pages},
    rules,
};
use mlx5_model::{Rule, fw::Refusal};

const NOP: u8 = 0;
const RDMA_WRITE: u8 = 8;
const SEND: u8 = 0xa;
const SEND_IMM: u8 = 0xb;
const HASH: u32 = 0;
const CSUM: u32 = 1;
const CSUM_STRIDX: u32 = 3;
const COMPRESSED: u8 = 3;
/// Slots of every CQ here, and entries of every receive ring.
const LOG_SLOTS: u32 = 4;

struct Ready {
    rig: Rig,
    uar: u32,
    page: Page,
    pd: u32,
    eqn: u32,
}

fn ready() -> Ready {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    let (uar, pd) = (rig.alloc_uar(), rig.alloc_pd());
    let (eqn, _) = rig.create_eq(uar, 6, 0, 0);
    let page = rig.map_uar(uar);
    Ready { rig, uar, page, pd, eqn }
}

impl Ready {
    /// CREATE_CQ of 16 slots that compresses, and the CQ but for its number.
    fn cq_input(&mut self, cqe_sz: u32, format: u32) -> (Raw, Cq) {
        let (input, cq) = self.rig.cq_input(self.uar, LOG_SLOTS, self.eqn, cqe_sz);
        (input.set(0x10, 14, 14, 1).set(0x10, 13, 12, format), cq)
    }

    fn cq(&mut self, cqe_sz: u32, format: u32) -> Cq {
        let (input, cq) = self.cq_input(cqe_sz, format);
        Cq { number: self.rig.run(input).ok().dword(8), ..cq }
    }

    /// A queue pair that is its own peer, with receives of 64 bytes in `memory`.
    fn qp(&mut self, send: &Cq, receive: &Cq) -> (Qp, u64, u32) {
        let (ring, record) = (self.rig.alloc(4096, 0), self.rig.alloc(8, 0));
        let input = Raw::cmd(0x500, 272)
            .set(0x18 + 0x04, 23, 0, self.pd)
            .set(0x18 + 0x08, 22, 19, LOG_SLOTS)
            .set(0x18 + 0x08, 14, 11, 5)
            .set(0x18 + 0x0c, 23, 0, self.uar)
            .set(0x18 + 0x7c, 23, 0, send.number)
            .set(0x18 + 0x9c, 23, 0, receive.number)
            .set64(0x18 + 0xa0, record)
            .list(&pages(ring, 4096));
        let number = self.rig.run(input).ok().dword(8);
        let qp = Qp { number, send: ring + (16 << LOG_SLOTS), record, log_sq: 5, pi: 0 };
        let (mac, gid) = (self.rig.mac(), self.rig.set_gid());
        self.rig.connect(&qp, number, mac, gid);
        let memory = self.rig.alloc(4096, 0);
        let key = create_mkey(&self.rig, self.pd, memory, 4096);
        let receives: Vec<u8> = (0..1 << LOG_SLOTS).flat_map(|_| data(key, memory, 64).0).collect();
        self.rig.write(ring, &receives);
        self.rig.write(record, &16u32.to_be_bytes());
        (qp, memory, key)
    }

    /// Rings once for all that was written.
    fn ring(&self, qp: &Qp, doorbell: [u8; 8]) {
        qp.record(&self.rig);
        self.page.ring(doorbell);
        while self.rig.model.step() {}
    }

    /// Posts so many NOPs at once.
    fn nops(&self, qp: &mut Qp, n: u32) {
        let mut last = [0; 8];
        for _ in 0..n {
            last = qp.wqe(&self.rig, NOP, &[]);
        }
        self.ring(qp, last);
    }

    /// Posts messages of these lengths at once.
    fn send(&self, qp: &mut Qp, memory: u64, key: u32, lens: &[u32]) {
        let mut last = [0; 8];
        for len in lens {
            last = qp.wqe(&self.rig, SEND, &data(key, memory, *len).0);
        }
        self.ring(qp, last);
    }
}

fn data(key: u32, memory: u64, len: u32) -> Raw {
    Raw::new(16).set(0, 31, 0, len).set(4, 31, 0, key).set64(8, memory)
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// The 64 bytes of a slot.
fn slot(rig: &Rig, cq: &Cq, index: u32, stride: u64) -> Vec<u8> {
    let slot = u64::from(index & ((1 << LOG_SLOTS) - 1));
    rig.read(cq.memory + slot * stride + stride - 64, 64)
}

/// Title and mini CQEs of the session at the consumer index, which goes on by them.
fn session(rig: &Rig, cq: &mut Cq, stride: u64) -> (Vec<u8>, Vec<[u8; 8]>) {
    let title = slot(rig, cq, cq.ci, stride);
    assert_eq!(u32::from(title[63] & 1), cq.ci >> LOG_SLOTS & 1, "the title is of this lap");
    assert_eq!(title[63] >> 2 & 3, COMPRESSED);
    let n = be32(&title, 0x2c);
    let n_slots = (1 << LOG_SLOTS) - (cq.ci & ((1 << LOG_SLOTS) - 1));
    assert!(n <= n_slots, "a session of {n}, and {n_slots} slots to the end of the ring");
    let minis = (0..n)
        .map(|k| {
            let array = slot(rig, cq, cq.ci + if k < 8 { 1 } else { k / 8 * 8 }, stride);
            array[k as usize % 8 * 8..][..8].try_into().unwrap()
        })
        .collect();
    cq.ci += n;
    rig.write(cq.record, &cq.ci.to_be_bytes());
    (title, minis)
}

#[test]
fn requests_that_are_done_together() {
    for (cqe_sz, stride) in [(0, 64), (1, 128)] {
        let mut ready = ready();
        let mut cq = ready.cq(cqe_sz, CSUM);
        let other = ready.cq(0, HASH);
        let (mut qp, ..) = ready.qp(&cq, &other);
        for (first, n) in [(0u16, 11), (11, 5), (16, 9)] {
            let mut last = [0; 8];
            for k in 0..n {
                last = match k % 2 {
                    0 => qp.wqe(&ready.rig, NOP, &[]),
                    _ => qp.wqe(&ready.rig, RDMA_WRITE, &[0; 16]),
                };
            }
            ready.ring(&qp, last);
            let (title, minis) = session(&ready.rig, &mut cq, stride);
            assert_eq!((title[63] >> 4, be32(&title, 0x38) & 0xff_ffff), (0, qp.number));
            assert_eq!(title[0x3c..0x3e], first.to_be_bytes());
            let wanted: Vec<[u8; 8]> = (0..n)
                .map(|k| {
                    let [high, low] = (first + k).to_be_bytes();
                    [high, low, if k % 2 == 0 { NOP } else { RDMA_WRITE }, 0, 0, 0, 0, 0]
                })
                .collect();
            assert_eq!(minis, wanted);
        }
        ready.rig.model.assert_clean();
    }
}

#[test]
fn messages_that_arrive_together() {
    for (format, with_index) in [(HASH, false), (CSUM, false), (CSUM_STRIDX, true)] {
        let mut ready = ready();
        let (send, mut receive) = (ready.cq(0, HASH), ready.cq(0, format));
        let (mut qp, memory, key) = ready.qp(&send, &receive);
        ready.send(&mut qp, memory, key, &[5, 6, 7, 8, 9, 10, 11, 12, 13]);
        let untouched = slot(&ready.rig, &receive, 2, 64);
        let (title, minis) = session(&ready.rig, &mut receive, 64);
        assert_eq!((title[63] >> 4, &title[0x3c..0x3e]), (2, &[0, 0][..]));
        let wanted: Vec<[u8; 8]> =
            (0..9u8).map(|k| [0, 0, 0, if with_index { k } else { 0 }, 0, 0, 0, 5 + k]).collect();
        assert_eq!(minis, wanted);
        assert_eq!(untouched, [0xf1; 64], "slots that a session covers stay as they are");
        // One by itself is a CQE as any other.
        ready.send(&mut qp, memory, key, &[14]);
        let cqe = receive.poll(&ready.rig, true).unwrap();
        assert_eq!((cqe[63] >> 4, cqe[63] >> 2 & 3, be32(&cqe, 0x2c)), (2, 0, 14));
        ready.rig.model.assert_clean();
    }
}

#[test]
fn what_differs_ends_a_session() {
    let mut ready = ready();
    let (send, mut receive) = (ready.cq(0, HASH), ready.cq(0, HASH));
    let (mut qp, memory, key) = ready.qp(&send, &receive);
    let message = data(key, memory, 8).0;
    for _ in 0..2 {
        qp.wqe(&ready.rig, SEND, &message);
    }
    // Other immediate data; then one that is too long for its receive.
    for imm in [1u32, 1, 2] {
        let index = qp.pi;
        qp.wqe(&ready.rig, SEND_IMM, &message);
        let at = qp.send + u64::from(index & 31) * 64 + 12;
        ready.rig.write(at, &imm.to_be_bytes());
    }
    let doorbell = qp.wqe(&ready.rig, SEND, &data(key, memory, 65).0);
    ready.ring(&qp, doorbell);
    let (title, _) = session(&ready.rig, &mut receive, 64);
    assert_eq!((title[63] >> 4, be32(&title, 0x2c)), (2, 2));
    let (title, _) = session(&ready.rig, &mut receive, 64);
    assert_eq!((title[63] >> 4, be32(&title, 0x2c), be32(&title, 0x24)), (3, 2, 1));
    let cqe = receive.poll(&ready.rig, true).unwrap();
    assert_eq!((cqe[63] >> 4, cqe[63] >> 2 & 3, be32(&cqe, 0x24)), (3, 0, 2));
    let failed = receive.poll(&ready.rig, true).unwrap();
    assert_eq!(failed[63] >> 4, 0xe);
}

/// DPDK reads on behind the last slot if it does.
#[test]
fn no_session_goes_on_at_the_start_of_the_ring() {
    let mut ready = ready();
    let (mut cq, other) = (ready.cq(0, HASH), ready.cq(0, HASH));
    let (mut qp, ..) = ready.qp(&cq, &other);
    ready.nops(&mut qp, 13);
    assert_eq!(session(&ready.rig, &mut cq, 64).1.len(), 13);
    ready.nops(&mut qp, 5);
    assert_eq!(session(&ready.rig, &mut cq, 64).1.len(), 3);
    assert_eq!(session(&ready.rig, &mut cq, 64).1.len(), 2);
    // Alone in the last slot.
    ready.nops(&mut qp, 13);
    assert_eq!(session(&ready.rig, &mut cq, 64).1.len(), 13);
    ready.nops(&mut qp, 4);
    let cqe = cq.poll(&ready.rig, true).unwrap();
    assert_eq!((cqe[63] >> 4, cqe[63] >> 2 & 3), (0, 0));
    assert_eq!(session(&ready.rig, &mut cq, 64).1.len(), 3);
    assert_eq!(ready.rig.function.n_sessions(), 5, "one alone is none");
    ready.rig.model.assert_clean();
}

/// Those that wait have slots as well.
#[test]
fn a_session_overruns_as_its_completions_would() {
    let mut ready = ready();
    let (mut cq, other) = (ready.cq(0, HASH), ready.cq(0, HASH));
    let (mut qp, ..) = ready.qp(&cq, &other);
    ready.nops(&mut qp, 17);
    assert_eq!(rules(&ready.rig), [Rule::CqOverrun]);
    assert_eq!(session(&ready.rig, &mut cq, 64).1.len(), 16);
}

#[test]
fn forms_that_there_are_not() {
    let mut ready = ready();
    let flow_tags = ready.cq_input(0, 2).0;
    let enhanced = ready.cq_input(0, HASH).0.set(0x10, 1, 0, 1);
    for input in [flow_tags, enhanced] {
        assert_eq!(ready.rig.run(input).syndrome(), Refusal::CQE_COMPRESSION.syndrome);
    }
}
