//! Counter sets: read, cleared, and in use.

use crate::{
    rig::{Page, Qp, Raw, Rig},
    rules,
};
use mlx5_model::Rule;

const COUNTER_SET_ID: u32 = 0x200_0000;

/// A zero-length WRITE of a QP to itself.
fn write(rig: &Rig, page: &Page, qp: &mut Qp) {
    let doorbell = qp.wqe(rig, 8, &[0; 16]);
    qp.record(rig);
    page.ring(doorbell);
    while rig.model.step() {}
}

/// `rx_write_requests` of a set.
fn query(rig: &Rig, set: u32, clear: u32) -> u32 {
    let input = Raw::cmd(0x773, 32).set(0x18, 31, 31, clear).set(0x1c, 7, 0, set);
    rig.exec(&input, 256).ok().dword(0x10)
}

#[test]
fn a_set_counts_for_the_queue_pairs_that_name_it() {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    let (uar, pd) = (rig.alloc_uar(), rig.alloc_pd());
    let (eqn, _) = rig.create_eq(uar, 6, 0, 0);
    let cq = rig.create_cq(uar, 6, eqn);
    let (mac, gid) = (rig.mac(), rig.set_gid());
    let mut qp = rig.create_qp(pd, uar, &cq, 4);
    rig.connect(&qp, qp.number, mac, gid);
    let page = rig.map_uar(uar);
    let [set, other] = [(); 2].map(|()| rig.run(Raw::cmd(0x771, 16)).ok().dword(8) & 0xff);
    let join =
        |qp: &Qp, set| rig.modify(0x505, qp, COUNTER_SET_ID, &Raw::new(232).set(0x0c, 31, 24, set)).status();

    write(&rig, &page, &mut qp);
    assert_eq!((query(&rig, set, 0), query(&rig, other, 0)), (0, 0), "it is in no set yet");
    assert_eq!(join(&qp, set), (0, 0));
    write(&rig, &page, &mut qp);
    write(&rig, &page, &mut qp);
    assert_eq!(
        (query(&rig, set, 0), query(&rig, set, 1), query(&rig, set, 0)),
        (2, 2, 0),
        "cleared once read"
    );
    assert_ne!(join(&qp, 0x3f), (0, 0), "no such set");

    let free = |set| rig.run(Raw::cmd(0x772, 16).set(8, 7, 0, set)).status();
    assert_ne!(free(set), (0, 0));
    assert_eq!(rules(&rig), [Rule::ObjectExists, Rule::ObjectInUse]);
    assert_eq!(join(&qp, other), (0, 0));
    assert_eq!(free(set), (0, 0));
    write(&rig, &page, &mut qp);
    assert_eq!(query(&rig, other, 0), 1);
    rig.run(Raw::cmd(0x501, 16).set(8, 23, 0, qp.number)).ok();
    assert_eq!(free(other), (0, 0));
}
