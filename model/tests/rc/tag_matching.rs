//! Messages that go by tags (`tag_matching`): expected, unexpected, masked, removed.

mod rendezvous;

use super::{
    world::{BASE, KEY, PAGE_BYTES, PD, Setup, Srq, World, qpn},
    wqe::Wr,
};
use mlx5_direct::{
    cqe::{CqeApp, CqeFormat, CqeOpcode, CqeSyndrome, TmAppOp, TmCqe, TmListCqe, TmOutcome},
    mlx5::ids::{Cqn, Lkey, UserIndex},
    wqe::{CtrlSeg, DataSeg, Rvh, SendOpcode, TmOp, TmSeg, Tmh, TmhOp},
};
use mlx5_model::exec::{QpConfig, QpEvent, QpState, Rule, SharedQueue, TagList, Wake};
use std::collections::VecDeque;

const XRQN: u32 = 0x30;
const XRQ_CQN: Cqn = Cqn::new(0x21);
const XRQ_USER: UserIndex = UserIndex::new(0x99);
/// QP of node 1 by which the list is changed; QP 0 receives, and is lent to the XRQ.
const COMMAND: u32 = 1;
/// Memory of WQEs of the queue, and of tags.
const UNTAGGED: usize = 0x8000;
const TAGGED: usize = 0x2_0000;
/// Memory of the sender that a rendezvous tells of.
const FAR: usize = 0x4000;
const LOG_ENTRIES: u8 = 3;

struct Tags {
    world: World,
    n_unexpected: u16,
}

/// Node 0 sends to node 1, whose QP receives from a queue that matches tags and has 8 WQEs posted.
fn tags() -> Tags {
    tags_with(|config| config)
}

fn tags_with(change: impl Fn(QpConfig) -> QpConfig) -> Tags {
    let setup = Setup::default();
    let mut world = World::empty(&setup);
    world.connect(&setup, (0, 0), (1, 0));
    world.connect(&setup, (1, COMMAND), (1, COMMAND));
    let queue = SharedQueue { number: XRQN, pd: PD, cqn: XRQ_CQN, user_index: XRQ_USER, tag_matching: true };
    let side = &mut world.nodes[1].side;
    side.srqs.insert(XRQN, Srq { queue, xrcd: 0, wqes: VecDeque::new() });
    side.tags.insert(XRQN, TagList::new(LOG_ENTRIES));
    for k in [0, COMMAND] {
        let node = &mut world.nodes[1];
        let qp = node.qps.get_mut(&qpn(1, k)).unwrap();
        let config = QpConfig { shared: Some(queue), n_receive_wqes: 0, ..*qp.config() };
        let lent = QpConfig { rendezvous: true, ..config };
        qp.set_state(&mut node.side, QpState::Rts, if k == COMMAND { config } else { change(lent) });
    }
    for index in 0..8 {
        world.post_srq(1, XRQN, index, UNTAGGED + usize::from(index) * 0x1000, 4096);
    }
    for n in 0..16 {
        world.post_recv(0, 0x6000 + n * 64, 64);
    }
    Tags { world, n_unexpected: 0 }
}

impl Tags {
    /// Posts a list operation, with memory if it is an APPEND.
    fn operate(&mut self, segment: TmSeg, memory: Option<DataSeg>) {
        let number = qpn(1, COMMAND);
        self.world.place(1, COMMAND, |index| {
            let mut wqe = vec![0; 16];
            wqe.extend(segment.to_bytes());
            wqe.extend(memory.iter().flat_map(|data| data.to_bytes()));
            let ctrl = CtrlSeg::new()
                .with_opcode(SendOpcode::TAG_MATCHING)
                .with_wqe_index(index)
                .with_qpn(number)
                .with_ds((wqe.len() / 16) as u8);
            wqe[..16].copy_from_slice(&ctrl.to_bytes());
            wqe
        });
        self.world.ring(1, COMMAND);
        self.world.settle();
    }

    fn segment(&self, op: TmOp, index: u16) -> TmSeg {
        TmSeg::new()
            .with_op(op)
            .with_index(index)
            .with_cqe_req(true)
            .with_sw_cnt_valid(true)
            .with_sw_cnt(self.n_unexpected)
    }

    fn append_at(&mut self, next: u16, tag: u64, mask: u64, offset: usize, len: u32) {
        let segment = self.segment(TmOp::APPEND, next).with_append_tag(tag).with_append_mask(mask);
        let data = match len {
            0 => DataSeg::terminator(),
            _ => {
                DataSeg::new().with_byte_count(len).with_lkey(Lkey::new(KEY)).with_addr(BASE + offset as u64)
            }
        };
        self.operate(segment, Some(data));
    }

    /// Adds a tag as entry `index`, with 4096 bytes of memory that are its own, and takes the CQE.
    fn append(&mut self, index: u16, tag: u64, mask: u64) -> TmOutcome {
        self.append_at(index + 1, tag, mask, memory_of(index), 4096);
        self.outcome(TmAppOp::APPEND)
    }

    /// What came of the last operation.
    fn outcome(&mut self, app_op: TmAppOp) -> TmOutcome {
        let [cqe] = self.cqes()[..] else { panic!("one CQE") };
        assert_eq!((cqe.opcode(), cqe.app_op()), (CqeOpcode::NO_PACKET, app_op));
        assert_eq!(cqe.qpn(), qpn(1, COMMAND));
        TmListCqe::from_bytes(cqe.to_bytes()).outcome()
    }

    /// Sends a message with a header and `data` behind it.
    fn send(&mut self, header: Tmh, data: &[u8]) {
        let message = [&header.to_bytes()[..], data].concat();
        let len = message.len();
        self.world.nodes[0].side.memory[..len].copy_from_slice(&message);
        self.world.post(0, &Wr::new(SendOpcode::SEND).local(0, len as u32));
        self.world.settle();
    }

    fn eager(&mut self, tag: u64, data: &[u8]) {
        self.send(header(TmhOp::EAGER, tag), data);
    }

    /// Tells of `len` bytes at the sender.
    fn rendezvous(&mut self, tag: u64, rkey: u32, len: u32) {
        let data = Rvh::new().with_va(BASE + FAR as u64).with_rkey(rkey).with_len_bytes(len);
        self.send(header(TmhOp::RNDV, tag), &data.to_bytes());
    }

    /// CQEs of the XRQ so far, taken. All are its own, and of tag matching.
    fn cqes(&mut self) -> Vec<TmCqe> {
        let side = &mut self.world.nodes[1].side;
        let all = std::mem::take(&mut side.cqes);
        all.iter()
            .map(|(cqn, cqe, _)| {
                let cqe = TmCqe::from_bytes(cqe.bytes);
                assert_eq!((*cqn, cqe.srqn_or_user_index()), (XRQ_CQN, XRQ_USER));
                assert_eq!(cqe.app(), CqeApp::TAG_MATCHING);
                cqe
            })
            .collect()
    }

    /// The same in short: what happened, to which entry or WQE, and how long the message was.
    fn happened(&mut self) -> Vec<(TmAppOp, u16, u32)> {
        let of = |cqe: &TmCqe| match cqe.app_op() {
            TmAppOp::UNEXPECTED | TmAppOp::NO_TAG => cqe.wqe_counter(),
            _ => cqe.app_info(),
        };
        self.cqes().iter().map(|cqe| (cqe.app_op(), of(cqe), cqe.byte_cnt())).collect()
    }

    fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        self.world.nodes[1].side.bytes(offset, len).to_vec()
    }

    fn rules(&self) -> Vec<Rule> {
        self.world.nodes[1].side.violations.iter().map(|(rule, _)| *rule).collect()
    }
}

fn memory_of(index: u16) -> usize {
    TAGGED + usize::from(index) * 0x1000
}

fn header(opcode: TmhOp, tag: u64) -> Tmh {
    Tmh::new().with_opcode(opcode).with_app_ctx(0xa11).with_tag(tag)
}

#[test]
fn i4_tag_matching_a_tag_takes_its_message_without_the_header() {
    let mut tags = tags();
    assert_eq!(tags.append(0, 5, !0).hw_phase_cnt(), 0);
    tags.eager(5, b"to the tag");
    let [cqe] = tags.cqes()[..] else { panic!("one CQE") };
    assert_eq!(
        (cqe.opcode(), cqe.app_op(), cqe.app_info()),
        (CqeOpcode::RESP_SEND, TmAppOp::CONSUMED_MSG, 0)
    );
    assert_eq!((cqe.tmh(), cqe.byte_cnt(), cqe.qpn()), (header(TmhOp::EAGER, 5), 10, qpn(1, 0)));
    assert_eq!(tags.bytes(memory_of(0), 11), b"to the tag\0");
    assert_eq!(tags.world.nodes[1].side.srqs[&XRQN].wqes.len(), 8, "no WQE was taken");
    tags.world.assert_clean();
}

#[test]
fn a_message_takes_the_first_tag_that_fits_under_its_mask() {
    let mut tags = tags();
    for (index, tag, mask) in [(0, 0x1234, !0), (1, 0x0100, 0xff00), (2, 0x0134, 0xffff), (3, 0, 0)] {
        tags.append(index, tag, mask);
    }
    for tag in [0x0134, 0x0134, 0xffff, 0x1234] {
        tags.eager(tag, b"m");
    }
    let took: Vec<_> = tags.happened().iter().map(|(_, index, _)| *index).collect();
    assert_eq!(took, [1, 2, 3, 0], "in the order in which they were added");
    tags.world.assert_clean();
}

#[test]
fn what_fits_no_tag_is_unexpected_and_whole() {
    let mut tags = tags();
    tags.append(0, 5, !0);
    tags.eager(6, b"to the queue");
    let [cqe] = tags.cqes()[..] else { panic!("one CQE") };
    assert_eq!((cqe.app_op(), cqe.wqe_counter(), cqe.byte_cnt()), (TmAppOp::UNEXPECTED, 0, 28));
    assert_eq!(cqe.tmh().tag(), 0, "the header is with the message");
    assert_eq!(tags.bytes(UNTAGGED, 16), header(TmhOp::EAGER, 6).to_bytes());
    assert_eq!(tags.bytes(UNTAGGED + 16, 12), b"to the queue");
    tags.world.assert_clean();
}

#[test]
fn messages_without_a_tag_are_not_counted() {
    let mut tags = tags();
    tags.append(0, 0, 0);
    tags.send(header(TmhOp::NO_TAG, 0), b"x");
    tags.send(header(TmhOp::FIN, 0), b"");
    assert_eq!(tags.happened(), [(TmAppOp::NO_TAG, 0, 17), (TmAppOp::NO_TAG, 1, 16)]);
    assert_eq!(tags.append(1, 0, 0).hw_phase_cnt(), 0);
    tags.eager(9, b"y");
    assert_eq!(tags.happened(), [(TmAppOp::CONSUMED_MSG, 0, 1)]);
    tags.world.assert_clean();
}

#[test]
fn tags_added_in_ignorance_match_only_when_software_knows() {
    let mut tags = tags();
    tags.append(0, 1, !0);
    tags.eager(2, b"unexpected");
    assert_eq!(tags.happened(), [(TmAppOp::UNEXPECTED, 0, 26)]);
    // Software has not seen it, and adds the tag that it would have taken.
    assert_eq!(tags.append(1, 2, !0).hw_phase_cnt(), 1);
    tags.eager(2, b"again");
    assert_eq!(tags.happened(), [(TmAppOp::UNEXPECTED, 1, 21)]);
    tags.eager(1, b"older tags go on");
    assert_eq!(tags.happened(), [(TmAppOp::CONSUMED_MSG, 0, 16)]);
    // One of the two is known.
    tags.n_unexpected = 1;
    tags.operate(tags.segment(TmOp::NOP, 0), None);
    assert_eq!(tags.outcome(TmAppOp::NOOP).hw_phase_cnt(), 2);
    tags.eager(2, b"and again");
    assert_eq!(tags.happened(), [(TmAppOp::UNEXPECTED, 2, 25)]);
    tags.n_unexpected = 3;
    tags.operate(tags.segment(TmOp::NOP, 0), None);
    tags.outcome(TmAppOp::NOOP);
    tags.eager(2, b"at last");
    assert_eq!(tags.happened(), [(TmAppOp::CONSUMED_MSG, 1, 7)]);
    tags.world.assert_clean();
}

#[test]
fn the_count_of_unexpected_messages_wraps() {
    let mut list = TagList::new(LOG_ENTRIES);
    let know = |n| TmSeg::new().with_op(TmOp::NOP).with_sw_cnt_valid(true).with_sw_cnt(n);
    for n in 0..0x1_0002_u32 {
        list.count_unexpected();
        if n % 0x4000 == 0x3fff {
            list.apply(&know(list.n_unexpected()), Default::default()).unwrap();
        }
    }
    assert_eq!(list.n_unexpected(), 2);
    let append = TmSeg::new().with_op(TmOp::APPEND).with_index(1);
    list.apply(&append, Default::default()).unwrap();
    assert_eq!(list.take(0), None, "65536 are known, and 65538 came");
    assert_eq!(list.apply(&know(3), Default::default()).unwrap_err().0, Rule::TagCount);
    list.apply(&know(2), Default::default()).unwrap();
    assert_eq!(list.take(0).map(|tag| tag.index), Some(0));
}

#[test]
fn a_tag_is_removed_unless_a_message_was_faster() {
    let mut tags = tags();
    tags.append(0, 1, !0);
    tags.append(1, 2, !0);
    tags.operate(tags.segment(TmOp::REMOVE, 0), None);
    assert!(tags.outcome(TmAppOp::REMOVE).success());
    tags.eager(1, b"too late");
    assert_eq!(tags.happened(), [(TmAppOp::UNEXPECTED, 0, 24)]);
    tags.n_unexpected = 1;
    tags.eager(2, b"in time");
    assert_eq!(tags.happened(), [(TmAppOp::CONSUMED_MSG, 1, 7)]);
    tags.operate(tags.segment(TmOp::REMOVE, 1), None);
    assert!(!tags.outcome(TmAppOp::REMOVE).success());
    tags.world.assert_clean();
}

#[test]
fn entries_come_round_and_unsignaled_operations_say_nothing() {
    let mut tags = tags();
    for n in 0..100u16 {
        let segment = tags.segment(TmOp::APPEND, (n + 1) % 8).with_cqe_req(false).with_append_tag(n.into());
        let segment = segment.with_append_mask(!0);
        let data = DataSeg::new().with_byte_count(8).with_lkey(Lkey::new(KEY)).with_addr(BASE);
        tags.operate(segment, Some(data));
        tags.eager(n.into(), &n.to_be_bytes());
        assert_eq!(tags.happened(), [(TmAppOp::CONSUMED_MSG, n % 8, 2)]);
        // A signaled one in between, so that slots of the ring are free again.
        tags.operate(tags.segment(TmOp::NOP, 0), None);
        tags.outcome(TmAppOp::NOOP);
    }
    tags.world.assert_clean();
}

#[test]
fn a_long_message_is_told_of_when_it_matches_and_when_it_is_there() {
    let mut tags = tags();
    tags.append(0, 7, !0);
    let data: Vec<u8> = (0..3000u32).map(|n| (n * 7) as u8).collect();
    tags.eager(7, &data);
    let cqes = tags.cqes();
    let brief: Vec<_> = cqes.iter().map(|c| (c.opcode(), c.app_op(), c.app_info(), c.byte_cnt())).collect();
    assert_eq!(
        brief,
        [(CqeOpcode::NO_PACKET, TmAppOp::CONSUMED, 0, 0), (CqeOpcode::RESP_SEND, TmAppOp::EXPECTED, 0, 3000)]
    );
    assert_eq!((cqes[0].tmh().tag(), cqes[1].tmh().tag()), (7, 0));
    assert_eq!(tags.bytes(memory_of(0), 3000), data);
    tags.world.assert_clean();
}

#[test]
fn a_message_that_is_too_long_for_its_tag_ends_the_connection() {
    let mut tags = tags();
    tags.append_at(1, 7, !0, TAGGED, 9);
    tags.outcome(TmAppOp::APPEND);
    tags.eager(7, b"ten bytes!");
    assert_eq!(tags.happened(), [(TmAppOp::MSG_COMPLETION_CANCELED, 0, 0)]);
    assert_eq!(tags.bytes(TAGGED, 10), [0; 10]);
    assert_eq!(tags.world.take_cqes(0)[0].syndrome, CqeSyndrome::REMOTE_INVAL_REQ_ERR);
    assert_eq!(tags.world.nodes[1].side.events, [(qpn(1, 0), QpEvent::LastWqeReached)]);
    // The entry is free again, and the list is of use to others.
    tags.append_at(0, 8, !0, TAGGED, 9);
    tags.outcome(TmAppOp::APPEND);
    tags.world.assert_clean();
}

#[test]
fn what_has_no_header_or_an_unknown_one_is_refused() {
    let rendezvous = header(TmhOp::RNDV, 1).to_bytes();
    let long_rendezvous = [&rendezvous[..], &[0; 2000]].concat();
    for message in [&[3; 15][..], &header(TmhOp(4), 1).to_bytes(), &[], &rendezvous, &long_rendezvous] {
        let mut tags = tags();
        tags.append(0, 0, 0);
        let len = message.len();
        tags.world.nodes[0].side.memory[..len].copy_from_slice(message);
        tags.world.post(0, &Wr::new(SendOpcode::SEND).local(0, len as u32));
        tags.world.settle();
        assert_eq!(tags.happened(), []);
        assert_eq!(tags.world.take_cqes(0)[0].syndrome, CqeSyndrome::REMOTE_INVAL_REQ_ERR);
    }
}

#[test]
fn an_unexpected_message_waits_for_a_wqe_and_is_counted_once() {
    let mut tags = tags();
    tags.world.nodes[1].side.srqs.get_mut(&XRQN).unwrap().wqes.clear();
    tags.world.nodes[0].side.memory[..16].copy_from_slice(&header(TmhOp::EAGER, 3).to_bytes());
    tags.world.post(0, &Wr::new(SendOpcode::SEND).local(0, 16));
    for _ in 0..20 {
        tags.world.turn();
    }
    assert_eq!(tags.happened(), []);
    tags.world.post_srq(1, XRQN, 4, UNTAGGED, 64);
    tags.world.settle();
    assert_eq!(tags.happened(), [(TmAppOp::UNEXPECTED, 4, 16)]);
    assert_eq!(tags.append(0, 1, 1).hw_phase_cnt(), 1);
    tags.world.assert_clean();
}

#[test]
fn a_tag_on_pages_that_are_away_cancels() {
    let mut tags = tags();
    tags.append(0, 7, !0);
    tags.world.nodes[1].side.absent.insert(memory_of(0) / PAGE_BYTES * PAGE_BYTES);
    tags.eager(7, b"nowhere");
    assert_eq!(tags.happened(), [(TmAppOp::MSG_COMPLETION_CANCELED, 0, 0)]);
    assert_eq!(tags.world.nodes[1].side.faults, [], "the driver would look for a WQE");
}

#[test]
fn short_data_of_a_tag_go_before_the_cqe_and_never_into_it() {
    for (cs_res_bytes, format) in [(32, CqeFormat::NO_INLINE_DATA), (64, CqeFormat::INLINE_DATA64_SEG)] {
        let mut tags = tags_with(|config| QpConfig { cs_res_bytes, ..config });
        tags.append(0, 7, !0);
        tags.world.nodes[1].side.cqes.clear();
        tags.eager(7, b"short");
        let (_, cqe, wake) = tags.world.nodes[1].side.cqes[0];
        assert_eq!((TmCqe::from_bytes(cqe.bytes).format(), wake), (format, Wake::Any));
        assert_eq!(TmCqe::from_bytes(cqe.bytes).tmh(), header(TmhOp::EAGER, 7));
        match cqe.before {
            Some(before) => {
                assert_eq!((&before[..5], tags.bytes(memory_of(0), 5)), (&b"short"[..], vec![0; 5]))
            }
            None => assert_eq!(tags.bytes(memory_of(0), 5), b"short"),
        }
    }
}

#[test]
fn a_queue_pair_in_error_cancels_what_its_tags_wait_for() {
    let mut tags = tags();
    tags.append(0, 7, !0);
    tags.world.nodes[0].side.memory[..16].copy_from_slice(&header(TmhOp::RNDV, 7).to_bytes());
    let data = Rvh::new().with_va(BASE).with_rkey(KEY).with_len_bytes(64).to_bytes();
    tags.world.nodes[0].side.memory[16..32].copy_from_slice(&data);
    tags.world.post(0, &Wr::new(SendOpcode::SEND).local(0, 32));
    // Two turns: the message is there, and the READ that it leads to has just been sent.
    tags.world.turn();
    tags.world.turn();
    let node = &mut tags.world.nodes[1];
    let qp = node.qps.get_mut(&qpn(1, 0)).unwrap();
    let config = *qp.config();
    qp.set_state(&mut node.side, QpState::Err, config);
    let happened = tags.happened();
    assert_eq!(happened, [(TmAppOp::CONSUMED, 0, 0), (TmAppOp::MSG_COMPLETION_CANCELED, 0, 0)]);
    tags.world.assert_clean();
}

/// Breaks a rule by one operation on a list with one tag, in entry 0, and one message taken that is not done.
#[test]
fn operations_on_entries_that_are_not_free_or_not_there_break_rules() {
    let data = Some(DataSeg::terminator());
    let cases: [(TmSeg, Option<DataSeg>, Rule); 7] = [
        (TmSeg::new().with_op(TmOp::APPEND).with_index(8), data, Rule::TagList),
        (TmSeg::new().with_op(TmOp::APPEND).with_index(0), data, Rule::TagList),
        (TmSeg::new().with_op(TmOp::APPEND).with_index(1), data, Rule::TagList),
        (TmSeg::new().with_op(TmOp::REMOVE).with_index(8), None, Rule::TagList),
        (TmSeg::new().with_op(TmOp(3)), None, Rule::TagList),
        (TmSeg::new().with_sw_cnt_valid(true).with_sw_cnt(1), None, Rule::TagCount),
        (TmSeg::new().with_op(TmOp::APPEND).with_index(2), None, Rule::DsTooSmall),
    ];
    for (segment, memory, rule) in cases {
        let mut tags = tags();
        tags.append(0, 5, !0);
        tags.operate(segment, memory);
        assert_eq!(tags.rules(), [rule], "{segment:?}");
        let cqes = tags.world.take_cqes(1);
        assert_eq!(cqes[0].syndrome, CqeSyndrome::LOCAL_QP_OP_ERR);
        tags.world.nodes[1].side.violations.clear();
        tags.eager(5, b"the list is as it was");
        assert_eq!(tags.happened()[0].0, TmAppOp::CONSUMED_MSG);
    }
}

#[test]
fn only_a_queue_pair_of_the_xrq_changes_its_list() {
    let mut tags = tags();
    let wqe = |index: u16| {
        let ctrl = CtrlSeg::new().with_opcode(SendOpcode::TAG_MATCHING).with_qpn(qpn(0, 0)).with_ds(3);
        let mut wqe = ctrl.with_wqe_index(index).to_bytes().to_vec();
        wqe.extend(TmSeg::new().to_bytes());
        wqe
    };
    tags.world.place(0, 0, wqe);
    tags.world.ring(0, 0);
    tags.world.settle();
    assert_eq!(tags.world.nodes[0].side.violations[0].0, Rule::WqeOpcode);
}
