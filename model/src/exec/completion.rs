//! CQEs that a QP makes.

use super::{
    config::QpConfig,
    counter::Counter,
    cqe::Cqe,
    host::{Host, RoceKind, Wake},
    receive::Taken,
    tag_matching::{self, Matched},
    wqe::SendWqe,
};
use crate::wire::{Headers, LinkHeader};
use mlx5_direct::{
    cqe::{CqeOpcode, CqeSyndrome, ErrorCqe, RequesterCqe, ResponderCqe},
    wqe::{CompletionMode, SendOpcode},
};

/// Why a WQE failed: syndrome, and a vendor syndrome as public reports show beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) syndrome: CqeSyndrome,
    pub(super) vendor: u8,
}

macro_rules! failures {
    ($($name:ident $syndrome:ident $vendor:literal),* $(,)?) => { impl Failure {
        $(pub(super) const $name: Self = Self { syndrome: CqeSyndrome::$syndrome, vendor: $vendor };)*
    } };
}

failures! {
    LOCAL_LENGTH LOCAL_LENGTH_ERR 0x32,
    LOCAL_QP_OP LOCAL_QP_OP_ERR 0x68,
    SEND_PROTECTION LOCAL_PROT_ERR 0x53,
    RECEIVE_PROTECTION LOCAL_PROT_ERR 0x51,
    FLUSH WR_FLUSH_ERR 0xf9,
    MEMORY_WINDOW_BIND MW_BIND_ERR 0x78,
    BAD_RESPONSE BAD_RESP_ERR 0x99,
    LOCAL_ACCESS LOCAL_ACCESS_ERR 0x52,
    REMOTE_INVALID_REQUEST REMOTE_INVAL_REQ_ERR 0x8a,
    REMOTE_ACCESS REMOTE_ACCESS_ERR 0x88,
    REMOTE_OPERATION REMOTE_OP_ERR 0x89,
    RETRY_EXCEEDED TRANSPORT_RETRY_EXC_ERR 0x81,
    RNR_RETRY_EXCEEDED RNR_RETRY_EXC_ERR 0x87,
}

/// How far the CQE of a send WQE that is done wakes software, if it asks for one.
pub(super) fn wake(wqe: &SendWqe) -> Option<Wake> {
    match wqe.ce() {
        CompletionMode::ALWAYS => Some(Wake::Any),
        CompletionMode::CQE_AND_EQE => Some(Wake::Solicited),
        _ => None,
    }
}

/// Posts the CQE of a send WQE that is done, if it asks for one; with it go `data` that came back and are not in memory.
/// Returns whether it did.
pub(super) fn send_done(host: &mut dyn Host, config: &QpConfig, wqe: &SendWqe, data: &[u8]) -> bool {
    let Some(wake) = wake(wqe) else { return false };
    let byte_cnt = if wqe.is_read_or_atomic() { wqe.len_bytes as u32 } else { 0 };
    let cqe = RequesterCqe::new()
        .with_user_index(config.user_index)
        .with_byte_cnt(byte_cnt)
        .with_timestamp(host.now())
        .with_send_wqe_opcode(wqe.opcode())
        .with_qpn(config.qpn)
        .with_wqe_counter(wqe.index)
        .with_opcode(CqeOpcode::REQ);
    host.post_cqe(config.cqn_send, &Cqe::from(cqe).carrying(data, config.cs_req_bytes), wake);
    true
}

/// Posts the error CQE of a send WQE.
pub(super) fn send_failed(host: &mut dyn Host, config: &QpConfig, wqe: &SendWqe, failure: Failure) {
    let cqe = error_cqe(config, failure, wqe.index)
        .with_srqn_or_user_index(config.user_index)
        .with_send_wqe_opcode(wqe.opcode())
        .with_opcode(CqeOpcode::REQ_ERR);
    let cause = match failure {
        Failure::LOCAL_LENGTH => Some(Counter::ReqLocalLengthError),
        Failure::LOCAL_QP_OP => Some(Counter::LocalOperationError),
        Failure::SEND_PROTECTION => Some(Counter::ReqLocalProtection),
        Failure::FLUSH => Some(Counter::ReqCqeFlushError),
        Failure::MEMORY_WINDOW_BIND => Some(Counter::ReqMwBinding),
        Failure::BAD_RESPONSE => Some(Counter::ReqBadResponse),
        Failure::REMOTE_INVALID_REQUEST => Some(Counter::ReqRemoteInvalidRequest),
        Failure::REMOTE_ACCESS => Some(Counter::ReqRemoteAccessErrors),
        Failure::REMOTE_OPERATION => Some(Counter::ReqRemoteOperationErrors),
        Failure::RETRY_EXCEEDED => Some(Counter::ReqTransportRetriesExceeded),
        _ => None,
    };
    for counter in cause.into_iter().chain([Counter::ReqCqeError]) {
        host.count(config.qpn, counter);
    }
    host.post_cqe(config.cqn_send, &cqe.into(), Wake::Solicited);
}

/// Posts the error CQE of a receive WQE.
pub(super) fn receive_failed(host: &mut dyn Host, config: &QpConfig, taken: &Taken, failure: Failure) {
    if let Some(Matched::Tag { queue, index, .. }) = taken.matched {
        return tag_matching::canceled(host, config, queue, index);
    }
    let cqe = error_cqe(config, failure, taken.wqe_counter)
        .with_srqn_or_user_index(taken.user_index)
        .with_send_wqe_opcode(SendOpcode(0))
        .with_opcode(CqeOpcode::RESP_ERR);
    let cause = match failure {
        Failure::LOCAL_LENGTH => Some(Counter::RespLocalLengthError),
        Failure::LOCAL_QP_OP => Some(Counter::RespLocalQpError),
        Failure::RECEIVE_PROTECTION => Some(Counter::RespLocalProtection),
        Failure::FLUSH => Some(Counter::RespCqeFlushError),
        _ => None,
    };
    for counter in cause.into_iter().chain([Counter::RespCqeError]) {
        host.count(config.qpn, counter);
    }
    host.post_cqe(taken.cqn, &cqe.into(), Wake::Solicited);
}

fn error_cqe(config: &QpConfig, failure: Failure, wqe_counter: u16) -> ErrorCqe {
    ErrorCqe::new()
        .with_vendor_err_synd(failure.vendor)
        .with_syndrome(failure.syndrome)
        .with_qpn(config.qpn)
        .with_wqe_counter(wqe_counter)
}

/// Posts the CQE of a receive WQE that took a message whose last packet had `headers`; with it go `data` of the message
/// that are not in memory.
pub(super) fn receive_done(
    host: &mut dyn Host,
    config: &QpConfig,
    headers: &Headers,
    taken: &Taken,
    len_bytes: u64,
    data: &[u8],
) {
    let (opcode, imm) = match (headers.bth.opcode.is_write(), headers.imm, headers.invalidate) {
        (true, imm, _) => (CqeOpcode::RESP_WR_IMM, imm.unwrap_or(0)),
        (false, Some(imm), _) => (CqeOpcode::RESP_SEND_IMM, imm),
        (false, None, Some(rkey)) => (CqeOpcode::RESP_SEND_INV, rkey),
        (false, None, None) => (CqeOpcode::RESP_SEND, 0),
    };
    let network = headers.network.map(|network| network.kind);
    let (sl, slid) = match headers.link {
        LinkHeader::InfiniBand(lrh) => (lrh.sl, lrh.source_lid),
        // RoCE puts here what InfiniBand has its service level for: [3] UDP present, [2:0] network header.
        LinkHeader::Ethernet(_) => match network {
            Some(RoceKind::V1) | None => (0, 0),
            Some(RoceKind::V2Ipv6) => (8 | 1, 0),
            Some(RoceKind::V2Ipv4) => (8 | 2, 0),
        },
    };
    let solicited = headers.bth.solicited;
    let cqe = ResponderCqe::new()
        .with_sl(sl)
        .with_slid(slid)
        .with_grh((headers.deth.is_some() && network.is_some()).into())
        .with_rqpn(headers.deth.map_or(config.remote_qpn, |deth| deth.source_qpn))
        .with_srqn_or_user_index(taken.user_index)
        .with_imm_inval_pkey(imm)
        .with_byte_cnt(len_bytes as u32)
        .with_timestamp(host.now())
        .with_qpn(config.qpn)
        .with_wqe_counter(taken.wqe_counter)
        .with_opcode(opcode)
        .with_se(solicited);
    let wake = if solicited { Wake::Solicited } else { Wake::Any };
    if let Some(Matched::Tag { queue, index, .. }) = taken.matched {
        host.release_tag(queue.number, index);
    }
    let cqe = taken.matched.map_or(Cqe::from(cqe), |matched| tag_matching::add_to_cqe(cqe, matched));
    host.post_cqe(taken.cqn, &cqe.carrying(data, config.cs_res_bytes), wake);
}
