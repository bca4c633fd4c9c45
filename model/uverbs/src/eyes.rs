//! For the eyes of tests and benchmarks: where the memory of queues is that another library than libmlx5 has made,
//! of which `mlx5dv_init_obj` cannot be asked.
#![expect(unreachable_pub, reason = "the linker reaches it")]

use crate::uapi::{Mlx5CreateCq, Mlx5CreateQp};
use std::sync::{Mutex, PoisonError};

/// A queue pair's send queue and its completion queue.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Mlx5UverbsQueues {
    /// Number of the queue pair.
    pub qpn: u32,
    /// Number that the library gave it.
    pub user_index: u32,
    /// Doorbell record of the queue pair.
    pub record: u64,
    /// Ring of the completion queue of its sends.
    pub cq_ring: u64,
    /// Size of a slot there.
    pub cqe_bytes: u32,
    /// Slots.
    pub n_cqes: u32,
}

static NEWEST: Mutex<Option<Mlx5UverbsQueues>> = Mutex::new(None);

pub(crate) fn remember(qpn: u32, qp: &Mlx5CreateQp, cq: &Mlx5CreateCq, n_cqes: u32) {
    let queues = Mlx5UverbsQueues {
        qpn,
        user_index: qp.uidx,
        record: qp.db_addr,
        cq_ring: cq.buf_addr,
        cqe_bytes: cq.cqe_size,
        n_cqes,
    };
    *NEWEST.lock().unwrap_or_else(PoisonError::into_inner) = Some(queues);
}

/// The newest queue pair that this process has made. False if there is none.
///
/// # Safety
/// `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_uverbs_newest(into: *mut Mlx5UverbsQueues) -> bool {
    let newest = *NEWEST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(queues) = newest {
        // SAFETY: promised by the caller.
        unsafe { into.write(queues) };
    }
    newest.is_some()
}
