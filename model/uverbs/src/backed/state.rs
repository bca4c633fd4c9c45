//! Queue pairs' states and attributes: MODIFY_QP and QUERY_QP of uverbs, to and from those of the driver.
#![forbid(unsafe_code)]

use super::{address, card::Host, qp::Qp, refused, unsupported};
use crate::uapi::{ModifyQp, QpDest, QueryQpResp, attr_mask};
use mlx5_direct::{
    backend::{Access, AddressVector, Control, QpModify},
    mlx5::{
        context::{Mtu, QpState},
        ids::{Psn, Qpn},
    },
};
use std::ffi::c_int;

/// `IB_MIG_MIGRATED`.
const MIGRATED: u8 = 0;

/// `enum ib_qp_state`, whose SQD and SQE are the other way round.
fn state(ib: u8) -> Result<QpState, c_int> {
    match ib {
        0..=3 | 6 => Ok(QpState(ib)),
        5 => Ok(QpState::SQER),
        4 => Err(unsupported("the state SQD")),
        _ => Err(libc::EINVAL),
    }
}

fn ib_state(state: QpState) -> u8 {
    match state {
        QpState::SQER => 5,
        QpState::SQD | QpState::SQ_DRAINING => 4,
        QpState(other) => other,
    }
}

impl Qp {
    /// Changes state or attributes.
    pub(super) fn modify(&self, host: &Host, request: &ModifyQp) -> Result<(), c_int> {
        let given = |bit| request.attr_mask & bit != 0;
        for (bit, what) in [
            (attr_mask::ALT_PATH, "an alternate path of a queue pair"),
            (attr_mask::RATE_LIMIT, "a limit to a queue pair's rate"),
        ] {
            if given(bit) {
                return Err(unsupported(what));
            }
        }
        let to = match given(attr_mask::STATE) {
            true => state(request.qp_state)?,
            false => host.control.query_qp(self.qpn).map_err(refused)?.state,
        };
        let ah = given(attr_mask::AV).then(|| way(host, &request.dest)).transpose()?;
        let modify = QpModify {
            pkey_index: given(attr_mask::PKEY_INDEX).then_some(request.pkey_index),
            port: given(attr_mask::PORT).then_some(request.port_num),
            access: given(attr_mask::ACCESS_FLAGS).then_some(Access(request.qp_access_flags)),
            qkey: given(attr_mask::QKEY).then_some(request.qkey),
            ah,
            path_mtu: given(attr_mask::PATH_MTU).then_some(Mtu(request.path_mtu)),
            dest_qp_num: given(attr_mask::DEST_QPN).then_some(Qpn::new(request.dest_qp_num)),
            rq_psn: given(attr_mask::RQ_PSN).then_some(Psn::new(request.rq_psn)),
            sq_psn: given(attr_mask::SQ_PSN).then_some(Psn::new(request.sq_psn)),
            max_dest_rd_atomic: given(attr_mask::MAX_DEST_RD_ATOMIC).then_some(request.max_dest_rd_atomic),
            max_rd_atomic: given(attr_mask::MAX_QP_RD_ATOMIC).then_some(request.max_rd_atomic),
            min_rnr_timer: given(attr_mask::MIN_RNR_TIMER).then_some(request.min_rnr_timer),
            timeout: given(attr_mask::TIMEOUT).then_some(request.timeout),
            retry_cnt: given(attr_mask::RETRY_CNT).then_some(request.retry_cnt),
            rnr_retry: given(attr_mask::RNR_RETRY).then_some(request.rnr_retry),
            ..QpModify::to(to)
        };
        host.control.modify_qp(self.qpn, &modify).map_err(refused)
    }

    /// State and attributes.
    pub(super) fn query(&self, host: &Host) -> Result<QueryQpResp, c_int> {
        let attr = host.control.query_qp(self.qpn).map_err(refused)?;
        let ah = &attr.ah;
        Ok(QueryQpResp {
            dest: QpDest {
                dgid: ah.dgid,
                flow_label: ah.flow_label,
                dlid: ah.dlid,
                sgid_index: ah.sgid_index,
                hop_limit: ah.hop_limit,
                traffic_class: ah.traffic_class,
                sl: ah.sl,
                is_global: u8::from(ah.dgid != [0; 16]),
                port_num: ah.port,
                ..Default::default()
            },
            max_send_wr: self.caps.max_send_wr,
            max_recv_wr: self.caps.max_recv_wr,
            max_send_sge: self.caps.max_send_sge,
            max_recv_sge: self.caps.max_recv_sge,
            max_inline_data: self.caps.max_inline_data,
            qkey: attr.qkey,
            rq_psn: attr.rq_psn.get(),
            sq_psn: attr.sq_psn.get(),
            dest_qp_num: attr.dest_qp_num.get(),
            // Of one's own memory a queue pair has no rights to give.
            qp_access_flags: attr.access.0 & !Access::LOCAL_WRITE.0,
            pkey_index: attr.pkey_index,
            qp_state: ib_state(attr.state),
            cur_qp_state: ib_state(attr.state),
            path_mtu: attr.path_mtu.0,
            path_mig_state: MIGRATED,
            max_rd_atomic: attr.max_rd_atomic,
            max_dest_rd_atomic: attr.max_dest_rd_atomic,
            min_rnr_timer: attr.min_rnr_timer,
            port_num: attr.port,
            timeout: attr.timeout,
            retry_cnt: attr.retry_cnt,
            rnr_retry: attr.rnr_retry,
            sq_sig_all: self.caps.sq_sig_all,
            ..Default::default()
        })
    }
}

fn way(host: &Host, dest: &QpDest) -> Result<AddressVector, c_int> {
    let is_global = dest.is_global != 0;
    Ok(AddressVector {
        port: dest.port_num,
        sgid_index: dest.sgid_index,
        dgid: if is_global { dest.dgid } else { [0; 16] },
        dmac: address::dmac(host, &dest.dgid)?,
        dlid: dest.dlid,
        sl: dest.sl,
        hop_limit: dest.hop_limit,
        traffic_class: dest.traffic_class,
        // The kernel takes the bits that there are: UCX gives 32.
        flow_label: dest.flow_label & 0xf_ffff,
        udp_sport: None,
        force_loopback: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_there_and_back() {
        for ib in [0, 1, 2, 3, 5, 6] {
            assert_eq!(state(ib).map(ib_state), Ok(ib));
        }
        assert_eq!((state(4), ib_state(QpState::SQD)), (Err(libc::EOPNOTSUPP), 4));
        assert_eq!(state(7), Err(libc::EINVAL));
    }
}
