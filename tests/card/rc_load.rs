//! Many operations at once. Cases of groups E and G.

use crate::support::*;
use mlx5_direct::{
    QpInit,
    queue::{Flags, PostError},
};
use std::thread;

/// A small generator whose whole run follows from its seed.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below
    }
}

#[test]
fn e17_mixed_random_ops() {
    // 1,000 random operations over several queue pairs, each with its own stretch of both memories; at the end
    // both are what doing them one after another makes of them.
    for seed in [1, 2, 3] {
        let card = card("ports=2");
        let (ctx_a, ctx_b) = (open(&card, 0), open(&card, 1));
        let setup = Setup { mr_bytes: 1 << 15, ..Setup::default() };
        let mut pairs: Vec<_> = (0..4)
            .map(|_| {
                let (mut a, mut b) = (Side::new(&card, &ctx_a, &setup), Side::new(&card, &ctx_b, &setup));
                connect(&mut a.qp, &mut b.qp, &setup.connection, &setup.connection);
                (a, b)
            })
            .collect();
        let mut expected = vec![(vec![0u8; 1 << 15], vec![0u8; 1 << 15]); 4];
        for (which, (a, _)) in pairs.iter_mut().enumerate() {
            let start = pattern(seed * 10 + which as u64, 1 << 15);
            a.mr.write(0, &start);
            expected[which].0 = start;
        }
        let mut random = Random(seed * 77 + 1);
        let mut outstanding = [0u32; 4];
        for step in 0..1000u64 {
            let which = random.next(4) as usize;
            let (a, b) = &mut pairs[which];
            let (mem_a, mem_b) = &mut expected[which];
            let len = random.next(6000) as usize + 1;
            let from = random.next((1 << 15) - len as u64) as usize;
            let to = random.next((1 << 15) - len as u64) as usize;
            // Every third waits for the ones before, so that the order of effects is that of the posts.
            let flags = SIGNALED | Flags::FENCE;
            match random.next(5) {
                0 | 1 => {
                    let remote = b.remote(to);
                    a.post(|list, memory| {
                        let range = from as u64..(from + len) as u64;
                        list.rdma_write(step, remote, flags).unwrap().local(memory, range).unwrap().finish();
                    });
                    mem_b[to..to + len].copy_from_slice(&mem_a[from..from + len]);
                }
                2 => {
                    let remote = b.remote(to);
                    a.post(|list, memory| {
                        let range = from as u64..(from + len) as u64;
                        list.rdma_read(step, remote, flags).unwrap().local(memory, range).unwrap().finish();
                    });
                    mem_a[from..from + len].copy_from_slice(&mem_b[to..to + len]);
                }
                3 => {
                    let (at, result) = (to & !7, from & !7);
                    let remote = b.remote(at);
                    a.post(|list, memory| {
                        let request = list.fetch_add(step, remote, step, flags).unwrap();
                        request.local(memory, result as u64).unwrap().finish();
                    });
                    let old = u64::from_ne_bytes(mem_b[at..at + 8].try_into().unwrap());
                    mem_a[result..result + 8].copy_from_slice(&old.to_ne_bytes());
                    mem_b[at..at + 8].copy_from_slice(&old.wrapping_add(step).to_ne_bytes());
                }
                _ => {
                    b.recv(step, to as u64..(to + len) as u64);
                    a.post(|list, memory| {
                        let range = from as u64..(from + len) as u64;
                        list.send(step, flags).unwrap().local(memory, range).unwrap().finish();
                    });
                    mem_b[to..to + len].copy_from_slice(&mem_a[from..from + len]);
                    assert_eq!(b.ok().wr_id, step);
                }
            }
            outstanding[which] += 1;
            if outstanding[which] == 8 {
                for _ in 0..8 {
                    a.ok();
                }
                outstanding[which] = 0;
            }
        }
        for (which, (a, b)) in pairs.iter_mut().enumerate() {
            for _ in 0..outstanding[which] {
                a.ok();
            }
            assert!(a.bytes(0, 1 << 15) == expected[which].0, "seed {seed}: queue pair {which}, requester");
            assert!(b.bytes(0, 1 << 15) == expected[which].1, "seed {seed}: queue pair {which}, responder");
        }
        card.assert_clean();
    }
}

#[test]
fn e20_bidirectional_duplex() {
    // Both send with full queues and receive at the same time.
    let init = QpInit { max_send_wr: 32, max_recv_wr: 64, ..QpInit::default() };
    let setup = Setup { init, ..Setup::default() };
    let mut pair = Pair::with("ports=2", &setup, &setup);
    const N: u64 = 2000;
    let (mut sent, mut got, mut posted) = ([0; 2], [0; 2], [0u64; 2]);
    let mut sides = [&mut pair.a, &mut pair.b];
    let mut refused = 0;
    while sent.iter().chain(&got).any(|n| *n < N) {
        for (i, side) in sides.iter_mut().enumerate() {
            while side.qp.recv_queue().n_outstanding() < 64 {
                side.recv(0, 0..2048);
            }
            while posted[i] < N {
                let memory = side.lease;
                let mut list = side.qp.post_list();
                match list.send(posted[i], SIGNALED) {
                    Ok(request) => request.local(memory, 4096..6144).unwrap().finish(),
                    Err(error) => {
                        assert_eq!(error, PostError::QueueFull);
                        refused += 1;
                        break;
                    }
                }
                list.ring();
                posted[i] += 1;
            }
            while let Some(done) = side.poll() {
                assert_eq!(done.error, None);
                let counts = if done.is_send { &mut sent } else { &mut got };
                if done.is_send {
                    assert_eq!(done.wr_id, counts[i]);
                }
                counts[i] += 1;
            }
        }
    }
    assert!(refused > 0, "the queues were full");
}

#[test]
fn e21_parallel_qps_threads() {
    // 64 queue pairs, 16 to a thread, each with its own UAR register.
    let card = card("ports=2");
    let (ctx_a, ctx_b) = (open(&card, 0), open(&card, 1));
    thread::scope(|scope| {
        for t in 0..4u64 {
            let (card, ctx_a, ctx_b) = (&card, &ctx_a, &ctx_b);
            scope.spawn(move || {
                let setup = Setup { mr_bytes: 4096, ..Setup::default() };
                let mut pairs: Vec<_> = (0..16)
                    .map(|_| {
                        let (mut a, mut b) = (Side::new(card, ctx_a, &setup), Side::new(card, ctx_b, &setup));
                        connect(&mut a.qp, &mut b.qp, &setup.connection, &setup.connection);
                        (a, b)
                    })
                    .collect();
                let mut total = 0;
                for round in 0..50u64 {
                    for (i, (a, b)) in pairs.iter_mut().enumerate() {
                        b.recv(round, 0..64);
                        let word = (t << 32 | (i as u64) << 16 | round).to_le_bytes();
                        a.post(|list, _| list.send(round, SIGNALED).unwrap().inline(&word).unwrap().finish());
                    }
                    for (i, (a, b)) in pairs.iter_mut().enumerate() {
                        assert_eq!((a.ok().wr_id, b.ok().wr_id), (round, round));
                        assert_eq!(
                            b.mr.load_u64(0).to_le_bytes(),
                            (t << 32 | (i as u64) << 16 | round).to_le_bytes()
                        );
                        total += 1;
                    }
                }
                assert_eq!(total, 16 * 50);
            });
        }
    });
    card.assert_clean();
}

#[test]
fn g8_atomic_race_n_clients() {
    // Adders and swappers on one word each.
    const CLIENTS: u64 = 8;
    const ADDS: u64 = 200;
    let card = card("ports=2");
    let (ctx_a, ctx_b) = (open(&card, 0), open(&card, 1));
    let setup = Setup::default();
    let mut target = Side::new(&card, &ctx_b, &setup);
    let remote = (target.remote(0), target.remote(8));
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut a = Side::new(&card, &ctx_a, &setup);
            let mut qp = target.pd.create_qp(&QpInit::default(), &target.cq, &target.cq).unwrap();
            connect(&mut a.qp, &mut qp, &setup.connection, &setup.connection);
            (a, qp)
        })
        .collect();
    for _ in 0..ADDS {
        for (a, _) in &mut clients {
            a.post(|list, memory| {
                list.fetch_add(1, remote.0, 3, SIGNALED).unwrap().local(memory, 0).unwrap().finish();
            });
        }
        for (a, _) in &mut clients {
            a.ok();
        }
    }
    assert_eq!(target.mr.load_u64(0), CLIENTS * ADDS * 3);
    for (i, (a, _)) in clients.iter_mut().enumerate() {
        a.post(|list, memory| {
            let request = list.compare_swap(1, remote.1, 0, i as u64 + 1, SIGNALED).unwrap();
            request.local(memory, 0).unwrap().finish();
        });
    }
    let mut winners = Vec::new();
    for (i, (a, _)) in clients.iter_mut().enumerate() {
        a.ok();
        if a.mr.load_u64(0) == 0 {
            winners.push(i as u64 + 1);
        }
    }
    assert_eq!(winners, [target.mr.load_u64(8)], "one winner, and its value stays");
    target.assert_quiet();
    card.assert_clean();
}
