//! UMR WQEs: what one asks of a memory key.

use super::{
    completion::Failure,
    config::{QpConfig, Service},
    host::{Host, Rule},
    wqe::{Broken, need, reserved, segment},
};
use mlx5_direct::{
    mlx5::{context::Mkc, ids::Pdn, ids::Qpn, layout::Layout},
    wqe::{DataSeg, SEGMENT_BYTES, UmrCtrlSeg},
};

/// Bytes of an octoword, the unit of translation lists.
const OCTOWORD_BYTES: usize = 16;

/// A change of a memory key, as a WQE asks for it.
#[derive(Debug, Clone)]
pub struct UmrRequest<'a> {
    /// The QP that asks.
    pub qpn: Qpn,
    /// Its protection domain; none for the QP that registers, which may change the keys of all.
    pub pd: Option<Pdn>,
    /// `ctrl.imm`: the key.
    pub mkey: u32,
    /// How.
    pub ctrl: UmrCtrlSeg,
    /// New values of the fields in `ctrl.mkey_mask`.
    pub context: Mkc,
    /// New translation entries.
    pub list: UmrList<'a>,
    /// What data that pass through the key have done to them: `bsf_octowords` of it, or nothing new.
    pub bsf: &'a [u8],
}

/// Where the translation entries of a UMR are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UmrList<'a> {
    /// In the WQE: `klm_octowords` of them.
    Inline(&'a [u8]),
    /// In memory, under a local key.
    Memory {
        /// The key.
        lkey: u32,
        /// Where.
        addr: u64,
        /// Bytes: at least `klm_octowords` of them.
        len_bytes: u32,
    },
}

/// Why a UMR changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UmrFault {
    /// The WQE asks for what no key can do, or the device has not. The host says which, and reports broken rules.
    Malformed,
    /// The key does not exist, is not one that this QP may change, or not in the state asked for.
    Key,
    /// The list could not be read.
    List,
}

impl From<UmrFault> for Failure {
    fn from(fault: UmrFault) -> Self {
        match fault {
            UmrFault::Malformed => Self::LOCAL_QP_OP,
            UmrFault::Key => Self::MEMORY_WINDOW_BIND,
            UmrFault::List => Self::SEND_PROTECTION,
        }
    }
}

/// The segments of a UMR WQE behind the control segment.
#[derive(Debug, Clone, Default)]
pub(super) struct UmrWqe {
    ctrl: UmrCtrlSeg,
    context: Mkc,
    inline: Vec<u8>,
    bsf: Vec<u8>,
    data: Option<DataSeg>,
}

impl UmrWqe {
    /// Reads them. Reserved bits of the context are not looked at: libmlx5 leaves them as the ring had them.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Broken> {
        let at = SEGMENT_BYTES;
        let ctrl: [u8; 48] = need(bytes, at, "UMR control")?;
        reserved::<UmrCtrlSeg>(&ctrl)?;
        let ctrl = UmrCtrlSeg::from_bytes(ctrl);
        let at = at + size_of::<UmrCtrlSeg>();
        let context = Mkc::from_bytes(need(bytes, at, "memory key context")?);
        let at = at + Mkc::DESC.size_bytes;
        let mut wqe = Self { ctrl, context, ..Self::default() };
        let len_bytes = usize::from(ctrl.klm_octowords()) * OCTOWORD_BYTES;
        let bsf_bytes = match ctrl.translation_offset_en() {
            true => 0,
            false => usize::from(ctrl.translation_offset_or_bsf_octowords()) * OCTOWORD_BYTES,
        };
        if ctrl.inline() {
            let Some(list) = bytes.get(at..at + len_bytes) else {
                let text = format!(
                    "klm_octowords {} in the WQE from +0x{at:x} on: ds = {}",
                    ctrl.klm_octowords(),
                    bytes.len() / SEGMENT_BYTES
                );
                return Err((Rule::DsTooSmall, text));
            };
            wqe.inline = list.to_vec();
            let Some(bsf) = bytes.get(at + len_bytes..at + len_bytes + bsf_bytes) else {
                let text =
                    format!("{bsf_bytes} bytes of BSF behind the list: ds = {}", bytes.len() / SEGMENT_BYTES);
                return Err((Rule::DsTooSmall, text));
            };
            wqe.bsf = bsf.to_vec();
        } else if bsf_bytes > 0 {
            let text =
                format!("bsf_octowords {}, and the list is not in the WQE", bsf_bytes / OCTOWORD_BYTES);
            return Err((Rule::UmrList, text));
        } else if len_bytes > 0 {
            need::<SEGMENT_BYTES>(bytes, at, "data")?;
            let data = DataSeg::from_bytes(segment(bytes, at));
            if data.inline() || (data.len_bytes() as usize) < len_bytes {
                let text = format!("klm_octowords {}, and the data segment {data:?}", ctrl.klm_octowords());
                return Err((Rule::UmrList, text));
            }
            wqe.data = Some(data);
        }
        Ok(wqe)
    }

    /// Has the change made.
    pub(super) fn execute(&self, host: &mut dyn Host, config: &QpConfig, mkey: u32) -> Result<(), Failure> {
        let list = self.data.map_or(UmrList::Inline(&self.inline), |data| UmrList::Memory {
            lkey: data.lkey().get(),
            addr: data.addr(),
            len_bytes: data.len_bytes(),
        });
        let pd = (config.service != Service::Registration).then_some(config.pd);
        let (qpn, ctrl, context) = (config.qpn, self.ctrl, self.context);
        host.umr(&UmrRequest { qpn, pd, mkey, ctrl, context, list, bsf: &self.bsf }).map_err(Failure::from)
    }
}
