//! A function that has a command queue and nothing else, for tests of the command queue: what it answers,
//! and when, is the test's to say.

use super::{BarMapping, PciFunction};
use crate::doorbell::{before_doorbell, explore::rung};
use crate::mlx5::{
    cmd::{
        CmdEntry, CmdStatus, DeliveryStatus, INLINE_BYTES, MAILBOX_DATA_BYTES, MailboxTrailer, MboxOut,
        block_signature, ctrl_signature, entry_signature, n_mailboxes,
    },
    init_segment::CMDIF_REV,
};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    io,
    ops::RangeInclusive,
    os::fd::BorrowedFd,
    ptr::NonNull,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// What a command gets.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    /// Status OK, and the input's bytes from the ninth on.
    Echo,
    /// A refusal.
    Status(CmdStatus, u32),
    /// The command is not taken.
    Delivery(DeliveryStatus),
    /// As `Echo`, but that a bit of the entry changes after it was signed.
    Altered,
}

#[derive(Debug, Default)]
struct State {
    registers: HashMap<u64, u32>,
    memory: BTreeMap<u64, (usize, usize)>,
    waiting: Vec<usize>,
    answers: VecDeque<Answer>,
    hold: bool,
    signed: bool,
    wanted_back: bool,
    broken: Vec<String>,
}

/// The fake: log_sz 5, log_stride 6.
#[derive(Debug, Default)]
pub(crate) struct FakeFunction {
    state: Mutex<State>,
    n_pauses: AtomicUsize,
    longest_pause_nanos: AtomicU64,
    n_health_looks: AtomicUsize,
}

impl FakeFunction {
    pub(crate) fn new() -> Self {
        let fake = Self::default();
        fake.state().registers.extend([(0x4, u32::from(CMDIF_REV) << 16), (0x14, 0x56), (0x230, 1)]);
        fake
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves commands waiting from now on, or answers all that wait.
    pub(crate) fn hold(&self, hold: bool) {
        let mut state = self.state();
        state.hold = hold;
        if !hold {
            state.answer_all();
        }
    }

    /// Checks and makes mailbox signatures.
    pub(crate) fn sign(&self) {
        self.state().signed = true;
    }

    /// Says that the host wants the function back.
    pub(crate) fn want_back(&self) {
        self.state().wanted_back = true;
    }

    pub(crate) fn set_register(&self, offset: u64, value: u32) {
        self.state().registers.insert(offset, value);
    }

    /// What the next command gets.
    pub(crate) fn answer_next(&self, answer: Answer) {
        self.state().answers.push_back(answer);
    }

    /// Slots that wait, in the order they were rung.
    pub(crate) fn waiting(&self) -> Vec<usize> {
        self.state().waiting.clone()
    }

    /// Answers a waiting slot.
    pub(crate) fn complete(&self, slot: usize) {
        let mut state = self.state();
        state.waiting.retain(|waiting| *waiting != slot);
        state.answer(slot);
    }

    /// Rules of the interface that the driver broke.
    pub(crate) fn broken(&self) -> Vec<String> {
        self.state().broken.clone()
    }

    /// Pauses that the driver has made.
    pub(crate) fn n_pauses(&self) -> usize {
        self.n_pauses.load(Ordering::Relaxed)
    }

    /// The longest of them.
    pub(crate) fn longest_pause(&self) -> Duration {
        Duration::from_nanos(self.longest_pause_nanos.load(Ordering::Relaxed))
    }

    /// How often the driver has looked whether the device is there.
    pub(crate) fn n_health_looks(&self) -> usize {
        self.n_health_looks.load(Ordering::Relaxed)
    }

    /// Where the device's address `iova` is in this process.
    pub(crate) fn memory_at(&self, iova: u64) -> NonNull<u8> {
        NonNull::new(self.state().at(iova, 1)).expect("mapped memory")
    }

    /// Mappings that are alive.
    pub(crate) fn n_mappings(&self) -> usize {
        self.state().memory.len()
    }
}

impl State {
    fn at(&self, iova: u64, len: usize) -> *mut u8 {
        let (start, (base, size)) = self.memory.range(..=iova).next_back().expect("nothing mapped there");
        let offset = (iova - start) as usize;
        assert!(offset + len <= *size, "0x{iova:x}: {len} bytes pass the end of the mapping");
        std::ptr::with_exposed_provenance_mut(base + offset)
    }

    fn read(&self, iova: u64, bytes: &mut [u8]) {
        // SAFETY: mapped memory stays valid until it is unmapped, and `at` has checked the range.
        unsafe { self.at(iova, bytes.len()).copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) }
    }

    fn write(&self, iova: u64, bytes: &[u8]) {
        // SAFETY: as in `read`.
        unsafe { self.at(iova, bytes.len()).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }

    fn rule(&mut self, kept: bool, text: impl Into<String>) {
        if !kept {
            self.broken.push(text.into());
        }
    }

    /// The blocks of a chain, checked.
    fn chain(&mut self, first: u64, len: usize, token: u8) -> Vec<u64> {
        let mut blocks = Vec::new();
        let mut at = first;
        for n in 0..n_mailboxes(len) {
            let mut data = [0; MAILBOX_DATA_BYTES];
            let mut trailer = MailboxTrailer::new().to_bytes();
            self.read(at, &mut data);
            self.read(at + MAILBOX_DATA_BYTES as u64, &mut trailer);
            let trailer = MailboxTrailer::from_bytes(trailer);
            self.rule(at.is_multiple_of(1024), "alignment");
            self.rule(trailer.token() == token, "token of a block");
            self.rule(trailer.block_num() == n as u32, "block_num");
            let signed = trailer.signature() == block_signature(&data, &trailer);
            self.rule(!self.signed || signed, "signature of a block");
            blocks.push(at);
            at = trailer.next();
        }
        self.rule(at == 0, "a chain goes on after its last block");
        blocks
    }

    fn answer_all(&mut self) {
        for slot in std::mem::take(&mut self.waiting) {
            self.answer(slot);
        }
    }

    fn answer(&mut self, slot: usize) {
        let queue = u64::from(self.registers[&0x10]) << 32 | u64::from(self.registers[&0x14] & !0xfff);
        let at = queue + slot as u64 * 64;
        let mut bytes = CmdEntry::new().to_bytes();
        self.read(at, &mut bytes);
        let entry = CmdEntry::from_bytes(bytes);
        self.rule(entry.hw_owned(), "a rung slot is not the device's");
        self.rule(entry.type_() == 7, "type");
        self.rule(entry.token() != 0, "token 0");
        self.rule(entry_signature(&entry) == entry.signature(), "signature of the entry");
        let (in_len, out_len) = (entry.input_length() as usize, entry.output_length() as usize);
        let mut input = entry.input_inline().to_vec();
        for block in self.chain(entry.input_mailbox_ptr(), in_len, entry.token()) {
            let mut data = [0; MAILBOX_DATA_BYTES];
            self.read(block, &mut data);
            input.extend(data);
        }
        input.truncate(in_len.max(8));
        let out_blocks = self.chain(entry.output_mailbox_ptr(), out_len, entry.token());
        let answer = self.answers.pop_front().unwrap_or(Answer::Echo);
        let mut done = entry.with_hw_owned(false);
        let mut output = MboxOut::new().to_bytes()[..8].to_vec();
        match answer {
            Answer::Echo | Answer::Altered => output.extend(&input[8..]),
            Answer::Status(status, syndrome) => {
                output = MboxOut::new().with_status(status).with_syndrome(syndrome).to_bytes().to_vec();
            }
            Answer::Delivery(status) => done.set_delivery_status(status),
        }
        output.resize(out_len.max(INLINE_BYTES), 0);
        for (block, part) in out_blocks.into_iter().zip(output[INLINE_BYTES..].chunks(MAILBOX_DATA_BYTES)) {
            self.write(block, part);
            if self.signed {
                let mut data = [0; MAILBOX_DATA_BYTES];
                let mut trailer = MailboxTrailer::new().to_bytes();
                self.read(block, &mut data);
                self.read(block + MAILBOX_DATA_BYTES as u64, &mut trailer);
                let mut trailer =
                    MailboxTrailer::from_bytes(trailer).with_ctrl_signature(0).with_signature(0);
                trailer.set_ctrl_signature(ctrl_signature(&trailer));
                trailer.set_signature(block_signature(&data, &trailer));
                self.write(block + MAILBOX_DATA_BYTES as u64, &trailer.to_bytes());
            }
        }
        let mut inline = [0; INLINE_BYTES];
        inline.copy_from_slice(&output[..INLINE_BYTES]);
        done.set_output_inline(inline);
        done.set_signature(entry_signature(&done));
        let mut bytes = done.to_bytes();
        bytes[1] ^= u8::from(matches!(answer, Answer::Altered));
        self.write(at, &bytes[..60]);
        // Ownership goes last, in one store.
        let status = u32::from_ne_bytes([bytes[60], bytes[61], bytes[62], bytes[63]]);
        std::sync::atomic::fence(Ordering::Release);
        // SAFETY: as in `write`; an entry is aligned to 64 bytes.
        unsafe { self.at(at + 60, 4).cast::<u32>().write_volatile(status) }
    }
}

impl PciFunction for FakeFunction {
    fn name(&self) -> String {
        "fake".into()
    }

    fn config_read(&self, _offset: u16, _bytes: &mut [u8]) -> io::Result<()> {
        Ok(())
    }

    fn config_write(&self, _offset: u16, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn bar_size_bytes(&self) -> u64 {
        1 << 20
    }

    fn bar_read32(&self, offset: u64) -> u32 {
        self.n_health_looks.fetch_add(usize::from(offset == 0x230), Ordering::Relaxed);
        self.state().registers.get(&offset).copied().unwrap_or(0)
    }

    fn bar_write32(&self, offset: u64, value: u32) {
        // As VFIO's.
        before_doorbell(false);
        rung("register", value);
        let mut state = self.state();
        if offset != 0x18 {
            state.registers.insert(offset, value);
            return;
        }
        let slots: Vec<usize> = (0..32).filter(|slot| value >> slot & 1 != 0).collect();
        state.waiting.extend(slots);
        if !state.hold {
            state.answer_all();
        }
    }

    fn map_bar(&self, _offset: u64, _len_bytes: usize) -> io::Result<Box<dyn BarMapping>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn iova_ranges(&self) -> Vec<RangeInclusive<u64>> {
        vec![0..=u64::from(u32::MAX)]
    }

    unsafe fn dma_map(
        &self,
        iova: u64,
        memory: NonNull<u8>,
        len_bytes: usize,
        _file: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        self.state().memory.insert(iova, (memory.as_ptr().expose_provenance(), len_bytes));
        Ok(())
    }

    fn dma_unmap(&self, iova: u64, len_bytes: usize) -> io::Result<()> {
        let unmapped = self.state().memory.remove(&iova);
        assert_eq!(unmapped.map(|(_, len)| len), Some(len_bytes));
        Ok(())
    }

    fn n_vectors(&self) -> u16 {
        1
    }

    fn set_irq(&self, _vector: u16, _eventfd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        Ok(())
    }

    fn is_wanted_back(&self) -> bool {
        self.state().wanted_back
    }

    fn reset(&self) -> io::Result<()> {
        Ok(())
    }

    fn relax(&self, pause: Duration) {
        self.n_pauses.fetch_add(1, Ordering::Relaxed);
        self.longest_pause_nanos.fetch_max(pause.as_nanos() as u64, Ordering::Relaxed);
        std::thread::yield_now();
    }
}
