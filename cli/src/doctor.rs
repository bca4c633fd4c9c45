//! `mlx5 list` and `mlx5 doctor`: what this computer has, and what is wrong with it.

use crate::{
    args::{Doctor, List},
    device::{Device, options},
    failure::Failure,
    run::print_json,
};
use mlx5_devices::{OpenError, Target};
use mlx5_direct::{
    Context, CqAttr, QpInit,
    backend::{LinkLayer, PhysState, PortState},
    device::{self, DeviceName, Listed},
    doorbell::Sharing,
    host::{
        Host,
        doctor::{Finding, Severity, examine},
    },
};
use serde::Serialize;
use std::{io::Write, time::Duration};

/// The longest that a command to the device may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A line of `mlx5 list`.
#[derive(Debug, Serialize)]
struct Row {
    /// What to give after `--device`.
    device: Option<String>,
    pci: String,
    id: String,
    model: &'static str,
    driver: Option<String>,
    iommu_group: Option<u32>,
    numa_node: Option<u32>,
    pcie: Option<String>,
    rdma: Vec<String>,
    net: Vec<String>,
}

impl Row {
    fn new(listed: &Listed) -> Self {
        let pci = &listed.pci;
        Self {
            device: listed.name.as_ref().map(ToString::to_string),
            pci: pci.address.to_string(),
            id: format!("{:04x}:{:04x}", pci.vendor, pci.device),
            model: pci.model_name(),
            driver: pci.driver.clone(),
            iommu_group: pci.iommu_group,
            numa_node: pci.numa_node,
            pcie: pci.link.as_ref().map(|link| format!("{} x{}", link.speed, link.width)),
            rdma: pci.rdma_devices.clone(),
            net: pci.net_devices.clone(),
        }
    }
}

/// `mlx5 list`.
pub(crate) fn list(args: &List, out: &mut impl Write) -> Result<(), Failure> {
    let rows: Vec<_> = device::list(&Host::default())?.iter().map(Row::new).collect();
    if args.json {
        return print_json(&rows, out);
    }
    writeln!(out, "{:<20} {:<14} {:<10} {:<6} {:<20} card", "device", "pci", "driver", "group", "PCIe")?;
    for row in &rows {
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
        let names: Vec<_> = row.rdma.iter().chain(&row.net).map(String::as_str).collect();
        let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
        writeln!(
            out,
            "{:<20} {:<14} {:<10} {:<6} {:<20} {}, {}{names}",
            or_none(&row.device),
            row.pci,
            or_none(&row.driver),
            or_none(&row.iommu_group.map(|group| group.to_string())),
            or_none(&row.pcie),
            row.model,
            row.id,
        )?;
    }
    writeln!(out, "{:<20} {:<14} {:<10} {:<6} {:<20} the software ConnectX", "model", "-", "-", "-", "-")?;
    Ok(())
}

/// `mlx5 doctor`.
pub(crate) fn doctor(args: &Doctor, out: &mut impl Write) -> Result<(), Failure> {
    let mut findings = match &args.device {
        None => examine(&Host::default(), None),
        Some(text) => {
            let mut findings = Vec::new();
            if let Target::Cards(names) = text.parse()? {
                for name in names {
                    if let DeviceName::Vfio(address) | DeviceName::VfioNoIommu(address) = name {
                        findings.extend(examine(&Host::default(), Some(address)));
                    }
                }
            }
            findings
        }
    };
    // What does not open for a reason that is known already is not tried.
    let is_problem = |finding: &Finding| finding.severity == Severity::Problem;
    if let Some(text) = &args.device
        && !findings.iter().any(is_problem)
    {
        match Device::open(text, &options(TIMEOUT)) {
            Ok(device) => {
                for context in device.functions() {
                    findings.extend(examine_open(context));
                }
                device.close()?;
            }
            Err(OpenError::Usage(text)) => return Err(Failure::Usage(text)),
            Err(OpenError::Device(text)) => {
                findings.push(Finding::problem(format!("it does not open: {text}"), "as it says"));
            }
        }
    }
    for finding in &findings {
        writeln!(out, "{finding}")?;
    }
    out.flush()?;
    match findings.iter().filter(|finding| is_problem(finding)).count() {
        0 => Ok(()),
        1 => Err(Failure::Run("1 problem".into())),
        n => Err(Failure::Run(format!("{n} problems"))),
    }
}

/// Looks at an open function.
fn examine_open(context: &Context) -> Vec<Finding> {
    let (name, attr) = (context.name(), context.device());
    let mut findings = vec![Finding::good(format!(
        "{name} opens: firmware {}, {} completion vectors",
        attr.fw_ver, attr.num_comp_vectors
    ))];
    if let Err(error) = context.health() {
        findings.push(Finding::problem(format!("{name}: {error}"), "reset the function, and open it again"));
    }
    findings.push(doorbells(context));
    for number in 1..=attr.phys_port_cnt {
        let port = match context.port(number) {
            Ok(port) => port,
            Err(error) => {
                let text = format!("{name}: port {number} does not answer: {error}");
                findings.push(Finding::problem(text, "update the firmware"));
                continue;
            }
        };
        let at = format!("{name} port {number}");
        findings.push(match (port.state, port.phys_state, port.link_layer) {
            (PortState::Active, ..) => {
                Finding::good(format!("{at} is active: {:.0} Gb/s", f64::from(port.active_speed_mbps) / 1e3))
            }
            (_, PhysState::LinkUp, LinkLayer::InfiniBand) => Finding::problem(
                format!("{at}: the link is up, and no subnet manager has made the port active"),
                "start one on the subnet: opensm",
            ),
            (_, PhysState::Disabled, _) => Finding::problem(
                format!("{at} is disabled"),
                "the peer or an administrator turned it off; turn it on",
            ),
            _ => Finding::problem(
                format!("{at} has no link"),
                "check cable and transceiver, and that the other end is up",
            ),
        });
    }
    findings
}

/// How queue pairs ring: makes one to see.
fn doorbells(context: &Context) -> Finding {
    let name = context.name();
    let made = || {
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(&CqAttr::default())?);
        pd.create_qp(&QpInit::default(), &cq, &cq)
    };
    let mut qp = match made() {
        Ok(qp) => qp,
        Err(error) => {
            return Finding::problem(format!("{name}: no queue pair can be made: {error}"), "as it says");
        }
    };
    let queue = qp.send_queue();
    match (queue.sharing(), queue.blue_flame_max_wqebbs()) {
        (Sharing::Shared, _) => Finding::warning(
            format!(
                "{name}: queue pairs have no BlueFlame registers of their own: they ring shared ones, by 8 bytes"
            ),
            "if the device has BlueFlame: end programs that hold many queue pairs of it, and take MLX5_SHUT_UP_BF out of \
             the environment; small messages cost one DMA read more until then",
        ),
        (Sharing::Exclusive, 0) => Finding::good(format!(
            "{name}: a queue pair has a doorbell register of its own, without BlueFlame"
        )),
        (Sharing::Exclusive, n) => Finding::good(format!(
            "{name}: a queue pair has a doorbell register of its own, with BlueFlame for requests of up to {n} WQEBBs"
        )),
    }
}
