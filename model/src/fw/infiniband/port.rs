//! What subnet management knows of a port: PortInfo and the tables beside it.
#![forbid(unsafe_code)]

use super::smp::ATTRIBUTE_BYTES;
use crate::fw::reg::NODE_DESCRIPTION;

/// States of the link (`PortInfo:PortState`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum LinkState {
    /// No link.
    Down = 1,
    /// A link, and no subnet manager has been here yet.
    Initialize = 2,
    /// Configured; only management may pass.
    Armed = 3,
    /// Everything may pass.
    Active = 4,
}

/// GUIDs of a port.
pub(super) const N_GUIDS: usize = 8;
/// Partition keys of a port.
pub(super) const N_PKEYS: usize = 128;
/// `PortInfo:CapabilityMask`: the bits that a device decides, and those that software does.
const CAPABILITIES: u32 = SL_MAPPING | SYSTEM_IMAGE_GUID | EXTENDED_SPEEDS | CLIENT_REREGISTRATION;
const SL_MAPPING: u32 = 1 << 6;
const SYSTEM_IMAGE_GUID: u32 = 1 << 11;
const EXTENDED_SPEEDS: u32 = 1 << 14;
const CLIENT_REREGISTRATION: u32 = 1 << 25;

/// Where fields of PortInfo lie, in bytes.
mod at {
    pub(super) const M_KEY: usize = 0;
    pub(super) const GID_PREFIX: usize = 8;
    pub(super) const LID: usize = 16;
    pub(super) const SM_LID: usize = 18;
    pub(super) const CAPABILITY_MASK: usize = 20;
    pub(super) const M_KEY_LEASE: usize = 26;
    pub(super) const LOCAL_PORT: usize = 28;
    pub(super) const WIDTHS: usize = 29;
    pub(super) const SPEED_AND_STATE: usize = 32;
    pub(super) const PHYSICAL: usize = 33;
    pub(super) const M_KEY_BITS_AND_LMC: usize = 34;
    pub(super) const SPEEDS: usize = 35;
    pub(super) const MTU_AND_SM_SL: usize = 36;
    pub(super) const VL_CAP: usize = 37;
    pub(super) const VL_HIGH_LIMIT: usize = 38;
    pub(super) const VL_ARBITRATION_CAPS: usize = 39;
    pub(super) const MTU_CAP: usize = 41;
    pub(super) const LIFETIMES: usize = 42;
    pub(super) const OPERATIONAL_VLS: usize = 43;
    pub(super) const VIOLATIONS: usize = 44;
    pub(super) const GUID_CAP: usize = 50;
    pub(super) const REREGISTER_AND_TIMEOUT: usize = 51;
    pub(super) const RESPONSE_TIME: usize = 52;
    pub(super) const ERROR_THRESHOLDS: usize = 53;
    pub(super) const EXTENDED_SPEED: usize = 62;
    pub(super) const EXTENDED_SPEED_ENABLED: usize = 63;
}

/// 4 lanes; and all that EDR has: 1 and 4.
const WIDTH_4X: u8 = 2;
const WIDTHS_1X_4X: u8 = 3;
/// SDR, DDR and QDR; QDR is active before an extended speed is.
const SPEEDS_TO_QDR: u8 = 7;
const SPEED_QDR: u8 = 4;
/// FDR and EDR.
const EXTENDED_SPEEDS_TO_EDR: u8 = 3;
const EXTENDED_SPEED_EDR: u8 = 2;
/// `PortPhysicalState`: polling, or up.
const POLLING: u8 = 2;
const LINK_UP: u8 = 5;
/// `VLCap`: VL 0 to 3, 8 entries of arbitration each.
const VL_0_TO_3: u8 = 3;
const ARBITRATION_ENTRIES: u8 = 8;

/// A port of InfiniBand.
#[derive(Debug, Clone)]
pub(crate) struct IbPort {
    info: [u8; ATTRIBUTE_BYTES],
    state: LinkState,
    pub(super) guids: [u64; N_GUIDS],
    pub(in crate::fw) pkeys: [u16; N_PKEYS],
    pub(super) sl_to_vl: [u8; 8],
    pub(super) vl_arbitration: [[u8; ATTRIBUTE_BYTES]; 4],
    pub(super) node_description: [u8; ATTRIBUTE_BYTES],
}

/// What a Set(PortInfo) changed that software is told of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(super) lid: bool,
    pub(super) state: bool,
    pub(super) reregister: bool,
    pub(super) pkeys: bool,
    pub(super) guids: bool,
}

impl IbPort {
    pub(crate) fn new(guid: u64, log_mtu: u8) -> Self {
        let mut info = [0; ATTRIBUTE_BYTES];
        info[at::GID_PREFIX..at::LID].copy_from_slice(&[0xfe, 0x80, 0, 0, 0, 0, 0, 0]);
        info[at::CAPABILITY_MASK..][..4].copy_from_slice(&CAPABILITIES.to_be_bytes());
        info[at::LOCAL_PORT] = 1;
        info[at::WIDTHS..][..3].copy_from_slice(&[WIDTHS_1X_4X, WIDTHS_1X_4X, WIDTH_4X]);
        info[at::SPEED_AND_STATE] = SPEEDS_TO_QDR << 4;
        info[at::SPEEDS] = SPEED_QDR << 4 | SPEEDS_TO_QDR;
        info[at::MTU_AND_SM_SL] = log_mtu << 4;
        info[at::VL_CAP] = VL_0_TO_3 << 4;
        info[at::VL_ARBITRATION_CAPS..][..2].fill(ARBITRATION_ENTRIES);
        info[at::MTU_CAP] = log_mtu;
        info[at::OPERATIONAL_VLS] = VL_0_TO_3 << 4;
        info[at::GUID_CAP] = N_GUIDS as u8;
        info[at::RESPONSE_TIME] = 16;
        info[at::ERROR_THRESHOLDS] = 0x88;
        info[at::EXTENDED_SPEED] = EXTENDED_SPEED_EDR << 4 | EXTENDED_SPEEDS_TO_EDR;
        info[at::EXTENDED_SPEED_ENABLED] = EXTENDED_SPEEDS_TO_EDR;
        let mut guids = [0; N_GUIDS];
        guids[0] = guid;
        let mut node_description = [0; ATTRIBUTE_BYTES];
        node_description[..NODE_DESCRIPTION.len()].copy_from_slice(NODE_DESCRIPTION);
        let mut pkeys = [0; N_PKEYS];
        pkeys[0] = 0xffff;
        Self {
            info,
            state: LinkState::Down,
            guids,
            pkeys,
            sl_to_vl: [0; 8],
            vl_arbitration: [[0; ATTRIBUTE_BYTES]; 4],
            node_description,
        }
    }

    fn u16_at(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.info[at], self.info[at + 1]])
    }

    pub(crate) fn state(&self) -> LinkState {
        self.state
    }

    /// LID of the port; 0 before a subnet manager gave one.
    pub(crate) fn lid(&self) -> u16 {
        self.u16_at(at::LID)
    }

    pub(crate) fn sm_lid(&self) -> u16 {
        self.u16_at(at::SM_LID)
    }

    /// `2^lmc` LIDs from [`lid`](Self::lid) on are this port's.
    pub(crate) fn lmc(&self) -> u8 {
        self.info[at::M_KEY_BITS_AND_LMC] & 7
    }

    pub(crate) fn has_lid(&self, lid: u16) -> bool {
        lid != 0 && lid >> self.lmc() == self.lid() >> self.lmc()
    }

    pub(crate) fn subnet_timeout(&self) -> u8 {
        self.info[at::REREGISTER_AND_TIMEOUT] & 0x1f
    }

    pub(crate) fn sm_sl(&self) -> u8 {
        self.info[at::MTU_AND_SM_SL] & 0xf
    }

    pub(crate) fn capability_mask(&self) -> u32 {
        u32::from(self.u16_at(at::CAPABILITY_MASK)) << 16 | u32::from(self.u16_at(at::CAPABILITY_MASK + 2))
    }

    /// Sets what software says of itself (`PCAP`): that it is a subnet manager, or has a connection manager.
    pub(crate) fn set_capability_mask(&mut self, mask: u32) {
        self.info[at::CAPABILITY_MASK..][..4].copy_from_slice(&(mask | CAPABILITIES).to_be_bytes());
    }

    pub(crate) fn set_node_description(&mut self, description: [u8; ATTRIBUTE_BYTES]) {
        self.node_description = description;
    }

    /// The GID at an index, if there is one.
    pub(crate) fn gid(&self, index: usize) -> Option<[u8; 16]> {
        let guid = self.guids.get(index).copied().filter(|guid| *guid != 0)?;
        let mut gid = [0; 16];
        gid[..8].copy_from_slice(&self.info[at::GID_PREFIX..at::LID]);
        gid[8..].copy_from_slice(&guid.to_be_bytes());
        Some(gid)
    }

    /// The GID table; entries without a GUID are zero.
    pub(crate) fn gids(&self) -> Vec<[u8; 16]> {
        (0..N_GUIDS).map(|index| self.gid(index).unwrap_or_default()).collect()
    }

    /// The link came up or went down; true if that is new.
    pub(crate) fn set_link(&mut self, up: bool) -> bool {
        let before = self.state;
        self.state = match (up, before) {
            (false, _) => LinkState::Down,
            (true, LinkState::Down) => LinkState::Initialize,
            (true, state) => state,
        };
        before != self.state
    }

    /// PortInfo as it is read.
    pub(super) fn info(&self) -> [u8; ATTRIBUTE_BYTES] {
        let mut info = self.info;
        let up = self.state != LinkState::Down;
        info[at::SPEED_AND_STATE] |= self.state as u8;
        info[at::PHYSICAL] = (if up { LINK_UP } else { POLLING }) << 4 | POLLING;
        info
    }

    /// Takes a Set(PortInfo): the fields that a subnet manager decides. 0 or "no change" leaves what is.
    pub(super) fn set_info(&mut self, new: &[u8; ATTRIBUTE_BYTES]) -> Result<Changes, u16> {
        use super::smp::BAD_VALUE;
        let new_u16 = |at: usize| u16::from_be_bytes([new[at], new[at + 1]]);
        let (lid, lmc) = (new_u16(at::LID), new[at::M_KEY_BITS_AND_LMC] & 7);
        let mtu = new[at::MTU_AND_SM_SL] >> 4;
        if lid >= 0xc000 || mtu > self.info[at::MTU_CAP] {
            return Err(BAD_VALUE);
        }
        let next = match (new[at::SPEED_AND_STATE] & 0xf, self.state) {
            (0, state) => state,
            (1, LinkState::Down) => LinkState::Down,
            (1, _) => LinkState::Initialize,
            (3, LinkState::Initialize | LinkState::Armed) => LinkState::Armed,
            (4, LinkState::Armed | LinkState::Active) => LinkState::Active,
            _ => return Err(BAD_VALUE),
        };
        let mut changes = Changes {
            lid: (lid, new_u16(at::SM_LID), lmc) != (self.lid(), self.sm_lid(), self.lmc()),
            state: next != self.state,
            reregister: new[at::REREGISTER_AND_TIMEOUT] & 0x80 != 0,
            ..Changes::default()
        };
        changes.guids = new[at::GID_PREFIX..at::LID] != self.info[at::GID_PREFIX..at::LID];
        self.state = next;
        self.info[at::M_KEY..at::CAPABILITY_MASK].copy_from_slice(&new[..at::CAPABILITY_MASK]);
        for (at, mask) in [
            (at::M_KEY_LEASE, 0xff),
            (at::M_KEY_LEASE + 1, 0xff),
            (at::M_KEY_BITS_AND_LMC, 0xc7),
            (at::MTU_AND_SM_SL, 0x0f),
            (at::VL_HIGH_LIMIT, 0xff),
            (at::LIFETIMES, 0xff),
            (at::VIOLATIONS, 0xff),
            (at::VIOLATIONS + 1, 0xff),
            (at::VIOLATIONS + 2, 0xff),
            (at::VIOLATIONS + 3, 0xff),
            (at::VIOLATIONS + 4, 0xff),
            (at::VIOLATIONS + 5, 0xff),
            (at::REREGISTER_AND_TIMEOUT, 0x1f),
            (at::ERROR_THRESHOLDS, 0xff),
        ] {
            self.info[at] = self.info[at] & !mask | new[at] & mask;
        }
        if mtu != 0 {
            self.info[at::MTU_AND_SM_SL] = mtu << 4 | new[at::MTU_AND_SM_SL] & 0x0f;
        }
        if new[at::OPERATIONAL_VLS] >> 4 != 0 {
            self.info[at::OPERATIONAL_VLS] = new[at::OPERATIONAL_VLS];
        }
        Ok(changes)
    }

    /// What a subnet manager of the card's own does when the link comes up: `lid` for the port, and everything
    /// may pass. Ports with `sm=on` need no other.
    pub(crate) fn configure(&mut self, lid: u16, sm_lid: u16) {
        self.info[at::LID..][..2].copy_from_slice(&lid.to_be_bytes());
        self.info[at::SM_LID..][..2].copy_from_slice(&sm_lid.to_be_bytes());
        self.info[at::REREGISTER_AND_TIMEOUT] = 18;
        self.state = LinkState::Active;
    }
}
