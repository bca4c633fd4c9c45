//! Two queue pairs that talk to each other, memory, and keys made byte by byte: what tests of keys stand on.

use crate::rig::{Cq, Page, Qp, Raw, Rig};

pub(crate) const PAGE: u64 = 0x1000;
/// `mkc.access_mode`.
pub(crate) const MTT: u32 = 1;
pub(crate) const KLM: u32 = 2;
pub(crate) const KSM: u32 = 3;
/// Rights as `mkc` has them, [14:10]: remote atomics, write and read, local write and read.
pub(crate) const ALL_RIGHTS: u32 = 0b11111;
pub(crate) const LOCAL_RIGHTS: u32 = 0b00011;
const VARIANT: u32 = 0x42;

/// A memory key context to be, and the list that goes with it.
#[derive(Clone)]
pub(crate) struct Key {
    input: Raw,
    list: Vec<u64>,
}

impl Key {
    pub(crate) fn new(pd: u32, mode: u32) -> Self {
        let input = Raw::cmd(0x200, 272)
            .set(0x10, 15, 15, 1)
            .set(0x10, 14, 10, ALL_RIGHTS)
            .set(0x10, 9, 8, mode)
            .set(0x14, 31, 8, 0xff_ffff)
            .set(0x14, 7, 0, VARIANT)
            .set(0x1c, 23, 0, pd);
        Self { input, list: Vec::new() }
    }

    /// Sets bits of the context.
    pub(crate) fn set(mut self, at: usize, hi: u32, lo: u32, value: u32) -> Self {
        self.input = self.input.set(0x10 + at, hi, lo, value);
        self
    }

    /// Free, with room for a list of so many octowords.
    pub(crate) fn free(self, n_octowords: u32) -> Self {
        self.set(0, 30, 30, 1).set(0x34, 31, 0, n_octowords)
    }

    pub(crate) fn rights(self, rights: u32) -> Self {
        self.set(0, 14, 10, rights)
    }

    pub(crate) fn range(mut self, start: u64, len_bytes: u64, log_page: u32) -> Self {
        self.input = self.input.set64(0x20, start).set64(0x28, len_bytes);
        self.set(0x38, 4, 0, log_page)
    }

    pub(crate) fn list(mut self, list: &[u64]) -> Self {
        let n = list.len().div_ceil(2) as u32;
        self.list = list.to_vec();
        self.list.resize(2 * n as usize, 0);
        self.input = self.input.set(0x0c, 31, 31, 1).set(0x60, 31, 0, n);
        self.set(0x34, 31, 0, n)
    }

    /// The key, as WQEs name it.
    #[track_caller]
    pub(crate) fn create(self, rig: &Rig) -> u32 {
        rig.run(self.input.list(&self.list)).ok().dword(8) << 8 | VARIANT
    }
}

/// Segments of an RDMA operation: address and key there, here, and the length of both.
pub(crate) fn rdma_segments((addr, rkey): (u64, u32), (local, lkey): (u64, u32), len: u32) -> Raw {
    Raw::new(32).set64(0, addr).set(8, 31, 0, rkey).set(16, 31, 0, len).set(20, 31, 0, lkey).set64(24, local)
}

/// A KLM as two list entries.
pub(crate) fn klm(key: u32, addr: u64, len_bytes: u32) -> [u64; 2] {
    [u64::from(len_bytes) << 32 | u64::from(key), addr]
}

pub(crate) struct World {
    pub(crate) rig: Rig,
    pub(crate) cq: Cq,
    /// The one that posts, and the one that answers.
    pub(crate) qp: Qp,
    pub(crate) peer: Qp,
    pub(crate) page: Page,
    pub(crate) uar: u32,
    pub(crate) pd: u32,
    pub(crate) mac: [u8; 6],
    pub(crate) gid: [u8; 16],
    /// Eight pages, and a key over them with local rights only.
    pub(crate) memory: u64,
    pub(crate) local: u32,
}

impl World {
    pub(crate) fn new() -> Self {
        let mut rig = Rig::new("drive=step");
        rig.bring_up();
        let (uar, pd) = (rig.alloc_uar(), rig.alloc_pd());
        let (eqn, _) = rig.create_eq(uar, 6, 0, 0);
        let cq = rig.create_cq(uar, 6, eqn);
        let (mac, gid) = (rig.mac(), rig.set_gid());
        let [qp, peer] = [0, 1].map(|_| rig.create_qp(pd, uar, &cq, 5));
        rig.connect(&qp, peer.number, mac, gid);
        rig.connect(&peer, qp.number, mac, gid);
        let page = rig.map_uar(uar);
        let memory = rig.alloc(8 * PAGE, 0);
        let pages: Vec<u64> = (0..8).map(|n| (memory + n * PAGE) | 3).collect();
        let local =
            Key::new(pd, MTT).rights(LOCAL_RIGHTS).range(memory, 8 * PAGE, 12).list(&pages).create(&rig);
        Self { rig, cq, qp, peer, page, uar, pd, mac, gid, memory, local }
    }

    /// Posts, and returns the completion: opcode and, in error, syndrome.
    #[track_caller]
    pub(crate) fn post(&mut self, opcode: u8, imm: u32, rest: &[u8]) -> (u8, u8) {
        let doorbell = self.qp.long_wqe(&self.rig, opcode, imm, rest);
        self.page.ring(doorbell);
        while self.rig.model.step() {}
        let cqe = self.cq.poll(&self.rig, true).expect("a completion");
        (cqe[63] >> 4, if cqe[63] >> 4 == 0xd { cqe[55] } else { 0 })
    }

    /// An RDMA operation at the peer.
    #[track_caller]
    fn rdma(&mut self, opcode: u8, remote: (u64, u32), local: (u64, u32), len: u32) -> (u8, u8) {
        let segments = rdma_segments(remote, local, len);
        self.post(opcode, 0, &segments.0)
    }

    /// Writes `len` bytes of `local` through a remote key.
    #[track_caller]
    pub(crate) fn write(&mut self, remote: (u64, u32), local: (u64, u32), len: u32) -> (u8, u8) {
        self.rdma(0x08, remote, local, len)
    }

    /// Reads `len` bytes through a remote key into `local`.
    #[track_caller]
    pub(crate) fn read(&mut self, remote: (u64, u32), local: (u64, u32), len: u32) -> (u8, u8) {
        self.rdma(0x10, remote, local, len)
    }

    /// After an error: other QPs in place of the dead ones.
    pub(crate) fn another_qp(&mut self) {
        [self.qp, self.peer] = [0, 1].map(|_| self.rig.create_qp(self.pd, self.uar, &self.cq, 5));
        self.rig.connect(&self.qp, self.peer.number, self.mac, self.gid);
        self.rig.connect(&self.peer, self.qp.number, self.mac, self.gid);
    }

    /// The other one posts.
    pub(crate) fn swap(&mut self) {
        std::mem::swap(&mut self.qp, &mut self.peer);
    }

    /// Fills memory with bytes that tell where they are; returns them.
    pub(crate) fn fill(&self, offset: u64, len_bytes: u64, seed: u8) -> Vec<u8> {
        let data: Vec<u8> =
            (0..len_bytes).map(|n| (n as u8).wrapping_mul(7) ^ (n >> 8) as u8 ^ seed).collect();
        self.rig.write(self.memory + offset, &data);
        data
    }

    pub(crate) fn bytes(&self, offset: u64, len_bytes: usize) -> Vec<u8> {
        self.rig.read(self.memory + offset, len_bytes)
    }

    /// `mkc` of a key.
    #[track_caller]
    pub(crate) fn query(&self, key: u32) -> Vec<u8> {
        let answer = self.rig.exec(&Raw::cmd(0x201, 16).set(8, 23, 0, key >> 8), 304).ok();
        answer.bytes[0x10..0x50].to_vec()
    }
}
