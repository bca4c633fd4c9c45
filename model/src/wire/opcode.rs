//! BTH opcodes of the RC and UD transports.

use core::fmt;

/// Which extension headers an opcode has, as a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extensions(u8);

impl Extensions {
    pub(super) const RETH: u8 = 1;
    pub(super) const ATOMIC_ETH: u8 = 2;
    pub(super) const AETH: u8 = 4;
    pub(super) const ATOMIC_ACK_ETH: u8 = 8;
    pub(super) const IMM: u8 = 16;
    pub(super) const IETH: u8 = 32;
    pub(super) const PAYLOAD: u8 = 64;
    pub(super) const DETH: u8 = 128;
    pub(super) const NONE: Self = Self(0);

    pub(super) const fn has(self, header: u8) -> bool {
        self.0 & header != 0
    }

    /// Bytes of all extension headers.
    pub(super) const fn len_bytes(self) -> usize {
        let mut len = 0;
        if self.has(Self::RETH) {
            len += 16;
        }
        if self.has(Self::ATOMIC_ETH) {
            len += 28;
        }
        if self.has(Self::AETH) {
            len += 4;
        }
        if self.has(Self::ATOMIC_ACK_ETH) {
            len += 8;
        }
        if self.has(Self::DETH) {
            len += 8;
        }
        if self.has(Self::IMM) {
            len += 4;
        }
        if self.has(Self::IETH) {
            len += 4;
        }
        len
    }
}

/// `BTH.OpCode`: transport in `[7:5]` (0 = RC, 3 = UD), operation in `[4:0]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opcode(pub u8);

macro_rules! opcodes {
    ($($name:ident $value:literal [$($ext:ident)*]),* $(,)?) => {
        impl Opcode {
            $(#[doc = concat!("`", stringify!($name), "`; of RC without a prefix.")] pub const $name: Self = Self($value);)*

            /// Name as in the InfiniBand specification, without `RC`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* _ => "reserved" }
            }

            /// Headers that follow the BTH; `None` for what is neither an RC nor a UD opcode.
            pub(super) const fn extensions(self) -> Option<Extensions> {
                match self {
                    $(Self::$name => Some(Extensions(0 $(| Extensions::$ext)*)),)*
                    _ => None,
                }
            }
        }
    };
}

opcodes! {
    SEND_FIRST 0x00 [PAYLOAD],
    SEND_MIDDLE 0x01 [PAYLOAD],
    SEND_LAST 0x02 [PAYLOAD],
    SEND_LAST_IMM 0x03 [IMM PAYLOAD],
    SEND_ONLY 0x04 [PAYLOAD],
    SEND_ONLY_IMM 0x05 [IMM PAYLOAD],
    WRITE_FIRST 0x06 [RETH PAYLOAD],
    WRITE_MIDDLE 0x07 [PAYLOAD],
    WRITE_LAST 0x08 [PAYLOAD],
    WRITE_LAST_IMM 0x09 [IMM PAYLOAD],
    WRITE_ONLY 0x0a [RETH PAYLOAD],
    WRITE_ONLY_IMM 0x0b [RETH IMM PAYLOAD],
    READ_REQUEST 0x0c [RETH],
    READ_RESPONSE_FIRST 0x0d [AETH PAYLOAD],
    READ_RESPONSE_MIDDLE 0x0e [PAYLOAD],
    READ_RESPONSE_LAST 0x0f [AETH PAYLOAD],
    READ_RESPONSE_ONLY 0x10 [AETH PAYLOAD],
    ACKNOWLEDGE 0x11 [AETH],
    ATOMIC_ACKNOWLEDGE 0x12 [AETH ATOMIC_ACK_ETH],
    COMPARE_SWAP 0x13 [ATOMIC_ETH],
    FETCH_ADD 0x14 [ATOMIC_ETH],
    SEND_LAST_INV 0x16 [IETH PAYLOAD],
    SEND_ONLY_INV 0x17 [IETH PAYLOAD],
    UD_SEND_ONLY 0x64 [DETH PAYLOAD],
    UD_SEND_ONLY_IMM 0x65 [DETH IMM PAYLOAD],
}

impl Opcode {
    /// Of the UD transport.
    pub const fn is_datagram(self) -> bool {
        self.0 >> 5 == 3
    }

    /// Goes to the requester: READ responses and acknowledgements.
    pub const fn is_response(self) -> bool {
        matches!(self.0, 0x0d..=0x12)
    }

    /// First packet of a message of several.
    pub const fn is_first(self) -> bool {
        matches!(self, Self::SEND_FIRST | Self::WRITE_FIRST | Self::READ_RESPONSE_FIRST)
    }

    /// A packet between first and last.
    pub const fn is_middle(self) -> bool {
        matches!(self, Self::SEND_MIDDLE | Self::WRITE_MIDDLE | Self::READ_RESPONSE_MIDDLE)
    }

    /// Last packet of a message of several.
    pub const fn is_last(self) -> bool {
        matches!(
            self,
            Self::SEND_LAST
                | Self::SEND_LAST_IMM
                | Self::SEND_LAST_INV
                | Self::WRITE_LAST
                | Self::WRITE_LAST_IMM
                | Self::READ_RESPONSE_LAST
        )
    }

    /// Part of a SEND.
    pub const fn is_send(self) -> bool {
        matches!(self.0, 0x00..=0x05 | 0x16 | 0x17)
    }

    /// Part of an RDMA WRITE.
    pub const fn is_write(self) -> bool {
        matches!(self.0, 0x06..=0x0b)
    }

    /// Part of a READ response.
    pub const fn is_read_response(self) -> bool {
        matches!(self.0, 0x0d..=0x10)
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(0x{:02x})", self.name(), self.0)
    }
}
