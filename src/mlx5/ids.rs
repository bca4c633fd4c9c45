//! Numbers of objects, kept apart by type.

use super::layout::Bits;
use core::fmt;

macro_rules! ids {
    ($($(#[doc = $doc:literal])* $name:ident $width:literal),* $(,)?) => { $(
        $(#[doc = $doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        #[repr(transparent)]
        pub struct $name(u32);

        impl $name {
            /// Width in bits.
            pub const WIDTH: u32 = $width;

            /// From a number; bits above [`WIDTH`](Self::WIDTH) are dropped.
            #[inline(always)]
            pub const fn new(number: u32) -> Self {
                Self(number & (u32::MAX >> (32 - $width)))
            }

            /// The number.
            #[inline(always)]
            pub const fn get(self) -> u32 {
                self.0
            }
        }

        impl Bits for $name {
            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                Self::new(bits as u32)
            }
            #[inline(always)]
            fn to_bits(self) -> u64 {
                u64::from(self.0)
            }
            fn show(bits: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "0x{bits:x}")
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "0x{:x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "(0x{:x})"), self.0)
            }
        }
    )* };
}

ids! {
    /// Queue pair number.
    Qpn 24,
    /// Completion queue number.
    Cqn 24,
    /// Event queue number.
    Eqn 8,
    /// Protection domain number.
    Pdn 24,
    /// UAR page number: a 4 KiB page of BAR0.
    UarIndex 24,
    /// Number that software gives a queue and that comes back in its CQEs (`cqe_version` 1).
    UserIndex 24,
    /// Local key: the right to name a memory region in one's own requests.
    Lkey 32,
    /// Remote key: the right to name a memory region in a peer's requests.
    Rkey 32,
    /// Packet sequence number.
    Psn 24,
}

impl Lkey {
    /// Ends a scatter list that is shorter than its receive WQE (`MLX5_INVALID_LKEY`).
    pub const INVALID: Self = Self(0x100);
}

impl Psn {
    /// The PSN `n` packets later, modulo 2²⁴.
    #[inline(always)]
    #[must_use]
    pub const fn plus(self, n: u32) -> Self {
        Self::new(self.0.wrapping_add(n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_cut_to_their_width() {
        assert_eq!(Qpn::new(0xff00_0001).get(), 1);
        assert_eq!(Lkey::new(u32::MAX).get(), u32::MAX);
        assert_eq!(Psn::new(0xff_ffff).plus(2), Psn::new(1));
    }
}
