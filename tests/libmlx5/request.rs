//! A send request: as it is drawn, as we post it (`posts`), and as libmlx5 does by either interface.

mod posts;

pub(crate) use posts::Posts;

use crate::{
    address::To,
    bind::{Bind, Theirs},
    frame::Frame,
    indirect::Indirect,
    random::Random,
    rival::{device::Qp, ffi::*},
};
use mlx5_direct::{
    mlx5::{
        context::ServiceType,
        ids::{Lkey, Rkey},
    },
    queue::{Atomic, Flags, Gather, Paired, PostError, Remote, Request, SgeList, Transport},
};
use std::ptr;

/// What is asked of the queue pair.
#[derive(Debug, Clone)]
pub(crate) struct Wr {
    /// `IBV_WR_…`.
    pub(crate) opcode: u32,
    /// `IBV_SEND_…` without `INLINE`.
    flags: u32,
    data: Data,
    remote_addr: u64,
    rkey: u32,
    /// Immediate data, or the key to invalidate.
    imm_or_rkey: u32,
    compare_add: u64,
    swap: u64,
    /// Where a datagram goes.
    to: Option<To>,
    /// The queue that a request of XRC is for.
    srqn: u32,
    /// What is a raw packet's alone.
    frame: Option<Frame>,
}

/// The data of a request.
#[derive(Debug, Clone)]
pub(crate) enum Data {
    Sges(Vec<IbvSge>),
    Inline(Vec<Vec<u8>>),
    Bind(Bind),
    Indirect(Indirect),
}

/// `wr_mr_list` and `wr_mr_interleaved`, which are no operations of verbs.
pub(crate) const MR_LIST: u32 = 1000;
pub(crate) const MR_INTERLEAVED: u32 = 1001;

/// What a request may hold.
pub(crate) const MAX_SGE: usize = 12;
pub(crate) const MAX_INLINE_BYTES: usize = 400;

impl Wr {
    /// Any request of these operations.
    pub(crate) fn draw(random: &mut Random, opcodes: &[u32], to: &[To]) -> Self {
        let opcode = random.one_of(opcodes);
        let mut flags = random.below(8) as u32;
        // FENCE is for reliable queue pairs, but the library writes it for all.
        if random.one_in(2) {
            flags &= !IBV_SEND_FENCE;
        }
        let may_inline =
            !matches!(opcode, IBV_WR_RDMA_READ | IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD);
        let data = match opcode {
            IBV_WR_LOCAL_INV => Data::Sges(vec![]),
            IBV_WR_BIND_MW => Data::Bind(Bind::draw(random)),
            MR_LIST | MR_INTERLEAVED => Data::Indirect(Indirect::draw(random, opcode == MR_LIST)),
            _ if may_inline && random.one_in(2) => Data::Inline(pieces(random)),
            IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD => {
                Data::Sges(vec![IbvSge { length: 8, ..sge(random) }])
            }
            _ => {
                let n = if random.one_in(3) { 1 } else { random.below(MAX_SGE + 1) };
                Data::Sges((0..n).map(|_| sge(random)).collect())
            }
        };
        let (remote_addr, rkey, imm_or_rkey) = (random.next(), random.next() as u32, random.next() as u32);
        let remote_addr = if may_inline { remote_addr } else { remote_addr & !7 };
        Self {
            opcode,
            flags,
            data,
            remote_addr,
            rkey,
            imm_or_rkey,
            compare_add: random.next(),
            swap: random.next(),
            srqn: random.below(1 << 24) as u32,
            to: (!to.is_empty()).then(|| random.one_of(to).with_random_peer(random)),
            frame: None,
        }
    }

    /// A raw packet.
    pub(crate) fn of_frame(random: &mut Random, frame: Frame) -> Self {
        let opcode = if frame.is_large() { IBV_WR_TSO } else { IBV_WR_SEND };
        let data = match !frame.is_large() && random.one_in(2) {
            true => Data::Inline(frame.draw_inline(random)),
            false => Data::Sges(frame.draw_sges(random)),
        };
        let flags = random.below(8) as u32 | frame.checksum_flag();
        Self { opcode, flags, data, frame: Some(frame), ..Self::draw(random, &[IBV_WR_SEND], &[]) }
    }

    /// A SEND with so many pieces of memory.
    pub(crate) fn of_pieces(random: &mut Random, n: usize) -> Self {
        let data = Data::Sges((0..n).map(|_| IbvSge { length: 8, ..sge(random) }).collect());
        Self { opcode: IBV_WR_SEND, data, ..Self::draw(random, &[IBV_WR_SEND], &[]) }
    }

    /// A window over so many bytes.
    pub(crate) fn of_window(random: &mut Random, len_bytes: u64) -> Self {
        let data = Data::Bind(Bind::draw(random).over(len_bytes));
        Self { data, ..Self::draw(random, &[IBV_WR_BIND_MW], &[]) }
    }

    /// Whether libmlx5 by itself puts the small fence on what comes next.
    pub(crate) fn changes_a_key(&self) -> bool {
        matches!(self.opcode, IBV_WR_LOCAL_INV | IBV_WR_BIND_MW) || self.is_indirect()
    }

    /// `ibv_bind_mw`.
    pub(crate) fn is_type_1(&self) -> bool {
        matches!(&self.data, Data::Bind(bind) if bind.is_type_1)
    }

    pub(crate) fn is_indirect(&self) -> bool {
        matches!(self.opcode, MR_LIST | MR_INTERLEAVED)
    }

    /// A SEND with so many bytes of inline data.
    pub(crate) fn of_inline(random: &mut Random, n_bytes: usize) -> Self {
        let data = Data::Inline(vec![random.bytes(n_bytes)]);
        Self { data, ..Self::of_pieces(random, 1) }
    }

    /// Its flags for us. Where libmlx5 by itself puts the small fence on the request after a change of a key, ours is
    /// asked to.
    pub(crate) fn flags(&self, after_key_change: bool) -> Flags {
        let mut flags = if after_key_change { Flags::AFTER_INVALIDATE } else { Flags::NONE };
        for (flag, ours) in [
            (IBV_SEND_SIGNALED, Flags::SIGNALED),
            (IBV_SEND_FENCE, Flags::FENCE),
            (IBV_SEND_SOLICITED, Flags::SOLICITED),
        ] {
            if self.flags & flag != 0 {
                flags = flags | ours;
            }
        }
        flags
    }

    fn remote(&self) -> Remote {
        Remote { addr: self.remote_addr, rkey: Rkey::new(self.rkey) }
    }

    fn sges<'l, 'q, K: SgeList, T: Transport>(
        &self,
        mut request: Request<'l, 'q, K, T>,
    ) -> Result<Request<'l, 'q, K, T>, PostError> {
        let Data::Sges(sges) = &self.data else { unreachable!("not inline") };
        for sge in sges {
            // SAFETY: no device reads the ring.
            request = unsafe { request.sge(Lkey::new(sge.lkey), sge.addr, sge.length)? };
        }
        Ok(request)
    }

    /// Ends a request with its data.
    fn finish<T: Transport>(&self, request: Request<'_, '_, Gather, T>) -> Result<(), PostError> {
        let Data::Inline(pieces) = &self.data else {
            self.sges(request)?.finish();
            return Ok(());
        };
        let mut request = request.inline(&pieces[0])?;
        for piece in &pieces[1..] {
            request = request.inline(piece)?;
        }
        request.finish();
        Ok(())
    }

    /// Ends an atomic with its piece of memory.
    fn finish_atomic<T: Paired>(&self, request: Request<'_, '_, Atomic, T>) -> Result<(), PostError> {
        let Data::Sges(sges) = &self.data else { unreachable!("atomics name memory") };
        // SAFETY: no device reads the ring.
        unsafe { request.sge(Lkey::new(sges[0].lkey), sges[0].addr)? }.finish();
        Ok(())
    }

    /// Its pieces as libibverbs takes them.
    fn their_sges(&self) -> Vec<IbvSge> {
        match &self.data {
            Data::Sges(sges) => sges.clone(),
            Data::Inline(pieces) => pieces
                .iter()
                .map(|piece| IbvSge {
                    addr: piece.as_ptr().addr() as u64,
                    length: piece.len() as u32,
                    lkey: 0,
                })
                .collect(),
            Data::Bind(_) | Data::Indirect(_) => vec![],
        }
    }

    fn their_bind(&self) -> Option<Theirs> {
        match &self.data {
            Data::Bind(bind) => Some(bind.theirs()),
            _ => None,
        }
    }

    /// Where libmlx5 writes zeros and we leave the WQE's bytes as they were.
    pub(crate) fn cleared(&self) -> std::ops::Range<usize> {
        self.frame.as_ref().map_or(0..0, |frame| frame.cleared(&self.data))
    }

    /// Where libmlx5 leaves the WQE's bytes as they were and we write zeros: places, and why that is right.
    pub(crate) fn left_alone<T: Transport>(
        &self,
        by_ibv_wr: bool,
    ) -> Vec<(std::ops::Range<usize>, &'static str)> {
        let has_imm = matches!(
            self.opcode,
            IBV_WR_SEND_WITH_IMM
                | IBV_WR_SEND_WITH_INV
                | IBV_WR_RDMA_WRITE_WITH_IMM
                | IBV_WR_LOCAL_INV
                | IBV_WR_BIND_MW
                | MR_LIST
                | MR_INTERLEAVED
        );
        let mut all: Vec<_> = self.frame.iter().flat_map(Frame::left_alone).collect();
        if by_ibv_wr && !has_imm {
            all.push((12..16, "ctrl.imm of an operation without immediate is not read"));
        }
        if self.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD {
            let at = 16 * (2 + T::N_AV_SEGMENTS as usize) + 8;
            all.push((at..at + 8, "fetch-and-add has no compare operand"));
        }
        if T::SERVICE == ServiceType::XRC && !self.changes_a_key() {
            all.push((20..32, "reserved bytes of the XRC segment"));
        }
        if self.opcode == IBV_WR_LOCAL_INV {
            all.push((65..68, "the key's context: fields that the UMR's mask does not name"));
            all.push((72..128, "the key's context: fields that the UMR's mask does not name"));
        }
        if let Data::Bind(bind) = &self.data {
            for range in bind.left_alone() {
                all.push((range, "the key's context: fields that the UMR's mask does not name"));
            }
        }
        all
    }
}

/// Any piece of memory, so that twelve are no longer than a message may be.
fn sge(random: &mut Random) -> IbvSge {
    let length = match random.below(6) {
        0 => 0,
        1 => 1 << 27,
        _ => random.below(1 << 20) as u32,
    };
    IbvSge { addr: random.next(), length, lkey: random.next() as u32 }
}

/// Inline data in up to four pieces.
fn pieces(random: &mut Random) -> Vec<Vec<u8>> {
    let mut room = match random.below(3) {
        0 => random.below(17),
        1 => random.below(MAX_INLINE_BYTES + 1),
        _ => 64 * random.below(7) + random.below(16),
    };
    let n = if random.one_in(2) { 1 } else { 1 + random.below(4) };
    (0..n)
        .map(|i| {
            let len = if i + 1 == n { room } else { random.below(room + 1) };
            room -= len;
            random.bytes(len)
        })
        .collect()
}

/// By `ibv_post_send`, as one chain.
pub(crate) fn ibv_post_send(qp: &Qp, wrs: &[Wr]) -> i32 {
    let sges: Vec<_> = wrs.iter().map(Wr::their_sges).collect();
    let binds: Vec<_> = wrs.iter().map(Wr::their_bind).collect();
    let mut chain: Vec<_> = wrs
        .iter()
        .zip(&sges)
        .zip(&binds)
        .map(|((wr, sges), bind)| {
            let is_inline = matches!(wr.data, Data::Inline(_));
            let is_imm = matches!(wr.opcode, IBV_WR_SEND_WITH_IMM | IBV_WR_RDMA_WRITE_WITH_IMM);
            let is_atomic = matches!(wr.opcode, IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD);
            IbvSendWr {
                wr_id: 1,
                sg_list: sges.as_ptr(),
                num_sge: sges.len() as i32,
                opcode: wr.opcode,
                send_flags: wr.flags | if is_inline { IBV_SEND_INLINE } else { 0 },
                imm_or_rkey: if is_imm { wr.imm_or_rkey.to_be() } else { wr.imm_or_rkey },
                wr: match wr.to {
                    Some(to) => to.union(),
                    None => WrUnion {
                        remote_addr_or_ah: wr.remote_addr,
                        rkey_or_compare_add: if is_atomic { wr.compare_add } else { u64::from(wr.rkey) },
                        swap: wr.swap,
                        atomic_rkey: u64::from(wr.rkey),
                    },
                },
                remote_srqn: wr.srqn,
                rest: match (bind, &wr.frame) {
                    (Some(bind), _) => bind.rest(),
                    (None, Some(frame)) => frame.rest(),
                    _ => [0; 6],
                },
                ..Default::default()
            }
        })
        .collect();
    for i in 1..chain.len() {
        chain[i - 1].next = &raw mut chain[i];
    }
    let mut bad = ptr::null_mut();
    // SAFETY: a queue pair, and a chain of requests that point to living memory.
    unsafe { (qp.post_send)(qp.qp.as_ptr(), chain.as_mut_ptr(), &mut bad) }
}

/// By `ibv_wr_start` and the functions that follow it.
pub(crate) fn ibv_wr(qp: &Qp, wrs: &[Wr]) -> i32 {
    let ex = qp.ex.as_ptr();
    // SAFETY: a queue pair made for these operations; the functions are called in their order.
    unsafe {
        ((*ex).wr_start)(ex);
        for wr in wrs {
            let inline = if wr.is_indirect() { IBV_SEND_INLINE } else { 0 };
            ((*ex).wr_id, (*ex).wr_flags) = (1, wr.flags | inline);
            let (rkey, addr) = (wr.rkey, wr.remote_addr);
            match wr.opcode {
                IBV_WR_LOCAL_INV => ((*ex).wr_local_inv)(ex, wr.imm_or_rkey),
                IBV_WR_BIND_MW => {
                    let mut bind = wr.their_bind().expect("a window");
                    ((*ex).wr_bind_mw)(ex, &raw mut *bind.mw, bind.new_rkey, &bind.info);
                }
                IBV_WR_RDMA_READ => ((*ex).wr_rdma_read)(ex, rkey, addr),
                IBV_WR_ATOMIC_FETCH_AND_ADD => ((*ex).wr_atomic_fetch_add)(ex, rkey, addr, wr.compare_add),
                IBV_WR_ATOMIC_CMP_AND_SWP => {
                    ((*ex).wr_atomic_cmp_swp)(ex, rkey, addr, wr.compare_add, wr.swap);
                }
                MR_LIST | MR_INTERLEAVED => {}
                IBV_WR_TSO => {
                    let [header, sizes, ..] = wr.frame.as_ref().expect("a large send").rest();
                    ((*ex).wr_send_tso)(ex, header as *const _, sizes as u16, (sizes >> 16) as u16);
                }
                IBV_WR_SEND => ((*ex).wr_send)(ex),
                IBV_WR_SEND_WITH_IMM => ((*ex).wr_send_imm)(ex, wr.imm_or_rkey.to_be()),
                IBV_WR_SEND_WITH_INV => ((*ex).wr_send_inv)(ex, wr.imm_or_rkey),
                IBV_WR_RDMA_WRITE => ((*ex).wr_rdma_write)(ex, rkey, addr),
                IBV_WR_RDMA_WRITE_WITH_IMM => {
                    ((*ex).wr_rdma_write_imm)(ex, rkey, addr, wr.imm_or_rkey.to_be());
                }
                other => unreachable!("operation {other}"),
            }
            if qp.is_xrc && !wr.changes_a_key() {
                ((*ex).wr_set_xrc_srqn)(ex, wr.srqn);
            }
            if let Some(to) = wr.to {
                ((*ex).wr_set_ud_addr)(ex, to.theirs(), to.remote_qpn, to.remote_qkey);
            }
            match &wr.data {
                Data::Bind(_) => {}
                Data::Indirect(indirect) => indirect.post(qp),
                _ if wr.opcode == IBV_WR_LOCAL_INV => {}
                Data::Sges(sges) if sges.len() == 1 => {
                    ((*ex).wr_set_sge)(ex, sges[0].lkey, sges[0].addr, sges[0].length);
                }
                Data::Sges(sges) => ((*ex).wr_set_sge_list)(ex, sges.len(), sges.as_ptr()),
                Data::Inline(pieces) if pieces.len() == 1 => {
                    ((*ex).wr_set_inline_data)(ex, pieces[0].as_ptr().cast(), pieces[0].len());
                }
                Data::Inline(pieces) => {
                    let pieces: Vec<_> = pieces
                        .iter()
                        .map(|piece| IbvDataBuf { addr: piece.as_ptr().cast(), length: piece.len() })
                        .collect();
                    ((*ex).wr_set_inline_data_list)(ex, pieces.len(), pieces.as_ptr());
                }
            }
        }
        ((*ex).wr_complete)(ex)
    }
}
