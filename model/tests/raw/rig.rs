//! A tiny driver for tests of the model alone: it builds command entries, contexts and WQEs byte by byte,
//! knows nothing of the real driver, and reaches memory through the model's own map.

use memmap2::MmapRaw;
use mlx5_direct::backend::pci::{BarMapping, PciFunction};
use mlx5_model::{Model, ModelFunction};
use std::{
    ptr::NonNull,
    sync::Arc,
    time::{Duration, Instant},
};

pub(crate) const MEMORY: u64 = 0x1_0000_0000;
const MEMORY_BYTES: usize = 64 << 20;
const SLOTS: u64 = MEMORY;
const MAILBOXES: u64 = MEMORY + 0x1000;

/// Bytes with fields set as the PRM draws them.
#[derive(Clone)]
pub(crate) struct Raw(pub(crate) Vec<u8>);

impl Raw {
    pub(crate) fn new(len_bytes: usize) -> Self {
        Self(vec![0; len_bytes])
    }

    /// A command input of `len_bytes` with an opcode.
    pub(crate) fn cmd(opcode: u16, len_bytes: usize) -> Self {
        Self::new(len_bytes).set(0, 31, 16, opcode.into())
    }

    /// Sets bits [hi:lo] of the dword at `at`.
    pub(crate) fn set(mut self, at: usize, hi: u32, lo: u32, value: u32) -> Self {
        let mut word = u32::from_be_bytes(self.0[at..at + 4].try_into().unwrap());
        let mask = (((1u64 << (hi - lo + 1)) - 1) << lo) as u32;
        word = word & !mask | value << lo & mask;
        self.0[at..at + 4].copy_from_slice(&word.to_be_bytes());
        self
    }

    pub(crate) fn set64(mut self, at: usize, value: u64) -> Self {
        self.0[at..at + 8].copy_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn put(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub(crate) fn list(mut self, entries: &[u64]) -> Self {
        self.0.extend(entries.iter().flat_map(|entry| entry.to_be_bytes()));
        self
    }
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) delivery: u8,
    pub(crate) bytes: Vec<u8>,
}

impl Answer {
    pub(crate) fn status(&self) -> (u8, u8) {
        (self.delivery, self.bytes[0])
    }

    pub(crate) fn dword(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.bytes[at..at + 4].try_into().unwrap())
    }

    pub(crate) fn syndrome(&self) -> u32 {
        self.dword(4)
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!((self.status(), self.syndrome()), ((0, 0), 0), "command failed: {self:x?}");
        self
    }
}

/// One function with memory.
pub(crate) struct Rig {
    pub(crate) model: Model,
    pub(crate) function: Arc<ModelFunction>,
    _memory: MmapRaw,
    next: u64,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.function.dma().clear();
    }
}

impl Rig {
    pub(crate) fn new(config: &str) -> Self {
        let model = Model::new(config.parse().unwrap()).unwrap();
        Self::on(&model, 0)
    }

    pub(crate) fn on(model: &Model, index: usize) -> Self {
        let function = model.function(index).unwrap();
        let memory = MmapRaw::from(memmap2::MmapMut::map_anon(MEMORY_BYTES).unwrap());
        let base = NonNull::new(memory.as_mut_ptr()).unwrap();
        // SAFETY: the memory is only reached through the model's map, and unmapped after `drop` clears it.
        unsafe { function.dma_map(MEMORY, base, MEMORY_BYTES, None) }.unwrap();
        function.config_write(4, &[6, 0]).unwrap();
        let rig = Self { model: model.clone(), function, _memory: memory, next: MEMORY + 0x10_0000 };
        rig.wait("firmware", |rig| rig.function.bar_read32(0x1fc) >> 31 == 0);
        rig.function.bar_write32(0x10, (SLOTS >> 32) as u32);
        rig.function.bar_write32(0x14, SLOTS as u32);
        rig
    }

    #[track_caller]
    pub(crate) fn wait(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            self.function.relax(Duration::from_micros(100));
            assert!(start.elapsed() < Duration::from_secs(5), "waited for {what}");
        }
    }

    /// Memory of its own, filled with `fill`.
    pub(crate) fn alloc(&mut self, len_bytes: u64, fill: u8) -> u64 {
        let at = self.next;
        self.next += len_bytes.next_multiple_of(0x1000);
        assert!(self.next <= MEMORY + MEMORY_BYTES as u64);
        self.write(at, &vec![fill; len_bytes as usize]);
        at
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) {
        self.function.dma().write(at, bytes).unwrap();
    }

    pub(crate) fn read(&self, at: u64, len_bytes: usize) -> Vec<u8> {
        let mut bytes = vec![0; len_bytes];
        self.function.dma().read(at, &mut bytes).unwrap();
        bytes
    }

    /// Lays a command into a slot: its entry and both mailbox chains, with this token.
    pub(crate) fn lay(&self, slot: u32, input: &[u8], output_len: usize, token: u8) {
        let chain = |first: u64, data: &[u8], len: usize| {
            let n_blocks = len.saturating_sub(16).div_ceil(512);
            for block in 0..n_blocks {
                let at = first + block as u64 * 1024;
                let mut bytes = vec![0; 576];
                let part = data.iter().skip(16 + block * 512).take(512).copied().collect::<Vec<_>>();
                bytes[..part.len()].copy_from_slice(&part);
                let next = if block + 1 < n_blocks { at + 1024 } else { 0 };
                bytes[560..568].copy_from_slice(&next.to_be_bytes());
                bytes[568..572].copy_from_slice(&(block as u32).to_be_bytes());
                bytes[573] = token;
                self.write(at, &bytes);
            }
            if n_blocks == 0 { 0 } else { first }
        };
        let boxes = MAILBOXES + u64::from(slot) * 0x8000;
        let mut inline = [0; 16];
        let n = input.len().min(16);
        inline[..n].copy_from_slice(&input[..n]);
        let entry = Raw::new(64)
            .set(0, 31, 24, 7)
            .set(4, 31, 0, input.len() as u32)
            .set64(8, chain(boxes, input, input.len()))
            .put(16, &inline)
            .set64(0x30, chain(boxes + 0x4000, &[], output_len))
            .set(0x38, 31, 0, output_len as u32)
            .set(0x3c, 31, 24, token.into())
            .set(0x3c, 0, 0, 1);
        self.write(SLOTS + u64::from(slot) * 64, &entry.0);
    }

    pub(crate) fn ring(&self, slots: u32) {
        self.function.bar_write32(0x18, slots);
    }

    pub(crate) fn done(&self, slot: u32) -> bool {
        self.read(SLOTS + u64::from(slot) * 64 + 63, 1)[0] & 1 == 0
    }

    pub(crate) fn answer(&self, slot: u32, output_len: usize) -> Answer {
        let entry = self.read(SLOTS + u64::from(slot) * 64, 64);
        let mut bytes = entry[0x20..0x30].to_vec();
        let boxes = MAILBOXES + u64::from(slot) * 0x8000 + 0x4000;
        for block in 0..output_len.saturating_sub(16).div_ceil(512) as u64 {
            bytes.extend(self.read(boxes + block * 1024, 512));
        }
        bytes.truncate(output_len.max(16));
        Answer { delivery: entry[63] >> 1, bytes }
    }

    /// Executes a command in slot 0.
    #[track_caller]
    pub(crate) fn exec(&self, input: &Raw, output_len: usize) -> Answer {
        self.lay(0, &input.0, output_len, 0x5a);
        self.ring(1);
        self.wait("a command", |rig| rig.done(0));
        self.answer(0, output_len)
    }

    /// Executes a command with no more output than its head.
    #[track_caller]
    pub(crate) fn run(&self, input: Raw) -> Answer {
        self.exec(&input, 16)
    }

    #[track_caller]
    pub(crate) fn give_pages(&mut self, stage: u32) -> u32 {
        let n = self.run(Raw::cmd(0x107, 16).set(4, 15, 0, stage)).ok().dword(12);
        self.give(n);
        n
    }

    #[track_caller]
    pub(crate) fn give(&mut self, n_pages: u32) {
        let first = self.alloc(u64::from(n_pages) * 0x1000, 0);
        let pages: Vec<u64> = (0..u64::from(n_pages)).map(|n| first + n * 0x1000).collect();
        self.run(Raw::cmd(0x108, 16).set(4, 15, 0, 1).set(12, 31, 0, n_pages).list(&pages)).ok();
    }

    /// The whole bring-up, without events.
    #[track_caller]
    pub(crate) fn bring_up(&mut self) {
        self.run(Raw::cmd(0x104, 16)).ok();
        assert_eq!(self.exec(&Raw::cmd(0x10a, 16), 112).ok().dword(0x6c) & 2, 2);
        self.run(Raw::cmd(0x10b, 16).set(8, 15, 0, 1)).ok();
        self.give_pages(1);
        self.exec(&Raw::cmd(0x805, 32).set(8, 15, 0, 0x7004), 32).ok();
        let caps = self.exec(&Raw::cmd(0x100, 16).set(4, 15, 0, 1), 4112).ok();
        let set = Raw::cmd(0x109, 16 + 4096).put(16, &caps.bytes[16..]);
        self.run(set).ok();
        self.give_pages(2);
        self.run(Raw::cmd(0x102, 16)).ok();
        self.run(Raw::cmd(0x755, 512).set(12, 1, 1, 1).set(0x100, 0, 0, 1)).ok();
    }

    /// Teardown of a function without objects.
    #[track_caller]
    pub(crate) fn tear_down(&self) {
        self.run(Raw::cmd(0x103, 16)).ok();
        while self.take(32) != 0 {}
        self.exec(&Raw::cmd(0x105, 16), 12).ok();
    }

    /// Takes up to `n` pages back.
    #[track_caller]
    pub(crate) fn take(&self, n: u32) -> u32 {
        let take = Raw::cmd(0x108, 16).set(4, 15, 0, 2).set(12, 31, 0, n);
        self.exec(&take, 16 + n as usize * 8).ok().dword(8)
    }

    #[track_caller]
    pub(crate) fn alloc_uar(&self) -> u32 {
        self.run(Raw::cmd(0x802, 16)).ok().dword(8)
    }

    pub(crate) fn map_uar(&self, uar: u32) -> Page {
        Page(self.function.map_bar(u64::from(uar) << 12, 4096).unwrap())
    }

    #[track_caller]
    pub(crate) fn alloc_pd(&self) -> u32 {
        self.run(Raw::cmd(0x800, 16)).ok().dword(8)
    }

    /// Makes an EQ of `1 << log` entries: its number and memory.
    #[track_caller]
    pub(crate) fn create_eq(&mut self, uar: u32, log: u32, vector: u32, events: u64) -> (u32, u64) {
        let memory = self.alloc((64 << log).max(4096), 0x01);
        let input = Raw::cmd(0x301, 272)
            .set(0x1c, 28, 24, log)
            .set(0x1c, 23, 0, uar)
            .set(0x24, 11, 0, vector)
            .set64(0x58, events)
            .list(&pages(memory, 64 << log));
        (self.run(input).ok().dword(8) & 0xff, memory)
    }

    /// CREATE_CQ of `1 << log` slots, and the CQ but for its number.
    pub(crate) fn cq_input(&mut self, uar: u32, log: u32, eqn: u32, cqe_sz: u32) -> (Raw, Cq) {
        let len_bytes = (64 << cqe_sz.min(1)) << log;
        let (memory, record) = (self.alloc(len_bytes.max(4096), 0xf1), self.alloc(8, 0));
        let input =
            Raw::cmd(0x400, 272).set(0x10, 23, 21, cqe_sz).set(0x1c, 28, 24, log).set(0x1c, 23, 0, uar);
        let input = input.set(0x24, 7, 0, eqn).set64(0x48, record).list(&pages(memory, len_bytes));
        (input, Cq { number: 0, memory, record, log, ci: 0 })
    }

    #[track_caller]
    pub(crate) fn create_cq(&mut self, uar: u32, log: u32, eqn: u32) -> Cq {
        let (input, cq) = self.cq_input(uar, log, eqn, 0);
        Cq { number: self.run(input).ok().dword(8), ..cq }
    }

    /// Makes an RC QP with `1 << log_sq` WQEBBs and as many receive WQEs of 16 bytes.
    #[track_caller]
    pub(crate) fn create_qp(&mut self, pd: u32, uar: u32, cq: &Cq, log_sq: u32) -> Qp {
        let len_bytes = (16 << log_sq).max(64) + (64 << log_sq);
        let memory = self.alloc(len_bytes, 0);
        let record = self.alloc(8, 0);
        let input = Raw::cmd(0x500, 272)
            .set(0x18 + 0x04, 23, 0, pd)
            .set(0x18 + 0x08, 22, 19, log_sq)
            .set(0x18 + 0x08, 14, 11, log_sq)
            .set(0x18 + 0x0c, 23, 0, uar)
            .set(0x18 + 0x10, 23, 0, 0x77)
            .set(0x18 + 0x7c, 23, 0, cq.number)
            .set(0x18 + 0x9c, 23, 0, cq.number)
            .set64(0x18 + 0xa0, record)
            .list(&pages(memory, len_bytes));
        let number = self.run(input).ok().dword(8);
        Qp { number, send: memory + (16 << log_sq).max(64), record, log_sq, pi: 0 }
    }

    /// A transition with this QPC.
    pub(crate) fn modify(&self, opcode: u16, qp: &Qp, mask: u32, qpc: &Raw) -> Answer {
        self.run(Raw::cmd(opcode, 272).set(8, 23, 0, qp.number).set(0x10, 31, 0, mask).put(0x18, &qpc.0))
    }

    /// Walks a QP to RTS with a peer.
    #[track_caller]
    pub(crate) fn connect(&self, qp: &Qp, remote_qpn: u32, remote_mac: [u8; 6], remote_gid: [u8; 16]) {
        let init = Raw::new(232).set(0x18 + 0x24, 23, 16, 1).set(0x90, 15, 13, 0b111);
        self.modify(0x502, qp, 0, &init).ok();
        self.establish(qp, remote_qpn, remote_mac, remote_gid);
    }

    /// The same from INIT on.
    #[track_caller]
    pub(crate) fn establish(&self, qp: &Qp, remote_qpn: u32, remote_mac: [u8; 6], remote_gid: [u8; 16]) {
        let rtr = Raw::new(232)
            .set(0x08, 31, 29, 3)
            .set(0x08, 28, 24, 30)
            .set(0x14, 23, 0, remote_qpn)
            .set(0x18 + 0x24, 15, 0, u16::from_be_bytes(remote_mac[..2].try_into().unwrap()).into())
            .set(0x18 + 0x28, 31, 0, u32::from_be_bytes(remote_mac[2..].try_into().unwrap()))
            .put(0x18 + 0x10, &remote_gid)
            .set(0x18 + 0x08, 7, 0, 64)
            .set(0x94, 28, 24, 12);
        self.modify(0x503, qp, 0, &rtr).ok();
        let rts = Raw::new(232).set(0x18 + 0x08, 31, 27, 14).set(0x70, 18, 16, 7).set(0x70, 15, 13, 7);
        self.modify(0x504, qp, 0, &rts).ok();
    }

    pub(crate) fn mac(&self) -> [u8; 6] {
        let out = self.exec(&Raw::cmd(0x754, 16), 272).ok();
        out.bytes[16 + 0xf4 + 2..16 + 0xf4 + 8].try_into().unwrap()
    }

    /// Sets GID 0 to the link-local one of the MAC (RoCE v2, IPv6).
    #[track_caller]
    pub(crate) fn set_gid(&self) -> [u8; 16] {
        let mac = self.mac();
        let gid =
            [0xfe, 0x80, 0, 0, 0, 0, 0, 0, mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]];
        let input =
            Raw::cmd(0x761, 48).put(0x10, &gid).put(0x22, &mac).set(0x28, 11, 8, 1).set(0x28, 7, 0, 2);
        self.run(input).ok();
        gid
    }
}

/// Addresses of the pages of a buffer.
pub(crate) fn pages(memory: u64, len_bytes: u64) -> Vec<u64> {
    (0..len_bytes.div_ceil(0x1000)).map(|n| memory + n * 0x1000).collect()
}

pub(crate) struct Cq {
    pub(crate) number: u32,
    pub(crate) memory: u64,
    pub(crate) record: u64,
    pub(crate) log: u32,
    pub(crate) ci: u32,
}

impl Cq {
    /// The next CQE, consumed if `consume` tells the device so.
    pub(crate) fn poll(&mut self, rig: &Rig, consume: bool) -> Option<Vec<u8>> {
        let slot = u64::from(self.ci & ((1 << self.log) - 1));
        let cqe = rig.read(self.memory + slot * 64, 64);
        let valid = cqe[63] >> 4 != 0xf && u32::from(cqe[63] & 1) == self.ci >> self.log & 1;
        valid.then(|| {
            self.ci += 1;
            if consume {
                rig.write(self.record, &(self.ci & 0xff_ffff).to_be_bytes());
            }
            cqe
        })
    }

    /// Waits for the next CQE.
    #[track_caller]
    pub(crate) fn wait(&mut self, rig: &Rig) -> Vec<u8> {
        let start = Instant::now();
        loop {
            if let Some(cqe) = self.poll(rig, true) {
                return cqe;
            }
            rig.function.relax(Duration::from_micros(20));
            assert!(start.elapsed() < Duration::from_secs(5), "no completion");
        }
    }
}

pub(crate) struct Qp {
    pub(crate) number: u32,
    pub(crate) send: u64,
    pub(crate) record: u64,
    pub(crate) log_sq: u32,
    pub(crate) pi: u16,
}

impl Qp {
    /// A control segment that asks for a completion, and `rest_bytes` behind it.
    fn ctrl(&self, opcode: u8, rest_bytes: usize) -> Raw {
        Raw::new(16)
            .set(0, 23, 8, self.pi.into())
            .set(0, 7, 0, opcode.into())
            .set(4, 31, 8, self.number)
            .set(4, 5, 0, 1 + rest_bytes as u32 / 16)
            .set(8, 3, 2, 2)
    }

    /// Writes a WQE of one WQEBB: control segment, then `rest`. Returns the doorbell.
    pub(crate) fn wqe(&mut self, rig: &Rig, opcode: u8, rest: &[u8]) -> [u8; 8] {
        let wqe = Raw::new(64).put(0, &self.ctrl(opcode, rest.len()).0).put(16, rest).0;
        let slot = u64::from(self.pi) & ((1 << self.log_sq) - 1);
        rig.write(self.send + slot * 64, &wqe);
        self.pi = self.pi.wrapping_add(1);
        wqe[..8].try_into().unwrap()
    }

    /// Writes a WQE of any length, around the end of the ring, and its record. Returns the doorbell.
    pub(crate) fn long_wqe(&mut self, rig: &Rig, opcode: u8, imm: u32, rest: &[u8]) -> [u8; 8] {
        let mut wqe = self.ctrl(opcode, rest.len()).set(12, 31, 0, imm).0;
        wqe.extend_from_slice(rest);
        for block in wqe.chunks(64) {
            let slot = u64::from(self.pi) & ((1 << self.log_sq) - 1);
            rig.write(self.send + slot * 64, block);
            self.pi = self.pi.wrapping_add(1);
        }
        self.record(rig);
        wqe[..8].try_into().unwrap()
    }

    pub(crate) fn wqe_bytes(&self, rig: &Rig) -> [u8; 64] {
        let slot = u64::from(self.pi.wrapping_sub(1)) & ((1 << self.log_sq) - 1);
        rig.read(self.send + slot * 64, 64).try_into().unwrap()
    }

    /// Publishes the producer counter.
    pub(crate) fn record(&self, rig: &Rig) {
        rig.write(self.record + 4, &u32::from(self.pi).to_be_bytes());
    }

    /// A NOP with completion: written and recorded. Returns the doorbell.
    pub(crate) fn nop(&mut self, rig: &Rig) -> [u8; 8] {
        let doorbell = self.wqe(rig, 0, &[]);
        self.record(rig);
        doorbell
    }
}

/// A mapped UAR page.
pub(crate) struct Page(Box<dyn BarMapping>);

impl Page {
    /// Stores 8 bytes.
    pub(crate) fn store64(&self, offset: usize, bytes: [u8; 8]) {
        assert!(offset.is_multiple_of(8) && offset < 4096);
        // SAFETY: inside the page, aligned; the other side uses atomics or carries out the faulting store.
        unsafe { self.0.base().add(offset).cast::<u64>().write_volatile(u64::from_ne_bytes(bytes)) };
    }

    /// Stores 4 bytes.
    pub(crate) fn store32(&self, offset: usize, bytes: [u8; 4]) {
        assert!(offset.is_multiple_of(4) && offset < 4096);
        // SAFETY: as above.
        unsafe { self.0.base().add(offset).cast::<u32>().write_volatile(u32::from_ne_bytes(bytes)) };
    }

    /// The page's address, for stores of other widths.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < 4096);
        // SAFETY: inside the page.
        unsafe { self.0.base().add(offset) }.as_ptr()
    }

    pub(crate) fn ring(&self, doorbell: [u8; 8]) {
        self.store64(0x800, doorbell);
    }
}
