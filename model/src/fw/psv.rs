//! Protection signature values: what the signatures of a key begin with.
#![forbid(unsafe_code)]

use super::{
    Function,
    dispatch::{Input, Output, done, out},
    refusal::Refusal,
};
use mlx5_direct::{
    mlx5::{
        cmd::{CreatePsvIn, CreatePsvOut, DestroyPsvIn},
        ids::Pdn,
    },
    wqe::SetPsvSeg,
};

pub(super) const LOG_MAX_PSV: u8 = 16;
/// As many as one CREATE_PSV makes.
const MAX_AT_ONCE: u8 = 4;

/// A value.
#[derive(Debug)]
pub(crate) struct Psv {
    pd: Pdn,
    /// Of T10-DIF: seed of the guard, application tag, reference tag. Of a CRC: its seed, from the top.
    start: u64,
}

impl Function {
    pub(super) fn create_psv(&mut self, input: &Input<'_>) -> Output {
        let input: CreatePsvIn = input.get()?;
        let (n, pd) = (input.num_psv(), input.pd());
        if !(1..=MAX_AT_ONCE).contains(&n) {
            return Err(Refusal::PSV_NUMBER);
        }
        if !self.pds.contains(pd.get()) {
            return Err(Refusal::NO_SUCH_PD);
        }
        let mut indices = [0; MAX_AT_ONCE as usize];
        for index in &mut indices[..n.into()] {
            *index = self.psvs.insert(Psv { pd, start: 0 })?;
            self.pds.hold(pd.get(), Refusal::NO_SUCH_PD)?;
        }
        out(CreatePsvOut::new()
            .with_psv0_index(indices[0])
            .with_psv1_index(indices[1])
            .with_psv2_index(indices[2])
            .with_psv3_index(indices[3]))
    }

    pub(super) fn destroy_psv(&mut self, input: &Input<'_>) -> Output {
        let number = input.get::<DestroyPsvIn>()?.psvn();
        let psv = self.psvs.remove(number).ok_or(Refusal::NO_SUCH_OBJECT)?;
        self.pds.release(psv.pd.get());
        done()
    }

    /// Sets what a value begins with. Returns whether it is one of this protection domain.
    pub(super) fn set_psv(&mut self, pd: Pdn, segment: &SetPsvSeg) -> bool {
        let psv = self.psvs.get_mut(segment.psv_index()).filter(|psv| psv.pd == pd);
        let start = u64::from(segment.transient_sig()) << 32 | u64::from(segment.ref_tag());
        psv.map(|psv| psv.start = start).is_some()
    }

    /// What the value of a key in this protection domain begins with.
    pub(super) fn psv_start(&self, number: u32, pd: Pdn) -> Option<u64> {
        self.psvs.get(number).filter(|psv| psv.pd == pd).map(|psv| psv.start)
    }
}
