//! Commands taken apart: slots of the command queue, mailboxes, inputs and outputs.

use super::json::{fields, hex};
use crate::{facts, record::Structure};
use mlx5_direct::mlx5::{
    cmd::{
        CmdEntry, CmdOpcode, INLINE_BYTES, MAILBOX_DATA_BYTES, MailboxBlock, MboxIn, MboxOut, PCI_CMD_XPORT,
    },
    commands,
    layout::{Desc, Layout},
};
use serde_json::{Map, Value, json};

/// Bytes of a slot of the command queue.
pub(crate) const ENTRY_BYTES: usize = 64;

/// A command, or a part of one, taken apart.
#[derive(Debug, Clone)]
pub struct CommandBytes {
    /// As `--json` has it.
    pub json: Map<String, Value>,
    /// The slot, the input, the output: what is there.
    pub structures: Vec<Structure>,
    /// In one sentence.
    pub says: String,
    /// What in it is wrong or left out.
    pub corrections: Vec<String>,
}

/// Which way a command's bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the device.
    Input,
    /// From it.
    Output,
}

/// Takes apart what of a command is there: a slot with or without the mailboxes behind it, one mailbox, or an input.
/// `None` if it looks like nothing of these.
pub fn command(bytes: &[u8]) -> Option<CommandBytes> {
    let is_entry = bytes.first_chunk::<ENTRY_BYTES>().is_some_and(is_entry);
    if is_entry {
        return entry(bytes);
    }
    if bytes.len() == MailboxBlock::DESC.size_bytes {
        return mailbox(bytes);
    }
    input_or_output(bytes, Direction::Input, None)
}

/// Whether the device would take `entry` for a slot.
pub(crate) fn is_entry(entry: &[u8; ENTRY_BYTES]) -> bool {
    let slot = CmdEntry::from_bytes(*entry);
    slot.type_() == PCI_CMD_XPORT && CmdEntry::DESC.reserved_bit_set(entry).is_none()
}

/// A slot, and the mailboxes dumped behind it.
fn entry(bytes: &[u8]) -> Option<CommandBytes> {
    let slot = CmdEntry::from_bytes(*bytes.first_chunk()?);
    // A dump of a whole command: mailboxes of the input or of the output, which the slot's owner bit tells.
    let direction = if slot.hw_owned() { Direction::Input } else { Direction::Output };
    let data: Vec<u8> = blocks(&bytes[ENTRY_BYTES..]).concat();
    let input = [&slot.input_inline()[..], if direction == Direction::Input { &data } else { &[] }].concat();
    let output =
        [&slot.output_inline()[..], if direction == Direction::Output { &data } else { &[] }].concat();
    let opcode = MboxIn::from_bytes(slot.input_inline()).opcode();
    let mut all = input_or_output(&input, Direction::Input, None)?;
    all.structures.insert(0, structure("command queue entry", 0, CmdEntry::DESC, &bytes[..ENTRY_BYTES]));
    let mut json = Map::new();
    json.insert("entry".into(), fields(&all.structures[0]));
    json.extend(all.json);
    if slot.hw_owned() {
        all.says += "; the device has it";
    } else {
        let answer = input_or_output(&output, Direction::Output, Some(opcode))?;
        json.extend(answer.json);
        all.structures.extend(answer.structures);
        all.says += &format!("; {}", answer.says);
        if slot.delivery_status().0 != 0 {
            all.corrections.push(format!("it was not delivered: {}", slot.delivery_status()));
        }
    }
    all.json = json;
    Some(all)
}

/// The data of the mailboxes in `bytes`.
pub(crate) fn blocks(bytes: &[u8]) -> Vec<&[u8]> {
    bytes
        .chunks(MailboxBlock::DESC.size_bytes)
        .map(|block| &block[..block.len().min(MAILBOX_DATA_BYTES)])
        .collect()
}

fn mailbox(bytes: &[u8]) -> Option<CommandBytes> {
    let block = MailboxBlock::from_bytes(bytes.try_into().ok()?);
    let trailer = block.trailer();
    let whole = structure("mailbox", 0, MailboxBlock::DESC, bytes);
    let mut json = Map::new();
    json.insert("block_num".into(), json!(trailer.block_num()));
    json.insert("token".into(), hex(trailer.token(), 2));
    json.insert("next".into(), hex(trailer.next(), 1));
    let next = if trailer.next() == 0 { "the last" } else { "not the last" };
    let says =
        format!("mailbox {} of a command with token 0x{:02x}, {next}", trailer.block_num(), trailer.token());
    Some(CommandBytes { json, structures: vec![whole], says, corrections: Vec::new() })
}

/// Takes apart a command's input, or its output if the command is known.
pub fn input_or_output(bytes: &[u8], direction: Direction, of: Option<CmdOpcode>) -> Option<CommandBytes> {
    let first = *bytes.first_chunk::<INLINE_BYTES>()?;
    let head = MboxIn::from_bytes(first);
    let opcode = match direction {
        Direction::Input => head.opcode(),
        Direction::Output => of?,
    };
    let name = facts::command_name(opcode)?;
    let known = commands().iter().find(|command| command.opcode == opcode);
    let mut json = Map::new();
    let (title, desc, mut says) = match direction {
        Direction::Input => {
            json.insert("command".into(), json!(name));
            json.insert("opcode".into(), hex(opcode.0, 1));
            json.insert("op_mod".into(), hex(head.op_mod(), 1));
            ("input", known.map_or(MboxIn::DESC, |command| command.input), format!("{name} is asked for"))
        }
        Direction::Output => {
            let answer = MboxOut::from_bytes(first);
            json.insert("command".into(), json!(name));
            json.insert("status".into(), hex(answer.status().0, 1));
            json.insert("status_name".into(), json!(facts::command_status_text(answer.status())));
            json.insert("fw_syndrome".into(), hex(answer.syndrome(), 1));
            let status = facts::command_status_text(answer.status());
            let says = format!("{name} was answered: {status}, syndrome 0x{:x}", answer.syndrome());
            ("output", known.map_or(MboxOut::DESC, |command| command.output), says)
        }
    };
    let mut corrections = Vec::new();
    if known.is_none() {
        corrections.push(format!("the layout of {name} is not known here: no more than its head is told"));
    }
    let desc = if bytes.len() < desc.size_bytes {
        let there = bytes.len();
        corrections
            .push(format!("{name} has {} bytes of {title}, of which {there} are here", desc.size_bytes));
        if direction == Direction::Input { MboxIn::DESC } else { MboxOut::DESC }
    } else {
        desc
    };
    let part = structure(&format!("{name} {title}"), 0, desc, &bytes[..desc.size_bytes]);
    json.insert(title.into(), fields(&part));
    let behind = bytes.len() - desc.size_bytes;
    if behind > 0 && bytes[desc.size_bytes..].iter().any(|byte| *byte != 0) {
        says += &format!("; {behind} bytes follow the fixed part");
    }
    Some(CommandBytes { json, structures: vec![part], says, corrections })
}

fn structure(title: &str, offset_bytes: usize, desc: &'static Desc, bytes: &[u8]) -> Structure {
    Structure { title: title.into(), offset_bytes, desc, bytes: bytes.to_vec() }
}
