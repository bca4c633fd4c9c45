//! The floor: the same stores and loads written by hand, and nothing else. No credits, no ledger, no checks, no
//! errors, no wrap inside a WQE; constants where we take arguments. It posts the same bytes with the same fences.
#![allow(dead_code, unreachable_pub)] // a module of benchmarks and tests

use super::rig::{LOG_SIZE, QPN, REMOTE, SGE, memory};
use std::arch::asm;

const MASK: u32 = (1 << LOG_SIZE) - 1;

/// A queue pair and a completion queue, bare.
pub struct Floor {
    ring: *mut u64,
    record: *mut u32,
    register: *mut u64,
    half: usize,
    pi: u32,
    recv_ring: *mut u64,
    recv_pi: u32,
    cq: *mut u8,
    cq_record: *mut u32,
    ci: u32,
    wr_ids: *const u64,
}

#[inline(always)]
fn sfence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a barrier.
    unsafe {
        asm!("sfence", options(nostack, preserves_flags))
    }
}

/// A control segment: index, opcode and ds, and whether it is signalled.
#[inline(always)]
fn ctrl(index: u32, opcode: u64, ds: u64, signaled: bool) -> [u64; 2] {
    let first = (u64::from(index & 0xffff) << 8 | opcode) << 32 | u64::from(QPN.get()) << 8 | ds;
    [first.to_be(), if signaled { (8u64 << 32).to_be() } else { 0 }]
}

#[inline(always)]
fn data_seg() -> [u64; 2] {
    [(u64::from(SGE.len_bytes) << 32 | u64::from(SGE.lkey.get())).to_be(), SGE.addr.to_be()]
}

#[inline(always)]
fn raddr_seg() -> [u64; 2] {
    [REMOTE.addr.to_be(), (u64::from(REMOTE.rkey.get()) << 32).to_be()]
}

impl Floor {
    pub fn new() -> Self {
        Self {
            ring: memory(64 << LOG_SIZE).cast().as_ptr(),
            record: memory(8).cast().as_ptr(),
            register: memory(512).cast().as_ptr(),
            half: 0,
            pi: 0,
            recv_ring: memory(64 << LOG_SIZE).cast().as_ptr(),
            recv_pi: 0,
            cq: memory(64 << LOG_SIZE).as_ptr(),
            cq_record: memory(8).cast().as_ptr(),
            ci: 0,
            wr_ids: memory(8 << LOG_SIZE).cast().as_ptr(),
        }
    }

    /// `n` CQEs of this lap on.
    pub fn complete(&mut self, n: u32) {
        for i in 0..n {
            let at = self.ci + i;
            // SAFETY: a slot of the ring.
            unsafe { self.cq.add((at & MASK) as usize * 64 + 63).write_volatile((at >> LOG_SIZE & 1) as u8) };
        }
    }

    /// Where the `n` next CQEs are.
    pub fn newest(&self, n: u32) -> impl Iterator<Item = *const u8> + '_ {
        // SAFETY: a slot of the ring.
        (0..n).map(|i| unsafe { self.cq.add(((self.ci + i) & MASK) as usize * 64).cast_const() })
    }

    /// No new CQE.
    pub fn complete_none(&mut self) {
        // SAFETY: a slot of the ring.
        unsafe { self.cq.add((self.ci & MASK) as usize * 64 + 63).write_volatile(0xf1) };
    }

    #[inline(always)]
    fn slot(&self) -> *mut u64 {
        // SAFETY: masked to the ring.
        unsafe { self.ring.add((self.pi & MASK) as usize * 8) }
    }

    /// Stores `words` to the ring, rings with them by BlueFlame in whole lines of `LINES`.
    #[inline(always)]
    fn blue_flame<const WORDS: usize, const LINES: usize>(&mut self, words: [u64; WORDS]) {
        let slot = self.slot();
        self.pi = self.pi.wrapping_add(LINES as u32);
        // SAFETY: within ring, record and register; the benchmark never wraps inside a WQE.
        unsafe {
            for (i, word) in words.iter().enumerate() {
                slot.add(i).write(*word);
            }
            asm!("", options(nostack, preserves_flags));
            self.record.write_volatile((self.pi & 0xffff).to_be());
            sfence();
            let to = self.register.add(self.half);
            for (i, word) in words.iter().enumerate() {
                to.add(i).write_volatile(*word);
            }
            for i in WORDS..8 * LINES {
                to.add(i).write_volatile(0);
            }
        }
        self.half ^= 32;
    }

    /// Stores a WQE of one WQEBB.
    #[inline(always)]
    fn put<const WORDS: usize>(&mut self, words: [u64; WORDS]) {
        let slot = self.slot();
        self.pi = self.pi.wrapping_add(1);
        for (i, word) in words.into_iter().enumerate() {
            // SAFETY: masked to the ring; a WQEBB has eight words.
            unsafe { slot.add(i).write(word) }
        }
    }

    /// Rings for the last WQE, whose control segment begins with this opcode and ds.
    #[inline(always)]
    fn ring(&mut self, opcode: u64, ds: u64) {
        let [first, _] = ctrl(self.pi.wrapping_sub(1), opcode, ds, true);
        // SAFETY: record and register.
        unsafe {
            asm!("", options(nostack, preserves_flags));
            self.record.write_volatile((self.pi & 0xffff).to_be());
            sfence();
            self.register.add(self.half).write_volatile(first);
            sfence();
        }
        self.half ^= 32;
    }

    #[inline(always)]
    fn publish_recv(&mut self) {
        // SAFETY: the record.
        unsafe {
            asm!("", options(nostack, preserves_flags));
            self.record.write_volatile((self.recv_pi & 0xffff).to_be());
        }
    }

    #[inline(always)]
    fn put_recv(&mut self) {
        let [low, high] = data_seg();
        // SAFETY: masked to the ring.
        unsafe {
            let slot = self.recv_ring.add((self.recv_pi & MASK) as usize * 8);
            slot.write(low);
            slot.add(1).write(high);
            slot.add(2).write(0x100u64.to_be());
            slot.add(3).write(0);
        }
        self.recv_pi = self.recv_pi.wrapping_add(1);
    }
}

#[inline(never)]
pub fn write_inline_8(floor: &mut Floor, data: &[u8; 8]) {
    let [c0, c1] = ctrl(floor.pi, 0x08, 3, true);
    let [r0, r1] = raddr_seg();
    let data = u64::from_ne_bytes(*data);
    let header = u64::from((0x8000_0008u32).to_be());
    floor.blue_flame::<6, 1>([c0, c1, r0, r1, header | data << 32, data >> 32]);
}

#[inline(never)]
pub fn send_inline_64(floor: &mut Floor, data: &[u8; 64]) {
    let [c0, c1] = ctrl(floor.pi, 0x0a, 6, true);
    let mut words = [0; 11];
    (words[0], words[1]) = (c0, c1);
    let mut carry = u64::from((0x8000_0040u32).to_be());
    for (i, chunk) in data.as_chunks::<8>().0.iter().enumerate() {
        let word = u64::from_ne_bytes(*chunk);
        words[2 + i] = carry | word << 32;
        carry = word >> 32;
    }
    words[10] = carry;
    floor.blue_flame::<11, 2>(words);
}

#[inline(never)]
pub fn send_sge(floor: &mut Floor) {
    let ([c0, c1], [d0, d1]) = (ctrl(floor.pi, 0x0a, 2, true), data_seg());
    floor.blue_flame::<4, 1>([c0, c1, d0, d1]);
}

#[inline(never)]
pub fn read(floor: &mut Floor) {
    let ([c0, c1], [r0, r1], [d0, d1]) = (ctrl(floor.pi, 0x10, 3, true), raddr_seg(), data_seg());
    floor.blue_flame::<6, 1>([c0, c1, r0, r1, d0, d1]);
}

#[inline(never)]
pub fn fetch_add(floor: &mut Floor) {
    let ([c0, c1], [r0, r1], [d0, d1]) = (ctrl(floor.pi, 0x12, 4, true), raddr_seg(), data_seg());
    floor.blue_flame::<8, 1>([c0, c1, r0, r1, 1u64.to_be(), 0, d0, d1]);
}

#[inline(never)]
pub fn send_batch<const N: u32>(floor: &mut Floor) {
    for i in 0..N {
        let ([c0, c1], [d0, d1]) = (ctrl(floor.pi, 0x0a, 2, i == N - 1), data_seg());
        floor.put([c0, c1, d0, d1]);
    }
    floor.ring(0x0a, 2);
}

#[inline(never)]
pub fn write_batch<const N: u32>(floor: &mut Floor, data: &[[u8; 8]; 64]) {
    let header = u64::from((0x8000_0008u32).to_be());
    let [r0, r1] = raddr_seg();
    for i in 0..N {
        let [c0, c1] = ctrl(floor.pi, 0x08, 3, i == N - 1);
        let data = u64::from_ne_bytes(data[i as usize]);
        floor.put([c0, c1, r0, r1, header | data << 32, data >> 32]);
    }
    floor.ring(0x08, 3);
}

#[inline(never)]
pub fn recv(floor: &mut Floor) {
    floor.put_recv();
    floor.publish_recv();
}

#[inline(never)]
pub fn recv_batch_16(floor: &mut Floor) {
    for _ in 0..16 {
        floor.put_recv();
    }
    floor.publish_recv();
}

/// Owner test, counter, `wr_id` and (as a receive would need) the length of at most `max` CQEs.
#[inline(never)]
pub fn poll(floor: &mut Floor, max: usize) -> u64 {
    let (start, mut sum) = (floor.ci, 0);
    for _ in 0..max {
        // SAFETY: masked to the ring, and to the table.
        unsafe {
            let cqe = floor.cq.add((floor.ci & MASK) as usize * 64);
            let op_own = cqe.add(63).read_volatile();
            if op_own & 1 != (floor.ci >> LOG_SIZE & 1) as u8 || op_own >= 0xf0 {
                break;
            }
            asm!("", options(nostack, preserves_flags));
            let counter = u16::from_be(cqe.add(60).cast::<u16>().read());
            sum += *floor.wr_ids.add((u32::from(counter) & MASK) as usize);
        }
        floor.ci = floor.ci.wrapping_add(1);
    }
    if floor.ci != start {
        // SAFETY: the record.
        unsafe {
            asm!("", options(nostack, preserves_flags));
            floor.cq_record.write_volatile((floor.ci & 0xff_ffff).to_be());
        }
    }
    sum
}
