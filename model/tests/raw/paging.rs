//! Paging on demand as Linux does it: keys whose pages come when they are asked for (`odp_explicit_implicit`).

use crate::{
    keys::{KSM, Key, MTT, PAGE, World, klm, rdma_segments},
    rig::{Answer, Raw},
    rules,
    umr::{DONE, INLINE, LOCAL_PROT_ERR, OFFSET, REMOTE_ACCESS_ERR, UMR, umr},
};
use mlx5_model::{Rule, fw::Refusal};

const WRITE: u8 = 0x08;
const PAGE_FAULT: u32 = 0x0c;
/// `null_mkey` of QUERY_SPECIAL_CONTEXTS.
const NULL: u32 = 0x300;
const START: u64 = 0x7f00_0000_0000;
/// Kinds of faults.
const REQ_SEND_OR_WRITE: u32 = 1;
const REMOTE_READ: u32 = 4;
const REMOTE_WRITE: u32 = 6;

/// A world whose driver pages.
struct Paged {
    world: World,
    eq: u64,
    n_events: u64,
}

impl Paged {
    fn new() -> Self {
        let mut world = World::new();
        let (_, eq) = world.rig.create_eq(world.uar, 6, 1, 1 << PAGE_FAULT);
        Self { world, eq, n_events: 0 }
    }

    /// Posts, and lets the device do what it can. Returns the completion if there is one.
    fn start(&mut self, opcode: u8, remote: (u64, u32), local: (u64, u32), len: u32) {
        let segments = rdma_segments(remote, local, len);
        let doorbell = self.world.qp.long_wqe(&self.world.rig, opcode, 0, &segments.0);
        self.world.page.ring(doorbell);
        self.step();
    }

    fn step(&mut self) {
        while self.world.rig.model.step() {}
    }

    /// The completion: opcode and, in error, syndrome.
    #[track_caller]
    fn completion(&mut self) -> (u8, u8) {
        // Those who were told that nobody is ready wait a little.
        for _ in 0..4 {
            self.world.rig.model.advance(std::time::Duration::from_millis(2));
            self.step();
        }
        let cqe = self.world.cq.poll(&self.world.rig, true).expect("a completion");
        (cqe[63] >> 4, if cqe[63] >> 4 == 0xd { cqe[55] } else { 0 })
    }

    /// The next page fault: its sub_type and dwords.
    #[track_caller]
    fn event(&mut self) -> (u8, [u32; 7]) {
        let eqe = self.world.rig.read(self.eq + 64 * self.n_events, 64);
        assert_eq!((eqe[63] & 1, u32::from(eqe[1])), (0, PAGE_FAULT), "an event");
        self.n_events += 1;
        (eqe[3], std::array::from_fn(|n| u32::from_be_bytes(eqe[32 + 4 * n..][..4].try_into().unwrap())))
    }

    #[track_caller]
    fn no_event(&self) {
        assert_eq!(self.world.rig.read(self.eq + 64 * self.n_events + 63, 1)[0] & 1, 1);
    }

    fn resume(&self, kind: u32, queue: u32, token: u32, error: u32) -> Answer {
        let input = Raw::cmd(0x204, 16).set(8, 31, 31, error).set(8, 26, 24, kind).set(8, 23, 0, queue);
        self.world.rig.run(input.set(12, 23, 0, token))
    }

    /// Another queue pair has a UMR replace the first four octowords of a key's translation.
    #[track_caller]
    fn update(&mut self, key: u32, list: &[u64; 8]) {
        self.world.swap();
        let wqe = umr(INLINE | OFFSET, 4, 0).list(list);
        assert_eq!(self.world.post(UMR, key, &wqe.0), DONE);
        self.world.swap();
    }

    /// A key over three pages of which none is there yet.
    fn key(&self) -> u32 {
        let list = [self.world.memory, 0, 0, 0, 0, 0, 0, 0];
        Key::new(self.world.pd, MTT).range(START, 3 * PAGE, 12).list(&list).create(&self.world.rig)
    }
}

/// The memory is one's own: nothing is sent before page and answer are there.
#[test]
fn a_requester_waits_for_page_and_answer() {
    let mut paged = Paged::new();
    let key = paged.key();
    let (memory, qpn) = (paged.world.memory, paged.world.qp.number);
    let remote = Key::new(paged.world.pd, MTT).range(memory, 8 * PAGE, 12);
    let pages: Vec<u64> = (0..8).map(|n| (memory + n * PAGE) | 3).collect();
    let rkey = remote.list(&pages).create(&paged.world.rig);
    let sent = paged.world.fill(PAGE, 0x800, 1);
    paged.start(WRITE, (memory + 5 * PAGE, rkey), (START + PAGE, key), 0x800);
    let type_and_queue = REQ_SEND_OR_WRITE << 24 | qpn;
    assert_eq!(paged.event(), (0, [0, 0, 0x400, qpn, 0, 0, type_and_queue]));
    // A page that may be read is enough.
    paged.update(key, &[0, (memory + PAGE) | 1, 0, 0, 0, 0, 0, 0]);
    paged.step();
    assert_eq!(paged.world.bytes(5 * PAGE, 8), [0; 8], "the answer is what ends the wait");
    for (kind, queue, token) in [(3, qpn, qpn), (1, qpn + 1, qpn), (1, qpn, qpn + 1), (2, qpn, qpn)] {
        let refused = paged.resume(kind, queue, token, 0);
        assert_eq!(refused.syndrome(), Refusal::NO_SUCH_FAULT.syndrome);
    }
    paged.resume(REQ_SEND_OR_WRITE, qpn, qpn, 0).ok();
    assert_eq!(paged.completion(), DONE);
    assert_eq!(paged.world.bytes(5 * PAGE, 0x800), sent);
    let again = paged.resume(REQ_SEND_OR_WRITE, qpn, qpn, 0);
    assert_eq!(again.syndrome(), Refusal::NO_SUCH_FAULT.syndrome);
    // And with an error.
    paged.start(WRITE, (memory, rkey), (START + 2 * PAGE, key), 8);
    assert_eq!(paged.event().1, [0, 1, 8, qpn, 0, 0, type_and_queue]);
    paged.resume(REQ_SEND_OR_WRITE, qpn, qpn, 1).ok();
    assert_eq!(paged.completion(), LOCAL_PROT_ERR);
    paged.no_event();
    paged.world.rig.model.assert_clean();
}

/// A peer names it: to be written, a page that may only be read is not there.
#[test]
fn a_responder_waits_for_page_and_answer() {
    let mut paged = Paged::new();
    let key = paged.key();
    let (memory, local, peer) = (paged.world.memory, paged.world.local, paged.world.peer.number);
    let sent = paged.world.fill(5 * PAGE, 0x800, 1);
    paged.update(key, &[memory | 3, (memory + PAGE) | 1, 0, 0, 0, 0, 0, 0]);
    paged.start(WRITE, (START + 0x800, key), (memory + 5 * PAGE, local), 0x800);
    assert_eq!(paged.completion(), DONE);
    paged.start(WRITE, (START + PAGE - 0x400, key), (memory + 5 * PAGE, local), 0x800);
    let va = START + PAGE - 0x400;
    let fault = [0x400, key, 0x400, 0x800, (va >> 32) as u32, va as u32, REMOTE_WRITE << 24 | peer];
    assert_eq!(paged.event(), (1, fault), "after what was written of it");
    assert_eq!(paged.world.bytes(PAGE - 0x400, 0x800), [&sent[..0x400], &[0; 0x400]].concat());
    paged.update(key, &[memory | 3, (memory + PAGE) | 3, 0, 0, 0, 0, 0, 0]);
    paged.resume(REMOTE_WRITE, peer, peer, 0).ok();
    assert_eq!(paged.completion(), DONE);
    assert_eq!(paged.world.bytes(PAGE - 0x400, 0x800), sent);
    // A page that was taken away again, to be read.
    paged.update(key, &[0; 8]);
    paged.start(0x10, (START, key), (memory + 5 * PAGE, local), 8);
    assert_eq!(paged.event().1[6], REMOTE_READ << 24 | peer);
    paged.resume(REMOTE_READ, peer, peer, 1).ok();
    assert_eq!(paged.completion(), REMOTE_ACCESS_ERR);
    paged.no_event();
    paged.world.rig.model.assert_clean();
}

/// All addresses under one key, which names no other keys yet.
#[test]
fn an_implicit_key_gets_its_parts_when_they_are_asked_for() {
    let mut paged = Paged::new();
    let (memory, local, peer) = (paged.world.memory, paged.world.local, paged.world.peer.number);
    let nothing = klm(NULL, 0, 0);
    let everything = Key::new(paged.world.pd, KSM).set(0x0c, 31, 31, 1).set(0x38, 4, 0, 30);
    let everything = everything.list(&[nothing; 4].concat()).create(&paged.world.rig);
    let sent = paged.world.fill(5 * PAGE, 0x100, 1);
    let addr = (2 << 30) + PAGE;
    paged.start(WRITE, (addr, everything), (memory + 5 * PAGE, local), 0x100);
    assert_eq!(paged.event().1[..6], [0, everything, 0x100, 0x100, 0, addr as u32]);
    let part = Key::new(paged.world.pd, MTT).range(2 << 30, 1 << 30, 12).free(4).create(&paged.world.rig);
    // As Linux enables it: valid, and its first pages are there.
    paged.world.swap();
    let enable = umr(INLINE | OFFSET, 4, 0x2000_0000).list(&[0, memory | 3, 0, 0, 0, 0, 0, 0]);
    assert_eq!(paged.world.post(UMR, part, &enable.0), DONE);
    paged.world.swap();
    paged
        .update(everything, &[nothing, nothing, klm(part, 2 << 30, 0), nothing].concat().try_into().unwrap());
    paged.resume(REMOTE_WRITE, peer, peer, 0).ok();
    assert_eq!(paged.completion(), DONE);
    assert_eq!(paged.world.bytes(0, 0x100), sent);
    paged.no_event();
    paged.world.rig.model.assert_clean();
}

/// Nobody listens for page faults: the page is simply not mapped.
#[test]
fn without_a_driver_that_pages_it_is_an_error() {
    let mut world = World::new();
    let key = Key::new(world.pd, MTT).range(START, PAGE, 12).list(&[world.memory]).create(&world.rig);
    assert_eq!(world.write((START, key), (world.memory, world.local), 8), REMOTE_ACCESS_ERR);
    assert_eq!(rules(&world.rig), [Rule::DmaUnmapInUse]);
}

/// A queue pair that is destroyed waits for nothing.
#[test]
fn who_is_destroyed_waits_no_more() {
    let mut paged = Paged::new();
    let key = paged.key();
    let (memory, qpn) = (paged.world.memory, paged.world.qp.number);
    paged.start(WRITE, (memory, 0), (START + PAGE, key), 8);
    assert_eq!(paged.event().1[3], qpn);
    paged.world.rig.run(Raw::cmd(0x501, 16).set(8, 23, 0, qpn)).ok();
    let refused = paged.resume(REQ_SEND_OR_WRITE, qpn, qpn, 0);
    assert_eq!(refused.syndrome(), Refusal::NO_SUCH_FAULT.syndrome);
    paged.world.rig.model.assert_clean();
}
