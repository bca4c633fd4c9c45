//! A wire that loses, duplicates, reorders, delays and corrupts at random: everything is still done exactly
//! once and in order (`psn_and_ack_rules`).

use super::{
    operations::pattern,
    world::{Setup, World},
    wqe::Wr,
};
use mlx5_direct::{
    cqe::CqeOpcode,
    wqe::{CompletionMode, FenceMode, SendOpcode},
};
use mlx5_model::{
    exec::{Path, QpConfig},
    wire::{Fate, Port},
};
use proptest::prelude::*;

/// SplitMix64.
#[derive(Debug, Clone)]
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

#[derive(Debug, Clone, Copy)]
struct Weather {
    drop: u64,
    duplicate: u64,
    reorder: u64,
    delay: u64,
    corrupt: u64,
}

fn trouble(weather: Weather, seed: u64) -> impl FnMut(Port, Port, &mut Vec<u8>) -> Fate + Send {
    let mut rng = Rng(seed);
    move |_, _, frame| {
        if rng.chance(weather.corrupt) {
            // Up to three bits: a CRC-32 finds them all at these lengths.
            for _ in 0..=rng.below(3) {
                let bit = rng.below(frame.len() as u64 * 8) as usize;
                frame[bit / 8] ^= 1 << (bit % 8);
            }
        }
        if rng.chance(weather.drop) {
            Fate::Drop
        } else if rng.chance(weather.duplicate) {
            Fate::Duplicate { copies: 2 + rng.below(2) as u32 }
        } else if rng.chance(weather.reorder) {
            Fate::Reorder { frames: 1 + rng.below(5) as u32 }
        } else if rng.chance(weather.delay) {
            Fate::Delay { ns: rng.below(60_000) }
        } else {
            Fate::Deliver
        }
    }
}

/// What completions one direction must have in the end.
#[derive(Default)]
struct Expected {
    sent: Vec<u16>,
    received: Vec<(CqeOpcode, u32, u32)>,
    n_atomics: u32,
}

/// Each direction has a half of both memories.
const HALF: usize = 1 << 20;
const AREA: u64 = 60_000;

/// Posts a random program at `from`; carries it out on `memory` one request after the other.
fn program(
    world: &mut World,
    memory: &mut [Vec<u8>; 2],
    from: usize,
    rng: &mut Rng,
    n_ops: usize,
) -> Expected {
    let mut expected = Expected::default();
    let (to, base) = (1 - from, from * HALF);
    let mut fenced = false;
    for n in 0..n_ops {
        let len = match rng.below(4) {
            0 => 0,
            1 => rng.below(64),
            2 => 1024 * rng.below(5) + rng.below(3),
            _ => rng.below(20_000),
        } as usize;
        // What is sent is never written, so that posting early and executing in order agree.
        let source = base + rng.below(AREA) as usize;
        let near = base + 0x20000 + rng.below(AREA) as usize;
        let far = base + 0x40000 + rng.below(AREA) as usize;
        let imm = rng.next() as u32;
        let (len32, kind) = (len as u32, rng.below(8));
        // A READ of what later WRITEs change needs a fence on those; one of constant memory does not.
        let changing = kind == 4 && rng.chance(20);
        let read_from = if changing { far } else { source };
        let mut wr = match kind {
            0 => Wr::new(SendOpcode::SEND).local(source, len32),
            1 => Wr::new(SendOpcode::SEND_IMM).imm(imm).local(source, len32),
            2 => Wr::new(SendOpcode::RDMA_WRITE).remote(far).local(source, len32),
            3 => Wr::new(SendOpcode::RDMA_WRITE_IMM).imm(imm).remote(far).local(source, len32),
            4 => Wr::new(SendOpcode::RDMA_READ).remote(read_from).local(near, len32),
            5 => {
                let word = base + 0x60000 + rng.below(4) as usize * 8;
                Wr::new(SendOpcode::ATOMIC_FA).remote(word).operands(rng.next(), 0).local(near, 8)
            }
            6 => Wr::new(SendOpcode::RDMA_WRITE).remote(far).inline(&pattern(n, len.min(200))),
            _ => Wr::new(SendOpcode::NOP),
        };
        if std::mem::replace(&mut fenced, changing) || rng.chance(10) {
            wr = wr.fence(FenceMode::FENCE);
        }
        let signaled = n + 1 == n_ops || rng.chance(50);
        wr = wr.ce(if signaled { CompletionMode::ALWAYS } else { CompletionMode::ONLY_ERR });
        let receive = base + 0x80000 + n * 0x1000 % 0x60000;
        if kind <= 1 || kind == 3 {
            world.post_recv(to, receive, 20_000);
        }
        let mut copy = |(from, source): (usize, usize), (to, dest): (usize, usize), len: usize| {
            let data = memory[from][source..source + len].to_vec();
            memory[to][dest..dest + len].copy_from_slice(&data);
        };
        match kind {
            0 | 1 => {
                copy((from, source), (to, receive), len);
                let what = if kind == 0 { CqeOpcode::RESP_SEND } else { CqeOpcode::RESP_SEND_IMM };
                expected.received.push((what, len32, if kind == 0 { 0 } else { imm }));
            }
            2 => copy((from, source), (to, far), len),
            3 => {
                copy((from, source), (to, far), len);
                expected.received.push((CqeOpcode::RESP_WR_IMM, len32, imm));
            }
            4 => copy((to, read_from), (from, near), len),
            5 => {
                let at = (wr.remote.unwrap().0 - super::world::BASE) as usize;
                copy((to, at), (from, near), 8);
                let old = u64::from_ne_bytes(memory[to][at..at + 8].try_into().unwrap());
                let new = old.wrapping_add(wr.operands.unwrap().0);
                memory[to][at..at + 8].copy_from_slice(&new.to_ne_bytes());
                expected.n_atomics += 1;
            }
            6 => {
                let data = wr.inline.clone().unwrap();
                memory[to][far..far + data.len()].copy_from_slice(&data);
            }
            _ => {}
        }
        let index = world.post(from, &wr);
        if signaled {
            expected.sent.push(index);
        }
    }
    expected
}

fn check(weather: Weather, seed: u64, mtu_bytes: u32, n_ops: usize) {
    let setup = Setup {
        memory_bytes: 2 * HALF,
        qp: QpConfig {
            n_send_wqebbs: 1024,
            n_receive_wqes: 256,
            mtu_bytes,
            log_ack_req_freq: (seed % 6) as u8,
            path: Path { ack_timeout: 5, ..Path::default() },
            ..Setup::default().qp
        },
        ..Setup::default()
    };
    let mut world = World::pair(&setup);
    let mut rng = Rng(seed);
    let mut memory = [0, 1].map(|node| pattern(node, 2 * HALF));
    for (node, memory) in world.nodes.iter_mut().zip(&memory) {
        node.side.memory.copy_from_slice(memory);
    }
    let expected = [0, 1].map(|from| program(&mut world, &mut memory, from, &mut rng, n_ops));
    world.wire.interfere(Some(Box::new(trouble(weather, seed ^ 0x5555))));
    world.settle();
    for node in 0..2 {
        let (sent, received): (Vec<_>, Vec<_>) =
            world.take_cqes(node).into_iter().partition(|c| c.send_queue());
        assert!(sent.iter().all(|c| c.opcode == CqeOpcode::REQ), "seed {seed}: {sent:?}");
        let counters: Vec<u16> = sent.iter().map(|c| c.counter).collect();
        assert_eq!(counters, expected[node].sent, "seed {seed}: completions of {node}");
        let received: Vec<_> = received.iter().map(|c| (c.opcode, c.len, c.imm)).collect();
        assert_eq!(received, expected[1 - node].received, "seed {seed}: receives of {node}");
        assert_eq!(world.nodes[node].side.n_atomics, expected[1 - node].n_atomics, "seed {seed}");
        assert!(world.nodes[node].side.memory == memory[node], "seed {seed}: memory of {node}");
    }
    world.assert_clean();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn psn_and_ack_rules(
        seed: u64,
        mtu_log in 8u32..=12,
        drop in 0u64..6,
        duplicate in 0u64..8,
        reorder in 0u64..8,
        delay in 0u64..5,
        corrupt in 0u64..4,
    ) {
        check(Weather { drop, duplicate, reorder, delay, corrupt }, seed, 1 << mtu_log, 30);
    }

    #[test]
    fn mixed_random_ops_in_fair_weather(seed: u64) {
        let weather = Weather { drop: 0, duplicate: 0, reorder: 0, delay: 0, corrupt: 0 };
        check(weather, seed, 4096, 60);
    }
}
