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
    backend::{ChannelId, CqParams, CqParts, UarPage, pci::BarMapping},
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
    channel: Option<Arc<Channel>>,
}

/// A page of doorbells that libmlx5 has mapped, for as long as the device is open or the object lives that it was told
/// of.
#[derive(Debug)]
pub(super) struct LibraryPage {
    pub(super) base: NonNull<u8>,
    pub(super) write_combining: bool,
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
        self.write_combining
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
        let max = self.attr.max_cqe;
        if params.n_cqes == 0 || params.n_cqes > max {
            return Err(Error::invalid(format!(
                "completion queue of {} entries: give 1 to {max} (max_cqe)",
                params.n_cqes
            )));
        }
        if params.cqe_bytes != 64 && params.cqe_bytes != 128 {
            return Err(Error::invalid(format!("CQEs of {} bytes: give 64 or 128", params.cqe_bytes)));
        }
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
                lock(&self.cqs).insert(parts.cqn, Arc::new(CqEntry { cq, channel }));
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
    fn take_over_cq(&self, cq: Object<IbvCq>) -> Result<CqParts> {
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
        let page = LibraryPage { base: page, write_combining: true };
        let cqn = Cqn::new(out.cqn);
        // Given back with events. SAFETY: the library keeps it for its caller, and nobody waits for events yet.
        unsafe { (*cq.as_ptr()).cq_context = ptr::without_provenance_mut::<c_void>(cqn.get() as usize) };
        Ok(CqParts {
            cqn,
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
        let entry = take_unused(&self.cqs, cqn, "completion queue", cqn.get())?;
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
