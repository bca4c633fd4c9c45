//! The state machine of a reliable connection: which transitions there are, and what each needs.
//!
//! The table is that of the InfiniBand specification (11.2.5.2), less the states that the device's
//! interface has no command for (SQD).
#![forbid(unsafe_code)]

use crate::{Error, Result, backend::QpModify, mlx5::context::QpState};

/// Attributes of a transition.
#[derive(Debug, Clone, Copy)]
struct Rule {
    from: QpState,
    to: QpState,
    needs: &'static [&'static str],
    takes: &'static [&'static str],
}

const INIT: [&str; 3] = ["pkey_index", "port", "access"];

const RULES: [Rule; 6] = [
    Rule { from: QpState::RST, to: QpState::INIT, needs: &INIT, takes: &[] },
    Rule { from: QpState::INIT, to: QpState::INIT, needs: &[], takes: &INIT },
    Rule {
        from: QpState::INIT,
        to: QpState::RTR,
        needs: &["ah", "path_mtu", "dest_qp_num", "rq_psn", "max_dest_rd_atomic", "min_rnr_timer"],
        takes: &["access", "pkey_index"],
    },
    Rule {
        from: QpState::RTR,
        to: QpState::RTS,
        needs: &["timeout", "retry_cnt", "rnr_retry", "sq_psn", "max_rd_atomic"],
        takes: &["access", "min_rnr_timer"],
    },
    Rule { from: QpState::RTS, to: QpState::RTS, needs: &[], takes: &["access", "min_rnr_timer"] },
    Rule { from: QpState::SQER, to: QpState::RTS, needs: &[], takes: &["access", "min_rnr_timer"] },
];

/// Names of the attributes that are given.
fn given(modify: &QpModify) -> impl Iterator<Item = &'static str> {
    [
        ("pkey_index", modify.pkey_index.is_some()),
        ("port", modify.port.is_some()),
        ("access", modify.access.is_some()),
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

/// Refuses a transition that does not exist, that lacks a mandatory attribute or has one too many.
pub fn check_transition(from: QpState, modify: &QpModify) -> Result<()> {
    let to = modify.to;
    let refuse = |missing, excess| Err(Error::Transition { from, to, missing, excess });
    let rule = if to == QpState::RST || (to == QpState::ERR && from != QpState::RST) {
        Rule { from, to, needs: &[], takes: &[] }
    } else if let Some(rule) = RULES.iter().find(|rule| rule.from == from && rule.to == to) {
        *rule
    } else {
        return refuse(Vec::new(), Vec::new());
    };
    let given: Vec<_> = given(modify).collect();
    let missing: Vec<_> = rule.needs.iter().filter(|name| !given.contains(name)).copied().collect();
    let excess: Vec<_> =
        given.into_iter().filter(|name| !rule.needs.contains(name) && !rule.takes.contains(name)).collect();
    if missing.is_empty() && excess.is_empty() { Ok(()) } else { refuse(missing, excess) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Access;

    const STATES: [QpState; 6] =
        [QpState::RST, QpState::INIT, QpState::RTR, QpState::RTS, QpState::SQER, QpState::ERR];

    /// Case D5: every arrow that is not in the graph is refused by name.
    #[test]
    fn qp_illegal_transitions() {
        let legal = |from: QpState, to: QpState| {
            to == QpState::RST
                || (to == QpState::ERR && from != QpState::RST)
                || RULES.iter().any(|rule| rule.from == from && rule.to == to)
        };
        for from in STATES {
            for to in STATES {
                let refused = check_transition(from, &QpModify::to(to)).is_err_and(|error| {
                    matches!(error, Error::Transition { ref missing, ref excess, .. }
                        if missing.is_empty() && excess.is_empty())
                });
                assert_eq!(refused, !legal(from, to), "{from} to {to}");
            }
        }
        let text = check_transition(QpState::RST, &QpModify::to(QpState::RTS)).unwrap_err().to_string();
        assert_eq!(text, "queue pair cannot go from RST to RTS: from RST only RST and INIT can be reached");
    }

    #[test]
    fn missing_and_excess_attributes_are_named() {
        let modify =
            QpModify { access: Some(Access::LOCAL_WRITE), timeout: Some(14), ..QpModify::to(QpState::INIT) };
        let text = check_transition(QpState::RST, &modify).unwrap_err().to_string();
        assert_eq!(
            text,
            "queue pair cannot go from RST to INIT: give pkey_index, port; leave out timeout, which this \
             transition does not take"
        );
        let complete = QpModify { timeout: None, pkey_index: Some(0), port: Some(1), ..modify };
        check_transition(QpState::RST, &complete).unwrap();
    }
}
