//! The context of a DC target: who may connect, and what for.

use super::qpc::{AtomicMode, Mtu, ScatterToCqe};
use crate::mlx5::{
    ids::{Cqn, Pdn, UserIndex},
    layout::{layout, wire_enum},
};

layout! {
    /// DC target context (PRM `dctc`), the body of CREATE_DCT and QUERY_DCT.
    pub struct Dctc, 64, "dctc" {
        0x00 [27:24] state: DctState,
        /// Asks that payload reaches memory in order.
        0x00 [2:2] data_in_order: bool,
        /// Comes back in CQEs under `cqe_version` 1.
        0x04 [23:0] user_index: UserIndex,
        /// Where receives complete.
        0x08 [23:0] cqn: Cqn,
        /// Q counter that counts this DCT.
        0x0c [31:24] counter_set_id: u8,
        0x0c [23:20] atomic_mode: AtomicMode,
        /// Remote reads are allowed.
        0x0c [19:19] rre: bool,
        /// Remote writes are allowed.
        0x0c [18:18] rwe: bool,
        /// Remote atomics are allowed.
        0x0c [17:17] rae: bool,
        0x0c [16:16] atomic_like_write_en: bool,
        /// Scheduled before others.
        0x0c [15:15] latency_sensitive: bool,
        /// The DCT may use the reserved lkey.
        0x0c [14:14] rlky: bool,
        /// Its packets may take any path (adaptive routing).
        0x0c [13:13] free_ar: bool,
        /// Small received messages land in the CQE.
        0x10 [23:16] cs_res: ScatterToCqe,
        /// Code of the RNR timer that it asks for.
        0x10 [12:8] min_rnr_nak: u8,
        /// Shared receive queue, which a DCT always has.
        0x14 [23:0] srqn_xrqn: u32,
        0x18 [23:0] pd: Pdn,
        0x1c [31:24] tclass: u8,
        0x1c [19:0] flow_label: u32,
        /// What initiators must know.
        0x20 [63:0] dc_access_key: u64,
        0x28 [26:24] mtu: Mtu,
        /// Port, counted from 1.
        0x28 [23:16] port: u8,
        0x28 [15:0] pkey_index: u16,
        /// Own GID index.
        0x2c [23:16] my_addr_index: u8,
        0x2c [7:0] hop_limit: u8,
        /// Requests that came with another key.
        0x30 [31:0] dc_access_key_violation_count: u32,
        /// DEI bit of the VLAN tag.
        0x34 [11:11] dei_cfi: bool,
        /// Priority of the VLAN tag.
        0x34 [10:8] eth_prio: u8,
        0x34 [7:6] ecn: u8,
        0x34 [5:0] dscp: u8,
        0x3c [31:0] ece: u32,
    }
}

wire_enum! {
    /// State of a DCT (`dctc.state`).
    pub struct DctState(u8), "dctc_state" {
        ACTIVE = 0,
        /// No longer takes connections.
        DRAINING = 1,
        /// Has none left, and may be destroyed.
        DRAINED = 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mlx5::layout::painted;

    #[test]
    fn golden_bytes() {
        let dctc = Dctc::from_bytes([0xa5; 64]);
        assert_eq!(dctc.with_state(DctState::DRAINED).to_bytes(), painted(&[(0, &[0xa2])]));
        assert_eq!(dctc.with_cqn(Cqn::new(0x12_3456)).to_bytes(), painted(&[(9, &[0x12, 0x34, 0x56])]));
        // atomic_mode 0011, rre 1, rwe 0, rae 1, then 1 of the background.
        let rights =
            dctc.with_atomic_mode(AtomicMode::UP_TO_8B).with_rre(true).with_rwe(false).with_rae(true);
        assert_eq!(rights.to_bytes(), painted(&[(13, &[0x3b])]));
        assert_eq!(dctc.with_min_rnr_nak(12).to_bytes(), painted(&[(18, &[0xac])]));
        assert_eq!(dctc.with_dc_access_key(1).to_bytes(), painted(&[(32, &[0, 0, 0, 0, 0, 0, 0, 1])]));
        assert_eq!(dctc.with_mtu(Mtu::MTU_1024).with_port(1).to_bytes(), painted(&[(40, &[0xa3, 1])]));
        assert_eq!(dctc.with_my_addr_index(3).to_bytes(), painted(&[(45, &[3])]));
    }
}
