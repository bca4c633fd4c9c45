//! Queues over memory that somebody else has allocated, as a kernel makes them for its programs: the model's stand-in
//! for a kernel does.
//!
//! The caller fills a context as the PRM has it. Where ring, record and registers are is filled in here, and the memory
//! is mapped until the device has let go of it. Afterwards the objects are like any others.
#![forbid(unsafe_code)]

use super::{PrmControl, Uar, cq, qp};
use crate::{
    Result,
    backend::{
        ChannelId,
        dma::{DmaRegion, HUGE_PAGE_BYTES, HostMemory, PAGE_BYTES},
    },
    mlx5::{
        context::{Cqc, Qpc},
        ids::{Cqn, Qpn},
    },
};
use std::sync::Arc;

/// Entries of a list of device pages, above which larger pages are used.
const MAX_LIST: usize = 512;

/// Parts of a page in which contexts count where a ring begins in it (`page_offset`).
const OFFSETS_PER_PAGE: usize = 64;

/// A ring and its doorbell record, mapped for the device, and how contexts name them.
#[derive(Debug)]
pub struct LentQueue {
    ring: DmaRegion,
    record: DmaRegion,
    page_bytes: usize,
}

impl LentQueue {
    /// log₂ of the pages of [`pas`](Self::pas), less 12.
    pub fn log_page_size(&self) -> u8 {
        (self.page_bytes / PAGE_BYTES).trailing_zeros() as u8
    }

    /// Where the ring begins in the first page, in 64ths of it.
    pub fn page_offset(&self) -> u8 {
        let offset_bytes = self.ring.address_of(0) as usize % self.page_bytes;
        (offset_bytes / (self.page_bytes / OFFSETS_PER_PAGE)) as u8
    }

    /// The list of pages, as commands carry it after a context.
    pub fn pas(&self) -> Vec<u8> {
        let len_bytes = self.ring.memory().len_bytes();
        self.ring.pages(len_bytes, self.page_bytes).flat_map(u64::to_be_bytes).collect()
    }

    /// Address of the record.
    pub fn dbr_addr(&self) -> u64 {
        self.record.address_of(0)
    }

    fn into_memory(self) -> Vec<DmaRegion> {
        vec![self.ring, self.record]
    }
}

impl PrmControl {
    /// Maps a ring and its record, for an object that is made by [`execute`](Self::execute). It stays mapped until the
    /// result is dropped.
    pub fn map_queue(&self, ring: Arc<HostMemory>, record: Arc<HostMemory>) -> Result<LentQueue> {
        let offset_bytes = ring.base().addr().get() % PAGE_BYTES;
        let mut page_bytes = PAGE_BYTES;
        // A ring that begins at a page gets an address that is a multiple of larger ones.
        while offset_bytes == 0 && ring.len_bytes() / page_bytes > MAX_LIST && page_bytes < HUGE_PAGE_BYTES {
            page_bytes *= 2;
        }
        let dma = &self.core.dma;
        let ring = dma.map(ring, page_bytes as u64, 0)?;
        Ok(LentQueue { ring, record: dma.map(record, PAGE_BYTES as u64, 0)?, page_bytes })
    }

    /// Makes a completion queue of `context` over `queue`. Its CQEs are the owner's to mark invalid before. It is armed
    /// through `uar`, which the owner keeps until the queue is destroyed.
    pub fn create_cq_over(
        &self,
        context: Cqc,
        queue: LentQueue,
        uar: &Uar,
        channel: Option<ChannelId>,
    ) -> Result<Cqn> {
        let core = &*self.core;
        let channel = channel.map(|id| core.vectors.find(id)).transpose()?;
        let context = context
            .with_uar_page(uar.index())
            .with_c_eqn(channel.as_ref().map_or(core.tables.control_eqn(), |channel| channel.eqn()))
            .with_log_page_size(queue.log_page_size())
            .with_page_offset(queue.page_offset())
            .with_dbr_addr(queue.dbr_addr());
        cq::create(core, context, &queue.pas(), queue.into_memory(), channel)
    }

    /// Makes a queue pair of `context` over `queue`, receive queue first. It rings registers of `uar`.
    pub fn create_qp_over(&self, context: Qpc, queue: LentQueue, uar: &Uar) -> Result<Qpn> {
        let core = &*self.core;
        core.tables.has_pd(context.pd())?;
        let context = context
            .with_uar_page(uar.index())
            .with_log_page_size(queue.log_page_size())
            .with_page_offset(queue.page_offset())
            .with_dbr_addr(queue.dbr_addr());
        qp::create(core, context, &queue.pas(), queue.into_memory(), uar.page())
    }
}
