//! Signatures: what passes through a key is checked, made or stripped on the way.
//!
//! Requests and packets name bytes of the wire's side. Where these stand in memory is counted from there, so that an access
//! may begin anywhere, and come again.
#![forbid(unsafe_code)]

mod guard;
mod recipe;

pub(crate) use recipe::{BSF_BYTES, Recipe, SignatureError};

use super::{Function, mkey::Mkey};
use crate::exec::{KeyFault, Need, Right, Ring, Wake};
use mlx5_direct::cqe::{CqeOpcode, SigErrCqe, SigErrDomain};
use recipe::{Domain, MAX_BLOCK_BYTES, MAX_SIGNATURE_BYTES, Position, data_at, position};

type Signature = [u8; MAX_SIGNATURE_BYTES];

/// What a key has of signatures.
#[derive(Debug, Default)]
pub(crate) struct Signing {
    recipe: Option<Recipe>,
    /// The beginning of a block's signature, of which the rest is still to come from the wire.
    begun: Option<Begun>,
    /// Parity of the errors reported. While software expects that parity, the last one is still to be looked at.
    n_reported_is_odd: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Begun {
    block: u64,
    len_bytes: u64,
    bytes: Signature,
}

impl Signing {
    /// Takes a new recipe.
    pub(super) fn set(&mut self, recipe: Recipe) {
        (self.recipe, self.begun) = (Some(recipe), None);
    }
}

/// The recipe in a BSF.
pub(super) fn read_recipe(bsf: &[u8; BSF_BYTES]) -> Result<Recipe, &'static str> {
    Recipe::read(bsf)
}

/// One access on its way through a key.
struct Passage<'a> {
    function: &'a Function,
    right: &'a Right,
    recipe: Recipe,
    /// The key's first address.
    start: u64,
    error: Option<SignatureError>,
}

impl Passage<'_> {
    /// Reads from memory what the device itself wants to know.
    fn look(&self, offset: u64, into: &mut [u8]) -> Result<(), KeyFault> {
        let need = if self.right.need == Need::RemoteRead { Need::RemoteRead } else { Need::LocalRead };
        self.function.read_key(&Right { need, ..*self.right }, self.start.wrapping_add(offset), into)
    }

    /// Calls `each` for every piece of `len_bytes` of the data from `data` on: where it is in memory, and what part of them.
    /// A block that ends with a piece is given to `ended`.
    fn pieces(
        &mut self,
        data: u64,
        len_bytes: usize,
        mut each: impl FnMut(&Self, u64, core::ops::Range<usize>) -> Result<(), KeyFault>,
        ended: fn(&mut Self, Domain, u64) -> Result<(), KeyFault>,
    ) -> Result<(), KeyFault> {
        let mut done = 0;
        while done < len_bytes {
            let (offset, run) = data_at(self.recipe.memory.as_ref(), data + done as u64);
            let n = run.min((len_bytes - done) as u64) as usize;
            each(self, offset, done..done + n)?;
            done += n;
            if let Some(memory) = self.recipe.memory
                && run == n as u64
            {
                ended(self, memory, (data + done as u64) / memory.block_bytes - 1)?;
            }
        }
        Ok(())
    }

    /// The signature that the data of a block of a side ask for.
    fn made(&mut self, domain: Domain, block: u64) -> Result<Signature, KeyFault> {
        let psv = self.function.psv_start(domain.psv, self.right.pd).ok_or(KeyFault::Unknown)?;
        let mut bytes = [0; MAX_BLOCK_BYTES];
        let bytes = &mut bytes[..domain.block_bytes as usize];
        let len_bytes = bytes.len();
        let look = |this: &Self, offset, range: core::ops::Range<usize>| this.look(offset, &mut bytes[range]);
        self.pieces(block * domain.block_bytes, len_bytes, look, |_, _, _| Ok(()))?;
        Ok(domain.sign(psv, block, bytes))
    }

    /// The signature that a block has in memory.
    fn found(&self, memory: Domain, block: u64) -> Result<Signature, KeyFault> {
        let mut signature = Signature::default();
        self.look(memory.signature_at(block), &mut signature[..memory.signature_bytes() as usize])?;
        Ok(signature)
    }

    fn check(
        &mut self,
        side: SigErrDomain,
        block: u64,
        found: Signature,
        made: Signature,
    ) -> Option<SignatureError> {
        let error = self.recipe.check(side, block, found, made);
        self.error = self.error.or(error);
        error
    }

    /// Fills `into` with what goes out, from a place of the wire's side on.
    fn read(&mut self, from: u64, into: &mut [u8]) -> Result<(), KeyFault> {
        let mut done = 0;
        while done < into.len() {
            let rest = &mut into[done..];
            done += match (position(self.recipe.wire.as_ref(), from + done as u64), self.recipe.wire) {
                (Position::Data(data), wire) => {
                    let n = data_at(wire.as_ref(), data).1.min(rest.len() as u64) as usize;
                    let look = |this: &Self, offset, range: core::ops::Range<usize>| {
                        this.function.read_key(this.right, this.start.wrapping_add(offset), &mut rest[range])
                    };
                    self.pieces(data, n, look, |this, memory, block| {
                        let (found, made) = (this.found(memory, block)?, this.made(memory, block)?);
                        this.check(SigErrDomain::MEMORY, block, found, made);
                        Ok(())
                    })?;
                    n
                }
                (Position::Signature { block, at }, Some(wire)) => {
                    let mut signature = self.made(wire, block)?;
                    if let (true, Some(memory)) = (self.recipe.has_same_blocks(), self.recipe.memory) {
                        signature = self.recipe.pass(self.found(memory, block)?, signature);
                    }
                    let part = &signature[at as usize..wire.signature_bytes() as usize];
                    let n = part.len().min(rest.len());
                    rest[..n].copy_from_slice(&part[..n]);
                    n
                }
                // A side without signatures has no such place.
                (Position::Signature { .. }, None) => return Err(KeyFault::Bounds),
            };
        }
        Ok(())
    }

    /// Takes in `bytes` for a place of the wire's side.
    fn write(&mut self, from: u64, bytes: &[u8], begun: &mut Option<Begun>) -> Result<(), KeyFault> {
        let mut done = 0;
        while done < bytes.len() {
            let rest = &bytes[done..];
            done += match (position(self.recipe.wire.as_ref(), from + done as u64), self.recipe.wire) {
                (Position::Data(data), wire) => {
                    let n = data_at(wire.as_ref(), data).1.min(rest.len() as u64) as usize;
                    let write = |this: &Self, offset, range: core::ops::Range<usize>| {
                        this.function.write_key(this.right, this.start.wrapping_add(offset), &rest[range])
                    };
                    self.pieces(data, n, write, |this, memory, block| {
                        // With the same blocks on the wire, what comes there decides.
                        if this.recipe.has_same_blocks() {
                            return Ok(());
                        }
                        let made = this.made(memory, block)?;
                        this.store(memory, block, made)
                    })?;
                    n
                }
                (Position::Signature { block, at }, Some(wire)) => {
                    let n = (wire.signature_bytes() - at).min(rest.len() as u64);
                    self.take_signature(wire, block, at, &rest[..n as usize], begun)?;
                    n as usize
                }
                (Position::Signature { .. }, None) => return Err(KeyFault::Bounds),
            };
        }
        Ok(())
    }

    /// Puts the signature of a block into memory.
    fn store(&self, memory: Domain, block: u64, signature: Signature) -> Result<(), KeyFault> {
        let at = self.start.wrapping_add(memory.signature_at(block));
        self.function.write_key(self.right, at, &signature[..memory.signature_bytes() as usize])
    }

    /// Takes in a part of a signature; the last part has it checked. One whose beginning went elsewhere is not.
    fn take_signature(
        &mut self,
        wire: Domain,
        block: u64,
        at: u64,
        part: &[u8],
        begun: &mut Option<Begun>,
    ) -> Result<(), KeyFault> {
        let mut now = match begun.take() {
            _ if at == 0 => Begun { block, ..Begun::default() },
            Some(begun) if (begun.block, begun.len_bytes) == (block, at) => begun,
            _ => return Ok(()),
        };
        let end = at as usize + part.len();
        now.bytes[at as usize..end].copy_from_slice(part);
        now.len_bytes = end as u64;
        if now.len_bytes < wire.signature_bytes() {
            *begun = Some(now);
            return Ok(());
        }
        let made = self.made(wire, block)?;
        self.check(SigErrDomain::WIRE, block, now.bytes, made);
        match self.recipe.memory {
            Some(memory) if self.recipe.has_same_blocks() => {
                let made = self.made(memory, block)?;
                self.store(memory, block, self.recipe.pass(now.bytes, made))
            }
            _ => Ok(()),
        }
    }
}

impl Mkey {
    /// What data that pass through the key have done to them, if anything.
    pub(super) fn recipe(&self) -> Option<Recipe> {
        self.signing.recipe.filter(|_| self.context.bsf_en())
    }
}

impl Function {
    /// What data that pass through a key have done to them, if anything.
    pub(super) fn recipe(&self, key: u32) -> Option<Recipe> {
        self.mkeys.get(key >> 8)?.recipe()
    }

    fn passage<'a>(
        &'a self,
        right: &'a Right,
        recipe: Recipe,
        addr: u64,
    ) -> Result<(Passage<'a>, u64), KeyFault> {
        let start = self.mkeys.get(right.key >> 8).map_or(0, |mkey| mkey.context.start_addr());
        let from = addr.checked_sub(start).ok_or(KeyFault::Bounds)?;
        Ok((Passage { function: self, right, recipe, start, error: None }, from))
    }

    /// Whether `right` covers the memory behind a range of the wire's side.
    pub(super) fn check_signed(
        &self,
        right: &Right,
        recipe: Recipe,
        addr: u64,
        len_bytes: u64,
    ) -> Result<(), KeyFault> {
        let (passage, from) = self.passage(right, recipe, addr)?;
        let last = from.checked_add(len_bytes - 1).ok_or(KeyFault::Bounds)?;
        let wire = recipe.wire.as_ref();
        // Signatures stand behind the data of their block.
        let next = |offset, signature_is: u64| match (position(wire, offset), wire) {
            (Position::Signature { block, .. }, Some(wire)) => (block + 1) * wire.block_bytes - signature_is,
            (Position::Signature { .. }, None) => offset,
            (Position::Data(data), _) => data,
        };
        let (first, last) = (next(from, 0), next(last, 1));
        if first > last {
            return Ok(());
        }
        let memory = recipe.memory.as_ref();
        let (first, last) = (data_at(memory, first).0, data_at(memory, last).0);
        self.check_key(right, passage.start.wrapping_add(first), last - first + 1)
    }

    /// Checks and reads, through a key with a recipe.
    pub(super) fn read_signed(
        &mut self,
        right: &Right,
        recipe: Recipe,
        addr: u64,
        into: &mut [u8],
    ) -> Result<(), KeyFault> {
        let (mut passage, from) = self.passage(right, recipe, addr)?;
        passage.read(from, into)?;
        let error = passage.error;
        self.report_signature(right, error);
        Ok(())
    }

    /// Checks and writes, through a key with a recipe.
    pub(super) fn write_signed(
        &mut self,
        right: &Right,
        recipe: Recipe,
        addr: u64,
        bytes: &[u8],
    ) -> Result<(), KeyFault> {
        self.check_signed(right, recipe, addr, bytes.len() as u64)?;
        let mut begun = self.mkeys.get(right.key >> 8).and_then(|mkey| mkey.signing.begun);
        let (mut passage, from) = self.passage(right, recipe, addr)?;
        let written = passage.write(from, bytes, &mut begun);
        let error = passage.error;
        if let Some(mkey) = self.mkeys.get_mut(right.key >> 8) {
            mkey.signing.begun = begun;
        }
        self.report_signature(right, error);
        written
    }

    /// Tells software of an error, unless it has not looked at the key's last one yet.
    fn report_signature(&mut self, right: &Right, error: Option<SignatureError>) {
        let Some((error, mkey)) = error.zip(self.mkeys.get_mut(right.key >> 8)) else { return };
        if mkey.context.expected_sigerr_count() == mkey.signing.n_reported_is_odd {
            return;
        }
        mkey.signing.n_reported_is_odd ^= true;
        let Some(qp) = self.qps.get_mut(right.qpn.get()) else { return };
        qp.signature_failed = true;
        let cqn = match right.queue {
            Ring::Send => qp.context.cqn_snd(),
            Ring::Receive => qp.context.cqn_rcv(),
        };
        let cqe = SigErrCqe::new()
            .with_expected_trans_sig((error.expected >> 32) as u32)
            .with_expected_ref_tag(error.expected as u32)
            .with_actual_trans_sig((error.actual >> 32) as u32)
            .with_actual_ref_tag(error.actual as u32)
            .with_syndrome(error.syndrome)
            .with_domain(error.domain)
            .with_mkey(right.key)
            .with_err_offset(error.offset)
            .with_qpn(right.qpn)
            .with_opcode(CqeOpcode::SIG_ERR);
        self.post_completion(cqn.get(), &cqe.into(), Wake::Solicited);
    }
}
