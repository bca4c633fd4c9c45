//! Memory windows end to end: one end opens part of its memory by a request in its send queue, the other reaches it.

use crate::support::*;
use mlx5_direct::{
    Access, Error, Mr, Mw,
    cqe::{CqeOpcode, CqeSyndrome},
    queue::{Bindable, Flags, PostError, QueueId, Remote, Uc, View, WindowAccess},
};

const WRITE: WindowAccess = WindowAccess::REMOTE_WRITE;
const READ: WindowAccess = WindowAccess::REMOTE_READ;
const ATOMIC: WindowAccess = WindowAccess::REMOTE_ATOMIC;
const ZERO_BASED: WindowAccess = WindowAccess::ZERO_BASED;

/// Two connected sides, of which `b` has memory that no peer has a key of, and a window.
struct World {
    pair: Pair,
    mr: Mr,
    memory: Bindable,
    mw: Mw,
}

impl World {
    /// With memory that its owner may write.
    fn new() -> Self {
        Self::of(Access::LOCAL_WRITE)
    }

    fn of(access: Access) -> Self {
        let mut pair = Pair::new("ports=2");
        let mr = pair.b.pd.alloc_mr(8192, access | Access::MW_BIND).unwrap();
        let memory = pair.b.qp.bindable(&mr).unwrap();
        let mw = pair.b.pd.alloc_mw().unwrap();
        Self { pair, mr, memory, mw }
    }

    fn bind(&mut self, view: &View) {
        let window = self.mw.window();
        self.pair.b.post(|list, _| {
            list.bind_mw(7, window, view, SIGNALED).unwrap().finish();
        });
        assert_eq!(self.pair.b.ok().wr_id, 7);
    }

    /// Bound to bytes 1000 to 5000.
    fn open(access: WindowAccess) -> Self {
        let mut world = Self::new();
        world.bind(&world.memory.view(1000..5000, access));
        world
    }

    /// Byte `offset` of the memory, by the window.
    fn remote(&self, offset: u64) -> Remote {
        self.mw.remote(self.mr.addr() + offset)
    }

    fn write(&mut self, remote: Remote, len: u64) {
        self.pair.a.mr.write(0, &pattern(9, len as usize));
        self.pair.a.post(|list, memory| {
            list.rdma_write(1, remote, SIGNALED).unwrap().local(memory, 0..len).unwrap().finish();
        });
    }

    fn read(&mut self, remote: Remote, len: u64) {
        self.pair.a.post(|list, memory| {
            list.rdma_read(1, remote, SIGNALED).unwrap().local(memory, 0..len).unwrap().finish();
        });
    }

    fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.mr.read(offset, &mut bytes);
        bytes
    }

    #[track_caller]
    fn assert_refused(mut self) {
        assert_eq!(self.pair.a.fails().syndrome, CqeSyndrome::REMOTE_ACCESS_ERR);
    }
}

#[test]
fn j4_mw_type1_type2_opens_a_part_of_memory() {
    let mut world = World::open(WRITE | READ | ATOMIC);
    // Up to both ends, and no byte beside.
    world.write(world.remote(1000), 4000);
    world.pair.a.ok();
    assert_eq!(world.bytes(1000, 4000), pattern(9, 4000));
    assert_eq!((world.bytes(999, 1), world.bytes(5000, 1)), (vec![0], vec![0]));
    world.read(world.remote(4000), 1000);
    world.pair.a.ok();
    assert_eq!(world.pair.a.bytes(0, 1000), pattern(9, 4000)[3000..]);
    world.mr.store_u64(2000, 40);
    let remote = world.remote(2000);
    world.pair.a.post(|list, memory| {
        list.fetch_add(2, remote, 2, SIGNALED).unwrap().local(memory, 0).unwrap().finish();
    });
    world.pair.a.ok();
    assert_eq!((world.pair.a.mr.load_u64(0), world.mr.load_u64(2000)), (40, 42));
}

#[test]
fn j4_mw_type1_type2_refuses_what_is_out_of_range() {
    for (offset, len) in [(999, 1), (4999, 2), (5000, 1), (0, 8192)] {
        let mut world = World::open(WRITE);
        world.write(world.remote(offset), len);
        world.assert_refused();
    }
}

#[test]
fn j4_mw_type1_type2_has_rights_of_its_own() {
    // What the window does not open.
    for access in [READ | ATOMIC, ATOMIC, ZERO_BASED] {
        let mut world = World::open(access);
        world.write(world.remote(1000), 8);
        world.assert_refused();
    }
    let mut world = World::open(WRITE | ATOMIC);
    world.read(world.remote(1000), 8);
    world.assert_refused();
    // Narrower than those of the memory's own key.
    let mut world = World::of(ALL);
    world.bind(&world.memory.view(0..8192, READ));
    world.write(world.mr.remote(0), 8);
    world.pair.a.ok();
    world.write(world.remote(0), 8);
    world.assert_refused();
    // No wider than what the owner may do: opened, but nothing is written.
    let mut world = World::of(Access::LOCAL_READ);
    world.bind(&world.memory.view(0..8192, WRITE | READ));
    world.read(world.remote(0), 8);
    world.pair.a.ok();
    world.write(world.remote(0), 8);
    world.assert_refused();
}

#[test]
fn j4_mw_type1_type2_counts_from_0() {
    let mut world = World::open(WRITE | ZERO_BASED);
    world.write(world.mw.remote(0), 4000);
    world.pair.a.ok();
    assert_eq!(world.bytes(1000, 4000), pattern(9, 4000));
    world.write(world.remote(1000), 8);
    world.assert_refused();
}

#[test]
fn j4_mw_type1_type2_is_closed_by_its_owner() {
    let mut world = World::open(WRITE);
    let rkey = world.mw.rkey();
    world.pair.b.post(|list, _| {
        list.local_inv(1, rkey, SIGNALED).unwrap().finish();
    });
    world.pair.b.ok();
    // Opened anew: under another name, elsewhere. The old one stays closed.
    world.bind(&world.memory.view(0..100, WRITE));
    assert_ne!(world.mw.rkey(), rkey);
    world.write(world.remote(0), 100);
    world.pair.a.ok();
    assert_eq!(world.bytes(0, 100), pattern(9, 100));
    world.write(Remote { rkey, ..world.remote(1000) }, 8);
    world.assert_refused();
}

#[test]
fn j4_mw_type1_type2_is_closed_by_its_peer() {
    let mut world = World::open(WRITE);
    let rkey = world.mw.rkey();
    world.pair.b.recv(4, 0..16);
    world.pair.a.post(|list, _| {
        list.send_inval(1, rkey, SIGNALED).unwrap().inline(b"done").unwrap().finish();
    });
    world.pair.a.ok();
    let got = world.pair.b.ok();
    assert_eq!((got.opcode, got.invalidated_rkey), (CqeOpcode::RESP_SEND_INV, Some(rkey.get())));
    // It can be bound at once.
    world.bind(&world.memory.view(0..100, WRITE));
    world.write(world.remote(0), 100);
    world.pair.a.ok();
    world.write(Remote { rkey, ..world.remote(1000) }, 8);
    world.assert_refused();
}

/// Bound, told of and used without a pause; and so 300 times, past the wrap of its names.
#[test]
fn j4_mw_type1_type2_follows_the_order_of_its_queue() {
    let mut world = World::new();
    for round in 0..300u32 {
        let view = world.memory.view(u64::from(round)..u64::from(round) + 8, WRITE | ZERO_BASED);
        world.pair.a.recv(round.into(), 0..16);
        world.pair.b.recv(round.into(), 0..16);
        let World { pair, mw, .. } = &mut world;
        pair.b.post(|list, _| {
            list.bind_mw(1, mw.window(), &view, Flags::NONE).unwrap().finish();
            let rkey = mw.rkey().get().to_be_bytes();
            let told = list.send(2, SIGNALED | Flags::AFTER_INVALIDATE).unwrap();
            told.inline(&rkey).unwrap().finish();
        });
        assert_eq!(pair.a.ok().byte_len, 4);
        let told: [u8; 4] = pair.a.bytes(0, 4).try_into().unwrap();
        assert_eq!(u32::from_be_bytes(told), mw.rkey().get());
        let data = pattern(round.into(), 8);
        let remote = mw.remote(0);
        pair.a.post(|list, _| {
            list.rdma_write(1, remote, Flags::NONE).unwrap().inline(&data).unwrap().finish();
            list.send_inval(2, remote.rkey, SIGNALED).unwrap().finish();
        });
        let n_receives = [pair.b.ok(), pair.b.ok()].iter().filter(|done| !done.is_send).count();
        assert_eq!(n_receives, 1);
        pair.a.ok();
        assert_eq!(world.bytes(round as usize, 8), data);
    }
}

#[test]
fn j4_mw_type1_type2_is_bound_while_it_is_free_only() {
    let mut world = World::open(WRITE);
    let view = world.memory.view(0..8, WRITE);
    let window = world.mw.window();
    world.pair.b.post(|list, _| list.bind_mw(1, window, &view, SIGNALED).unwrap().finish());
    assert_eq!(world.pair.b.fails().syndrome, CqeSyndrome::MW_BIND_ERR);
    // One that is closed cannot be closed. A function is opened by one context at a time.
    drop(world);
    let mut world = World::new();
    let rkey = world.mw.rkey();
    world.pair.a.post(|list, _| list.send_inval(1, rkey, SIGNALED).unwrap().finish());
    world.pair.b.recv(1, 0..8);
    assert_eq!(world.pair.a.fails().syndrome, CqeSyndrome::REMOTE_ACCESS_ERR);
}

/// It is of the queue pair that bound it: others of its protection domain have no part in it. And one that is dropped is
/// closed.
#[test]
fn j4_mw_type1_type2_has_one_queue_pair() {
    let mut world = World::open(WRITE);
    let setup = Setup::default();
    let (a, b) = (&world.pair.a, &world.pair.b);
    let mut others = (Side::new(&a.card, &a.ctx, &setup), Side::new(&b.card, &b.ctx, &setup));
    let mut in_pd = b.pd.create_qp(&setup.init, &others.1.cq, &others.1.cq).unwrap();
    connect(&mut others.0.qp, &mut in_pd, &setup.connection, &setup.connection);
    let remote = world.remote(1000);
    others.0.post(|list, _| {
        list.rdma_write(1, remote, SIGNALED).unwrap().inline(b"x").unwrap().finish();
    });
    assert_eq!(others.0.fails().syndrome, CqeSyndrome::REMOTE_ACCESS_ERR);

    world.write(remote, 8);
    world.pair.a.ok();
    let World { mut pair, mw, .. } = world;
    drop(mw);
    pair.a.post(|list, _| {
        list.rdma_write(1, remote, SIGNALED).unwrap().inline(b"x").unwrap().finish();
    });
    assert_eq!(pair.a.fails().syndrome, CqeSyndrome::REMOTE_ACCESS_ERR);
}

#[test]
fn j4_mw_type1_type2_over_an_unreliable_connection() {
    let mut pair = Pair::<Uc>::of("ports=2", &Setup::default(), &Setup::default());
    let mr = pair.b.pd.alloc_mr(64, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
    let memory = pair.b.qp.bindable(&mr).unwrap();
    let mut mw = pair.b.pd.alloc_mw().unwrap();
    let view = memory.view(0..64, WRITE | ZERO_BASED);
    pair.b.post(|list, _| list.bind_mw(1, mw.window(), &view, SIGNALED).unwrap().finish());
    pair.b.ok();
    pair.b.recv(1, 0..0);
    let remote = mw.remote(8);
    pair.a.post(|list, _| {
        list.rdma_write_imm(1, remote, 5, SIGNALED).unwrap().inline(b"written").unwrap().finish();
    });
    pair.a.ok();
    pair.b.ok();
    let mut bytes = [0; 7];
    mr.read(8, &mut bytes);
    assert_eq!(&bytes, b"written");
}

#[test]
fn j4_mw_type1_type2_refused_before_the_device_is_asked() {
    let mut world = World::new();
    // Memory that windows may not be bound to.
    let plain = world.pair.b.pd.alloc_mr(64, ALL).unwrap();
    let Err(Error::InvalidArgument(text)) = world.pair.b.qp.bindable(&plain) else { panic!("bindable") };
    assert!(text.contains("MW_BIND"), "{text}");
    // Another queue pair's memory, and views of too much or of nothing. The window keeps its name.
    let rkey = world.mw.rkey();
    let foreign = world.pair.a.pd.alloc_mr(64, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
    let foreign = world.pair.a.qp.bindable(&foreign).unwrap();
    // SAFETY: never posted.
    let nobody = unsafe { Bindable::new(QueueId::next(), plain.lkey(), plain.addr(), 64) };
    let memory = world.memory;
    for (view, error) in [
        (foreign.view(0..64, WRITE), PostError::NotLeased),
        (nobody.view(0..64, WRITE), PostError::NotLeased),
        (memory.view(0..8193, WRITE), PostError::OutOfRange),
        (memory.view(8..8, WRITE), PostError::OutOfRange),
    ] {
        let window = world.mw.window();
        world.pair.b.post(|list, _| {
            assert_eq!(list.bind_mw(1, window, &view, SIGNALED).err(), Some(error));
            assert_eq!(list.n_wqebbs(), 0);
        });
        assert_eq!(world.mw.rkey(), rkey);
    }
    // Three WQEBBs are needed.
    let n_wqebbs = world.pair.b.qp.send_queue().n_wqebbs();
    let (view, window) = (memory.view(0..64, WRITE), world.mw.window());
    world.pair.b.post(|list, _| {
        for wr_id in 0..u64::from(n_wqebbs) - 2 {
            list.nop(wr_id, Flags::NONE).unwrap().finish();
        }
        assert_eq!(list.bind_mw(1, window, &view, SIGNALED).err(), Some(PostError::QueueFull));
        list.nop(99, SIGNALED).unwrap().finish();
    });
    assert_eq!((world.pair.b.ok().wr_id, world.mw.rkey()), (99, rkey));
    world.pair.b.assert_quiet();
}

#[test]
fn j4_mw_type1_type2_made_and_ended_many_times() {
    let pair = Pair::new("ports=2");
    for _ in 0..1000 {
        let windows: Vec<_> = (0..4).map(|_| pair.b.pd.alloc_mw().unwrap()).collect();
        assert!(windows.iter().enumerate().all(|(i, a)| windows[..i].iter().all(|b| a.rkey() != b.rkey())));
    }
    // It holds its domain.
    let pd = pair.b.ctx.alloc_pd().unwrap();
    let mw = pd.alloc_mw().unwrap();
    let (pd, error) = pd.dealloc().unwrap_err();
    assert!(error.to_string().contains("1 objects"), "{error}");
    drop(mw);
    pd.dealloc().map_err(|(_, error)| error).unwrap();
}
