//! Subnet management packets as bytes (InfiniBand specification 13.4 and 14.2).
#![forbid(unsafe_code)]

/// Bytes of a management datagram.
pub(super) const MAD_BYTES: usize = 256;
/// Bytes of an attribute of subnet management.
pub(super) const ATTRIBUTE_BYTES: usize = 64;

/// Classes of subnet management: routed by LID, and by a list of ports.
const CLASS_LID_ROUTED: u8 = 0x01;
const CLASS_DIRECTED_ROUTE: u8 = 0x81;
/// `MADHeader:R`: a response.
const RESPONSE: u8 = 0x80;
/// `SMP:D`: on its way back.
const RETURNING: u16 = 0x8000;
/// A LID that every port accepts.
pub(super) const PERMISSIVE_LID: u16 = 0xffff;

/// Methods.
const GET: u8 = 0x01;
pub(super) const SET: u8 = 0x02;
const TRAP_REPRESS: u8 = 0x07;

/// Status: this method and attribute are not supported.
pub(super) const UNSUPPORTED: u16 = 3 << 2;
/// Status: a field of the attribute, or its modifier, has a value that cannot be.
pub(super) const BAD_VALUE: u16 = 7 << 2;

/// Attributes.
pub(super) const NODE_DESCRIPTION: u16 = 0x10;
pub(super) const NODE_INFO: u16 = 0x11;
pub(super) const GUID_INFO: u16 = 0x14;
pub(super) const PORT_INFO: u16 = 0x15;
pub(super) const PKEY_TABLE: u16 = 0x16;
pub(super) const SL_TO_VL_TABLE: u16 = 0x17;
pub(super) const VL_ARBITRATION_TABLE: u16 = 0x18;
const SM_INFO: u16 = 0x20;
/// Mellanox's own: whether FDR10 is supported, enabled and active.
pub(super) const EXTENDED_PORT_INFO: u16 = 0xff90;

/// A management datagram. Only those of subnet management are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Smp(pub(super) [u8; MAD_BYTES]);

impl Smp {
    const CLASS: usize = 1;
    const METHOD: usize = 3;
    const STATUS: usize = 4;
    const HOP_POINTER: usize = 6;
    const HOP_COUNT: usize = 7;
    const ATTRIBUTE_ID: usize = 16;
    const MODIFIER: usize = 20;
    const DIRECTED_SOURCE: usize = 32;
    const DIRECTED_DESTINATION: usize = 34;
    const ATTRIBUTE: usize = 64;
    const RETURN_PATH: usize = 192;

    fn u16_at(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    pub(super) fn directed(&self) -> bool {
        self.0[Self::CLASS] == CLASS_DIRECTED_ROUTE
    }

    pub(super) fn method(&self) -> u8 {
        self.0[Self::METHOD]
    }

    pub(super) fn attribute_id(&self) -> u16 {
        self.u16_at(Self::ATTRIBUTE_ID)
    }

    pub(super) fn modifier(&self) -> u32 {
        u32::from(self.u16_at(Self::MODIFIER)) << 16 | u32::from(self.u16_at(Self::MODIFIER + 2))
    }

    pub(super) fn attribute(&self) -> &[u8; ATTRIBUTE_BYTES] {
        let bytes = &self.0[Self::ATTRIBUTE..Self::ATTRIBUTE + ATTRIBUTE_BYTES];
        bytes.try_into().unwrap_or(&[0; ATTRIBUTE_BYTES])
    }

    /// Whether the port's agent answers it: what is asked of a subnet manager, and answers, are software's.
    pub(super) fn is_for_the_agent(&self) -> bool {
        matches!(self.0[Self::CLASS], CLASS_LID_ROUTED | CLASS_DIRECTED_ROUTE)
            && matches!(self.method(), GET | SET | TRAP_REPRESS)
            && self.attribute_id() != SM_INFO
    }

    /// Whether the sender wants an answer.
    pub(super) fn is_answered(&self) -> bool {
        self.method() != TRAP_REPRESS
    }

    /// The answer to this request.
    pub(super) fn answer(&self, result: Result<[u8; ATTRIBUTE_BYTES], u16>) -> Self {
        let mut answer = *self;
        answer.0[Self::METHOD] = GET | RESPONSE;
        let status = result.err().unwrap_or(0);
        answer.0[Self::STATUS..Self::STATUS + 2].copy_from_slice(&status.to_be_bytes());
        if let Ok(attribute) = result {
            answer.0[Self::ATTRIBUTE..Self::ATTRIBUTE + ATTRIBUTE_BYTES].copy_from_slice(&attribute);
        }
        answer
    }

    /// The LID that an answer to this request, which came from `source_lid`, goes to.
    pub(super) fn answer_lid(&self, source_lid: u16) -> u16 {
        match (self.directed(), self.u16_at(Self::DIRECTED_SOURCE)) {
            (true, PERMISSIVE_LID) => PERMISSIVE_LID,
            (true, lid) => lid,
            (false, _) => source_lid,
        }
    }

    /// Whether a directed packet that came over the wire ends here: this port is the last of its route.
    pub(super) fn ends_here(&self) -> bool {
        let (pointer, count) = (self.0[Self::HOP_POINTER], self.0[Self::HOP_COUNT]);
        pointer == count && count < 64 && self.u16_at(Self::DIRECTED_DESTINATION) == PERMISSIVE_LID
    }

    /// Makes an answer to a directed packet that ended here one that goes back: the port it came in by is noted
    /// in the return path. Arrival moved the hop pointer on by one, and departure moves it back.
    pub(super) fn turn_back(&mut self, port: u8) {
        let hop = usize::from(self.0[Self::HOP_COUNT]);
        self.0[Self::RETURN_PATH + hop] = port;
        let status = self.u16_at(Self::STATUS) | RETURNING;
        self.0[Self::STATUS..Self::STATUS + 2].copy_from_slice(&status.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(class: u8, attribute_id: u16) -> Smp {
        let mut bytes = [0; MAD_BYTES];
        bytes[0] = 1;
        (bytes[Smp::CLASS], bytes[Smp::METHOD]) = (class, GET);
        bytes[Smp::ATTRIBUTE_ID..][..2].copy_from_slice(&attribute_id.to_be_bytes());
        Smp(bytes)
    }

    #[test]
    fn what_the_agent_answers() {
        assert!(request(CLASS_LID_ROUTED, PORT_INFO).is_for_the_agent());
        assert!(request(CLASS_DIRECTED_ROUTE, NODE_INFO).is_for_the_agent());
        assert!(!request(CLASS_LID_ROUTED, SM_INFO).is_for_the_agent(), "a subnet manager's own");
        assert!(!request(0x03, PORT_INFO).is_for_the_agent(), "subnet administration");
        let answer = request(CLASS_LID_ROUTED, PORT_INFO).answer(Ok([7; ATTRIBUTE_BYTES]));
        assert!(!answer.is_for_the_agent() && *answer.attribute() == [7; ATTRIBUTE_BYTES]);
        assert_eq!(request(CLASS_LID_ROUTED, 0x99).answer(Err(UNSUPPORTED)).0[4..6], [0, 12]);
    }

    #[test]
    fn a_directed_packet_turns_back_where_its_route_ends() {
        let mut smp = request(CLASS_DIRECTED_ROUTE, NODE_INFO);
        smp.0[Smp::DIRECTED_SOURCE..][..4].fill(0xff);
        (smp.0[Smp::HOP_POINTER], smp.0[Smp::HOP_COUNT]) = (1, 1);
        assert!(smp.ends_here());
        let mut answer = smp.answer(Ok([0; ATTRIBUTE_BYTES]));
        answer.turn_back(1);
        assert_eq!((answer.0[Smp::RETURN_PATH + 1], &answer.0[4..8]), (1, &[0x80, 0, 1, 1][..]));
        assert_eq!(smp.answer_lid(5), PERMISSIVE_LID);
        smp.0[Smp::HOP_COUNT] = 2;
        assert!(!smp.ends_here(), "a channel adapter forwards nothing");
        assert_eq!(request(CLASS_LID_ROUTED, NODE_INFO).answer_lid(5), 5);
    }
}
