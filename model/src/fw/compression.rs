//! CQE compression: completions of a kind share the room of a few.
//!
//! They gather while the function has other things to do. Then the first is written whole, as the title of a session, and what
//! differs in each of them as mini CQEs, eight to a slot. The slots of the others stay as they are.
#![forbid(unsafe_code)]

use super::{Function, cq::CQE_BYTES};
use crate::exec::{Cqe, Wake};
use mlx5_direct::{
    cqe::{
        CompressedTitleCqe, CqeApp, CqeFormat, CqeOpcode, EthernetCqe, MiniCqe, MiniCqeChecksum,
        MiniCqeRequester, RequesterCqe, TmCqe,
    },
    mlx5::context::MiniCqeFormat,
    wqe::SendOpcode,
};

/// Completions of a session at most (`cqe_compression_max_num`).
pub(super) const MAX_SESSION: u16 = 64;
/// Mini CQEs of a slot.
const MINIS: usize = CQE_BYTES / size_of::<MiniCqe>();
/// A completion waits for others no longer than this while the function is busy (`cqe_compression_timeout`, in µs).
pub(super) const TIMEOUT_US: u16 = 16;

/// Completions that wait for more of their kind.
#[derive(Debug, Default)]
pub(super) struct Session {
    cqes: Vec<[u8; CQE_BYTES]>,
    /// Whether one of them is solicited or failed.
    wakes: bool,
}

/// Whether completions may be one session: they differ in nothing but what a mini CQE has, and in what is lost.
fn are_alike(first: &[u8; CQE_BYTES], cqe: &[u8; CQE_BYTES]) -> bool {
    let shared = |cqe: &[u8; CQE_BYTES]| {
        let receive = EthernetCqe::from_bytes(*cqe)
            .with_rss_hash_result(0)
            .with_check_sum(0)
            .with_byte_cnt(0)
            .with_timestamp(0)
            .with_wqe_counter(0);
        match receive.opcode() {
            CqeOpcode::REQ => {
                RequesterCqe::from_bytes(receive.to_bytes()).with_send_wqe_opcode(SendOpcode(0)).to_bytes()
            }
            _ => receive.to_bytes(),
        }
    };
    shared(first) == shared(cqe)
}

impl Session {
    pub(super) fn len(&self) -> u32 {
        self.cqes.len() as u32
    }

    /// Whether a completion goes on with it, where `n_slots` are left to the end of the ring, which a session does not cross.
    /// Counters of receives rise by one, since no mini CQE has them.
    fn takes(&self, cqe: &[u8; CQE_BYTES], n_slots: u32) -> bool {
        let Some(first) = self.cqes.first() else { return true };
        let counter = |cqe: &[u8; CQE_BYTES]| RequesterCqe::from_bytes(*cqe).wqe_counter();
        let follows = RequesterCqe::from_bytes(*cqe).opcode() == CqeOpcode::REQ
            || counter(cqe) == counter(first).wrapping_add(self.cqes.len() as u16);
        self.len() < n_slots.min(MAX_SESSION.into()) && follows && are_alike(first, cqe)
    }
}

/// Whether a completion may be compressed: it is a success, and has no data.
fn may_be_compressed(cqe: &Cqe) -> bool {
    let kind = RequesterCqe::from_bytes(cqe.bytes);
    let is_success = matches!(
        kind.opcode(),
        CqeOpcode::REQ
            | CqeOpcode::RESP_SEND
            | CqeOpcode::RESP_SEND_IMM
            | CqeOpcode::RESP_SEND_INV
            | CqeOpcode::RESP_WR_IMM
    );
    // Of tag matching, a mini CQE would have neither entry nor header.
    let of_tags = TmCqe::from_bytes(cqe.bytes).app() == CqeApp::TAG_MATCHING;
    is_success && !of_tags && kind.format() == CqeFormat::NO_INLINE_DATA
}

/// What differs from the title, in the form that the CQ asks for.
fn mini(cqe: &[u8; CQE_BYTES], format: MiniCqeFormat) -> [u8; size_of::<MiniCqe>()] {
    let request = RequesterCqe::from_bytes(*cqe);
    let receive = EthernetCqe::from_bytes(*cqe);
    let checksum =
        MiniCqeChecksum::new().with_checksum(receive.check_sum()).with_byte_cnt(receive.byte_cnt());
    match format {
        _ if request.opcode() == CqeOpcode::REQ => MiniCqeRequester::new()
            .with_wqe_counter(request.wqe_counter())
            .with_s_wqe_opcode(request.send_wqe_opcode())
            .with_byte_cnt(request.byte_cnt())
            .to_bytes(),
        MiniCqeFormat::CSUM => checksum.to_bytes(),
        MiniCqeFormat::CSUM_STRIDX => checksum.with_stride_idx(receive.wqe_counter()).to_bytes(),
        _ => MiniCqe::new()
            .with_rx_hash_result(receive.rss_hash_result())
            .with_byte_cnt(receive.byte_cnt())
            .to_bytes(),
    }
}

impl Function {
    /// Lets a completion wait for others of its kind, if the CQ compresses and it may be. Returns whether it does.
    pub(super) fn waits_for_others(&mut self, number: u32, cqe: &Cqe, wake: Wake) -> bool {
        let Some(cq) = self.cqs.get(number) else { return false };
        if !cq.context.cqe_comp_en() || cq.context.cc() || !may_be_compressed(cqe) {
            return false;
        }
        let n_slots = cq.n_slots() - (cq.producer & (cq.n_slots() - 1));
        if !cq.session.takes(&cqe.bytes, n_slots) {
            self.end_session(number);
        }
        let Some(cq) = self.cqs.get_mut(number) else { return false };
        cq.session.cqes.push(cqe.bytes);
        cq.session.wakes |= wake == Wake::Solicited;
        let due_ns = self.clock.now_ns() + u64::from(TIMEOUT_US) * 1000;
        self.cq_sessions.entry(number).or_insert(due_ns);
        true
    }

    /// Ends the sessions that have waited long enough, and all if there is nothing else to do.
    pub(super) fn run_cq_sessions(&mut self, is_idle: bool) -> bool {
        let now = self.clock.now_ns();
        let due = |(_, at): &(&u32, &u64)| is_idle || **at <= now;
        let due: Vec<u32> = self.cq_sessions.iter().filter(due).map(|(cqn, _)| *cqn).collect();
        for number in &due {
            self.end_session(*number);
        }
        !due.is_empty()
    }

    /// Writes what waits: one completion as any other, several as a session.
    pub(super) fn end_session(&mut self, number: u32) {
        self.cq_sessions.remove(&number);
        let Some(cq) = self.cqs.get_mut(number) else { return };
        let Session { cqes, wakes } = std::mem::take(&mut cq.session);
        let Some(first) = cqes.first() else { return };
        let n = cqes.len();
        if n > 1 {
            self.n_sessions += 1;
            let (producer, format) = (cq.producer, cq.context.mini_cqe_res_format());
            for (k, group) in cqes.chunks(MINIS).enumerate() {
                let mut slot = [0; CQE_BYTES];
                for (room, cqe) in slot.chunks_exact_mut(size_of::<MiniCqe>()).zip(group) {
                    room.copy_from_slice(&mini(cqe, format));
                }
                // Behind the title, and from the title on in every eighth.
                self.write_slot(number, producer.wrapping_add((k * MINIS).max(1) as u32), None, &slot);
            }
        }
        let title = match n {
            1 => *first,
            _ => CompressedTitleCqe::from_bytes(*first)
                .with_byte_cnt(n as u32)
                .with_format(CqeFormat::COMPRESSED)
                .to_bytes(),
        };
        self.write_cqe(number, &Cqe { bytes: title, before: None }, None);
        if let Some(cq) = self.cqs.get_mut(number) {
            cq.producer = cq.producer.wrapping_add(n as u32 - 1);
        }
        let wake = if wakes { Wake::Solicited } else { Wake::Any };
        self.completions_are_there(number, n as u32, wake, true);
    }
}
