//! A function whose firmware lies: answers of commands and events are damaged on their way to the driver.

use crate::any_bytes::{Choices, damage};
use mlx5_direct::{
    backend::pci::{BarMapping, PciFunction},
    mlx5::{
        cmd::{CmdEntry, CmdOpcode, CreateEqIn},
        layout::Layout,
    },
};
use mlx5_model::ModelFunction;
use std::{
    io,
    ops::RangeInclusive,
    os::fd::BorrowedFd,
    ptr::NonNull,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

#[derive(Debug)]
pub(crate) struct Liar {
    function: Arc<ModelFunction>,
    state: Mutex<State>,
    /// One answer in so many is damaged, and after so many looks an event.
    one_in: usize,
}

#[derive(Debug)]
struct State {
    choices: Choices,
    /// Where the driver has its command entries.
    entries: u64,
    /// Slots that were rung for.
    rung: u32,
    /// First pages of event queues.
    event_rings: Vec<u64>,
    n_lies: u32,
}

impl Liar {
    pub(crate) fn new(function: Arc<ModelFunction>, choices: Choices, one_in: usize) -> Self {
        let state = State { choices, entries: 0, rung: 0, event_rings: Vec::new(), n_lies: 0 };
        Self { function, state: Mutex::new(state), one_in }
    }

    pub(crate) fn n_lies(&self) -> u32 {
        self.state().n_lies
    }

    /// Lets the card work, and damages what it has answered.
    pub(crate) fn step(&self) {
        self.relax(Duration::ZERO);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lie_where_answered(&self) {
        let mut state = self.state();
        for slot in 0..32 {
            if state.rung >> slot & 1 != 0 {
                self.lie(&mut state, slot);
            }
        }
        self.lie_in_event(&mut state);
    }

    /// Remembers where the event queue is that `slot` asks for, if it does.
    fn note_event_queue(&self, state: &mut State, slot: u32) -> Option<()> {
        const HEAD_BYTES: usize = 16;
        let dma = self.function.dma();
        let mut entry = CmdEntry::new().to_bytes();
        dma.read(state.entries + u64::from(slot) * 64, &mut entry).ok()?;
        if entry[0x10..0x12] != CmdOpcode::CREATE_EQ.0.to_be_bytes() {
            return None;
        }
        let pages = CreateEqIn::DESC.size_bytes - HEAD_BYTES;
        let mut first = [0; 8];
        dma.read(CmdEntry::from_bytes(entry).input_mailbox_ptr() + pages as u64, &mut first).ok()?;
        state.event_rings.push(u64::from_be_bytes(first));
        Some(())
    }

    /// Damages one of the first events of a queue, written or not.
    fn lie_in_event(&self, state: &mut State) -> Option<()> {
        let State { choices, event_rings, n_lies, .. } = state;
        if event_rings.is_empty() || choices.ended() || !choices.one_in(self.one_in) {
            return None;
        }
        let (dma, at) = (self.function.dma(), choices.one_of(event_rings) + choices.below(8) as u64 * 64);
        let mut event = [0; 64];
        dma.read(at, &mut event).ok()?;
        (0..1 + choices.below(3)).for_each(|_| damage(choices, &mut event));
        *n_lies += 1;
        dma.write(at, &event).ok()
    }

    /// Damages the answer in `slot`, if it is there.
    fn lie(&self, state: &mut State, slot: u32) -> Option<()> {
        let dma = self.function.dma();
        let at = state.entries + u64::from(slot) * 64;
        let mut entry = CmdEntry::new().to_bytes();
        dma.read(at, &mut entry).ok()?;
        if entry[63] & 1 != 0 {
            return None;
        }
        state.rung &= !(1 << slot);
        if state.choices.ended() || !state.choices.one_in(self.one_in) {
            return None;
        }
        state.n_lies += 1;
        // The entry's output, with the status of the delivery.
        let mut output = [&entry[0x20..0x30], &entry[0x3c..0x40]].concat();
        let entry = CmdEntry::from_bytes(entry);
        let (mut block, n_bytes) = (entry.output_mailbox_ptr(), entry.output_length() as usize);
        if n_bytes <= 16 || state.choices.bool() {
            damage(&mut state.choices, &mut output);
            // Never the device's again.
            output[19] &= !1;
            dma.write(at + 0x20, &output[..16]).ok()?;
            return dma.write(at + 0x3c, &output[16..]).ok();
        }
        for _ in 0..state.choices.below((n_bytes - 16).div_ceil(512)) {
            let mut next = [0; 8];
            dma.read(block + 560, &mut next).ok()?;
            block = u64::from_be_bytes(next);
        }
        let mut data = [0; 512];
        dma.read(block, &mut data).ok()?;
        (0..1 + state.choices.below(3)).for_each(|_| damage(&mut state.choices, &mut data));
        dma.write(block, &data).ok()
    }
}

impl PciFunction for Liar {
    fn name(&self) -> String {
        "liar".into()
    }

    fn config_read(&self, offset: u16, bytes: &mut [u8]) -> io::Result<()> {
        self.function.config_read(offset, bytes)
    }

    fn config_write(&self, offset: u16, bytes: &[u8]) -> io::Result<()> {
        self.function.config_write(offset, bytes)
    }

    fn bar_size_bytes(&self) -> u64 {
        self.function.bar_size_bytes()
    }

    fn bar_read32(&self, offset: u64) -> u32 {
        self.function.bar_read32(offset)
    }

    fn bar_write32(&self, offset: u64, value: u32) {
        let mut state = self.state();
        match offset {
            0x10 => state.entries = u64::from(value) << 32 | state.entries & 0xffff_ffff,
            0x14 => state.entries = state.entries & !0xffff_ffff | u64::from(value & !0xfff),
            0x18 => {
                state.rung |= value;
                for slot in (0..32).filter(|slot| value >> slot & 1 != 0) {
                    self.note_event_queue(&mut state, slot);
                }
            }
            _ => {}
        }
        drop(state);
        self.function.bar_write32(offset, value);
        self.lie_where_answered();
    }

    fn map_bar(&self, offset: u64, len_bytes: usize) -> io::Result<Box<dyn BarMapping>> {
        self.function.map_bar(offset, len_bytes)
    }

    fn iova_ranges(&self) -> Vec<RangeInclusive<u64>> {
        self.function.iova_ranges()
    }

    unsafe fn dma_map(
        &self,
        iova: u64,
        memory: NonNull<u8>,
        len_bytes: usize,
        file: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.function.dma_map(iova, memory, len_bytes, file) }
    }

    fn dma_unmap(&self, iova: u64, len_bytes: usize) -> io::Result<()> {
        self.function.dma_unmap(iova, len_bytes)
    }

    fn n_vectors(&self) -> u16 {
        self.function.n_vectors()
    }

    fn set_irq(&self, vector: u16, eventfd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.function.set_irq(vector, eventfd)
    }

    fn reset(&self) -> io::Result<()> {
        self.function.reset()
    }

    fn relax(&self, pause: Duration) {
        self.function.relax(pause);
        self.lie_where_answered();
    }

    fn is_stepped(&self) -> bool {
        self.function.is_stepped()
    }
}
