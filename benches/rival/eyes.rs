//! Queues that others than these programs have made on the pretend device: where they are, and completions in them.

use mlx5_direct::{
    cqe::RequesterCqe,
    mlx5::ids::{Qpn, UserIndex},
    wqe::SendOpcode,
};

/// What `mlx5_uverbs_newest` gives of a queue pair and the completion queue of its sends.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Memory {
    qpn: u32,
    user_index: u32,
    record: u64,
    cq_ring: u64,
    cqe_bytes: u32,
    n_cqes: u32,
}

/// A queue pair's send queue and completion queue.
pub struct Queues {
    memory: Memory,
    /// CQEs written so far, free-running.
    pi: u32,
}

impl Queues {
    /// Those of the newest queue pair of this process; nothing was completed there yet.
    pub fn newest() -> Option<Self> {
        // SAFETY: a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mlx5_uverbs_newest".as_ptr()) };
        if found.is_null() {
            return None;
        }
        // SAFETY: the library's function of this name has this type.
        let newest = unsafe {
            std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn(*mut Memory) -> bool>(found)
        };
        let mut memory = Memory::default();
        // SAFETY: room for what it gives.
        unsafe { newest(&mut memory) }.then_some(Self { memory, pi: 0 })
    }

    /// Number of the queue pair.
    pub fn qpn(&self) -> u32 {
        self.memory.qpn
    }

    /// Counter of the next WQEBB, as the doorbell record says.
    pub fn send_counter(&self) -> u16 {
        // SAFETY: the second word of the queue pair's record, which is there as long as the queue pair.
        u32::from_be(unsafe { (self.memory.record as *const u32).add(1).read_volatile() }) as u16
    }

    /// Completes the send whose WQE has this counter, as a device would.
    pub fn complete(&mut self, wqe_counter: u16, opcode: SendOpcode) {
        let Memory { qpn, user_index, cq_ring, cqe_bytes, n_cqes, .. } = self.memory;
        let mut cqe = RequesterCqe::new()
            .with_qpn(Qpn::new(qpn))
            .with_user_index(UserIndex::new(user_index))
            .with_send_wqe_opcode(opcode)
            .with_wqe_counter(wqe_counter)
            .to_bytes();
        cqe[63] |= u8::from(self.pi & n_cqes != 0);
        let end = ((self.pi & (n_cqes - 1)) + 1) * cqe_bytes;
        self.pi = self.pi.wrapping_add(1);
        // SAFETY: the last 64 bytes of a slot of the ring, which is there as long as the completion queue.
        unsafe { (cq_ring as *mut u8).add(end as usize - 64).cast::<[u8; 64]>().write_volatile(cqe) };
    }
}
