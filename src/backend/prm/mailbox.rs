//! Mailboxes: the chains of blocks that carry what does not fit in a command's slot.
#![forbid(unsafe_code)]

use crate::{
    Error, Result,
    backend::dma::{DmaRegion, DmaSpace},
    mlx5::cmd::{
        MAILBOX_ALIGN_BYTES, MAILBOX_DATA_BYTES, MailboxTrailer, block_signature, ctrl_signature, n_mailboxes,
    },
};
use std::sync::Arc;

/// Blocks that a slot keeps for its next command; a larger command gives its memory back.
const KEPT_BLOCKS: usize = 64;

/// The blocks of one slot, one every [`MAILBOX_ALIGN_BYTES`].
#[derive(Debug, Default)]
pub(super) struct Mailboxes {
    region: Option<DmaRegion>,
}

/// One chain in the blocks of a slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chain {
    first_block: usize,
    n_blocks: usize,
}

impl Mailboxes {
    /// Chains for an input and an output of these lengths.
    pub(super) fn chains(
        &mut self,
        dma: &Arc<DmaSpace>,
        in_bytes: usize,
        out_bytes: usize,
    ) -> Result<(Chain, Chain)> {
        let input = Chain { first_block: 0, n_blocks: n_mailboxes(in_bytes) };
        let output = Chain { first_block: input.n_blocks, n_blocks: n_mailboxes(out_bytes) };
        let wanted = input.n_blocks + output.n_blocks;
        if wanted > self.n_blocks() {
            let n_blocks = wanted.max(KEPT_BLOCKS).next_power_of_two();
            self.region = Some(dma.alloc(n_blocks * MAILBOX_ALIGN_BYTES, MAILBOX_ALIGN_BYTES)?);
        }
        Ok((input, output))
    }

    fn n_blocks(&self) -> usize {
        self.region.as_ref().map_or(0, |region| region.memory().len_bytes() / MAILBOX_ALIGN_BYTES)
    }

    /// Lets go of what only a large command needed.
    pub(super) fn trim(&mut self) {
        if self.n_blocks() > KEPT_BLOCKS {
            self.region = None;
        }
    }

    /// Address of the first block; 0 if there is none.
    pub(super) fn address(&self, chain: Chain) -> u64 {
        match &self.region {
            Some(region) if chain.n_blocks > 0 => {
                region.iova() + (chain.first_block * MAILBOX_ALIGN_BYTES) as u64
            }
            _ => 0,
        }
    }

    /// Fills a chain with `data`, zeros after it, and links its blocks.
    pub(super) fn write(&self, chain: Chain, data: &[u8], token: u8, signed: bool) {
        let Some(region) = &self.region else { return };
        for i in 0..chain.n_blocks {
            let from = (i * MAILBOX_DATA_BYTES).min(data.len());
            let part = &data[from..data.len().min(from + MAILBOX_DATA_BYTES)];
            let mut block = [0; MAILBOX_DATA_BYTES];
            block[..part.len()].copy_from_slice(part);
            let next = Chain { first_block: chain.first_block + i + 1, n_blocks: chain.n_blocks - i - 1 };
            let mut trailer = MailboxTrailer::new()
                .with_next(self.address(next))
                .with_block_num(i as u32)
                .with_token(token);
            if signed {
                trailer.set_ctrl_signature(ctrl_signature(&trailer));
                trailer.set_signature(block_signature(&block, &trailer));
            }
            let at = (chain.first_block + i) * MAILBOX_ALIGN_BYTES;
            region.memory().write(at, &block);
            region.memory().write(at + MAILBOX_DATA_BYTES, &trailer.to_bytes());
        }
    }

    /// Reads a chain into `data`; checks the signatures of its blocks if they are `signed`.
    pub(super) fn read(&self, chain: Chain, data: &mut [u8], signed: bool) -> Result<()> {
        let Some(region) = &self.region else { return Ok(()) };
        for (i, part) in data.chunks_mut(MAILBOX_DATA_BYTES).enumerate().take(chain.n_blocks) {
            let at = (chain.first_block + i) * MAILBOX_ALIGN_BYTES;
            region.memory().read(at, part);
            if signed {
                let mut block = [0; MAILBOX_DATA_BYTES];
                region.memory().read(at, &mut block);
                let mut trailer = MailboxTrailer::new().to_bytes();
                region.memory().read(at + MAILBOX_DATA_BYTES, &mut trailer);
                let trailer = MailboxTrailer::from_bytes(trailer);
                let expected = block_signature(&block, &trailer);
                if trailer.signature() != expected {
                    return Err(Error::Protocol(format!(
                        "output mailbox {i} has signature 0x{:02x}, its bytes give 0x{expected:02x}",
                        trailer.signature()
                    )));
                }
            }
        }
        Ok(())
    }
}
