//! Traces: what a card has seen, event by event, and packets of a capture.

use std::{collections::HashMap, fmt, str};

/// One thing that a card has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When, as the trace has it.
    pub at: String,
    /// Which of the card's functions; `None` in captures.
    pub function: Option<u8>,
    /// Kind, as `Cqe` or `Packet`.
    pub kind: String,
    /// Whatever the trace says besides.
    pub text: String,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] ", self.at)?;
        if let Some(function) = self.function {
            write!(f, "{function}: ")?;
        }
        write!(f, "{}: {}, {} bytes", self.kind, self.text, self.bytes.len())
    }
}

impl Event {
    /// What it is, without what differs from run to run: events of equal shape are compared.
    fn shape(&self) -> (Option<u8>, &str, String) {
        let words = self.text.split(|c: char| !c.is_alphanumeric() && c != '_');
        let words = words.filter(|word| !word.is_empty() && !word.starts_with(|c: char| c.is_ascii_digit()));
        (self.function, &self.kind, words.collect::<Vec<_>>().join(" "))
    }
}

/// Events of two traces beside each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aligned {
    /// Of the same shape: their places in both traces.
    Both(usize, usize),
    /// Only in the first.
    OnlyA(usize),
    /// Only in the second.
    OnlyB(usize),
}

/// The trace that `bytes` are: text of `--trace`, or a capture of `--pcap`. `None` if they are neither.
pub fn read(bytes: &[u8]) -> Option<Vec<Event>> {
    if let Some(events) = pcap(bytes) {
        return Some(events);
    }
    let text = str::from_utf8(bytes).ok()?;
    let mut events: Vec<Event> = Vec::new();
    for line in text.lines() {
        if let Some(event) = head(line) {
            events.push(event);
        } else if let (Some(bytes), Some(event)) = (row(line), events.last_mut()) {
            event.bytes.extend(bytes);
        }
    }
    (!events.is_empty()).then_some(events)
}

/// `[    0.010725] mlx5_model 0: Cqe: CQ 0x80, index 0`
fn head(line: &str) -> Option<Event> {
    let (at, rest) = line.strip_prefix('[')?.split_once("] mlx5_model ")?;
    let (function, rest) = rest.split_once(": ")?;
    let (kind, text) = rest.split_once(": ")?;
    Some(Event {
        at: at.trim().into(),
        function: Some(function.parse().ok()?),
        kind: kind.into(),
        text: text.into(),
        bytes: Vec::new(),
    })
}

/// `00000010: 00 11 22`
fn row(line: &str) -> Option<Vec<u8>> {
    let (offset, bytes) = line.split_once(':')?;
    u64::from_str_radix(offset.trim(), 16).ok()?;
    bytes.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).ok()).collect()
}

const FILE_HEADER_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 16;

/// The classic format, in either byte order, with stamps in micro- or nanoseconds.
fn pcap(bytes: &[u8]) -> Option<Vec<Event>> {
    let magic: [u8; 4] = *bytes.first_chunk()?;
    let (is_little, n_digits) = match magic {
        [0x4d, 0x3c, 0xb2, 0xa1] => (true, 9),
        [0xd4, 0xc3, 0xb2, 0xa1] => (true, 6),
        [0xa1, 0xb2, 0x3c, 0x4d] => (false, 9),
        [0xa1, 0xb2, 0xc3, 0xd4] => (false, 6),
        _ => return None,
    };
    let word = |at: usize| {
        let four = bytes.get(at..at + 4)?.first_chunk::<4>()?;
        Some(if is_little { u32::from_le_bytes(*four) } else { u32::from_be_bytes(*four) })
    };
    let (mut at, mut events) = (FILE_HEADER_BYTES, Vec::new());
    while let (Some(seconds), Some(fraction), Some(len_bytes)) = (word(at), word(at + 4), word(at + 8)) {
        let start = at + RECORD_HEADER_BYTES;
        // A capture that was cut off ends here.
        let Some(packet) = bytes.get(start..start.saturating_add(len_bytes as usize)) else { break };
        events.push(Event {
            at: format!("{seconds}.{fraction:0n_digits$}"),
            function: None,
            kind: "Packet".into(),
            text: "captured".into(),
            bytes: packet.to_vec(),
        });
        at = start + len_bytes as usize;
    }
    Some(events)
}

/// Most insertions and deletions that are looked for. Traces that differ in more are of different runs.
const MOST_EDITS: usize = 2000;

/// Puts events of equal shape beside each other, with as few left over as can be (the algorithm of Myers). `None`
/// if more than some thousand are.
pub fn align(a: &[Event], b: &[Event]) -> Option<Vec<Aligned>> {
    let mut numbers = HashMap::new();
    let mut shapes = |events: &[Event]| -> Vec<usize> {
        let number = |event: &Event| {
            let (function, kind, words) = event.shape();
            let next = numbers.len();
            *numbers.entry((function, kind.to_string(), words)).or_insert(next)
        };
        events.iter().map(number).collect()
    };
    let (x, y) = (shapes(a), shapes(b));
    edits(&x, &y)
}

/// The shortest way from `x` to `y`. `furthest[d][k]` is how far in `x` one comes on diagonal `k` with `d` edits.
fn edits(x: &[usize], y: &[usize]) -> Option<Vec<Aligned>> {
    let most = (x.len() + y.len()).min(MOST_EDITS);
    let width = 2 * most + 3;
    let middle = most + 1;
    let mut furthest = vec![0_usize; width];
    let mut kept = Vec::new();
    for d in 0..=most {
        for k in (middle - d..=middle + d).step_by(2) {
            let is_down = k == middle - d || (k != middle + d && furthest[k - 1] < furthest[k + 1]);
            let mut at = if is_down { furthest[k + 1] } else { furthest[k - 1] + 1 };
            while let Some(other) = (at + middle).checked_sub(k)
                && at < x.len()
                && other < y.len()
                && x[at] == y[other]
            {
                at += 1;
            }
            furthest[k] = at;
            if at >= x.len() && at + middle >= k && at + middle - k >= y.len() {
                kept.push(furthest);
                return Some(way_back(&kept, d, k, x.len(), y.len(), middle));
            }
        }
        kept.push(furthest.clone());
    }
    None
}

fn way_back(
    kept: &[Vec<usize>],
    d: usize,
    mut k: usize,
    mut n: usize,
    mut m: usize,
    middle: usize,
) -> Vec<Aligned> {
    let mut way = Vec::new();
    for d in (1..=d).rev() {
        let before = &kept[d - 1];
        let is_down = k == middle - d || (k != middle + d && before[k - 1] < before[k + 1]);
        k = if is_down { k + 1 } else { k - 1 };
        let from = before[k];
        let to = if is_down { from } else { from + 1 };
        while n > to {
            (n, m) = (n - 1, m - 1);
            way.push(Aligned::Both(n, m));
        }
        if is_down {
            m -= 1;
            way.push(Aligned::OnlyB(m));
        } else {
            n -= 1;
            way.push(Aligned::OnlyA(n));
        }
    }
    while n > 0 {
        (n, m) = (n - 1, m - 1);
        way.push(Aligned::Both(n, m));
    }
    way.reverse();
    way
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
[    0.100000] mlx5_model 0: SendWqe: QP 0x100, WQEBB 0, by BlueFlame
00000000: 00 00 00 10 00 01 00 03 00 00 00 08 00 00 00 00
00000010: 01
[    0.100001] mlx5_model 1: Note: frame dropped: 9 bytes
";

    #[test]
    fn text_is_read() {
        let events = read(TEXT.as_bytes()).unwrap();
        assert_eq!((events.len(), events[0].bytes.len(), events[1].bytes.len()), (2, 17, 0));
        assert_eq!(
            (events[0].kind.as_str(), events[0].function, events[0].at.as_str()),
            ("SendWqe", Some(0), "0.100000")
        );
        assert_eq!(events[1].text, "frame dropped: 9 bytes");
        assert_eq!(read(b"00000000: 00 01\n"), None);
        assert_eq!(read(b""), None);
    }

    #[test]
    fn captures_are_read_whole_and_cut_off() {
        let mut file = vec![0x4d, 0x3c, 0xb2, 0xa1];
        file.resize(FILE_HEADER_BYTES, 0);
        for packet in [&[1_u8, 2, 3][..], &[4]] {
            for word in [1, 2, packet.len() as u32, packet.len() as u32] {
                file.extend(word.to_le_bytes());
            }
            file.extend(packet);
        }
        let events = read(&file).unwrap();
        assert_eq!(
            (events.len(), events[0].at.as_str(), &events[0].bytes[..]),
            (2, "1.000000002", &[1, 2, 3][..])
        );
        for len in FILE_HEADER_BYTES..file.len() {
            assert!(read(&file[..len]).unwrap().len() < 2, "{len}");
        }
    }

    /// Whatever is aligned goes through both sequences in order, and pairs are of one shape.
    #[test]
    fn alignments_are_whole() {
        let mut seed = 7_u32;
        let mut random = |n: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 16) % n
        };
        for _ in 0..500 {
            let [x, y] = [0; 2].map(|_| (0..random(12)).map(|_| random(4) as usize).collect::<Vec<_>>());
            let way = edits(&x, &y).unwrap();
            let (mut n, mut m, mut pairs) = (0, 0, 0);
            for step in way {
                match step {
                    Aligned::Both(a, b) => {
                        assert_eq!((a, b, x[a]), (n, m, y[b]));
                        (n, m, pairs) = (n + 1, m + 1, pairs + 1);
                    }
                    Aligned::OnlyA(a) => {
                        assert_eq!(a, n);
                        n += 1;
                    }
                    Aligned::OnlyB(b) => {
                        assert_eq!(b, m);
                        m += 1;
                    }
                }
            }
            assert_eq!((n, m), (x.len(), y.len()));
            assert_eq!(pairs, longest_common(&x, &y), "{x:?} {y:?}");
        }
    }

    fn longest_common(x: &[usize], y: &[usize]) -> usize {
        match (x, y) {
            ([a, x @ ..], [b, y @ ..]) if a == b => 1 + longest_common(x, y),
            ([_, less_x @ ..], [_, less_y @ ..]) => longest_common(less_x, y).max(longest_common(x, less_y)),
            _ => 0,
        }
    }
}
