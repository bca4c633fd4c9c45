//! Ways to peers, which the kernel completes.

use super::super::{Object, VerbsControl, done, ffi::*, made};
use crate::{
    Error, Result,
    backend::{AddressVector, LinkLayer},
    mlx5::ids::{Pdn, Qpn},
    wqe::AvSeg,
};

impl VerbsControl {
    /// A way to the peer, which is within its limits. The kernel finds its MAC address and the UDP source port itself.
    pub(super) fn verbs_ah(&self, ah: &AddressVector) -> Result<IbvAhAttr> {
        let port = self.port_attr(ah.port)?;
        let ethernet = port.link_layer == LinkLayer::Ethernet;
        if ah.udp_sport.is_some() || ah.force_loopback {
            return Err(Error::Unsupported {
                capability: "ah.udp_sport, ah.force_loopback",
                reason: "the kernel chooses them; leave them out".into(),
            });
        }
        let words = |bytes: &[u8; 16]| {
            let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|n| bytes[at + n]));
            [word(0), word(8)]
        };
        Ok(IbvAhAttr {
            grh: IbvGlobalRoute {
                dgid: words(&ah.dgid),
                flow_label: ah.flow_label,
                sgid_index: ah.sgid_index,
                hop_limit: ah.hop_limit,
                traffic_class: ah.traffic_class,
            },
            dlid: if ethernet { 0 } else { ah.dlid },
            sl: ah.sl,
            src_path_bits: 0,
            static_rate: 0,
            is_global: (ah.dgid != [0; 16]).into(),
            port_num: ah.port,
        })
    }

    /// The way as datagrams carry it: as the library writes it into its own requests.
    pub(in super::super) fn make_av(&self, pd: Pdn, ah: &AddressVector, remote: Qpn) -> Result<AvSeg> {
        ah.check(self, self.port_attr(ah.port)?.link_layer)?;
        let mut attr = self.verbs_ah(ah)?;
        let (pd, library) = (self.pd(pd)?, self.device.library());
        let what = || format!("finding the way to {}", std::net::Ipv6Addr::from(ah.dgid));
        // SAFETY: a protection domain, which is held, and attributes that live for the call.
        let handle = unsafe { (library.ibv_create_ah)(pd.pd.as_ptr(), &raw mut attr) };
        let handle = Object(made(what, handle)?);
        let mut out = Mlx5dvAh { av: std::ptr::null_mut(), comp_mask: 0 };
        let mut object = Mlx5dvObj::default();
        (object.ah.input, object.ah.output) = (handle.as_ptr(), &raw mut out);
        // SAFETY: an address handle of libmlx5, and room for what it tells.
        let result = unsafe { (library.mlx5dv_init_obj)(&raw mut object, MLX5DV_OBJ_AH) };
        // SAFETY: the library has told where the handle's vector is, and that is as long as the handle.
        let av = (result == 0 && !out.av.is_null()).then(|| unsafe { out.av.read_unaligned() });
        // The kernel keeps it to know who uses an address; the vector says all that the device needs.
        // SAFETY: just made, and used by nobody.
        unsafe { (library.ibv_destroy_ah)(handle.as_ptr()) };
        done(what, result)?;
        let av = AvSeg::from_bytes(av.ok_or_else(|| super::broken("an address vector at address 0"))?);
        Ok(av.with_ext(true).with_dqpn_dctn(remote).with_qkey(0))
    }
}
