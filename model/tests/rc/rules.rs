//! The rules that the engine names when they are broken.

use super::{
    errors::syndromes,
    world::{Setup, World, qpn},
    wqe::Wr,
};
use mlx5_direct::{
    cqe::{CqeOpcode, CqeSyndrome},
    wqe::{CompletionMode, SendOpcode},
};
use mlx5_model::exec::{QpConfig, QpState, Rule};

#[test]
fn every_broken_wqe_is_named() {
    let number = qpn(0, 0);
    let good = Wr::new(SendOpcode::RDMA_WRITE).remote(0).local(0, 8);
    let inline = Wr::new(SendOpcode::SEND).inline(&[0; 20]);
    let read = Wr::new(SendOpcode::RDMA_READ).remote(0);
    let atomic = Wr::new(SendOpcode::ATOMIC_FA).remote(0).operands(0, 0);
    let set = |wr: &Wr, changes: &[(usize, u8)]| {
        let (wr, changes) = (wr.clone(), changes.to_vec());
        move |index: u16| {
            let mut bytes = wr.bytes(index, number);
            for (at, value) in changes {
                bytes[at] = value;
            }
            bytes
        }
    };
    type Wqe = Box<dyn FnOnce(u16) -> Vec<u8>>;
    let cases: Vec<(Rule, Wqe)> = vec![
        (Rule::WqeOpcode, Box::new(set(&good, &[(3, 0x0e)]))),
        (Rule::WqeOpcode, Box::new(set(&good, &[(3, 0x7f)]))),
        (Rule::WqeOpmod, Box::new(set(&good, &[(0, 1)]))),
        (Rule::WqeIndex, Box::new(set(&good, &[(1, 0x80)]))),
        (Rule::WqeQpn, Box::new(set(&good, &[(6, 0x77)]))),
        (Rule::WqeReserved, Box::new(set(&good, &[(7, 0x43)]))),
        (Rule::WqeReserved, Box::new(set(&good, &[(11, 0x09)]))),
        (Rule::WqeReserved, Box::new(set(&good, &[(28, 1)]))),
        (Rule::WqeReserved, Box::new(set(&inline, &[(17, 1)]))),
        (Rule::WqeFlags, Box::new(set(&good, &[(11, 0xa8)]))),
        (Rule::DsTooSmall, Box::new(set(&good, &[(7, 0)]))),
        (Rule::DsTooSmall, Box::new(set(&good, &[(7, 1)]))),
        (Rule::DsTooSmall, Box::new(set(&atomic, &[(7, 2)]))),
        (Rule::DsTooSmall, Box::new(set(&inline, &[(7, 2)]))),
        (Rule::WqeBeyondDoorbell, Box::new(set(&good, &[(7, 9)]))),
        (Rule::WqeInline, Box::new(set(&read.inline(&[0; 4]), &[]))),
        (Rule::AtomicLength, Box::new(set(&atomic, &[]))),
        (Rule::AtomicLength, Box::new(set(&atomic.clone().local(0, 16), &[]))),
    ];
    for (rule, wqe) in cases {
        let mut world = World::pair(&Setup::default());
        world.place(0, 0, wqe);
        world.ring(0, 0);
        world.settle();
        let rules: Vec<Rule> = world.nodes[0].side.violations.iter().map(|v| v.0).collect();
        assert_eq!(rules, [rule]);
        let failed = world.take_cqes(0);
        assert_eq!(syndromes(&failed), [(0, CqeSyndrome::LOCAL_QP_OP_ERR)], "{rule}");
    }
}

/// Drivers that write no more of a control segment than they use leave the rest as the ring had it.
#[test]
fn what_the_queue_has_no_use_for_may_be_anything() {
    let good = Wr::new(SendOpcode::RDMA_WRITE).remote(0).local(0, 8);
    let mut world = World::pair(&Setup::default());
    world.place(0, 0, |index| {
        let mut bytes = good.bytes(index, qpn(0, 0));
        // Signature, stream, immediate.
        bytes[8..11].fill(0xee);
        bytes[12..16].fill(0xee);
        bytes
    });
    world.ring(0, 0);
    world.settle();
    assert_eq!(world.nodes[0].side.violations.len(), 0);
    let opcodes: Vec<_> = world.take_cqes(0).iter().map(|cqe| cqe.opcode).collect();
    assert_eq!(opcodes, [CqeOpcode::REQ]);
}

#[test]
fn misused_queues_are_named() {
    let rules = |world: &World, node: usize| -> Vec<Rule> {
        world.nodes[node].side.violations.iter().map(|v| v.0).collect()
    };
    // A counter more than a ring ahead of what software knows to be done.
    let mut world = World::pair(&Setup::default());
    let silent = Wr::new(SendOpcode::RDMA_WRITE).remote(0).local(0, 8).ce(CompletionMode::ONLY_ERR);
    for _ in 0..64 {
        world.post(0, &silent);
    }
    world.settle();
    assert_eq!(rules(&world, 0), []);
    world.post(0, &silent);
    assert_eq!(rules(&world, 0), [Rule::SendQueueOverrun], "no CQE, so no slot is free");

    let mut world = World::pair(&Setup::default());
    for _ in 0..17 {
        world.post_recv(1, 0, 8);
    }
    world.post(0, &Wr::new(SendOpcode::SEND).local(0, 8));
    world.settle();
    assert_eq!(rules(&world, 1), [Rule::ReceiveQueueOverrun]);

    let mut world = World::pair(&Setup::default());
    let config = *world.nodes[0].qps[&qpn(0, 0)].config();
    let node = &mut world.nodes[0];
    let qp = node.qps.get_mut(&qpn(0, 0)).unwrap();
    qp.set_state(&mut node.side, QpState::Rst, config);
    qp.set_state(&mut node.side, QpState::Init, config);
    world.post(0, &silent);
    assert_eq!(rules(&world, 0), [Rule::DoorbellState]);

    let mut setup = Setup::default();
    setup.qp.path.gid_index = 3;
    let mut world = World::pair(&setup);
    world.post(0, &silent);
    world.settle();
    assert_eq!(rules(&world, 0), [Rule::SourceAddressEmpty]);
    assert_eq!(syndromes(&world.take_cqes(0)), [(0, CqeSyndrome::TRANSPORT_RETRY_EXC_ERR)]);

    let setup =
        Setup { qp: QpConfig { max_outstanding_reads: 0, ..Setup::default().qp }, ..Setup::default() };
    let mut world = World::pair(&setup);
    world.post(0, &Wr::new(SendOpcode::RDMA_READ).remote(0).local(0, 8));
    world.settle();
    assert_eq!(rules(&world, 0), [Rule::NoReadResources]);
}
