//! Hexdumps in text: found, put together, and read as what they are.
//!
//! [`row`] reads one line, [`dump`] puts the rows of one dump together, [`header`] reads the line above it. Here the three
//! meet, and the bytes go to [`structure`](crate::structure).

mod dump;
mod header;
mod row;
mod verdict;

use super::{Line, Options};
use crate::{
    record::Record,
    structure::{self, About, As, CommandBytes, Direction, ReceiveHead, Transport},
};
use dump::Dump;
pub(super) use header::is_header;
use header::{CommandDump, Header, Mlx5e, WqeDump};
use mlx5_direct::cqe::{CQE_BYTES, ErrorCqe};
pub(super) use row::{Row, parse as row};
use serde_json::{Map, Value, json};

/// What was found in hexadecimal.
#[derive(Debug)]
pub(super) struct FoundDump {
    /// What it is.
    pub(super) record: Record,
    /// Its lines, as indices into the lines in sight.
    pub(super) taken: Vec<usize>,
    /// What stands behind it in its last line.
    pub(super) glued: Option<String>,
}

/// Lines between a header and its dump, and between the dumps of one report.
const NEAR: usize = 6;
/// Bytes at least of a dump that nothing announces.
const LEAST_BYTES: usize = 64;

/// The dump that begins in the first of `lines`, with the line that announces it or without.
pub(super) fn read(lines: &[Line], options: Options) -> Option<FoundDump> {
    let first = &lines.first()?.text;
    if let Some(header) = header::parse(first, lines.get(1).map(|line| line.text.as_str())) {
        return Report::new(lines, options).announced(header);
    }
    // NCCL's words are libmlx5's but for a capital: a line that only looks announced has to be a row.
    let found = lines[0].marks().is_dump.then(|| dump::gather(lines, 0, None))??;
    Report::new(lines, options).bare(found)
}

/// A record while it is put together.
struct Report<'a> {
    lines: &'a [Line],
    options: Options,
    record: Record,
    taken: Vec<usize>,
    glued: Option<String>,
}

impl<'a> Report<'a> {
    fn new(lines: &'a [Line], options: Options) -> Self {
        let number = lines[0].number;
        Self { lines, options, record: Record::new("hexdump", number..=number), taken: vec![0], glued: None }
    }

    fn announced(mut self, header: Header) -> Option<FoundDump> {
        match header {
            Header::Libmlx5 => self.cqe_below("libmlx5 dump")?,
            Header::Kernel { wc_status } => {
                // The kernel's two lines, or one of them; the dump is below both.
                if self.lines.get(1).is_some_and(|line| line.text.contains("dump error cqe")) {
                    self.taken.push(1);
                }
                self.cqe_below("kernel dump")?;
                if let (Some(told), Some(Value::Array(cqes))) = (wc_status, self.record.parts.get("cqe"))
                    && cqes[0]["ibv_wc_status_num"] != json!(told)
                {
                    let text = format!("the line says WC error {told}, which is not what the CQE says");
                    self.record.corrections.push(text);
                }
            }
            Header::Mlx5e(line) => self.mlx5e(&line)?,
            Header::WqeDump(header) => {
                self.record.form = "mlx5e WQE dump";
                self.wqe_dump(&header, 0, None)?;
                self.record.parts.insert("wqe_dump_header".into(), header.to_json(None));
            }
            Header::Command(header) => self.kernel_command(&header)?,
            Header::Dpdk { what, len_bytes } => {
                self.record.form = "DPDK dump";
                let dump = self.dump_below(0, Some(len_bytes))?;
                match what.as_str() {
                    "CQE" => self.cqe(&dump.bytes)?,
                    // The whole ring: its first request.
                    "SQ" | "WQE" => {
                        let transport = self.options.transport.unwrap_or(Transport::Raw);
                        self.wqe(&dump.bytes, Some(transport))?;
                    }
                    _ => self.read_as(&dump.bytes, As::Auto)?,
                }
            }
        }
        Some(self.done())
    }

    fn bare(mut self, dump: Dump) -> Option<FoundDump> {
        self.take(&dump);
        let is_auto = self.options.read_as == As::Auto;
        let is_short = dump.bytes.len() < if is_auto { LEAST_BYTES } else { 16 };
        // Of what is shorter, a request alone says its own length.
        if is_short && !(is_auto && structure::is_whole_wqe(&dump.bytes)) {
            return None;
        }
        self.read_as(&dump.bytes, self.options.read_as)?;
        Some(self.done())
    }

    fn read_as(&mut self, bytes: &[u8], kind: As) -> Option<()> {
        let kind = if kind == As::Auto {
            let guess = structure::guess(bytes)?;
            self.record.corrections.push(format!("taken for {}: {}", guess.kind.name(), guess.why));
            guess.kind
        } else {
            kind
        };
        match kind {
            As::Cqe => structure::cqes(bytes).into_iter().try_for_each(|bytes| self.cqe(bytes)),
            As::Eqe => self.eqe(bytes),
            As::Cmd => self.command(structure::command(bytes)?),
            As::Wqe => self.wqe(bytes, self.options.transport),
            As::Receive(head) => self.receive(bytes, head),
            As::Auto => None,
        }
    }

    fn eqe(&mut self, bytes: &[u8]) -> Option<()> {
        let eqe = structure::eqe(bytes)?;
        self.record.push("eqe", Value::Object(eqe.json));
        self.record.structures.extend(eqe.structures);
        self.record.says = eqe.says;
        self.record.check = eqe.check;
        Some(())
    }

    fn command(&mut self, command: CommandBytes) -> Option<()> {
        self.record.push("cmd", Value::Object(command.json));
        self.record.structures.extend(command.structures);
        self.record.says = command.says;
        self.record.corrections.extend(command.corrections);
        Some(())
    }

    /// The kernel's dump of a command: with `data`, the input or output alone; else the slot and the mailboxes.
    fn kernel_command(&mut self, header: &CommandDump) -> Option<()> {
        self.record.form = "kernel command dump";
        let dump = self.dump_below(0, None)?;
        let bytes = if header.has_data_only {
            dump.bytes
        } else {
            let (slot, mailboxes) = dump.bytes.split_at_checked(structure::ENTRY_BYTES)?;
            let inline = if header.direction == Direction::Input { 0x10..0x20 } else { 0x20..0x30 };
            [&slot[inline], &structure::blocks(mailboxes).concat()].concat()
        };
        self.command(structure::input_or_output(&bytes, header.direction, Some(header.opcode))?)
    }

    /// The dump in the lines below line `after`, of the same dumper if that can be told.
    fn dump_below(&mut self, after: usize, want_bytes: Option<usize>) -> Option<Dump> {
        let head = row::key(&self.lines[after].text);
        let near = self.lines.iter().enumerate().skip(after + 1).take(NEAR);
        for (at, line) in near {
            if self.taken.contains(&at) {
                continue;
            }
            let Some(row) = line.row() else { continue };
            if row.bytes.len() < 8 || !head.contains(&row.key) {
                continue;
            }
            let dump = dump::gather(self.lines, at, want_bytes)?;
            self.take(&dump);
            return Some(dump);
        }
        None
    }

    fn take(&mut self, dump: &Dump) {
        self.taken.extend(dump.taken.iter().filter(|at| **at != 0));
        self.glued.clone_from(&dump.glued);
    }

    fn cqe_below(&mut self, form: &'static str) -> Option<()> {
        self.record.form = form;
        let dump = self.dump_below(0, Some(CQE_BYTES))?;
        self.cqe(&dump.bytes)
    }

    fn cqe(&mut self, bytes: &[u8]) -> Option<()> {
        let is_raw = self.options.transport == Some(Transport::Raw);
        if self.options.read_as == As::Cqe {
            let about = About { transport: self.options.transport, ..About::default() };
            self.record.parts.extend(structure::completion(bytes, &about)?);
        }
        structure::cqe(bytes, is_raw)?.add_to(&mut self.record);
        Some(())
    }

    /// mlx5e's line, the CQE below it, and the WQE below that if it was dumped.
    fn mlx5e(&mut self, line: &Mlx5e) -> Option<()> {
        self.record.form = "mlx5e error CQE";
        if line.is_wrapped {
            self.taken.push(1);
        }
        let dump = self.dump_below(usize::from(line.is_wrapped), Some(CQE_BYTES))?;
        self.cqe(&dump.bytes)?;
        let cqe = dump.bytes.first_chunk().map(|bytes| ErrorCqe::from_bytes(*bytes));
        let (counter, qpn) = (cqe.map(|cqe| cqe.wqe_counter()), cqe.map(|cqe| cqe.qpn().get()));
        if qpn == Some(0) {
            self.named_by(line);
        }
        self.record.parts.insert("line".into(), Value::Object(line.to_json()));
        let last = self.taken.iter().max().copied().unwrap_or(0);
        let below = self.lines.iter().enumerate().skip(last + 1).take(NEAR);
        for (at, text) in below {
            match header::parse(&text.text, None) {
                Some(Header::WqeDump(header)) => {
                    if self.wqe_dump(&header, at, qpn).is_some() {
                        self.record.parts.insert("wqe_dump_header".into(), header.to_json(counter));
                    }
                    break;
                }
                Some(_) => break,
                None => {}
            }
        }
        Some(())
    }

    /// The queue of a CQE that names none, as those of receive queues do: that of the line above it.
    fn named_by(&mut self, line: &Mlx5e) {
        let queue = format!("0x{:x}", line.qn);
        self.record.says = self.record.says.replacen("qp 0x0:", &format!("queue {queue}:"), 1);
        if let Some(failure) = &mut self.record.failure {
            failure.queue = Some(queue);
        }
    }

    /// The dump below mlx5e's line about a WQE in line `at`. `cqe_qpn` is whose request failed.
    fn wqe_dump(&mut self, header: &WqeDump, at: usize, cqe_qpn: Option<u32>) -> Option<()> {
        let dump = self.dump_below(at, Some(header.len_bytes))?;
        self.taken.push(at);
        // The queues of Linux's netdevs are raw Ethernet's.
        let transport = self.options.transport.unwrap_or(Transport::Raw);
        let Some((why, is_other)) = verdict::verdict(&dump.bytes, cqe_qpn) else {
            return self.wqe(&dump.bytes, Some(transport));
        };
        let mut json = structure::wqe(&dump.bytes, Some(transport))?.json;
        if is_other {
            let ctrl = json.remove("ctrl")?;
            json = Map::from_iter([("ctrl_if_believed".to_owned(), ctrl)]);
        }
        json.insert("verdict".into(), json!(why));
        self.record.push("wqe", Value::Object(json));
        self.record.corrections.push(format!("what was dumped as the WQE is {why}"));
        Some(())
    }

    fn wqe(&mut self, bytes: &[u8], transport: Option<Transport>) -> Option<()> {
        let wqe = structure::wqe(bytes, transport)?;
        self.record.push("wqe", Value::Object(wqe.json));
        self.record.structures.extend(wqe.structures);
        if self.record.says.is_empty() {
            self.record.says = wqe.says;
        }
        self.record.corrections.extend(wqe.corrections);
        Some(())
    }

    fn receive(&mut self, bytes: &[u8], head: ReceiveHead) -> Option<()> {
        let receive = structure::receive(bytes, head)?;
        self.record.push("wqe", Value::Object(receive.json));
        self.record.structures.extend(receive.structures);
        self.record.says = receive.says;
        self.record.corrections.extend(receive.corrections);
        Some(())
    }

    fn done(mut self) -> FoundDump {
        self.taken.sort_unstable();
        self.taken.dedup();
        if !self.record.says.ends_with('.') {
            self.record.says.push('.');
        }
        let last = self.taken.last().map_or(0, |at| self.lines[*at].number);
        self.record.lines = *self.record.lines.start()..=last.max(*self.record.lines.start());
        FoundDump { record: self.record, taken: self.taken, glued: self.glued }
    }
}
