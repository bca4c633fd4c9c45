//! Protection domains and memory regions: who may reach which byte. Cases of group B.

use crate::support::*;
use mlx5_direct::{
    Access, Connection, Context, Error, Mr, RawMr,
    backend::prm::{OpenOptions, PrmControl},
    cqe::CqeSyndrome,
    mlx5::{
        context::QpState,
        ids::{Lkey, Rkey},
    },
    queue::{Remote, Sge},
};
use mlx5_model::{Rule, trace::Kind};
use std::{collections::HashSet, ptr::NonNull};

/// Brings both queue pairs of a pair back to RTS after a failure; what they had outstanding is taken first.
fn mend(pair: &mut Pair) {
    for side in [&mut pair.a, &mut pair.b] {
        side.assert_quiet();
        side.qp.modify(&mlx5_direct::backend::QpModify::to(QpState::RST)).unwrap();
    }
    connect(&mut pair.a.qp, &mut pair.b.qp, &Connection::default(), &Connection::default());
}

/// Memory that the test owns and lends, page after page, with room around it.
struct Lent {
    bytes: memmap2::MmapRaw,
}

impl Lent {
    fn new(len_bytes: usize) -> Self {
        Self { bytes: memmap2::MmapOptions::new().len(len_bytes).map_anon().unwrap().into() }
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        NonNull::new(self.bytes.as_mut_ptr().wrapping_add(offset)).unwrap()
    }

    /// Registers `len` bytes at `offset`.
    fn register(&self, side: &Side, offset: usize, len: usize, access: Access) -> RawMr {
        assert!(offset + len <= self.bytes.len());
        // SAFETY: the memory outlives the registration: every test drops that first. No reference to it is made.
        unsafe { side.pd.reg_mr(self.at(offset), len, access) }.unwrap()
    }

    fn get(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.bytes.len());
        // SAFETY: inside the mapping. Copied while no request is under way.
        (0..len).map(|i| unsafe { self.at(offset + i).read_volatile() }).collect()
    }

    fn set(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.bytes.len());
        for (i, byte) in bytes.iter().enumerate() {
            // SAFETY: as above.
            unsafe { self.at(offset + i).write_volatile(*byte) };
        }
    }
}

#[test]
fn b1_pd_alloc_free_many() {
    let card = card("ports=1");
    let control = card.control(0);
    let ctx = Context::on(control.clone());
    let pds: Vec<_> = (0..1000).map(|_| ctx.alloc_pd().unwrap()).collect();
    let numbers: HashSet<_> = pds.iter().map(|pd| pd.pdn()).collect();
    assert_eq!(numbers.len(), 1000);
    for pd in pds {
        pd.dealloc().map_err(|(_, error)| error).unwrap();
    }
    // One in use is refused, and still there.
    let pd = ctx.alloc_pd().unwrap();
    let pdn = pd.pdn();
    let mr = pd.alloc_mr(64, ALL).unwrap();
    let (pd, refused) = pd.dealloc().unwrap_err();
    assert!(refused.to_string().contains("still use it"), "{refused}");
    // The device says so too, if it is asked past the types; of verbs, their table of objects.
    let refused = control.dealloc_pd(pdn).unwrap_err();
    let is_of_device = matches!(refused, Error::Command { .. });
    assert!(is_of_device || card.is_verbs() && refused.to_string().contains("in use"), "{refused}");
    card.assert_broken(Rule::ObjectInUse);
    drop(mr);
    pd.dealloc().map_err(|(_, error)| error).unwrap();
    // Twice: `dealloc` takes the domain, so that only the control path can be asked again.
    let refused = control.dealloc_pd(pdn).unwrap_err();
    assert!(
        matches!(refused, Error::InvalidArgument(_)) && refused.to_string().contains("destroyed"),
        "{refused}"
    );
    card.assert_clean();
}

/// Checks that a peer reaches every byte of `remote`, and neither the one before nor the one after.
fn assert_reaches_exactly(pair: &mut Pair, remote: Remote, len: u64, seed: u64) {
    let data = pattern(seed, len as usize);
    let chunk = pair.a.mr.len_bytes() as u64 / 2;
    for start in (0..len).step_by(chunk as usize) {
        let part = &data[start as usize..(start + chunk).min(len) as usize];
        pair.a.mr.write(0, part);
        let place = Remote { addr: remote.addr + start, ..remote };
        let part_len = part.len() as u64;
        pair.a.post(|list, memory| {
            list.rdma_write(1, place, SIGNALED).unwrap().local(memory, 0..part_len).unwrap().finish();
            list.rdma_read(2, place, SIGNALED)
                .unwrap()
                .local(memory, chunk..chunk + part_len)
                .unwrap()
                .finish();
        });
        pair.a.ok();
        pair.a.ok();
        assert!(pair.a.bytes(chunk as usize, part.len()) == part, "{len} bytes, from {start}");
    }
    for outside in [remote.addr.wrapping_sub(1), remote.addr + len] {
        let place = Remote { addr: outside, ..remote };
        pair.a.post(|list, memory| {
            list.rdma_write(3, place, SIGNALED).unwrap().local(memory, 0..1).unwrap().finish();
        });
        assert_eq!(pair.a.fails().syndrome, CqeSyndrome::REMOTE_ACCESS_ERR, "at {outside:#x}");
        mend(pair);
    }
    // Over the end, from inside.
    let place = Remote { addr: remote.addr + len - 1, ..remote };
    pair.a.post(|list, memory| {
        list.rdma_write(3, place, SIGNALED).unwrap().local(memory, 0..2).unwrap().finish()
    });
    assert_eq!(pair.a.fails().syndrome, CqeSyndrome::REMOTE_ACCESS_ERR);
    mend(pair);
}

#[test]
fn b2_mr_register_sizes_alignments() {
    let mut pair = Pair::new("ports=2");
    let lent = Lent::new(3 << 20);
    for (seed, (offset, len)) in [
        (4096, 1),
        (4096 + 4095, 1),
        (4096 + 4095, 2),
        (4096, 4096),
        (4096 + 1, 4095),
        (4096 + 1, 4096),
        (4096 + 17, 12_345),
        (4096 * 3 - 1, 65_538),
        ((1 << 20) - 3, (1 << 20) + 7),
    ]
    .into_iter()
    .enumerate()
    {
        lent.set(offset - 64, &[0x5a; 64]);
        lent.set(offset + len, &[0x5a; 64]);
        let mr = lent.register(&pair.b, offset, len, ALL);
        assert_eq!((mr.len_bytes(), mr.addr()), (len, lent.at(offset).addr().get() as u64));
        assert_reaches_exactly(&mut pair, mr.remote(0), len as u64, seed as u64);
        assert!(lent.get(offset, len) == pattern(seed as u64, len));
        assert_eq!((lent.get(offset - 64, 64), lent.get(offset + len, 64)), (vec![0x5a; 64], vec![0x5a; 64]));
    }
    // Of the crate's own memory, where no length is rounded up either.
    for len in [1, 63, 64, 4095, 4096, 4097, 100_000] {
        let mr = pair.b.pd.alloc_mr(len, ALL).unwrap();
        assert_eq!(mr.len_bytes(), len);
        assert_reaches_exactly(&mut pair, mr.remote(0), len as u64, len as u64);
    }
    // Huge pages, if the system has any in reserve; if not, it is said which.
    match pair.b.pd.alloc_huge_mr(3 << 20, ALL) {
        Ok(mr) => assert_reaches_exactly(&mut pair, mr.remote(0), 3 << 20, 2),
        Err(error) => assert!(error.to_string().contains("vm.nr_hugepages"), "{error}"),
    }
    for refused in [pair.b.pd.alloc_mr(0, ALL).map(|_| ()), register_nothing(&pair.b, &lent).map(|_| ())] {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, Error::InvalidArgument(_)), "{refused}");
    }
}

fn register_nothing(side: &Side, lent: &Lent) -> mlx5_direct::Result<RawMr> {
    // SAFETY: no byte.
    unsafe { side.pd.reg_mr(lent.at(0), 0, ALL) }
}

#[test]
fn b2_mr_register_one_gib() {
    needs!(Need::MemoryMib(2048));
    let mut pair = Pair::new("ports=2");
    let (offset, len) = (4096 - 5, (1 << 30) + 11);
    let lent = Lent::new(offset + len + 4096);
    let mr = lent.register(&pair.b, offset, len, ALL);
    // Here and there, at the ends, and where device pages of any size meet.
    for place in [0, 4, 5, (1 << 20) + 3, (1 << 29) - 4, (1 << 30) - 9, len - 8] {
        let data = pattern(place as u64, 8);
        let remote = mr.remote(place);
        pair.a.post(|list, _| list.rdma_write(1, remote, SIGNALED).unwrap().inline(&data).unwrap().finish());
        pair.a.ok();
        assert_eq!(lent.get(offset + place, 8), data, "at {place}");
    }
    let beyond = mr.remote(len - 7);
    pair.a.post(|list, _| list.rdma_write(1, beyond, SIGNALED).unwrap().inline(&[0xee; 8]).unwrap().finish());
    assert_eq!(pair.a.fails().syndrome, CqeSyndrome::REMOTE_ACCESS_ERR);
    assert_eq!(lent.get(offset + len, 8), [0; 8]);
    drop(mr);
}

#[test]
fn b3_mr_bad_flags() {
    needs!(Need::Model);
    let card = card("ports=1");
    let pd = open(&card, 0).alloc_pd().unwrap();
    card.model().trace().keep(1000);
    let n_commands =
        || card.model().trace().records().iter().filter(|record| record.kind == Kind::CommandIn).count();
    let before = n_commands();
    for (flags, says) in [
        (Access::REMOTE_WRITE, "LOCAL_WRITE"),
        (Access::REMOTE_ATOMIC, "LOCAL_WRITE"),
        (Access::REMOTE_WRITE | Access::REMOTE_READ, "LOCAL_WRITE"),
        (Access(1 << 5), "0x20"),
        (ALL | Access(1 << 31), "0x80000000"),
        (Access(1 << 7), "0x80"),
    ] {
        let refused = pd.alloc_mr(4096, flags).unwrap_err();
        assert!(matches!(refused, Error::InvalidArgument(_)), "{refused}");
        assert!(refused.to_string().contains(says), "{flags:?}: {refused}");
    }
    assert_eq!(n_commands(), before, "refused before any command");
    // Every other combination is right.
    for bits in 0..16 {
        let flags = Access(bits);
        if flags.contains(Access::LOCAL_WRITE) || bits & 0b1010 == 0 {
            pd.alloc_mr(4096, flags).unwrap();
        }
    }
    assert!(n_commands() > before);
    card.assert_clean();
}

/// What a local check stands in the way of.
#[derive(Debug, Clone, Copy)]
enum Local {
    Send,
    Write,
    Read,
    Atomic,
    Recv,
}

/// Has `pair.a` use `sge` for `what`, and checks that it fails for its own side's sake.
fn assert_local_protection(pair: &mut Pair, what: Local, sge: Sge) {
    let remote = pair.b.remote(0);
    let Sge { lkey, addr, len_bytes } = sge;
    if let Local::Recv = what {
        // The receiver is `a` here, and it is `b` that is told of an error of its peer.
        // SAFETY: refused by the device.
        unsafe { pair.a.qp.post_recv_raw(1, &[sge]) }.unwrap();
        pair.b.post(|list, _| list.send(2, SIGNALED).unwrap().inline(&[0xee; 8]).unwrap().finish());
        assert_eq!(pair.b.fails().syndrome, CqeSyndrome::REMOTE_OP_ERR, "{sge:?}");
    } else {
        pair.b.recv(1, 0..4096);
        pair.a.post(|list, _| {
            // SAFETY: refused by the device.
            unsafe {
                match what {
                    Local::Send => {
                        list.send(1, SIGNALED).unwrap().sge(lkey, addr, len_bytes).unwrap().finish()
                    }
                    Local::Write => {
                        list.rdma_write(1, remote, SIGNALED)
                            .unwrap()
                            .sge(lkey, addr, len_bytes)
                            .unwrap()
                            .finish();
                    }
                    Local::Read => {
                        list.rdma_read(1, remote, SIGNALED)
                            .unwrap()
                            .sge(lkey, addr, len_bytes)
                            .unwrap()
                            .finish();
                    }
                    _ => list.fetch_add(1, remote, 1, SIGNALED).unwrap().sge(lkey, addr).unwrap().finish(),
                }
            }
        });
    }
    let error = pair.a.fails();
    assert_eq!(error.syndrome, CqeSyndrome::LOCAL_PROT_ERR, "{what:?} {sge:?}: {error}");
    assert_eq!(pair.a.device_state(), QpState::ERR);
    // What was posted at the peer is flushed when it is reset; here it is only taken.
    pair.b.qp.modify(&mlx5_direct::backend::QpModify::to(QpState::ERR)).unwrap();
    while let Some(done) = {
        pair.settle();
        pair.b.poll()
    } {
        assert!(done.error.is_some());
    }
    mend(pair);
}

#[test]
fn b4_mr_access_enforced_local() {
    for options in makes(&["ports=2", "ports=1,bar=trapped", "ports=2,drive=step"]) {
        mr_access_enforced_local(options);
    }
}

fn mr_access_enforced_local(options: &str) {
    let mut pair = Pair::new(options);
    let all = [Local::Send, Local::Write, Local::Read, Local::Atomic, Local::Recv];
    let lent = Lent::new(4096 * 3);
    let mr = lent.register(&pair.a, 4096, 4096, ALL);
    let at = |addr: u64| Sge { lkey: mr.lkey(), addr, len_bytes: 8 };
    for what in all {
        // A key that does not exist; its successor; the right one with another variant.
        for wrong in [0, 1, mr.lkey().get() ^ 0x100, mr.lkey().get() ^ 1, u32::MAX] {
            let sge = Sge { lkey: Lkey::new(wrong), ..at(mr.addr()) };
            assert_local_protection(&mut pair, what, sge);
        }
        // A range that is not all inside.
        for addr in [mr.addr() - 8, mr.addr() - 1, mr.addr() + 4089, mr.addr() + 4096, 0] {
            assert_local_protection(&mut pair, what, at(addr));
        }
    }
    // Memory that may only be read.
    let read_only = lent.register(&pair.a, 0, 4096, Access::LOCAL_READ);
    let sge = Sge { lkey: read_only.lkey(), addr: read_only.addr(), len_bytes: 8 };
    for what in [Local::Read, Local::Atomic, Local::Recv] {
        assert_local_protection(&mut pair, what, sge);
    }
    assert_eq!(lent.get(0, 4096 * 3), vec![0; 4096 * 3], "no byte was touched");
    // It may be sent from.
    lent.set(0, b"readable");
    let (lkey, addr, remote) = (sge.lkey, sge.addr, pair.b.remote(64));
    pair.a.post(|list, _| {
        // SAFETY: the memory lives, and nobody writes it.
        unsafe { list.rdma_write(1, remote, SIGNALED).unwrap().sge(lkey, addr, 8).unwrap().finish() };
    });
    pair.a.ok();
    assert_eq!(pair.b.bytes(64, 8), b"readable");
    // A key that has ended.
    drop(mr);
    assert_local_protection(&mut pair, Local::Send, Sge { lkey, addr: addr + 4096, len_bytes: 8 });
}

#[test]
fn b5_mr_access_enforced_remote() {
    for options in makes(&["ports=2", "ports=1,bar=trapped", "ports=2,drive=step"]) {
        mr_access_enforced_remote(options);
    }
}

fn mr_access_enforced_remote(options: &str) {
    let mut pair = Pair::new(options);
    let rights = [Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC];
    for mask in 0..8u32 {
        let granted =
            (0..3).filter(|i| mask & 1 << i != 0).fold(Access::LOCAL_WRITE, |all, i| all | rights[i]);
        let mr = pair.b.pd.alloc_mr(4096, granted).unwrap();
        mr.write(0, &[7; 64]);
        for need in rights {
            let remote = mr.remote(0);
            pair.a.mr.write(0, &[0; 64]);
            pair.a.post(|list, memory| match need {
                Access::REMOTE_WRITE => {
                    list.rdma_write(1, remote, SIGNALED).unwrap().inline(&[9; 8]).unwrap().finish()
                }
                Access::REMOTE_READ => {
                    list.rdma_read(1, remote, SIGNALED).unwrap().local(memory, 0..8).unwrap().finish();
                }
                _ => list.fetch_add(1, remote, 1, SIGNALED).unwrap().local(memory, 0).unwrap().finish(),
            });
            let done = pair.a.done();
            if granted.contains(need) {
                assert_eq!(done.error, None, "{need:?} on {granted:?}");
                mr.write(0, &[7; 64]);
                continue;
            }
            let error = done.error.unwrap_or_else(|| panic!("{need:?} on {granted:?} is allowed"));
            assert_eq!(error.syndrome, CqeSyndrome::REMOTE_ACCESS_ERR, "{need:?} on {granted:?}");
            let mut bytes = [0; 64];
            mr.read(0, &mut bytes);
            assert_eq!(
                (bytes, pair.a.bytes(0, 64)),
                ([7; 64], vec![0; 64]),
                "no byte was touched, on either side"
            );
            assert_eq!((pair.a.device_state(), pair.b.device_state()), (QpState::ERR, QpState::ERR));
            mend(&mut pair);
        }
    }
    // Keys that do not exist, or not any more.
    let mr = pair.b.pd.alloc_mr(64, ALL).unwrap();
    let (remote, rkey) = (mr.remote(0), mr.rkey().get());
    drop(mr);
    for wrong in [rkey, rkey ^ 0x100, rkey ^ 1, 0, u32::MAX] {
        let remote = Remote { rkey: Rkey::new(wrong), ..remote };
        pair.a
            .post(|list, _| list.rdma_write(1, remote, SIGNALED).unwrap().inline(&[9; 8]).unwrap().finish());
        assert_eq!(pair.a.fails().syndrome, CqeSyndrome::REMOTE_ACCESS_ERR, "rkey {wrong:#x}");
        mend(&mut pair);
    }
}

#[test]
fn b6_mr_wrong_pd() {
    for options in makes(&["ports=2", "ports=1,bar=trapped", "ports=2,drive=step"]) {
        mr_wrong_pd(options);
    }
}

fn mr_wrong_pd(options: &str) {
    let mut pair = Pair::new(options);
    let (other_a, other_b) = (pair.a.ctx.alloc_pd().unwrap(), pair.b.ctx.alloc_pd().unwrap());
    let mine: Mr = other_a.alloc_mr(64, ALL).unwrap();
    let theirs: Mr = other_b.alloc_mr(64, ALL).unwrap();
    // A lease is refused by name, before there is a request.
    let refused = pair.a.qp.lease(&mine).unwrap_err().to_string();
    for part in [other_a.pdn().to_string(), pair.a.pd.pdn().to_string(), pair.a.qp.qpn().to_string()] {
        assert!(refused.contains(&part), "{refused}");
    }
    // The device refuses too: a foreign lkey as a wrong one, a foreign rkey as a wrong one.
    for what in [Local::Send, Local::Write, Local::Read, Local::Atomic, Local::Recv] {
        let sge = Sge { lkey: mine.lkey(), addr: mine.addr(), len_bytes: 8 };
        assert_local_protection(&mut pair, what, sge);
    }
    let remote = theirs.remote(0);
    pair.a.post(|list, _| list.rdma_write(1, remote, SIGNALED).unwrap().inline(&[9; 8]).unwrap().finish());
    assert_eq!(pair.a.fails().syndrome, CqeSyndrome::REMOTE_ACCESS_ERR);
    let mut bytes = [0; 64];
    theirs.read(0, &mut bytes);
    assert_eq!(bytes, [0; 64]);
    mine.read(0, &mut bytes);
    assert_eq!(bytes, [0; 64]);
}

#[test]
fn b8_mr_reg_dereg_1e6_in_thousands_on_the_card() {
    needs!(Need::Prm);
    // `MLX5_CYCLES=1000000 cargo test --release --test card memory::b8_` is the whole case, alone in its process.
    let cycles = std::env::var("MLX5_CYCLES").ok().map(|n| n.parse::<usize>().expect("MLX5_CYCLES"));
    let n_cycles = cycles.unwrap_or(5000);
    let card = card("ports=1");
    let control = PrmControl::open(card.function(0), &OpenOptions::default()).unwrap();
    let pd = Context::on(control.clone()).alloc_pd().unwrap();
    let (free, mapped) = (control.free_iova_bytes(), card.n_dma_mappings());
    let lent = Lent::new(1 << 20);
    let mut keys = HashSet::new();
    let mut held = Vec::new();
    let before = belongings();
    for round in 0..n_cycles {
        // Odd sizes from odd places; up to eight live at once, and end in another order than they began.
        let (offset, len) = (round * 977 % 70_001, 1 + round * 7919 % 900_007);
        // SAFETY: the memory outlives the registrations, and no request uses it.
        let mr = unsafe { pd.reg_mr(lent.at(offset), len, ALL) }.unwrap();
        keys.insert(mr.lkey());
        held.push(mr);
        if held.len() == 8 {
            held.swap_remove(round % 8);
        }
    }
    assert!(keys.len() > 256, "keys are not used again at once: {} of {n_cycles}", keys.len());
    drop((held, keys));
    if cycles.is_some() {
        let after = belongings();
        assert_eq!(after.descriptors, before.descriptors);
        assert!(after.n_mappings <= before.n_mappings + 50, "mappings: {before:?}, then {after:?}");
    }
    assert_eq!((control.free_iova_bytes(), card.n_dma_mappings()), (free, mapped));
    card.assert_clean();
}

/// Memory at an address of the test's own choice: requests name it by that, the peer's too.
#[test]
fn memory_at_an_address_of_ones_choice() {
    const AT: u64 = 0x1234_5678_9000;
    let mut pair = Pair::new("ports=2");
    let mr = pair.b.pd.alloc_mr_at(4096, AT, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    assert_eq!((mr.addr(), mr.remote(8).addr), (AT, AT + 8));
    let mut list = pair.a.qp.post_list();
    list.rdma_write(1, mr.remote(8), SIGNALED).unwrap().inline(b"here").unwrap().finish();
    list.ring();
    assert_eq!(pair.a.ok().wr_id, 1);
    let mut bytes = [0; 4];
    mr.read(8, &mut bytes);
    assert_eq!(&bytes, b"here");
    let error = pair.b.pd.alloc_mr_at(4096, AT + 1, Access::LOCAL_WRITE).unwrap_err();
    assert!(
        matches!(&error, Error::InvalidArgument(why) if why.contains("offsets in a 4 KiB page")),
        "{error}"
    );
    let error = pair.b.pd.alloc_mr_at(4097, u64::MAX - 4095, Access::LOCAL_WRITE).unwrap_err();
    assert!(matches!(&error, Error::InvalidArgument(why) if why.contains("pass the end")), "{error}");
}
