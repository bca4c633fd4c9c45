//! Keys over pieces of others: lists of memory and patterns under one key, on the software ConnectX. Cases J1 and J2.

use crate::support::*;
use mlx5_direct::{
    IndirectMr, Mr,
    cqe::CqeSyndrome,
    mlx5::ids::Lkey,
    queue::{Flags, KeyAccess, PostError, Remote, Sge, Strided},
    wqe::KlmEntry,
};

/// A connection, at whose end `b` a key leads to pieces of `b`'s memory.
struct Rig {
    key: IndirectMr,
    pair: Pair,
}

fn remote_all() -> KeyAccess {
    KeyAccess::LOCAL_WRITE | KeyAccess::REMOTE_WRITE | KeyAccess::REMOTE_READ | KeyAccess::REMOTE_ATOMIC
}

impl Rig {
    fn new() -> Self {
        let pair = Pair::new("");
        let key = pair.b.pd.create_indirect_mr(64).expect("a key");
        Self { key, pair }
    }

    /// A piece of `b`'s memory.
    fn piece(&self, offset: u64, len_bytes: u32) -> Sge {
        let mr = &self.pair.b.mr;
        Sge { lkey: mr.lkey(), addr: mr.addr() + offset, len_bytes }
    }

    fn set_list(&mut self, pieces: &[Sge], access: KeyAccess) {
        let key = self.key.key();
        self.pair.b.post(|list, _| {
            // SAFETY: the memory lives as long as the key.
            unsafe { list.umr_list(1, key, pieces, access, SIGNALED) }.unwrap().finish();
        });
        self.pair.b.ok();
    }

    /// What `a` reads under the key.
    fn read(&mut self, offset: u64, len_bytes: u64) -> Vec<u8> {
        let remote = self.key.remote(offset);
        self.pair.a.mr.write(0, &vec![0xee; len_bytes as usize]);
        self.pair.a.post(|list, memory| {
            list.rdma_read(2, remote, SIGNALED).unwrap().local(memory, 0..len_bytes).unwrap().finish();
        });
        self.pair.a.ok();
        self.pair.a.bytes(0, len_bytes as usize)
    }

    fn write(&mut self, remote: Remote, data: &[u8]) {
        self.pair.a.mr.write(0, data);
        let len_bytes = data.len() as u64;
        self.pair.a.post(|list, memory| {
            list.rdma_write(3, remote, SIGNALED).unwrap().local(memory, 0..len_bytes).unwrap().finish();
        });
    }
}

/// Case J1: the view reads as one; outside is refused.
#[test]
fn j1_umr_list() {
    needs!(Need::Prm);
    let mut rig = Rig::new();
    let memory = pattern(1, 40_000);
    rig.pair.b.mr.write(0, &memory);
    // In the WQE, to its limit of four pieces and one unit, and over the ring's end.
    for n in [1, 2, 3, 4, 1, 4, 4, 3, 2, 4, 4, 4, 4] {
        let places: Vec<(u64, u32)> = (0..n).map(|i| (1 + 977 * i * (n + 1), 100 + 37 * i as u32)).collect();
        let pieces: Vec<_> = places.iter().map(|(at, len)| rig.piece(*at, *len)).collect();
        rig.set_list(&pieces, remote_all());
        let view: Vec<u8> = places
            .iter()
            .flat_map(|(at, len)| memory[*at as usize..(*at + u64::from(*len)) as usize].to_vec())
            .collect();
        assert_eq!(rig.read(0, view.len() as u64), view);
        let (from, to) = (view.len() as u64 / 3, view.len() as u64 - 5);
        assert_eq!(rig.read(from, to - from), view[from as usize..to as usize]);
    }
    // Written through: the first 200 bytes are in three pieces.
    let pieces = [rig.piece(5000, 64), rig.piece(9, 64), rig.piece(20_000, 100)];
    rig.set_list(&pieces, remote_all());
    let data = pattern(7, 200);
    rig.write(rig.key.remote(0), &data);
    rig.pair.a.ok();
    assert_eq!(rig.pair.b.bytes(5000, 64), data[..64]);
    assert_eq!(rig.pair.b.bytes(9, 64), data[64..128]);
    assert_eq!(rig.pair.b.bytes(20_000, 72), data[128..]);
    // One byte behind the view.
    rig.write(rig.key.remote(228 - 199), &data);
    assert_eq!(rig.pair.a.fails().syndrome, CqeSyndrome::REMOTE_ACCESS_ERR);
}

#[test]
fn a_key_grants_no_more_than_it_was_given() {
    needs!(Need::Prm);
    let mut rig = Rig::new();
    let piece = rig.piece(100, 50);
    rig.set_list(&[piece], KeyAccess::REMOTE_READ);
    assert_eq!(rig.read(0, 50), rig.pair.b.bytes(100, 50));
    rig.write(rig.key.remote(0), &[1; 8]);
    assert_eq!(rig.pair.a.fails().syndrome, CqeSyndrome::REMOTE_ACCESS_ERR);
}

/// After the key is invalidated, nothing passes.
#[test]
fn an_invalidated_key_opens_nothing() {
    needs!(Need::Prm);
    let mut rig = Rig::new();
    let piece = rig.piece(100, 50);
    rig.set_list(&[piece], remote_all());
    assert_eq!(rig.read(0, 50), rig.pair.b.bytes(100, 50));
    let rkey = rig.key.rkey();
    rig.pair.b.post(|list, _| list.local_inv(4, rkey, SIGNALED).unwrap().finish());
    rig.pair.b.ok();
    rig.write(rig.key.remote(0), &[1; 8]);
    assert_eq!(rig.pair.a.fails().syndrome, CqeSyndrome::REMOTE_ACCESS_ERR);
}

/// Case J2: blocks of two kinds, apart from each other as a pattern says.
#[test]
fn j2_umr_interleaved() {
    needs!(Need::Prm);
    let mut rig = Rig::new();
    let memory = pattern(3, 40_000);
    rig.pair.b.mr.write(0, &memory);
    let (lkey, base) = (rig.pair.b.mr.lkey(), rig.pair.b.mr.addr());
    let strided = |at: u64, len_bytes, skip_bytes| Strided { lkey, addr: base + at, len_bytes, skip_bytes };
    for pieces in [
        vec![strided(3, 512, 8)],
        vec![strided(0, 512, 8), strided(20_000, 8, 0)],
        vec![strided(1, 10, 90), strided(17, 1, 99), strided(60, 30, 70)],
    ] {
        let n_cycles = 20;
        let key = rig.key.key();
        rig.pair.b.post(|list, _| {
            // SAFETY: the memory lives as long as the key.
            unsafe { list.umr_interleaved(1, key, n_cycles, &pieces, remote_all(), SIGNALED) }
                .unwrap()
                .finish();
        });
        rig.pair.b.ok();
        let mut view = Vec::<u8>::new();
        for cycle in 0..u64::from(n_cycles) {
            for piece in &pieces {
                let stride = u64::from(piece.len_bytes + piece.skip_bytes);
                let at = (piece.addr - base + cycle * stride) as usize;
                view.extend(&memory[at..at + usize::from(piece.len_bytes)]);
            }
        }
        assert_eq!(rig.read(0, view.len() as u64), view);
        assert_eq!(rig.read(333 % (view.len() as u64 / 2), 77), view[333 % (view.len() / 2)..][..77]);
        let data = pattern(5, 100);
        rig.write(rig.key.remote(0), &data);
        rig.pair.a.ok();
        assert_eq!(rig.read(0, 100), data);
        rig.pair.b.mr.write(0, &memory);
    }
}

/// A list too long for a request is read from memory.
#[test]
fn a_list_may_be_in_memory() {
    needs!(Need::Prm);
    let mut rig = Rig::new();
    let memory = pattern(3, 40_000);
    rig.pair.b.mr.write(0, &memory);
    let lists: Mr = rig.pair.b.pd.alloc_mr(4096, mlx5_direct::Access::LOCAL_READ).expect("memory");
    let n = 61;
    let mut view = Vec::<u8>::new();
    for i in 0..n {
        let piece = rig.piece(640 * i, 10 + i as u32);
        let entry = KlmEntry::new().with_byte_count(piece.len_bytes).with_mkey(piece.lkey);
        lists.write(16 * i as usize, &entry.with_address(piece.addr).to_bytes());
        view.extend(&memory[640 * i as usize..][..10 + i as usize]);
    }
    let list_at = Sge { lkey: lists.lkey(), addr: lists.addr(), len_bytes: 16 * 64 };
    let (key, len_bytes) = (rig.key.key(), view.len() as u64);
    rig.pair.b.post(|list, _| {
        // SAFETY: memory and list live as long as the key.
        unsafe { list.umr_list_in_memory(1, key, list_at, n as u32, len_bytes, remote_all(), SIGNALED) }
            .unwrap()
            .finish();
    });
    rig.pair.b.ok();
    assert_eq!(rig.read(0, len_bytes), view);
    drop(lists);
}

#[test]
fn what_no_key_can_lead_to_is_refused() {
    needs!(Need::Prm);
    let mut rig = Rig::new();
    let small = rig.pair.b.pd.create_indirect_mr(2).expect("a key");
    let (piece, all, key, flags) = (rig.piece(0, 8), remote_all(), rig.key.key(), Flags::NONE);
    let strided = Strided { lkey: Lkey::new(1), addr: 0, len_bytes: 8, skip_bytes: 8 };
    rig.pair.b.post(|list, _| {
        // SAFETY: nothing is posted.
        unsafe {
            let error = |pieces: &[Sge], key, list: &mut mlx5_direct::queue::PostList<'_>| {
                list.umr_list(1, key, pieces, all, flags).unwrap_err()
            };
            assert_eq!(error(&[], key, list), PostError::OutOfRange);
            assert_eq!(error(&[piece, Sge { len_bytes: 0, ..piece }], key, list), PostError::OutOfRange);
            let long = Sge { len_bytes: (1 << 31) + 1, ..piece };
            assert_eq!(error(&[long], key, list), PostError::MessageTooLong);
            assert_eq!(error(&[piece; 3], small.key(), list), PostError::TooManySge);
            assert_eq!(error(&[piece; 53], key, list), PostError::InlineTooLong);
            for (n, pieces) in [
                (1, &[][..]),
                (0, &[strided]),
                (1, &[Strided { len_bytes: 0, ..strided }]),
                (1, &[Strided { len_bytes: 0xffff, skip_bytes: 1, ..strided }]),
            ] {
                let refused = list.umr_interleaved(1, key, n, pieces, all, flags).unwrap_err();
                assert_eq!(refused, PostError::OutOfRange);
            }
            let refused = list.umr_interleaved(1, small.key(), 1, &[strided; 2], all, flags).unwrap_err();
            assert_eq!(refused, PostError::TooManySge, "the pattern itself is one");
        }
        assert_eq!(list.n_wqebbs(), 0);
    });
    drop(small);
}
