//! Completion queues: made by libmlx5, polled and armed by us.

use super::{
    Object, VerbsControl,
    channel::Channel,
    done,
    ffi::{
        IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN, IbvCompChannel, IbvCq,
        IbvCqInitAttrEx, MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE, MLX5DV_OBJ_CQ, Mlx5dvCq, Mlx5dvCqInitAttr,
        Mlx5dvObj,
    },
    lock, made,
    qp::memory,
    take_unused, unknown,
};
use crate::{
    Error, Result,
    backend::{ChannelId, CqParams, CqParts, QueueMemory, UarPage, pci::BarMapping},
    mlx5::{ids::Cqn, record::DbrecCq},
};
use std::{
    ffi::c_void,
    mem,
    ptr::{self, NonNull},
    sync::Arc,
};

#[derive(Debug)]
pub(super) struct CqEntry {
    pub(super) cq: Object<IbvCq>,
    /// It is told by a channel that lives as long.
    pub(super) channel: Option<Arc<Channel>>,
    /// Made here, and destroyed here.
    pub(super) owned: bool,
    pub(super) cqn: Cqn,
    /// Ring and record, of which the entry only reads: the last byte of CQEs, and the consumer index.
    ring: QueueMemory,
    record: QueueMemory,
    log_cq_size: u8,
    cqe_bytes: usize,
}

/// Consumer indices have 24 bits.
const INDEX_MASK: u32 = 0xff_ffff;

impl CqEntry {
    pub(super) fn new(
        cq: Object<IbvCq>,
        parts: &CqParts,
        channel: Option<Arc<Channel>>,
        owned: bool,
    ) -> Self {
        let (ring, record) = (parts.ring.clone(), parts.record.clone());
        let (cqn, log_cq_size, cqe_bytes) = (parts.cqn, parts.log_cq_size, parts.cqe_bytes);
        Self { cq, channel, owned, cqn, ring, record, log_cq_size, cqe_bytes }
    }

    /// How far the consumer has come.
    fn consumer_index(&self) -> u32 {
        // SAFETY: the record's first word; the queue lives as long as the entry is in use. The consumer may write it at
        // any time: one volatile load.
        u32::from_be(unsafe { self.record.base().cast::<u32>().read_volatile() }) & INDEX_MASK
    }

    /// Whether the device has written the CQE at `index`, which the consumer has not given back.
    fn is_written(&self, index: u32) -> bool {
        let slot = (index & ((1 << self.log_cq_size) - 1)) as usize;
        // SAFETY: the last byte of a slot of the ring, as above.
        let op_own = unsafe { self.ring.base().add((slot + 1) * self.cqe_bytes - 1).read_volatile() };
        let lap_is_odd = index >> self.log_cq_size & 1 != 0;
        (op_own & 1 != 0) == lap_is_odd && op_own < 0xf0
    }

    /// Index after the last CQE that is written, or a later one.
    pub(super) fn written(&self) -> u32 {
        let start = self.consumer_index();
        let n = (0..1 << self.log_cq_size).take_while(|n| self.is_written((start + n) & INDEX_MASK)).count()
            as u32;
        // A consumer that moved meanwhile has let the device write slots again that were looked at: a whole lap then.
        let n = if self.consumer_index() == start { n } else { 1 << self.log_cq_size };
        (start + n) & INDEX_MASK
    }

    /// Whether the consumer has come to `index`.
    pub(super) fn has_passed(&self, index: u32) -> bool {
        self.consumer_index().wrapping_sub(index) & INDEX_MASK < 1 << 23
    }
}

/// A page of doorbells that libmlx5 has mapped, for as long as the device is open or the object lives that it was told
/// of.
#[derive(Debug)]
pub(super) struct LibraryPage {
    pub(super) base: NonNull<u8>,
}

// SAFETY: an address; what is done with it is the business of `UarPage`.
unsafe impl Send for LibraryPage {}
// SAFETY: as above.
unsafe impl Sync for LibraryPage {}

impl BarMapping for LibraryPage {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn write_combining(&self) -> bool {
        // It may be, and nobody tells: stores are flushed as if it were.
        true
    }
}

/// What libmlx5 says that cannot be.
pub(super) fn broken(what: &str) -> Error {
    Error::Protocol(format!("libmlx5 tells of {what}"))
}

impl VerbsControl {
    fn channel(&self, id: ChannelId) -> Result<Arc<Channel>> {
        let channels = lock(&self.channels);
        let mut live = channels.iter().filter_map(std::sync::Weak::upgrade);
        live.find(|channel| channel.number() == id)
            .ok_or_else(|| Error::invalid(format!("completion channel {} is not one of this device", id.0)))
    }

    pub(super) fn cq(&self, cqn: Cqn) -> Result<Arc<CqEntry>> {
        lock(&self.cqs).get(&cqn).cloned().ok_or_else(|| unknown("completion queue", cqn.get()))
    }

    pub(super) fn make_cq(&self, params: &CqParams) -> Result<CqParts> {
        params.check(self.attr.max_cqe)?;
        let channel = params.channel.map(|id| self.channel(id)).transpose()?;
        let comp_vector =
            channel.as_ref().map_or(0, |channel| channel.number().0) % self.device.num_comp_vectors();
        let mut attr = IbvCqInitAttrEx {
            // The library makes a ring of the next power of two above it.
            cqe: (params.n_cqes.next_power_of_two() - 1).max(1),
            cq_context: ptr::null_mut(),
            channel: channel.as_ref().map_or(ptr::null_mut::<IbvCompChannel>(), |channel| channel.as_ptr()),
            comp_vector,
            wc_flags: 0,
            comp_mask: IBV_CQ_INIT_ATTR_MASK_FLAGS,
            flags: if params.ignore_overrun { IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN } else { 0 },
            parent_domain: ptr::null_mut(),
        };
        let mut dv_attr = Mlx5dvCqInitAttr {
            comp_mask: MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE,
            cqe_comp_res_format: 0,
            flags: 0,
            cqe_size: params.cqe_bytes as u16,
        };
        let library = self.device.library();
        // SAFETY: an open context, and arguments that live for the call; the channel lives in the table as long as the
        // queue.
        let cq =
            unsafe { (library.mlx5dv_create_cq)(self.device.context(), &raw mut attr, &raw mut dv_attr) };
        let what = || format!("creating a completion queue of {} entries", params.n_cqes);
        let cq = Object(made(what, cq)?);
        match self.take_over_cq(cq) {
            Ok(parts) => {
                // Given back with events. SAFETY: the library keeps it for its caller, and nobody waits for events yet.
                unsafe {
                    (*cq.as_ptr()).cq_context =
                        ptr::without_provenance_mut::<c_void>(parts.cqn.get() as usize);
                }
                lock(&self.cqs).insert(parts.cqn, Arc::new(CqEntry::new(cq, &parts, channel, true)));
                Ok(parts)
            }
            Err(error) => {
                // SAFETY: just made, and used by nobody.
                unsafe { (library.ibv_destroy_cq)(cq.as_ptr()) };
                Err(error)
            }
        }
    }

    /// Where the ring is. The library leaves it alone from now on: it marks queues whose ring it has told.
    pub(super) fn take_over_cq(&self, cq: Object<IbvCq>) -> Result<CqParts> {
        // SAFETY: pointers and integers: zeros are values.
        let mut out: Mlx5dvCq = unsafe { mem::zeroed() };
        let mut object = Mlx5dvObj::default();
        (object.cq.input, object.cq.output) = (cq.as_ptr(), &raw mut out);
        // SAFETY: a queue of libmlx5, and room for what it tells.
        let result = unsafe { (self.device.library().mlx5dv_init_obj)(&raw mut object, MLX5DV_OBJ_CQ) };
        done(|| "asking for the ring of a completion queue".into(), result)?;
        let cqe_bytes = out.cqe_size as usize;
        if !out.cqe_cnt.is_power_of_two() || (cqe_bytes != 64 && cqe_bytes != 128) {
            return Err(broken(&format!("a completion ring of {} CQEs of {cqe_bytes} bytes", out.cqe_cnt)));
        }
        let page = NonNull::new(out.cq_uar.cast()).ok_or_else(|| broken("a completion queue without UAR"))?;
        let page = LibraryPage { base: page };
        Ok(CqParts {
            cqn: Cqn::new(out.cqn),
            log_cq_size: out.cqe_cnt.ilog2() as u8,
            cqe_bytes,
            // SAFETY: the library's ring and record live until the queue is destroyed, after which nobody touches them
            // (`Control`). The library has told them, and does not touch them either.
            ring: unsafe { memory(out.buf, out.cqe_cnt as usize * cqe_bytes)? },
            // SAFETY: as above.
            record: unsafe { memory(out.dbrec.cast(), size_of::<DbrecCq>())? },
            arming: UarPage::new(Box::new(page), 0, 0),
        })
    }

    pub(super) fn end_cq(&self, cqn: Cqn) -> Result<()> {
        self.reap(Some(cqn));
        let entry = take_unused(&self.cqs, cqn, "completion queue", cqn.get())?;
        if !entry.owned {
            return Ok(());
        }
        // SAFETY: a queue that nobody has any more, so that this is done once. Events of it that were read are
        // acknowledged: the library waits for that.
        let result = unsafe { (self.device.library().ibv_destroy_cq)(entry.cq.as_ptr()) };
        let result = done(|| format!("destroying completion queue {cqn}"), result);
        match (&result, &entry.channel) {
            (Err(_), _) => drop(lock(&self.cqs).insert(cqn, entry)),
            (Ok(()), Some(channel)) => channel.forget(cqn),
            (Ok(()), None) => {}
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::dma::{HostMemory, PageSize};

    /// A ring of 4 CQEs without a device.
    fn entry() -> CqEntry {
        let memory = HostMemory::alloc(4096, PageSize::Default).unwrap();
        let part = |offset, len| QueueMemory::new(Arc::clone(&memory), offset, len);
        memory.fill(0, 256, 0xf1);
        let page = LibraryPage { base: memory.base() };
        let parts = CqParts {
            cqn: Cqn::new(7),
            log_cq_size: 2,
            cqe_bytes: 64,
            ring: part(0, 256),
            record: part(1024, 8),
            arming: UarPage::new(Box::new(page), 0, 0),
        };
        CqEntry::new(Object(NonNull::dangling()), &parts, None, true)
    }

    fn write(entry: &CqEntry, slot: usize, op_own: u8) {
        // SAFETY: in the test's own ring.
        unsafe { entry.ring.base().add(slot * 64 + 63).write_volatile(op_own) }
    }

    fn consume(entry: &CqEntry, index: u32) {
        // SAFETY: the test's own record.
        unsafe { entry.record.base().cast::<u32>().write_volatile(index.to_be()) }
    }

    #[test]
    fn what_is_written_and_not_taken_is_found_in_every_lap() {
        let entry = entry();
        assert_eq!(entry.written(), 0);
        write(&entry, 0, 0x00);
        write(&entry, 1, 0xd0);
        assert_eq!(entry.written(), 2);
        assert!(!entry.has_passed(2));
        consume(&entry, 2);
        assert!(entry.has_passed(2) && entry.written() == 2);
        // Slots 2, 3 of this lap, 0 of the next, whose parity is 1.
        write(&entry, 2, 0x00);
        write(&entry, 3, 0x20);
        write(&entry, 0, 0x01);
        assert_eq!(entry.written(), 5);
        // Around the end of the index.
        consume(&entry, 0xff_fffe);
        write(&entry, 2, 0x01);
        write(&entry, 3, 0x01);
        write(&entry, 0, 0xf1);
        assert_eq!(entry.written(), 0);
        assert!(!entry.has_passed(0));
        consume(&entry, 1);
        assert!(entry.has_passed(0));
    }

    #[test]
    fn a_full_ring_ends_after_one_lap() {
        let entry = entry();
        (0..4).for_each(|slot| write(&entry, slot, 0x00));
        assert_eq!(entry.written(), 4);
    }
}
