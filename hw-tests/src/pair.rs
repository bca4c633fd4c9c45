//! Two connected queue pairs, by the public interface alone.

use crate::{
    bench::Bench,
    interrupt,
    outcome::{Outcome, fail},
};
use mlx5_direct::{
    Access, Connection, Context, Cq, CqAttr, Error, Events, Mr, Pd, Qp, QpAddress, QpInit,
    cqe::CqeSyndrome,
    queue::{
        AddressHandle, CompletionError, Connected, Lease, PostError, PostList, Rc, Source, Transport, Ud,
    },
};
use std::time::{Duration, Instant};

/// Nothing takes longer.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// Bytes of memory of each end.
pub(crate) const MEMORY_BYTES: usize = 1 << 16;

/// What the ends shall be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) init: QpInit,
    pub(crate) how: Connection,
    /// What a peer may do to the memory.
    pub(crate) access: Access,
    pub(crate) events: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            init: QpInit::default(),
            how: Connection::default(),
            access: Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            events: false,
        }
    }
}

/// One end. A field is dropped after those that use it.
#[derive(Debug)]
pub(crate) struct End<T = Rc> {
    pub(crate) qp: Qp<T>,
    pub(crate) cq: Cq,
    pub(crate) mr: Mr,
    pub(crate) lease: Lease,
    pub(crate) pd: Pd,
}

/// A completion, retired.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Done {
    pub(crate) wr_id: u64,
    pub(crate) byte_len: u32,
    pub(crate) imm: Option<u32>,
    pub(crate) source: Option<Source>,
    pub(crate) error: Option<CompletionError>,
}

impl<T: Transport> End<T> {
    fn new(ctx: &Context, setup: &Setup) -> Result<Self, Error> {
        let pd = ctx.alloc_pd()?;
        let events = if setup.events { Events::Own } else { Events::None };
        let cq = ctx.create_cq(&CqAttr { n_cqes: 1024, events, ..CqAttr::default() })?;
        let mut qp = pd.create_qp_of(&setup.init, &cq, &cq)?;
        let mr = pd.alloc_mr(MEMORY_BYTES, setup.access)?;
        let lease = qp.lease(&mr)?;
        Ok(Self { qp, cq, mr, lease, pd })
    }

    fn address(&self, how: &Connection) -> Result<QpAddress, Error> {
        self.qp.address(how.port, how.gid_index)
    }

    /// Writes requests and rings once.
    pub(crate) fn post(
        &mut self,
        write: impl FnOnce(&mut PostList<'_, T>, Lease) -> Result<(), PostError>,
    ) -> Outcome {
        let mut list = self.qp.post_list();
        write(&mut list, self.lease)?;
        list.ring();
        Ok(())
    }

    /// Posts a receive of `len` bytes at `offset`.
    pub(crate) fn recv(&mut self, wr_id: u64, offset: u64, len: u64) -> Outcome {
        Ok(self.qp.post_recv(wr_id, &[self.lease.slice(offset..offset + len)])?)
    }

    /// A completion that is there now.
    pub(crate) fn try_done(&mut self) -> Outcome<Option<Done>> {
        let mut poll = self.cq.poll();
        let Some(wc) = poll.next() else { return Ok(None) };
        let wr_id = self.qp.retire(&wc)?.wr_id;
        Ok(Some(Done {
            wr_id,
            byte_len: wc.byte_len(),
            imm: wc.imm(),
            source: wc.source(),
            error: wc.error(),
        }))
    }

    /// The next completion.
    pub(crate) fn done(&mut self) -> Outcome<Done> {
        let start = Instant::now();
        loop {
            if let Some(done) = self.try_done()? {
                return Ok(done);
            }
            if interrupt::asked() {
                return fail("interrupted");
            }
            if start.elapsed() > DEADLINE {
                return fail(format!("no completion on QP {} within {DEADLINE:?}", self.qp.qpn()));
            }
            std::thread::yield_now();
        }
    }

    /// The next completion, which must be of request `wr_id` and without error.
    pub(crate) fn completes(&mut self, wr_id: u64) -> Outcome<Done> {
        let done = self.done()?;
        match done.error {
            Some(error) => fail(error.to_string()),
            None if done.wr_id != wr_id => fail(format!("request {} completed, not {wr_id}", done.wr_id)),
            None => Ok(done),
        }
    }

    /// Sleeps until completion `n`, of which an event must tell: one found when the wait is over is a lost wake-up.
    pub(crate) fn wakes(&mut self, n: u64) -> Outcome {
        let start = Instant::now();
        let came = self.cq.wait(DEADLINE)?;
        if start.elapsed() < DEADLINE {
            return Ok(());
        }
        fail(match came {
            true => format!("completion {n} came, and no event told of it within {DEADLINE:?}"),
            false => format!("completion {n} did not come within {DEADLINE:?}"),
        })
    }

    /// The next completion, which must be an error of this kind.
    pub(crate) fn fails(&mut self, syndrome: CqeSyndrome) -> Outcome {
        match self.done()?.error {
            Some(error) if error.syndrome == syndrome => Ok(()),
            Some(error) => fail(format!("failed with another error than {syndrome}: {error}")),
            None => fail(format!("succeeded, and should fail with {syndrome}")),
        }
    }

    /// Compares memory with what should be there.
    pub(crate) fn holds(&self, offset: usize, bytes: &[u8]) -> Outcome {
        let mut found = vec![0; bytes.len()];
        self.mr.try_read(offset, &mut found)?;
        match found.iter().zip(bytes).position(|(found, byte)| found != byte) {
            None => Ok(()),
            Some(at) => fail(format!(
                "byte {at} of {} at offset {offset} is 0x{:02x}, not 0x{:02x}",
                bytes.len(),
                found[at],
                bytes[at]
            )),
        }
    }
}

/// Two connected ends on the bench.
pub(crate) fn pair(bench: &Bench, setup: &Setup) -> Outcome<(End, End)> {
    pair_of(bench, setup)
}

/// Two ends connected by some transport.
pub(crate) fn pair_of<T: Connected>(bench: &Bench, setup: &Setup) -> Outcome<(End<T>, End<T>)> {
    let [on_a, on_b] = bench.ends();
    let (mut a, mut b) = (End::new(on_a, setup)?, End::new(on_b, setup)?);
    let (to_a, to_b) = (a.address(&setup.how)?, b.address(&setup.how)?);
    a.qp.connect(&to_b, &setup.how)?;
    b.qp.connect(&to_a, &setup.how)?;
    Ok((a, b))
}

/// What datagrams of the bench carry.
pub(crate) const QKEY: u32 = 0x1234_5678;

/// Two ends for datagrams, and the way from the first to the second.
pub(crate) fn datagram_pair(bench: &Bench, setup: &Setup) -> Outcome<(End<Ud>, End<Ud>, AddressHandle)> {
    let [on_a, on_b] = bench.ends();
    let (mut a, mut b) = (End::<Ud>::new(on_a, setup)?, End::<Ud>::new(on_b, setup)?);
    a.qp.activate(setup.how.port, QKEY)?;
    b.qp.activate(setup.how.port, QKEY)?;
    let to_b = b.address(&setup.how)?;
    let handle = a.qp.address_handle(&a.qp.address_to(&to_b)?, to_b.qpn, QKEY)?;
    Ok((a, b, handle))
}

/// Bytes that tell their place and `salt`.
pub(crate) fn bytes(salt: u32, len: usize) -> Vec<u8> {
    (0..len as u32)
        .map(|at| (at.wrapping_mul(0x9e37_79b1) ^ salt.wrapping_mul(0x85eb_ca6b)).to_be_bytes()[1])
        .collect()
}
