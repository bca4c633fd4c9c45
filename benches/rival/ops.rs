//! The operations of the table as a program makes them with libibverbs. Requests are prepared once; a call stores
//! what changes from message to message, and nothing else, before it calls the library.

use super::{
    device::{Cq, Device, Qp, QpOptions},
    ffi::*,
};
use mlx5_direct::{
    cqe::{CqeOpcode, ResponderCqe},
    mlx5::ids::{Qpn, UserIndex},
};
use std::ptr::{self, NonNull};

/// Most requests of one call.
pub const MAX_BATCH: usize = 64;

/// A queue pair of libmlx5, its completion queues, and prepared requests.
pub struct Theirs {
    pub qp: Qp,
    pub send_cq: Cq,
    pub recv_cq: Cq,
    sges: Box<[IbvSge; MAX_BATCH]>,
    sends: Box<[IbvSendWr; MAX_BATCH]>,
    recvs: Box<[IbvRecvWr; MAX_BATCH]>,
    wcs: Box<[IbvWc; MAX_BATCH]>,
    /// Receives posted and not yet completed.
    n_recvs: u32,
    /// `pi` when everything was retired.
    retired: u16,
    /// WQEBBs of a prepared request.
    n_wqebbs: u16,
}

/// What changes from one request to the next.
#[derive(Clone, Copy)]
pub struct Message {
    pub wr_id: u64,
    pub sge: IbvSge,
    pub remote_addr: u64,
    pub rkey: u32,
}

impl Theirs {
    /// A queue pair with rings of `n_cqes` completions and as the options say, on completion queues of its own.
    pub fn new(device: &mut Device, options: &QpOptions, n_cqes: u32) -> Self {
        let (send_cq, recv_cq) = (device.cq(n_cqes), device.cq(n_cqes));
        Self::on(device, options, send_cq, recv_cq)
    }

    /// The same on these completion queues.
    pub fn on(device: &mut Device, options: &QpOptions, send_cq: Cq, recv_cq: Cq) -> Self {
        let qp = device.qp(&send_cq, &recv_cq, options);
        let no_recv = IbvRecvWr { wr_id: 0, next: ptr::null_mut(), sg_list: ptr::null(), num_sge: 1 };
        Self {
            qp,
            send_cq,
            recv_cq,
            sges: Box::new([IbvSge::default(); MAX_BATCH]),
            sends: Box::new([IbvSendWr::default(); MAX_BATCH]),
            recvs: Box::new([no_recv; MAX_BATCH]),
            wcs: Box::new([IbvWc::default(); MAX_BATCH]),
            n_recvs: 0,
            retired: 0,
            n_wqebbs: 1,
        }
    }

    /// Retires what was posted, and prepares a chain of `n` requests, of `n_wqebbs` each; the last makes the completion.
    pub fn prepare(&mut self, n: usize, opcode: u32, flags: u32, n_wqebbs: u16) {
        self.retire_sends();
        self.n_wqebbs = n_wqebbs;
        for i in 0..n {
            let next = if i + 1 < n { &raw mut self.sends[i + 1] } else { ptr::null_mut() };
            let next_recv = if i + 1 < n { &raw mut self.recvs[i + 1] } else { ptr::null_mut() };
            let last = if i + 1 < n { 0 } else { IBV_SEND_SIGNALED };
            let (wr, recv) = (&mut self.sends[i], &mut self.recvs[i]);
            *wr = IbvSendWr { next, num_sge: 1, opcode, send_flags: flags | last, ..Default::default() };
            (wr.sg_list, recv.sg_list) = (&raw const self.sges[i], &raw const self.sges[i]);
            recv.next = next_recv;
        }
    }

    /// Completes and retires everything sent.
    fn retire_sends(&mut self) {
        if self.qp.pi() != self.retired {
            self.send_cq.complete(self.qp.requester_cqe(self.qp.pi().wrapping_sub(self.n_wqebbs)));
            self.retired = self.qp.pi();
        }
        self.send_cq.drain();
    }

    /// Completions of the next `n` requests, before they are posted.
    pub fn complete_ahead(&mut self, n: u32) {
        let end = self.qp.pi().wrapping_add(n as u16 * self.n_wqebbs);
        while self.retired != end {
            self.send_cq.complete(self.qp.requester_cqe(self.retired));
            self.retired = self.retired.wrapping_add(self.n_wqebbs);
        }
    }

    /// `n` sends of one WQEBB, posted and completed, none of it polled.
    pub fn complete_sends(&mut self, n: u32) {
        self.prepare(1, IBV_WR_SEND, 0, 1);
        for _ in 0..n {
            let counter = self.qp.pi();
            post_send(self, MESSAGE);
            self.send_cq.complete(self.qp.requester_cqe(counter));
        }
        self.retired = self.qp.pi();
    }

    /// Completes and retires every receive.
    pub fn retire_recvs(&mut self) {
        self.complete_recvs_posted();
        self.recv_cq.drain();
    }

    /// `n` receives, posted and completed, none of it polled.
    pub fn complete_recvs(&mut self, n: u32) {
        self.retire_recvs();
        self.prepare(1, IBV_WR_SEND, 0, 1);
        for _ in 0..n {
            post_recv(self, MESSAGE);
        }
        self.complete_recvs_posted();
    }

    fn complete_recvs_posted(&mut self) {
        for _ in 0..std::mem::take(&mut self.n_recvs) {
            let cqe = ResponderCqe::new()
                .with_opcode(CqeOpcode::RESP_SEND)
                .with_qpn(Qpn::new(self.qp.qpn))
                .with_srqn_or_user_index(UserIndex::new(self.qp.user_index))
                .with_byte_cnt(64);
            self.recv_cq.complete(cqe.to_bytes());
        }
    }
}

/// Any message.
pub const MESSAGE: Message = Message {
    wr_id: 1,
    sge: IbvSge { addr: 0x7f11_0000_1000, length: 64, lkey: 0x0102_0300 },
    remote_addr: 0x7f00_1234_5678,
    rkey: 0x1234_5600,
};

/// `ibv_post_send` of the prepared request, whatever its operation is.
#[inline(never)]
pub fn post_send(theirs: &mut Theirs, message: Message) {
    let wr = &mut theirs.sends[0];
    wr.wr_id = message.wr_id;
    (wr.wr.remote_addr_or_ah, wr.wr.rkey_or_compare_add) = (message.remote_addr, u64::from(message.rkey));
    theirs.sges[0] = message.sge;
    let mut bad = ptr::null_mut();
    // SAFETY: a queue pair, and a request that points to living memory.
    let failed = unsafe { (theirs.qp.post_send)(theirs.qp.qp.as_ptr(), wr, &mut bad) };
    assert_eq!(failed, 0);
}

/// The same on a queue pair of many.
#[inline(never)]
pub fn post_send_to(theirs: &mut Theirs, qp: NonNull<IbvQp>, message: Message) {
    let wr = &mut theirs.sends[0];
    wr.wr_id = message.wr_id;
    (wr.wr.remote_addr_or_ah, wr.wr.rkey_or_compare_add) = (message.remote_addr, u64::from(message.rkey));
    theirs.sges[0] = message.sge;
    let mut bad = ptr::null_mut();
    // SAFETY: as in `post_send`.
    let failed = unsafe { (theirs.qp.post_send)(qp.as_ptr(), wr, &mut bad) };
    assert_eq!(failed, 0);
}

/// The same of a fetch-and-add, whose key and operand are elsewhere.
#[inline(never)]
pub fn post_fetch_add(theirs: &mut Theirs, message: Message) {
    let wr = &mut theirs.sends[0];
    wr.wr_id = message.wr_id;
    (wr.wr.remote_addr_or_ah, wr.wr.rkey_or_compare_add) = (message.remote_addr, 1);
    wr.wr.atomic_rkey = u64::from(message.rkey);
    theirs.sges[0] = message.sge;
    let mut bad = ptr::null_mut();
    // SAFETY: as in `post_send`.
    let failed = unsafe { (theirs.qp.post_send)(theirs.qp.qp.as_ptr(), wr, &mut bad) };
    assert_eq!(failed, 0);
}

/// `ibv_post_send` of the prepared chain.
#[inline(never)]
pub fn post_send_batch(theirs: &mut Theirs, wr_id: u64, sges: &[IbvSge]) {
    for (i, sge) in sges.iter().enumerate() {
        theirs.sends[i].wr_id = wr_id + i as u64;
        theirs.sges[i] = *sge;
    }
    let mut bad = ptr::null_mut();
    // SAFETY: as in `post_send`.
    let failed = unsafe { (theirs.qp.post_send)(theirs.qp.qp.as_ptr(), &mut theirs.sends[0], &mut bad) };
    assert_eq!(failed, 0);
}

/// The same of RDMA WRITEs of inline data.
#[inline(never)]
pub fn post_write_batch(theirs: &mut Theirs, message: Message, data: &[[u8; 8]]) {
    for (i, piece) in data.iter().enumerate() {
        let wr = &mut theirs.sends[i];
        wr.wr_id = message.wr_id + i as u64;
        (wr.wr.remote_addr_or_ah, wr.wr.rkey_or_compare_add) = (message.remote_addr, u64::from(message.rkey));
        theirs.sges[i] = IbvSge { addr: piece.as_ptr().addr() as u64, length: 8, lkey: 0 };
    }
    let mut bad = ptr::null_mut();
    // SAFETY: as in `post_send`.
    let failed = unsafe { (theirs.qp.post_send)(theirs.qp.qp.as_ptr(), &mut theirs.sends[0], &mut bad) };
    assert_eq!(failed, 0);
}

/// `ibv_post_recv` of the prepared chain.
#[inline(never)]
pub fn post_recv_batch(theirs: &mut Theirs, wr_id: u64, sges: &[IbvSge]) {
    for (i, sge) in sges.iter().enumerate() {
        theirs.recvs[i].wr_id = wr_id + i as u64;
        theirs.sges[i] = *sge;
    }
    let mut bad = ptr::null_mut();
    // SAFETY: as in `post_send`.
    let failed = unsafe { (theirs.qp.post_recv)(theirs.qp.qp.as_ptr(), &mut theirs.recvs[0], &mut bad) };
    assert_eq!(failed, 0);
    theirs.n_recvs += sges.len() as u32;
}

/// `ibv_post_recv` of one request.
#[inline(never)]
pub fn post_recv(theirs: &mut Theirs, message: Message) {
    theirs.recvs[0].wr_id = message.wr_id;
    theirs.sges[0] = message.sge;
    let mut bad = ptr::null_mut();
    // SAFETY: as in `post_send`.
    let failed = unsafe { (theirs.qp.post_recv)(theirs.qp.qp.as_ptr(), &mut theirs.recvs[0], &mut bad) };
    assert_eq!(failed, 0);
    theirs.n_recvs += 1;
}

/// One request by `ibv_wr_start`, what `$request` calls, and `ibv_wr_complete`.
macro_rules! wr_posts {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) |$ex:ident, $message:ident| $request:block)*) => { $(
        $(#[$doc])*
        #[inline(never)]
        pub fn $name(theirs: &mut Theirs, $message: Message $(, $arg: $ty)*) {
            let qp: NonNull<IbvQpEx> = theirs.qp.ex;
            let $ex = qp.as_ptr();
            // SAFETY: a queue pair; the functions are called in their order, for operations that it was made for.
            unsafe {
                ((*$ex).wr_start)($ex);
                ((*$ex).wr_id, (*$ex).wr_flags) = ($message.wr_id, IBV_SEND_SIGNALED);
                $request
                assert_eq!(((*$ex).wr_complete)($ex), 0);
            }
        }
    )* };
}

wr_posts! {
    /// An RDMA WRITE of inline data.
    wr_write_inline(data: &[u8]) |ex, m| {
        ((*ex).wr_rdma_write)(ex, m.rkey, m.remote_addr);
        ((*ex).wr_set_inline_data)(ex, data.as_ptr().cast(), data.len());
    }
    /// A SEND of inline data.
    wr_send_inline(data: &[u8]) |ex, m| {
        ((*ex).wr_send)(ex);
        ((*ex).wr_set_inline_data)(ex, data.as_ptr().cast(), data.len());
    }
    /// A SEND of one piece.
    wr_send() |ex, m| {
        ((*ex).wr_send)(ex);
        ((*ex).wr_set_sge)(ex, m.sge.lkey, m.sge.addr, m.sge.length);
    }
    /// An RDMA READ into one piece.
    wr_read() |ex, m| {
        ((*ex).wr_rdma_read)(ex, m.rkey, m.remote_addr);
        ((*ex).wr_set_sge)(ex, m.sge.lkey, m.sge.addr, m.sge.length);
    }
    /// A fetch-and-add.
    wr_fetch_add() |ex, m| {
        ((*ex).wr_atomic_fetch_add)(ex, m.rkey, m.remote_addr, 1);
        ((*ex).wr_set_sge)(ex, m.sge.lkey, m.sge.addr, m.sge.length);
    }
}

/// An RDMA WRITE of inline data on a queue pair of many.
#[inline(never)]
pub fn wr_write_inline_to(qp: NonNull<IbvQpEx>, message: Message, data: &[u8]) {
    let ex = qp.as_ptr();
    // SAFETY: as in `wr_posts`.
    unsafe {
        ((*ex).wr_start)(ex);
        ((*ex).wr_id, (*ex).wr_flags) = (message.wr_id, IBV_SEND_SIGNALED);
        ((*ex).wr_rdma_write)(ex, message.rkey, message.remote_addr);
        ((*ex).wr_set_inline_data)(ex, data.as_ptr().cast(), data.len());
        assert_eq!(((*ex).wr_complete)(ex), 0);
    }
}

/// SENDs of one piece each between one `ibv_wr_start` and one `ibv_wr_complete`.
#[inline(never)]
pub fn wr_send_batch(theirs: &mut Theirs, wr_id: u64, sges: &[IbvSge]) {
    let ex = theirs.qp.ex.as_ptr();
    // SAFETY: as in `wr_posts`.
    unsafe {
        ((*ex).wr_start)(ex);
        for (i, sge) in sges.iter().enumerate() {
            (*ex).wr_id = wr_id + i as u64;
            (*ex).wr_flags = if i + 1 == sges.len() { IBV_SEND_SIGNALED } else { 0 };
            ((*ex).wr_send)(ex);
            ((*ex).wr_set_sge)(ex, sge.lkey, sge.addr, sge.length);
        }
        assert_eq!(((*ex).wr_complete)(ex), 0);
    }
}

/// RDMA WRITEs of inline data in the same way.
#[inline(never)]
pub fn wr_write_batch(theirs: &mut Theirs, message: Message, data: &[[u8; 8]]) {
    let ex = theirs.qp.ex.as_ptr();
    // SAFETY: as in `wr_posts`.
    unsafe {
        ((*ex).wr_start)(ex);
        for (i, piece) in data.iter().enumerate() {
            (*ex).wr_id = message.wr_id + i as u64;
            (*ex).wr_flags = if i + 1 == data.len() { IBV_SEND_SIGNALED } else { 0 };
            ((*ex).wr_rdma_write)(ex, message.rkey, message.remote_addr);
            ((*ex).wr_set_inline_data)(ex, piece.as_ptr().cast(), piece.len());
        }
        assert_eq!(((*ex).wr_complete)(ex), 0);
    }
}

/// `ibv_poll_cq` of at most `max`; gives the sum of the `wr_id`s, or `u64::MAX` at an error.
#[inline(never)]
pub fn poll_cq(cq: &Cq, wcs: &mut [IbvWc], max: usize) -> u64 {
    // SAFETY: a completion queue, and room for `max` completions.
    let n = unsafe { (cq.poll)(cq.cq.as_ptr().cast(), max as i32, wcs[..max].as_mut_ptr()) };
    let mut sum = 0;
    for wc in &wcs[..n as usize] {
        if wc.status != 0 {
            return u64::MAX;
        }
        sum += wc.wr_id;
    }
    sum
}

/// The same of receives, with the bytes received.
#[inline(never)]
pub fn poll_cq_recvs(cq: &Cq, wcs: &mut [IbvWc], max: usize) -> u64 {
    // SAFETY: as in `poll_cq`.
    let n = unsafe { (cq.poll)(cq.cq.as_ptr().cast(), max as i32, wcs[..max].as_mut_ptr()) };
    let mut sum = 0;
    for wc in &wcs[..n as usize] {
        if wc.status != 0 {
            return u64::MAX;
        }
        sum += wc.wr_id + u64::from(wc.byte_len);
    }
    sum
}

/// `ibv_start_poll`, `ibv_next_poll` and `ibv_end_poll` of at most `max`.
#[inline(never)]
pub fn start_poll(cq: &Cq, max: usize) -> u64 {
    let mut attr = IbvPollCqAttr::default();
    let cq = cq.cq.as_ptr();
    // SAFETY: an extended completion queue; the functions are called in their order.
    unsafe {
        if ((*cq).start_poll)(cq, &mut attr) != 0 {
            return 0;
        }
        let mut sum = 0;
        for i in 1..=max {
            if (*cq).status != 0 {
                sum = u64::MAX;
                break;
            }
            sum += (*cq).wr_id;
            if i == max || ((*cq).next_poll)(cq) != 0 {
                break;
            }
        }
        ((*cq).end_poll)(cq);
        sum
    }
}

impl Theirs {
    /// `ibv_poll_cq` on the queue of sends.
    pub fn poll_sends(&mut self, max: usize) -> u64 {
        poll_cq(&self.send_cq, &mut self.wcs[..], max)
    }

    /// `ibv_poll_cq` on the queue of receives.
    pub fn poll_recvs(&mut self, max: usize) -> u64 {
        poll_cq_recvs(&self.recv_cq, &mut self.wcs[..], max)
    }
}

/// A request, and its completion by `ibv_poll_cq`.
#[inline(never)]
pub fn post_and_poll(theirs: &mut Theirs, message: Message) -> u64 {
    post_send(theirs, message);
    theirs.poll_sends(1)
}

/// A SEND of inline data, and its completion by `ibv_start_poll`.
#[inline(never)]
pub fn wr_and_poll(theirs: &mut Theirs, data: &[u8]) -> u64 {
    wr_send_inline(theirs, MESSAGE, data);
    start_poll(&theirs.send_cq, 1)
}
