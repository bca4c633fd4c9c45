//! Transitions and attributes of queue pairs.

use super::{
    super::{Object, VerbsControl, done, ffi::*, lock, unknown},
    QpEntry,
};
use crate::{
    Error, Result,
    backend::{
        Access, AddressVector, LinkLayer, QpAttr, QpModify, link_local_mac, params::at_most,
        prm::check_transition,
    },
    mlx5::{
        context::{Mtu, QpState},
        ids::{Psn, Qpn},
    },
};
use std::{ffi::c_int, mem};

/// States as verbs number them.
fn to_verbs(state: QpState) -> c_int {
    match state {
        QpState::INIT => IBV_QPS_INIT,
        QpState::RTR => IBV_QPS_RTR,
        QpState::RTS => IBV_QPS_RTS,
        QpState::SQD => IBV_QPS_SQD,
        QpState::SQER => IBV_QPS_SQE,
        QpState::ERR => IBV_QPS_ERR,
        _ => IBV_QPS_RESET,
    }
}

/// States as the device numbers them.
fn from_verbs(state: c_int) -> QpState {
    match state {
        IBV_QPS_INIT => QpState::INIT,
        IBV_QPS_RTR => QpState::RTR,
        IBV_QPS_RTS => QpState::RTS,
        IBV_QPS_SQD => QpState::SQD,
        IBV_QPS_SQE => QpState::SQER,
        IBV_QPS_ERR => QpState::ERR,
        _ => QpState::RST,
    }
}

/// Attributes that are not given.
fn nothing() -> IbvQpAttr {
    // SAFETY: integers and arrays of them: zeros are values.
    unsafe { mem::zeroed() }
}

impl VerbsControl {
    pub(in super::super) fn move_qp(&self, qpn: Qpn, modify: &QpModify) -> Result<()> {
        self.modify_entry(qpn, &*self.qp(qpn)?, modify)
    }

    pub(super) fn modify_entry(&self, qpn: Qpn, entry: &QpEntry, modify: &QpModify) -> Result<()> {
        let mut state = lock(&entry.state);
        let from = state.ok_or_else(|| unknown("queue pair", qpn.get()))?;
        check_transition(from, modify)?;
        let (mut attr, mask) = self.verbs_attr(modify)?;
        // SAFETY: a queue pair of this device, which is held, and attributes that live for the call.
        let result = unsafe { (self.device.library().ibv_modify_qp)(entry.qp.as_ptr(), &raw mut attr, mask) };
        let name = |state: QpState| state.name().unwrap_or("?");
        done(|| format!("moving queue pair {qpn} from {} to {}", name(from), name(modify.to)), result)?;
        *state = Some(modify.to);
        Ok(())
    }

    /// A transition as verbs have it: attributes, and which of them are given.
    fn verbs_attr(&self, modify: &QpModify) -> Result<(IbvQpAttr, c_int)> {
        let (mut attr, mut mask) = (nothing(), IBV_QP_STATE);
        attr.qp_state = to_verbs(modify.to);
        if let Some(pkey_index) = modify.pkey_index {
            at_most("pkey_index", pkey_index.into(), u32::from(self.attr.max_pkeys) - 1)?;
            (attr.pkey_index, mask) = (pkey_index, mask | IBV_QP_PKEY_INDEX);
        }
        if let Some(port) = modify.port {
            self.port_attr(port)?;
            (attr.port_num, mask) = (port, mask | IBV_QP_PORT);
        }
        if let Some(access) = modify.access {
            (attr.qp_access_flags, mask) = (access.0, mask | IBV_QP_ACCESS_FLAGS);
        }
        if let Some(ah) = &modify.ah {
            (attr.ah_attr, mask) = (self.verbs_ah(ah)?, mask | IBV_QP_AV);
        }
        if let Some(mtu) = modify.path_mtu {
            let port = self.port_attr(modify.ah.map_or(1, |ah| ah.port))?;
            let bytes = mtu.bytes().ok_or_else(|| {
                Error::invalid(format!("path_mtu {mtu}: give one of 256, 512, 1024, 2048, 4096"))
            })?;
            at_most("path_mtu", bytes, port.active_mtu.bytes().unwrap_or(0))?;
            (attr.path_mtu, mask) = (mtu.0.into(), mask | IBV_QP_PATH_MTU);
        }
        if let Some(dest) = modify.dest_qp_num {
            (attr.dest_qp_num, mask) = (dest.get(), mask | IBV_QP_DEST_QPN);
        }
        if let Some(psn) = modify.rq_psn {
            (attr.rq_psn, mask) = (psn.get(), mask | IBV_QP_RQ_PSN);
        }
        if let Some(psn) = modify.sq_psn {
            (attr.sq_psn, mask) = (psn.get(), mask | IBV_QP_SQ_PSN);
        }
        let limits = &self.attr;
        for (what, value, max, field, bit) in [
            (
                "max_dest_rd_atomic",
                modify.max_dest_rd_atomic,
                limits.max_qp_rd_atom,
                &mut attr.max_dest_rd_atomic,
                IBV_QP_MAX_DEST_RD_ATOMIC,
            ),
            (
                "max_rd_atomic",
                modify.max_rd_atomic,
                limits.max_qp_init_rd_atom,
                &mut attr.max_rd_atomic,
                IBV_QP_MAX_QP_RD_ATOMIC,
            ),
            ("min_rnr_timer", modify.min_rnr_timer, 31, &mut attr.min_rnr_timer, IBV_QP_MIN_RNR_TIMER),
            ("timeout", modify.timeout, 31, &mut attr.timeout, IBV_QP_TIMEOUT),
            ("retry_cnt", modify.retry_cnt, 7, &mut attr.retry_cnt, IBV_QP_RETRY_CNT),
            ("rnr_retry", modify.rnr_retry, 7, &mut attr.rnr_retry, IBV_QP_RNR_RETRY),
        ] {
            if let Some(value) = value {
                at_most(what, value.into(), max.into())?;
                (*field, mask) = (value, mask | bit);
            }
        }
        Ok((attr, mask))
    }

    /// A way to the peer. The kernel finds its MAC address and the UDP source port itself.
    fn verbs_ah(&self, ah: &AddressVector) -> Result<IbvAhAttr> {
        let port = self.port_attr(ah.port)?;
        at_most("ah.flow_label", ah.flow_label, 0xf_ffff)?;
        let ethernet = port.link_layer == LinkLayer::Ethernet;
        at_most("ah.sl", ah.sl.into(), if ethernet { 7 } else { 15 })?;
        if ah.udp_sport.is_some() || ah.force_loopback {
            return Err(Error::Unsupported {
                capability: "ah.udp_sport, ah.force_loopback",
                reason: "the kernel chooses them; leave them out".into(),
            });
        }
        if ethernet {
            // An empty entry would send packets from nowhere.
            self.gid_entry(ah.port, ah.sgid_index.into())?;
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

    fn query(&self, qp: Object<IbvQp>) -> Result<(IbvQpAttr, IbvQpInitAttr)> {
        let mut attr = nothing();
        // SAFETY: pointers and integers: zeros are values.
        let mut init: IbvQpInitAttr = unsafe { mem::zeroed() };
        let all = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_AV;
        // SAFETY: a queue pair of this device, which the caller holds, and room for what is told.
        let result =
            unsafe { (self.device.library().ibv_query_qp)(qp.as_ptr(), &raw mut attr, all, &raw mut init) };
        done(|| "querying a queue pair".into(), result)?;
        Ok((attr, init))
    }

    /// What requests of a queue pair may hold.
    pub(in super::super) fn cap(&self, qp: Object<IbvQp>) -> Result<IbvQpCap> {
        Ok(self.query(qp)?.1.cap)
    }

    pub(in super::super) fn qp_attr(&self, qpn: Qpn) -> Result<QpAttr> {
        let entry = self.qp(qpn)?;
        let mut state = lock(&entry.state);
        state.ok_or_else(|| unknown("queue pair", qpn.get()))?;
        let (attr, _) = self.query(entry.qp)?;
        let now = from_verbs(attr.qp_state);
        *state = Some(now);
        let mut dgid = [0; 16];
        dgid[..8].copy_from_slice(&attr.ah_attr.grh.dgid[0].to_ne_bytes());
        dgid[8..].copy_from_slice(&attr.ah_attr.grh.dgid[1].to_ne_bytes());
        let grh = attr.ah_attr.grh;
        Ok(QpAttr {
            state: now,
            pkey_index: attr.pkey_index,
            port: attr.port_num.max(1),
            access: Access::LOCAL_WRITE | Access(attr.qp_access_flags),
            ah: AddressVector {
                port: attr.ah_attr.port_num.max(1),
                sgid_index: grh.sgid_index,
                dgid,
                // The kernel keeps it to itself.
                dmac: link_local_mac(&dgid).unwrap_or_default(),
                dlid: attr.ah_attr.dlid,
                sl: attr.ah_attr.sl,
                hop_limit: grh.hop_limit,
                traffic_class: grh.traffic_class,
                flow_label: grh.flow_label,
                udp_sport: None,
                force_loopback: false,
            },
            path_mtu: Mtu(u8::try_from(attr.path_mtu).unwrap_or(0)),
            dest_qp_num: Qpn::new(attr.dest_qp_num),
            rq_psn: Psn::new(attr.rq_psn),
            sq_psn: Psn::new(attr.sq_psn),
            max_dest_rd_atomic: attr.max_dest_rd_atomic,
            max_rd_atomic: attr.max_rd_atomic,
            min_rnr_timer: attr.min_rnr_timer,
            timeout: attr.timeout,
            retry_cnt: attr.retry_cnt,
            rnr_retry: attr.rnr_retry,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_there_and_back() {
        let states = [
            QpState::RST,
            QpState::INIT,
            QpState::RTR,
            QpState::RTS,
            QpState::SQD,
            QpState::SQER,
            QpState::ERR,
        ];
        for (verbs, state) in states.into_iter().enumerate() {
            assert_eq!(to_verbs(state), verbs as c_int);
            assert_eq!(from_verbs(verbs as c_int), state);
        }
    }
}
