//! perftest as the other end: `ib_send_lat`, `ib_write_bw` and their like, as client or as server.
//!
//! One queue pair, one size, a number of iterations (`-s`, `-n`), a GID (`-x`). What perftest's messages carry is not
//! defined, so there is no more to check than lengths, counters, and that memory that nobody changes reads the same.

mod talk;

pub(crate) use talk::MAX_CYCLE_BUFFER_BYTES;

use super::{
    Local, Outcome, bw,
    half::{Half, Role},
    tcp::Tcp,
};
use crate::{
    endpoint::Endpoint,
    failure::Failure,
    plan::{Measure, Op, Plan},
    report::{LatencyRow, RateRow},
    request::Far,
    traffic::{Latencies, Progress},
};
use mlx5_direct::{
    Connection, QpAddress,
    mlx5::{
        context::Mtu,
        ids::{Psn, Qpn, Rkey},
    },
    queue::Remote,
};
use std::time::{Duration, Instant};
use talk::{Keys, Talk};

/// Rules of the command line.
pub(super) fn check_usage(command: &str, plans: &[Plan]) -> Result<(), Failure> {
    let rule = |text: String| Err(Failure::Usage(format!("--exchange perftest: {text}")));
    let [plan] = plans else {
        return rule(format!(
            "one size is run, and {} were given; give perftest the same with -s",
            plans.len()
        ));
    };
    if plan.op == Op::WriteImm {
        return rule("this perftest has no WRITE with immediate; use --op send or --op write".into());
    }
    if plan.qps != 1 {
        return rule(format!("one queue pair is run, and --qps is {}; leave it out, and -q too", plan.qps));
    }
    if command == "lat" && plan.batch != 1 {
        return rule(format!(
            "ib_*_lat sends one message at a time, and --batch is {}; leave it out",
            plan.batch
        ));
    }
    if plan.op == Op::Write && plan.size == 0 {
        return rule("perftest's WRITEs have a last byte, so --size 0 cannot be".into());
    }
    Ok(())
}

/// A connected end, and what it says of itself.
struct Met<'t> {
    half: Half<'t>,
    own: Keys,
    peer: QpAddress,
}

impl Met<'_> {
    fn talk(&mut self, local: &Local<'_>) -> Talk<'_> {
        Talk::new(self.half.tcp, local)
    }

    /// A round of keys that is nothing but a barrier.
    fn barrier(&mut self, local: &Local<'_>) -> Result<(), Failure> {
        let own = self.own;
        self.talk(local).keys(&own)?;
        Ok(())
    }

    /// The barrier after a run, for which the end that answers waits while the peer works.
    fn last_barrier(&mut self, local: &Local<'_>) -> Result<(), Failure> {
        if local.role == Role::Asks {
            return self.barrier(local);
        }
        self.half.hear(Talk::keys_came, |half| Ok(half.end.drain()? > 0))?;
        let own = self.own;
        self.talk(local).answer(&own)
    }

    fn end<R>(self, row: Option<R>, latencies: Option<Latencies>) -> Result<Outcome<R>, Failure> {
        Outcome::new(self.half.end, &[self.peer], row, latencies)
    }
}

/// All that precedes a run: the greetings, the connection, and as many barriers as the peer's program has.
fn meet<'t>(plan: &Plan, local: &Local<'_>, tcp: &'t mut Tcp, measure: Measure) -> Result<Met<'t>, Failure> {
    let port = local.ctx.port(local.how.port)?;
    let mtu = Talk::new(tcp, local).greet(local.how.path_mtu.unwrap_or(port.active_mtu).0)?;
    let mut end = Endpoint::new(local.role.name(), local.ctx, plan, measure)?;
    let address = end.addresses(&local.how)?[0];
    // Where messages arrive is where requests of the peer go, its READs too.
    let target = end.far().incoming(0, 0);
    // As perftest does: one, where no READs or atomics are sent.
    let out_reads = if plan.op.fetches() { local.ctx.device().max_qp_rd_atom } else { 1 };
    let own = Keys {
        lid: address.lid,
        out_reads,
        qpn: address.qpn.get(),
        psn: address.psn.get(),
        rkey: target.rkey.get(),
        vaddr: target.addr,
        gid: address.gid,
    };
    let mut talk = Talk::new(tcp, local);
    if measure == Measure::Latency && plan.op != Op::Send {
        talk.keys(&own)?;
    }
    let theirs = talk.keys(&own)?;
    let peer = local.peer(Qpn::new(theirs.qpn), Psn::new(theirs.psn), theirs.gid)?;
    end.connect(
        &[peer],
        &Connection {
            path_mtu: Some(Mtu(mtu)),
            max_dest_rd_atomic: out_reads,
            max_rd_atomic: theirs.out_reads.clamp(1, local.ctx.device().max_qp_init_rd_atom),
            ..local.how
        },
    )?;
    let far = Far::one_place(Remote { addr: theirs.vaddr, rkey: Rkey::new(theirs.rkey) });
    let half = Half::new(end, far, local.role, tcp);
    let mut met = Met { half, own, peer };
    met.barrier(local)?;
    met.barrier(local)?;
    if plan.op == Op::Send {
        met.half.fill_recv_queues()?;
        met.barrier(local)?;
    }
    Ok(met)
}

/// `ib_send_lat`, `ib_write_lat`, `ib_read_lat` or `ib_atomic_lat` at the other end.
pub(super) fn latency(plan: &Plan, local: &Local<'_>, tcp: &mut Tcp) -> Result<Outcome<LatencyRow>, Failure> {
    let mut met = meet(plan, local, tcp, Measure::Latency)?;
    let latencies = match (plan.op, local.role) {
        (Op::Read | Op::Cas | Op::Faa, Role::Asks) => Some(fetch(&mut met.half)?),
        (Op::Read | Op::Cas | Op::Faa, Role::Answers) => None,
        _ => ping_pong(&mut met.half)?,
    };
    if plan.op == Op::Write {
        // There is no barrier: the peer may still wait for the last acknowledgement.
        met.half.tcp.wait_closed(Duration::from_millis(500));
    } else {
        met.last_barrier(local)?;
        met.talk(local).done()?;
    }
    let row = latencies.as_ref().map(|latencies| LatencyRow::new(plan.size, latencies));
    met.end(row, latencies)
}

/// `ib_send_bw`, `ib_write_bw`, `ib_read_bw` or `ib_atomic_bw` at the other end.
pub(super) fn bandwidth(plan: &Plan, local: &Local<'_>, tcp: &mut Tcp) -> Result<Outcome<RateRow>, Failure> {
    let mut met = meet(plan, local, tcp, Measure::Bandwidth)?;
    let mut rate = None;
    if local.role == Role::Asks {
        let inline = bw::prepare(&mut met.half)?;
        rate = Some(bw::ask(&mut met.half, &inline)?);
    } else if plan.op == Op::Send {
        receive_all(&mut met.half)?;
    }
    met.last_barrier(local)?;
    if plan.op != Op::Send {
        let (mb, mmsg) = rate.map_or((0.0, 0.0), |rate| (rate.mb_per_s(), rate.mmsg_per_s()));
        met.talk(local).report(plan.size.into(), plan.iters, [mb, mb, mmsg])?;
        // The server waits at the barrier that closes, too.
        met.barrier(local)?;
    }
    met.talk(local).done()?;
    met.end(rate.as_ref().map(RateRow::new), None)
}

/// Takes `plan.iters` messages.
fn receive_all(half: &mut Half<'_>) -> Result<(), Failure> {
    let iters = half.end.plan.iters;
    loop {
        let received = half.end.lanes[0].received;
        if received >= iters {
            return Ok(());
        }
        half.wait("the arrival of a message", |end| end.lanes[0].received > received)?;
        bw::step(half)?;
    }
}

/// Messages each way in turn. With SEND the client starts, with WRITE the server.
fn ping_pong(half: &mut Half<'_>) -> Result<Option<Latencies>, Failure> {
    let plan = half.end.plan.clone();
    let mut latencies = Latencies::new()?;
    let mut progress = Progress::new(
        format!("lat {} {} B", plan.op.name(), plan.size),
        plan.iters,
        std::slice::from_ref(&half.end),
    );
    let starts = (half.role == Role::Asks) == (plan.op == Op::Send);
    let mut sent_at = None;
    for n in 0..plan.iters {
        if starts {
            sent_at = Some(send(half, n)?);
        }
        arrive(half, n)?;
        if let Some(sent) = sent_at {
            latencies.record(Instant::now().saturating_duration_since(sent) / 2);
        }
        if !starts {
            sent_at = Some(send(half, n)?);
        }
        if plan.op == Op::Send {
            half.end.fill_recv_queue(0)?;
        }
        progress.at(n + 1)?;
    }
    half.settle()?;
    Ok((starts || plan.iters > 1).then_some(latencies))
}

/// The last byte of message `n`: its number from 1 on, of which the peer waits for 8 bits.
fn last_byte(n: u64) -> u8 {
    (n + 1) as u8
}

fn send(half: &mut Half<'_>, n: u64) -> Result<Instant, Failure> {
    if !half.end.has_room(0, 1) {
        half.wait("the completion of a request", |end| end.has_room(0, 1))?;
    }
    // The message before the last is answered, so its place is free.
    let mut bytes = vec![0; half.end.plan.size as usize];
    half.payload.fill(half.role.way(), 0, n, &mut bytes);
    if let Some(last) = bytes.last_mut() {
        *last = last_byte(n);
    }
    half.end.mr.try_write(half.end.places.outgoing(0, n), &bytes)?;
    let requests = half.requests(0, half.end.plan.iters, 0);
    let start = Instant::now();
    half.end.request(requests, 1, |_| &bytes)?;
    Ok(start)
}

fn arrive(half: &mut Half<'_>, n: u64) -> Result<(), Failure> {
    if half.end.plan.op == Op::Send {
        return half.wait("the arrival of a message", |end| end.lanes[0].received > n);
    }
    // All at one place.
    let at = half.end.places.incoming(0, 0) + half.end.plan.size as usize - 1;
    half.wait_memory(at, last_byte(n), "the arrival of an RDMA WRITE")
}

/// READs or atomics one at a time, to their completion.
fn fetch(half: &mut Half<'_>) -> Result<Latencies, Failure> {
    let plan = half.end.plan.clone();
    let mut latencies = Latencies::new()?;
    let mut progress = Progress::new(
        format!("lat {} {} B", plan.op.name(), plan.size),
        plan.iters,
        std::slice::from_ref(&half.end),
    );
    let (mut first, mut found) = (Vec::new(), vec![0; plan.size as usize]);
    for n in 0..plan.iters {
        let at = half.end.places.incoming(0, n);
        // What is there already cannot be taken for what comes.
        half.end.mr.try_write(at, &vec![!first.first().copied().unwrap_or(0); plan.size as usize])?;
        let requests = half.requests(0, plan.iters, 0);
        let start = Instant::now();
        half.end.request(requests, 1, |_| &[])?;
        half.wait("the completion of a request", |end| end.lanes[0].retired > n)?;
        latencies.record(start.elapsed());
        half.end.mr.try_read(at, &mut found)?;
        if n == 0 {
            first.clone_from(&found);
        }
        let expected = match (plan.op, first.first_chunk()) {
            // The word changes by what is added.
            (Op::Faa, Some(word)) => {
                let sum = half.payload.word(0, 0).wrapping_mul(n);
                u64::from_ne_bytes(*word).wrapping_add(sum).to_ne_bytes().to_vec()
            }
            // A compare that fails changes nothing, and memory that nobody writes stays.
            _ => first.clone(),
        };
        let swapped = plan.op == Op::Cas && found == half.payload.word(0, n).to_ne_bytes();
        if found != expected && !swapped {
            let name = plan.op.name();
            return Err(Failure::Run(format!(
                "{name} {n} brought {found:02x?}, and {expected:02x?} was there"
            )));
        }
        progress.at(n + 1)?;
    }
    Ok(latencies)
}
