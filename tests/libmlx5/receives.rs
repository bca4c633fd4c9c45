//! Receive requests: the whole ring and the doorbell record afterwards.

use crate::{
    beside_libmlx5,
    fixture::{RING_FILL, Recv},
    random::Random,
    rival::{
        device::{Device, Qp, QpOptions},
        ffi::*,
    },
};
use mlx5_direct::{
    cqe::{CqeOpcode, ResponderCqe},
    mlx5::ids::{Lkey, Qpn, UserIndex},
    wqe::SEGMENT_BYTES,
};
use std::ptr;

const MAX_SGE: usize = 8;

#[test]
fn receive_requests_are_the_same_bytes() {
    beside_libmlx5("receives::receive_requests_are_the_same_bytes", |library| {
        let mut random = Random::new(3);
        let mut n_requests = 0;
        for max_sge in [1, 2, 3, 4, 7, MAX_SGE] {
            n_requests += compare(&mut Device::open(library, false), max_sge, &mut random);
        }
        println!("- {n_requests} receive requests: the same");
        assert!(n_requests > 10_000);
    });
}

fn compare(device: &mut Device, max_sge: usize, random: &mut Random) -> u32 {
    let caps = IbvQpCap {
        max_send_wr: 1,
        max_recv_wr: 16,
        max_send_sge: 1,
        max_recv_sge: max_sge as u32,
        max_inline_data: 0,
    };
    let mut cq = device.cq(64);
    let theirs = device.qp(&cq, &cq, &QpOptions { qp_type: IBV_QPT_RC, send_ops: RC_OPS, dv_ops: 0, caps });
    let (n_wqes, stride) = (theirs.dv.rq.wqe_cnt, theirs.dv.rq.stride);
    let mut ours = Recv::new(theirs.qpn, n_wqes.ilog2() as u8, stride.ilog2() as u8, max_sge as u8);
    let ring = theirs.recv_ring();
    let mut n_requests = 0;
    while n_requests < 2500 {
        let requests: Vec<Vec<IbvSge>> = (0..1 + random.below(4))
            .map(|_| {
                let sge = |random: &mut Random| IbvSge {
                    addr: random.next(),
                    length: if random.one_in(6) { 0 } else { 1 + random.below(1 << 30) as u32 },
                    lkey: random.next() as u32,
                };
                (0..random.below(max_sge + 1)).map(|_| sge(random)).collect()
            })
            .collect();
        ring.fill(RING_FILL);
        let before = ours.ring.read(0, (n_wqes * stride) as usize);
        post(&theirs, &requests);
        let mut list = ours.queue.post_list();
        for sges in &requests {
            let mut request = list.recv(1).expect("room");
            for sge in sges {
                // SAFETY: no device reads the ring.
                request = unsafe { request.sge(Lkey::new(sge.lkey), sge.addr, sge.length).expect("room") };
            }
            request.finish();
        }
        list.publish();
        let (mut their_bytes, our_bytes) = (ring.read(), ours.ring.read(0, before.len()));
        // What the device does not read is as it was: our terminators are there before libmlx5 writes its own.
        let stride = stride as usize;
        for slot in 0..n_wqes as usize {
            let nth = (slot as u32).wrapping_sub(n_requests) % n_wqes;
            let read_bytes = requests.get(nth as usize).map_or(0, |sges| {
                let n_pieces = sges.iter().filter(|sge| sge.length != 0).count();
                ((n_pieces + 1) * SEGMENT_BYTES).min(stride)
            });
            let rest = slot * stride + read_bytes..(slot + 1) * stride;
            assert!(
                their_bytes[rest.clone()].iter().all(|byte| *byte == RING_FILL),
                "libmlx5 wrote {rest:?}"
            );
            their_bytes[rest.clone()].copy_from_slice(&before[rest]);
        }
        if let Some(at) = (0..our_bytes.len()).find(|at| their_bytes[*at] != our_bytes[*at]) {
            let line = at / 64 * 64..at / 64 * 64 + 64;
            panic!(
                "byte {at} of the ring, stride {stride}: {requests:x?}\ntheirs {:02x?}\nours   {:02x?}",
                &their_bytes[line.clone()],
                &our_bytes[line]
            );
        }
        assert_eq!(theirs.records(), ours.record.read(0, 8), "doorbell records");
        for _ in &requests {
            let cqe = ResponderCqe::new()
                .with_opcode(CqeOpcode::RESP_SEND)
                .with_qpn(Qpn::new(theirs.qpn))
                .with_srqn_or_user_index(UserIndex::new(theirs.user_index));
            cq.complete(cqe.with_wqe_counter(n_requests as u16).to_bytes());
            ours.retire_at(n_requests as u16).expect("outstanding");
            n_requests += 1;
        }
        assert_eq!(cq.drain(), requests.len() as u32);
    }
    n_requests
}

/// By `ibv_post_recv`, as one chain.
fn post(qp: &Qp, requests: &[Vec<IbvSge>]) {
    let mut chain: Vec<_> = requests
        .iter()
        .map(|sges| IbvRecvWr {
            wr_id: 1,
            next: ptr::null_mut(),
            sg_list: sges.as_ptr(),
            num_sge: sges.len() as i32,
        })
        .collect();
    for i in 1..chain.len() {
        chain[i - 1].next = &raw mut chain[i];
    }
    let mut bad = ptr::null_mut();
    // SAFETY: a queue pair, and a chain of requests that point to living memory.
    let failed = unsafe { (qp.post_recv)(qp.qp.as_ptr(), chain.as_mut_ptr(), &mut bad) };
    assert_eq!(failed, 0, "libmlx5 refused {requests:x?}");
}
