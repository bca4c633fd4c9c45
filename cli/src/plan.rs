//! What traffic to run, checked against the rules before anything is made.

use crate::{
    args::{Common, Exchange, Pingpong, Traffic},
    failure::Failure,
    hosts::MAX_CYCLE_BUFFER_BYTES,
};
use clap::ValueEnum;
use mlx5_direct::{
    backend::{DeviceAttr, PortAttr},
    queue::Grh,
};
use std::time::Duration;

/// How queue pairs talk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// Reliable connection
    Rc,
    /// Unreliable connection: SEND and RDMA WRITE, of which nothing is acknowledged
    Uc,
    /// Unreliable datagram: SEND of messages of one packet
    Ud,
}

impl Transport {
    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rc => "rc",
            Self::Uc => "uc",
            Self::Ud => "ud",
        }
    }

    /// Whether it has an operation.
    fn has(self, op: Op) -> bool {
        match self {
            Self::Rc => true,
            Self::Uc => !op.fetches(),
            Self::Ud => op == Op::Send,
        }
    }
}

/// The operation to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Op {
    /// SEND into a posted receive
    Send,
    /// RDMA WRITE; the target polls its memory for it
    Write,
    /// RDMA WRITE with immediate data, which consumes a receive
    WriteImm,
    /// RDMA READ
    Read,
    /// Compare-and-swap of 8 bytes
    Cas,
    /// Fetch-and-add of 8 bytes
    Faa,
}

impl Op {
    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Write => "write",
            Self::WriteImm => "write-imm",
            Self::Read => "read",
            Self::Cas => "cas",
            Self::Faa => "faa",
        }
    }

    /// Whether it works on 8 bytes.
    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Self::Cas | Self::Faa)
    }

    /// Whether it consumes a receive request of the peer.
    pub(crate) fn takes_recv(self) -> bool {
        matches!(self, Self::Send | Self::WriteImm)
    }

    /// Whether it brings data back, so that its completion is the arrival.
    pub(crate) fn fetches(self) -> bool {
        matches!(self, Self::Read | Self::Cas | Self::Faa)
    }
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Half a round trip, or the time to completion of what fetches.
    Latency,
    /// Bytes and messages a second.
    Bandwidth,
}

/// A run of traffic of one size.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) transport: Transport,
    pub(crate) op: Op,
    pub(crate) size: u32,
    /// Exchanges in all (latency) or requests in all (bandwidth).
    pub(crate) iters: u64,
    pub(crate) inline: bool,
    pub(crate) batch: u32,
    pub(crate) depth: u32,
    pub(crate) signal_every: u32,
    pub(crate) events: bool,
    pub(crate) qps: u32,
    pub(crate) seed: u64,
    pub(crate) timeout: Duration,
    pub(crate) explain: bool,
    /// The peer is another process.
    pub(crate) two_hosts: bool,
    /// Bytes that half of an end's memory has at least: what a peer takes to be there.
    pub(crate) window_bytes: u32,
}

/// Registered memory that one end may take.
const MAX_MEMORY_BYTES: u64 = 2 << 30;

/// A software device on a busy machine moves at least so many bytes in a microsecond.
const SLOW_BYTES_PER_US: u64 = 10;
/// And two on such a machine, which give each other the processor, take at most so long for an exchange.
const SLOW_EXCHANGE: Duration = Duration::from_millis(20);

/// Receives of a host for each send of the other that may be outstanding.
const RECV_AHEAD: u32 = 4;

/// Memory in which bandwidth runs spread their messages.
const WINDOW_BYTES: u64 = 16 << 20;

impl Plan {
    fn new(common: &Common, op: Op, size: u32) -> Self {
        Self {
            transport: common.transport.or(common.peer.exchange.transport()).unwrap_or(Transport::Rc),
            op,
            size,
            iters: 1,
            inline: common.inline,
            batch: 1,
            depth: 128,
            signal_every: common.signal_every,
            events: common.events,
            qps: 1,
            seed: common.seed,
            timeout: Duration::from_secs(common.timeout.into()),
            explain: common.explain,
            two_hosts: common.peer.is_given(),
            window_bytes: match common.peer.exchange {
                Exchange::Perftest => MAX_CYCLE_BUFFER_BYTES,
                _ => 0,
            },
        }
    }

    /// The plan of `pingpong`.
    pub(crate) fn pingpong(args: &Pingpong) -> Result<Self, Failure> {
        let plan = Self { iters: args.iters, ..Self::new(&args.common, Op::Send, args.size) };
        plan.check(Measure::Latency)?;
        Ok(plan)
    }

    /// The plans of `lat` or `bw`, one for each size.
    pub(crate) fn traffic(args: &Traffic, measure: Measure) -> Result<Vec<Self>, Failure> {
        let sizes = match (&args.size, measure) {
            (Some(sizes), _) => sizes.0.clone(),
            (None, _) if args.op.is_atomic() => vec![8],
            (None, Measure::Latency) => vec![64],
            (None, Measure::Bandwidth) if args.common.transport == Some(Transport::Ud) => vec![1 << 10],
            (None, Measure::Bandwidth) => vec![64 << 10],
        };
        let plan = |size: u32| {
            // About 1 GiB, so that a sweep to the longest messages ends.
            let default_iters = (1u64 << 30).checked_div(size.into()).map_or(10_000, |n| n.clamp(4, 10_000));
            let plan = Self {
                iters: args.iters.unwrap_or(default_iters),
                batch: args.batch,
                depth: args.depth,
                qps: args.qps,
                ..Self::new(&args.common, args.op, size)
            };
            plan.check(measure)?;
            Ok(plan)
        };
        sizes.into_iter().map(plan).collect()
    }

    /// Slots for messages that each queue pair has in memory.
    pub(crate) fn slots(&self, measure: Measure) -> u32 {
        match measure {
            // With two hosts the next exchange may arrive while this one is being checked.
            Measure::Latency => self.batch * if self.two_hosts { 2 } else { 1 },
            Measure::Bandwidth => {
                let fit = WINDOW_BYTES / (self.stride() * u64::from(self.qps));
                // At most `depth`, so it fits.
                fit.clamp(1, self.depth.into()) as u32
            }
        }
    }

    /// Bytes that come before a message that arrives: the network header of datagrams.
    pub(crate) fn head_bytes(&self) -> u32 {
        if self.transport == Transport::Ud { Grh::BYTES as u32 } else { 0 }
    }

    /// Distance of two slots in bytes.
    pub(crate) fn stride(&self) -> u64 {
        u64::from(self.size.saturating_add(self.head_bytes())).max(1).next_multiple_of(64)
    }

    /// Bytes of one of the two halves of an end's memory.
    pub(crate) fn half_bytes(&self, measure: Measure) -> u64 {
        let messages = self.stride() * u64::from(self.slots(measure)) * u64::from(self.qps);
        messages.max(self.window_bytes.into())
    }

    /// Rules that need no device.
    fn check(&self, measure: Measure) -> Result<(), Failure> {
        let name = self.op.name();
        let rule = |text: String| Err(Failure::Usage(text));
        if !self.transport.has(self.op) {
            return rule(format!(
                "--op {name} with --transport {}: {}; use --transport rc",
                self.transport.name(),
                match self.transport {
                    Transport::Ud => "a datagram has no remote address, and can only be sent",
                    _ => "it needs an answer, and an unreliable connection has none",
                }
            ));
        }
        let is_lossy = self.transport != Transport::Rc && self.op.takes_recv();
        if self.two_hosts && is_lossy && measure == Measure::Bandwidth {
            return rule(format!(
                "bw --op {name} --transport {} between two hosts: nothing tells how far the receiver is, and what \
                 comes too early is lost; use lat, --op write, or both ends in one process",
                self.transport.name()
            ));
        }
        if self.inline && self.op.fetches() {
            return rule(format!("--inline with --op {name}: inline data is sent, and {name} fetches"));
        }
        if self.op.is_atomic() && self.size != 8 {
            return rule(format!(
                "--size {} with --op {name}: atomics are of 8 bytes; leave --size out",
                self.size
            ));
        }
        let latency = measure == Measure::Latency;
        if latency && self.op == Op::Write && self.size == 0 {
            return rule(
                "--size 0 with --op write: the target polls the last byte, so there must be one".into(),
            );
        }
        if latency && self.op == Op::Write && self.events {
            return rule(
                "--events with lat --op write: an RDMA WRITE makes no completion at its target, so there is \
                 nothing to sleep for; use --op write-imm"
                    .into(),
            );
        }
        if self.batch > self.depth {
            return rule(format!(
                "--batch {} is more than the {} requests that the queue holds; raise --depth",
                self.batch, self.depth
            ));
        }
        if u64::from(self.signal_every) - 1 + u64::from(self.batch) > u64::from(self.depth) {
            return rule(format!(
                "--signal-every {} with --batch {} can leave {} silent requests in a queue of {}, which then \
                 has no room for a batch; raise --depth",
                self.signal_every,
                self.batch,
                self.signal_every - 1,
                self.depth
            ));
        }
        if latency && self.op.fetches() && self.signal_every > self.batch {
            return rule(format!(
                "--signal-every {} with lat --op {name} --batch {}: what is measured is the completion of each \
                 batch; signal at least every {}",
                self.signal_every, self.batch, self.batch
            ));
        }
        Ok(())
    }

    /// Rules that need the device's limits.
    pub(crate) fn check_device(
        &self,
        device: &DeviceAttr,
        port: &PortAttr,
        measure: Measure,
        ends_on_it: u32,
    ) -> Result<(), Failure> {
        let at_most = |what: &str, asked: u64, limit: u64, name: &str| {
            if asked <= limit {
                return Ok(());
            }
            Err(Failure::Usage(format!("{what} is {asked}, and the device's limit {name} is {limit}")))
        };
        at_most("--size", self.size.into(), device.max_msg_size.into(), "max_msg_sz")?;
        if self.inline {
            at_most(
                "--size with --inline",
                self.size.into(),
                device.max_inline_data.into(),
                "max_inline_data",
            )?;
        }
        if self.transport == Transport::Ud {
            let limit = port.active_mtu.bytes().unwrap_or(0);
            at_most(
                "--size with --transport ud",
                self.size.into(),
                limit.into(),
                "active_mtu of one packet",
            )?;
        }
        let depth = if self.two_hosts { "--depth, 4 × for receives," } else { "--depth" };
        at_most(depth, self.recv_depth().into(), device.max_qp_wr.into(), "max_qp_wr")?;
        let qps = u64::from(self.qps) * u64::from(ends_on_it);
        at_most("--qps, both ends counted,", qps, device.max_qp.into(), "max_qp")?;
        at_most(
            "the completion queue, sends and receives of --depth × --qps,",
            self.n_cqes(),
            device.max_cqe.into(),
            "max_cqe",
        )?;
        let (half_bytes, half_limit) = (self.half_bytes(measure), MAX_MEMORY_BYTES / 2);
        if half_bytes > half_limit {
            return Err(Failure::Usage(format!(
                "--size {} × {} slots × {} queue pairs are {half_bytes} bytes of messages at each end and way; \
                 at most {half_limit} are taken",
                self.size,
                self.slots(measure),
                self.qps,
            )));
        }
        if self.op.is_atomic() && !device.atomic_cap {
            return Err(Failure::Usage(format!(
                "--op {}: the device has no atomics (atomic_cap)",
                self.op.name()
            )));
        }
        Ok(())
    }

    /// How long nothing may happen: what was asked, and time for a batch of long messages on a slow machine.
    pub(crate) fn patience(&self) -> Duration {
        self.timeout + Duration::from_micros(u64::from(self.size) * u64::from(self.batch) / SLOW_BYTES_PER_US)
    }

    /// How long a peer may be busy with a run of which nothing is seen here.
    pub(crate) fn patience_for_all(&self) -> Duration {
        let bytes = u64::from(self.size) * u64::from(self.batch);
        let bytes = bytes.saturating_mul(self.iters);
        let exchanges = SLOW_EXCHANGE.saturating_mul(self.iters.try_into().unwrap_or(u32::MAX));
        self.timeout + Duration::from_micros(bytes / SLOW_BYTES_PER_US) + exchanges
    }

    /// Receive requests that a queue pair holds. A host does not see how far the other is, so that its receive
    /// queue has to be the longer one.
    pub(crate) fn recv_depth(&self) -> u32 {
        self.depth * if self.two_hosts { RECV_AHEAD } else { 1 }
    }

    /// CQEs that an end needs: one for each request that may be outstanding.
    pub(crate) fn n_cqes(&self) -> u64 {
        (u64::from(self.depth) + u64::from(self.recv_depth())) * u64::from(self.qps)
    }

    /// Exchanges or requests of queue pair `lane`.
    pub(crate) fn share(&self, lane: usize) -> u64 {
        let qps = u64::from(self.qps);
        self.iters / qps + u64::from((lane as u64) < self.iters % qps)
    }
}
