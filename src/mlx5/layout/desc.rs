//! The description of a declared structure, and reading by it.

use core::fmt;

/// What a field holds.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// An unsigned integer of up to 64 bits. `show` names the value where it is an enumeration.
    Bits {
        /// Prints the value as its type does.
        show: fn(u64, &mut fmt::Formatter<'_>) -> fmt::Result,
        /// The names that values have, if it is an enumeration.
        enumeration: Option<&'static Enumeration>,
    },
    /// Bytes in memory order.
    Bytes,
    /// A structure declared elsewhere.
    Struct(&'static Desc),
}

/// A declared enumeration.
#[derive(Debug, Clone, Copy)]
pub struct Enumeration {
    /// Name of the Rust type.
    pub name: &'static str,
    /// Name in the interface tables.
    pub table: &'static str,
    /// Documentation of the enumeration.
    pub doc: &'static str,
    /// The values that have names, in declared order.
    pub values: &'static [NamedValue],
}

/// A value of an [`Enumeration`].
#[derive(Debug, Clone, Copy)]
pub struct NamedValue {
    /// PRM name.
    pub name: &'static str,
    /// The value.
    pub bits: u64,
    /// Its documentation, as written at the declaration; empty if the name says all.
    pub doc: &'static str,
}

/// One field of a [`Desc`].
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// PRM name.
    pub name: &'static str,
    /// First bit, counted from the most significant bit of the structure's first byte.
    pub bit_offset: usize,
    /// Width in bits.
    pub bit_width: usize,
    /// What it holds.
    pub kind: Kind,
    /// Its documentation, as written at the declaration.
    pub doc: &'static str,
}

impl Field {
    /// Offset in bytes of the 32-bit word in which the field starts.
    pub const fn dword_offset_bytes(&self) -> usize {
        self.bit_offset / 32 * 4
    }

    /// The field's bits as the PRM writes them: high and low bit within its dword (63:0 for a qword).
    pub const fn hi_lo(&self) -> (usize, usize) {
        let first = self.bit_offset % 32;
        let span = if first + self.bit_width > 32 { 64 } else { 32 };
        (span - 1 - first, span - first - self.bit_width)
    }
}

/// A declared structure.
#[derive(Debug, Clone, Copy)]
pub struct Desc {
    /// Name of the Rust type.
    pub name: &'static str,
    /// Name in the interface tables.
    pub prm: &'static str,
    /// Size of the structure in bytes.
    pub size_bytes: usize,
    /// Documentation of the structure.
    pub doc: &'static str,
    /// The fields, in declared order.
    pub fields: &'static [Field],
}

impl Desc {
    /// Whether all fields, and the words that hold them, are inside the structure. Checked where a
    /// structure is declared.
    pub(crate) const fn is_sound(&self) -> bool {
        let mut n = 0;
        while n < self.fields.len() {
            let field = &self.fields[n];
            if field.bit_width == 0 || field.bit_offset + field.bit_width > self.size_bytes * 8 {
                return false;
            }
            n += 1;
        }
        self.size_bytes.is_multiple_of(4)
    }

    /// Reads an integer field out of `bytes`.
    ///
    /// # Panics
    /// If `bytes` is shorter than the structure or the field is not [`Kind::Bits`].
    pub fn read(&self, field: &Field, bytes: &[u8]) -> u64 {
        assert!(matches!(field.kind, Kind::Bits { .. }) && bytes.len() >= self.size_bytes);
        let mut value = 0;
        for bit in field.bit_offset..field.bit_offset + field.bit_width {
            value = value << 1 | u64::from(bytes[bit / 8] >> (7 - bit % 8) & 1);
        }
        value
    }

    /// The first bit, from the most significant bit of byte 0, that is set in `bytes` although no field
    /// covers it: a reserved bit that is not zero.
    pub fn reserved_bit_set(&self, bytes: &[u8]) -> Option<usize> {
        let covered = |bit: usize| {
            self.fields.iter().any(|f| (f.bit_offset..f.bit_offset + f.bit_width).contains(&bit))
        };
        (0..self.size_bytes.min(bytes.len()) * 8)
            .find(|&bit| bytes[bit / 8] >> (7 - bit % 8) & 1 != 0 && !covered(bit))
    }

    /// Prints every field of `bytes` with its place, one a line.
    pub fn explain<'a>(&'a self, bytes: &'a [u8]) -> Explain<'a> {
        Explain { desc: self, bytes, base_bytes: 0 }
    }
}

/// A structure's fields with their places and values, one a line: see [`Desc::explain`].
#[derive(Debug, Clone, Copy)]
pub struct Explain<'a> {
    desc: &'a Desc,
    bytes: &'a [u8],
    base_bytes: usize,
}

impl fmt::Display for Explain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for field in self.desc.fields {
            let at = self.base_bytes + field.dword_offset_bytes();
            let range = field.bit_offset / 8..(field.bit_offset + field.bit_width).div_ceil(8);
            match field.kind {
                Kind::Bits { show, .. } => {
                    let (hi, lo) = field.hi_lo();
                    write!(f, "  +0x{at:02x} [{hi:>2}:{lo:<2}] {:<24} ", field.name)?;
                    show(self.desc.read(field, self.bytes), f)?;
                    writeln!(f)?;
                }
                Kind::Bytes => {
                    write!(f, "  +0x{at:02x}         {:<24} ", field.name)?;
                    for byte in &self.bytes[range] {
                        write!(f, "{byte:02x}")?;
                    }
                    writeln!(f)?;
                }
                Kind::Struct(desc) => {
                    writeln!(f, "  +0x{at:02x}         {} ({}):", field.name, desc.name)?;
                    let base_bytes = self.base_bytes + range.start;
                    Explain { desc, bytes: &self.bytes[range], base_bytes }.fmt(f)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::mlx5::{
        cmd::{CmdEntry, DeliveryStatus},
        ids::Cqn,
        layout::Layout,
        record::{CqArm, DbrecCq},
        uar::CqDoorbell,
    };
    use std::string::ToString;

    #[test]
    fn a_structure_is_said_field_by_field() {
        let arm = CqArm::new().with_cmd_sn(2).with_cmd(true).with_consumer_index(9);
        let record = DbrecCq::new().with_consumer_index(0x12).with_arm(arm);
        assert_eq!(
            record.to_string(),
            "  +0x00 [23:0 ] consumer_index           0x12 (18)\n\
             \x20 +0x04         arm (CqArm):\n\
             \x20 +0x04 [29:28] cmd_sn                   2\n\
             \x20 +0x04 [24:24] cmd                      1\n\
             \x20 +0x04 [23:0 ] consumer_index           9\n"
        );
        assert_eq!(std::format!("{arm:?}"), std::format!("CqArm:\n{arm}"));
        let doorbell = CqDoorbell::new().with_cqn(Cqn::new(0x89)).to_string();
        assert!(doorbell.ends_with("  +0x04 [23:0 ] cqn                      0x89\n"), "{doorbell}");
        let entry = CmdEntry::new()
            .with_input_mailbox_ptr(0x1000)
            .with_input_inline(core::array::from_fn(|i| 0xf0 | i as u8))
            .with_delivery_status(DeliveryStatus::TOK_ERR);
        for line in [
            "  +0x08 [63:0 ] input_mailbox_ptr        0x1000 (4096)\n",
            "  +0x10         input_inline             f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff\n",
            "  +0x20         output_inline            00000000000000000000000000000000\n",
            "  +0x3c [ 7:1 ] delivery_status          TOK_ERR (0x2)\n",
            "  +0x3c [ 0:0 ] hw_owned                 0\n",
        ] {
            assert!(entry.to_string().contains(line), "{line} in\n{entry}");
        }
        let unknown = entry.with_delivery_status(DeliveryStatus(0x7f)).to_string();
        assert!(unknown.contains("unknown (0x7f)"), "{unknown}");
    }

    #[test]
    fn reserved_bits_are_found_by_their_place() {
        for bit in 0..64 {
            let mut bytes = [0; 8];
            bytes[bit / 8] = 0x80 >> (bit % 8);
            assert_eq!(DbrecCq::DESC.reserved_bit_set(&bytes), (bit < 8).then_some(bit), "bit {bit}");
            let of_arm = matches!(bit, 0..=1 | 4..=6).then_some(bit);
            assert_eq!(CqArm::DESC.reserved_bit_set(&bytes), of_arm, "bit {bit}");
        }
        assert_eq!(CqArm::DESC.reserved_bit_set(&[0, 0]), None, "what is not there is not set");
    }
}
