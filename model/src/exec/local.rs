//! Requests that send nothing: what they ask of the device itself.

use super::{
    completion::Failure,
    config::QpConfig,
    courier::right,
    host::{Host, Need, Rule},
    tag_matching::TagWqe,
    umr::UmrWqe,
    wqe::{Broken, need, reserved, segment},
};
use mlx5_direct::wqe::{DataSeg, MmoSeg, SEGMENT_BYTES, SendOpcode, SetPsvSeg};

/// Most bytes that one request copies (`log_dma_mmo_max_size`).
pub const LOG_MAX_COPY_BYTES: u8 = 20;
/// `ctrl.opmod` of a copy. Others compress, or look for expressions.
pub(super) const OPMOD_COPY: u8 = 1;
/// Bytes copied at a time.
const CHUNK_BYTES: u64 = 64 << 10;

/// One such request.
#[derive(Debug, Clone)]
pub(super) enum LocalWqe {
    /// Changes a memory key.
    Umr(Box<UmrWqe>),
    /// Sets what a signature begins with.
    SetPsv(SetPsvSeg),
    /// Copies memory.
    Copy { from: DataSeg, to: DataSeg },
    /// Changes a list of tags.
    Tags(TagWqe),
}

impl LocalWqe {
    /// Reads the segments behind the control segment, if the opcode is one of such a request.
    pub(super) fn read(opcode: SendOpcode, bytes: &[u8]) -> Result<Option<Self>, Broken> {
        let at = SEGMENT_BYTES;
        Ok(Some(match opcode {
            SendOpcode::UMR => Self::Umr(Box::new(UmrWqe::read(bytes)?)),
            SendOpcode::SET_PSV => {
                let segment = need(bytes, at, "SET_PSV")?;
                reserved::<SetPsvSeg>(&segment)?;
                Self::SetPsv(SetPsvSeg::from_bytes(segment))
            }
            SendOpcode::MMO => {
                need::<{ 3 * SEGMENT_BYTES }>(bytes, at, "MMO, source and destination")?;
                reserved::<MmoSeg>(&bytes[at..at + SEGMENT_BYTES])?;
                let piece = |n: usize| DataSeg::from_bytes(segment(bytes, at + n * SEGMENT_BYTES));
                Self::Copy { from: piece(1), to: piece(2) }
            }
            SendOpcode::TAG_MATCHING => Self::Tags(TagWqe::read(bytes)?),
            _ => return Ok(None),
        }))
    }

    /// Whether its execution has completed it, in a CQE of its own kind.
    pub(super) fn is_completed(&self) -> bool {
        matches!(self, Self::Tags(tags) if tags.is_completed())
    }

    /// Does it; `imm` is the control segment's.
    pub(super) fn execute(
        &self,
        host: &mut dyn Host,
        config: &QpConfig,
        index: u16,
        imm: u32,
    ) -> Result<(), Failure> {
        match self {
            Self::Umr(umr) => umr.execute(host, config, imm),
            Self::SetPsv(segment) => {
                if host.set_psv(config.pd, segment) {
                    Ok(())
                } else {
                    Err(Failure::LOCAL_QP_OP)
                }
            }
            Self::Copy { .. } if !config.mmo => {
                let detail = format_args!("an MMO on a QP whose extended context does not allow it");
                host.violation(config.qpn, Some(index), Rule::WqeOpcode, detail);
                Err(Failure::LOCAL_QP_OP)
            }
            Self::Copy { from, to } => copy(host, config, from, to),
            Self::Tags(tags) => tags.execute(host, config, index),
        }
    }
}

/// Copies from one piece of memory to another, wholly or not at all.
fn copy(host: &mut dyn Host, config: &QpConfig, from: &DataSeg, to: &DataSeg) -> Result<(), Failure> {
    // 2 GiB are written as 0, and are more than can be copied here.
    let len_bytes = u64::from(from.len_bytes());
    if !(1..=1 << LOG_MAX_COPY_BYTES).contains(&len_bytes) || to.len_bytes() != from.len_bytes() {
        return Err(Failure::LOCAL_LENGTH);
    }
    let source = right(config, from.lkey().get(), Need::LocalRead);
    let destination = right(config, to.lkey().get(), Need::LocalWrite);
    let checked = host.check(&source, from.addr(), len_bytes);
    let checked = checked.and_then(|()| host.check(&destination, to.addr(), len_bytes));
    checked.map_err(|_| Failure::SEND_PROTECTION)?;
    let mut bytes = vec![0; len_bytes.min(CHUNK_BYTES) as usize];
    for at in (0..len_bytes).step_by(CHUNK_BYTES as usize) {
        let chunk = &mut bytes[..(len_bytes - at).min(CHUNK_BYTES) as usize];
        let moved = host.read(&source, from.addr().wrapping_add(at), chunk);
        let moved = moved.and_then(|()| host.write(&destination, to.addr().wrapping_add(at), chunk));
        moved.map_err(|_| Failure::SEND_PROTECTION)?;
    }
    Ok(())
}
