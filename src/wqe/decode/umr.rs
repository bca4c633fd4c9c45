//! The segments of a UMR.

use super::{DecodeError, Rule, Segment, Walk};
use crate::{
    mlx5::{context::Mkc, layout::Layout},
    wqe::{DataSeg, KlmEntry, RepeatBlockSeg, RepeatEntrySeg, SEGMENT_BYTES, UmrCtrlSeg},
};

/// What is left of a translation list in the WQE.
#[derive(Debug, Default)]
pub(super) struct List {
    /// Octowords.
    n_octowords: usize,
    /// Of these, pieces of a repeated block.
    n_repeated: usize,
    /// The list is elsewhere, and a data segment says where.
    is_named: bool,
}

impl<'a> Walk<'a> {
    /// The next segment of a UMR, behind the control segment.
    pub(super) fn umr(&mut self) -> Result<Option<Segment<'a>>, DecodeError> {
        let context_at = SEGMENT_BYTES + size_of::<UmrCtrlSeg>();
        let list_at = context_at + Mkc::DESC.size_bytes;
        if self.at_bytes < list_at {
            let bytes = &self.bytes[self.at_bytes..];
            if self.at_bytes == SEGMENT_BYTES
                && let Some(ctrl) = bytes.first_chunk()
            {
                self.at_bytes = context_at;
                return Ok(Some(Segment::UmrCtrl(UmrCtrlSeg::from_bytes(*ctrl))));
            }
            let Some(context) = bytes.first_chunk() else {
                // Too short, as `end` says.
                self.at_bytes = self.bytes.len();
                return Ok(None);
            };
            self.at_bytes = list_at;
            self.list = self.list()?;
            return Ok(Some(Segment::Mkc(Mkc::from_bytes(*context))));
        }
        if self.list.is_named {
            self.list.is_named = false;
            return Ok(Some(Segment::Data(DataSeg::from_bytes(self.take()))));
        }
        while self.list.n_octowords > 0 {
            self.list.n_octowords -= 1;
            let octoword = self.take();
            if self.list.n_repeated > 0 {
                self.list.n_repeated -= 1;
                return Ok(Some(Segment::RepeatEntry(RepeatEntrySeg::from_bytes(octoword))));
            }
            let entry = KlmEntry::from_bytes(octoword);
            if entry.mkey() == KlmEntry::REPEAT {
                let block = RepeatBlockSeg::from_bytes(octoword);
                self.list.n_repeated = block.num_entries().into();
                return Ok(Some(Segment::RepeatBlock(block)));
            }
            if octoword != [0; SEGMENT_BYTES] {
                return Ok(Some(Segment::Klm(entry)));
            }
        }
        // A signature's block, or nothing.
        Ok((self.at_bytes < self.bytes.len()).then(|| self.rest()))
    }

    /// The list that begins here, as the UMR control segment has it.
    fn list(&self) -> Result<List, DecodeError> {
        let ctrl = self.bytes[SEGMENT_BYTES..].first_chunk().copied().map(UmrCtrlSeg::from_bytes);
        let ctrl = ctrl.unwrap_or_default();
        let n_octowords = usize::from(ctrl.klm_octowords());
        let is_named = !ctrl.inline() && n_octowords > 0;
        let here = if is_named { 1 } else { n_octowords };
        let room_octowords = (self.bytes.len() - self.at_bytes) / SEGMENT_BYTES;
        if here > room_octowords {
            return self.broken(Rule::ListLength { n_octowords: here, room_octowords });
        }
        Ok(List { n_octowords: if is_named { 0 } else { n_octowords }, n_repeated: 0, is_named })
    }
}
