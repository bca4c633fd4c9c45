//! Two functions of a stepped card, some connections between them, and what happens to them.

use super::{
    Draw,
    reference::{End, N_SLOTS, Op},
    support::{ALL, Done},
};
use mlx5_direct::{
    CompChannel, Connection, Context, Cq, CqAttr, Error, Events, Mr, Pd, Qp, QpInit,
    backend::{QpModify, prm::OpenOptions},
    mlx5::context::QpState,
    queue::{Flags, Lease},
};
use mlx5_model::{
    Model, Rule,
    fault::{FaultScript, Mix},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Connections, each with an end on both functions.
const N_PAIRS: usize = 3;
/// Requests of a queue.
const DEPTH: usize = 16;
// Places in an end's memory.
const COUNTER: usize = 64;
const CONSTANT: usize = 72;
const RESULTS: usize = 128;
const INBOX: usize = RESULTS + 8 * DEPTH;
const MR_BYTES: usize = INBOX + 8 * DEPTH;
/// What never changes.
const WORD: u64 = 0x0123_4567_89ab_cdef;

/// No command may last longer, whatever goes wrong: its deadline, and what follows of it.
const BOUND: Duration = Duration::from_secs(5);

/// One end of a connection.
struct Real {
    qp: Qp,
    mr: Mr,
    lease: Lease,
    end: End,
}

pub(crate) struct World {
    pub(crate) model: Model,
    mix: Mix,
    ctx: [Context; 2],
    pds: [Pd; 2],
    cqs: [Cq; 2],
    channels: [CompChannel; 2],
    pairs: Vec<[Real; 2]>,
    armed: [bool; 2],
    /// Connections that a command failed of: nothing is asked of them any more.
    given_up: [bool; N_PAIRS],
    how: Connection,
}

fn options(mix: Mix) -> OpenOptions {
    // Where nothing is to be waited for, a busy computer is no reason to give up.
    let command_timeout = Duration::from_millis(if mix == Mix::Wire { 60_000 } else { 20 });
    OpenOptions {
        command_timeout,
        health_interval: Duration::from_millis(20),
        max_firmware_pages: 4000,
        ..OpenOptions::default()
    }
}

impl World {
    pub(crate) fn new(mix: Mix) -> Self {
        let model = Model::new("ports=2,drive=step".parse().unwrap()).unwrap();
        let ctx = [0, 1].map(|index| Context::open(model.function(index).unwrap(), options(mix)).unwrap());
        let pds = [0, 1].map(|n: usize| ctx[n].alloc_pd().unwrap());
        let channels = [0, 1].map(|n: usize| ctx[n].create_comp_channel().unwrap());
        let cqs = [0, 1].map(|n: usize| {
            let events = Events::Channel(&channels[n]);
            ctx[n].create_cq(&CqAttr { n_cqes: 255, events, ..CqAttr::default() }).unwrap()
        });
        let how = Connection { timeout: 6, min_rnr_timer: 1, ..Connection::default() };
        let real = |n: usize| {
            let init = QpInit { max_send_wr: DEPTH as u32, max_recv_wr: DEPTH as u32, ..QpInit::default() };
            let mut qp = pds[n].create_qp(&init, &cqs[n], &cqs[n]).unwrap();
            let mr = pds[n].alloc_mr(MR_BYTES, ALL).unwrap();
            mr.store_u64(CONSTANT, WORD);
            let lease = qp.lease(&mr).unwrap();
            Real { qp, mr, lease, end: End::new(mix == Mix::Wire) }
        };
        let mut world = Self {
            pairs: (0..N_PAIRS).map(|_| [real(0), real(1)]).collect(),
            model,
            mix,
            ctx,
            pds,
            cqs,
            channels,
            armed: [false; 2],
            given_up: [false; N_PAIRS],
            how,
        };
        for pair in 0..N_PAIRS {
            world.connect(pair).unwrap();
        }
        world
    }

    /// Whether requests do what they say: nothing but the wire is at fault.
    fn is_exact(&self) -> bool {
        self.mix == Mix::Wire
    }

    fn connect(&mut self, pair: usize) -> Result<(), Error> {
        let how = &self.how;
        let [a, b] = &mut self.pairs[pair];
        let (to_a, to_b) = (a.qp.address(how.port, how.gid_index)?, b.qp.address(how.port, how.gid_index)?);
        a.qp.connect(&to_b, how)?;
        b.qp.connect(&to_a, how)?;
        let (at_a, at_b) = (a.memory(), b.memory());
        a.end.reborn(at_b.0, at_b.1);
        b.end.reborn(at_a.0, at_a.1);
        Ok(())
    }

    /// One thing that a user does, or time passes.
    pub(crate) fn act(&mut self, draw: &mut Draw) {
        let (pair, side) = (draw.below(N_PAIRS as u64) as usize, draw.below(2) as usize);
        match draw.below(100) {
            0..40 => self.post(pair, side, draw),
            40..60 => self.post_recv(pair, side, 1 + draw.below(3)),
            60..75 => self.poll(side, 1 + draw.below(8) as usize),
            75..88 => {
                for _ in 0..1 + draw.below(6) {
                    self.model.step();
                }
            }
            88..94 => self.model.advance(Duration::from_micros(draw.below(500))),
            94..96 => self.arm(side),
            96..98 => self.reset(pair),
            _ => self.make_something(side, draw),
        }
        self.check_event(side);
    }

    fn post(&mut self, pair: usize, side: usize, draw: &mut Draw) {
        if self.given_up[pair] {
            return;
        }
        let [near, far] = ends(&mut self.pairs[pair], side);
        let n = 1 + draw.below(4);
        if draw.one_in(20)
            && let Ok(request) = near.qp.post_list().nop(0, Flags::SIGNALED)
        {
            // Of a list that is dropped: nothing comes of it.
            request.finish();
        }
        let mut list = near.qp.post_list();
        for _ in 0..n {
            if near.end.sends.len() == DEPTH {
                break;
            }
            // A ring of silent requests would never be free again.
            let signaled = near.end.sends.len() % 4 == 3 || draw.one_in(2);
            let flags = if signaled { Flags::SIGNALED } else { Flags::NONE };
            let wr_id = near.end.send_id();
            let place = place(wr_id);
            let local = (RESULTS + 8 * place) as u64;
            let op = match draw.below(4) {
                0 => {
                    list.send(wr_id, flags).unwrap().inline(&wr_id.to_ne_bytes()).unwrap().finish();
                    Op::Send(wr_id)
                }
                1 => {
                    let slot = draw.below(N_SLOTS as u64) as usize;
                    let request = list.rdma_write(wr_id, far.mr.remote(8 * slot), flags).unwrap();
                    request.inline(&wr_id.to_ne_bytes()).unwrap().finish();
                    Op::Write(slot, wr_id)
                }
                2 => {
                    let request = list.rdma_read(wr_id, far.mr.remote(CONSTANT), flags).unwrap();
                    request.local(near.lease, local..local + 8).unwrap().finish();
                    Op::Read(place)
                }
                _ => {
                    let request = list.fetch_add(wr_id, far.mr.remote(COUNTER), 1, flags).unwrap();
                    request.local(near.lease, local).unwrap().finish();
                    Op::Add(place)
                }
            };
            near.end.posted(wr_id, op, signaled);
        }
        list.ring();
    }

    fn post_recv(&mut self, pair: usize, side: usize, n: u64) {
        if self.given_up[pair] {
            return;
        }
        let [near, _] = ends(&mut self.pairs[pair], side);
        for _ in 0..n {
            if near.end.recvs.len() < DEPTH {
                let wr_id = near.end.recv_id();
                let at = (INBOX + 8 * place(wr_id)) as u64;
                near.qp.post_recv(wr_id, &[near.lease.slice(at..at + 8)]).unwrap();
                near.end.recvs.push_back(wr_id);
            }
        }
    }

    fn poll(&mut self, side: usize, n: usize) {
        let mut poll = self.cqs[side].poll();
        for _ in 0..n {
            let Some(wc) = poll.next() else { break };
            let pair =
                self.pairs.iter_mut().position(|pair| pair[side].qp.user_index() == Some(wc.user_index()));
            let pair = pair.unwrap_or_else(|| panic!("{wc:?} is of nobody"));
            let given_up = self.given_up[pair];
            let [near, far] = ends(&mut self.pairs[pair], side);
            let retired = near.qp.retire(&wc);
            if given_up {
                continue;
            }
            let retired = retired.unwrap_or_else(|error| panic!("{error}: {wc:?}"));
            let done = Done {
                wr_id: retired.wr_id,
                n_freed: retired.n_freed,
                is_send: wc.is_send(),
                opcode: wc.opcode(),
                byte_len: wc.byte_len(),
                imm: wc.imm(),
                invalidated_rkey: None,
                wqe_counter: wc.wqe_counter(),
                source: wc.source(),
                solicited: wc.is_solicited(),
                error: wc.error(),
            };
            if let Some(error) = &done.error {
                // In words too, without a panic.
                assert!(near.qp.explain(error).to_string().contains("failed"));
            }
            let mr = &near.mr;
            if done.is_send {
                near.end.sent(&done, WORD, |place| mr.load_u64(RESULTS + 8 * place));
            } else {
                let number = mr.load_u64(INBOX + 8 * place(done.wr_id));
                near.end.received(&done, &mut far.end, number);
            }
        }
    }

    fn arm(&mut self, side: usize) {
        // What was told once is not told again: who arms has polled before.
        if !self.cqs[side].is_ready() {
            self.cqs[side].arm(false);
            self.armed[side] = true;
        }
    }

    /// Who armed a queue and finds completions in it has been told.
    fn check_event(&mut self, side: usize) {
        if !self.armed[side] || !self.is_exact() || !self.cqs[side].is_ready() {
            return;
        }
        while self.model.step() {}
        assert_eq!(self.channels[side].try_event().unwrap(), Some(self.cqs[side].cqn()));
        self.cqs[side].event_received();
        self.armed[side] = false;
    }

    /// Stops a connection, has everything flushed, and begins anew: from index 0.
    fn reset(&mut self, pair: usize) {
        if self.given_up[pair] {
            return;
        }
        let start = Instant::now();
        let result = self.try_reset(pair);
        assert!(start.elapsed() < 10 * BOUND, "a reset took {:?}", start.elapsed());
        if let Err(error) = result {
            assert!(!self.is_exact(), "{error}");
            self.given_up[pair] = true;
        }
    }

    fn try_reset(&mut self, pair: usize) -> Result<(), Error> {
        let stop = QpModify::to(QpState::ERR);
        self.pairs[pair].iter_mut().try_for_each(|one| one.qp.modify(&stop))?;
        let all_flushed = self.settle(|world| world.pairs[pair].iter().all(|one| one.end.is_idle()));
        let ends = self.pairs[pair].each_ref().map(|one| &one.end);
        assert!(all_flushed, "requests without outcome: {ends:?}");
        self.check_memory(pair);
        let empty = QpModify::to(QpState::RST);
        self.pairs[pair].iter_mut().try_for_each(|one| one.qp.modify(&empty))?;
        self.connect(pair)
    }

    /// What the device can be asked besides, and what it is left with if that fails.
    fn make_something(&mut self, side: usize, draw: &mut Draw) {
        let start = Instant::now();
        let result = match draw.below(3) {
            0 => self.pds[side].alloc_mr(1 + draw.below(9000) as usize, ALL).map(drop),
            1 => self.pds[side].create_qp(&QpInit::default(), &self.cqs[side], &self.cqs[side]).map(drop),
            _ => self.ctx[side].port(1).map(drop),
        };
        assert!(start.elapsed() < BOUND, "{result:?} after {:?}", start.elapsed());
        if let Err(error) = result {
            assert!(!self.is_exact(), "{error}");
            assert!(!error.to_string().is_empty());
        }
    }

    /// Lets time pass until `ready`; false if that does not come to be.
    fn settle(&mut self, ready: impl Fn(&Self) -> bool) -> bool {
        self.settle_for(400, ready)
    }

    fn settle_for(&mut self, n_ms: u32, ready: impl Fn(&Self) -> bool) -> bool {
        for _ in 0..n_ms {
            while self.model.step() {}
            (0..2).for_each(|side| self.poll(side, usize::MAX));
            if ready(self) {
                return true;
            }
            self.model.advance(Duration::from_millis(1));
        }
        false
    }

    fn check_memory(&self, pair: usize) {
        let [a, b] = &self.pairs[pair];
        for (near, far) in [(a, b), (b, a)] {
            if self.is_exact() {
                let (slots, counter) = far.memory();
                near.end.check(slots, counter, !near.end.in_error);
            }
        }
    }

    /// Ends everything: what is outstanding comes, and everything goes, in any order.
    pub(crate) fn finish(mut self, draw: &mut Draw) -> FaultScript {
        // What is on its way comes, if there are receives for it.
        let is_over = |world: &Self| {
            let over = |near: &End, far: &End| {
                let answered = near.sends.iter().all(|sent| !sent.signaled);
                answered && (near.in_error || far.in_error || near.on_their_way.is_empty())
            };
            let mut pairs = world.pairs.iter().zip(world.given_up);
            pairs.all(|([a, b], given_up)| given_up || over(&a.end, &b.end) && over(&b.end, &a.end))
        };
        let over = (0..100).any(|_| {
            for pair in 0..N_PAIRS {
                (0..2).for_each(|side| self.post_recv(pair, side, DEPTH as u64));
            }
            self.settle_for(5, is_over)
        });
        assert!(
            over || !self.is_exact(),
            "requests without outcome: {:?}",
            self.pairs.iter().map(|pair| pair.each_ref().map(|one| &one.end)).collect::<Vec<_>>()
        );
        for pair in 0..N_PAIRS {
            if !self.given_up[pair] {
                self.reset(pair);
            }
        }
        let (model, exact) = (self.model.clone(), self.is_exact());
        let start = Instant::now();
        self.drop_in_any_order(draw);
        assert!(start.elapsed() < 20 * BOUND, "let go of in {:?}", start.elapsed());
        if exact {
            model.assert_clean();
        } else {
            // What a fault leaves behind in the device is no harm; memory that goes while the device has it would be.
            let harm = [Rule::DmaUnmapInUse, Rule::DmaMapped, Rule::DmaWritable];
            for violation in model.take_violations() {
                assert!(!harm.contains(&violation.rule), "{violation}");
            }
        }
        let done = model.faults_done();
        for index in 0..2 {
            let function = model.function(index).unwrap();
            assert_eq!(function.dma().n_mappings(), 0, "function {index}");
            if !exact {
                // It can be opened again, and works.
                model.clear_faults();
                model.inject(&"back".parse().unwrap());
                let again = Context::open(
                    Arc::clone(&function) as _,
                    OpenOptions { reset: true, ..options(Mix::Wire) },
                );
                again.unwrap().alloc_pd().unwrap();
            }
        }
        done
    }

    fn drop_in_any_order(self, draw: &mut Draw) {
        let Self { ctx, pds, cqs, channels, pairs, .. } = self;
        let mut things: Vec<Box<dyn std::any::Any>> = Vec::new();
        ctx.into_iter().for_each(|ctx| things.push(Box::new(ctx)));
        pds.into_iter().for_each(|pd| things.push(Box::new(pd)));
        cqs.into_iter().for_each(|cq| things.push(Box::new(cq)));
        channels.into_iter().for_each(|channel| things.push(Box::new(channel)));
        for Real { qp, mr, .. } in pairs.into_iter().flatten() {
            things.push(Box::new(qp));
            things.push(Box::new(mr));
        }
        while !things.is_empty() {
            drop(things.swap_remove(draw.below(things.len() as u64) as usize));
        }
    }
}

impl Real {
    /// Slots and counter.
    fn memory(&self) -> ([u64; N_SLOTS], u64) {
        (std::array::from_fn(|slot| self.mr.load_u64(8 * slot)), self.mr.load_u64(COUNTER))
    }
}

/// The place of a request's own among those of its queue.
fn place(wr_id: u64) -> usize {
    (wr_id / 2) as usize % DEPTH
}

/// An end and its peer.
fn ends(pair: &mut [Real; 2], side: usize) -> [&mut Real; 2] {
    let [a, b] = pair;
    if side == 0 { [a, b] } else { [b, a] }
}
