//! Transitions and attributes of queue pairs.

use super::{
    super::{Object, VerbsControl, done, ffi::*, lock, unknown},
    QpEntry,
};
use crate::{
    Result,
    backend::{Access, AddressVector, QpAttr, QpModify, link_local_mac, transition},
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
        transition::check(self, entry.service, from, modify)?;
        let (mut attr, mask) = self.verbs_attr(modify)?;
        // SAFETY: a queue pair of this device, which is held, and attributes that live for the call.
        let result = unsafe { (self.device.library().ibv_modify_qp)(entry.qp.as_ptr(), &raw mut attr, mask) };
        let name = |state: QpState| state.name().unwrap_or("?");
        done(|| format!("moving queue pair {qpn} from {} to {}", name(from), name(modify.to)), result)?;
        *state = Some(modify.to);
        Ok(())
    }

    /// A transition as verbs have it: attributes, which are within their limits, and which of them are given.
    fn verbs_attr(&self, modify: &QpModify) -> Result<(IbvQpAttr, c_int)> {
        let (mut attr, mut mask) = (nothing(), IBV_QP_STATE);
        attr.qp_state = to_verbs(modify.to);
        if let Some(pkey_index) = modify.pkey_index {
            (attr.pkey_index, mask) = (pkey_index, mask | IBV_QP_PKEY_INDEX);
        }
        if let Some(port) = modify.port {
            (attr.port_num, mask) = (port, mask | IBV_QP_PORT);
        }
        if let Some(access) = modify.access {
            (attr.qp_access_flags, mask) = (access.0, mask | IBV_QP_ACCESS_FLAGS);
        }
        if let Some(qkey) = modify.qkey {
            (attr.qkey, mask) = (qkey, mask | IBV_QP_QKEY);
        }
        if let Some(ah) = &modify.ah {
            (attr.ah_attr, mask) = (self.verbs_ah(ah)?, mask | IBV_QP_AV);
        }
        if let Some(mtu) = modify.path_mtu {
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
        for (value, field, bit) in [
            (modify.max_dest_rd_atomic, &mut attr.max_dest_rd_atomic, IBV_QP_MAX_DEST_RD_ATOMIC),
            (modify.max_rd_atomic, &mut attr.max_rd_atomic, IBV_QP_MAX_QP_RD_ATOMIC),
            (modify.min_rnr_timer, &mut attr.min_rnr_timer, IBV_QP_MIN_RNR_TIMER),
            (modify.timeout, &mut attr.timeout, IBV_QP_TIMEOUT),
            (modify.retry_cnt, &mut attr.retry_cnt, IBV_QP_RETRY_CNT),
            (modify.rnr_retry, &mut attr.rnr_retry, IBV_QP_RNR_RETRY),
        ] {
            if let Some(value) = value {
                (*field, mask) = (value, mask | bit);
            }
        }
        Ok((attr, mask))
    }

    fn query(&self, qp: Object<IbvQp>) -> Result<(IbvQpAttr, IbvQpInitAttr)> {
        let mut attr = nothing();
        // SAFETY: pointers and integers: zeros are values.
        let mut init: IbvQpInitAttr = unsafe { mem::zeroed() };
        let all =
            IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY | IBV_QP_AV;
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
            qkey: attr.qkey,
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
