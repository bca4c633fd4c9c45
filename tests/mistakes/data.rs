//! What the driver does with queues when it makes its mistake. It may fail in any way that is no panic and no hang.

use crate::{
    scene::{N_CQES, Scene, setup},
    support::{Card, SIGNALED, Side, connect},
};
use mlx5_direct::{
    Access, CqAttr, Events,
    backend::QpModify,
    doorbell::DoorbellMode,
    mlx5::context::QpState,
    queue::{Flags, Ud, WindowAccess},
};
use std::time::Duration;

fn settle(card: &Card) {
    while card.step() {}
}

/// Takes what completions there are, at most a lap and one, whatever they are.
fn drain(side: &mut Side) {
    settle(&side.card);
    let mut poll = side.cq.poll();
    for _ in 0..=N_CQES {
        let Some(completion) = poll.next() else { return };
        let _of_nobody = side.qp.retire(&completion);
    }
}

/// Posts `n` writes of 8 inline bytes in one list.
fn writes(scene: &mut Scene, n: u64) {
    let (a, b) = scene.pair();
    let remote = b.remote(0);
    a.post(|list, _| {
        for wr_id in 0..n {
            let Ok(request) = list.rdma_write(wr_id, remote, SIGNALED) else { return };
            request.inline(&[7; 8]).unwrap().finish();
        }
    });
}

pub(crate) fn write(scene: &mut Scene) {
    writes(scene, 1);
}

pub(crate) fn two_writes(scene: &mut Scene) {
    writes(scene, 2);
}

/// One after the other: the third has the register's first half again.
pub(crate) fn three_writes(scene: &mut Scene) {
    (0..3).for_each(|_| writes(scene, 1));
}

pub(crate) fn write_and_end(scene: &mut Scene) {
    writes(scene, 1);
    scene.settle();
    scene.sides = None;
}

/// Over the ring's end.
pub(crate) fn a_lap_of_writes(scene: &mut Scene) {
    let n_wqebbs = scene.pair().0.qp.send_queue().n_wqebbs();
    for _ in 0..=n_wqebbs {
        writes(scene, 1);
        drain(&mut scene.pair().0);
    }
}

pub(crate) fn more_than_a_ring(scene: &mut Scene) {
    let n_wqebbs = scene.pair().0.qp.send_queue().n_wqebbs();
    writes(scene, u64::from(n_wqebbs) + 1);
}

/// To RST and on to INIT.
pub(crate) fn start_again(scene: &mut Scene) {
    writes(scene, 1);
    drain(&mut scene.pair().0);
    let (a, _) = scene.pair();
    a.qp.modify(&QpModify::to(QpState::RST)).unwrap();
    init(a);
}

fn init(side: &mut Side) {
    let access = Some(Access::REMOTE_WRITE);
    let step = QpModify { pkey_index: Some(0), port: Some(1), access, ..QpModify::to(QpState::INIT) };
    let _refused = side.qp.modify(&step);
}

pub(crate) fn nop_in_init(scene: &mut Scene) {
    let setup = setup(DoorbellMode::Doorbell);
    let mut side = Side::new(&scene.card, scene.ctx(), &setup);
    init(&mut side);
    side.post(|list, _| {
        if let Ok(request) = list.nop(1, SIGNALED) {
            request.finish();
        }
    });
    scene.settle();
}

/// With two queue pairs that are made now.
pub(crate) fn write_on_a_new_pair(scene: &mut Scene) {
    let setup = setup(DoorbellMode::Doorbell);
    let [mut a, mut b] = [(); 2].map(|()| Side::new(&scene.card, scene.ctx(), &setup));
    connect(&mut a.qp, &mut b.qp, &setup.connection, &setup.connection);
    scene.sides = Some((a, b));
    writes(scene, 1);
    scene.settle();
}

pub(crate) fn fetch_add(scene: &mut Scene) {
    let (a, b) = scene.pair();
    let remote = b.remote(0);
    a.post(|list, memory| {
        list.fetch_add(1, remote, 1, SIGNALED).unwrap().local(memory, 64).unwrap().finish();
    });
}

pub(crate) fn read_of_31_pieces(scene: &mut Scene) {
    let mut setup = setup(DoorbellMode::Auto);
    setup.init.max_send_sge = 32;
    let [mut a, mut b] = [(); 2].map(|()| Side::new(&scene.card, scene.ctx(), &setup));
    connect(&mut a.qp, &mut b.qp, &setup.connection, &setup.connection);
    let remote = b.remote(0);
    a.post(|list, memory| {
        let mut request = list.rdma_read(1, remote, SIGNALED).unwrap();
        for piece in 0..31 {
            request = request.local(memory, piece * 8..piece * 8 + 8).unwrap();
        }
        request.finish();
    });
    scene.settle();
}

fn send_datagram(scene: &mut Scene, len_bytes: u64) {
    const QKEY: u32 = 0x1111_1111;
    let mut side = Side::<Ud>::of(&scene.card, scene.ctx(), &setup(DoorbellMode::Auto));
    side.qp.activate(1, QKEY).unwrap();
    let own = side.qp.address(1, None).unwrap();
    let to = side.qp.address_handle(&side.qp.address_to(&own).unwrap(), own.qpn, QKEY).unwrap();
    side.post(|list, memory| {
        list.send(1, &to, SIGNALED).unwrap().local(memory, 0..len_bytes).unwrap().finish();
    });
    scene.settle();
}

/// Longer than a packet.
pub(crate) fn datagram(scene: &mut Scene) {
    send_datagram(scene, 8192);
}

pub(crate) fn datagram_within_limits(scene: &mut Scene) {
    send_datagram(scene, 64);
}

pub(crate) fn bind(scene: &mut Scene) {
    let (a, _) = scene.pair();
    let mr = a.pd.alloc_mr(4096, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
    let view = a.qp.bindable(&mr).unwrap().view(0..64, WindowAccess::REMOTE_WRITE);
    let mut mw = a.pd.alloc_mw().unwrap();
    a.post(|list, _| list.bind_mw(1, mw.window(), &view, SIGNALED).unwrap().finish());
    settle(&a.card);
}

/// One message.
pub(crate) fn receive(scene: &mut Scene) {
    let (a, b) = scene.pair();
    b.recv(1, 0..64);
    a.post(|list, _| list.send(2, SIGNALED).unwrap().inline(b"hello").unwrap().finish());
    settle(&a.card);
}

pub(crate) fn receive_does_not_come(scene: &mut Scene) -> bool {
    receive(scene);
    scene.card.advance(Duration::from_millis(50));
    scene.pair().1.cq.poll().next().is_none()
}

pub(crate) fn three_completions(scene: &mut Scene) {
    for _ in 0..3 {
        completion(scene);
    }
}

fn completion(scene: &mut Scene) {
    let (a, _) = scene.pair();
    a.post(|list, _| {
        if let Ok(request) = list.nop(1, SIGNALED) {
            request.finish();
        }
    });
    drain(a);
}

/// Over the end of the completion queue, and one more.
pub(crate) fn a_lap_of_completions(scene: &mut Scene) {
    for _ in 0..N_CQES + 2 {
        completion(scene);
    }
}

/// Armed for one event after the other, of a queue with a channel.
pub(crate) fn arm(scene: &mut Scene) {
    let channel = scene.ctx().create_comp_channel().unwrap();
    let mut side = with_channel(scene, &channel);
    for _ in 0..2 {
        side.post(|list, _| list.nop(1, SIGNALED).unwrap().finish());
        drain(&mut side);
        side.cq.arm(false);
        side.post(|list, _| list.nop(1, SIGNALED).unwrap().finish());
        settle(&side.card);
        if channel.wait(Duration::from_millis(20)).unwrap().is_some() {
            side.cq.event_received();
        }
        drain(&mut side);
    }
}

/// A side, connected to itself, whose completion queue has `channel`.
fn with_channel(scene: &Scene, channel: &mlx5_direct::CompChannel) -> Side {
    let setup = setup(DoorbellMode::Auto);
    let mut side = Side::new(&scene.card, scene.ctx(), &setup);
    let attr = CqAttr { n_cqes: N_CQES, events: Events::Channel(channel), ..CqAttr::default() };
    side.cq = scene.ctx().create_cq(&attr).unwrap();
    side.qp = side.pd.create_qp(&setup.init, &side.cq, &side.cq).unwrap();
    let to_self = side.qp.address(1, None).unwrap();
    side.qp.connect(&to_self, &setup.connection).unwrap();
    side
}

pub(crate) fn second_event_does_not_come(scene: &mut Scene) -> bool {
    let channel = scene.ctx().create_comp_channel().unwrap();
    let mut side = with_channel(scene, &channel);
    let mut events = 0;
    for _ in 0..2 {
        side.cq.arm(false);
        side.post(|list, _| list.nop(1, SIGNALED).unwrap().finish());
        settle(&side.card);
        if channel.wait(Duration::from_millis(50)).unwrap().is_some() {
            side.cq.event_received();
            events += 1;
        }
        drain(&mut side);
    }
    events < 2
}

/// More completion events than their queue holds. The driver looks at none.
pub(crate) fn a_ring_of_events(scene: &mut Scene) {
    let channel = scene.ctx().create_comp_channel().unwrap();
    let mut side = with_channel(scene, &channel);
    for _ in 0..1025 {
        side.cq.arm(false);
        side.post(|list, _| list.nop(1, SIGNALED | Flags::NONE).unwrap().finish());
        drain(&mut side);
        side.cq.event_received();
    }
}
