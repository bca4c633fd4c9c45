//! The command queue: slots, mailboxes, tokens, delivery.
#![forbid(unsafe_code)]

use super::{
    Function,
    dispatch::{self, Input},
    init_segment::{LOG_CMDQ_SIZE, LOG_CMDQ_STRIDE},
    refusal::Refusal,
};
use crate::{
    fault::CommandFate,
    mem::DmaFault,
    strict::{Queue, Rule, Violation},
    trace::Kind,
};
use mlx5_direct::mlx5::{
    cmd::{
        CmdEntry, CmdOpcode, CmdStatus, DeliveryStatus, INLINE_BYTES, MAILBOX_DATA_BYTES, MailboxTrailer,
        MboxIn, MboxOut, PCI_CMD_XPORT, block_signature, ctrl_signature, entry_signature, n_mailboxes,
    },
    layout::Layout,
};
use std::collections::BTreeMap;
use zerocopy::{FromBytes, IntoBytes};

/// Mailbox pointers are aligned to this at least.
const MAILBOX_ALIGN_BYTES: u64 = 512;
/// Longest input or output that firmware takes.
const MAX_LENGTH_BYTES: u32 = 1 << 20;

/// Slots rung and not yet executed.
#[derive(Debug, Default)]
pub(crate) struct CommandQueue {
    pending: u32,
    /// Slots of commands that hang.
    stuck: u32,
    /// When slots come whose commands were taken, by a fault, to be executed late.
    late: BTreeMap<u32, u64>,
    /// Slots whose commands have met their fault.
    fated: u32,
    /// Slots that were executed before their bit was seen to ring.
    early: u32,
    /// Slots of commands that wait for pages which the host was asked for.
    waiting: u32,
    /// Blocks of this command carry signatures.
    pub(crate) checksums: bool,
}

/// What becomes of a command.
enum Answer {
    Output(Vec<u8>),
    Hangs,
    Late {
        due_ns: u64,
    },
    /// After the others that were rung with it.
    Last,
    WaitsForPages,
}

/// Whether a slot has had its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Over,
    /// It comes after the others.
    Last,
}

impl CommandQueue {
    /// When the next command comes that is late.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.late.values().copied().min()
    }

    /// Slots that are taken, and do not begin when they are rung again.
    fn taken(&self) -> u32 {
        self.late.keys().fold(self.stuck, |slots, slot| slots | 1 << slot)
    }

    /// Takes up those that were late and have come due.
    fn take_up_late(&mut self, now_ns: u64) {
        while let Some(slot) = self.late.iter().find(|(_, due_ns)| **due_ns <= now_ns).map(|(slot, _)| *slot)
        {
            self.late.remove(&slot);
            self.pending |= 1 << slot;
        }
    }

    /// Takes up again what waited for pages.
    pub(super) fn resume(&mut self) {
        self.pending |= self.waiting;
    }
}

impl Function {
    /// The command doorbell: a bit for every slot to execute.
    pub(crate) fn ring_commands(&mut self, vector: u32) {
        self.record(Kind::Doorbell, &vector.to_be_bytes(), || format!("commands, slots 0x{vector:08x}"));
        if !self.config_space.bus_master() {
            self.violate_on(Queue::Cmd, Rule::CommandOrder, "a command was rung with bus mastering off");
        }
        self.commands.pending |= vector;
    }

    /// A command doorbell in a mapped init segment. It may have overwritten another, so every slot that hardware owns
    /// is executed; one that was executed so may ring yet, for nothing.
    pub(super) fn ring_mapped_commands(&mut self, vector: u32) {
        let mut owned = 0;
        for slot in 0..1u32 << LOG_CMDQ_SIZE {
            let at = self.iseg.cmdq_addr() + u64::from((slot << LOG_CMDQ_STRIDE) + 0x3f);
            let mut last = [0];
            if self.dma.read(at, &mut last).is_ok() && last[0] & 1 != 0 {
                owned |= 1 << slot;
            }
        }
        let again = vector & self.commands.early & !owned;
        let unseen = owned & !(vector | self.commands.taken() | self.commands.waiting);
        self.commands.early = self.commands.early & !vector | unseen;
        self.ring_commands(vector & !again | unseen);
    }

    /// Executes what was rung; true if anything was.
    pub(crate) fn run_commands(&mut self) -> bool {
        if !self.running() {
            return false;
        }
        self.commands.take_up_late(self.clock.now_ns());
        if self.commands.pending == 0 {
            return false;
        }
        // What was rung before a command is executed before it: a doorbell, then 2RST.
        if self.watching {
            self.poll_registers();
        }
        let pending = std::mem::take(&mut self.commands.pending);
        let slots = (0..1 << LOG_CMDQ_SIZE).filter(|slot| pending >> slot & 1 != 0);
        let last: Vec<u32> = slots.filter(|slot| self.run_slot(*slot) == Turn::Last).collect();
        for slot in last.into_iter().rev() {
            self.run_slot(slot);
        }
        true
    }

    fn run_slot(&mut self, slot: u32) -> Turn {
        let at = self.iseg.cmdq_addr() + u64::from(slot << LOG_CMDQ_STRIDE);
        let mut bytes = [0; 64];
        if let Err(fault) = self.dma.read(at, &mut bytes) {
            let violation = Violation::new(Rule::DmaMapped, format!("command queue: {fault}"));
            self.violate(violation.on(Queue::Cmd).at_index(slot));
            return Turn::Over;
        }
        let entry = CmdEntry::from_bytes(bytes);
        if !entry.hw_owned() || self.commands.taken() >> slot & 1 != 0 {
            let what = if entry.hw_owned() { "is still being executed" } else { "is owned by software" };
            let violation = Violation::new(Rule::CommandEntry, format!("the slot was rung and {what}"));
            self.violate(violation.on(Queue::Cmd).at_index(slot).with_bytes_of(CmdEntry::DESC, &bytes));
            return Turn::Over;
        }
        let had_event_queue = self.command_eq().is_some();
        let (output, status) = match self.deliver(slot, &entry) {
            Ok(Answer::Output(output)) => (output, DeliveryStatus::OK),
            Err(status) => (Vec::new(), status),
            Ok(Answer::Last) => return Turn::Last,
            Ok(Answer::Hangs) => {
                self.commands.stuck |= 1 << slot;
                return Turn::Over;
            }
            Ok(Answer::Late { due_ns }) => {
                self.commands.late.insert(slot, due_ns);
                return Turn::Over;
            }
            Ok(Answer::WaitsForPages) => {
                self.commands.waiting |= 1 << slot;
                return Turn::Over;
            }
        };
        self.commands.fated &= !(1 << slot);
        self.complete(at, &entry, &output, status);
        // While the first command EQ is being made its creator still polls.
        if had_event_queue {
            self.command_event(1 << slot);
        }
        Turn::Over
    }

    /// Fetches and executes a command.
    fn deliver(&mut self, slot: u32, entry: &CmdEntry) -> Result<Answer, DeliveryStatus> {
        let has_waited = self.commands.waiting >> slot & 1 != 0;
        self.commands.waiting &= !(1 << slot);
        let lengths = [entry.input_length(), entry.output_length()];
        if entry.type_() != PCI_CMD_XPORT {
            return Err(self.undelivered(slot, entry, DeliveryStatus::CMD_DESCR_ERR, "type is not 7"));
        }
        // Without checksums nobody looks: rdma-core's VFIO provider leaves the device's own of the last time there.
        if self.commands.checksums && entry_signature(entry) != entry.signature() {
            return Err(self.undelivered(
                slot,
                entry,
                DeliveryStatus::SIGNAT_ERR,
                "entry signature is wrong",
            ));
        }
        if !(8..=MAX_LENGTH_BYTES).contains(&lengths[0]) {
            return Err(self.undelivered(slot, entry, DeliveryStatus::IN_LENGTH_ERR, "input_length"));
        }
        if !(8..=MAX_LENGTH_BYTES).contains(&lengths[1]) {
            return Err(self.undelivered(slot, entry, DeliveryStatus::OUT_LENGTH_ERR, "output_length"));
        }
        let input = self.gather(slot, entry)?;
        self.output_chain(slot, entry)?;
        let head = MboxIn::read_from_prefix(&input).map_or_else(|_| MboxIn::new(), |(head, _)| head);
        let opcode = head.opcode();
        if !has_waited {
            self.record(Kind::CommandIn, &input, || format!("slot {slot}: {opcode}"));
        }
        let fate = self.fate_of(slot, opcode);
        match fate {
            Some(CommandFate::Stuck) => return Ok(Answer::Hangs),
            Some(CommandFate::Late(time)) => {
                let due_ns = self.clock.now_ns().saturating_add(time.as_nanos() as u64);
                return Ok(Answer::Late { due_ns });
            }
            Some(CommandFate::Last) => return Ok(Answer::Last),
            Some(CommandFate::Undelivered(status)) => return Err(status),
            Some(CommandFate::Fail(..)) | None => {}
        }
        let output_len_bytes = entry.output_length() as usize;
        let mut output = match fate {
            Some(CommandFate::Fail(status, syndrome)) => failure(status, syndrome),
            _ => match dispatch::execute(self, opcode, &Input { bytes: &input, output_len_bytes }) {
                Ok(output) => output,
                // Pages are on their way: a card does not fail the command that came before them.
                Err(Refusal::NO_PAGES) if self.pages.are_coming() => return Ok(Answer::WaitsForPages),
                Err(refusal) => {
                    self.note(|| format!("{opcode} refused: {}", refusal.text));
                    if let Some(rule) = refusal.rule() {
                        let violation = Violation::new(rule, format!("{opcode}: {}", refusal.text));
                        self.violate(dispatch::of_command(violation, opcode, &input).at_index(slot));
                    }
                    failure(refusal.status, refusal.syndrome)
                }
            },
        };
        self.record(Kind::CommandOut, &output, || format!("slot {slot}: {opcode}"));
        output.resize(output_len_bytes, 0);
        Ok(Answer::Output(output))
    }

    /// What a fault makes of the command in a slot. One that comes late or last has met it by then.
    fn fate_of(&mut self, slot: u32, opcode: CmdOpcode) -> Option<CommandFate> {
        if self.commands.fated >> slot & 1 != 0 {
            return None;
        }
        let fate = self.faults.command(self.index, opcode)?;
        self.note(|| format!("fault: {opcode} in slot {slot}: {fate}"));
        self.commands.fated |= 1 << slot;
        Some(fate)
    }

    /// A command that firmware never saw is a driver's mistake.
    fn undelivered(
        &mut self,
        slot: u32,
        entry: &CmdEntry,
        status: DeliveryStatus,
        detail: impl Into<String>,
    ) -> DeliveryStatus {
        let rule = match status {
            DeliveryStatus::TOK_ERR => Rule::CommandToken,
            _ => Rule::CommandEntry,
        };
        let violation = Violation::new(rule, detail).on(Queue::Cmd).at_index(slot);
        self.violate(violation.with_bytes_of(CmdEntry::DESC, &entry.to_bytes()));
        status
    }

    fn gather(&mut self, slot: u32, entry: &CmdEntry) -> Result<Vec<u8>, DeliveryStatus> {
        let len_bytes = entry.input_length() as usize;
        let mut input = entry.input_inline().to_vec();
        input.truncate(len_bytes);
        let mut at = entry.input_mailbox_ptr();
        for block_num in 0..n_mailboxes(len_bytes) {
            let trailer = self.trailer(slot, entry, at, block_num, DeliveryStatus::IN_PTR_ALIGN_ERR)?;
            let mut data = [0; MAILBOX_DATA_BYTES];
            if let Err(fault) = self.dma.read(at, &mut data) {
                return Err(self.mailbox_fault(slot, fault));
            }
            let signed = trailer.signature() == block_signature(&data, &trailer)
                && trailer.ctrl_signature() == ctrl_signature(&trailer);
            if self.commands.checksums && !signed {
                let detail = format!("signature of input mailbox {block_num} is wrong");
                return Err(self.undelivered(slot, entry, DeliveryStatus::SIGNAT_ERR, detail));
            }
            let n = (len_bytes - input.len()).min(MAILBOX_DATA_BYTES);
            input.extend_from_slice(&data[..n]);
            at = trailer.next();
        }
        Ok(input)
    }

    /// Reads and checks a mailbox's trailer.
    fn trailer(
        &mut self,
        slot: u32,
        entry: &CmdEntry,
        at: u64,
        block_num: usize,
        unaligned: DeliveryStatus,
    ) -> Result<MailboxTrailer, DeliveryStatus> {
        if at == 0 || !at.is_multiple_of(MAILBOX_ALIGN_BYTES) {
            let detail =
                format!("mailbox {block_num} is at 0x{at:x}: not a multiple of {MAILBOX_ALIGN_BYTES}");
            return Err(self.undelivered(slot, entry, unaligned, detail));
        }
        let mut bytes = [0; 64];
        if let Err(fault) = self.dma.read(at + MAILBOX_DATA_BYTES as u64, &mut bytes) {
            return Err(self.mailbox_fault(slot, fault));
        }
        let trailer = MailboxTrailer::from_bytes(bytes);
        if trailer.token() != entry.token() {
            let detail =
                format!("mailbox {block_num} has token 0x{:x}, entry 0x{:x}", trailer.token(), entry.token());
            return Err(self.undelivered(slot, entry, DeliveryStatus::TOK_ERR, detail));
        }
        if trailer.block_num() as usize != block_num {
            let detail = format!("mailbox {block_num} has block_num {}", trailer.block_num());
            return Err(self.undelivered(slot, entry, DeliveryStatus::BAD_BLK_NUM_ERR, detail));
        }
        Ok(trailer)
    }

    fn mailbox_fault(&mut self, slot: u32, fault: DmaFault) -> DeliveryStatus {
        let rule = if fault.read_only { Rule::DmaWritable } else { Rule::DmaMapped };
        self.violate(Violation::new(rule, format!("mailbox: {fault}")).on(Queue::Cmd).at_index(slot));
        DeliveryStatus::FW_ERR
    }

    /// Checks the chain for the output before the command is executed.
    fn output_chain(&mut self, slot: u32, entry: &CmdEntry) -> Result<(), DeliveryStatus> {
        let mut at = entry.output_mailbox_ptr();
        for block_num in 0..n_mailboxes(entry.output_length() as usize) {
            let trailer = self.trailer(slot, entry, at, block_num, DeliveryStatus::OUT_PTR_ALIGN_ERR)?;
            if let Err(fault) = self.dma.check(at, MAILBOX_DATA_BYTES, true) {
                return Err(self.mailbox_fault(slot, fault));
            }
            at = trailer.next();
        }
        Ok(())
    }

    /// Writes the output, then gives the slot back.
    fn complete(&mut self, at: u64, entry: &CmdEntry, output: &[u8], status: DeliveryStatus) {
        let mut inline = [0; INLINE_BYTES];
        let n = output.len().min(INLINE_BYTES);
        inline[..n].copy_from_slice(&output[..n]);
        let mut result = self.write_mailboxes(entry, &output[n..]);
        let done = entry
            .with_output_inline(inline)
            .with_delivery_status(status)
            .with_hw_owned(false)
            .with_signature(0);
        let done = done.with_signature(entry_signature(&done));
        let bytes = done.to_bytes();
        result = result.and(self.dma.write(at + 0x20, &bytes[0x20..0x30]));
        result = result.and(self.dma.publish(at + 0x38, &bytes[0x38..]));
        if let Err(fault) = result {
            self.violate_on(Queue::Cmd, Rule::DmaWritable, format!("output of a command: {fault}"));
        }
    }

    fn write_mailboxes(&self, entry: &CmdEntry, output: &[u8]) -> Result<(), DmaFault> {
        let mut at = entry.output_mailbox_ptr();
        for data in output.chunks(MAILBOX_DATA_BYTES) {
            let trailer_at = at + MAILBOX_DATA_BYTES as u64;
            let mut whole = [0; MAILBOX_DATA_BYTES];
            whole[..data.len()].copy_from_slice(data);
            self.dma.write(at, &whole)?;
            let mut bytes = [0; 64];
            self.dma.read(trailer_at, &mut bytes)?;
            let trailer = MailboxTrailer::from_bytes(bytes);
            let trailer = trailer.with_ctrl_signature(ctrl_signature(&trailer));
            let trailer = trailer.with_signature(block_signature(&whole, &trailer));
            self.dma.write(trailer_at, trailer.as_bytes())?;
            at = trailer.next();
        }
        Ok(())
    }
}

fn failure(status: CmdStatus, syndrome: u32) -> Vec<u8> {
    // Status and syndrome only: they fit in every output, however short its command's is.
    MboxOut::new().with_status(status).with_syndrome(syndrome).as_bytes()[..8].to_vec()
}
