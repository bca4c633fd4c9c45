//! What one end of a connection should see: lists, and nothing clever.

use super::support::Done;
use mlx5_direct::cqe::CqeSyndrome;
use std::collections::VecDeque;

/// Words that a peer writes to.
pub(crate) const N_SLOTS: usize = 8;

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// A message with this number.
    Send(u64),
    /// Writes this number to a slot.
    Write(usize, u64),
    /// Reads a word that never changes, to a place of the request's own.
    Read(usize),
    /// Adds one to the peer's counter; the value before goes to a place of the request's own.
    Add(usize),
}

/// A send request without outcome.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) wr_id: u64,
    pub(crate) op: Op,
    pub(crate) signaled: bool,
    /// Adds of this life before it.
    adds_before: u64,
}

/// One end, as its user thinks of it.
#[derive(Debug, Default)]
pub(crate) struct End {
    /// Requests without outcome, oldest first.
    pub(crate) sends: VecDeque<Sent>,
    pub(crate) recvs: VecDeque<u64>,
    /// Numbers sent to the peer and not received by it.
    pub(crate) on_their_way: VecDeque<u64>,
    /// What was written to each of the peer's slots, since its last reset, after what was there before.
    pub(crate) written: [Vec<u64>; N_SLOTS],
    /// The peer's counter at the last reset, and adds posted since.
    pub(crate) counter_before: u64,
    pub(crate) n_adds: u64,
    /// WQEs posted since the last reset.
    pub(crate) n_posted: u64,
    /// A request has failed: all that follow are flushed.
    pub(crate) in_error: bool,
    /// Requests do what they say: nothing but the wire is at fault.
    pub(crate) exact: bool,
    /// Requests of each kind so far.
    n_sends: u64,
    n_recvs: u64,
}

impl End {
    /// One whose requests do what they say, if `exact`.
    pub(crate) fn new(exact: bool) -> Self {
        Self { exact, ..Self::default() }
    }

    /// A new life, from index 0, with what the peer's memory holds now.
    pub(crate) fn reborn(&mut self, slots: [u64; N_SLOTS], counter: u64) {
        assert!(self.is_idle(), "{self:?}");
        let (n_sends, n_recvs, exact) = (self.n_sends, self.n_recvs, self.exact);
        *self = Self {
            written: slots.map(|word| vec![word]),
            counter_before: counter,
            n_sends,
            n_recvs,
            exact,
            ..Self::default()
        };
    }

    /// Whether all has its outcome. Silent requests that are left are done, and well.
    pub(crate) fn is_idle(&self) -> bool {
        self.sends.iter().all(|sent| !sent.signaled) && self.recvs.is_empty()
    }

    /// A number for the next send: even.
    pub(crate) fn send_id(&mut self) -> u64 {
        self.n_sends += 1;
        2 * self.n_sends
    }

    /// A number for the next receive: odd.
    pub(crate) fn recv_id(&mut self) -> u64 {
        self.n_recvs += 1;
        2 * self.n_recvs + 1
    }

    pub(crate) fn posted(&mut self, wr_id: u64, op: Op, signaled: bool) {
        let adds_before = self.n_adds;
        match op {
            Op::Send(n) => self.on_their_way.push_back(n),
            Op::Write(slot, n) => self.written[slot].push(n),
            Op::Add(_) => self.n_adds += 1,
            Op::Read(_) => {}
        }
        self.n_posted += 1;
        self.sends.push_back(Sent { wr_id, op, signaled, adds_before });
    }

    /// A completion of a send: the requests that it ends, of which the last is the one that it is of. `result` reads the place
    /// of a READ or an add.
    pub(crate) fn sent(&mut self, done: &Done, constant: u64, result: impl Fn(usize) -> u64) {
        let at = self.sends.iter().position(|sent| sent.wr_id == done.wr_id);
        let at = at.unwrap_or_else(|| panic!("outcome of {}, which has one or was never posted", done.wr_id));
        let first = self.n_posted - self.sends.len() as u64;
        assert_eq!(done.wqe_counter, (first + at as u64) as u16, "place of {} since the reset", done.wr_id);
        for silent in self.sends.drain(..at) {
            assert!(!silent.signaled && !self.in_error, "{silent:?} has no outcome of its own");
        }
        let sent = self.sends.pop_front().expect("found above");
        assert_eq!(done.n_freed as usize, at + 1, "{sent:?}");
        match done.error {
            None => {
                assert!(!self.in_error && sent.signaled, "{sent:?} cannot be well");
                match sent.op {
                    _ if !self.exact => {}
                    Op::Read(place) => assert_eq!(result(place), constant, "{sent:?}"),
                    Op::Add(place) => {
                        assert_eq!(result(place), self.counter_before + sent.adds_before, "{sent:?}");
                    }
                    Op::Send(_) | Op::Write(..) => {}
                }
            }
            Some(error) => {
                let first = !std::mem::replace(&mut self.in_error, true);
                let flush = error.syndrome == CqeSyndrome::WR_FLUSH_ERR;
                assert!(first || flush, "{sent:?} was to be flushed: {error}");
                let told = flush || error.syndrome == CqeSyndrome::TRANSPORT_RETRY_EXC_ERR;
                assert!(told || !self.exact, "{sent:?}: {error}");
            }
        }
    }

    /// A completion of a receive, of a message with `number` if it is well. `peer` sent it.
    pub(crate) fn received(&mut self, done: &Done, peer: &mut Self, number: u64) {
        let wr_id = self.recvs.pop_front().unwrap_or_else(|| panic!("no receive is posted: {done:?}"));
        assert_eq!(done.wr_id, wr_id, "receives are taken in order");
        match done.error {
            None => {
                let next = peer.on_their_way.pop_front();
                assert!(!self.exact || next == Some(number), "{number} came, and {next:?} was next");
            }
            Some(error) => assert_eq!(error.syndrome, CqeSyndrome::WR_FLUSH_ERR, "{error}"),
        }
    }

    /// The peer's memory: what was written, in order; all of it, if nothing went wrong.
    pub(crate) fn check(&self, slots: [u64; N_SLOTS], counter: u64, all: bool) {
        for (written, word) in self.written.iter().zip(slots) {
            match all {
                true => assert_eq!(Some(&word), written.last()),
                false => assert!(written.contains(&word), "{word} is none of {written:?}"),
            }
        }
        let adds = counter.checked_sub(self.counter_before).expect("a counter counts up");
        assert!(adds <= self.n_adds && (!all || adds == self.n_adds), "{adds} of {} adds", self.n_adds);
    }
}
