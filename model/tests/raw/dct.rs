//! DC targets as objects, and numbers that are reserved beside those of queue pairs.

use crate::{
    rig::{Cq, Qp, Raw, Rig, pages},
    rules,
    srq::create_rmp,
};
use mlx5_model::{Rule, fw::Refusal};

const DCT_DRAINED: u8 = 0x1c;
const DCT_KEY_VIOLATION: u8 = 0x1d;
const ACCESS_KEY: u64 = 0x0102_0304_0506_0708;
const ACTIVE: u32 = 0;
const DRAINED: u32 = 2;

struct Ready {
    rig: Rig,
    uar: u32,
    pd: u32,
    cq: Cq,
    srqn: u32,
    events: u64,
}

fn ready() -> Ready {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    let (uar, pd) = (rig.alloc_uar(), rig.alloc_pd());
    let (_, events) = rig.create_eq(uar, 6, 0, 1 << DCT_DRAINED | 1 << DCT_KEY_VIOLATION);
    let (eqn, _) = rig.create_eq(uar, 6, 0, 0);
    let cq = rig.create_cq(uar, 6, eqn);
    let (ring, record) = (rig.alloc(4096, 0), rig.alloc(8, 0));
    let srqn = create_rmp(&rig, pd, ring, record);
    Ready { rig, uar, pd, cq, srqn, events }
}

impl Ready {
    /// CREATE_DCT: path MTU 1024, port 1, all remote rights.
    fn input(&self) -> Raw {
        Raw::cmd(0x710, 128)
            .set(0x14, 23, 0, 0x77)
            .set(0x18, 23, 0, self.cq.number)
            .set(0x1c, 19, 17, 0b111)
            .set(0x24, 23, 0, self.srqn)
            .set(0x28, 23, 0, self.pd)
            .set64(0x30, ACCESS_KEY)
            .set(0x38, 26, 24, 3)
            .set(0x38, 23, 16, 1)
    }

    fn dct(&self, opcode: u16, dctn: u32) -> Raw {
        Raw::cmd(opcode, 16).set(8, 23, 0, dctn)
    }

    /// State, key and count of violations.
    fn query(&self, dctn: u32) -> (u32, u64, u32) {
        let answer = self.rig.exec(&self.dct(0x713, dctn), 128).ok();
        let key = u64::from(answer.dword(0x30)) << 32 | u64::from(answer.dword(0x34));
        (answer.dword(0x10) >> 24 & 0xf, key, answer.dword(0x40))
    }

    /// Type and DCT of an event.
    fn event(&self, n: u64) -> (u8, u32) {
        let eqe = self.rig.read(self.events + n * 64, 64);
        (eqe[1], u32::from_be_bytes(eqe[0x38..0x3c].try_into().unwrap()))
    }

    fn dci(&mut self) -> Qp {
        let (send, record) = (self.rig.alloc(4096, 0), self.rig.alloc(8, 0));
        let input = Raw::cmd(0x500, 272)
            .set(0x18, 23, 16, 5)
            .set(0x18 + 0x04, 23, 0, self.pd)
            .set(0x18 + 0x08, 14, 11, 4)
            .set(0x18 + 0x0c, 23, 0, self.uar)
            .set(0x18 + 0x7c, 23, 0, self.cq.number)
            .set(0x18 + 0x9c, 23, 0, self.cq.number)
            .set64(0x18 + 0xa0, record)
            .set(0x18 + 0xac, 26, 24, 1)
            .set(0x18 + 0xac, 23, 0, self.srqn)
            .list(&pages(send, 64 << 4));
        Qp { number: self.rig.run(input).ok().dword(8), send, record, log_sq: 4, pi: 0 }
    }
}

#[test]
fn a_target_is_drained_before_it_is_destroyed() {
    let ready = ready();
    let rig = &ready.rig;
    let dctn = rig.run(ready.input()).ok().dword(8);
    assert_eq!(ready.query(dctn), (ACTIVE, ACCESS_KEY, 0));
    assert_eq!(rig.run(ready.dct(0x711, dctn)).syndrome(), Refusal::DCT_STATE.syndrome);
    rig.run(ready.dct(0x712, dctn)).ok();
    assert_eq!(ready.event(0), (DCT_DRAINED, dctn));
    assert_eq!(ready.query(dctn).0, DRAINED);
    assert_eq!(rig.run(ready.dct(0x712, dctn)).syndrome(), Refusal::DCT_STATE.syndrome);
    assert_eq!(rules(rig), []);
    // Its queue and domain are held until it is gone.
    assert_eq!(rig.run(ready.dct(0x90e, ready.srqn)).syndrome(), Refusal::OBJECT_IN_USE.syndrome);
    assert_eq!(rules(rig), [Rule::ObjectInUse]);
    rig.run(ready.dct(0x711, dctn)).ok();
    rig.run(ready.dct(0x90e, ready.srqn)).ok();
    for opcode in [0x711, 0x712, 0x713, 0x714] {
        assert_eq!(rig.exec(&ready.dct(opcode, dctn), 128).syndrome(), Refusal::NO_SUCH_OBJECT.syndrome);
    }
}

#[test]
fn what_a_target_cannot_be() {
    let ready = ready();
    for (input, refusal) in [
        (ready.input().set(0x38, 26, 24, 7), Refusal::QP_MTU),
        (ready.input().set(0x38, 23, 16, 2), Refusal::QP_PORT),
        (ready.input().set(0x3c, 23, 16, 200), Refusal::QP_GID_INDEX),
        (ready.input().set(0x18, 23, 0, 0x1_2345), Refusal::NO_SUCH_CQ),
        (ready.input().set(0x24, 23, 0, 0x1_2345), Refusal::QP_SRQ),
        (ready.input().set(0x28, 23, 0, 0x1_2345), Refusal::NO_SUCH_PD),
        (ready.input().set(0x1c, 31, 24, 99), Refusal::NO_SUCH_COUNTER),
        // 32 bytes would stand where the CQE says who sent them; 64 have no room in slots of 64.
        (ready.input().set(0x20, 23, 16, 1), Refusal::SCATTER_TO_CQE),
        (ready.input().set(0x20, 23, 16, 2), Refusal::SCATTER_TO_CQE),
    ] {
        assert_eq!(ready.rig.run(input).syndrome(), refusal.syndrome, "{refusal:?}");
    }
    rules(&ready.rig);
    // Nothing of these is left.
    ready.rig.run(ready.dct(0x90e, ready.srqn)).ok();
}

#[test]
fn a_key_violation_is_an_event_once_for_each_arming() {
    let mut ready = ready();
    let (mac, gid) = (ready.rig.mac(), ready.rig.set_gid());
    let dctn = ready.rig.run(ready.input()).ok().dword(8);
    for (n, armed) in [(1, false), (2, true), (3, false)] {
        if armed {
            ready.rig.run(ready.dct(0x714, dctn)).ok();
        }
        let mut dci = ready.dci();
        ready.rig.connect(&dci, 0, mac, gid);
        let av = Raw::new(48)
            .set64(0, ACCESS_KEY + 1)
            .set(8, 31, 31, 1)
            .set(8, 23, 0, dctn)
            .put(0x14, &mac)
            .set(0x18, 7, 0, 64)
            .put(0x20, &gid);
        let doorbell = dci.long_wqe(&ready.rig, 0x0a, 0, &av.0);
        ready.rig.map_uar(ready.uar).ring(doorbell);
        while ready.rig.model.step() {}
        let cqe = ready.cq.wait(&ready.rig);
        assert_eq!((cqe[63] >> 4, cqe[55]), (0xd, 0x13), "a remote access error");
        assert_eq!(ready.query(dctn), (ACTIVE, ACCESS_KEY, n));
        assert_eq!(ready.event(0) == (DCT_KEY_VIOLATION, dctn), n > 1, "{n}");
    }
    assert_ne!(ready.event(1).0, DCT_KEY_VIOLATION);
    assert_eq!(rules(&ready.rig), []);
}

#[test]
fn streams_are_within_the_capability_and_reset_in_error_only() {
    let mut ready = ready();
    let (mac, gid) = (ready.rig.mac(), ready.rig.set_gid());
    let dci = ready.dci();
    ready.rig.connect(&dci, 0, mac, gid);
    let reset = |number: u32, extended: u32| {
        Raw::cmd(0x505, 464)
            .set(8, 31, 31, extended)
            .set(8, 23, 0, number)
            .set64(0x108, 1)
            .set(0x110, 15, 0, 3)
    };
    assert_eq!(ready.rig.run(reset(dci.number, 1)).syndrome(), Refusal::DCI_STREAM.syndrome);
    assert_eq!(ready.rig.run(reset(dci.number, 0)).syndrome(), Refusal::QP_OPT_PARAM.syndrome);
}

#[test]
fn an_initiator_that_was_reset_begins_anew_whatever_its_record_says() {
    let mut ready = ready();
    let (mac, gid) = (ready.rig.mac(), ready.rig.set_gid());
    let page = ready.rig.map_uar(ready.uar);
    let mut dci = ready.dci();
    for posted in [3, 2, 0] {
        ready.rig.connect(&dci, 0, mac, gid);
        dci.pi = 0;
        for n in 0..posted {
            page.ring(dci.nop(&ready.rig));
            let cqe = ready.cq.wait(&ready.rig);
            assert_eq!((cqe[63] >> 4, u16::from_be_bytes([cqe[60], cqe[61]])), (0, n));
        }
        ready.rig.run(Raw::cmd(0x50a, 16).set(8, 23, 0, dci.number)).ok();
    }
    assert_eq!(rules(&ready.rig), []);
}

#[test]
fn the_source_port_is_one_of_a_connection_within_the_capabilities() {
    let mut ready = ready();
    let (mac, gid) = (ready.rig.mac(), ready.rig.set_gid());
    let qp = ready.rig.create_qp(ready.pd, ready.uar, &ready.cq, 4);
    let dci = ready.dci();
    for qp in [&qp, &dci] {
        ready.rig.connect(qp, 0, mac, gid);
    }
    let port = |number: u32, port: u32| {
        Raw::cmd(0x505, 272).set(8, 23, 0, number).set(0x18 + 0x18 + 0x20, 15, 0, port).set64(0x108, 4)
    };
    ready.rig.run(port(qp.number, 55555)).ok();
    let answer = ready.rig.exec(&Raw::cmd(0x50b, 16).set(8, 23, 0, qp.number), 272).ok();
    assert_eq!(answer.dword(0x18 + 0x18 + 0x20) & 0xffff, 55555);
    for input in [port(qp.number, 0xbfff), port(dci.number, 55555)] {
        assert_eq!(ready.rig.run(input).syndrome(), Refusal::QP_UDP_PORT.syndrome);
    }
}

#[test]
fn an_address_is_mapped_to_a_queue_pair_that_exists() {
    let mut ready = ready();
    let qp = ready.rig.create_qp(ready.pd, ready.uar, &ready.cq, 4);
    let object = |opcode: u16, id: u32, qpn: u32| {
        Raw::cmd(opcode, 80).set(4, 15, 0, 0x3a).set(8, 31, 0, id).set(0x1c, 31, 0, qpn)
    };
    let id = ready.rig.run(object(0xa00, 0, qp.number)).ok().dword(8);
    ready.rig.run(object(0xa03, id, 0)).ok();
    for (input, refusal) in [
        (object(0xa03, id, 0), Refusal::NO_SUCH_OBJECT),
        (object(0xa00, 0, 0x1234), Refusal::NO_SUCH_OBJECT),
        (object(0xa00, 0, qp.number).set(0x3c, 27, 20, 200), Refusal::QP_GID_INDEX),
    ] {
        assert_eq!(ready.rig.run(input).syndrome(), refusal.syndrome, "{refusal:?}");
    }
}

#[test]
fn reserved_numbers_are_nobody_elses() {
    let ready = ready();
    let object =
        |opcode: u16, id: u32| Raw::cmd(opcode, 32).set(4, 15, 0, 0x2c).set(8, 31, 0, id).set(0xc, 28, 24, 5);
    let first = ready.rig.run(object(0xa00, 0)).ok().dword(8);
    let second = ready.rig.run(object(0xa00, 0)).ok().dword(8);
    assert!(first.is_multiple_of(32) && first.abs_diff(second) >= 32 && first < 1 << 24);
    assert!(first > ready.rig.run(ready.input()).ok().dword(8) && first > 1 << 18);
    ready.rig.run(object(0xa03, first)).ok();
    for (input, refusal) in [
        (object(0xa03, first), Refusal::NO_SUCH_OBJECT),
        (object(0xa03, second + 1), Refusal::NO_SUCH_OBJECT),
        (object(0xa00, 0).set(4, 15, 0, 0xd), Refusal::OBJECT_TYPE),
        (object(0xa03, second).set(4, 15, 0, 0xd), Refusal::OBJECT_TYPE),
        (object(0xa00, 0).set(0xc, 28, 24, 6), Refusal::OBJECT_RANGE),
    ] {
        assert_eq!(ready.rig.run(input).syndrome(), refusal.syndrome, "{refusal:?}");
    }
}
