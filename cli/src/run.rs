//! The traffic commands: run, then tell.

use crate::{
    args::{Common, Pingpong, Traffic},
    device::{self, Device},
    endpoint::{Endpoint, PORT},
    failure::Failure,
    hosts,
    plan::{Measure, Op, Plan, Transport},
    report::{LatencyRow, RateRow, draw},
    traffic::{A, B, Link, bandwidth, latency},
};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    io::{self, Write},
    slice,
    time::Duration,
};

/// How the latency of an operation was measured.
pub(crate) fn what_is_measured(op: Op) -> &'static str {
    if op.fetches() { "post to completion" } else { "half round trip" }
}

/// The transport in words, where it is not the usual one.
pub(crate) fn over(transport: Transport) -> &'static str {
    match transport {
        Transport::Rc => "",
        Transport::Uc => " over UC",
        Transport::Ud => " by datagrams (UD)",
    }
}

/// Results of a command, as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Results<'r, Row> {
    pub(crate) command: &'r str,
    pub(crate) device: String,
    pub(crate) op: &'r str,
    pub(crate) transport: &'r str,
    pub(crate) seed: u64,
    pub(crate) mtu_bytes: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) measured: Option<&'r str>,
    pub(crate) rows: Vec<Row>,
    /// `None` of a card, which does not tell.
    pub(crate) violations: Option<Vec<String>>,
}

/// What a run is told as: a row of a table.
pub(crate) trait Row: Serialize + DeserializeOwned + Copy {
    const MEASURE: Measure;
    const UNIT: &'static str;
    fn head(out: &mut impl Write) -> io::Result<()>;
    fn print(&self, out: &mut impl Write) -> io::Result<()>;
    fn measure(link: &mut Link) -> Result<Self, Failure>;
}

impl Row for LatencyRow {
    const MEASURE: Measure = Measure::Latency;
    const UNIT: &'static str = "µs";
    fn head(out: &mut impl Write) -> io::Result<()> {
        Self::head(out)
    }
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        self.print(out)
    }
    fn measure(link: &mut Link) -> Result<Self, Failure> {
        Ok(Self::new(link.plan.size, &latency(link)?))
    }
}

impl Row for RateRow {
    const MEASURE: Measure = Measure::Bandwidth;
    const UNIT: &'static str = "MB = 10^6 bytes";
    fn head(out: &mut impl Write) -> io::Result<()> {
        Self::head(out)
    }
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        self.print(out)
    }
    fn measure(link: &mut Link) -> Result<Self, Failure> {
        Ok(Self::new(&bandwidth(link)?))
    }
}

/// `mlx5 pingpong`.
pub(crate) fn pingpong(args: &Pingpong, out: &mut impl Write) -> Result<(), Failure> {
    let plan = Plan::pingpong(args)?;
    hosts::check_usage("pingpong", slice::from_ref(&plan), &args.common)?;
    if args.common.peer.is_given() {
        return hosts::run::<LatencyRow>("pingpong", &[plan], &args.common, out);
    }
    let device = open(&args.common)?;
    let (name, mtu_bytes, latencies) = device::told(&device, out, |out| {
        let mut link = Link::connect(&device, &plan, Measure::Latency)?;
        let (name, mtu_bytes) = (describe(&device)?, mtu_bytes(&link)?);
        if !args.common.json {
            writeln!(out, "device  {name}")?;
            for end in &link.ends {
                describe_end(end, out)?;
            }
            writeln!(
                out,
                "SEND    {} round trips of {} bytes{}, path MTU {mtu_bytes}, every payload checked (seed {})",
                plan.iters,
                plan.size,
                over(plan.transport),
                plan.seed
            )?;
            out.flush()?;
        }
        let latencies = latency(&mut link)?;
        if !args.common.json {
            explain(&link, out)?;
        }
        Ok((name, mtu_bytes, latencies))
    })?;
    let row = LatencyRow::new(plan.size, &latencies);
    if args.common.json {
        let results = Results {
            command: "pingpong",
            device: name,
            op: plan.op.name(),
            transport: plan.transport.name(),
            seed: plan.seed,
            mtu_bytes,
            measured: Some(what_is_measured(plan.op)),
            rows: vec![row],
            violations: device.close()?,
        };
        return finish_json(&results, out);
    }
    writeln!(out, "\n{} in µs:", what_is_measured(plan.op))?;
    LatencyRow::head(out)?;
    row.print(out)?;
    writeln!(out)?;
    draw(&latencies, out)?;
    writeln!(out)?;
    finish(device.close()?.as_deref(), out)
}

/// `mlx5 lat`.
pub(crate) fn lat(args: &Traffic, out: &mut impl Write) -> Result<(), Failure> {
    traffic::<LatencyRow>("lat", args, out)
}

/// `mlx5 bw`.
pub(crate) fn bw(args: &Traffic, out: &mut impl Write) -> Result<(), Failure> {
    traffic::<RateRow>("bw", args, out)
}

fn traffic<R: hosts::TwoHosts>(command: &str, args: &Traffic, out: &mut impl Write) -> Result<(), Failure> {
    let plans = Plan::traffic(args, R::MEASURE)?;
    hosts::check_usage(command, &plans, &args.common)?;
    if args.common.peer.is_given() {
        return hosts::run::<R>(command, &plans, &args.common, out);
    }
    let device = open(&args.common)?;
    let (op, json) = (args.op, args.common.json);
    let measured = (R::MEASURE == Measure::Latency).then(|| what_is_measured(op));
    let (name, rows, mtu) = device::told(&device, out, |out| {
        let name = describe(&device)?;
        let (mut rows, mut mtu) = (Vec::new(), 0);
        for (at, plan) in plans.iter().enumerate() {
            let mut link = Link::connect(&device, plan, R::MEASURE)?;
            mtu = mtu_bytes(&link)?;
            if at == 0 && !json {
                writeln!(out, "device  {name}")?;
                let way = measured.unwrap_or("one way");
                writeln!(
                    out,
                    "op      {}{}, {way}, {}, path MTU {mtu}, seed {}",
                    op.name(),
                    over(plan.transport),
                    R::UNIT,
                    args.common.seed
                )?;
            }
            let row = R::measure(&mut link)?;
            rows.push(row);
            if json {
                continue;
            }
            if at == 0 {
                explain(&link, out)?;
                R::head(out)?;
            }
            row.print(out)?;
            // One row at a time: a sweep takes a while.
            out.flush()?;
        }
        Ok((name, rows, mtu))
    })?;
    let violations = device.close()?;
    if !json {
        return finish(violations.as_deref(), out);
    }
    let seed = args.common.seed;
    let transport = plans.first().map_or("", |plan| plan.transport.name());
    let results = Results {
        command,
        device: name,
        op: op.name(),
        transport,
        seed,
        mtu_bytes: mtu,
        measured,
        rows,
        violations,
    };
    finish_json(&results, out)
}

/// Opens the device that the command line names.
pub(crate) fn open(common: &Common) -> Result<Device, Failure> {
    let timeout = Duration::from_secs(common.timeout.into());
    device::open(&common.device.text()?, timeout, &common.recording)
}

/// The device in a line.
fn describe(device: &Device) -> Result<String, Failure> {
    let [first, last] = device.ends();
    let attr = first.device();
    let names = if device.functions().len() == 1 {
        format!("{}, looped back", first.name())
    } else {
        format!("{} and {}, cabled", first.name(), last.name())
    };
    Ok(format!("{names}: {:04x}:{:04x}, firmware {}", attr.vendor_id, attr.vendor_part_id, attr.fw_ver))
}

/// An end in a line.
fn describe_end(end: &Endpoint, out: &mut impl Write) -> Result<(), Failure> {
    let gid = end.ctx.gid(PORT, end.ctx.usual_gid_index(PORT)?.into())?;
    for lane in &end.lanes {
        writeln!(out, "{:<7} {} port {PORT}, QP {}, GID {gid}", end.name, end.ctx.name(), lane.qp.qpn())?;
    }
    Ok(())
}

fn mtu_bytes(link: &Link) -> Result<u32, Failure> {
    let Some(lane) = link.ends[A].lanes.first() else { return Ok(0) };
    lane.qp.mtu_bytes(&link.ends[A].ctx)
}

fn explain(link: &Link, out: &mut impl Write) -> io::Result<()> {
    for (at, end) in [A, B].map(|at| (at, &link.ends[at])) {
        if let Some(shown) = &end.shown {
            writeln!(out)?;
            if at == A {
                shown.print_sent(end.name, out)?;
            } else {
                shown.print_received(end.name, out)?;
            }
        }
    }
    Ok(())
}

/// The last lines: what rules of the model were broken. A card does not tell.
pub(crate) fn finish(violations: Option<&[String]>, out: &mut impl Write) -> Result<(), Failure> {
    let Some(violations) = violations else { return Ok(out.flush()?) };
    writeln!(out, "model: {} violations", violations.len())?;
    for violation in violations {
        writeln!(out, "  {violation}")?;
    }
    out.flush()?;
    verdict(violations)
}

pub(crate) fn finish_json<R: Serialize>(
    results: &Results<'_, R>,
    out: &mut impl Write,
) -> Result<(), Failure> {
    print_json(results, out)?;
    verdict(results.violations.as_deref().unwrap_or_default())
}

/// Prints a value as JSON.
pub(crate) fn print_json(value: &impl Serialize, out: &mut impl Write) -> Result<(), Failure> {
    serde_json::to_writer_pretty(&mut *out, value).map_err(io::Error::from)?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}

fn verdict(violations: &[String]) -> Result<(), Failure> {
    match violations {
        [] => Ok(()),
        [first, ..] => Err(Failure::Run(format!("the driver broke {} rules: {first}", violations.len()))),
    }
}
