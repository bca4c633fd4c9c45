//! The command queue: commands of many threads in flight at once, each with its own deadline.
//!
//! A command owns a slot from posting to completion. The ownership bit in the slot says when it is done;
//! events only wake those who wait for it, so a lost event costs time and never the command. A command that
//! is not answered in time leaves its slot and mailboxes to the device: they are used again only when the
//! device has let go of them.
#![forbid(unsafe_code)]

use super::{health::Health, mailbox::Mailboxes, regs};
use crate::{
    Error, Gone, Result,
    backend::{
        dma::{DmaRegion, DmaSpace, PAGE_BYTES},
        pci::PciFunction,
    },
    mistake::mistake,
    mlx5::{
        cmd::{
            CmdEntry, CmdOpcode, CmdStatus, Command, DeliveryStatus, INLINE_BYTES, MAX_COMMANDS, MboxIn,
            MboxOut, PCI_CMD_XPORT, entry_signature,
        },
        init_segment::{CMDIF_REV, CmdifRevFwSub, CmdqAddrLSz},
        layout::Layout,
    },
};
use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};
use zerocopy::FromBytes;

/// Longest sleep between two looks at the ownership bit when events should come: bounds what a lost event
/// costs.
const EVENT_SLICE: Duration = Duration::from_millis(100);
/// Longest pause between two looks when polling.
const POLL_SLICE: Duration = Duration::from_millis(1);
/// Pause between two looks at the health registers while a command is waited for: a dead device costs no more.
const HEALTH_SLICE: Duration = Duration::from_millis(100);
/// Offset of the entry's last dword: token, signature, status, ownership.
const STATUS_OFFSET: usize = 60;

/// Which slots a command may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// All but the last.
    Regular,
    /// The last, kept for MANAGE_PAGES: firmware may wait for pages before it completes the others.
    Pages,
}

/// The command queue of one function.
#[derive(Debug)]
pub(super) struct CommandQueue {
    function: Arc<dyn PciFunction>,
    dma: Arc<DmaSpace>,
    health: Arc<Health>,
    /// `None` once the function is down.
    memory: Mutex<Option<Arc<QueueMemory>>>,
    n_slots: usize,
    pool: Mutex<Pool>,
    slot_freed: Condvar,
    by_events: AtomicBool,
    completion: Mutex<()>,
    completed: Condvar,
    last_token: AtomicU8,
    signed: AtomicBool,
    timeout: Duration,
}

/// The entries, and the mailboxes of each slot.
#[derive(Debug)]
struct QueueMemory {
    entries: DmaRegion,
    log_stride: u8,
    slots: Vec<Mutex<Mailboxes>>,
}

impl QueueMemory {
    fn offset(&self, slot: usize) -> usize {
        slot << self.log_stride
    }

    fn hw_owned(&self, slot: usize) -> bool {
        self.entries.memory().read_be32_acquire(self.offset(slot) + STATUS_OFFSET) & 1 != 0
    }
}

/// Bit n is slot n. A slot in neither set belongs to a thread.
#[derive(Debug)]
struct Pool {
    free: u32,
    /// Left to the device by commands that timed out.
    stuck: u32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a command ends what others have made: those that Linux counts as done on a device in error
/// (`mlx5_internal_err_ret_value`).
fn takes_down(opcode: CmdOpcode) -> bool {
    const ENDS: [&str; 4] = ["DEALLOC_", "DELETE_", "DESTROY_", "DETACH_"];
    match opcode {
        CmdOpcode::QP_2ERR | CmdOpcode::QP_2RST => true,
        CmdOpcode::TEARDOWN_HCA | CmdOpcode::DISABLE_HCA | CmdOpcode::MANAGE_PAGES => true,
        other => other.name().is_some_and(|name| ENDS.iter().any(|ends| name.starts_with(ends))),
    }
}

impl CommandQueue {
    /// Sets up the queue and gives its address to the device.
    pub(super) fn new(
        function: Arc<dyn PciFunction>,
        dma: Arc<DmaSpace>,
        health: Arc<Health>,
        timeout: Duration,
    ) -> Result<Self> {
        let rev = CmdifRevFwSub::from_bytes(regs::read(&*function, regs::CMDIF_REV_FW_SUB)).cmdif_rev();
        if rev != CMDIF_REV {
            return Err(Error::Unsupported {
                capability: "cmdif_rev",
                reason: format!("command interface revision {rev}, this driver speaks {CMDIF_REV}"),
            });
        }
        let geometry = CmdqAddrLSz::from_bytes(regs::read(&*function, regs::CMDQ_ADDR_L_SZ));
        let (log_size, log_stride) = (geometry.log_cmdq_size(), geometry.log_cmdq_stride());
        let n_slots = 1_usize << log_size;
        if n_slots > MAX_COMMANDS || log_stride < 6 || log_size + log_stride > 12 {
            return Err(Error::Protocol(format!(
                "command queue of 2^{log_size} entries of 2^{log_stride} bytes: at most {MAX_COMMANDS} \
                 entries, at least 64 bytes each, one page in all"
            )));
        }
        let entries = dma.alloc(PAGE_BYTES, PAGE_BYTES)?;
        let iova = entries.address_of(0);
        let slots = (0..n_slots).map(|_| Mailboxes::new(&dma).map(Mutex::new)).collect::<Result<_>>()?;
        function.bar_write32(regs::CMDQ_ADDR_H, (iova >> 32) as u32);
        function.bar_write32(regs::CMDQ_ADDR_L_SZ, iova as u32);
        Ok(Self {
            function,
            dma,
            health,
            memory: Mutex::new(Some(Arc::new(QueueMemory { entries, log_stride, slots }))),
            n_slots,
            pool: Mutex::new(Pool { free: u32::MAX >> (32 - n_slots), stuck: 0 }),
            slot_freed: Condvar::new(),
            by_events: AtomicBool::new(false),
            completion: Mutex::new(()),
            completed: Condvar::new(),
            last_token: AtomicU8::new(0),
            signed: AtomicBool::new(false),
            timeout,
        })
    }

    /// Sleeps for completion events from now on (`true`), or looks at the slots (`false`).
    pub(super) fn use_events(&self, by_events: bool) {
        self.by_events.store(by_events, Ordering::Release);
        self.wake();
    }

    /// Signs mailboxes and checks the device's signatures from now on.
    pub(super) fn use_signatures(&self, signed: bool) {
        self.signed.store(signed, Ordering::Release);
    }

    /// A completion event came, or the device died: whoever waits looks again.
    pub(super) fn wake(&self) {
        // Taken, so that no waiter is between its look and its sleep.
        drop(lock(&self.completion));
        self.completed.notify_all();
        self.slot_freed.notify_all();
    }

    /// Lets go of all memory: the function is down, and reaches none of it.
    pub(super) fn release(&self) {
        *lock(&self.memory) = None;
    }

    /// Executes a command of fixed size.
    pub(super) fn call<C: Command>(&self, input: &C) -> Result<C::Out> {
        Ok(self.exec(Lane::Regular, input, &[], 0)?.0)
    }

    /// Executes a command: `tail` follows the input, `out_tail_bytes` follow the output.
    pub(super) fn exec<C: Command>(
        &self,
        lane: Lane,
        input: &C,
        tail: &[u8],
        out_tail_bytes: usize,
    ) -> Result<(C::Out, Vec<u8>)> {
        let input = [input.as_bytes(), tail].concat();
        let fixed_bytes = size_of::<C::Out>();
        let mut output = vec![0; fixed_bytes + out_tail_bytes];
        self.exec_bytes(lane, &input, &mut output)?;
        let (out, tail) = output.split_at(fixed_bytes);
        let out = C::Out::read_from_bytes(out)
            .map_err(|_| Error::Protocol(format!("{} has an odd size", C::Out::DESC.name)))?;
        Ok((out, tail.to_vec()))
    }

    /// Executes a command given as bytes: input of at least 8, output of at least 8 bytes.
    pub(super) fn exec_bytes(&self, lane: Lane, input: &[u8], output: &mut [u8]) -> Result<()> {
        let (header, _) = MboxIn::read_from_prefix(input)
            .map_err(|_| Error::invalid(format!("a command of {} bytes; 16 at least", input.len())))?;
        let opcode = header.opcode();
        let deadline = Instant::now() + self.timeout;
        self.admit(opcode)?;
        let Some(memory) = lock(&self.memory).clone() else { return Err(Error::DeviceGone(Gone::Closed)) };
        let slot = self.acquire(&memory, lane, deadline, opcode)?;
        let result = self.run(&memory, slot, input, output, deadline, opcode);
        let left_to_device = memory.hw_owned(slot);
        let mut pool = lock(&self.pool);
        if left_to_device {
            pool.stuck |= 1 << slot;
        } else {
            pool.free |= 1 << slot;
        }
        drop(pool);
        self.slot_freed.notify_all();
        result?;
        let mut out = MboxOut::new().to_bytes();
        let n = out.len().min(output.len());
        out[..n].copy_from_slice(&output[..n]);
        let out = MboxOut::from_bytes(out);
        if out.status() != CmdStatus::OK {
            return Err(Error::Command {
                opcode,
                op_mod: header.op_mod(),
                status: out.status(),
                syndrome: out.syndrome(),
            });
        }
        Ok(())
    }

    /// Refuses what the device cannot be asked any more: all if it is dead, and if the host wants it back, all that does
    /// not take something down.
    fn admit(&self, opcode: CmdOpcode) -> Result<()> {
        self.health.alive().or_else(|gone| if takes_down(opcode) { self.health.answers() } else { Err(gone) })
    }

    fn lane_mask(&self, lane: Lane) -> u32 {
        let all = u32::MAX >> (32 - self.n_slots);
        let pages = 1 << (self.n_slots - 1);
        match lane {
            // A queue of one slot has nothing to reserve.
            _ if self.n_slots == 1 => all,
            Lane::Pages => pages,
            Lane::Regular => all & !pages,
        }
    }

    fn acquire(
        &self,
        memory: &QueueMemory,
        lane: Lane,
        deadline: Instant,
        opcode: CmdOpcode,
    ) -> Result<usize> {
        let mask = self.lane_mask(lane);
        let mut pool = lock(&self.pool);
        loop {
            for slot in (0..self.n_slots).filter(|slot| pool.stuck >> slot & 1 != 0).collect::<Vec<_>>() {
                if !memory.hw_owned(slot) {
                    pool.stuck &= !(1 << slot);
                    pool.free |= 1 << slot;
                }
            }
            let usable = pool.free & mask;
            if usable != 0 {
                let slot = usable.trailing_zeros() as usize;
                pool.free &= !(1 << slot);
                return Ok(slot);
            }
            self.admit(opcode)?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let stuck = (pool.stuck & mask).count_ones();
                return Err(Error::Timeout {
                    what: format!(
                        "a free command slot for {opcode} ({stuck} of {} are stuck in the device)",
                        mask.count_ones()
                    ),
                    after: self.timeout,
                });
            }
            // A stuck slot comes back without a word, so look again now and then.
            let slice = left.min(POLL_SLICE * 10);
            pool = self.slot_freed.wait_timeout(pool, slice).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Posts a command in a slot that this thread owns, and waits for it.
    fn run(
        &self,
        queue: &QueueMemory,
        slot: usize,
        input: &[u8],
        output: &mut [u8],
        deadline: Instant,
        opcode: CmdOpcode,
    ) -> Result<()> {
        let signed = self.signed.load(Ordering::Acquire);
        let mut mailboxes = lock(&queue.slots[slot]);
        let (in_chain, out_chain) = mailboxes.chains(&self.dma, input.len(), output.len())?;
        // 1 to 255: the device tells by it that all blocks belong to this command, and zero is none.
        let token = 1 + self.last_token.fetch_add(1, Ordering::Relaxed) % 255;
        let (inline, rest) = input.split_at(input.len().min(INLINE_BYTES));
        mailboxes.write(in_chain, rest, token, signed);
        mailboxes.write(out_chain, &[], token, signed);
        let mut input_inline = [0; INLINE_BYTES];
        input_inline[..inline.len()].copy_from_slice(inline);
        if mistake!(CommandReservedBit) {
            input_inline[4] |= 0x80;
        }
        let unmapped = if mistake!(MailboxUnmapped) { 1 << 44 } else { 0 };
        let entry = CmdEntry::new()
            .with_type_(if mistake!(EntryType) { 0 } else { PCI_CMD_XPORT })
            .with_input_length(if mistake!(InputCutShort) { 64 } else { input.len() as u32 })
            .with_input_mailbox_ptr(mailboxes.address(in_chain) + unmapped)
            .with_input_inline(input_inline)
            .with_output_mailbox_ptr(mailboxes.address(out_chain))
            .with_output_length(output.len() as u32)
            .with_token(token)
            .with_hw_owned(!mistake!(EntryNotOwned));
        let signature = entry_signature(&entry) ^ u8::from(mistake!(EntrySignature));
        let entry = entry.with_signature(signature).to_bytes();
        let memory = queue.entries.memory();
        memory.write(queue.offset(slot), &entry[..STATUS_OFFSET]);
        let [.., a, b, c, d] = entry;
        // Ownership last: everything else is in memory when the device sees the slot as its own.
        memory.write_be32_release(queue.offset(slot) + STATUS_OFFSET, u32::from_be_bytes([a, b, c, d]));
        self.function.bar_write32(regs::CMD_DOORBELL, 1 << slot);
        if mistake!(CommandRungTwice) {
            self.function.bar_write32(regs::CMD_DOORBELL, 1 << slot);
        }

        self.wait(queue, slot, deadline, opcode)?;

        let mut entry = CmdEntry::new().to_bytes();
        memory.read(queue.offset(slot), &mut entry);
        let sum = entry.iter().fold(0, |sum, byte| sum ^ byte);
        let entry = CmdEntry::from_bytes(entry);
        if entry.delivery_status() != DeliveryStatus::OK {
            return Err(Error::Delivery { opcode, status: entry.delivery_status() });
        }
        if signed && sum != 0xff {
            return Err(Error::Protocol(format!(
                "the answer to {opcode} is not signed: XOR 0x{sum:02x}, not 0xff"
            )));
        }
        let inline_bytes = output.len().min(INLINE_BYTES);
        let (inline, rest) = output.split_at_mut(inline_bytes);
        inline.copy_from_slice(&entry.output_inline()[..inline_bytes]);
        mailboxes.read(out_chain, rest, signed)?;
        mailboxes.trim();
        Ok(())
    }

    fn wait(&self, queue: &QueueMemory, slot: usize, deadline: Instant, opcode: CmdOpcode) -> Result<()> {
        let mut pause = Duration::ZERO;
        let mut next_health = Instant::now() + HEALTH_SLICE;
        loop {
            if !queue.hw_owned(slot) {
                return Ok(());
            }
            self.health.answers()?;
            let now = Instant::now();
            let left = deadline.saturating_duration_since(now);
            if left.is_zero() || now >= next_health {
                next_health = now + HEALTH_SLICE;
                if let Some(gone) = self.health.sense() {
                    self.health.declare(gone);
                    self.health.answers()?;
                }
            }
            if left.is_zero() {
                break;
            }
            if self.by_events.load(Ordering::Acquire) && !self.function.is_stepped() {
                let guard = lock(&self.completion);
                if queue.hw_owned(slot) && self.health.gone().is_none() {
                    let slice = left.min(EVENT_SLICE);
                    drop(self.completed.wait_timeout(guard, slice).unwrap_or_else(PoisonError::into_inner));
                }
            } else {
                self.function.relax(pause.min(left));
                pause = (pause * 2).clamp(Duration::from_micros(1), POLL_SLICE);
            }
        }
        Err(Error::Timeout {
            what: format!("completion of command {opcode} in slot {slot}"),
            after: self.timeout,
        })
    }
}

#[cfg(test)]
mod tests;
