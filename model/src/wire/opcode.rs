//! BTH opcodes: of RC, UC, XRC, UD and DC.
//!
//! What DC has on the wire is not public. Here it is a form of the model's own, for models among themselves: RC's operations under
//! a number that the InfiniBand specification leaves to manufacturers, and in front of each request's other headers a
//! [`DcEth`](super::DcEth). Responses are RC's.
//!
//! Nor is it public how cards ask for atomics under masks. Here these are two operations that the specification reserves, with a
//! [`MaskEth`](super::MaskEth) behind the operands.

use core::fmt;

/// Which extension headers an opcode has, as a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extensions(u16);

impl Extensions {
    pub(super) const RETH: u16 = 1;
    pub(super) const ATOMIC_ETH: u16 = 2;
    pub(super) const AETH: u16 = 4;
    pub(super) const ATOMIC_ACK_ETH: u16 = 8;
    pub(super) const IMM: u16 = 16;
    pub(super) const IETH: u16 = 32;
    pub(super) const PAYLOAD: u16 = 64;
    pub(super) const DETH: u16 = 128;
    pub(super) const XRC_ETH: u16 = 256;
    pub(super) const DC_ETH: u16 = 512;
    pub(super) const MASK_ETH: u16 = 1024;
    pub(super) const NONE: Self = Self(0);

    pub(super) const fn has(self, header: u16) -> bool {
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
        if self.has(Self::MASK_ETH) {
            len += 20;
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
        if self.has(Self::XRC_ETH) {
            len += 4;
        }
        if self.has(Self::DC_ETH) {
            len += 20;
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

/// Transport services, by their number in `BTH.OpCode[7:5]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Transport {
    /// Reliable connection.
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Unreliable datagram.
    Ud = 3,
    /// Extended reliable connection.
    Xrc = 5,
    /// Dynamically connected, in the model's own form.
    Dc = 6,
}

/// `BTH.OpCode`: [`Transport`] in `[7:5]`, operation in `[4:0]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opcode(pub u8);

macro_rules! opcodes {
    ($($name:ident $value:literal [$($ext:ident)*]),* $(,)?) => {
        impl Opcode {
            $(#[doc = concat!("`", stringify!($name), "`; of RC without a prefix.")] pub const $name: Self = Self($value);)*

            /// Name of the operation as in the InfiniBand specification; a transport but UD is not named.
            pub const fn name(self) -> &'static str {
                match self.operation() { $(Self::$name => stringify!($name),)* _ => "reserved" }
            }

            /// Headers of an opcode as it is listed.
            const fn listed(self) -> Option<Extensions> {
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
    MASKED_COMPARE_SWAP 0x1e [ATOMIC_ETH MASK_ETH],
    MASKED_FETCH_ADD 0x1f [ATOMIC_ETH MASK_ETH],
    SEND_LAST_INV 0x16 [IETH PAYLOAD],
    SEND_ONLY_INV 0x17 [IETH PAYLOAD],
    UD_SEND_ONLY 0x64 [DETH PAYLOAD],
    UD_SEND_ONLY_IMM 0x65 [DETH IMM PAYLOAD],
}

impl Opcode {
    /// Its transport, if that is one of the five.
    pub const fn transport(self) -> Option<Transport> {
        match self.0 >> 5 {
            0 => Some(Transport::Rc),
            1 => Some(Transport::Uc),
            3 => Some(Transport::Ud),
            5 => Some(Transport::Xrc),
            6 => Some(Transport::Dc),
            _ => None,
        }
    }

    /// The same operation of another transport.
    #[must_use]
    pub const fn on(self, transport: Transport) -> Self {
        Self((transport as u8) << 5 | self.0 & 0x1f)
    }

    /// The operation by the name that it has here: UC, XRC and DC number theirs as RC does.
    #[must_use]
    pub const fn operation(self) -> Self {
        match self.transport() {
            Some(Transport::Uc | Transport::Xrc | Transport::Dc) => self.on(Transport::Rc),
            _ => self,
        }
    }

    /// Bytes of the extension headers behind the BTH.
    pub(crate) fn extension_bytes(self) -> usize {
        self.extensions().map_or(0, Extensions::len_bytes)
    }

    /// Headers that follow the BTH; `None` for what is no opcode of its transport.
    pub(super) const fn extensions(self) -> Option<Extensions> {
        let Some(Extensions(headers)) = self.operation().listed() else { return None };
        match self.transport() {
            Some(Transport::Uc) if self.operation().0 > Self::WRITE_ONLY_IMM.0 => None,
            // Requests name the shared receive queue, before all else; responses go back to the one QP.
            Some(Transport::Xrc) if !self.is_response() => Some(Extensions(headers | Extensions::XRC_ETH)),
            Some(Transport::Dc) if !self.is_response() => Some(Extensions(headers | Extensions::DC_ETH)),
            _ => Some(Extensions(headers)),
        }
    }

    /// Goes to the requester: READ responses and acknowledgements.
    pub const fn is_response(self) -> bool {
        matches!(self.operation().0, 0x0d..=0x12)
    }

    /// First packet of a message of several.
    pub const fn is_first(self) -> bool {
        matches!(self.operation(), Self::SEND_FIRST | Self::WRITE_FIRST | Self::READ_RESPONSE_FIRST)
    }

    /// A packet between first and last.
    pub const fn is_middle(self) -> bool {
        matches!(self.operation(), Self::SEND_MIDDLE | Self::WRITE_MIDDLE | Self::READ_RESPONSE_MIDDLE)
    }

    /// Last packet of a message of several.
    pub const fn is_last(self) -> bool {
        matches!(
            self.operation(),
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
        matches!(self.operation().0, 0x00..=0x05 | 0x16 | 0x17)
    }

    /// Part of an RDMA WRITE.
    pub const fn is_write(self) -> bool {
        matches!(self.operation().0, 0x06..=0x0b)
    }

    /// Part of a READ response.
    pub const fn is_read_response(self) -> bool {
        matches!(self.operation().0, 0x0d..=0x10)
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.transport() {
            Some(Transport::Uc) => f.write_str("UC_")?,
            Some(Transport::Xrc) => f.write_str("XRC_")?,
            Some(Transport::Dc) => f.write_str("DC_")?,
            _ => {}
        }
        write!(f, "{}(0x{:02x})", self.name(), self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_share_operations() {
        let xrc = Opcode::WRITE_ONLY_IMM.on(Transport::Xrc);
        assert_eq!((xrc.0, xrc.operation()), (0xab, Opcode::WRITE_ONLY_IMM));
        assert_eq!(format!("{xrc:?}"), "XRC_WRITE_ONLY_IMM(0xab)");
        assert!(xrc.is_write() && !xrc.is_send() && !xrc.is_response());
        let length = |opcode: Opcode| opcode.extensions().map(Extensions::len_bytes);
        assert_eq!((length(xrc), length(Opcode(0x2b)), length(Opcode(0x0b))), (Some(24), Some(20), Some(20)));
        let dc = Opcode::WRITE_ONLY_IMM.on(Transport::Dc);
        assert_eq!((length(dc), length(Opcode::ACKNOWLEDGE.on(Transport::Dc))), (Some(40), Some(4)));
        // Responses name no shared receive queue; UC has no READ, no acknowledgement and no invalidation.
        assert_eq!(length(Opcode::ACKNOWLEDGE.on(Transport::Xrc)), Some(4));
        for operation in [Opcode::READ_REQUEST, Opcode::ACKNOWLEDGE, Opcode::SEND_ONLY_INV] {
            assert_eq!(length(operation.on(Transport::Uc)), None, "{operation:?}");
        }
        assert_eq!(Opcode::SEND_ONLY.on(Transport::Ud), Opcode::UD_SEND_ONLY);
        assert_eq!(
            (Opcode(0x44).transport(), length(Opcode(0x44)), length(Opcode(0x66))),
            (None, None, None)
        );
    }
}
