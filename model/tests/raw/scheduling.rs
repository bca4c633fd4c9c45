//! Scheduling trees by either kind of command, and queues that name their leaves.

use super::{port::cable, rig::Raw, rules};
use crate::rig::Rig;
use mlx5_model::{Rule, fw::Refusal};

const TSAR: u32 = 0;
const QUEUE_GROUP: u32 = 4;
const BW_SHARE: u32 = 1;
const MAX_AVERAGE_BW: u32 = 2;
const CREATE: u16 = 0x782;
const DESTROY: u16 = 0x783;
const QUERY: u16 = 0x784;
const MODIFY: u16 = 0x785;

fn create(kind: u32, parent: u32) -> Raw {
    Raw::cmd(CREATE, 128).set(8, 31, 24, 3).set(0x20, 31, 24, kind).set(0x28, 31, 0, parent)
}

fn named(opcode: u16, len_bytes: usize, id: u32) -> Raw {
    Raw::cmd(opcode, len_bytes).set(8, 31, 24, 3).set(0xc, 31, 0, id)
}

/// The same as a general object.
fn object(opcode: u16, id: u32, kind: u32, parent: u32) -> Raw {
    let head = Raw::cmd(opcode, 144).set(4, 15, 0, 0x26).set(8, 31, 0, id);
    head.set(0x18, 31, 24, 3).set(0x30, 31, 24, kind).set(0x38, 31, 0, parent)
}

/// Type, parent, share and rate of an element.
fn query(rig: &Rig, id: u32) -> [u32; 4] {
    let answer = rig.exec(&named(QUERY, 64, id), 128).ok();
    [answer.dword(0x20) >> 24, answer.dword(0x28), answer.dword(0x34), answer.dword(0x38)]
}

fn rig() -> Rig {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    rig
}

/// A root and a leaf.
fn tree(rig: &Rig) -> (u32, u32) {
    let root = rig.run(object(0xa00, 0, TSAR, 0)).ok().dword(8);
    let leaf = rig.exec(&create(QUEUE_GROUP, root), 64).ok().dword(0x10);
    (root, leaf)
}

#[test]
fn a_tree_is_made_changed_and_ended_by_both_kinds_of_command() {
    let rig = rig();
    let (root, leaf) = tree(&rig);
    assert_eq!((query(&rig, root), query(&rig, leaf)), ([TSAR, 0, 0, 0], [QUEUE_GROUP, root, 0, 0]));
    let weights = |input: Raw, at: usize| input.set(at, 31, 0, 7).set(at + 4, 31, 0, 900);
    let change = named(MODIFY, 128, leaf).set(0x14, 31, 0, BW_SHARE);
    rig.exec(&weights(change, 0x34), 64).ok();
    assert_eq!(query(&rig, leaf), [QUEUE_GROUP, root, 7, 0]);
    let change = object(0xa01, leaf, QUEUE_GROUP, 0).set(0x14, 31, 0, MAX_AVERAGE_BW);
    rig.run(weights(change, 0x44).set(0x44, 31, 0, 8)).ok();
    assert_eq!(query(&rig, leaf), [QUEUE_GROUP, root, 7, 900]);
    // A node that has parts stays.
    assert_eq!(rules(&rig), []);
    assert_eq!(rig.run(object(0xa03, root, 0, 0)).syndrome(), Refusal::OBJECT_IN_USE.syndrome);
    assert_eq!(rules(&rig), [Rule::ObjectInUse]);
    rig.run(object(0xa03, leaf, 0, 0)).ok();
    rig.exec(&named(DESTROY, 64, root), 64).ok();
    for input in [named(DESTROY, 64, root), named(QUERY, 64, leaf), object(0xa03, leaf, 0, 0)] {
        assert_eq!(rig.exec(&input, 128).syndrome(), Refusal::NO_SUCH_OBJECT.syndrome);
    }
}

#[test]
fn what_an_element_cannot_be() {
    let rig = rig();
    let (root, leaf) = tree(&rig);
    for (input, refusal) in [
        (create(QUEUE_GROUP, 0), Refusal::SCHEDULING_ELEMENT),
        (create(QUEUE_GROUP, leaf), Refusal::SCHEDULING_ELEMENT),
        (create(1, root), Refusal::SCHEDULING_ELEMENT),
        (create(TSAR, root).set(0x24, 23, 16, 1), Refusal::SCHEDULING_ELEMENT),
        (create(TSAR, root).set(8, 31, 24, 2), Refusal::SCHEDULING_ELEMENT),
        (create(TSAR, 999), Refusal::NO_SUCH_OBJECT),
        (named(MODIFY, 128, 999), Refusal::NO_SUCH_OBJECT),
        (object(0xa01, 999, TSAR, 0), Refusal::NO_SUCH_OBJECT),
    ] {
        assert_eq!(rig.exec(&input, 64).syndrome(), refusal.syndrome, "{refusal:?}");
    }
    // log_max_qos_nic_queue_group
    (1..16).for_each(|_| drop(rig.exec(&create(QUEUE_GROUP, root), 64).ok()));
    assert_eq!(rig.exec(&create(QUEUE_GROUP, root), 64).syndrome(), Refusal::TABLE_FULL.syndrome);
    rig.exec(&create(TSAR, root), 64).ok();
}

#[test]
fn queue_pairs_and_send_queues_name_leaves() {
    let mut rig = rig();
    let (uar, pd) = (rig.alloc_uar(), rig.alloc_pd());
    let (eqn, _) = rig.create_eq(uar, 6, 0, 0);
    let cq = rig.create_cq(uar, 6, eqn);
    let (mac, gid) = (rig.mac(), rig.set_gid());
    let qp = rig.create_qp(pd, uar, &cq, 4);
    rig.connect(&qp, qp.number, mac, gid);
    let (root, leaf) = tree(&rig);
    let group = |extended: u32, requester: u32, responder: u32| {
        let input = Raw::cmd(0x505, 464).set(8, 31, 31, extended).set(8, 23, 0, qp.number).set64(0x108, 2);
        rig.run(input.set(0x114, 31, 0, requester).set(0x118, 31, 0, responder)).syndrome()
    };
    assert_eq!((group(1, leaf, leaf), group(1, 0, 0)), (0, 0));
    assert_eq!(group(0, leaf, leaf), Refusal::QP_OPT_PARAM.syndrome);
    assert_eq!(group(1, root, 0), Refusal::NO_SUCH_OBJECT.syndrome);
    assert_eq!(group(1, 0, 999), Refusal::NO_SUCH_OBJECT.syndrome);

    let (port, _) = cable();
    let (root, leaf) = tree(&port.rig);
    assert_eq!((port.set_queue_group(leaf), port.queue_group()), (0, leaf));
    assert_eq!(port.set_queue_group(root), Refusal::NO_SUCH_OBJECT.syndrome);
    assert_eq!(port.queue_group(), leaf);
}
