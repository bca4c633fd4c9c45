//! XRQs: commands, and the list of tags as WQEs change it.

use crate::{
    completions::create_mkey,
    rig::{Answer, Cq, Page, Qp, Raw, Rig, pages},
    rules,
};
use mlx5_direct::{
    cqe::{CqeOpcode, CqeSyndrome, ErrorCqe, TmAppOp, TmListCqe},
    wqe::{DataSeg, TmOp, TmSeg},
};
use mlx5_model::Rule;

const LOG_SIZE: u32 = 3;
const LOG_TAGS: u32 = 3;
const USER: u32 = 0x99;
const TAG_MATCHING: u8 = 0x28;
const SRQ_RQ_LIMIT: u8 = 0x14;

/// An XRQ of 8 WQEs and 8 tags, on InfiniBand, and a queue pair on it whose ring has 16 WQEBBs.
struct Ready {
    rig: Rig,
    page: Page,
    cq: Cq,
    qp: Qp,
    number: u32,
    record: u64,
    key: u32,
    memory: u64,
    events: u64,
}

fn create(cqn: u32, pd: u32, ring: u64, record: u64) -> Raw {
    Raw::cmd(0x717, 336)
        .set(0x10, 11, 8, 1)
        .set(0x10, 3, 0, 1)
        .set(0x14, 23, 0, USER)
        .set(0x18, 23, 0, cqn)
        .set(0x30, 31, 28, LOG_TAGS)
        .set(0x98, 23, 0, pd)
        .set64(0xa0, record)
        .set(0xb0, 19, 16, 5)
        .set(0xb0, 4, 0, LOG_SIZE)
        .list(&pages(ring, 32 << LOG_SIZE))
}

fn create_qp(rig: &mut Rig, pd: u32, uar: u32, cq: &Cq, xrqn: u32, service: u32) -> (Raw, Qp) {
    let (send, record) = (rig.alloc(4096, 0), rig.alloc(8, 0));
    let input = Raw::cmd(0x500, 272)
        .set(0x18, 23, 16, service)
        .set(0x18 + 0x04, 23, 0, pd)
        .set(0x18 + 0x08, 14, 11, 4)
        .set(0x18 + 0x0c, 23, 0, uar)
        .set(0x18 + 0x7c, 23, 0, cq.number)
        .set(0x18 + 0x9c, 23, 0, cq.number)
        .set64(0x18 + 0xa0, record)
        .set(0x18 + 0xac, 26, 24, 1)
        .set(0x18 + 0xac, 23, 0, xrqn)
        .list(&pages(send, 64 << 4));
    (input, Qp { number: 0, send, record, log_sq: 4, pi: 0 })
}

fn ready() -> Ready {
    let mut rig = Rig::new("drive=step,link=ib");
    rig.bring_up();
    let (uar, pd) = (rig.alloc_uar(), rig.alloc_pd());
    let (_, events) = rig.create_eq(uar, 6, 0, 1 << SRQ_RQ_LIMIT);
    let (eqn, _) = rig.create_eq(uar, 6, 0, 0);
    let cq = rig.create_cq(uar, 6, eqn);
    let (ring, record, memory) = (rig.alloc(32 << LOG_SIZE, 0), rig.alloc(8, 0), rig.alloc(4096, 0));
    let key = create_mkey(&rig, pd, memory, 4096);
    let number = rig.run(create(cq.number, pd, ring, record)).ok().dword(8);
    let (input, mut qp) = create_qp(&mut rig, pd, uar, &cq, number, 0);
    qp.number = rig.run(input).ok().dword(8);
    rig.connect(&qp, qp.number, [0; 6], [0; 16]);
    let page = rig.map_uar(uar);
    Ready { rig, page, cq, qp, number, record, key, memory, events }
}

impl Ready {
    /// Writes a list operation's WQE, and returns its doorbell.
    fn write(&mut self, segment: TmSeg) -> [u8; 8] {
        let mut rest = segment.to_bytes().to_vec();
        if segment.op() == TmOp::APPEND {
            let data = DataSeg::new()
                .with_byte_count(64)
                .with_lkey(mlx5_direct::mlx5::ids::Lkey::new(self.key))
                .with_addr(self.memory);
            rest.extend(data.to_bytes());
        }
        let slot = u64::from(self.qp.pi) % 16;
        let doorbell = self.qp.wqe(&self.rig, TAG_MATCHING, &rest);
        // The control segment asks for no completion: what the list has to say is in one of its own.
        self.rig.write(self.qp.send + slot * 64 + 8, &[0; 4]);
        doorbell
    }

    fn operate(&mut self, segment: TmSeg) {
        let doorbell = self.write(segment);
        self.qp.record(&self.rig);
        self.page.ring(doorbell);
        while self.rig.model.step() {}
    }

    fn query(&self) -> Answer {
        self.rig.exec(&Raw::cmd(0x719, 16).set(8, 23, 0, self.number), 336).ok()
    }

    /// Next entry, and both counts, as QUERY_XRQ has them.
    fn list(&self) -> (u32, u32) {
        let answer = self.query();
        (answer.dword(0x30) & 0xffff, answer.dword(0x34))
    }

    fn cqe(&mut self) -> TmListCqe {
        let bytes = self.cq.poll(&self.rig, true).expect("a CQE");
        TmListCqe::from_bytes(bytes[..64].try_into().unwrap())
    }

    fn destroy(&self) -> Answer {
        self.rig.run(Raw::cmd(0x718, 16).set(8, 23, 0, self.number))
    }

    fn destroy_qp(&self) {
        self.rig.run(Raw::cmd(0x501, 16).set(8, 23, 0, self.qp.number)).ok();
    }
}

fn append(next: u16) -> TmSeg {
    TmSeg::new().with_op(TmOp::APPEND).with_index(next).with_append_mask(!0).with_cqe_req(true)
}

#[test]
fn its_operations_complete_on_its_own_queue() {
    let mut ready = ready();
    ready.operate(append(3));
    let cqe = ready.cqe();
    assert_eq!((cqe.opcode(), cqe.app_op()), (CqeOpcode::NO_PACKET, TmAppOp::APPEND));
    assert_eq!((cqe.srqn_or_user_index().get(), cqe.wqe_counter()), (USER, 0));
    assert_eq!(cqe.qpn().get(), ready.qp.number);
    assert_eq!(ready.list(), (3, 0));
    for (index, success) in [(0, true), (0, false)] {
        ready.operate(TmSeg::new().with_op(TmOp::REMOVE).with_index(index).with_cqe_req(true));
        let cqe = ready.cqe();
        assert_eq!(cqe.app_op(), TmAppOp::REMOVE);
        assert_eq!(cqe.outcome().success(), success);
    }
    ready.destroy_qp();
    ready.destroy().ok();
    ready.rig.model.assert_clean();
}

#[test]
fn a_list_that_is_full_takes_no_more() {
    let mut ready = ready();
    for next in 1..8 {
        ready.operate(append(next));
        assert_eq!(ready.cqe().app_op(), TmAppOp::APPEND);
    }
    // One entry is always left, which Linux does not offer.
    ready.operate(append(0));
    let cqe = ErrorCqe::from_bytes(ready.cqe().to_bytes());
    assert_eq!((cqe.opcode(), cqe.syndrome()), (CqeOpcode::REQ_ERR, CqeSyndrome::LOCAL_QP_OP_ERR));
    assert_eq!(rules(&ready.rig), [Rule::TagListSound]);
}

#[test]
fn more_unexpected_messages_than_came_are_named() {
    let mut ready = ready();
    ready.operate(TmSeg::new().with_sw_cnt_valid(true).with_sw_cnt(0));
    ready.rig.model.assert_clean();
    ready.operate(TmSeg::new().with_sw_cnt_valid(true).with_sw_cnt(1));
    assert_eq!(rules(&ready.rig), [Rule::TagCountWithin]);
    assert_eq!(ready.list(), (0, 0));
}

#[test]
fn a_slot_is_free_when_its_operation_is_completed() {
    let mut ready = ready();
    // Two laps of the ring, every fourth one completed.
    for n in 0..32 {
        ready.operate(TmSeg::new().with_cqe_req(n % 4 == 3));
        if n % 4 == 3 {
            assert_eq!(ready.cqe().app_op(), TmAppOp::NOOP);
        }
    }
    ready.rig.model.assert_clean();
    for _ in 0..17 {
        ready.operate(TmSeg::new());
    }
    assert_eq!(rules(&ready.rig), [Rule::ProducerWithinRing], "nothing has said that a slot is free");
}

#[test]
fn a_slot_that_is_written_before_its_operation_is_completed_is_named() {
    let mut ready = ready();
    let doorbell = ready.write(TmSeg::new().with_cqe_req(true));
    ready.qp.record(&ready.rig);
    // Between the doorbell and the completion there is no other moment with a card that is stepped.
    ready.page.ring(doorbell);
    ready.rig.write(ready.qp.send + 16, &append(1).to_bytes());
    while ready.rig.model.step() {}
    let broken = rules(&ready.rig);
    assert!(broken.contains(&Rule::SlotReusedEarly), "{broken:?}");
}

#[test]
fn both_commands_arm_it() {
    let ready = ready();
    ready.rig.write(ready.record, &6u32.to_be_bytes());
    for (opcode, op_mod) in [(0x71a, 0), (0x703, 2)] {
        let arm = |number, limit| {
            let input =
                Raw::cmd(opcode, 16).set(4, 15, 0, op_mod).set(8, 23, 0, number).set(12, 15, 0, limit);
            ready.rig.run(input)
        };
        arm(ready.number, 5).ok();
        assert_eq!(ready.query().dword(0x94) & 0xffff, 5);
        assert_ne!(arm(ready.number, 8).status(), (0, 0), "no queue of 8 holds 8");
        assert_eq!(arm(0xbad, 1).syndrome(), 0x4d_0040);
        assert_eq!(rules(&ready.rig), [Rule::ObjectExists]);
        // More than there are: at once.
        arm(ready.number, 7).ok();
        assert_eq!(ready.query().dword(0x94) & 0xffff, 0);
    }
    let eqe = ready.rig.read(ready.events, 64);
    assert_eq!((eqe[1], eqe[0x3b]), (SRQ_RQ_LIMIT, ready.number as u8));
    let input = Raw::cmd(0x703, 16).set(4, 15, 0, 1).set(8, 23, 0, ready.number);
    assert_eq!(ready.rig.run(input).syndrome(), 0x4d_0002, "the other op_mod is of ISSI 0");
}

#[test]
fn it_goes_after_what_uses_it_and_its_completion_queue_after_it() {
    let ready = ready();
    assert_eq!(ready.destroy().syndrome(), 0x4d_0041);
    ready.destroy_qp();
    let destroy_cq = || ready.rig.run(Raw::cmd(0x401, 16).set(8, 23, 0, ready.cq.number));
    assert_eq!(destroy_cq().syndrome(), 0x4d_0041);
    // It is no RMP, and no XRC SRQ.
    for opcode in [0x90e, 0x706] {
        let input = Raw::cmd(opcode, 16).set(8, 23, 0, ready.number);
        assert_eq!(ready.rig.run(input).syndrome(), 0x4d_0040);
    }
    ready.destroy().ok();
    destroy_cq().ok();
}

#[test]
fn what_creation_refuses() {
    let mut ready = ready();
    let (pd, uar) = (ready.rig.alloc_pd(), ready.rig.alloc_uar());
    let ring = ready.rig.alloc(4096, 0);
    let good = create(ready.cq.number, pd, ring, ready.record);
    ready.rig.run(good.clone()).ok();
    for (bad, syndrome) in [
        (good.clone().set(0x10, 11, 8, 2), 0x4d_00a7),
        (good.clone().set(0x10, 3, 0, 2), 0x4d_00a7),
        (good.clone().set(0x30, 31, 28, 8), 0x4d_00a6),
        (good.clone().set(0x18, 23, 0, 0xbad), 0x4d_0046),
        (good.clone().set(0x98, 23, 0, 0xbad), 0x4d_0043),
    ] {
        assert_eq!(ready.rig.run(bad).syndrome(), syndrome);
    }
    let (rc, _) = create_qp(&mut ready.rig, pd, uar, &ready.cq, ready.number, 0);
    ready.rig.run(rc.clone()).ok();
    // UC is not served by tags.
    assert_eq!(ready.rig.run(rc.set(0x18, 23, 16, 1)).syndrome(), 0x4d_00a8);
}

#[test]
fn there_are_none_on_ethernet() {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    let (uar, pd) = (rig.alloc_uar(), rig.alloc_pd());
    let (eqn, _) = rig.create_eq(uar, 6, 0, 0);
    let cq = rig.create_cq(uar, 6, eqn);
    let (ring, record) = (rig.alloc(4096, 0), rig.alloc(8, 0));
    assert_eq!(rig.run(create(cq.number, pd, ring, record)).syndrome(), 0x4d_00a6);
    assert_eq!(rules(&rig), [Rule::WithinCapabilities]);
}
