//! Every declared structure against the interface tables in `tests/data/prm`, field by field.

mod layouts {
    pub(crate) mod exceptions;
    pub(crate) mod table;
}

use layouts::exceptions::{ENUM_NAMES, FIELDS, OMITTED, SIZES};
use layouts::table::{Table, check, check_enum};
use mlx5_direct::mlx5::layout::{Desc, Field, Kind, Layout};
use mlx5_direct::mlx5::{self, context::Qpc};
use mlx5_direct::{cqe, wqe};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn declared() -> Vec<&'static Desc> {
    [mlx5::layouts(), wqe::layouts(), cqe::layouts()].concat()
}

fn declared_enums() -> Vec<mlx5::EnumTable> {
    [mlx5::enums(), wqe::enums(), cqe::enums()].concat()
}

#[test]
fn every_field_is_where_the_tables_say() {
    let table = Table::load();
    let mut faults: Vec<String> = declared().iter().flat_map(|desc| check(desc, &table)).collect();
    faults.extend(table.unused_exceptions());
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn every_value_is_what_the_tables_say() {
    let table = Table::load();
    let faults: Vec<String> = declared_enums().iter().flat_map(|e| check_enum(*e, &table)).collect();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// Two names of one value would print the first for both.
#[test]
fn values_have_one_name_each() {
    for (name, values) in declared_enums() {
        let mut bits: Vec<u64> = values.iter().map(|value| value.1).collect();
        bits.sort_unstable();
        bits.dedup();
        assert_eq!(bits.len(), values.len(), "{name}");
    }
}

/// Every exception says why.
#[test]
fn exceptions_give_reasons() {
    let reasons = (SIZES.iter().map(|e| e.1))
        .chain(FIELDS.iter().map(|e| e.2))
        .chain(OMITTED.iter().map(|e| e.2))
        .chain(ENUM_NAMES.iter().map(|e| e.3));
    assert!(reasons.into_iter().all(|reason| reason.len() > 10));
}

/// Spoils a description or its fields.
type Change = fn(&mut Desc, &mut Vec<Field>);

/// A test that cannot fail shows nothing: here is a structure that is wrong in each way.
#[test]
fn the_check_finds_wrong_declarations() {
    let table = Table::load();
    let good = Qpc::DESC;
    let found = |change: Change| {
        let (mut desc, mut fields) = (*good, good.fields.to_vec());
        change(&mut desc, &mut fields);
        desc.fields = fields.leak();
        check(&desc, &table)
    };
    assert_eq!(found(|_, _| ()), Vec::<String>::new());
    let wrong: [(&str, Change); 7] = [
        ("pd: declared at bit 41", |_, f| field(f, "pd").bit_offset += 1),
        ("pd: declared at bit 40 with 23 bits", |_, f| field(f, "pd").bit_width -= 1),
        ("mut: not in the tables", |_, f| field(f, "mtu").name = "mut"),
        ("pd: in the tables, but no declared field covers it", |_, f| f.retain(|f| f.name != "pd")),
        ("overlap", |_, f| f.push(*field(&mut f.clone(), "pd"))),
        ("size", |d, _| d.size_bytes += 4),
        ("is a Qpc, the tables say ads", |_, f| {
            field(f, "primary_address_path").kind = Kind::Struct(Qpc::DESC)
        }),
    ];
    for (fault, change) in wrong {
        let faults = found(change);
        assert!(faults.iter().any(|f| f.contains(fault)), "{fault:?} not among {faults:?}");
    }
    let faults = check_enum(("qp_state", &[("RTS", 4), ("RTT", 2)]), &table);
    assert_eq!(faults.len(), 2, "{faults:?}");
}

fn field<'a>(fields: &'a mut [Field], name: &str) -> &'a mut Field {
    fields.iter_mut().find(|f| f.name == name).unwrap()
}

/// Nothing that `layout!` or `wire_enum!` declares is missing from the lists, so that the checks above see all.
#[test]
fn the_lists_are_complete() {
    let (mut structs, mut enums) = (Vec::new(), Vec::new());
    for path in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let Some(rest) = line.trim().strip_prefix("pub struct ") else { continue };
            let Some(rest) = rest.strip_suffix("\" {") else { continue };
            let (head, prm) = rest.split_once(" \"").unwrap();
            match head.trim_end_matches(',').split_once('(') {
                Some(_) => enums.push(prm.to_string()),
                None => structs.push(head.split_once(',').unwrap().0.to_string()),
            }
        }
    }
    assert!(structs.len() > 150 && enums.len() > 30, "the scan found too little");
    assert_eq!(counted(structs), counted(declared().iter().map(|d| d.name.to_string())));
    assert_eq!(counted(enums), counted(declared_enums().iter().map(|e| e.0.to_string())));
}

fn counted(names: impl IntoIterator<Item = String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    counts
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

/// The opcode in front of every input is the one that the trait names, and `CmdOpcode` knows it by the PRM name.
#[test]
fn commands_have_their_opcodes() {
    for command in mlx5::commands() {
        let name = command.opcode.name().expect("opcode has a name");
        if command.input.prm == "general_obj_in_cmd_hdr" {
            assert!(name.ends_with("_GENERAL_OBJECT"), "{name}");
            continue;
        }
        let prm = command.input.prm.trim_end_matches("_in").to_uppercase();
        let short = prm
            .trim_end_matches("_QP")
            .replace("ACCESS_REGISTER", "ACCESS_REG")
            .replace("_FTE", "_FLOW_TABLE_ENTRY")
            .replace("ARM_DCT", "ARM_DCT_FOR_KEY_VIOLATION");
        assert!(name == prm || name == short || name == format!("{short}_QP"), "{name} {prm}");
        assert_eq!(command.input.fields[0].name, "opcode");
        assert_eq!(command.output.fields[0].name, "status");
        assert_eq!(command.output.fields[1].name, "syndrome");
    }
    // Each that `command!` declares.
    let mut declared = Vec::new();
    for path in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/mlx5/cmd")) {
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let Some(rest) = line.strip_prefix("command! { ") else { continue };
            let (_, rest) = rest.split_once(", ").expect("an opcode");
            declared.push(rest.split_once(" =>").expect("an output").0.to_string());
        }
    }
    assert!(declared.len() > 100, "the scan found too little");
    assert_eq!(counted(declared), counted(mlx5::commands().iter().map(|c| c.input.name.to_string())));
    let mut opcodes: Vec<u16> = mlx5::commands().iter().map(|c| c.opcode.0).collect();
    opcodes.sort_unstable();
    assert!(opcodes.windows(2).all(|pair| pair[0] != pair[1]));
}
