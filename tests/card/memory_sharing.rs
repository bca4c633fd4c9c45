//! Memory regions of many threads, and those with relaxed ordering. Cases of group B.

use crate::support::*;
use mlx5_direct::{Access, Mr};
use std::{
    collections::HashSet,
    sync::{Arc, Barrier},
    thread,
};

#[test]
fn b9_mr_multithread_register() {
    let mut pair = Pair::new("ports=2");
    let start = Arc::new(Barrier::new(8));
    let threads: Vec<_> = (0..8)
        .map(|n| {
            let (pd, start) = (pair.b.pd.clone(), Arc::clone(&start));
            thread::spawn(move || {
                start.wait();
                (0..50).map(|i| pd.alloc_mr(1 + n * 1000 + i, ALL).unwrap()).collect::<Vec<_>>()
            })
        })
        .collect();
    let mrs: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    let keys: HashSet<_> = mrs.iter().map(Mr::lkey).collect();
    assert_eq!(keys.len(), 400);
    for (i, mr) in mrs.iter().enumerate() {
        let remote = mr.remote(mr.len_bytes() - 1);
        pair.a.post(|list, _| {
            list.rdma_write(1, remote, SIGNALED).unwrap().inline(&[i as u8]).unwrap().finish()
        });
        pair.a.ok();
        assert_eq!(mr.load_u8(mr.len_bytes() - 1), i as u8);
    }
}

#[test]
fn b10_mr_relaxed_ordering() {
    for options in makes(&["ports=2", "ports=1,bar=trapped", "ports=2,drive=step"]) {
        mr_relaxed_ordering(options);
    }
}

fn mr_relaxed_ordering(options: &str) {
    let mut pair = Pair::new(options);
    let mr = pair.b.pd.alloc_mr(1 << 16, ALL | Access::RELAXED_ORDERING).unwrap();
    for round in 0..50u64 {
        let data = pattern(round, 1 << 15);
        pair.a.mr.write(0, &data);
        let remote = mr.remote(0);
        pair.a.post(|list, memory| {
            list.rdma_write(1, remote, SIGNALED).unwrap().local(memory, 0..1 << 15).unwrap().finish();
        });
        pair.a.ok();
        let mut there = vec![0; 1 << 15];
        mr.read(0, &mut there);
        assert!(there == data, "complete at the completion");
    }
}
