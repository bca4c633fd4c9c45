//! Two of a kind beside each other, field by field: WQEs, CQEs or whatever else is structures, and traces.

mod parts;
pub mod trace;

use crate::record::Structure;
use mlx5_direct::mlx5::layout::{Desc, Kind};
use serde_json::{Value, json};
use std::fmt::{self, Display};

/// Bytes taken apart, for a comparison.
#[derive(Debug, Clone)]
pub struct Parts {
    bytes: Vec<u8>,
    structures: Vec<Structure>,
}

/// A place of one side: its name, offset, bits, and value.
type Place = (String, usize, Option<(usize, usize)>, String);

/// What was found: structures, aligned with each other.
#[derive(Debug, Clone)]
pub struct Difference {
    /// In order.
    pub pairs: Vec<Pair>,
}

/// A structure of both sides, or of one.
#[derive(Debug, Clone)]
pub struct Pair {
    /// What it is called.
    pub title: String,
    /// Its name in the interface tables.
    pub prm: &'static str,
    /// Where it begins, in bytes, on each side that has it.
    pub offsets: [Option<usize>; 2],
    /// Its fields, and behind them what of it no field covers.
    pub rows: Vec<Row>,
}

/// One place of a structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The field's name; of a structure in a structure with a dot between. For what no field covers, words.
    pub name: String,
    /// Offset in the structure of the dword, or of the first byte.
    pub offset_bytes: usize,
    /// High and low bit of the dword, or of the qword if `hi` is above 31; `None` for bytes.
    pub bits: Option<(usize, usize)>,
    /// The values, of each side that has the structure.
    pub values: [Option<String>; 2],
}

impl Row {
    /// Whether both sides have it, and it is the same.
    pub fn is_equal(&self) -> bool {
        self.values[0].is_some() && self.values[0] == self.values[1]
    }

    /// The last part of its name.
    fn own_name(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or(&self.name)
    }

    fn json(&self) -> Value {
        let bits = self.bits.map(|(hi, lo)| json!([hi, lo]));
        json!({ "name": self.name, "offset": self.offset_bytes, "bits": bits, "a": self.values[0], "b": self.values[1],
                "equal": self.is_equal() })
    }
}

impl Pair {
    /// Whether both sides have it, with the same values.
    pub fn is_equal(&self) -> bool {
        self.offsets.iter().all(Option::is_some) && self.rows.iter().all(Row::is_equal)
    }
}

impl Difference {
    /// Whether nothing differs.
    pub fn is_equal(&self) -> bool {
        self.pairs.iter().all(Pair::is_equal)
    }

    /// Takes these fields for equal, whatever they hold: addresses and clocks of two runs differ.
    pub fn ignore(&mut self, names: &[String]) {
        for pair in self.pairs.iter_mut().filter(|pair| pair.offsets.iter().all(Option::is_some)) {
            pair.rows.retain(|row| !names.iter().any(|name| *name == row.name || name == row.own_name()));
        }
    }

    /// Drops what is equal.
    pub fn hide_equal(&mut self) {
        self.pairs.retain(|pair| !pair.is_equal());
        for pair in &mut self.pairs {
            pair.rows.retain(|row| !row.is_equal());
        }
    }

    /// As `--json` has it.
    pub fn json(&self) -> Value {
        let pairs = self.pairs.iter().map(|pair| {
            let rows: Vec<_> = pair.rows.iter().map(Row::json).collect();
            json!({ "title": pair.title, "prm": pair.prm, "offset_a": pair.offsets[0], "offset_b": pair.offsets[1],
                    "equal": pair.is_equal(), "fields": rows })
        });
        json!(pairs.collect::<Vec<_>>())
    }
}

impl Parts {
    /// Bytes that are of no structure: all of them stand behind it.
    const BYTES: &'static Desc = &Desc { name: "Bytes", prm: "bytes", size_bytes: 0, doc: "", fields: &[] };

    /// `structures` are of `bytes`, each at its offset. What stands before the first is compared as it is, as the payload in the
    /// first half of a CQE of 128 bytes; without any, all is.
    pub fn new(bytes: &[u8], mut structures: Vec<Structure>) -> Self {
        if structures.first().map_or(bytes.len(), |first| first.offset_bytes) > 0 {
            let before =
                Structure { title: "bytes".into(), offset_bytes: 0, desc: Self::BYTES, bytes: Vec::new() };
            structures.insert(0, before);
        }
        Self { bytes: bytes.to_vec(), structures }
    }

    /// Bytes of one structure, and what follows them.
    pub fn of(title: &str, desc: &'static Desc, bytes: &[u8]) -> Self {
        let own = bytes.get(..desc.size_bytes).map(|own| Structure {
            title: title.into(),
            offset_bytes: 0,
            desc,
            bytes: own.to_vec(),
        });
        Self::new(bytes, own.into_iter().collect())
    }

    /// What stands between structure `n` and the next one, or the end: data that is in no structure.
    fn behind(&self, n: usize) -> &[u8] {
        let own = &self.structures[n];
        let end = self.structures.get(n + 1).map_or(self.bytes.len(), |next| next.offset_bytes);
        self.bytes.get(own.offset_bytes + own.bytes.len()..end).unwrap_or_default()
    }

    /// The rows of structure `n`.
    fn rows(&self, n: usize) -> Vec<Place> {
        let own = &self.structures[n];
        let mut rows = Vec::new();
        fields(own.desc, &own.bytes, "", 0, &mut rows);
        for (at, dword) in uncovered(own) {
            rows.push(("bits that no field covers".into(), at, Some((31, 0)), format!("0x{dword:08x}")));
        }
        let behind = self.behind(n);
        for (line, bytes) in behind.chunks(16).enumerate() {
            rows.push(("bytes behind it".into(), own.bytes.len() + line * 16, None, hex(bytes)));
        }
        rows
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// All fields, those of structures in it too.
fn fields(desc: &'static Desc, bytes: &[u8], prefix: &str, base_bytes: usize, rows: &mut Vec<Place>) {
    struct Value(u64, fn(u64, &mut fmt::Formatter<'_>) -> fmt::Result);
    impl Display for Value {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            (self.1)(self.0, f)
        }
    }
    for field in desc.fields {
        let name = format!("{prefix}{}", field.name);
        let range = field.bit_offset / 8..(field.bit_offset + field.bit_width).div_ceil(8);
        let at = base_bytes + range.start;
        match field.kind {
            Kind::Bits { show, .. } => {
                let place = base_bytes + field.dword_offset_bytes();
                let text = match field.bit_width {
                    33.. => format!("0x{:x}", desc.read(field, bytes)),
                    _ => Value(desc.read(field, bytes), show).to_string(),
                };
                rows.push((name, place, Some(field.hi_lo()), text));
            }
            Kind::Bytes => rows.push((name, at, None, hex(&bytes[range]))),
            Kind::Struct(inner) => fields(inner, &bytes[range], &format!("{name}."), at, rows),
        }
    }
}

/// Dwords that have bits outside of every field, with these bits alone.
fn uncovered(structure: &Structure) -> Vec<(usize, u32)> {
    let covered = |bit: usize| {
        let fields = structure.desc.fields.iter();
        fields.into_iter().any(|one| (one.bit_offset..one.bit_offset + one.bit_width).contains(&bit))
    };
    let mut list = Vec::new();
    for (n, dword) in structure.bytes.chunks(4).enumerate() {
        let value = dword.iter().fold(0, |value, byte| value << 8 | u32::from(*byte));
        let width = dword.len() * 8;
        let kept = (0..width).filter(|bit| !covered(n * 32 + bit));
        let mask = kept.fold(0_u32, |mask, bit| mask | 1 << (width - 1 - bit));
        if value & mask != 0 {
            list.push((n * 4, value & mask));
        }
    }
    list
}

/// Compares two sides. Structures are aligned: one that only one side has stands alone, and what follows is
/// compared with its like all the same.
pub fn compare(a: &Parts, b: &Parts) -> Difference {
    let mut pairs = Vec::new();
    for step in align(&a.structures, &b.structures) {
        let rows = match step {
            (Some(n), Some(m)) => joined(a.rows(n), b.rows(m)),
            (Some(n), None) => alone(a.rows(n), 0),
            (None, Some(m)) => alone(b.rows(m), 1),
            (None, None) => continue,
        };
        let [of_a, of_b] = [step.0.map(|n| &a.structures[n]), step.1.map(|m| &b.structures[m])];
        let Some(one) = of_a.or(of_b) else { continue };
        let offsets = [of_a, of_b].map(|one| one.map(|one| one.offset_bytes));
        pairs.push(Pair { title: one.title.clone(), prm: one.desc.prm, offsets, rows });
    }
    Difference { pairs }
}

fn alone(rows: Vec<Place>, side: usize) -> Vec<Row> {
    let rows = rows.into_iter().map(|(name, offset_bytes, bits, text)| {
        let mut values = [None, None];
        values[side] = Some(text);
        Row { name, offset_bytes, bits, values }
    });
    rows.collect()
}

/// Rows of the same structure: fields are the same; what no field covers may be on one side only.
fn joined(a: Vec<Place>, b: Vec<Place>) -> Vec<Row> {
    let mut rows = alone(a, 0);
    for row in alone(b, 1) {
        let same = |one: &&mut Row| {
            (&one.name, one.offset_bytes, one.bits) == (&row.name, row.offset_bytes, row.bits)
        };
        match rows.iter_mut().find(same) {
            Some(one) => one.values[1] = row.values.into_iter().nth(1).flatten(),
            None => rows.push(row),
        }
    }
    // Zero is not told of bits that no field covers, and is what the other side has.
    for row in rows.iter_mut().filter(|row| row.name == "bits that no field covers") {
        row.values.iter_mut().for_each(|value| *value = value.take().or(Some("0x00000000".into())));
    }
    rows
}

/// Which structure of `a` stands beside which of `b`: the most of the same kind in the same order, and of equal
/// ways the one with the most equal structures.
fn align(a: &[Structure], b: &[Structure]) -> Vec<(Option<usize>, Option<usize>)> {
    let score = |n: usize, m: usize| match (a[n].desc.name == b[m].desc.name, a[n].bytes == b[m].bytes) {
        (true, true) => 3,
        (true, false) => 2,
        (false, _) => 0,
    };
    // best[n][m]: what can be had of a[n..] and b[m..].
    let mut best = vec![vec![0; b.len() + 1]; a.len() + 1];
    for n in (0..a.len()).rev() {
        for m in (0..b.len()).rev() {
            let both = if score(n, m) > 0 { best[n + 1][m + 1] + score(n, m) } else { 0 };
            best[n][m] = both.max(best[n + 1][m]).max(best[n][m + 1]);
        }
    }
    let (mut n, mut m, mut steps) = (0, 0, Vec::new());
    while n < a.len() || m < b.len() {
        let is_pair =
            n < a.len() && m < b.len() && score(n, m) > 0 && best[n][m] == best[n + 1][m + 1] + score(n, m);
        if is_pair {
            steps.push((Some(n), Some(m)));
            (n, m) = (n + 1, m + 1);
        } else if n < a.len() && (m == b.len() || best[n][m] == best[n + 1][m]) {
            steps.push((Some(n), None));
            n += 1;
        } else {
            steps.push((None, Some(m)));
            m += 1;
        }
    }
    steps
}

impl Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for pair in &self.pairs {
            let place = match pair.offsets {
                [Some(a), Some(b)] if a == b => format!("at 0x{a:02x}"),
                [Some(a), Some(b)] => format!("at 0x{a:02x} in A, 0x{b:02x} in B"),
                [Some(a), None] => format!("at 0x{a:02x}, only in A"),
                [None, Some(b)] => format!("at 0x{b:02x}, only in B"),
                [None, None] => String::new(),
            };
            writeln!(
                f,
                "{} ({}) {place}{}",
                pair.title,
                pair.prm,
                if pair.is_equal() { ": equal" } else { "" }
            )?;
            for row in &pair.rows {
                write!(f, "{row}")?;
            }
        }
        Ok(())
    }
}

impl Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.bits.map_or(String::new(), |(hi, lo)| format!("[{hi:>2}:{lo:<2}]"));
        let [a, b] = &self.values;
        write!(f, "  +0x{:02x} {bits:<7} {:<24} ", self.offset_bytes, self.name)?;
        match (a, b) {
            (Some(a), Some(b)) if a == b => writeln!(f, "{a}"),
            (Some(a), Some(b)) => writeln!(f, "A {a}   B {b}"),
            (Some(a), None) => writeln!(f, "A {a}"),
            (None, Some(b)) => writeln!(f, "B {b}"),
            (None, None) => writeln!(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_direct::{
        mlx5::{
            ids::{Lkey, Qpn},
            layout::Layout,
        },
        wqe::{CtrlSeg, DataSeg, SendOpcode},
    };

    fn wqe(pieces: &[DataSeg]) -> Parts {
        let ds = 1 + pieces.len() as u8;
        let ctrl = CtrlSeg::new().with_opcode(SendOpcode::SEND).with_qpn(Qpn::new(7)).with_ds(ds);
        let mut bytes = ctrl.to_bytes().to_vec();
        let mut structures = vec![Structure {
            title: "control segment".into(),
            offset_bytes: 0,
            desc: CtrlSeg::DESC,
            bytes: bytes.clone(),
        }];
        for piece in pieces {
            structures.push(Structure {
                title: "data segment".into(),
                offset_bytes: bytes.len(),
                desc: DataSeg::DESC,
                bytes: piece.to_bytes().to_vec(),
            });
            bytes.extend(piece.to_bytes());
        }
        Parts::new(&bytes, structures)
    }

    fn piece(n: u32) -> DataSeg {
        DataSeg::new().with_byte_count(n).with_lkey(Lkey::new(0x11)).with_addr(u64::from(n) << 12)
    }

    fn differing(difference: &Difference) -> Vec<(String, String)> {
        let rows = difference.pairs.iter().flat_map(|pair| pair.rows.iter().map(move |row| (pair, row)));
        rows.filter(|(_, row)| !row.is_equal())
            .map(|(pair, row)| (pair.title.clone(), row.name.clone()))
            .collect()
    }

    #[test]
    fn equal_ones_are_equal() {
        let difference = compare(&wqe(&[piece(1)]), &wqe(&[piece(1)]));
        assert!(difference.is_equal() && differing(&difference).is_empty());
        assert!(compare(&wqe(&[]), &wqe(&[])).is_equal());
    }

    #[test]
    fn a_segment_that_only_one_has_does_not_shift_the_rest() {
        let difference = compare(&wqe(&[piece(1), piece(2), piece(3)]), &wqe(&[piece(1), piece(3)]));
        let offsets: Vec<_> = difference.pairs.iter().map(|pair| pair.offsets).collect();
        assert_eq!(
            offsets,
            [[Some(0), Some(0)], [Some(16), Some(16)], [Some(32), None], [Some(48), Some(32)]]
        );
        assert_eq!(differing(&difference)[0], ("control segment".into(), "ds".into()));
        let text = difference.to_string();
        assert!(
            text.contains("at 0x20, only in A") && text.contains("at 0x30 in A, 0x20 in B: equal"),
            "{text}"
        );
    }

    #[test]
    fn places_are_named() {
        let (a, b) = (wqe(&[piece(1)]), wqe(&[piece(2)]));
        let mut difference = compare(&a, &b);
        difference.hide_equal();
        let text = difference.to_string();
        assert!(text.contains("+0x00 [30:0 ] byte_count               A 1   B 2\n"), "{text}");
        difference.ignore(&["byte_count".into(), "addr".into()]);
        assert!(difference.is_equal());
    }

    #[test]
    fn bits_and_bytes_outside_of_every_field_count() {
        let plain = wqe(&[]).bytes;
        let mut odd = plain.clone();
        odd[4 + 3] |= 0x40; // above ds
        let parts = |bytes: &[u8]| Parts::of("control segment", CtrlSeg::DESC, bytes);
        assert_eq!(differing(&compare(&parts(&plain), &parts(&odd))).len(), 1);
        let longer = [plain.as_slice(), &[1, 2, 3]].concat();
        let difference = compare(&parts(&plain), &parts(&longer));
        assert_eq!(differing(&difference), [("control segment".to_string(), "bytes behind it".to_string())]);
    }

    #[test]
    fn bytes_of_no_structure_count() {
        use crate::structure::{As, ReceiveHead};
        let differ = |a: &[u8], b: &[u8], kind| {
            let [a, b] = [a, b].map(|bytes| Parts::parse(bytes, kind, None).unwrap());
            assert!(compare(&a, &a).is_equal() && !compare(&a, &b).is_equal(), "{a:?} {b:?}");
        };
        // CREATE_MKEY cut off, and a receive request without memory, behind which something is left.
        let cut_off = |last| [&[2, 0][..], &[0; 13], &[last]].concat();
        differ(&cut_off(1), &cut_off(2), As::Cmd);
        differ(&[0; 32], &[[0; 16], [1; 16]].concat(), As::Receive(ReceiveHead::None));
        // The payload in a CQE.
        differ(&[0; 128], &[[1; 64], [0; 64]].concat(), As::Cqe);
    }
}
