//! Sends a QP's packets.

use super::{
    config::QpConfig,
    host::{Host, KeyFault, Need, Right, Ring, RoceKind, Rule, Station},
};
use crate::wire::{
    Aeth, Bth, Ethernet, Headers, LinkHeader, Lrh, Network, Opcode,
    packet::{DEFAULT_HOP_LIMIT, DEFAULT_PKEY},
};
use mlx5_direct::mlx5::ids::Psn;

/// One frame buffer for all packets of a QP.
#[derive(Debug, Default)]
pub(super) struct Courier {
    frame: Vec<u8>,
    empty_source_reported: bool,
}

impl Courier {
    /// Headers of a packet to the peer; `None` if the QP has no source address.
    pub(super) fn headers(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        opcode: Opcode,
        psn: Psn,
    ) -> Option<Headers> {
        let path = &config.path;
        let Some(source) = host.source_address(path.gid_index) else {
            if !self.empty_source_reported {
                self.empty_source_reported = true;
                let at = path.gid_index;
                host.violation(
                    config.qpn,
                    None,
                    Rule::SourceAddressEmpty,
                    format_args!("no address at index {at} of the GID table"),
                );
            }
            return None;
        };
        self.empty_source_reported = false;
        let udp_source_port = match (source.kind, path.udp_source_port) {
            (RoceKind::V1, _) => 0,
            (_, 0) => 0xc000 | ((config.qpn.get() ^ config.remote_qpn.get()) & 0x3fff) as u16,
            (_, port) => port,
        };
        let (link, has_network) = match source.station {
            Station::Ethernet { mac, vlan_id } => {
                let vlan_tci = vlan_id.map(|id| u16::from(path.eth_prio & 7) << 13 | id & 0xfff);
                (LinkHeader::Ethernet(Ethernet { dest: path.dest_mac, source: mac, vlan_tci }), true)
            }
            Station::InfiniBand { lid } => {
                let lrh = Lrh { vl: config.vl, sl: path.sl & 0xf, dest_lid: path.dest_lid, source_lid: lid };
                (LinkHeader::InfiniBand(lrh), path.grh)
            }
        };
        let network = Network {
            kind: source.kind,
            source_gid: source.gid,
            dest_gid: path.dest_gid,
            traffic_class: path.traffic_class,
            hop_limit: if path.hop_limit == 0 { DEFAULT_HOP_LIMIT } else { path.hop_limit },
            flow_label: path.flow_label,
            udp_source_port,
        };
        Some(Headers {
            link,
            network: has_network.then_some(network),
            bth: Bth {
                opcode: opcode.on(config.service.transport()),
                solicited: false,
                pkey: DEFAULT_PKEY,
                dest_qpn: config.remote_qpn,
                ack_req: false,
                psn,
            },
            reth: None,
            atomic: None,
            masks: None,
            aeth: None,
            atomic_ack: None,
            deth: None,
            xrc_srqn: None,
            dc: None,
            imm: None,
            invalidate: None,
        })
    }

    /// Sends a packet whose `payload_len` bytes `fill` writes. Nothing is sent if that fails.
    pub(super) fn send(
        &mut self,
        host: &mut dyn Host,
        headers: &Headers,
        payload_len: usize,
        fill: impl FnOnce(&mut dyn Host, &mut [u8]) -> Result<(), KeyFault>,
    ) -> Result<(), KeyFault> {
        let payload = headers.begin(payload_len, &mut self.frame);
        fill(host, &mut self.frame[payload])?;
        headers.seal(&mut self.frame);
        host.transmit(&self.frame);
        Ok(())
    }

    /// Sends an acknowledgement.
    pub(super) fn acknowledge(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        psn: Psn,
        aeth: Aeth,
        atomic: Option<u64>,
    ) {
        let opcode = if atomic.is_some() { Opcode::ATOMIC_ACKNOWLEDGE } else { Opcode::ACKNOWLEDGE };
        if let Some(mut headers) = self.headers(host, config, opcode, psn) {
            (headers.aeth, headers.atomic_ack) = (Some(aeth), atomic);
            headers.begin(0, &mut self.frame);
            headers.seal(&mut self.frame);
            host.transmit(&self.frame);
        }
    }
}

/// In whose name a QP touches memory.
pub(super) const fn right(config: &QpConfig, key: u32, need: Need) -> Right {
    let queue = if matches!(need, Need::LocalRead) { Ring::Send } else { Ring::Receive };
    Right { key, pd: config.pd, qpn: config.qpn, need, queue }
}
