//! Structures as JSON.

use super::super::record::Structure;
use mlx5_direct::mlx5::layout::{Desc, Kind};
use serde_json::{Map, Value, json};

/// A number as `0x…` with at least `n_digits` digits.
pub(crate) fn hex(number: impl Into<u64>, n_digits: usize) -> Value {
    json!(format!("0x{:0n_digits$x}", number.into()))
}

/// Every field of a structure by its name: numbers as integers, bytes as text.
pub fn fields(structure: &Structure) -> Value {
    Value::Object(of(structure.desc, &structure.bytes))
}

fn of(desc: &'static Desc, bytes: &[u8]) -> Map<String, Value> {
    let mut map = Map::new();
    for field in desc.fields {
        let range = field.bit_offset / 8..(field.bit_offset + field.bit_width).div_ceil(8);
        let value = match field.kind {
            Kind::Bits { .. } => json!(desc.read(field, bytes)),
            Kind::Bytes => json!(bytes[range].iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
            Kind::Struct(inner) => Value::Object(of(inner, &bytes[range])),
        };
        map.insert(field.name.into(), value);
    }
    map
}
