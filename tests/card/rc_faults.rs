//! Through driver, device and a bad cable: every operation is still done exactly once and in order
//! (`psn_and_ack_rules`, end to end).

use mlx5_direct::{
    Access, Connection, Context, Cq, CqAttr, Mr, Qp, QpInit,
    backend::prm::OpenOptions,
    queue::{Flags, Lease},
};
use mlx5_model::Model;
use std::time::Duration;

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n
    }
}

struct Side {
    qp: Qp,
    cq: Cq,
    mr: Mr,
    lease: Lease,
}

fn side(context: &Context) -> Side {
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(&CqAttr { n_cqes: 256, ..CqAttr::default() }).unwrap();
    let mut qp = pd.create_qp(&QpInit::default(), &cq, &cq).unwrap();
    let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let mr = pd.alloc_mr(1 << 20, all).unwrap();
    let lease = qp.lease(&mr).unwrap();
    Side { qp, cq, mr, lease }
}

/// Runs the card until `n` completions were taken from both sides together.
fn complete(model: &Model, sides: &mut [Side; 2], n: usize) -> Vec<(usize, u64)> {
    let mut done = Vec::new();
    for _ in 0..2_000_000 {
        let busy = model.step();
        for (index, side) in sides.iter_mut().enumerate() {
            let mut poll = side.cq.poll();
            while let Some(wc) = poll.next() {
                wc.status().unwrap();
                done.push((index, side.qp.retire(&wc).unwrap().wr_id));
            }
        }
        if done.len() >= n {
            return done;
        }
        if !busy {
            model.advance(Duration::from_micros(50));
        }
    }
    panic!("{} of {n} completions", done.len());
}

/// Both ports of the card, connected to each other.
fn connected(model: &Model) -> [Side; 2] {
    let contexts =
        [0, 1].map(|port| Context::open(model.function(port).unwrap(), OpenOptions::default()).unwrap());
    let mut sides = [side(&contexts[0]), side(&contexts[1])];
    let connection = Connection { timeout: 6, ..Connection::default() };
    let addresses = [0, 1].map(|n: usize| sides[n].qp.address(1, connection.gid_index).unwrap());
    for (n, side) in sides.iter_mut().enumerate() {
        side.qp.connect(&addresses[1 - n], &connection).unwrap();
    }
    sides
}

/// PSNs that jump, with an ICRC that is right, and receives that seem not to be there: the requester is told, and repairs it.
#[test]
fn e14_psn_and_ack_rules_of_gaps_and_missing_receives() {
    let model = Model::new("ports=2,drive=step".parse().unwrap()).unwrap();
    let mut sides = connected(&model);
    model.inject(
        &"seed 2\n@0 packet 10% psn +5\n@0 packet 5% psn +1\n@1 receive 30% missing".parse().unwrap(),
    );
    for round in 0..300u64 {
        let [near, far] = &mut sides;
        near.mr.store_u64(0, round);
        far.qp.post_recv(round, &[far.lease.slice(0..8)]).unwrap();
        let mut list = near.qp.post_list();
        list.send(round, Flags::SIGNALED).unwrap().local(near.lease, 0..8).unwrap().finish();
        list.ring();
        let done = complete(&model, &mut sides, 2);
        assert!(done.contains(&(0, round)) && done.contains(&(1, round)), "{done:?}");
        assert_eq!(sides[1].mr.load_u64(0), round);
    }
    assert!(model.faults_done().faults.len() > 100);
    model.assert_clean();
}

/// What becomes of packets: of 13 in a hundred, something.
const WEATHER: &str = "packet 3% drop
packet 3% duplicate 2
packet 3% reorder 3
packet 2% delay 50us
packet 2% corrupt";

#[test]
fn e14_psn_and_ack_rules() {
    let mut n_troubled = 0;
    for seed in 0..12 {
        let model = Model::new("ports=2,drive=step".parse().unwrap()).unwrap();
        let mut sides = connected(&model);
        let mut rng = Rng(seed);
        model.inject(&format!("seed {seed}\n{WEATHER}").parse().unwrap());
        let mut sum = 0u64;
        sides[1].mr.store_u64(0xf_f000, 0);
        for round in 0..20u64 {
            let [near, far] = &mut sides;
            let len = 1 + rng.below(40_000) as usize;
            let data: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
            near.mr.write(0, &data);
            let end = len as u64;
            far.qp.post_recv(1000 + round, &[far.lease.slice(0x10000..0x1a000)]).unwrap();
            let add = rng.below(1 << 40);
            let mut list = near.qp.post_list();
            list.rdma_write(1, far.mr.remote(0x20000), Flags::NONE)
                .unwrap()
                .local(near.lease, 0..end)
                .unwrap()
                .finish();
            list.rdma_read(2, far.mr.remote(0x20000), Flags::SIGNALED)
                .unwrap()
                .local(near.lease, 0x40000..0x40000 + end)
                .unwrap()
                .finish();
            list.fetch_add(3, far.mr.remote(0xf_f000), add, Flags::SIGNALED)
                .unwrap()
                .local(near.lease, 0xf_f000)
                .unwrap()
                .finish();
            list.send_imm(4, round as u32, Flags::SIGNALED)
                .unwrap()
                .local(near.lease, 0..end)
                .unwrap()
                .finish();
            list.ring();
            let done = complete(&model, &mut sides, 4);
            let of = |n| done.iter().filter(|d| d.0 == n).map(|d| d.1).collect::<Vec<_>>();
            assert_eq!((of(0), of(1)), (vec![2, 3, 4], vec![1000 + round]), "seed {seed}");
            let read = |side: &Side, at: usize| {
                let mut bytes = vec![0; len];
                side.mr.read(at, &mut bytes);
                bytes
            };
            assert!(read(&sides[1], 0x20000) == data, "seed {seed}: WRITE");
            assert!(read(&sides[0], 0x40000) == data, "seed {seed}: READ");
            assert!(read(&sides[1], 0x10000) == data, "seed {seed}: SEND");
            assert_eq!(sides[0].mr.load_u64(0xf_f000), sum, "seed {seed}: old value");
            sum = sum.wrapping_add(add);
            assert_eq!(sides[1].mr.load_u64(0xf_f000), sum, "seed {seed}: sum");
        }
        model.assert_clean();
        n_troubled += model.faults_done().faults.len();
    }
    assert!(n_troubled > 1000, "only {n_troubled} frames met with trouble");
}
