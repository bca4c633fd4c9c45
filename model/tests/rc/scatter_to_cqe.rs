//! Short messages and answers that go into CQEs instead of memory.

use super::{
    dc,
    operations::fill,
    world::{Setup, World},
    wqe::Wr,
};
use mlx5_direct::{
    cqe::{CqeOpcode, CqeSyndrome},
    wqe::{CompletionMode, SendOpcode},
};
use mlx5_model::exec::{Cqe, QpConfig, Service};

const DATA_32: u8 = 1 << 2;
const DATA_64: u8 = 2 << 2;
const FORMAT: u8 = 3 << 2;

fn setup(cs_req_bytes: usize, cs_res_bytes: usize) -> Setup {
    let qp = QpConfig { cs_req_bytes, cs_res_bytes, ..Setup::default().qp };
    Setup { qp, ..Setup::default() }
}

/// CQEs of a node as they were posted, taken.
fn cqes(world: &mut World, node: usize) -> Vec<Cqe> {
    std::mem::take(&mut world.nodes[node].side.cqes).into_iter().map(|(_, cqe, _)| cqe).collect()
}

/// The data of a CQE, from where libmlx5 copies it by the format (`MLX5_INLINE_SCATTER_32`, `MLX5_INLINE_SCATTER_64`).
fn data(cqe: &Cqe) -> Option<Vec<u8>> {
    let len = u32::from_be_bytes(cqe.bytes[0x2c..0x30].try_into().unwrap()) as usize;
    match cqe.bytes[63] & FORMAT {
        DATA_32 => Some(cqe.bytes[..len].to_vec()),
        DATA_64 => Some(cqe.before.unwrap()[..len].to_vec()),
        _ => None,
    }
}

#[test]
fn a_message_is_in_the_cqe_up_to_its_room_and_in_memory_beyond() {
    for service in [Service::Connected, Service::Unacknowledged] {
        for room in [0usize, 32, 64] {
            for len in [0, 1, 31, 32, 33, 64, 65, 1025] {
                let mut setup = setup(0, room);
                setup.qp.service = service;
                let mut world = World::pair(&setup);
                let sent = fill(&mut world, 0, 0, len);
                world.post_recv(1, 0x8000, 2000);
                world.post(0, &Wr::new(SendOpcode::SEND).local(0, len as u32));
                world.settle();
                let [cqe] = cqes(&mut world, 1)[..] else { panic!("one CQE") };
                let in_cqe = (1..=room).contains(&len);
                assert_eq!(data(&cqe), in_cqe.then(|| sent.clone()), "{len} bytes, room for {room}");
                let in_memory = if in_cqe { vec![0; len] } else { sent };
                assert_eq!(world.nodes[1].side.bytes(0x8000, len), in_memory, "{len} bytes, room for {room}");
                assert_eq!(cqe.before.is_some(), in_cqe && room == 64);
                assert_eq!(&cqe.bytes[0x20..0x24], &[0, 0, 0x40, 0], "what is behind the data stays");
                world.assert_clean();
            }
        }
    }
}

#[test]
fn what_is_written_by_the_peer_is_never_in_the_cqe() {
    let mut world = World::pair(&setup(64, 64));
    let sent = fill(&mut world, 0, 0, 16);
    world.post_recv(1, 0x8000, 64);
    world.post(0, &Wr::new(SendOpcode::RDMA_WRITE_IMM).imm(5).remote(0x9000).local(0, 16));
    world.settle();
    let [cqe] = cqes(&mut world, 1)[..] else { panic!("one CQE") };
    assert_eq!((data(&cqe), world.nodes[1].side.bytes(0x9000, 16)), (None, &sent[..]));
}

#[test]
fn a_message_for_a_shared_queue_and_one_that_does_not_fit_its_wqe() {
    let mut with_srq = setup(0, 32);
    let mut world = World::empty(&with_srq);
    with_srq.qp.shared = Some(world.add_srq(9, 0x99));
    world.connect(&with_srq, (0, 0), (1, 0));
    let sent = fill(&mut world, 0, 0, 20);
    world.post_srq(1, 9, 3, 0x8000, 64);
    world.post(0, &Wr::new(SendOpcode::SEND_IMM).imm(7).local(0, 20));
    world.settle();
    let [cqe] = cqes(&mut world, 1)[..] else { panic!("one CQE") };
    assert_eq!((data(&cqe), &cqe.bytes[0x3c..0x3e]), (Some(sent), &[0, 3][..]));

    let mut world = World::pair(&setup(0, 32));
    world.post_recv(1, 0x8000, 16);
    world.post(0, &Wr::new(SendOpcode::SEND).local(0, 17));
    world.settle();
    let [failed] = world.take_cqes(1)[..] else { panic!("one CQE") };
    assert_eq!(failed.brief(), (CqeOpcode::RESP_ERR, 0, CqeSyndrome::LOCAL_LENGTH_ERR));
}

#[test]
fn answers_are_in_the_cqe_if_there_is_one() {
    for (room, format) in [(32, DATA_32), (64, DATA_64)] {
        let mut world = World::pair(&setup(room, 0));
        let far = fill(&mut world, 1, 0x1000, 65);
        let old = fill(&mut world, 1, 0x2000, 8);
        let read = |len: usize, at| Wr::new(SendOpcode::RDMA_READ).remote(0x1000).local(at, len as u32);
        world.post(0, &read(room, 0));
        world.post(0, &read(room + 1, 0x100));
        world.post(0, &read(8, 0x200).ce(CompletionMode::ONLY_ERR));
        let add = Wr::new(SendOpcode::ATOMIC_FA).remote(0x2000).operands(1, 0).local(0x300, 8);
        world.post(0, &add);
        world.settle();
        let done = cqes(&mut world, 0);
        let formats: Vec<u8> = done.iter().map(|cqe| cqe.bytes[63] & FORMAT).collect();
        assert_eq!(formats, [format, 0, format]);
        assert_eq!(data(&done[0]), Some(far[..room].to_vec()));
        assert_eq!(data(&done[2]), Some(old), "the old value, as it would be in memory");
        let near = |at, len| world.nodes[0].side.bytes(at, len);
        assert_eq!((near(0, room), near(0x300, 8)), (&vec![0; room][..], &[0; 8][..]));
        assert_eq!((near(0x100, room + 1), near(0x200, 8)), (&far[..=room], &far[..8]));
        world.assert_clean();
    }
}

#[test]
fn initiators_of_dc_have_answers_in_cqes_too() {
    let mut world = dc::world_with(|qp| qp.cs_req_bytes = 32);
    let far = fill(&mut world, 1, 0x1000, 24);
    let av = dc::to(&world, dc::dctn(0));
    world.post(0, &Wr::new(SendOpcode::RDMA_READ).at_target(av).remote(0x1000).local(0, 24));
    world.settle();
    let [cqe] = cqes(&mut world, 0)[..] else { panic!("one CQE") };
    assert_eq!(data(&cqe), Some(far));
}
