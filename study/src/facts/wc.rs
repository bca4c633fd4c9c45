//! Statuses of verbs completions (`enum ibv_wc_status`), and the CQE syndromes behind them.

use mlx5_direct::cqe::CqeSyndrome;

/// A status.
#[derive(Debug)]
pub struct Wc {
    /// Its number.
    pub number: u32,
    /// Its name in `verbs.h`.
    pub name: &'static str,
    /// Its text in libibverbs (`ibv_wc_status_str`).
    pub text: &'static str,
    /// Other texts for it: the kernel's (`ib_wc_status_msg`), UCX's, older ones.
    pub also: &'static [&'static str],
    /// The syndrome that libmlx5 and the kernel make it of. Others never come from an mlx5 CQE.
    pub syndrome: Option<CqeSyndrome>,
}

/// Every status, by number.
pub static WC: &[Wc] = &[
    wc(0, "IBV_WC_SUCCESS", "success", &[], None),
    wc(1, "IBV_WC_LOC_LEN_ERR", "local length error", &["local length"], Some(CqeSyndrome::LOCAL_LENGTH_ERR)),
    wc(
        2,
        "IBV_WC_LOC_QP_OP_ERR",
        "local QP operation error",
        &["local QP operation"],
        Some(CqeSyndrome::LOCAL_QP_OP_ERR),
    ),
    wc(3, "IBV_WC_LOC_EEC_OP_ERR", "local EE context operation error", &["local EE operation error"], None),
    wc(
        4,
        "IBV_WC_LOC_PROT_ERR",
        "local protection error",
        &["local protection", "local protocol error"],
        Some(CqeSyndrome::LOCAL_PROT_ERR),
    ),
    wc(
        5,
        "IBV_WC_WR_FLUSH_ERR",
        "Work Request Flushed Error",
        &[
            "WR flushed because QP in error state",
            "WR flushed",
            "work request flushed error",
            "flushed error",
        ],
        Some(CqeSyndrome::WR_FLUSH_ERR),
    ),
    wc(
        6,
        "IBV_WC_MW_BIND_ERR",
        "memory management operation error",
        &["memory bind operation error", "memory window bind error", "memory window bind"],
        Some(CqeSyndrome::MW_BIND_ERR),
    ),
    wc(7, "IBV_WC_BAD_RESP_ERR", "bad response error", &["bad response"], Some(CqeSyndrome::BAD_RESP_ERR)),
    wc(
        8,
        "IBV_WC_LOC_ACCESS_ERR",
        "local access error",
        &["local access"],
        Some(CqeSyndrome::LOCAL_ACCESS_ERR),
    ),
    wc(
        9,
        "IBV_WC_REM_INV_REQ_ERR",
        "remote invalid request error",
        &["invalid request error", "remote invalid request", "invalid request"],
        Some(CqeSyndrome::REMOTE_INVAL_REQ_ERR),
    ),
    wc(
        10,
        "IBV_WC_REM_ACCESS_ERR",
        "remote access error",
        &["remote access"],
        Some(CqeSyndrome::REMOTE_ACCESS_ERR),
    ),
    wc(
        11,
        "IBV_WC_REM_OP_ERR",
        "remote operation error",
        &["remote operation", "remote QP"],
        Some(CqeSyndrome::REMOTE_OP_ERR),
    ),
    wc(
        12,
        "IBV_WC_RETRY_EXC_ERR",
        "transport retry counter exceeded",
        &["transport retry count exceeded", "transport retry exceeded", "retry exceeded error"],
        Some(CqeSyndrome::TRANSPORT_RETRY_EXC_ERR),
    ),
    wc(
        13,
        "IBV_WC_RNR_RETRY_EXC_ERR",
        "RNR retry counter exceeded",
        &[
            "receive-no-ready retry count exceeded",
            "RNR retry count exceeded",
            "receiver not ready retry exceeded error",
            "RNR retry exceeded error",
        ],
        Some(CqeSyndrome::RNR_RETRY_EXC_ERR),
    ),
    wc(14, "IBV_WC_LOC_RDD_VIOL_ERR", "local RDD violation error", &[], None),
    wc(
        15,
        "IBV_WC_REM_INV_RD_REQ_ERR",
        "remote invalid RD request",
        &["remote invalid RD request error"],
        None,
    ),
    wc(
        16,
        "IBV_WC_REM_ABORT_ERR",
        "aborted error",
        &["operation aborted", "remote side aborted"],
        Some(CqeSyndrome::REMOTE_ABORTED_ERR),
    ),
    wc(17, "IBV_WC_INV_EECN_ERR", "invalid EE context number", &["invalid EEC number"], None),
    wc(18, "IBV_WC_INV_EEC_STATE_ERR", "invalid EE context state", &["invalid EEC state"], None),
    wc(19, "IBV_WC_FATAL_ERR", "fatal error", &[], None),
    wc(20, "IBV_WC_RESP_TIMEOUT_ERR", "response timeout error", &[], None),
    wc(21, "IBV_WC_GENERAL_ERR", "general error", &[], None),
    wc(22, "IBV_WC_TM_ERR", "TM error", &[], None),
    wc(23, "IBV_WC_TM_RNDV_INCOMPLETE", "TM software rendezvous", &[], None),
];

const fn wc(
    number: u32,
    name: &'static str,
    text: &'static str,
    also: &'static [&'static str],
    syndrome: Option<CqeSyndrome>,
) -> Wc {
    Wc { number, name, text, also, syndrome }
}

/// The status with a number.
pub fn wc_by_number(number: u32) -> Option<&'static Wc> {
    WC.get(usize::try_from(number).ok()?)
}

/// The status with a name: `IBV_WC_…`, the kernel's `IB_WC_…` or without either.
pub fn wc_by_name(name: &str) -> Option<&'static Wc> {
    let bare = |name: &'_ str| -> String {
        let upper = name.to_ascii_uppercase();
        let bare = upper.strip_prefix("IBV_WC_").or_else(|| upper.strip_prefix("IB_WC_"));
        bare.unwrap_or(&upper).to_owned()
    };
    let wanted = bare(name);
    WC.iter().find(|wc| bare(wc.name) == wanted)
}

/// The status with a text, in whatever case.
pub fn wc_by_text(text: &str) -> Option<&'static Wc> {
    WC.iter().find(|wc| {
        wc.text.eq_ignore_ascii_case(text) || wc.also.iter().any(|also| also.eq_ignore_ascii_case(text))
    })
}

/// The status that libmlx5 and the kernel make of a syndrome: `GENERAL_ERR` of those that they do not know.
pub fn wc_of_syndrome(syndrome: CqeSyndrome) -> &'static Wc {
    WC.iter().find(|wc| wc.syndrome == Some(syndrome)).unwrap_or(&WC[21])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_stand_at_their_numbers() {
        for (number, wc) in (0..).zip(WC) {
            assert_eq!(wc.number, number);
            assert_eq!(wc_by_name(wc.name).unwrap().number, number);
            assert_eq!(wc_by_text(wc.text).unwrap().number, number);
        }
        assert_eq!(WC.len(), 24);
    }

    #[test]
    fn every_syndrome_has_its_status() {
        for (_, bits) in CqeSyndrome::TABLE.1 {
            let syndrome = CqeSyndrome(u8::try_from(*bits).unwrap());
            assert_eq!(wc_of_syndrome(syndrome).syndrome, Some(syndrome));
        }
        assert_eq!(wc_of_syndrome(CqeSyndrome(0x77)).name, "IBV_WC_GENERAL_ERR");
    }

    #[test]
    fn no_text_means_two_things() {
        let texts: Vec<String> = WC
            .iter()
            .flat_map(|wc| wc.also.iter().chain([&wc.text]))
            .map(|text| text.to_ascii_lowercase())
            .collect();
        let mut distinct = texts.clone();
        distinct.sort();
        distinct.dedup();
        let of_two = |text: &String| {
            WC.iter()
                .filter(|wc| {
                    wc.text.eq_ignore_ascii_case(text)
                        || wc.also.iter().any(|also| also.eq_ignore_ascii_case(text))
                })
                .count()
        };
        assert!(distinct.iter().all(|text| of_two(text) == 1));
    }
}
