//! The traffic commands with a peer: find it, run, then tell.

use super::{Foreign, Local, Outcome, TwoHosts, half::Role, native, perftest, tcp::Tcp};
use crate::{
    args::{Common, Exchange, PeerArgs},
    device::{self, Device},
    endpoint::PORT,
    failure::Failure,
    plan::{Measure, Plan},
    report::draw,
    run::{Results, finish, finish_json, open, over, what_is_measured},
};
use mlx5_direct::{Connection, Context, backend::GidEntry};
use std::{
    io::Write,
    time::{Duration, Instant},
};

/// What `ibv_rc_pingpong` and its like can be asked for.
pub(super) const ONLY_PINGPONG: &str = "--exchange ibv_rc_pingpong and its like play ping-pong only: use `mlx5 pingpong`, or --exchange perftest with ib_send_bw";

/// Local ack timeout, 0.54 s. A peer that is a process may be off the processor for longer than the 8 times 67 ms that
/// are usual between cards.
const ACK_TIMEOUT: u8 = 17;

/// Rules of the command line that need no device.
pub(crate) fn check_usage(command: &str, plans: &[Plan], common: &Common) -> Result<(), Failure> {
    let default = PeerArgs { wait: 60, ..PeerArgs::default() };
    let PeerArgs { exchange, ip, gid_index, peer_mac, mtu, wait, .. } = &common.peer;
    let given = [
        ("--exchange", *exchange != default.exchange),
        ("--ip", ip.is_some()),
        ("--gid-index", gid_index.is_some()),
        ("--peer-mac", peer_mac.is_some()),
        ("--mtu", mtu.is_some()),
        ("--wait", *wait != default.wait),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((name, _)) if !common.peer.is_given() => Err(Failure::Usage(format!(
            "{name} is for two hosts: give --listen at one and --connect HOST at the other"
        ))),
        _ => check_exchange(command, plans, *exchange),
    }
}

/// What other programs can be asked for.
fn check_exchange(command: &str, plans: &[Plan], exchange: Exchange) -> Result<(), Failure> {
    let rule = |text: &str| Err(Failure::Usage(text.into()));
    let asked = plans.first().map(|plan| plan.transport);
    if let (Some(theirs), Some(ours)) = (exchange.transport(), asked)
        && theirs != ours
    {
        return Err(Failure::Usage(format!(
            "--transport {} with an --exchange whose programs use {}: leave --transport out, or choose another exchange",
            ours.name(),
            theirs.name()
        )));
    }
    match exchange {
        exchange if exchange.is_ibv_pingpong() && command != "pingpong" => rule(ONLY_PINGPONG),
        Exchange::Perftest if command == "pingpong" => {
            rule("--exchange perftest with pingpong: use `mlx5 lat --op send` with ib_send_lat")
        }
        Exchange::Perftest => perftest::check_usage(command, plans),
        _ => Ok(()),
    }
}

/// Runs `plans` with a peer.
pub(crate) fn run<R: TwoHosts>(
    command: &str,
    plans: &[Plan],
    common: &Common,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let device = open(common)?;
    let result = device::told(&device, out, |out| with_peer::<R>(command, plans, common, &device, out));
    // Told even if the run failed: a broken rule may be the reason.
    let closed = device.close();
    let (Told { name, mtu_bytes, rows }, tcp) = result?;
    // After the device: a peer that answers waits for it.
    drop(tcp);
    let violations = closed?;
    if !common.json {
        return finish(violations.as_deref(), out);
    }
    let first = plans.first();
    let results = Results {
        command,
        device: name,
        op: first.map_or("", |plan| plan.op.name()),
        transport: first.map_or("", |plan| plan.transport.name()),
        seed: common.seed,
        mtu_bytes,
        measured: measured::<R>(plans),
        rows,
        violations,
    };
    finish_json(&results, out)
}

/// What is printed of a run.
struct Told<R> {
    name: String,
    mtu_bytes: u32,
    rows: Vec<R>,
}

fn measured<R: TwoHosts>(plans: &[Plan]) -> Option<&'static str> {
    let op = plans.first().map(|plan| plan.op);
    op.filter(|_| R::MEASURE == Measure::Latency).map(what_is_measured)
}

fn with_peer<R: TwoHosts>(
    command: &str,
    plans: &[Plan],
    common: &Common,
    device: &Device,
    out: &mut impl Write,
) -> Result<(Told<R>, Tcp), Failure> {
    let [ctx, _] = device.ends();
    for plan in plans {
        plan.check_device(ctx.device(), &ctx.port(PORT)?, R::MEASURE, 1)?;
    }
    let peer = &common.peer;
    let (how, gid) = connection(ctx, peer)?;
    let attr = ctx.device();
    let name = format!(
        "{}: {:04x}:{:04x}, firmware {}",
        ctx.name(),
        attr.vendor_id,
        attr.vendor_part_id,
        attr.fw_ver
    );
    let (mut tcp, role) = meet(peer, common.json, out)?;
    let timeout = Duration::from_secs(common.timeout.into());
    let local = Local { ctx, role, how, peer_mac: peer.peer_mac, timeout };
    let mut told = Told { name, mtu_bytes: 0, rows: Vec::new() };
    let (pingpong, at) = (command == "pingpong", tcp.peer());
    let tell = |outcome: Outcome<R>| {
        let first = told.mtu_bytes == 0;
        told.mtu_bytes = outcome.mtu_bytes;
        told.rows.extend(outcome.row);
        if common.json {
            return Ok(());
        }
        if first {
            let (name, mtu) = (&told.name, told.mtu_bytes);
            writeln!(out, "device  {name}\npeer    {at}")?;
            let [own, theirs] = [role.name(), role.other().name()];
            for qp in outcome.own.iter().filter(|_| pingpong) {
                writeln!(out, "{own:<7} {} port {PORT}, {qp}, GID {gid}", ctx.name())?;
            }
            for qp in outcome.peers.iter().filter(|_| pingpong) {
                writeln!(out, "{theirs:<7} peer, {qp}")?;
            }
            let (op, over) = plans.first().map_or(("", ""), |plan| (plan.op.name(), over(plan.transport)));
            let (way, unit) = (measured::<R>(plans).unwrap_or("one way"), R::UNIT);
            writeln!(out, "op      {op}{over}, {way}, {unit}, path MTU {mtu}, seed {}", common.seed)?;
            if let Some(shown) = &outcome.end.shown {
                writeln!(out)?;
                match role {
                    Role::Asks => shown.print_sent(own, out)?,
                    Role::Answers => shown.print_received(own, out)?,
                }
            }
            R::head(out)?;
        }
        if let Some(row) = &outcome.row {
            row.print(out)?;
        }
        if let Some(latencies) = outcome.latencies.as_ref().filter(|_| pingpong) {
            writeln!(out)?;
            draw(latencies, out)?;
            writeln!(out)?;
        }
        out.flush()?;
        Ok(())
    };
    let exchange = match peer.exchange {
        Exchange::Mlx5 => {
            native::run(command, plans, &local, &mut tcp, tell)?;
            if role == Role::Answers {
                // What an unreliable connection has sent is on its way as long as the sender's device is open.
                tcp.wait_closed(timeout);
            }
            return Ok((told, tcp));
        }
        Exchange::Perftest => Foreign::Perftest,
        _ => Foreign::IbvPingpong,
    };
    let mut tell = tell;
    // One, as `check_usage` has seen to.
    for plan in plans {
        tell(R::foreign(exchange, plan, &local, &mut tcp)?)?;
    }
    Ok((told, tcp))
}

/// How this end connects, and over which of its addresses.
fn connection(ctx: &Context, peer: &PeerArgs) -> Result<(Connection, GidEntry), Failure> {
    let gid_index = match (peer.ip, peer.gid_index) {
        (Some(ip), _) => ctx.add_address(PORT, ip)?,
        (None, Some(index)) => index,
        (None, None) => ctx.usual_gid_index(PORT)?,
    };
    // An empty entry is refused before anybody is asked to connect.
    let gid = ctx.gid(PORT, gid_index.into())?;
    let gid_index = Some(gid_index);
    let timeout = ACK_TIMEOUT;
    Ok((Connection { port: PORT, gid_index, path_mtu: peer.mtu, timeout, ..Connection::default() }, gid))
}

/// Finds the peer.
fn meet(peer: &PeerArgs, json: bool, out: &mut impl Write) -> Result<(Tcp, Role), Failure> {
    let deadline = Instant::now() + Duration::from_secs(peer.wait.into());
    if let Some(to) = &peer.connect {
        return Ok((Tcp::connect(to, deadline)?, Role::Asks));
    }
    let at = peer.listen.clone().unwrap_or_default();
    let tcp = Tcp::accept(&at, deadline, |bound| {
        if !json {
            writeln!(out, "listen  {bound}")?;
            out.flush()?;
        }
        Ok(())
    })?;
    Ok((tcp, Role::Answers))
}
