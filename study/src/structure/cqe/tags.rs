//! What a CQE says of tag matching.

use mlx5_direct::cqe::{CQE_BYTES, CqeApp, CqeOpcode, TmAppOp, TmCqe, TmListCqe};

/// What happened, if the CQE is of tag matching and no error.
pub(super) fn app_op(bytes: &[u8; CQE_BYTES]) -> Option<TmAppOp> {
    let cqe = TmCqe::from_bytes(*bytes);
    let is_success = matches!(
        cqe.opcode(),
        CqeOpcode::NO_PACKET | CqeOpcode::RESP_SEND | CqeOpcode::RESP_SEND_IMM | CqeOpcode::RESP_SEND_INV
    );
    (is_success && cqe.app() == CqeApp::TAG_MATCHING).then(|| cqe.app_op())
}

/// The same in a sentence.
pub(super) fn sentence(bytes: &[u8; CQE_BYTES]) -> Option<String> {
    let app_op = app_op(bytes)?;
    let (cqe, list) = (TmCqe::from_bytes(*bytes), TmListCqe::from_bytes(*bytes));
    let (qpn, len_bytes) = (cqe.qpn(), cqe.byte_cnt());
    let entry = format!("the tag in entry {}", cqe.app_info());
    let header = format!("{entry}, with tag 0x{:x} from QP {qpn}'s peer", cqe.tmh().tag());
    let operation = format!("at WQE 0x{:04x} of QP {qpn} is done", list.wqe_counter());
    let n_unexpected = list.outcome().hw_phase_cnt();
    let untagged = format!("a message of {len_bytes} bytes, header included, has arrived on QP {qpn}");
    let wqe = format!("WQE 0x{:04x} of the XRQ", cqe.wqe_counter());
    Some(match app_op {
        TmAppOp::CONSUMED => format!("a message took {header}; its data are still to come"),
        TmAppOp::EXPECTED => format!("the {len_bytes} bytes for {entry} are there"),
        TmAppOp::CONSUMED_MSG => format!("a message of {len_bytes} bytes took {header}"),
        TmAppOp::CONSUMED_SW_RDNV => format!("a rendezvous took {header}; software has to read its data"),
        TmAppOp::CONSUMED_MSG_SW_RDNV => format!(
            "a rendezvous took {header}; software has to read its data, and the tag's memory has its headers ({len_bytes} bytes)"
        ),
        TmAppOp::MSG_COMPLETION_CANCELED => format!("a message took {entry}, and its data will not come"),
        TmAppOp::UNEXPECTED => format!("{untagged} and took no tag: it is in {wqe}"),
        TmAppOp::NO_TAG => format!("{untagged} and has no tag: it is in {wqe}"),
        TmAppOp::APPEND => {
            format!(
                "APPEND {operation}: the tag is in the list ({n_unexpected} messages were unexpected so far)"
            )
        }
        TmAppOp::REMOVE if list.outcome().success() => {
            format!("REMOVE {operation}: the tag is not in the list any more")
        }
        TmAppOp::REMOVE => format!("REMOVE {operation}, in vain: a message was faster, or no tag was there"),
        TmAppOp::NOOP => {
            format!("NOP of a list of tags {operation} ({n_unexpected} messages were unexpected so far)")
        }
        _ => return None,
    })
}
