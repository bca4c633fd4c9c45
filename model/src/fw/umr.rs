//! UMR: a work request changes a memory key.
#![forbid(unsafe_code)]

use super::{
    Function,
    mkey::Octoword,
    signature::{Recipe, read_recipe},
};
use crate::{
    exec::{Need, Right, Ring, UmrFault, UmrList, UmrRequest},
    strict::{Queue, Rule, Violation},
};
use mlx5_direct::{
    mlx5::context::Mkc,
    wqe::{MkeyMask, UmrCtrlSeg},
};

/// Translation lists come in units of 64 bytes.
const LIST_OCTOWORDS: u16 = 4;

impl Function {
    /// Makes the change, or none.
    pub(super) fn umr(&mut self, request: &UmrRequest<'_>) -> Result<(), UmrFault> {
        self.check_umr(request)?;
        let list = self.umr_list(request)?;
        let recipe = self.umr_recipe(request)?;
        let new_pd = request.context.pd().get();
        if request.ctrl.mkey_mask().has(MkeyMask::PD) {
            self.pds.hold(new_pd, super::Refusal::NO_SUCH_PD).map_err(|_| UmrFault::Key)?;
        }
        let mkey = self.mkeys.get_mut(request.mkey >> 8).ok_or(UmrFault::Key)?;
        let old_pd = mkey.context.pd().get();
        mkey.context = changed(&mkey.context, &request.context, request.ctrl.mkey_mask());
        mkey.set_octowords(request.ctrl.xlt_offset() as usize, &list);
        if let Some(recipe) = recipe {
            mkey.signing.set(recipe);
        }
        if request.ctrl.mkey_mask().has(MkeyMask::PD) {
            self.pds.release(old_pd);
        }
        Ok(())
    }

    /// Whether the key may be changed so.
    fn check_umr(&mut self, request: &UmrRequest<'_>) -> Result<(), UmrFault> {
        let (ctrl, mask) = (&request.ctrl, request.ctrl.mkey_mask());
        let unknown = mask.0 & !MkeyMask::ALL.0;
        let foreign = request.pd.is_some() && mask.has(MkeyMask::PD);
        if unknown != 0 || foreign {
            let detail = format!("mkey_mask 0x{:x}: 0x{unknown:x} have no field, PD is {foreign}", mask.0);
            return Err(self.malformed(request, Rule::UmrMask, detail));
        }
        let n = ctrl.klm_octowords();
        let Some(mkey) = self.mkeys.get(request.mkey >> 8) else {
            return Err(self.refuse_umr(request, "there is no such key"));
        };
        let end = ctrl.xlt_offset() + u64::from(n);
        let n_bsf = request.bsf.len() / size_of::<Octoword>();
        let max_bsf = mkey.context.bsf_octword_size();
        if !n.is_multiple_of(LIST_OCTOWORDS) || n > 0 && !mkey.has_room(end) || n_bsf > max_bsf as usize {
            let detail = format!(
                "klm_octowords {n} at {}, bsf_octowords {n_bsf}: key 0x{:x} has room for {} and {max_bsf}",
                ctrl.xlt_offset(),
                request.mkey,
                mkey.n_octowords_max()
            );
            return Err(self.malformed(request, Rule::UmrListFits, detail));
        }
        let context = &mkey.context;
        let invalidates = mask.has(MkeyMask::FREE) && request.context.free();
        // Whoever gives a key a new low byte may already name it by that.
        let named =
            !invalidates && mask.has(MkeyMask::KEY) || u32::from(context.mkey_7_0()) == request.mkey & 0xff;
        let other_qp = context.qpn() != Mkc::ANY_QP && context.qpn() != request.qpn;
        let why = match ctrl.check_free() {
            _ if !context.umr_en() => "umr_en is not set: no UMR may change it",
            _ if request.pd.is_some_and(|pd| pd != context.pd()) => "it is of another protection domain",
            _ if !named => "the key's low byte is another",
            _ if ctrl.check_qpn() && other_qp => "it belongs to another QP",
            UmrCtrlSeg::FAIL_IF_NOT_FREE if !context.free() => "it is not free",
            UmrCtrlSeg::FAIL_IF_FREE if context.free() => "it is free",
            _ => return Ok(()),
        };
        Err(self.refuse_umr(request, why))
    }

    /// The new translation entries.
    fn umr_list(&mut self, request: &UmrRequest<'_>) -> Result<Vec<Octoword>, UmrFault> {
        let n = usize::from(request.ctrl.klm_octowords());
        let mut list = vec![Octoword::default(); n];
        match request.list {
            UmrList::Inline(bytes) => {
                for (to, from) in list.iter_mut().zip(bytes.as_chunks().0) {
                    *to = *from;
                }
            }
            UmrList::Memory { lkey, addr, .. } => {
                // The QP that registers is of no domain, and its lists are under keys of any.
                let own = || self.mkeys.get(lkey >> 8).map_or(Mkc::new().pd(), |mkey| mkey.context.pd());
                let pd = request.pd.unwrap_or_else(own);
                let right =
                    Right { key: lkey, pd, qpn: request.qpn, need: Need::LocalRead, queue: Ring::Send };
                let read = self.read_key(&right, addr, list.as_flattened_mut());
                if let Err(fault) = read {
                    self.note(|| {
                        format!("QP {}: list at 0x{addr:x}, lkey 0x{lkey:x}: {fault:?}", request.qpn)
                    });
                    return Err(UmrFault::List);
                }
            }
        }
        Ok(list)
    }

    /// What the key is to do with data from now on, if that is new.
    fn umr_recipe(&self, request: &UmrRequest<'_>) -> Result<Option<Recipe>, UmrFault> {
        if request.bsf.is_empty() {
            return Ok(None);
        }
        let recipe =
            request.bsf.try_into().map_err(|_| "a length that is not 64 bytes").and_then(read_recipe);
        // What applications may ask for is more than the model executes.
        recipe.map(Some).map_err(|why| {
            self.note(|| format!("QP {}: BSF of key 0x{:x}: {why}", request.qpn, request.mkey));
            UmrFault::Malformed
        })
    }

    fn malformed(&mut self, request: &UmrRequest<'_>, rule: Rule, detail: String) -> UmrFault {
        let violation = Violation::new(rule, detail).on(Queue::Sq(request.qpn.get()));
        self.violate(violation.with_bytes(&request.ctrl.to_bytes()));
        UmrFault::Malformed
    }

    /// A key that applications name may be any number: no driver's mistake.
    fn refuse_umr(&self, request: &UmrRequest<'_>, why: &str) -> UmrFault {
        self.note(|| format!("QP {}: UMR of key 0x{:x}: {why}", request.qpn, request.mkey));
        UmrFault::Key
    }
}

macro_rules! take_over {
    ($old:ident, $new:ident, $mask:ident: $( $bit:ident $( $set:ident = $get:ident ),+ ; )*) => {
        $( if $mask.has(MkeyMask::$bit) { $( $old.$set($new.$get()); )+ } )*
    };
}

/// The context with the fields of the mask replaced.
fn changed(old: &Mkc, new: &Mkc, mask: MkeyMask) -> Mkc {
    let mut context = *old;
    take_over! { context, new, mask:
        LEN set_len = len, set_length64 = length64;
        PAGE_SIZE set_log_page_size = log_page_size;
        START_ADDR set_start_addr = start_addr;
        PD set_pd = pd;
        EN_RINVAL set_en_rinval = en_rinval;
        EN_SIGERR set_expected_sigerr_count = expected_sigerr_count;
        BSF_EN set_bsf_en = bsf_en;
        KEY set_mkey_7_0 = mkey_7_0;
        QPN set_qpn = qpn;
        LR set_lr = lr;
        LW set_lw = lw;
        RR set_rr = rr;
        RW set_rw = rw;
        A set_a = a;
        SMALL_FENCE set_small_fence_on_rdma_read_response = small_fence_on_rdma_read_response;
        RELAXED_ORDERING_WRITE set_relaxed_ordering_write = relaxed_ordering_write;
        RELAXED_ORDERING_READ set_relaxed_ordering_read = relaxed_ordering_read;
        FREE set_free = free;
    }
    context
}
