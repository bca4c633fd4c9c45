//! Two hosts: this process drives one end of a connection, another process the other.

mod bw;
mod half;
mod ibv;
mod lat;
mod native;
mod perftest;
mod run;
mod tcp;

pub(crate) use perftest::MAX_CYCLE_BUFFER_BYTES;
pub(crate) use run::{check_usage, run};
pub(crate) use tcp::host_port;

use crate::{
    endpoint::Endpoint,
    failure::Failure,
    plan::{Op, Plan},
    report::{LatencyRow, RateRow},
    run::Row,
    traffic::Latencies,
};
use half::{Half, Role};
use mlx5_direct::{
    Connection, Context, QpAddress,
    mlx5::{
        context::Mtu,
        ids::{Psn, Qpn},
    },
};
use std::time::Duration;
use tcp::Tcp;

/// What is the same for all sizes of a run.
#[derive(Debug)]
pub(crate) struct Local<'c> {
    ctx: &'c Context,
    role: Role,
    how: Connection,
    peer_mac: Option<[u8; 6]>,
    timeout: Duration,
}

impl Local<'_> {
    /// A peer of which the exchange tells no MAC.
    fn peer(&self, qpn: Qpn, psn: Psn, gid: [u8; 16]) -> Result<QpAddress, Failure> {
        match self.peer_mac {
            Some(mac) => Ok(QpAddress { qpn, psn, gid, mac, lid: 0, mtu: Mtu::MTU_4096 }),
            None => QpAddress::from_gid(qpn, psn, gid)
                .map_err(|error| Failure::Usage(format!("--peer-mac: {error}"))),
        }
    }
}

/// How a run of one size went.
#[derive(Debug)]
pub(crate) struct Outcome<R> {
    /// Own queue pairs, then the peer's: in words.
    own: Vec<String>,
    peers: Vec<String>,
    mtu_bytes: u32,
    /// Nothing, if only the other end measures.
    row: Option<R>,
    latencies: Option<Latencies>,
    end: Endpoint,
}

impl<R> Outcome<R> {
    fn new(
        end: Endpoint,
        peers: &[QpAddress],
        row: Option<R>,
        latencies: Option<Latencies>,
    ) -> Result<Self, Failure> {
        let first = end.lanes.first().map(|lane| lane.qp.mtu_bytes(&end.ctx)).transpose()?;
        let mtu_bytes = first.unwrap_or(0);
        let own = end.lanes.iter().map(|lane| format!("QP {}", lane.qp.qpn())).collect();
        let peers = peers
            .iter()
            .map(|peer| format!("QP {}, GID {}", peer.qpn, std::net::Ipv6Addr::from(peer.gid)))
            .collect();
        Ok(Self { own, peers, mtu_bytes, row, latencies, end })
    }
}

/// A measurement whose ends are on two hosts.
pub(crate) trait TwoHosts: Row {
    /// Makes memory and receives ready; gives inline messages.
    fn prepare(half: &mut Half<'_>) -> Result<Vec<u8>, Failure>;
    /// Measures.
    fn ask(half: &mut Half<'_>, inline: &[u8]) -> Result<(Self, Option<Latencies>), Failure>;
    /// Answers, up to the peer's next line.
    fn answer(half: &mut Half<'_>) -> Result<String, Failure>;
    /// Compares what arrived with what was sent.
    fn check(half: &mut Half<'_>) -> Result<(), Failure>;
    /// Runs with a peer that speaks `exchange`.
    fn foreign(
        exchange: Foreign,
        plan: &Plan,
        local: &Local<'_>,
        tcp: &mut Tcp,
    ) -> Result<Outcome<Self>, Failure>;
}

/// Exchanges of other programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Foreign {
    IbvPingpong,
    Perftest,
}

impl TwoHosts for LatencyRow {
    fn prepare(half: &mut Half<'_>) -> Result<Vec<u8>, Failure> {
        lat::prepare(half)?;
        Ok(Vec::new())
    }

    fn ask(half: &mut Half<'_>, _: &[u8]) -> Result<(Self, Option<Latencies>), Failure> {
        let latencies = lat::ask(half)?;
        Ok((Self::new(half.end.plan.size, &latencies), Some(latencies)))
    }

    fn answer(half: &mut Half<'_>) -> Result<String, Failure> {
        lat::answer(half)?;
        half.hear(Tcp::try_line, |half| Ok(half.end.drain()? > 0))
    }

    fn check(half: &mut Half<'_>) -> Result<(), Failure> {
        lat::check(half)
    }

    fn foreign(
        exchange: Foreign,
        plan: &Plan,
        local: &Local<'_>,
        tcp: &mut Tcp,
    ) -> Result<Outcome<Self>, Failure> {
        match exchange {
            Foreign::IbvPingpong => ibv::run(plan, local, tcp),
            Foreign::Perftest => perftest::latency(plan, local, tcp),
        }
    }
}

impl TwoHosts for RateRow {
    fn prepare(half: &mut Half<'_>) -> Result<Vec<u8>, Failure> {
        bw::prepare(half)
    }

    fn ask(half: &mut Half<'_>, inline: &[u8]) -> Result<(Self, Option<Latencies>), Failure> {
        let rate = bw::ask(half, inline)?;
        if half.end.plan.op == Op::Read {
            bw::check_slots(half)?;
        }
        Ok((Self::new(&rate), None))
    }

    fn answer(half: &mut Half<'_>) -> Result<String, Failure> {
        half.hear(Tcp::try_line, bw::step)
    }

    fn check(half: &mut Half<'_>) -> Result<(), Failure> {
        bw::check(half)
    }

    fn foreign(
        exchange: Foreign,
        plan: &Plan,
        local: &Local<'_>,
        tcp: &mut Tcp,
    ) -> Result<Outcome<Self>, Failure> {
        match exchange {
            Foreign::IbvPingpong => Err(Failure::Usage(run::ONLY_PINGPONG.into())),
            Foreign::Perftest => perftest::bandwidth(plan, local, tcp),
        }
    }
}
