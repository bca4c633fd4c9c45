//! Queue pairs: made and moved by the libraries, posted to by us.

mod address;
mod parked;
mod state;

pub(super) use parked::Parked;

use super::{
    Object, PdEntry, VerbsControl,
    cq::{CqEntry, LibraryPage, broken},
    device::Domain,
    done,
    ffi::{
        IBV_QP_INIT_ATTR_PD, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND, IbvQp, IbvQpCap,
        IbvQpInitAttrEx, MLX5DV_OBJ_QP, MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
        MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS, Mlx5dvDcInitAttr, Mlx5dvObj, Mlx5dvQp, Mlx5dvQpInitAttr,
    },
    lock, made, take, unknown,
};
use crate::{
    Error, Result,
    backend::{QpParams, QpParts, QueueMemory, Register, UarPage, dma::HostMemory},
    mlx5::{
        context::{QpState, ServiceType},
        ids::Qpn,
        record::DbrecQp,
        uar::{BF_OFFSET, PAGE_BYTES},
    },
    wqe::WQEBB_BYTES,
};
use std::{
    ffi::c_void,
    mem,
    ptr::{self, NonNull},
    sync::{Arc, Mutex},
};

#[derive(Debug)]
pub(super) struct QpEntry {
    pub(super) qp: Object<IbvQp>,
    /// Made here, and destroyed here.
    pub(super) owned: bool,
    pub(super) service: ServiceType,
    /// As it was moved to, or last asked for; `None` once it is destroyed. Locked while the libraries are called.
    pub(super) state: Mutex<Option<QpState>>,
    /// The queue pair is destroyed before.
    pub(super) _domain: Option<Domain>,
    /// They are destroyed after.
    pub(super) pd: Arc<PdEntry>,
    pub(super) cqs: [Arc<CqEntry>; 2],
}

/// Memory of the library's that a queue is in.
///
/// # Safety
/// `base` is valid for reads and writes of `len_bytes` until the object that it is of is destroyed, and the library does
/// not touch it.
pub(super) unsafe fn memory(base: *mut c_void, len_bytes: usize) -> Result<QueueMemory> {
    let base = NonNull::new(base.cast()).ok_or_else(|| broken("a queue at address 0"))?;
    // SAFETY: the caller's promise; who has the parts of an object does not touch them once it is destroyed.
    let memory = unsafe { HostMemory::lend(base, len_bytes) };
    Ok(QueueMemory::new(memory, 0, len_bytes))
}

impl VerbsControl {
    pub(super) fn qp(&self, qpn: Qpn) -> Result<Arc<QpEntry>> {
        lock(&self.qps).get(&qpn).cloned().ok_or_else(|| unknown("queue pair", qpn.get()))
    }

    pub(super) fn make_qp(&self, params: &QpParams) -> Result<QpParts> {
        let qp_type = match params.service {
            ServiceType::RC => IBV_QPT_RC,
            ServiceType::UC => IBV_QPT_UC,
            ServiceType::UD => IBV_QPT_UD,
            ServiceType::XRC => IBV_QPT_XRC_SEND,
            ServiceType::RAW_ETHERTYPE => {
                let reason =
                    "raw packets are not sent through the kernel's verbs here; open the function by VFIO"
                        .into();
                return Err(Error::Unsupported { capability: "eth_net_offloads", reason });
            }
            other => {
                let text = format!("queue pairs of transport {other}: there are RC, UC, UD and XRC here");
                return Err(Error::invalid(text));
            }
        };
        self.reap(None);
        params.check(&self.attr)?;
        let pd = self.pd(params.pd)?;
        let (send_cq, recv_cq) = (self.cq(params.send_cq)?, self.cq(params.recv_cq)?);
        // Where the kernel has no more registers for one's own, the queue rings one that others may ring.
        let domain = self.device.thread_domain(pd.pd).ok();
        let mut attr = IbvQpInitAttrEx {
            qp_context: ptr::null_mut(),
            send_cq: send_cq.cq.as_ptr(),
            recv_cq: recv_cq.cq.as_ptr(),
            srq: ptr::null_mut(),
            cap: IbvQpCap {
                max_send_wr: params.max_send_wr,
                // An initiator receives nothing.
                max_recv_wr: if qp_type == IBV_QPT_XRC_SEND { 0 } else { params.max_recv_wr },
                max_send_sge: params.max_send_sge,
                max_recv_sge: params.max_recv_sge,
                max_inline_data: params.max_inline_data,
            },
            qp_type,
            sq_sig_all: 0,
            comp_mask: IBV_QP_INIT_ATTR_PD,
            pd: domain.as_ref().map_or(pd.pd, |domain| domain.parent).as_ptr(),
            xrcd: ptr::null_mut(),
            create_flags: 0,
            max_tso_header: 0,
            rwq_ind_tbl: ptr::null_mut(),
            rx_hash_conf: [0; 3],
            source_qpn: 0,
            send_ops_flags: 0,
        };
        let mut dv_attr = Mlx5dvQpInitAttr {
            comp_mask: MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
            create_flags: MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
            dc_init_attr: Mlx5dvDcInitAttr::default(),
            send_ops_flags: 0,
        };
        let library = self.device.library();
        // SAFETY: an open context, and arguments that live for the call; what they name lives in tables or in `domain`.
        let qp =
            unsafe { (library.mlx5dv_create_qp)(self.device.context(), &raw mut attr, &raw mut dv_attr) };
        let what = || {
            format!(
                "creating a queue pair of {} send requests of {} entries or {} inline bytes, and {} receives of {} \
                 entries (max_qp_wr {}, max_sge {}, max_inline_data {})",
                params.max_send_wr,
                params.max_send_sge,
                params.max_inline_data,
                params.max_recv_wr,
                params.max_recv_sge,
                self.attr.max_qp_wr,
                self.attr.max_send_sge,
                self.attr.max_inline_data
            )
        };
        let qp = Object(made(what, qp)?);
        match self.take_over_qp(qp, &attr.cap, domain.is_some()) {
            Ok(parts) => {
                let entry = QpEntry {
                    qp,
                    owned: true,
                    service: params.service,
                    state: Mutex::new(Some(QpState::RST)),
                    _domain: domain,
                    pd,
                    cqs: [send_cq, recv_cq],
                };
                lock(&self.qps).insert(parts.qpn, Arc::new(entry));
                Ok(parts)
            }
            Err(error) => {
                // SAFETY: just made, and used by nobody.
                unsafe { (library.ibv_destroy_qp)(qp.as_ptr()) };
                Err(error)
            }
        }
    }

    /// Where rings and doorbells are. `dedicated` says that the register is of this queue pair's own.
    pub(super) fn take_over_qp(&self, qp: Object<IbvQp>, cap: &IbvQpCap, dedicated: bool) -> Result<QpParts> {
        // SAFETY: pointers and integers: zeros are values.
        let mut out: Mlx5dvQp = unsafe { mem::zeroed() };
        let mut object = Mlx5dvObj::default();
        (object.qp.input, object.qp.output) = (qp.as_ptr(), &raw mut out);
        // SAFETY: a queue pair of libmlx5, and room for what it tells.
        let result = unsafe { (self.device.library().mlx5dv_init_obj)(&raw mut object, MLX5DV_OBJ_QP) };
        done(|| "asking for the rings of a queue pair".into(), result)?;
        let (sq, rq) = (out.sq, out.rq);
        let is_ring = |n: u32, stride: u32, least: usize| {
            n == 0 || n.is_power_of_two() && stride.is_power_of_two() && stride as usize >= least
        };
        if !is_ring(sq.wqe_cnt, sq.stride, WQEBB_BYTES) || sq.stride as usize > WQEBB_BYTES && sq.wqe_cnt > 0
        {
            return Err(broken(&format!("a send queue of {} WQEBBs of {} bytes", sq.wqe_cnt, sq.stride)));
        }
        if !is_ring(rq.wqe_cnt, rq.stride, 16) {
            return Err(broken(&format!("a receive queue of {} WQEs of {} bytes", rq.wqe_cnt, rq.stride)));
        }
        let log2 = |n: u32| n.checked_ilog2().unwrap_or(0) as u8;
        // SAFETY: just made; number and type do not change.
        let (qpn, qp_type) = unsafe { (Qpn::new((*qp.as_ptr()).qp_num), (*qp.as_ptr()).qp_type) };
        let service = match qp_type {
            IBV_QPT_RC => ServiceType::RC,
            IBV_QPT_UC => ServiceType::UC,
            IBV_QPT_UD => ServiceType::UD,
            IBV_QPT_XRC_SEND => ServiceType::XRC,
            other => {
                return Err(Error::invalid(format!(
                    "a queue pair of ibv_qp_type {other}: give RC, UC, UD or XRC_SEND"
                )));
            }
        };
        Ok(QpParts {
            qpn,
            service,
            // SAFETY: the library's ring lives until the queue pair is destroyed, after which nobody touches it
            // (`Control`). The library touches it in calls that post, which nobody makes.
            sq: unsafe { memory(sq.buf, sq.wqe_cnt as usize * WQEBB_BYTES)? },
            log_sq_size: log2(sq.wqe_cnt),
            // SAFETY: as above.
            rq: unsafe { memory(rq.buf, rq.wqe_cnt as usize * rq.stride as usize)? },
            log_rq_size: log2(rq.wqe_cnt),
            log_rq_stride_bytes: log2(rq.stride).max(4),
            // SAFETY: as above. On a move to RESET the library zeroes it, as we do.
            record: unsafe { memory(out.dbrec.cast(), size_of::<DbrecQp>())? },
            register: register(out.bf.reg, out.bf.size as usize, dedicated)?,
            // The library chooses the number that CQEs carry, and gives it to the next queue pair soon.
            user_index: None,
            max_send_wr: cap.max_send_wr,
            max_recv_wr: cap.max_recv_wr,
            max_send_sge: cap.max_send_sge,
            max_recv_sge: cap.max_recv_sge,
            max_inline_data: cap.max_inline_data,
            min_header_bytes: 0,
        })
    }

    pub(super) fn end_qp(&self, qpn: Qpn) -> Result<()> {
        let entry = take(&self.qps, qpn, "queue pair", qpn.get())?;
        self.reap(None);
        if !entry.owned {
            *lock(&entry.state) = None;
            return Ok(());
        }
        self.end_or_park(qpn, Arc::clone(&entry)).inspect_err(|_| drop(lock(&self.qps).insert(qpn, entry)))
    }

    /// Destroys a queue pair that is in no table any more.
    fn destroy(&self, qpn: Qpn, entry: &QpEntry) -> Result<()> {
        let mut state = lock(&entry.state);
        // SAFETY: it is in no table, so that this is done once. Who has found it before waits for `state`, and is told
        // there.
        let result = unsafe { (self.device.library().ibv_destroy_qp)(entry.qp.as_ptr()) };
        done(|| format!("destroying queue pair {qpn}"), result)?;
        *state = None;
        Ok(())
    }
}

/// The register at `reg`, whose halves have `half_bytes`; 0 without BlueFlame.
fn register(reg: *mut c_void, half_bytes: usize, dedicated: bool) -> Result<Register> {
    let offset = reg.addr() % PAGE_BYTES;
    let base = NonNull::new(reg.cast::<u8>().wrapping_sub(offset))
        .ok_or_else(|| broken("a doorbell at address 0"))?;
    let size_bytes = 2 * half_bytes;
    // Without BlueFlame all places of the page take doorbells alike.
    let k = offset.wrapping_sub(BF_OFFSET) / size_bytes.max(1);
    let mapping = LibraryPage { base };
    let page = UarPage::new(Box::new(mapping), 0, size_bytes);
    if half_bytes == 0 {
        return Ok(Register::shared(page, 0));
    }
    let impossible =
        || broken(&format!("a BlueFlame register of {size_bytes} bytes at 0x{offset:x} of its page"));
    if !(128..=512).contains(&size_bytes) || !size_bytes.is_power_of_two() || k >= 4 {
        return Err(impossible());
    }
    if !dedicated {
        return Ok(Register::shared(page, k));
    }
    page.take_register(k).ok_or_else(impossible)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doorbell::Sharing;

    fn at(offset: usize) -> *mut c_void {
        ptr::without_provenance_mut(0x7f00_0000_0000 + offset)
    }

    #[test]
    fn a_register_is_exclusive_only_with_blueflame_and_a_domain_of_its_own() {
        let own = register(at(0xa00), 256, true).unwrap();
        assert_eq!((own.sharing(), own.page().bf_reg_size_bytes()), (Sharing::Exclusive, 512));
        assert_eq!(own.page().base().addr().get(), 0x7f00_0000_0000);
        assert_eq!(register(at(0x800), 256, false).unwrap().sharing(), Sharing::Shared);
        assert_eq!(register(at(0x800), 0, true).unwrap().sharing(), Sharing::Shared);
    }

    #[test]
    fn what_is_no_register_is_refused() {
        for (offset, half_bytes) in [(0x10, 256), (0x800, 24), (0x800, 4096)] {
            let text = register(at(offset), half_bytes, true).unwrap_err().to_string();
            assert!(text.contains("BlueFlame register"), "{text}");
        }
    }
}
