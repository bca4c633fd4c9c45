//! The state machine of a queue pair: which transitions a transport has, what each needs, and within which limits.
//!
//! The table is that of the InfiniBand specification (11.2.5.2), less the states that the device's
//! interface has no command for (SQD). It serves every control path.
#![forbid(unsafe_code)]

use super::{AddressVector, Control, LinkLayer, QpModify, params::at_most};
use crate::{
    Error, Result,
    mlx5::context::{QpState, ServiceType},
};

/// Attributes of a transition.
#[derive(Debug, Clone, Copy, Default)]
struct Attributes {
    needs: &'static [&'static str],
    takes: &'static [&'static str],
}

/// A transition that one transport or another has.
struct Rule {
    from: QpState,
    to: QpState,
    rc: Option<Attributes>,
    /// Of an initiator (`IB_QPT_XRC_INI`): it is asked for nothing.
    xrc: Option<Attributes>,
    uc: Option<Attributes>,
    ud: Option<Attributes>,
    raw: Option<Attributes>,
}

const fn some(needs: &'static [&'static str], takes: &'static [&'static str]) -> Option<Attributes> {
    Some(Attributes { needs, takes })
}

const RULES: [Rule; 6] = [
    Rule {
        from: QpState::RST,
        to: QpState::INIT,
        rc: some(&["pkey_index", "port", "access"], &[]),
        xrc: some(&["pkey_index", "port", "access"], &[]),
        uc: some(&["pkey_index", "port", "access"], &[]),
        ud: some(&["pkey_index", "port", "qkey"], &[]),
        raw: some(&["port"], &[]),
    },
    Rule {
        from: QpState::INIT,
        to: QpState::INIT,
        rc: some(&[], &["pkey_index", "port", "access"]),
        xrc: some(&[], &["pkey_index", "port", "access"]),
        uc: some(&[], &["pkey_index", "port", "access"]),
        ud: some(&[], &["pkey_index", "port", "qkey"]),
        raw: None,
    },
    Rule {
        from: QpState::INIT,
        to: QpState::RTR,
        rc: some(
            &["ah", "path_mtu", "dest_qp_num", "rq_psn", "max_dest_rd_atomic", "min_rnr_timer"],
            &["access", "pkey_index"],
        ),
        xrc: some(&["ah", "path_mtu", "dest_qp_num", "rq_psn"], &["access", "pkey_index"]),
        uc: some(&["ah", "path_mtu", "dest_qp_num", "rq_psn"], &["access", "pkey_index"]),
        ud: some(&[], &["pkey_index", "qkey"]),
        raw: some(&[], &[]),
    },
    Rule {
        from: QpState::RTR,
        to: QpState::RTS,
        rc: some(
            &["timeout", "retry_cnt", "rnr_retry", "sq_psn", "max_rd_atomic"],
            &["access", "min_rnr_timer"],
        ),
        xrc: some(&["timeout", "retry_cnt", "rnr_retry", "sq_psn", "max_rd_atomic"], &["access"]),
        uc: some(&["sq_psn"], &["access"]),
        ud: some(&["sq_psn"], &["qkey"]),
        raw: some(&[], &[]),
    },
    Rule {
        from: QpState::RTS,
        to: QpState::RTS,
        rc: some(&[], &["access", "min_rnr_timer"]),
        xrc: some(&[], &["access"]),
        uc: some(&[], &["access"]),
        ud: some(&[], &["qkey"]),
        raw: None,
    },
    // A send that fails stops only the send queue, where nobody waits for an answer.
    Rule {
        from: QpState::SQER,
        to: QpState::RTS,
        rc: None,
        xrc: None,
        uc: some(&[], &["access"]),
        ud: some(&[], &["qkey"]),
        raw: None,
    },
];

impl Rule {
    fn of(&self, service: ServiceType) -> Option<Attributes> {
        match service {
            ServiceType::RC => self.rc,
            ServiceType::XRC => self.xrc,
            ServiceType::UC => self.uc,
            ServiceType::UD => self.ud,
            ServiceType::RAW_ETHERTYPE => self.raw,
            _ => None,
        }
    }
}

/// Names of the attributes that are given.
fn given(modify: &QpModify) -> impl Iterator<Item = &'static str> {
    [
        ("pkey_index", modify.pkey_index.is_some()),
        ("port", modify.port.is_some()),
        ("access", modify.access.is_some()),
        ("qkey", modify.qkey.is_some()),
        ("ah", modify.ah.is_some()),
        ("path_mtu", modify.path_mtu.is_some()),
        ("dest_qp_num", modify.dest_qp_num.is_some()),
        ("rq_psn", modify.rq_psn.is_some()),
        ("max_dest_rd_atomic", modify.max_dest_rd_atomic.is_some()),
        ("min_rnr_timer", modify.min_rnr_timer.is_some()),
        ("timeout", modify.timeout.is_some()),
        ("retry_cnt", modify.retry_cnt.is_some()),
        ("rnr_retry", modify.rnr_retry.is_some()),
        ("sq_psn", modify.sq_psn.is_some()),
        ("max_rd_atomic", modify.max_rd_atomic.is_some()),
    ]
    .into_iter()
    .filter_map(|(name, given)| given.then_some(name))
}

/// Refuses a transition that the transport does not have, that lacks a mandatory attribute or has one too many.
fn check_attributes(service: ServiceType, from: QpState, modify: &QpModify) -> Result<()> {
    let to = modify.to;
    let refuse = |missing, excess| Err(Error::Transition { from, to, missing, excess });
    let rule = if to == QpState::RST || (to == QpState::ERR && from != QpState::RST) {
        Some(Attributes::default())
    } else {
        RULES.iter().find(|rule| rule.from == from && rule.to == to).and_then(|rule| rule.of(service))
    };
    let Some(rule) = rule else { return refuse(Vec::new(), Vec::new()) };
    let given: Vec<_> = given(modify).collect();
    let missing: Vec<_> = rule.needs.iter().filter(|name| !given.contains(name)).copied().collect();
    let excess: Vec<_> =
        given.into_iter().filter(|name| !rule.needs.contains(name) && !rule.takes.contains(name)).collect();
    if missing.is_empty() && excess.is_empty() { Ok(()) } else { refuse(missing, excess) }
}

/// Refuses a transition that does not exist, and an attribute that is beyond the device's limits.
pub(super) fn check(
    control: &dyn Control,
    service: ServiceType,
    from: QpState,
    modify: &QpModify,
) -> Result<()> {
    check_attributes(service, from, modify)?;
    let limits = control.device_attr();
    let port = modify.port.or(modify.ah.map(|ah| ah.port));
    if let Some(port) = port.map(|port| control.query_port(port)).transpose()? {
        if let Some(ah) = &modify.ah {
            ah.check(control, port.link_layer)?;
        }
        if let Some(mtu) = modify.path_mtu {
            let bytes = mtu.bytes().ok_or_else(|| {
                Error::invalid(format!("path_mtu {mtu}: give one of 256, 512, 1024, 2048, 4096"))
            })?;
            at_most("path_mtu", bytes, port.active_mtu.bytes().unwrap_or(0))?;
        }
    }
    let last_pkey = u32::from(limits.max_pkeys).saturating_sub(1);
    at_most("pkey_index", modify.pkey_index.unwrap_or(0).into(), last_pkey)?;
    for (what, value, max) in [
        ("max_dest_rd_atomic", modify.max_dest_rd_atomic, limits.max_qp_rd_atom),
        ("max_rd_atomic", modify.max_rd_atomic, limits.max_qp_init_rd_atom),
        ("min_rnr_timer", modify.min_rnr_timer, 31),
        ("timeout", modify.timeout, 31),
        ("retry_cnt", modify.retry_cnt, 7),
        ("rnr_retry", modify.rnr_retry, 7),
    ] {
        at_most(what, value.unwrap_or(0).into(), max.into())?;
    }
    Ok(())
}

impl AddressVector {
    /// Refuses a way that no packet can go, as far as every control path knows.
    pub(super) fn check(&self, control: &dyn Control, link_layer: LinkLayer) -> Result<()> {
        let ethernet = link_layer == LinkLayer::Ethernet;
        at_most("ah.flow_label", self.flow_label, 0xf_ffff)?;
        at_most("ah.sl", self.sl.into(), if ethernet { 7 } else { 15 })?;
        if ethernet {
            // An empty entry would send packets from nowhere.
            control.query_gid(self.port, self.sgid_index.into())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Access;

    const STATES: [QpState; 6] =
        [QpState::RST, QpState::INIT, QpState::RTR, QpState::RTS, QpState::SQER, QpState::ERR];
    const SERVICES: [ServiceType; 3] = [ServiceType::RC, ServiceType::UC, ServiceType::UD];

    /// Case D5: every arrow that is not in the graph is refused by name.
    #[test]
    fn qp_illegal_transitions() {
        for service in SERVICES {
            let legal = |from: QpState, to: QpState| {
                to == QpState::RST
                    || (to == QpState::ERR && from != QpState::RST)
                    || RULES
                        .iter()
                        .any(|rule| rule.from == from && rule.to == to && rule.of(service).is_some())
            };
            for from in STATES {
                for to in STATES {
                    let refused = check_attributes(service, from, &QpModify::to(to)).is_err_and(|error| {
                        matches!(error, Error::Transition { ref missing, ref excess, .. }
                            if missing.is_empty() && excess.is_empty())
                    });
                    assert_eq!(refused, !legal(from, to), "{service}: {from} to {to}");
                }
            }
        }
        let refused = check_attributes(ServiceType::RC, QpState::RST, &QpModify::to(QpState::RTS));
        assert_eq!(
            refused.unwrap_err().to_string(),
            "queue pair cannot go from RST to RTS: from RST only RST and INIT can be reached"
        );
        let back = QpModify::to(QpState::RTS);
        for (service, is_legal) in SERVICES.into_iter().zip([false, true, true]) {
            assert_eq!(check_attributes(service, QpState::SQER, &back).is_ok(), is_legal, "{service}");
        }
        assert!(check_attributes(ServiceType::DCI, QpState::RST, &QpModify::to(QpState::INIT)).is_err());
    }

    #[test]
    fn missing_and_excess_attributes_are_named() {
        let modify =
            QpModify { access: Some(Access::LOCAL_WRITE), timeout: Some(14), ..QpModify::to(QpState::INIT) };
        let text = |service, modify| check_attributes(service, QpState::RST, modify).unwrap_err().to_string();
        assert_eq!(
            text(ServiceType::RC, &modify),
            "queue pair cannot go from RST to INIT: give pkey_index, port; leave out timeout, which this \
             transition does not take"
        );
        let complete = QpModify { timeout: None, pkey_index: Some(0), port: Some(1), ..modify };
        check_attributes(ServiceType::RC, QpState::RST, &complete).unwrap();
        check_attributes(ServiceType::UC, QpState::RST, &complete).unwrap();
        let refused = text(ServiceType::UD, &complete);
        assert!(refused.contains("give qkey; leave out access"), "{refused}");
    }
}
