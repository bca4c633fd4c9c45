//! One request on its way: a WQE that was started, and its packets.

use super::{
    completion::Failure,
    config::QpConfig,
    courier::{Courier, right},
    host::{Host, KeyFault, Need, Right},
    wqe::{Piece, SendWqe, for_each_part},
};
use crate::wire::{DcEth, Headers, Opcode, Reth};
use mlx5_direct::{mlx5::ids::Psn, wqe::SendOpcode};

/// Request packets that may be unacknowledged.
pub(super) const WINDOW_PACKETS: u32 = 128;
/// A WQE that was started.
#[derive(Debug, Default)]
pub(super) struct Request {
    pub(super) wqe: SendWqe,
    pub(super) first_psn: Psn,
    /// PSNs it takes: its packets, or for READ and atomics those of the response. 0 for NOP.
    pub(super) n_psns: u32,
    /// PSNs acknowledged, from the first on; for a READ, response packets that came.
    pub(super) acked: u32,
    /// Request packets sent since the last step back; never below `acked` of a SEND or WRITE.
    pub(super) sent: u32,
    /// It cannot go on; its turn to say so comes when all before it are done.
    pub(super) failed: Option<Failure>,
}

impl Request {
    /// Request packets it takes.
    pub(super) fn n_to_send(&self) -> u32 {
        if self.wqe.is_read_or_atomic() { 1 } else { self.n_psns }
    }

    pub(super) fn psn_at(&self, n: u32) -> Psn {
        self.first_psn.plus(n)
    }
}

/// The opcode of packet `n` of `last + 1`.
fn data_opcode(wqe: &SendWqe, n: u32, last: u32) -> Opcode {
    let write = matches!(wqe.opcode(), SendOpcode::RDMA_WRITE | SendOpcode::RDMA_WRITE_IMM);
    let imm = matches!(wqe.opcode(), SendOpcode::SEND_IMM | SendOpcode::RDMA_WRITE_IMM);
    let invalidate = wqe.opcode() == SendOpcode::SEND_INVAL;
    match (n == 0, n == last, write) {
        (true, false, true) => Opcode::WRITE_FIRST,
        (true, false, false) => Opcode::SEND_FIRST,
        (false, false, true) => Opcode::WRITE_MIDDLE,
        (false, false, false) => Opcode::SEND_MIDDLE,
        (true, true, true) if imm => Opcode::WRITE_ONLY_IMM,
        (true, true, true) => Opcode::WRITE_ONLY,
        (true, true, false) if imm => Opcode::SEND_ONLY_IMM,
        (true, true, false) if invalidate => Opcode::SEND_ONLY_INV,
        (true, true, false) => Opcode::SEND_ONLY,
        (false, true, true) if imm => Opcode::WRITE_LAST_IMM,
        (false, true, true) => Opcode::WRITE_LAST,
        (false, true, false) if imm => Opcode::SEND_LAST_IMM,
        (false, true, false) if invalidate => Opcode::SEND_LAST_INV,
        (false, true, false) => Opcode::SEND_LAST,
    }
}

/// Sends the next packet of a SEND or WRITE. `window_full`: no other may follow before an acknowledgement.
pub(super) fn send_data(
    host: &mut dyn Host,
    config: &QpConfig,
    courier: &mut Courier,
    request: &Request,
    dc: Option<DcEth>,
    window_full: bool,
) -> Result<(), KeyFault> {
    let wqe = &request.wqe;
    let (n, last) = (request.sent, request.n_psns - 1);
    let opcode = data_opcode(wqe, n, last);
    let Some(mut headers) = courier.headers(host, config, opcode, request.psn_at(n)) else { return Ok(()) };
    let offset = u64::from(n) * u64::from(config.mtu_bytes);
    let len = (wqe.len_bytes - offset).min(u64::from(config.mtu_bytes));
    headers.reth = Some(Reth { addr: wqe.raddr, rkey: wqe.rkey, len_bytes: wqe.len_bytes as u32 });
    (headers.imm, headers.invalidate) = (Some(wqe.imm), Some(wqe.imm));
    (headers.xrc_srqn, headers.dc) = (Some(wqe.xrc_srqn), dc);
    headers.bth.solicited = n == last && wqe.solicited;
    // Often enough that the window never closes for want of an acknowledgement.
    let every = (1u32 << config.log_ack_req_freq.min(31)).min(WINDOW_PACKETS / 4);
    headers.bth.ack_req =
        config.service.is_acknowledged() && (n == last || (n + 1).is_multiple_of(every) || window_full);
    let right = right(config, 0, Need::LocalRead);
    courier.send(host, &headers, len as usize, |host, payload| {
        for_each_part(&wqe.pieces, offset, len, |part, range| match part {
            Piece::Memory { lkey, addr, .. } => {
                host.read(&Right { key: lkey, ..right }, addr, &mut payload[range])
            }
            Piece::Inline { start, .. } => {
                let data = &wqe.inline[start..start + range.len()];
                payload[range].copy_from_slice(data);
                Ok(())
            }
        })
    })
}

/// Sends the packet that asks for a READ or an atomic.
pub(super) fn send_read_or_atomic(
    host: &mut dyn Host,
    config: &QpConfig,
    courier: &mut Courier,
    request: &Request,
    dc: Option<DcEth>,
) -> Result<(), KeyFault> {
    let wqe = &request.wqe;
    let opcode = wqe.atomic.map_or(Opcode::READ_REQUEST, |atomic| atomic.opcode());
    let psn = request.psn_at(request.acked);
    let headers: Option<Headers> = courier.headers(host, config, opcode, psn);
    let Some(mut headers) = headers else { return Ok(()) };
    // A READ that was answered in part is asked for again from there.
    let done = u64::from(request.acked) * u64::from(config.mtu_bytes);
    let (addr, rkey) = (wqe.raddr.wrapping_add(done), wqe.rkey);
    headers.reth = Some(Reth { addr, rkey, len_bytes: wqe.len_bytes.saturating_sub(done) as u32 });
    (headers.atomic, headers.masks) = wqe.atomic.map(|atomic| atomic.headers(addr, rkey)).unzip();
    (headers.xrc_srqn, headers.dc) = (Some(wqe.xrc_srqn), dc);
    headers.bth.ack_req = true;
    courier.send(host, &headers, 0, |_, _| Ok(()))
}
