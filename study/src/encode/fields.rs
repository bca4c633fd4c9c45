//! Fields of a request, and why one is refused.

use mlx5_direct::mlx5::ids::Lkey;
use serde_json::{Map, Value};
use std::fmt;

/// A request that is not encoded: the field, and the rule that it breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The field's name; inside others with dots, as `sges[1].lkey`.
    pub field: String,
    /// What is wrong with it.
    pub why: String,
}

impl Refusal {
    pub(super) fn new(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self { field: field.into(), why: why.into() }
    }

    fn missing(field: impl Into<String>, what: &str) -> Self {
        Self::new(field, format!("is missing: {what}"))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.field, self.why)
    }
}

impl std::error::Error for Refusal {}

/// An object of JSON, whose fields are read by name.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    /// What stands before its fields' names.
    prefix: String,
}

impl<'a> Fields<'a> {
    pub(super) fn new(map: &'a Map<String, Value>) -> Self {
        Self { map, prefix: String::new() }
    }

    /// A field's whole name.
    pub(super) fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// A field, if it is there. `null` is not.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// A text.
    pub(super) fn text(&self, name: &str) -> Result<&'a str, Refusal> {
        let value = self.get(name).ok_or_else(|| Refusal::missing(self.path(name), "a text"))?;
        value
            .as_str()
            .ok_or_else(|| Refusal::new(self.path(name), format!("is {value}, but a text is wanted")))
    }

    /// A truth; false if it is not there.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Refusal> {
        match self.get(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(value) if value.as_u64().is_some_and(|number| number <= 1) => Ok(value.as_u64() == Some(1)),
            Some(value) => {
                Err(Refusal::new(self.path(name), format!("is {value}, but true or false is wanted")))
            }
        }
    }

    /// A number that must be there, at most `max`.
    pub(super) fn number(&self, name: &str, max: u64) -> Result<u64, Refusal> {
        self.number_if(name, max)?
            .ok_or_else(|| Refusal::missing(self.path(name), &format!("a number up to 0x{max:x}")))
    }

    /// A number of one of some names.
    pub(super) fn number_of(&self, names: &[&str], max: u64) -> Result<u64, Refusal> {
        let name = names.iter().find(|name| self.get(name).is_some()).or(names.first());
        self.number(name.copied().unwrap_or_default(), max)
    }

    /// A number, if it is there: an integer, or a text of decimal digits, or of hexadecimal ones after `0x`.
    pub(super) fn number_if(&self, name: &str, max: u64) -> Result<Option<u64>, Refusal> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = match value {
            Value::String(text) => match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
                Some(hex) if !hex.starts_with('+') => u64::from_str_radix(hex, 16).ok(),
                None if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
                _ => None,
            },
            value => value.as_u64(),
        };
        let why = || {
            format!(
                "is {value}, but a number from 0 to 2^64 - 1 is wanted: an integer, or a text like \"0x1f\""
            )
        };
        let number = number.ok_or_else(|| Refusal::new(self.path(name), why()))?;
        if number > max {
            return Err(Refusal::new(
                self.path(name),
                format!("is 0x{number:x} ({number}), but at most 0x{max:x} ({max}) fits"),
            ));
        }
        Ok(Some(number))
    }

    /// Bytes as hexadecimal digits.
    pub(super) fn bytes(&self, name: &str) -> Result<Vec<u8>, Refusal> {
        let text = self.text(name)?;
        let wrong = || Refusal::new(self.path(name), "is no even number of hexadecimal digits");
        let digits = text.as_bytes();
        if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(wrong());
        }
        let pairs = digits.chunks(2).map(|pair| {
            let pair = std::str::from_utf8(pair).unwrap_or_default();
            u8::from_str_radix(pair, 16).map_err(|_| wrong())
        });
        pairs.collect()
    }

    /// An object in it.
    pub(super) fn object(&self, name: &str) -> Result<Self, Refusal> {
        let value = self.get(name).ok_or_else(|| Refusal::missing(self.path(name), "an object"))?;
        self.inner(value, self.path(name))
    }

    /// Objects of a list in it; none if it is not there.
    pub(super) fn objects(&self, name: &str) -> Result<Vec<Self>, Refusal> {
        let Some(value) = self.get(name) else { return Ok(Vec::new()) };
        let list = value.as_array();
        let list =
            list.ok_or_else(|| Refusal::new(self.path(name), format!("is {value}, but a list is wanted")))?;
        list.iter()
            .enumerate()
            .map(|(i, value)| self.inner(value, format!("{}[{i}]", self.path(name))))
            .collect()
    }

    fn inner(&self, value: &'a Value, path: String) -> Result<Self, Refusal> {
        match value.as_object() {
            Some(map) => Ok(Self { map, prefix: format!("{path}.") }),
            None => Err(Refusal::new(path, "is no object")),
        }
    }

    /// Numbers of a list in it.
    pub(super) fn numbers(&self, name: &str) -> Result<Option<Vec<u64>>, Refusal> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let wrong = || Refusal::new(self.path(name), format!("is {value}, but a list of numbers is wanted"));
        let list = value.as_array().ok_or_else(wrong)?;
        list.iter().map(|value| value.as_u64().ok_or_else(wrong)).collect::<Result<_, _>>().map(Some)
    }
}

/// A piece of memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) lkey: Lkey,
    pub(super) addr: u64,
    pub(super) len_bytes: u64,
}

/// The pieces of memory of a request.
pub(super) fn pieces(fields: &Fields<'_>) -> Result<Vec<Piece>, Refusal> {
    let piece = |sge: &Fields<'_>| {
        Ok(Piece {
            lkey: Lkey::new(sge.number("lkey", u32::MAX.into())? as u32),
            addr: sge.number("addr", u64::MAX)?,
            len_bytes: sge.number("length", 1 << 31)?,
        })
    };
    fields.objects("sges")?.iter().map(piece).collect()
}
