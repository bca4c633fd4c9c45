//! The address vector of a connected QP: how its packets reach the peer.

use crate::mlx5::layout::layout;

layout! {
    /// Address path of a QP (PRM `ads`): InfiniBand LIDs or RoCE addresses.
    pub struct Ads, 44, "ads" {
        /// Force loopback.
        0x00 [31:31] fl: bool,
        /// Packets of the QP may take any path (adaptive routing).
        0x00 [30:30] free_ar: bool,
        0x00 [15:0] pkey_index: u16,
        /// A GRH is present (InfiniBand; RoCE always has one).
        0x04 [23:23] grh: bool,
        /// InfiniBand: low bits of the source LID, under the LMC.
        0x04 [22:16] mlid: u8,
        /// InfiniBand: the peer's LID.
        0x04 [15:0] rlid: u16,
        /// Retransmission timer: 4.096 µs × 2ⁿ; 0 waits for ever.
        0x08 [31:27] ack_timeout: u8,
        /// Own GID index; on RoCE an index of the RoCE address table.
        0x08 [23:16] src_addr_index: u8,
        /// Static rate limit, `ads_stat_rate`; 0 is none.
        0x08 [11:8] stat_rate: u8,
        /// TTL of IPv4, hop limit of IPv6 and GRH.
        0x08 [7:0] hop_limit: u8,
        /// Traffic class of the GRH; on RoCE v2 the DSCP and ECN bits come from [`dscp`](Self::dscp) and [`ecn`](Self::ecn).
        0x0c [27:20] tclass: u8,
        0x0c [19:0] flow_label: u32,
        /// The peer's GID; IPv4 as the mapped address ::ffff:a.b.c.d.
        0x10 [bytes] rgid_rip: [u8; 16],
        /// Force [`dscp`](Self::dscp).
        0x20 [27:27] f_dscp: bool,
        /// Force [`ecn`](Self::ecn).
        0x20 [26:26] f_ecn: bool,
        /// Force [`eth_prio`](Self::eth_prio).
        0x20 [24:24] f_eth_prio: bool,
        0x20 [23:22] ecn: u8,
        0x20 [21:16] dscp: u8,
        /// RoCE v2: source port of UDP, the flow's entropy.
        0x20 [15:0] udp_sport: u16,
        /// DEI bit of the VLAN tag.
        0x24 [31:31] dei_cfi: bool,
        /// Priority of the VLAN tag.
        0x24 [30:28] eth_prio: u8,
        /// InfiniBand service level.
        0x24 [27:24] sl: u8,
        /// Port, counted from 1.
        0x24 [23:16] vhca_port_num: u8,
        /// The peer's MAC, first two bytes.
        0x24 [15:0] rmac_47_32: u16,
        /// The peer's MAC, last four bytes.
        0x28 [31:0] rmac_31_0: u32,
    }
}

impl Ads {
    /// The peer's MAC.
    #[inline]
    pub fn rmac(&self) -> [u8; 6] {
        crate::mlx5::mac_from(self.rmac_47_32(), self.rmac_31_0())
    }

    /// With the peer's MAC set.
    #[inline]
    #[must_use]
    pub fn with_rmac(self, mac: [u8; 6]) -> Self {
        let (high, low) = crate::mlx5::mac_halves(mac);
        self.with_rmac_47_32(high).with_rmac_31_0(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mlx5::layout::painted;

    #[test]
    fn golden_bytes() {
        let ads = Ads::from_bytes([0xa5; 44]);
        assert_eq!(ads.with_grh(false).to_bytes(), painted(&[(5, &[0x25])]));
        assert_eq!(ads.with_ack_timeout(14).to_bytes(), painted(&[(8, &[0x75])]));
        assert_eq!(ads.with_src_addr_index(3).with_hop_limit(64).to_bytes(), painted(&[(9, &[3, 0xa5, 64])]));
        // tclass straddles bytes: 4 bits each in bytes 12 and 13.
        assert_eq!(ads.with_tclass(0x68).to_bytes(), painted(&[(12, &[0xa6, 0x85])]));
        assert_eq!(ads.with_udp_sport(0xc123).to_bytes(), painted(&[(0x22, &[0xc1, 0x23])]));
        assert_eq!(ads.with_rmac([1, 2, 3, 4, 5, 6]).to_bytes(), painted(&[(0x26, &[1, 2, 3, 4, 5, 6])]));
        assert_eq!(ads.with_rmac([1, 2, 3, 4, 5, 6]).rmac(), [1, 2, 3, 4, 5, 6]);
    }
}
