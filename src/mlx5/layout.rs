//! How a device structure is declared: once, field by field, as the PRM draws it.
//!
//! `layout!` takes a structure dword by dword, bits as `[hi:lo]`, and makes a plain
//! value of it: accessors, setters, and a description ([`Desc`]) that everything else is drawn from: the
//! printed form, the notes in `docs/prm-notes`, and the test that compares every field with the
//! interface tables.
//!
//! ```
//! use mlx5_direct::{mlx5::layout::Layout, wqe::CtrlSeg};
//!
//! let ctrl = CtrlSeg::new().with_wqe_index(0x1234).with_ds(2);
//! assert_eq!(ctrl.to_bytes()[..8], [0, 0x12, 0x34, 0, 0, 0, 0, 2]);
//! assert_eq!(CtrlSeg::DESC.fields[1].name, "wqe_index");
//! assert_eq!(CtrlSeg::DESC.fields[1].hi_lo(), (23, 8));
//! ```

mod desc;
mod draw;

pub use desc::{Desc, Enumeration, Explain, Field, Kind, NamedValue};
pub use draw::Drawing;

use core::fmt;

/// A type that is declared by `layout!`: bytes that are valid whatever they hold.
pub trait Layout:
    Copy
    + zerocopy::FromBytes
    + zerocopy::IntoBytes
    + zerocopy::KnownLayout
    + zerocopy::Immutable
    + fmt::Display
    + fmt::Debug
{
    /// The structure's description.
    const DESC: &'static Desc;
}

/// A value that fits in a bit field.
pub trait Bits: Copy {
    /// The names that values have, if it is an enumeration.
    const ENUMERATION: Option<&'static Enumeration> = None;
    /// Takes the value of a field; bits above the field's width are zero.
    fn from_bits(bits: u64) -> Self;
    /// Gives the value; bits above the field's width are dropped by the setter.
    fn to_bits(self) -> u64;
    /// Prints a field's value.
    fn show(bits: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

macro_rules! integer_bits {
    ($($ty:ty)*) => { $(
        impl Bits for $ty {
            #[inline(always)]
            fn from_bits(bits: u64) -> Self { bits as Self }
            #[inline(always)]
            fn to_bits(self) -> u64 { self as u64 }
            fn show(bits: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                if bits < 10 { write!(f, "{bits}") } else { write!(f, "0x{bits:x} ({bits})") }
            }
        }
    )* };
}
integer_bits!(u8 u16 u32 u64);

impl Bits for bool {
    #[inline(always)]
    fn from_bits(bits: u64) -> Self {
        bits != 0
    }
    #[inline(always)]
    fn to_bits(self) -> u64 {
        self as u64
    }
    fn show(bits: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{bits}")
    }
}

/// Declares device structures; see the [module](crate::mlx5::layout).
///
/// `pub struct Name, size_bytes, "table name" { offset spec field: Type, … }` where `spec` is
/// - `[hi:lo]`: bits of the dword at `offset`, or of the qword there if `hi` is above 31;
/// - `[bytes]`: raw bytes, `Type` being `[u8; N]`;
/// - `[struct]`: another declared structure.
macro_rules! layout {
    ($(
        $(#[doc = $doc:literal])*
        pub struct $name:ident, $size:literal, $prm:literal {
            $( $(#[doc = $fdoc:literal])* $off:literal $spec:tt $field:ident : $ty:ty ),* $(,)?
        }
    )*) => { $(
        $(#[doc = $doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout, zerocopy::Immutable)]
        #[repr(C, align(4))]
        pub struct $name {
            bytes: [u8; $size],
        }

        const _: () = assert!(size_of::<$name>() == $size);
        const _: () = assert!(<$name as $crate::mlx5::layout::Layout>::DESC.is_sound(), "field outside its structure");

        impl $name {
            /// All bits zero.
            #[inline(always)]
            pub const fn new() -> Self {
                Self { bytes: [0; $size] }
            }

            /// The structure as it lies in memory.
            #[inline(always)]
            pub const fn from_bytes(bytes: [u8; $size]) -> Self {
                Self { bytes }
            }

            /// The structure as it lies in memory.
            #[inline(always)]
            pub const fn to_bytes(self) -> [u8; $size] {
                self.bytes
            }

            $( $crate::mlx5::layout::accessors! { [$($fdoc),*] $off $spec $field $ty } )*
        }

        impl Default for $name {
            #[inline(always)]
            fn default() -> Self {
                Self::new()
            }
        }

        impl From<[u8; $size]> for $name {
            #[inline(always)]
            fn from(bytes: [u8; $size]) -> Self {
                Self { bytes }
            }
        }

        impl $crate::mlx5::layout::Layout for $name {
            const DESC: &'static $crate::mlx5::layout::Desc = &$crate::mlx5::layout::Desc {
                name: stringify!($name),
                prm: $prm,
                size_bytes: $size,
                doc: concat!($($doc, "\n"),*),
                fields: &[ $( $crate::mlx5::layout::Field {
                    name: stringify!($field),
                    bit_offset: $crate::mlx5::layout::geometry!($off $spec $ty).0,
                    bit_width: $crate::mlx5::layout::geometry!($off $spec $ty).1,
                    kind: $crate::mlx5::layout::kind!($spec $ty),
                    doc: concat!($($fdoc, "\n"),*),
                } ),* ],
            };
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                <Self as $crate::mlx5::layout::Layout>::DESC.explain(&self.bytes).fmt(f)
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                writeln!(f, "{}:", stringify!($name))?;
                core::fmt::Display::fmt(self, f)
            }
        }
    )* };
}
pub(crate) use layout;

/// Getter, setter and builder of one field.
macro_rules! accessors {
    ([$($doc:literal),*] $off:literal [bytes] $field:ident $ty:ty) => { pastey::paste! {
        $(#[doc = $doc])*
        #[doc = concat!("\n\n`+", stringify!($off), "`")]
        #[inline(always)]
        pub fn $field(&self) -> $ty {
            $crate::mlx5::layout::get_bytes::<$off, _, _>(&self.bytes)
        }
        #[doc = concat!("Sets [`", stringify!($field), "`](Self::", stringify!($field), ").")]
        #[inline(always)]
        pub fn [<set_ $field>](&mut self, value: $ty) {
            $crate::mlx5::layout::set_bytes::<$off, _, _>(&mut self.bytes, value);
        }
        #[doc = concat!("With [`", stringify!($field), "`](Self::", stringify!($field), ") set.")]
        #[inline(always)]
        #[must_use]
        pub fn [<with_ $field>](mut self, value: $ty) -> Self {
            self.[<set_ $field>](value);
            self
        }
    } };
    ([$($doc:literal),*] $off:literal [struct] $field:ident $ty:ty) => { pastey::paste! {
        $(#[doc = $doc])*
        #[doc = concat!("\n\n`+", stringify!($off), "`")]
        #[inline(always)]
        pub fn $field(&self) -> $ty {
            <$ty>::from_bytes($crate::mlx5::layout::get_bytes::<$off, _, _>(&self.bytes))
        }
        #[doc = concat!("Sets [`", stringify!($field), "`](Self::", stringify!($field), ").")]
        #[inline(always)]
        pub fn [<set_ $field>](&mut self, value: $ty) {
            $crate::mlx5::layout::set_bytes::<$off, _, _>(&mut self.bytes, value.to_bytes());
        }
        #[doc = concat!("With [`", stringify!($field), "`](Self::", stringify!($field), ") set.")]
        #[inline(always)]
        #[must_use]
        pub fn [<with_ $field>](mut self, value: $ty) -> Self {
            self.[<set_ $field>](value);
            self
        }
    } };
    ([$($doc:literal),*] $off:literal [$hi:literal : $lo:literal] $field:ident $ty:ty) => { pastey::paste! {
        $(#[doc = $doc])*
        #[doc = concat!("\n\n`+", stringify!($off), " [", stringify!($hi), ":", stringify!($lo), "]`")]
        #[inline(always)]
        pub fn $field(&self) -> $ty {
            <$ty as $crate::mlx5::layout::Bits>::from_bits(
                $crate::mlx5::layout::get_bits::<$off, $hi, $lo, _>(&self.bytes),
            )
        }
        #[doc = concat!("Sets [`", stringify!($field), "`](Self::", stringify!($field), "), dropping bits above its width.")]
        #[inline(always)]
        pub fn [<set_ $field>](&mut self, value: $ty) {
            $crate::mlx5::layout::set_bits::<$off, $hi, $lo, _>(
                &mut self.bytes,
                <$ty as $crate::mlx5::layout::Bits>::to_bits(value),
            );
        }
        #[doc = concat!("With [`", stringify!($field), "`](Self::", stringify!($field), ") set.")]
        #[inline(always)]
        #[must_use]
        pub fn [<with_ $field>](mut self, value: $ty) -> Self {
            self.[<set_ $field>](value);
            self
        }
    } };
}
pub(crate) use accessors;

/// Bytes of the word that holds bit `hi`: a dword or a qword.
pub(crate) const fn span_bytes(hi: u32) -> usize {
    if hi > 31 { 8 } else { 4 }
}

// The bodies of the accessors, apart from them so that an unused field costs the compiler little.
// All bounds are constants: no check is left.

/// Bits `HI..=LO` of the word at `OFF`.
#[inline(always)]
pub(crate) fn get_bits<const OFF: usize, const HI: u32, const LO: u32, const N: usize>(
    bytes: &[u8; N],
) -> u64 {
    const { assert!(HI >= LO && HI < 64 && OFF + span_bytes(HI) <= N, "field outside its structure") }
    let word = if HI > 31 {
        u64::from_be_bytes(get_bytes::<OFF, 8, N>(bytes))
    } else {
        u64::from(u32::from_be_bytes(get_bytes::<OFF, 4, N>(bytes)))
    };
    word >> LO & (u64::MAX >> (63 - (HI - LO)))
}

/// Sets bits `HI..=LO` of the word at `OFF`; bits of `value` above the width are dropped.
#[inline(always)]
pub(crate) fn set_bits<const OFF: usize, const HI: u32, const LO: u32, const N: usize>(
    bytes: &mut [u8; N],
    value: u64,
) {
    const { assert!(HI >= LO && HI < 64 && OFF + span_bytes(HI) <= N, "field outside its structure") }
    let mask = (u64::MAX >> (63 - (HI - LO))) << LO;
    let value = value << LO & mask;
    if HI > 31 {
        let word = u64::from_be_bytes(get_bytes::<OFF, 8, N>(bytes)) & !mask | value;
        set_bytes::<OFF, 8, N>(bytes, word.to_be_bytes());
    } else {
        let word = u32::from_be_bytes(get_bytes::<OFF, 4, N>(bytes)) & !(mask as u32) | value as u32;
        set_bytes::<OFF, 4, N>(bytes, word.to_be_bytes());
    }
}

/// The `M` bytes at `OFF`.
#[inline(always)]
pub(crate) fn get_bytes<const OFF: usize, const M: usize, const N: usize>(bytes: &[u8; N]) -> [u8; M] {
    let mut value = [0; M];
    value.copy_from_slice(&bytes[OFF..OFF + M]);
    value
}

/// Sets the `M` bytes at `OFF`.
#[inline(always)]
pub(crate) fn set_bytes<const OFF: usize, const M: usize, const N: usize>(
    bytes: &mut [u8; N],
    value: [u8; M],
) {
    bytes[OFF..OFF + M].copy_from_slice(&value);
}

/// (bit offset, bit width) of one field.
macro_rules! geometry {
    ($off:literal [bytes] $ty:ty) => {
        ($off * 8, size_of::<$ty>() * 8)
    };
    ($off:literal [struct] $ty:ty) => {
        ($off * 8, size_of::<$ty>() * 8)
    };
    ($off:literal [$hi:literal : $lo:literal] $ty:ty) => {
        ($off * 8 + ($crate::mlx5::layout::span_bytes($hi) * 8 - 1 - $hi), $hi - $lo + 1)
    };
}
pub(crate) use geometry;

/// [`Kind`] of one field.
macro_rules! kind {
    ([bytes] $ty:ty) => {
        $crate::mlx5::layout::Kind::Bytes
    };
    ([struct] $ty:ty) => {
        $crate::mlx5::layout::Kind::Struct(<$ty as $crate::mlx5::layout::Layout>::DESC)
    };
    ([$hi:literal : $lo:literal] $ty:ty) => {
        $crate::mlx5::layout::Kind::Bits {
            show: <$ty as $crate::mlx5::layout::Bits>::show,
            enumeration: <$ty as $crate::mlx5::layout::Bits>::ENUMERATION,
        }
    };
}
pub(crate) use kind;

/// Declares a wire enumeration: an integer with named values, since a device may send any value.
///
/// `pub struct Name(u8), "table name" { NAME = value, … }`; the named values are compared with the table.
macro_rules! wire_enum {
    ($(
        $(#[doc = $doc:literal])*
        pub struct $name:ident($repr:ty), $table:literal {
            $( $(#[doc = $vdoc:literal])* $value:ident = $bits:literal ),* $(,)?
        }
    )*) => { $(
        $(#[doc = $doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        #[repr(transparent)]
        pub struct $name(pub $repr);

        impl $name {
            $(
                $(#[doc = $vdoc])*
                #[doc = concat!("`", stringify!($bits), "`")]
                pub const $value: Self = Self($bits);
            )*

            /// The table that the values come from, and the named values.
            pub const TABLE: (&'static str, &'static [(&'static str, u64)]) =
                ($table, &[ $( (stringify!($value), $bits) ),* ]);

            /// The value's name, if it has one.
            pub fn name(self) -> Option<&'static str> {
                Self::TABLE.1.iter().find(|(_, bits)| *bits == u64::from(self.0)).map(|(name, _)| *name)
            }
        }

        impl $crate::mlx5::layout::Bits for $name {
            const ENUMERATION: Option<&'static $crate::mlx5::layout::Enumeration> =
                Some(&$crate::mlx5::layout::Enumeration {
                    name: stringify!($name),
                    table: $table,
                    doc: concat!($($doc, "\n"),*),
                    values: &[ $( $crate::mlx5::layout::NamedValue {
                        name: stringify!($value),
                        bits: $bits,
                        doc: concat!($($vdoc, "\n"),*),
                    } ),* ],
                });
            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                Self(bits as $repr)
            }
            #[inline(always)]
            fn to_bits(self) -> u64 {
                u64::from(self.0)
            }
            fn show(bits: u64, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(&Self(bits as $repr), f)
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => write!(f, "{name} (0x{:x})", self.0),
                    None => write!(f, "unknown (0x{:x})", self.0),
                }
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }
    )* };
}
pub(crate) use wire_enum;

/// Bytes 0xa5, but for `places`: what is left of such a buffer after a setter that keeps to its bits.
#[cfg(test)]
pub(crate) fn painted<const N: usize>(places: &[(usize, &[u8])]) -> [u8; N] {
    let mut bytes = [0xa5; N];
    for (at, place) in places {
        bytes[*at..at + place.len()].copy_from_slice(place);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mlx5::context::Qpc;

    fn set<const OFF: usize, const HI: u32, const LO: u32>(value: u64) -> [u8; 12] {
        let mut bytes = [0xa5; 12];
        set_bits::<OFF, HI, LO, 12>(&mut bytes, value);
        assert_eq!(get_bits::<OFF, HI, LO, 12>(&bytes), value);
        bytes
    }

    #[test]
    fn a_setter_keeps_to_its_bits() {
        assert_eq!(set::<0, 31, 31>(0), painted(&[(0, &[0x25])]));
        assert_eq!(set::<0, 0, 0>(0), painted(&[(3, &[0xa4])]));
        // 14 bits: 1, 8 and 5 of them in three bytes.
        assert_eq!(set::<0, 16, 3>(0x3fff), painted(&[(2, &[0xff, 0xfd])]));
        assert_eq!(set::<0, 16, 3>(0), painted(&[(1, &[0xa4, 0x00, 0x05])]));
        assert_eq!(set::<4, 63, 0>(0x0102_0304_0506_0708), painted(&[(4, &[1, 2, 3, 4, 5, 6, 7, 8])]));
        // Bits 34 to 29 of a qword: 3 in one dword, 3 in the next.
        assert_eq!(set::<4, 34, 29>(0b010_101), painted(&[(7, &[0xa2])]));
        assert_eq!(set::<4, 34, 29>(0b111_000), painted(&[(7, &[0xa7, 0x05])]));
    }

    #[test]
    fn a_setter_drops_bits_above_the_width() {
        let mut bytes = [0; 4];
        set_bits::<0, 16, 3, 4>(&mut bytes, u64::MAX);
        assert_eq!(bytes, [0, 1, 0xff, 0xf8]);
    }

    #[test]
    fn the_description_reads_what_the_accessors_write() {
        let bytes = Qpc::new().with_log_msg_max(30).with_dbr_addr(0x1234_5678_9abc).with_cgs(true).to_bytes();
        let read =
            |name: &str| Qpc::DESC.read(Qpc::DESC.fields.iter().find(|f| f.name == name).unwrap(), &bytes);
        assert_eq!((read("log_msg_max"), read("dbr_addr"), read("cgs")), (30, 0x1234_5678_9abc, 1));
        assert_eq!(Qpc::DESC.reserved_bit_set(&bytes), None);
        assert_eq!(Qpc::DESC.reserved_bit_set(&[0, 0, 0x80]), Some(16));
    }

    #[test]
    fn the_description_names_the_values() {
        let kind = Qpc::DESC.fields.iter().find(|f| f.name == "state").unwrap().kind;
        let Kind::Bits { enumeration: Some(states), .. } = kind else { panic!("{kind:?}") };
        let rts = states.values.iter().find(|value| value.name == "RTS").unwrap();
        assert_eq!((states.name, states.table, rts.bits), ("QpState", "qp_state", 3));
    }
}
