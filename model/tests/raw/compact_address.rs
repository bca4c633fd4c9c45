//! Address vectors of 16 bytes.

use crate::{
    multicast::{QKEY, datagram_qp, ready_on},
    rig::Raw,
    rules,
};
use mlx5_model::Rule;

/// What the first port is given.
const LID: u32 = 1;
const REQ_ERR: u8 = 0xd;

/// A datagram that the queue pair sends to itself: types of the CQEs, what is behind the header, rules broken.
fn sends_to_itself(options: &str) -> (Vec<u8>, Vec<u8>, Vec<Rule>) {
    let (mut rig, uar, pd, mut cq, key) = ready_on(options);
    let (mut qp, buffer) = datagram_qp(&mut rig, pd, uar, &cq, key, 0);
    let data = rig.alloc(16, 0x3c);
    let av = Raw::new(32).set(0, 31, 0, QKEY).set(8, 23, 0, qp.number).set(0xc, 15, 0, LID);
    let wqe = av.set(0x10, 31, 0, 16).set(0x14, 31, 0, key).set64(0x18, data);
    let page = rig.map_uar(uar);
    let doorbell = qp.wqe(&rig, 0x0a, &wqe.0);
    qp.record(&rig);
    page.ring(doorbell);
    while rig.model.step() {}
    let mut opcodes: Vec<u8> = std::iter::from_fn(|| cq.poll(&rig, true)).map(|cqe| cqe[63] >> 4).collect();
    opcodes.sort_unstable();
    (opcodes, rig.read(buffer + 40, 16), rules(&rig))
}

#[test]
fn without_a_grh_sixteen_bytes_say_where_a_datagram_goes() {
    assert_eq!(sends_to_itself(",link=ib"), (vec![0, 2], vec![0x3c; 16], vec![]));
}

#[test]
fn on_ethernet_that_is_a_violation() {
    assert_eq!(sends_to_itself(""), (vec![REQ_ERR], vec![0xee; 16], vec![Rule::AddressVector]));
}
