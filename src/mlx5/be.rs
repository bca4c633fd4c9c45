//! Big-endian integers for memory that the device shares: registers, doorbell records, command entries.
//!
//! They are aligned, unlike zerocopy's, so that a volatile access is one load or store and never torn.

use core::fmt;

macro_rules! big_endian {
    ($($(#[doc = $doc:literal])* $name:ident $ty:ident),*) => { $(
        $(#[doc = $doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout, zerocopy::Immutable)]
        #[repr(transparent)]
        pub struct $name($ty);

        impl $name {
            /// From a native value.
            #[inline(always)]
            pub const fn new(value: $ty) -> Self {
                Self(value.to_be())
            }

            /// The native value.
            #[inline(always)]
            pub const fn get(self) -> $ty {
                $ty::from_be(self.0)
            }

            /// The integer as a native load of the same memory would read it.
            #[inline(always)]
            pub const fn to_raw(self) -> $ty {
                self.0
            }

            /// From what a native load of the memory reads.
            #[inline(always)]
            pub const fn from_raw(raw: $ty) -> Self {
                Self(raw)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.get())
            }
        }
    )* };
}

big_endian! {
    /// 16 bits.
    Be16 u16,
    /// 32 bits.
    Be32 u32,
    /// 64 bits.
    Be64 u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn memory_is_big_endian_and_aligned() {
        assert_eq!(Be16::new(0x0102).as_bytes(), &[1, 2]);
        assert_eq!(Be32::new(0x0102_0304).as_bytes(), &[1, 2, 3, 4]);
        assert_eq!(Be64::new(0x0102_0304_0506_0708).as_bytes(), &[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(Be32::new(7).get(), 7);
        assert_eq!((align_of::<Be16>(), align_of::<Be32>(), align_of::<Be64>()), (2, 4, 8));
    }
}
