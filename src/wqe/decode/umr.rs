//! The segments of a UMR.

use super::{DecodeError, Rule, Segment, Segments};
use crate::{
    mlx5::{context::Mkc, layout::Layout},
    wqe::*,
};

/// Where in a UMR the walk is, and what is left of its lists.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    /// Octowords of the translation list.
    n_octowords: usize,
    /// Of these, pieces of a repeated block.
    n_repeated: usize,
    /// The list is elsewhere, and a data segment says where.
    is_named: bool,
    /// The list is of pages.
    is_pages: bool,
    /// The second page of an octoword.
    second_page: Option<MttEntry>,
    /// Octowords of the byte stream format.
    n_bsf_octowords: usize,
    /// Sections of a signature that are still to come.
    n_sections: usize,
}

impl<'a> Segments<'a> {
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
                // Too short, as is said at the end.
                self.at_bytes = self.bytes.len();
                return Ok(None);
            };
            self.at_bytes = list_at;
            self.begin_list()?;
            return Ok(Some(Segment::Mkc(Mkc::from_bytes(*context))));
        }
        if let Some(page) = self.umr.second_page.take() {
            self.at_bytes += size_of::<MttEntry>();
            return Ok(Some(Segment::Mtt(page)));
        }
        if self.umr.is_named {
            self.umr.is_named = false;
            return Ok(Some(Segment::Data(DataSeg::from_bytes(self.take()))));
        }
        if self.umr.n_octowords > 0 {
            self.umr.n_octowords -= 1;
            let octoword = self.take();
            if self.umr.n_repeated > 0 {
                self.umr.n_repeated -= 1;
                return Ok(Some(Segment::RepeatEntry(RepeatEntrySeg::from_bytes(octoword))));
            }
            if self.umr.is_pages {
                let [first, second] = pages(octoword);
                self.umr.second_page = Some(second);
                self.at_bytes -= size_of::<MttEntry>();
                return Ok(Some(Segment::Mtt(first)));
            }
            let entry = KlmEntry::from_bytes(octoword);
            if entry.mkey() == KlmEntry::REPEAT {
                let block = RepeatBlockSeg::from_bytes(octoword);
                self.umr.n_repeated = block.num_entries().into();
                return Ok(Some(Segment::RepeatBlock(block)));
            }
            return Ok(Some(Segment::Klm(entry)));
        }
        Ok(Some(self.bsf()))
    }

    /// Passes over zeros that fill a list up.
    pub(super) fn skip_padding(&mut self) {
        if self.umr.second_page == Some(MttEntry::new()) {
            self.umr.second_page = None;
            self.at_bytes += size_of::<MttEntry>();
        }
        let is_at_entry = self.umr.n_repeated == 0 && self.umr.second_page.is_none();
        while is_at_entry
            && self.umr.n_octowords > 0
            && self.bytes[self.at_bytes..].starts_with(&[0; SEGMENT_BYTES])
        {
            self.umr.n_octowords -= 1;
            self.at_bytes += SEGMENT_BYTES;
        }
    }

    /// What follows the list.
    fn bsf(&mut self) -> Segment<'a> {
        let is_tls = self.ctrl.opmod() != 0;
        let room_octowords = (self.bytes.len() - self.at_bytes) / SEGMENT_BYTES;
        if self.umr.n_sections > 0 && room_octowords > 0 {
            self.umr.n_sections -= 1;
            let section = self.take();
            return match self.umr.n_sections {
                2 => Segment::BsfExt(BsfExt::from_bytes(section)),
                1 => Segment::BsfWire(BsfInl::from_bytes(section)),
                _ => Segment::BsfMem(BsfInl::from_bytes(section)),
            };
        }
        if self.umr.n_bsf_octowords < 4 || room_octowords < 4 {
            return self.rest();
        }
        let at = self.at_bytes;
        if let Some(whole) = self.bytes[at..].first_chunk::<64>() {
            let crypto = BsfCrypto::from_bytes(*whole);
            if is_tls || crypto.bsf_type() == 1 {
                self.at_bytes += whole.len();
                self.umr.n_bsf_octowords -= 4;
                return match is_tls {
                    true => Segment::TlsStatic(TlsStaticParams::from_bytes(*whole)),
                    false => Segment::BsfCrypto(crypto),
                };
            }
        }
        // Of a signature: this, its extension, and a section for each side.
        self.umr.n_bsf_octowords -= 4;
        self.umr.n_sections = 3;
        Segment::BsfBasic(BsfBasic::from_bytes(self.take()))
    }

    /// Looks at the list that begins here, as the UMR control segment has it.
    fn begin_list(&mut self) -> Result<(), DecodeError> {
        let ctrl = self.bytes[SEGMENT_BYTES..].first_chunk().copied().map(UmrCtrlSeg::from_bytes);
        let ctrl = ctrl.unwrap_or_default();
        let n_octowords = usize::from(ctrl.klm_octowords());
        let is_named = !ctrl.inline() && n_octowords > 0;
        let here = if is_named { 1 } else { n_octowords };
        let room_octowords = (self.bytes.len() - self.at_bytes) / SEGMENT_BYTES;
        if here > room_octowords && self.shortage().is_none() {
            return self.broken(Rule::ListLength { n_octowords: here, room_octowords });
        }
        let n_octowords = n_octowords.min(room_octowords);
        let bsf = ctrl.translation_offset_or_bsf_octowords().into();
        self.umr = State {
            n_octowords: if is_named { 0 } else { n_octowords },
            is_named: is_named && room_octowords > 0,
            is_pages: !is_named && self.is_list_of_pages(n_octowords),
            n_bsf_octowords: if ctrl.translation_offset_en() { 0 } else { bsf },
            ..State::default()
        };
        Ok(())
    }

    /// Whether all entries of a list look like pages: an address of 4,096 bytes' alignment, with a permission.
    fn is_list_of_pages(&self, n_octowords: usize) -> bool {
        let list = &self.bytes[self.at_bytes..][..n_octowords * SEGMENT_BYTES];
        let mut entries = list.as_chunks::<8>().0.iter().map(|bytes| u64::from_be_bytes(*bytes));
        entries.all(|entry| entry == 0 || (1..=3).contains(&(entry & 0xfff))) && list.iter().any(|b| *b != 0)
    }
}

fn pages(octoword: [u8; SEGMENT_BYTES]) -> [MttEntry; 2] {
    let (first, second) = octoword.split_at(8);
    [first, second].map(|half| half.first_chunk().copied().map(MttEntry::from_bytes).unwrap_or_default())
}
