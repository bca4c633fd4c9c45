//! This driver on the kernel's verbs: libmlx5 makes the queues, and this crate posts to them and polls them.

use crate::{beside_libmlx5, rival::eyes::Queues};
use mlx5_direct::{
    Access, Connection, Context, Cq, CqAttr, Pd, Qp, QpInit,
    backend::verbs::VerbsControl,
    mlx5::ids::Rkey,
    queue::{Flags, Remote, RemoteSrq, WindowAccess},
    wqe::SendOpcode,
};

#[test]
fn queues_that_libmlx5_made_take_our_posts_and_polls() {
    beside_libmlx5("ours::queues_that_libmlx5_made_take_our_posts_and_polls", |_| {
        let (context, pd, mut cq, mut qp) = connected();
        let mut queues = Queues::newest().expect("the library saw a queue pair made");
        assert_eq!(queues.qpn(), qp.qpn().get());
        let remote = Remote { addr: 0x1000, rkey: Rkey::new(0x700) };
        let mut index = 0u16;
        // Several laps of both rings.
        for wr_id in 0..5000 {
            let mut list = qp.post_list();
            list.rdma_write(wr_id, remote, Flags::SIGNALED).unwrap().inline(&[7; 60]).unwrap().finish();
            let n_wqebbs = list.n_wqebbs() as u16;
            list.ring();
            assert_eq!(queues.send_counter(), index.wrapping_add(n_wqebbs), "the record that libmlx5 made");
            queues.complete(index, SendOpcode::RDMA_WRITE);
            index = index.wrapping_add(n_wqebbs);
            let mut done = cq.poll();
            let completion = done.next().expect("the CQE in the ring that libmlx5 made");
            completion.status().unwrap();
            assert_eq!(qp.retire(&completion).unwrap().wr_id, wr_id);
        }
        drop((qp, cq, pd));
        context.close().expect("everything given back");
    });
}

/// The kernel makes the window, through libmlx5, which would bind it; our queue does.
#[test]
fn windows_that_libmlx5_made_are_bound_by_us() {
    beside_libmlx5("ours::windows_that_libmlx5_made_are_bound_by_us", |_| {
        let (context, pd, mut cq, mut qp) = connected();
        let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE | Access::MW_BIND).expect("memory");
        let memory = qp.bindable(&mr).expect("memory that windows may be bound to");
        let (mut mw, other) = (pd.alloc_mw().expect("a window"), pd.alloc_mw().expect("another"));
        assert_ne!(mw.rkey(), other.rkey());
        let mut queues = Queues::newest().expect("the library saw a queue pair made");
        let mut index = 0;
        for wr_id in 0..1000 {
            let rkey = mw.rkey();
            let mut list = qp.post_list();
            let view = memory.view(0..64, WindowAccess::REMOTE_READ);
            list.bind_mw(wr_id, mw.window(), &view, Flags::SIGNALED).unwrap().finish();
            list.ring();
            assert_eq!(mw.rkey().get(), rkey.get() & !0xff | rkey.get().wrapping_add(1) & 0xff);
            assert_eq!(queues.send_counter(), index + 3);
            queues.complete(index, SendOpcode::UMR);
            index += 3;
            assert_eq!(qp.retire(&cq.poll().next().expect("a CQE")).unwrap().wr_id, wr_id);
        }
        drop((mw, other, mr, qp, cq, pd));
        context.close().expect("everything given back");
    });
}

/// An initiator whose ring is libmlx5's, through every place of it.
#[test]
fn initiators_that_libmlx5_made_take_our_posts() {
    beside_libmlx5("ours::initiators_that_libmlx5_made_take_our_posts", |_| {
        let context = Context::on(VerbsControl::open("mlx5_0").expect("the pretend device"));
        let pd = context.alloc_pd().expect("a protection domain");
        let mut cq = context.create_cq(&CqAttr::default()).expect("a completion queue");
        let mut qp = pd.create_xrc_qp(&QpInit::default(), &cq).expect("an initiator");
        let how = Connection::default();
        let own = qp.address(how.port, how.gid_index).expect("an address");
        qp.connect(&own, &how).expect("RTS");
        let mut queues = Queues::newest().expect("the library saw it made");
        let mut index = 0u16;
        for wr_id in 0..1000 {
            let mut list = qp.post_list();
            let send = list.send(wr_id, RemoteSrq::new(9), Flags::SIGNALED).unwrap();
            send.inline(&[7; 33]).unwrap().finish();
            let n_wqebbs = list.n_wqebbs() as u16;
            list.ring();
            assert_eq!(queues.send_counter(), index.wrapping_add(n_wqebbs));
            queues.complete(index, SendOpcode::SEND);
            index = index.wrapping_add(n_wqebbs);
            assert_eq!(qp.retire(&cq.poll().next().expect("a CQE")).unwrap().wr_id, wr_id);
        }
        drop((qp, cq, pd));
        context.close().expect("everything given back");
    });
}

/// A queue pair of the pretend device, ready to send.
fn connected() -> (Context, Pd, Cq, Qp) {
    let context = Context::on(VerbsControl::open("mlx5_0").expect("the pretend device"));
    let pd = context.alloc_pd().expect("a protection domain");
    let cq = context.create_cq(&CqAttr { n_cqes: 16, ..CqAttr::default() }).expect("a completion queue");
    let mut qp = pd.create_qp(&QpInit::default(), &cq, &cq).expect("a queue pair");
    let how = Connection::default();
    let own = qp.address(how.port, how.gid_index).expect("an address");
    qp.connect(&own, &how).expect("RTS");

    (context, pd, cq, qp)
}
