//! `mlx5 info`: names and order of `ibv_devinfo -v`, as far as this driver knows the values.

use crate::{
    args::{Info, Recording},
    device,
    failure::Failure,
    run::print_json,
};
use mlx5_direct::{
    Context,
    backend::{DeviceAttr, GidEntry, GidType, LinkLayer, PhysState, PortAttr, PortState},
};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::{io::Write, time::Duration};

/// A device with its ports.
#[derive(Debug, Serialize)]
struct Hca {
    hca_id: String,
    attr: Map<String, Value>,
    ports: Vec<Port>,
}

/// A port with its GID table, empty entries left out.
#[derive(Debug, Serialize)]
struct Port {
    port: u8,
    attr: Map<String, Value>,
    gids: Vec<Gid>,
}

#[derive(Debug, Serialize)]
struct Gid {
    index: u16,
    gid: String,
    gid_type: &'static str,
    mac: String,
    vlan: Option<u16>,
}

/// The longest that a command to the device may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// `mlx5 info`.
pub(crate) fn info(args: &Info, out: &mut impl Write) -> Result<(), Failure> {
    let device = device::open(&args.device.text()?, TIMEOUT, &Recording::default())?;
    let hcas = device.functions().iter().map(hca).collect::<Result<Vec<_>, _>>()?;
    let violations = device.close()?.unwrap_or_default();
    if let Some(first) = violations.first() {
        return Err(Failure::Run(format!("the driver broke {} rules: {first}", violations.len())));
    }
    if args.json {
        return print_json(&hcas, out);
    }
    for hca in &hcas {
        writeln!(out, "hca_id:\t{}", hca.hca_id)?;
        print(&hca.attr, "\t", out)?;
        for port in &hca.ports {
            writeln!(out, "\t\tport:\t{}", port.port)?;
            print(&port.attr, "\t\t\t", out)?;
            for Gid { index, gid, gid_type, .. } in &port.gids {
                writeln!(out, "\t\t\tGID[{index:3}]:\t\t{gid}, {gid_type}")?;
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Prints names and values in two columns.
fn print(attr: &Map<String, Value>, indent: &str, out: &mut impl Write) -> Result<(), Failure> {
    for (name, value) in attr {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        writeln!(out, "{indent}{:<24}{value}", format!("{name}:"))?;
    }
    Ok(())
}

fn hca(ctx: &Context) -> Result<Hca, Failure> {
    let attr = ctx.device();
    let mut ports = Vec::new();
    for port in 1..=attr.phys_port_cnt {
        let state = ctx.port(port)?;
        // An empty entry is an error.
        let gids = (0..state.gid_tbl_len).filter_map(|index| Some(gid(index, &ctx.gid(port, index).ok()?)));
        ports.push(Port { port, attr: port_attr(&state), gids: gids.collect() });
    }
    Ok(Hca { hca_id: ctx.name(), attr: device_attr(attr), ports })
}

fn device_attr(attr: &DeviceAttr) -> Map<String, Value> {
    let fields: Vec<(&str, Value)> = vec![
        ("transport", json!("InfiniBand (0)")),
        ("fw_ver", json!(attr.fw_ver)),
        ("node_guid", guid(attr.node_guid)),
        ("sys_image_guid", guid(attr.sys_image_guid)),
        ("vendor_id", hex(attr.vendor_id.into())),
        ("vendor_part_id", json!(attr.vendor_part_id)),
        ("hw_ver", hex(attr.hw_ver.into())),
        ("board_id", json!(attr.board_id)),
        ("phys_port_cnt", json!(attr.phys_port_cnt)),
        ("max_mr_size", hex(attr.max_mr_size)),
        ("page_size_cap", hex(attr.page_size_cap)),
        ("max_qp", json!(attr.max_qp)),
        ("max_qp_wr", json!(attr.max_qp_wr)),
        ("max_sge", json!(attr.max_send_sge.min(attr.max_recv_sge))),
        ("max_sge_rd", json!(attr.max_sge_rd)),
        ("max_cq", json!(attr.max_cq)),
        ("max_cqe", json!(attr.max_cqe)),
        ("max_mr", json!(attr.max_mr)),
        ("max_pd", json!(attr.max_pd)),
        ("max_qp_rd_atom", json!(attr.max_qp_rd_atom)),
        ("max_qp_init_rd_atom", json!(attr.max_qp_init_rd_atom)),
        ("atomic_cap", json!(if attr.atomic_cap { "ATOMIC_HCA (1)" } else { "ATOMIC_NONE (0)" })),
        ("max_pkeys", json!(attr.max_pkeys)),
        ("local_ca_ack_delay", json!(attr.local_ca_ack_delay)),
        ("hca_core_clock", json!(format!("{}kHZ", attr.hca_core_clock_khz))),
        ("num_comp_vectors", json!(attr.num_comp_vectors)),
        // What verbs do not tell and a direct driver goes by.
        ("max_send_sge", json!(attr.max_send_sge)),
        ("max_recv_sge", json!(attr.max_recv_sge)),
        ("max_inline_data", json!(attr.max_inline_data)),
        ("max_wqe_sz_sq", json!(attr.max_wqe_sz_sq)),
        ("bf_reg_size", json!(attr.bf_reg_size_bytes)),
        ("cqe_version", json!(attr.cqe_version)),
        ("roce_udp_sport", json!(attr.roce_udp_sport)),
        ("roce_min_udp_sport", json!(attr.roce_min_udp_sport)),
    ];
    to_map(fields)
}

fn port_attr(port: &PortAttr) -> Map<String, Value> {
    let state = match port.state {
        PortState::Down => "PORT_DOWN (1)",
        PortState::Init => "PORT_INIT (2)",
        PortState::Armed => "PORT_ARMED (3)",
        PortState::Active => "PORT_ACTIVE (4)",
    };
    let phys_state = match port.phys_state {
        PhysState::Polling => "POLLING (2)",
        PhysState::Disabled => "DISABLED (3)",
        PhysState::LinkUp => "LINK_UP (5)",
    };
    let mtu = |mtu: mlx5_direct::mlx5::context::Mtu| match mtu.bytes() {
        Some(bytes) => json!(format!("{bytes} ({})", mtu.0)),
        None => json!(format!("invalid MTU ({})", mtu.0)),
    };
    to_map(vec![
        ("state", json!(state)),
        ("max_mtu", mtu(port.max_mtu)),
        ("active_mtu", mtu(port.active_mtu)),
        ("port_lid", json!(port.lid)),
        (
            "link_layer",
            json!(match port.link_layer {
                LinkLayer::InfiniBand => "InfiniBand",
                LinkLayer::Ethernet => "Ethernet",
            }),
        ),
        ("max_msg_sz", hex(port.max_msg_sz.into())),
        ("qkey_viol_cntr", hex(port.qkey_viol_cntr.into())),
        ("pkey_tbl_len", json!(port.pkey_tbl_len)),
        ("gid_tbl_len", json!(port.gid_tbl_len)),
        ("active_width", json!(format!("{}X", port.active_width))),
        ("active_speed", json!(format!("{:.1} Gbps", f64::from(port.active_speed_mbps) / 1e3))),
        ("phys_state", json!(phys_state)),
        ("mac", json!(mac(port.mac))),
        ("netdev_mtu", json!(port.netdev_mtu_bytes)),
        ("roce_enabled", json!(port.roce_enabled)),
    ])
}

fn gid(index: u16, entry: &GidEntry) -> Gid {
    let groups: Vec<_> =
        entry.gid.chunks_exact(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1])).collect();
    let gid_type = match entry.gid_type {
        GidType::Ib => "IB/RoCE v1",
        GidType::RoceV1 => "RoCE v1",
        GidType::RoceV2 => "RoCE v2",
    };
    Gid { index, gid: groups.join(":"), gid_type, mac: mac(entry.mac), vlan: entry.vlan }
}

fn to_map(fields: Vec<(&str, Value)>) -> Map<String, Value> {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn hex(value: u64) -> Value {
    json!(format!("0x{value:x}"))
}

/// As ibv_devinfo writes GUIDs: four groups.
fn guid(value: u64) -> Value {
    let group = |shift: u32| value >> shift & 0xffff;
    json!(format!("{:04x}:{:04x}:{:04x}:{:04x}", group(48), group(32), group(16), group(0)))
}

fn mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
