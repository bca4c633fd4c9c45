//! The interface tables, and the comparison.

use super::exceptions::{ENUM_NAMES, FIELDS, OMITTED, SIZES};
use mlx5_direct::mlx5::EnumTable;
use mlx5_direct::mlx5::layout::{Desc, Kind};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

/// A field of the tables; `path` has dots where a word is divided.
struct Row {
    path: String,
    bit_offset: usize,
    bit_width: usize,
    ty: String,
}

/// The tables of `tests/data/prm`.
pub(crate) struct Table {
    rows: HashMap<String, Vec<Row>>,
    sizes: HashMap<String, usize>,
    enums: HashMap<String, Vec<(String, u64)>>,
    used: RefCell<BTreeSet<(String, String)>>,
}

fn lines(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().skip(1).map(|line| line.split(',').collect())
}

impl Table {
    pub(crate) fn load() -> Self {
        let mut table = Self {
            rows: HashMap::new(),
            sizes: HashMap::new(),
            enums: HashMap::new(),
            used: RefCell::default(),
        };
        for row in lines(include_str!("../data/prm/layouts.csv")) {
            table.rows.entry(row[0].into()).or_default().push(Row {
                path: row[1].to_lowercase(),
                bit_offset: row[2].parse().unwrap(),
                bit_width: row[3].parse().unwrap(),
                ty: row[4].into(),
            });
        }
        for row in lines(include_str!("../data/prm/structs.csv")) {
            table.sizes.insert(row[0].into(), row[1].parse().unwrap());
        }
        for row in lines(include_str!("../data/prm/enums.csv")) {
            let value = u64::from_str_radix(&row[2][2..], 16).unwrap();
            table.enums.entry(row[0].into()).or_default().push((row[1].into(), value));
        }
        table
    }

    fn excepted(&self, prm: &str, field: &str) -> bool {
        let found = FIELDS.iter().chain(OMITTED).any(|e| e.0 == prm && e.1 == field)
            || field.is_empty() && SIZES.iter().any(|e| e.0 == prm);
        if found {
            self.used.borrow_mut().insert((prm.into(), field.into()));
        }
        found
    }

    /// Exceptions that no declaration needed: stale ones would hide a fault.
    pub(crate) fn unused_exceptions(&self) -> Vec<String> {
        let used = self.used.borrow();
        let all = FIELDS.iter().chain(OMITTED).map(|e| (e.0, e.1)).chain(SIZES.iter().map(|e| (e.0, "")));
        all.filter(|(prm, field)| !used.contains(&(prm.to_string(), field.to_string())))
            .map(|(prm, field)| format!("{prm}.{field}: the exception is not needed"))
            .collect()
    }
}

/// Rows of one declared structure, in its own bits. A name in the tables is `struct`, or `struct.word` for a
/// word that is declared as a structure, or `struct+0xbytes` for a tail.
struct View<'a> {
    rows: Vec<(&'a str, usize, usize, &'a str)>,
    size_bytes: Option<usize>,
}

fn view<'a>(prm: &str, table: &'a Table) -> Option<View<'a>> {
    let (root, word) = prm.split_once('.').unwrap_or((prm, ""));
    let (root, tail) = root.split_once("+0x").unwrap_or((root, "0"));
    let mut base = usize::from_str_radix(tail, 16).unwrap() * 8;
    let rows = table.rows.get(root)?;
    let mut size_bytes = table.sizes.get(root).map(|size| size - base / 8);
    let mut prefix = String::new();
    if !word.is_empty() {
        let row = rows.iter().find(|row| row.path == word)?;
        base = row.bit_offset;
        size_bytes = Some(row.bit_width / 8);
        prefix = format!("{word}.");
    }
    let rows = (rows.iter().filter(|row| row.bit_offset >= base))
        .filter_map(|row| {
            Some((row.path.strip_prefix(&prefix)?, row.bit_offset - base, row.bit_width, &*row.ty))
        })
        .collect();
    Some(View { rows, size_bytes })
}

/// What is wrong with a declaration.
pub(crate) fn check(desc: &Desc, table: &Table) -> Vec<String> {
    let Some(view) = view(desc.prm, table) else {
        return vec![format!("{}: {} is not in the tables", desc.name, desc.prm)];
    };
    let mut faults = Vec::new();
    // Event data is declared with all its bytes; the tables give no size for the variants.
    let size = view.size_bytes.or(desc.prm.starts_with("eqe_").then_some(28));
    if size != Some(desc.size_bytes) && !table.excepted(desc.prm, "") {
        faults.push(format!("{}: size {} bytes, the tables say {size:?}", desc.name, desc.size_bytes));
    }
    let mut covered = vec![false; desc.size_bytes * 8 + 64];
    check_fields(desc, desc.prm, 0, &view, table, &mut covered, &mut faults);
    // No field of the tables is left out; of a word and its parts only the parts count.
    for (path, offset, width, _) in &view.rows {
        let parts = format!("{path}.");
        let inside = offset + width <= desc.size_bytes * 8;
        let is_leaf = *width > 0 && !view.rows.iter().any(|row| row.0.starts_with(&parts));
        let is_hole = || covered[*offset..offset + width].iter().any(|covered| !covered);
        if inside && is_leaf && *path != "reserved" && is_hole() && !table.excepted(desc.prm, path) {
            faults.push(format!("{}.{path}: in the tables, but no declared field covers it", desc.name));
        }
    }
    faults
}

fn check_fields(
    desc: &Desc,
    prm: &str,
    base: usize,
    view: &View<'_>,
    table: &Table,
    covered: &mut [bool],
    faults: &mut Vec<String>,
) {
    for field in desc.fields {
        let name = field.name.trim_end_matches('_');
        let offset = base + field.bit_offset;
        let is_same = |path: &str| {
            path == name || path.replace('.', "_") == name || path.rsplit('.').next() == Some(name)
        };
        // A counter of 64 bits, which Linux declares as two words.
        let word = |half, at| (format!("{name}_{half}"), at, 32);
        let is_word = |(path, at, width): (String, _, _)| {
            view.rows.iter().any(|row| (row.0, row.1, row.2) == (&*path, at, width))
        };
        let in_words =
            field.bit_width == 64 && is_word(word("high", offset)) && is_word(word("low", offset + 32));
        let rows: Vec<_> = view.rows.iter().filter(|row| is_same(row.0)).collect();
        let what = format!("{}.{name}", desc.name);
        let is_excepted = || FIELDS.iter().any(|e| e.0 == prm && e.1 == name) && table.excepted(prm, name);
        match field.kind {
            // A structure that the tables do not show as one: its fields are the parent's.
            Kind::Struct(child) if rows.is_empty() => {
                check_fields(child, prm, offset, view, table, covered, faults);
                continue;
            }
            _ if is_excepted() || in_words => {}
            _ if rows.is_empty() => faults.push(format!("{what}: not in the tables")),
            _ if !rows.iter().any(|row| row.1 == offset && row.2 == field.bit_width) => {
                let tables: Vec<_> = rows.iter().map(|row| (row.1, row.2)).collect();
                faults.push(format!(
                    "{what}: declared at bit {offset} with {} bits, the tables say {tables:?}",
                    field.bit_width
                ));
            }
            Kind::Struct(child) => {
                let ty = rows[0].3;
                if !ty.is_empty() && ty != child.prm {
                    faults.push(format!("{what}: is a {}, the tables say {ty}", child.name));
                }
            }
            _ => {}
        }
        for bit in &mut covered[offset..offset + field.bit_width] {
            if std::mem::replace(bit, true) {
                faults.push(format!("{what}: overlap with another field"));
                break;
            }
        }
    }
}

/// What is wrong with an enumeration. A name may lack the prefix that it has in the table.
pub(crate) fn check_enum((name, values): EnumTable, table: &Table) -> Vec<String> {
    let Some(rows) = table.enums.get(name) else { return vec![format!("{name} is not in the tables")] };
    let mut faults = Vec::new();
    for &(value_name, value) in values {
        let theirs = ENUM_NAMES.iter().find(|e| e.0 == name && e.1 == value_name).map_or(value_name, |e| e.2);
        let suffix = format!("_{theirs}");
        let found: Vec<_> = rows.iter().filter(|row| row.0 == theirs || row.0.ends_with(&suffix)).collect();
        if !found.iter().any(|row| row.1 == value) {
            faults.push(format!("{name}.{value_name} = {value:#x}, the tables say {found:x?}"));
        }
    }
    faults
}
