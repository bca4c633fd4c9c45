//! A card that is driven by whoever stores to its registers, and by a thread for what no store asks for.

use crate::support::*;
use mlx5_direct::queue::Flags;
use std::time::Duration;

const DRIVEN: &str = "ports=2,bar=trapped,drive=store";

#[test]
fn a_request_is_done_when_its_doorbell_is_rung() {
    needs!(Need::Options(DRIVEN));
    let mut pair = Pair::new(DRIVEN);
    for wr_id in 0..1000 {
        let data = pattern(wr_id, 40);
        pair.b.recv(wr_id, 0..40);
        pair.a.post(|list, _| list.send(wr_id, SIGNALED).unwrap().inline(&data).unwrap().finish());
        // Nobody waits: one look each.
        let (sent, received) = (pair.a.poll(), pair.b.poll());
        assert!(sent.is_some() && received.is_some(), "message {wr_id}: {sent:?}, {received:?}");
        assert_eq!(pair.b.bytes(0, 40), data);
    }
    pair.card.assert_clean();
}

#[test]
fn what_no_store_asks_for_is_done_too() {
    needs!(Need::Options(DRIVEN));
    let mut pair = Pair::new(DRIVEN);
    let n = 40;
    for wr_id in 0..n {
        // Sent again by a timer, or late.
        let trouble = if wr_id % 2 == 0 { "packet 1 drop" } else { "packet 1 delay 3ms" };
        pair.card.model().inject(&trouble.parse().unwrap());
        pair.b.recv(wr_id, 0..8);
        pair.a.post(|list, _| {
            list.send(wr_id, Flags::SIGNALED).unwrap().inline(&wr_id.to_be_bytes()).unwrap().finish();
        });
        assert!(pair.a.poll().is_none(), "message {wr_id} met with no trouble");
        assert_eq!((pair.a.ok().wr_id, pair.b.ok().wr_id), (wr_id, wr_id));
        assert_eq!(pair.b.bytes(0, 8), wr_id.to_be_bytes());
    }
    assert_eq!(pair.card.model().faults_done().faults.len(), n as usize);
    // Messages of more rounds than a store takes.
    let mut large = pattern(7, 1 << 20);
    large.truncate(pair.a.mr.len_bytes());
    pair.a.mr.write(0, &large);
    let (remote, end) = (pair.b.remote(0), large.len() as u64);
    pair.a.post(|list, memory| {
        for wr_id in 0..16 {
            list.rdma_write(wr_id, remote, SIGNALED).unwrap().local(memory, 0..end).unwrap().finish();
        }
    });
    (0..16).for_each(|wr_id| assert_eq!(pair.a.ok().wr_id, wr_id));
    assert!(pair.b.bytes(0, large.len()) == large);
    pair.card.pass(Duration::from_millis(1));
    pair.card.assert_clean();
}
