//! Completion queues.
#![forbid(unsafe_code)]

use super::{
    Core, PrmControl,
    channel::Channel,
    cmd_queue::Lane,
    lock,
    tables::{CqEntry, take},
};
use crate::{
    Result,
    backend::{
        CqParams, CqParts, QueueMemory,
        dma::{DmaRegion, PAGE_BYTES},
    },
    mistake::mistake,
    mlx5::{
        cmd::{Command, CreateCqIn, DestroyCqIn},
        context::{Cqc, CqeSize},
        ids::Cqn,
        record::DbrecCq,
    },
};
use std::sync::Arc;

/// A record has a cache line of its own: the device reads it while software writes its neighbours.
const RECORD_BYTES: usize = 64;

/// Entries of a list of device pages, above which larger pages are used.
const MAX_LIST: usize = 512;

/// Largest device page for a queue: `log_page_size` 9.
const MAX_PAGE_BYTES: usize = 2 << 20;

/// `op_own` of a CQE that was never written: opcode INVALID, and the owner bit that the first lap does not
/// have.
const INVALID_OP_OWN: u8 = 0xf1;

/// Rings and record of a queue in one mapping, and how the device finds them.
pub(super) struct Layout {
    pub(super) region: DmaRegion,
    pub(super) ring_bytes: usize,
    page_bytes: usize,
    record_offset: usize,
}

impl Layout {
    pub(super) fn new(core: &Core, ring_bytes: usize) -> Result<Self> {
        let mut page_bytes = PAGE_BYTES;
        while ring_bytes / page_bytes > MAX_LIST && page_bytes < MAX_PAGE_BYTES {
            page_bytes *= 2;
        }
        let record_offset = ring_bytes.next_multiple_of(page_bytes);
        let region = core.dma.alloc(record_offset + RECORD_BYTES, page_bytes)?;
        Ok(Self { region, ring_bytes, page_bytes, record_offset })
    }

    pub(super) fn log_page_size(&self) -> u8 {
        (self.page_bytes / PAGE_BYTES).trailing_zeros() as u8
    }

    pub(super) fn pas(&self) -> Vec<u8> {
        let off = if mistake!(PasUnaligned) { 8 } else { 0 };
        let pages = self.region.pages(self.ring_bytes, self.page_bytes);
        pages.flat_map(|page| (page + off).to_be_bytes()).collect()
    }

    pub(super) fn dbr_addr(&self) -> u64 {
        self.region.address_of(self.record_offset)
    }

    pub(super) fn part(&self, offset_bytes: usize, len_bytes: usize) -> QueueMemory {
        QueueMemory::new(Arc::clone(self.region.memory()), offset_bytes, len_bytes)
    }

    pub(super) fn record(&self) -> QueueMemory {
        self.part(self.record_offset, size_of::<DbrecCq>())
    }
}

impl PrmControl {
    pub(super) fn make_cq(&self, params: &CqParams) -> Result<CqParts> {
        let core = &*self.core;
        params.check(self.attr.max_cqe)?;
        let channel = params.channel.map(|id| core.vectors.find(id)).transpose()?;
        let n_cqes = params.n_cqes.next_power_of_two();
        let layout = Layout::new(core, n_cqes as usize * params.cqe_bytes)?;
        for n in 1..=n_cqes as usize {
            let op_own = if mistake!(CqNotFilled) { 0 } else { INVALID_OP_OWN };
            layout.region.memory().fill(n * params.cqe_bytes - 1, 1, op_own);
        }
        let log_cq_size = n_cqes.trailing_zeros() as u8;
        let uar = self.uars.arming(|| self.alloc_uar())?;
        let context = Cqc::new()
            .with_cqe_sz(if params.cqe_bytes == 128 { CqeSize::STRIDE_128 } else { CqeSize::STRIDE_64 })
            .with_oi(params.ignore_overrun)
            .with_log_cq_size(if mistake!(CqTooLarge) { 31 } else { log_cq_size })
            .with_uar_page(if mistake!(CqUarOfEvents) { self.events_uar } else { uar.index() })
            .with_c_eqn(channel.as_ref().map_or(core.tables.control_eqn(), |channel| channel.eqn()))
            .with_log_page_size(layout.log_page_size())
            .with_dbr_addr(layout.dbr_addr());
        let (ring, record) = (layout.part(0, layout.ring_bytes), layout.record());
        let cqn = create(core, context, &layout.pas(), vec![layout.region], channel)?;
        let arming = Arc::clone(uar.page());
        Ok(CqParts { cqn, log_cq_size, cqe_bytes: params.cqe_bytes, ring, record, arming })
    }
}

/// Makes the completion queue of a context in the device, and keeps `memory` for it.
pub(super) fn create(
    core: &Core,
    context: Cqc,
    pas: &[u8],
    memory: Vec<DmaRegion>,
    channel: Option<Arc<Channel>>,
) -> Result<Cqn> {
    if let Some(channel) = &channel {
        channel.bind()?;
    }
    let input = CreateCqIn::request().with_cq_context(context);
    let cqn = match core.cmd.exec(Lane::Regular, &input, pas, 0) {
        Ok((out, _)) => out.cqn(),
        Err(error) => {
            if let Some(channel) = &channel {
                channel.unbind(Cqn::new(u32::MAX));
            }
            return Err(core.failed(error, memory));
        }
    };
    lock(&core.tables.cqs).insert(cqn, CqEntry { _memory: memory, channel });
    Ok(cqn)
}

pub(super) fn destroy(core: &Core, cqn: Cqn) -> Result<()> {
    let entry = take(&core.tables.cqs, cqn, "completion queue", cqn.get())?;
    if let Err(error) = core.cmd.call(&DestroyCqIn::request().with_cqn(cqn)) {
        lock(&core.tables.cqs).insert(cqn, entry);
        return Err(error);
    }
    if let Some(channel) = entry.channel {
        channel.unbind(cqn);
    }
    Ok(())
}
