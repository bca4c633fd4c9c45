//! The finder: text in, records out, a few lines of sight.

use super::{
    Line, Order, Window,
    clean::{clean, is_broken, lines_in},
    hex, line,
    prefilter::may_begin,
    vector,
};
use crate::{
    record::Record,
    structure::{As, Transport},
};

/// How bytes are read that do not say what they are.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// As what.
    pub read_as: As,
    /// How the queue pair of a request talks.
    pub transport: Option<Transport>,
}

/// Lines that a reader sees.
const SIGHT: usize = 256;
/// Bytes of a line that are looked at together: a longer one is cut.
const LINE_BYTES: usize = 16 * 1024;

/// Finds the records in text that is given piece by piece.
///
/// ```
/// use mlx5_study::text::{Finder, Options};
///
/// let mut found = Vec::new();
/// let mut finder = Finder::new(Options::default());
/// finder.feed(b"mlx5: host01: got completion with error:\n", &mut |record| found.push(record));
/// for _ in 0..3 {
///     finder.feed(b"00000000 00000000 00000000 00000000\n", &mut |record| found.push(record));
/// }
/// finder.feed(b"00000000 00008813 08006214 0000f6d2\n", &mut |record| found.push(record));
/// finder.end(&mut |record| found.push(record));
/// assert_eq!(found[0].parts["cqe"][0]["qpn"], "0x6214");
/// ```
#[derive(Debug)]
pub struct Finder {
    options: Options,
    /// What has come of the line that has not ended.
    partial: Vec<u8>,
    /// A line that mail's encoding broke off, with its number: the next goes on with it.
    broken: Option<(u64, String)>,
    /// Lines in sight from `at` on; those before are done with.
    lines: Vec<Line>,
    at: usize,
    /// Lines that have ended.
    n_lines: u64,
    /// Failures so far: which is the first, and which follow from it.
    order: Order,
}

impl Finder {
    /// Before any text.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            partial: Vec::new(),
            broken: None,
            lines: Vec::new(),
            at: 0,
            n_lines: 0,
            order: Order::new(),
        }
    }

    /// The next piece of the text. Records that are whole are given to `found`.
    pub fn feed(&mut self, mut bytes: &[u8], found: &mut impl FnMut(Record)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = bytes.split_at(end);
            bytes = &rest[1..];
            if self.partial.is_empty() && line.len() <= LINE_BYTES {
                self.line(line, found);
            } else {
                self.extend(line, found);
                let line = std::mem::take(&mut self.partial);
                self.line(&line, found);
                self.partial = line;
                self.partial.clear();
            }
            self.n_lines += 1;
        }
        self.extend(bytes, found);
    }

    /// Nothing comes for a while: what there is, is all that there is.
    pub fn settle(&mut self, found: &mut impl FnMut(Record)) {
        if let Some((number, text)) = self.broken.take() {
            self.lines.push(Line::new(number, text));
        }
        self.look(0, found);
    }

    /// The end of the text.
    pub fn end(&mut self, found: &mut impl FnMut(Record)) {
        let line = std::mem::take(&mut self.partial);
        self.line(&line, found);
        self.settle(found);
    }

    /// Lines that have ended.
    pub fn n_lines(&self) -> u64 {
        self.n_lines
    }

    /// What failed in all, in a sentence.
    pub fn summary(&self) -> Option<String> {
        self.order.summary()
    }

    /// More of the line that has not ended, which is cut where it gets too long.
    fn extend(&mut self, mut bytes: &[u8], found: &mut impl FnMut(Record)) {
        while self.partial.len() + bytes.len() > LINE_BYTES {
            let (part, rest) = bytes.split_at(LINE_BYTES - self.partial.len());
            bytes = rest;
            self.partial.extend_from_slice(part);
            let line = std::mem::take(&mut self.partial);
            self.line(&line, found);
        }
        self.partial.extend_from_slice(bytes);
    }

    /// A line, without its end.
    fn line(&mut self, bytes: &[u8], found: &mut impl FnMut(Record)) {
        // Nothing is in sight, and this begins nothing: most lines end here.
        if self.at == self.lines.len() && self.broken.is_none() && !is_broken(bytes) && !may_begin(bytes) {
            return;
        }
        let (text, is_broken) = clean(bytes);
        let (number, text) = match self.broken.take() {
            Some((number, start)) => (number, start + &text),
            None => (self.n_lines + 1, text),
        };
        if is_broken && text.len() <= LINE_BYTES {
            self.broken = Some((number, text));
            return;
        }
        self.lines.extend(lines_in(&text).into_iter().map(|line| Line::new(number, line.to_owned())));
        self.look(SIGHT, found);
    }

    /// Looks at lines while more than `sight` are to come.
    fn look(&mut self, sight: usize, found: &mut impl FnMut(Record)) {
        while self.lines.len() - self.at > sight {
            let first = &self.lines[self.at];
            let marks = first.marks();
            if !marks.any() {
                self.at += 1;
                continue;
            }
            let in_sight = &self.lines[self.at..];
            let in_sight = &in_sight[..in_sight.len().min(SIGHT)];
            if marks.is_header
                && let Some(record) = vector::read(first.number, &first.text, self.options)
            {
                found(record);
                self.take(&[0], None);
                continue;
            }
            if (marks.is_header || marks.is_dump)
                && let Some(mut dump) = hex::read(in_sight, self.options)
            {
                self.order.note(&mut dump.record);
                found(dump.record);
                self.take(&dump.taken, dump.glued);
                continue;
            }
            let window = Window { lines: in_sight };
            let records = if marks.is_message { line::read(&window) } else { Vec::new() };
            let mut taken = vec![0];
            for mut one in records {
                taken.extend(one.taken.iter().filter(|at| **at < in_sight.len()));
                self.order.note(&mut one.record);
                found(one.record);
            }
            taken.sort_unstable();
            taken.dedup();
            self.take(&taken, None);
        }
        if self.at == self.lines.len() || self.at > SIGHT {
            self.lines.drain(..self.at);
            self.at = 0;
        }
    }

    /// Takes lines out of sight, wherever they stand. What is stuck to the last of them is a line of its own.
    fn take(&mut self, taken: &[usize], glued: Option<String>) {
        let Some(last) = taken.last() else {
            self.at += 1;
            return;
        };
        match glued {
            Some(text) => {
                let line = &mut self.lines[self.at + last];
                *line = Line::new(line.number, text);
                self.remove(&taken[..taken.len() - 1]);
            }
            None => self.remove(taken),
        }
    }

    /// Removes lines: what stands before the last of them and stays moves behind it.
    fn remove(&mut self, taken: &[usize]) {
        let Some(last) = taken.last() else { return };
        let mut to = self.at + last + 1;
        for from in (0..=*last).rev() {
            if !taken.contains(&from) {
                to -= 1;
                self.lines.swap(self.at + from, to);
            }
        }
        self.at = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::window::work;

    /// Rows that were asked for, lines that were read for them, and lines that were in sight at once at most, for `n`
    /// times `text`.
    fn work_of(text: &str, n: usize) -> (usize, usize, usize) {
        let (mut finder, mut most) = (Finder::new(Options::default()), 0);
        work::take();
        for _ in 0..n {
            finder.feed(text.as_bytes(), &mut |_| ());
            most = most.max(finder.lines.len());
        }
        finder.end(&mut |_| ());
        let (asked, read) = work::take();
        (asked, read, most)
    }

    const OLDER_NCCL: &str =
        "node1:4711:4720 [0] NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129\n";
    const NCCL: &str = "host01:1000:2000 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.1.2<36000> with status=12 opcode=0 len=0 vendor err 129 (Recv)\n";

    #[test]
    fn no_line_is_read_twice_for_the_row_of_a_dump() {
        let dwords = "00000000 00000000 00000000 00000001\n";
        let zeros = "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00";
        let rows = format!("00000000: {zeros}\n00000010: {zeros}\n00000000: {zeros}\n");
        let dump = format!("mlx5: host01: got completion with error:\n{}", dwords.repeat(4));
        let ucx = "[1603.1] [node1:3000 :0] ib_mlx5_log.c:139  Remote access error on mlx5_0:1/IB (synd 0x13 vend 0x88 hw_synd 0/0)\n";
        let header = "mlx5: host01: got completion with error:\n";
        for text in [NCCL, dwords, &rows, &dump, ucx, header, "status 12 of 10\n"] {
            let n_lines = text.lines().count();
            let (few, many) = (work_of(text, 1000), work_of(text, 4000));
            // The end of a text is an empty line.
            assert!(many.1 <= 4000 * n_lines + 1, "{text}: {} lines read", many.1);
            assert!(many.0 <= 4000 * n_lines * 3 * SIGHT, "{text}: {} rows asked for", many.0);
            assert!(many.0 <= 4 * few.0 + 4 * SIGHT * SIGHT, "{text}: {} and {} rows", few.0, many.0);
            assert!(many.2 <= 2 * SIGHT + 2, "{text}: {} lines in sight", many.2);
        }
    }

    #[test]
    fn an_error_line_is_not_looked_through_for_dumps() {
        for text in [
            NCCL,
            OLDER_NCCL,
            "job 7: vendor err 81\n",
            "rdma: wc status 5 IBV_WC_WR_FLUSH_ERR qpn 0x100 len 10\n",
        ] {
            assert_eq!(work_of(text, 1000).0, 0, "{text}");
        }
    }
}
