//! Where datagrams go: libmlx5's address handles, and ours of the same parts.

use crate::{
    random::Random,
    rival::{device::Device, ffi::*},
};
use mlx5_direct::{mlx5::ids::Qpn, queue::AddressHandle, wqe::AvSeg};
use std::{ffi::c_void, ptr::NonNull};

/// A way to a port, and who is behind it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct To {
    theirs: NonNull<c_void>,
    av: AvSeg,
    pub(crate) remote_qpn: u32,
    pub(crate) remote_qkey: u32,
}

impl To {
    /// Any way that an InfiniBand port can go: by LID, with a GRH or without.
    pub(crate) fn draw(device: &Device, random: &mut Random) -> Self {
        // SAFETY: plain integers.
        let mut attr: IbvAhAttr = unsafe { std::mem::zeroed() };
        attr.port_num = 1;
        attr.dlid = random.next() as u16;
        attr.sl = random.below(16) as u8;
        attr.src_path_bits = random.below(128) as u8;
        // `enum ibv_rate`, of which 0 is the port's own.
        attr.static_rate = random.one_of(&[0, 2, 3, 5, 6, 7, 8, 9, 10]);
        let mut av = AvSeg::new()
            .with_ext(true)
            .with_rlid_or_udp_sport(attr.dlid)
            .with_sl(attr.sl)
            .with_mlid(attr.src_path_bits)
            // `MLX5_STAT_RATE_OFFSET`.
            .with_stat_rate(if attr.static_rate == 0 { 0 } else { attr.static_rate + 5 });
        if random.one_in(2) {
            let dgid: [u8; 16] = random.bytes(16).try_into().expect("16 bytes");
            attr.is_global = 1;
            attr.grh.dgid =
                [0, 8].map(|at| u64::from_ne_bytes(dgid[at..at + 8].try_into().expect("8 bytes")));
            attr.grh.flow_label = random.below(1 << 20) as u32;
            (attr.grh.sgid_index, attr.grh.hop_limit) = (random.next() as u8, random.next() as u8);
            attr.grh.traffic_class = random.next() as u8;
            av = av
                .with_grh(true)
                .with_src_addr_index(attr.grh.sgid_index)
                .with_hop_limit(attr.grh.hop_limit)
                .with_tclass(attr.grh.traffic_class)
                .with_flow_label(attr.grh.flow_label)
                .with_rgid(dgid);
        }
        // SAFETY: a protection domain of this device.
        let theirs = unsafe { (device.library.ibv_create_ah)(device.pd.as_ptr(), &mut attr) };
        Self { theirs: NonNull::new(theirs).expect("an address handle"), av, remote_qpn: 0, remote_qkey: 0 }
    }

    pub(crate) fn with_random_peer(self, random: &mut Random) -> Self {
        Self { remote_qpn: random.below(1 << 24) as u32, remote_qkey: random.next() as u32, ..self }
    }

    pub(crate) fn theirs(&self) -> *mut c_void {
        self.theirs.as_ptr()
    }

    pub(crate) fn ours(&self) -> AddressHandle {
        AddressHandle::new(self.av).with_peer(Qpn::new(self.remote_qpn), self.remote_qkey)
    }

    /// `wr.ud` of `struct ibv_send_wr`.
    pub(crate) fn union(&self) -> WrUnion {
        WrUnion {
            remote_addr_or_ah: self.theirs().addr() as u64,
            rkey_or_compare_add: u64::from(self.remote_qkey) << 32 | u64::from(self.remote_qpn),
            ..WrUnion::default()
        }
    }
}
