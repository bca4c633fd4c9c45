//! One end of a connection: its queue pairs, their memory, and their completion queue.

use crate::{
    explain::Shown,
    failure::Failure,
    plan::{Measure, Op, Plan},
    qp::AnyQp,
    request::Far,
};
use mlx5_direct::{
    Access, Connection, Context, Cq, CqAttr, Events, Mr, QpAddress, QpInit, mlx5::ids::Qpn, queue::Lease,
};
use std::time::Duration;

/// A queue pair and how far it is. All numbers count requests since the start.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) qp: AnyQp,
    pub(crate) lease: Lease,
    pub(crate) posted: u64,
    pub(crate) retired: u64,
    pub(crate) recv_posted: u64,
    pub(crate) received: u64,
}

/// One end.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// `a` or `b`.
    pub(crate) name: &'static str,
    pub(crate) lanes: Vec<Lane>,
    /// Finds the lane of a completion: sorted by number.
    by_qpn: Vec<(Qpn, usize)>,
    cq: Cq,
    pub(crate) mr: Mr,
    pub(crate) ctx: Context,
    pub(crate) places: Places,
    pub(crate) plan: Plan,
    /// The first WQE, doorbell and CQEs, if they are to be explained.
    pub(crate) shown: Option<Shown>,
}

/// Where messages lie in an end's memory: a half for those to send, a half for those that arrive, in each of
/// them slots for each lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    half_bytes: usize,
    slots: u64,
    stride_bytes: u64,
    /// Bytes that come before a message that arrives.
    head_bytes: usize,
}

impl Places {
    /// Slots of a lane.
    pub(crate) fn slots(self) -> u64 {
        self.slots
    }

    /// Where message `n` of a lane lies before it is sent.
    pub(crate) fn outgoing(self, lane: usize, n: u64) -> usize {
        // Within the memory, whose size is a `usize`.
        ((lane as u64 * self.slots + n % self.slots) * self.stride_bytes) as usize
    }

    /// Where message `n` of a lane arrives.
    pub(crate) fn incoming(self, lane: usize, n: u64) -> usize {
        self.half_bytes + self.outgoing(lane, n) + self.head_bytes
    }
}

/// The port that everything runs on. A function has one.
pub(crate) const PORT: u8 = 1;

impl Endpoint {
    /// Makes an end on `ctx`, not connected yet.
    pub(crate) fn new(
        name: &'static str,
        ctx: &Context,
        plan: &Plan,
        measure: Measure,
    ) -> Result<Self, Failure> {
        let pd = ctx.alloc_pd()?;
        let cq = ctx.create_cq(&CqAttr {
            n_cqes: u32::try_from(plan.n_cqes()).unwrap_or(u32::MAX),
            events: if plan.events { Events::Own } else { Events::None },
            ..CqAttr::default()
        })?;
        let half_bytes = usize::try_from(plan.half_bytes(measure))
            .map_err(|_| Failure::Usage("the messages do not fit this machine's addresses".into()))?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let mr = pd.alloc_mr(2 * half_bytes, access)?;
        let init = QpInit {
            max_send_wr: plan.depth,
            max_recv_wr: plan.recv_depth(),
            max_inline_data: if plan.inline { plan.size } else { 0 },
            ..QpInit::default()
        };
        let mut lanes = Vec::new();
        for _ in 0..plan.qps {
            let mut qp = AnyQp::create(&pd, plan.transport, &init, &cq)?;
            let lease = qp.lease(&mr)?;
            lanes.push(Lane { qp, lease, posted: 0, retired: 0, recv_posted: 0, received: 0 });
        }
        let mut by_qpn: Vec<_> = lanes.iter().enumerate().map(|(at, lane)| (lane.qp.qpn(), at)).collect();
        by_qpn.sort_unstable();
        Ok(Self {
            name,
            lanes,
            by_qpn,
            cq,
            mr,
            ctx: ctx.clone(),
            places: Places {
                half_bytes,
                slots: plan.slots(measure).into(),
                stride_bytes: plan.stride(),
                head_bytes: plan.head_bytes() as usize,
            },
            plan: plan.clone(),
            shown: plan.explain.then(Shown::default),
        })
    }

    /// What the peer has to know of its queue pairs.
    pub(crate) fn addresses(&self, how: &Connection) -> Result<Vec<QpAddress>, Failure> {
        self.lanes.iter().map(|lane| lane.qp.address(how)).collect()
    }

    /// Connects each queue pair to its peer's.
    pub(crate) fn connect(&mut self, peers: &[QpAddress], how: &Connection) -> Result<(), Failure> {
        for (lane, peer) in self.lanes.iter_mut().zip(peers) {
            lane.qp.connect(peer, how)?;
        }
        Ok(())
    }

    /// Its memory, as requests of the peer name it.
    pub(crate) fn far(&self) -> Far {
        Far::new(self.mr.remote(0), self.places)
    }

    /// Posts receive requests until the queue of `lane` is full, and publishes them together.
    pub(crate) fn fill_recv_queue(&mut self, lane: usize) -> Result<(), Failure> {
        let places = self.places;
        // The data of a WRITE with immediate go where the WRITE says.
        let len = if self.plan.op == Op::Send { u64::from(self.plan.size) } else { 0 };
        let head = u64::from(self.plan.head_bytes());
        let Lane { qp, lease, recv_posted, received, .. } = &mut self.lanes[lane];
        let end = *received + u64::from(self.plan.recv_depth());
        let mut list = qp.recv_list();
        for n in *recv_posted..end {
            let at = places.incoming(lane, n) as u64;
            list.recv(n)?.local(*lease, at - head..at + len)?.finish();
        }
        list.publish();
        *recv_posted = end;
        Ok(())
    }

    /// Whether `n` more requests fit in the send queue of `lane`.
    pub(crate) fn has_room(&self, lane: usize, n: u32) -> bool {
        let Lane { posted, retired, .. } = self.lanes[lane];
        posted - retired + u64::from(n) <= u64::from(self.plan.depth)
    }

    /// Takes and retires every completion that is there; how many they were.
    #[inline]
    pub(crate) fn drain(&mut self) -> Result<usize, Failure> {
        let mut n = 0;
        let mut done = self.cq.poll();
        while let Some(wc) = done.next() {
            n += 1;
            let qpn = wc.qpn();
            let Ok(at) = self.by_qpn.binary_search_by_key(&qpn, |(qpn, _)| *qpn) else {
                return Err(Failure::Run(format!(
                    "{}: a completion of QP {qpn}, which is not ours",
                    self.name
                )));
            };
            let lane = &mut self.lanes[self.by_qpn[at].1];
            if let Some(shown) = &mut self.shown {
                shown.completed(wc.to_bytes(), &wc);
            }
            if let Err(error) = wc.status() {
                return Err(Failure::Run(format!("{}: {}", self.name, lane.qp.explain(&error))));
            }
            let wr_id = lane.qp.retire(&wc)?.wr_id;
            if wc.is_send() {
                lane.retired = wr_id + 1;
                continue;
            }
            let imm = (self.plan.op == Op::WriteImm).then_some(lane.received as u32);
            let len = self.plan.size + self.plan.head_bytes();
            if wr_id != lane.received || wc.byte_len() != len || wc.imm() != imm {
                return Err(Failure::Run(format!(
                    "{}: QP {qpn} received message {wr_id} of {} bytes with immediate {:?}; expected message {} \
                     of {} bytes with {imm:?}",
                    self.name,
                    wc.byte_len(),
                    wc.imm(),
                    lane.received,
                    len,
                )));
            }
            lane.received += 1;
        }
        Ok(n)
    }

    /// Sleeps until a completion can be taken, or `timeout` has passed.
    pub(crate) fn sleep(&mut self, timeout: Duration) -> Result<(), Failure> {
        self.cq.wait(timeout)?;
        Ok(())
    }
}
