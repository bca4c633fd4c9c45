//! Mailboxes: the chains of blocks that carry what does not fit in a command's slot.
#![forbid(unsafe_code)]

use crate::{
    Error, Result,
    backend::dma::{DmaRegion, DmaSpace},
    mistake::mistake,
    mlx5::cmd::{
        MAILBOX_ALIGN_BYTES, MAILBOX_DATA_BYTES, MailboxTrailer, block_signature, ctrl_signature, n_mailboxes,
    },
};
use std::sync::Arc;

/// Blocks that a slot always has; what a larger command needs, it has for itself.
const KEPT_BLOCKS: usize = 16;

/// The blocks of one slot, one every [`MAILBOX_ALIGN_BYTES`].
#[derive(Debug)]
pub(super) struct Mailboxes {
    kept: DmaRegion,
    /// For the command in the slot only.
    large: Option<DmaRegion>,
}

/// One chain in the blocks of a slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chain {
    first_block: usize,
    n_blocks: usize,
}

impl Mailboxes {
    pub(super) fn new(dma: &Arc<DmaSpace>) -> Result<Self> {
        let kept = dma.alloc(KEPT_BLOCKS * MAILBOX_ALIGN_BYTES, MAILBOX_ALIGN_BYTES)?;
        Ok(Self { kept, large: None })
    }

    /// Chains for an input and an output of these lengths.
    pub(super) fn chains(
        &mut self,
        dma: &Arc<DmaSpace>,
        in_bytes: usize,
        out_bytes: usize,
    ) -> Result<(Chain, Chain)> {
        let input = Chain { first_block: 0, n_blocks: n_mailboxes(in_bytes) };
        let output = Chain { first_block: input.n_blocks, n_blocks: n_mailboxes(out_bytes) };
        let n_blocks = input.n_blocks + output.n_blocks;
        self.large = match n_blocks {
            0..=KEPT_BLOCKS => None,
            _ => Some(dma.alloc(n_blocks * MAILBOX_ALIGN_BYTES, MAILBOX_ALIGN_BYTES)?),
        };
        Ok((input, output))
    }

    fn region(&self) -> &DmaRegion {
        self.large.as_ref().unwrap_or(&self.kept)
    }

    /// Lets go of what only a large command needed.
    pub(super) fn trim(&mut self) {
        self.large = None;
    }

    /// Address of the first block; 0 if there is none.
    pub(super) fn address(&self, chain: Chain) -> u64 {
        match chain.n_blocks {
            0 => 0,
            _ => self.region().address_of(chain.first_block * MAILBOX_ALIGN_BYTES),
        }
    }

    /// Fills a chain with `data`, zeros after it, and links its blocks.
    pub(super) fn write(&self, chain: Chain, data: &[u8], token: u8, signed: bool) {
        let memory = self.region().memory();
        for i in 0..chain.n_blocks {
            let from = (i * MAILBOX_DATA_BYTES).min(data.len());
            let part = &data[from..data.len().min(from + MAILBOX_DATA_BYTES)];
            let mut block = [0; MAILBOX_DATA_BYTES];
            block[..part.len()].copy_from_slice(part);
            let next = Chain { first_block: chain.first_block + i + 1, n_blocks: chain.n_blocks - i - 1 };
            let mut trailer = MailboxTrailer::new()
                .with_next(if mistake!(NextPointerMissing) { 0 } else { self.address(next) })
                .with_block_num(i as u32 + u32::from(mistake!(BlockNumberFromOne)))
                .with_token(if mistake!(TokenOfAnother) { token ^ 0x80 } else { token });
            if signed {
                trailer.set_ctrl_signature(ctrl_signature(&trailer));
                trailer.set_signature(block_signature(&block, &trailer));
            }
            let at = (chain.first_block + i) * MAILBOX_ALIGN_BYTES;
            memory.write(at, &block);
            memory.write(at + MAILBOX_DATA_BYTES, &trailer.to_bytes());
        }
    }

    /// Reads a chain into `data`; checks the signatures of its blocks if they are `signed`.
    pub(super) fn read(&self, chain: Chain, data: &mut [u8], signed: bool) -> Result<()> {
        let memory = self.region().memory();
        for (i, part) in data.chunks_mut(MAILBOX_DATA_BYTES).enumerate().take(chain.n_blocks) {
            let at = (chain.first_block + i) * MAILBOX_ALIGN_BYTES;
            memory.read(at, part);
            if signed {
                let mut block = [0; MAILBOX_DATA_BYTES];
                memory.read(at, &mut block);
                let mut trailer = MailboxTrailer::new().to_bytes();
                memory.read(at + MAILBOX_DATA_BYTES, &mut trailer);
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
