//! Multicast groups: who is in, and who gets what.

use crate::{
    rig::{Cq, Qp, Raw, Rig, pages},
    rules,
};
use mlx5_model::{Rule, fw::Refusal};

const GROUP: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 230, 0, 0, 1];
pub(crate) const QKEY: u32 = 0x1234;
const LOG: u32 = 4;

/// A UD QP with one receive posted: 64 bytes at the address that is returned.
pub(crate) fn datagram_qp(
    rig: &mut Rig,
    pd: u32,
    uar: u32,
    cq: &Cq,
    key: u32,
    deaf_to_itself: u32,
) -> (Qp, u64) {
    let (rq_bytes, record, buffer) = (16 << LOG, rig.alloc(8, 0), rig.alloc(64, 0xee));
    let memory = rig.alloc(rq_bytes + (64 << LOG), 0);
    let input = Raw::cmd(0x500, 272)
        .set(0x18, 23, 16, 2)
        .set(0x18 + 0x04, 30, 30, deaf_to_itself)
        .set(0x18 + 0x04, 23, 0, pd)
        .set(0x18 + 0x08, 22, 19, LOG)
        .set(0x18 + 0x08, 14, 11, LOG)
        .set(0x18 + 0x0c, 23, 0, uar)
        .set(0x18 + 0x7c, 23, 0, cq.number)
        .set(0x18 + 0x9c, 23, 0, cq.number)
        .set64(0x18 + 0xa0, record)
        .list(&pages(memory, rq_bytes + (64 << LOG)));
    let number = rig.run(input).ok().dword(8);
    let qp = Qp { number, send: memory + rq_bytes, record, log_sq: LOG, pi: 0 };
    rig.modify(0x502, &qp, 0, &Raw::new(232).set(0x18 + 0x24, 23, 16, 1).set(0xa8, 31, 0, QKEY)).ok();
    rig.modify(0x503, &qp, 0, &Raw::new(232).set(0x08, 31, 29, 3).set(0x08, 28, 24, 12)).ok();
    rig.modify(0x504, &qp, 0, &Raw::new(232)).ok();
    rig.write(memory, &Raw::new(16).set(0, 31, 0, 64).set(4, 31, 0, key).set64(8, buffer).0);
    rig.write(record, &1u32.to_be_bytes());
    (qp, buffer)
}

fn member(opcode: u16, qpn: u32, gid: [u8; 16]) -> Raw {
    Raw::cmd(opcode, 32).set(8, 23, 0, qpn).put(0x10, &gid)
}

/// A card with UAR page, protection domain, CQ and a key to all of memory.
fn ready() -> (Rig, u32, u32, Cq, u32) {
    ready_on("")
}

pub(crate) fn ready_on(options: &str) -> (Rig, u32, u32, Cq, u32) {
    let mut rig = Rig::new(&format!("drive=step{options}"));
    rig.bring_up();
    let (uar, pd) = (rig.alloc_uar(), rig.alloc_pd());
    let (eqn, _) = rig.create_eq(uar, 6, 0, 0);
    let cq = rig.create_cq(uar, 4, eqn);
    rig.set_gid();
    let key = Raw::cmd(0x200, 272)
        .set(0x10, 11, 10, 3)
        .set(0x14, 31, 8, 0xff_ffff)
        .set(0x1c, 31, 31, 1)
        .set(0x1c, 23, 0, pd);
    let key = rig.run(key).ok().dword(8) << 8;
    (rig, uar, pd, cq, key)
}

#[test]
fn members_of_a_group_get_a_copy_each() {
    let (mut rig, uar, pd, mut cq, key) = ready();
    let (mut sender, own) = datagram_qp(&mut rig, pd, uar, &cq, key, 0);
    let (other, others) = datagram_qp(&mut rig, pd, uar, &cq, key, 0);
    let (outsider, outsiders) = datagram_qp(&mut rig, pd, uar, &cq, key, 0);
    for qpn in [sender.number, other.number, outsider.number] {
        rig.run(member(0x806, qpn, GROUP)).ok();
    }
    rig.run(member(0x807, outsider.number, GROUP)).ok();

    send_to_group(&rig, uar, &mut sender);
    let mut opcodes: Vec<u8> = (0..3).map(|_| cq.wait(&rig)[63] >> 4).collect();
    opcodes.sort_unstable();
    assert_eq!(opcodes, [0, 2, 2], "one send and two receives are done");
    assert!(cq.poll(&rig, true).is_none());
    assert_eq!(rig.read(own + 24, 16), GROUP, "the group is the destination in the header");
    assert_eq!(rig.read(others + 24, 16), GROUP);
    assert_eq!(rig.read(outsiders, 64), [0xee; 64]);

    // A queue pair that is gone is in no group, though its number comes back.
    rig.run(Raw::cmd(0x501, 16).set(8, 23, 0, other.number)).ok();
    assert_eq!(rig.run(member(0x807, other.number, GROUP)).syndrome(), Refusal::NO_SUCH_OBJECT.syndrome);
    assert_eq!(rules(&rig), [Rule::ObjectExists]);
}

/// An address vector and no data.
fn send_to_group(rig: &Rig, uar: u32, sender: &mut Qp) {
    let av = Raw::new(48)
        .set(0, 31, 0, QKEY)
        .set(8, 31, 31, 1)
        .set(8, 23, 0, 0xff_ffff)
        .put(0x14, &[1, 0, 0x5e, 0, 0, 1])
        .set(0x18, 7, 0, 64)
        .set(0x1c, 30, 30, 1)
        .put(0x20, &GROUP);
    let page = rig.map_uar(uar);
    let doorbell = sender.wqe(rig, 0x0a, &av.0);
    sender.record(rig);
    page.ring(doorbell);
    while rig.model.step() {}
}

#[test]
fn a_member_may_be_deaf_to_itself_and_not_to_others() {
    let (mut rig, uar, pd, mut cq, key) = ready();
    let (mut deaf, own) = datagram_qp(&mut rig, pd, uar, &cq, key, 1);
    let (mut other, others) = datagram_qp(&mut rig, pd, uar, &cq, key, 0);
    for qpn in [deaf.number, other.number] {
        rig.run(member(0x806, qpn, GROUP)).ok();
    }
    send_to_group(&rig, uar, &mut deaf);
    assert_eq!((rig.read(own, 64), rig.read(others + 24, 16)), (vec![0xee; 64], GROUP.to_vec()));
    send_to_group(&rig, uar, &mut other);
    assert_eq!(rig.read(own + 24, 16), GROUP);
    for _ in 0..4 {
        cq.wait(&rig);
    }
}

#[test]
fn groups_refuse_what_cannot_be_a_member() {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    let (uar, pd) = (rig.alloc_uar(), rig.alloc_pd());
    let (eqn, _) = rig.create_eq(uar, 6, 0, 0);
    let cq = rig.create_cq(uar, 4, eqn);
    let connected = rig.create_qp(pd, uar, &cq, LOG);
    let (datagrams, _) = datagram_qp(&mut rig, pd, uar, &cq, 0, 0);
    let refusal = |input| rig.run(input).syndrome();
    assert_eq!(refusal(member(0x806, connected.number, GROUP)), Refusal::MULTICAST_SERVICE.syndrome);
    assert_eq!(refusal(member(0x806, 0x1234, GROUP)), Refusal::NO_SUCH_OBJECT.syndrome);
    let unicast = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
    assert_eq!(refusal(member(0x806, datagrams.number, unicast)), Refusal::MULTICAST_GID.syndrome);
    assert_eq!(refusal(member(0x807, datagrams.number, GROUP)), Refusal::NO_SUCH_OBJECT.syndrome);
    // Joining twice is being in once.
    for _ in 0..2 {
        rig.run(member(0x806, datagrams.number, GROUP)).ok();
    }
    rig.run(member(0x807, datagrams.number, GROUP)).ok();
    assert_eq!(refusal(member(0x807, datagrams.number, GROUP)), Refusal::NO_SUCH_OBJECT.syndrome);
}
