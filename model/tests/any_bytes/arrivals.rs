//! Frames that come in at a card's port.

use crate::{
    any_bytes::{Choices, damage},
    card::Card,
    keys::rdma_segments,
    rig::Raw,
    wire,
};
use mlx5_direct::{
    backend::pci::PciFunction,
    mlx5::ids::{Psn, Qpn},
};
use mlx5_model::{
    exec::RoceKind,
    wire::{Aeth, AtomicEth, Bth, Ethernet, Headers, LinkHeader, MaskEth, Network, Opcode, Packet, Reth},
};
use std::{
    fs,
    os::unix::net::UnixDatagram,
    path::PathBuf,
    process,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x99];
const GID: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 0x99];
const N_RECEIVES: u16 = 8;

/// The other end of a card's wire.
struct Far {
    socket: UnixDatagram,
    paths: [PathBuf; 2],
}

impl Far {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = |end| std::env::temp_dir().join(format!("mlx5-any-{}-{number}-{end}", process::id()));
        let paths = [path("card"), path("far")];
        let socket = UnixDatagram::bind(&paths[1]).expect("a socket");
        socket.set_nonblocking(true).expect("a socket that does not wait");
        Self { socket, paths }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.paths.iter().for_each(|path| _ = fs::remove_file(path));
    }
}

/// A peer that sends whatever it likes, between requests of the card's own: no request completes twice, what the card sends are
/// good packets, and its driver is blamed for nothing.
pub(crate) fn check(mut choices: Choices) {
    let far = Far::new();
    let [card, peer] = far.paths.each_ref().map(|path| path.display());
    let mut card = Card::with(&format!(",wire=unix:{card}:{peer}"), Some((MAC, GID)));
    let page = card.rig.map_uar(card.numbers[0]);
    // The receive queue is before the send queue.
    let receives = card.qp.send - (16 << card.qp.log_sq);
    for slot in 0..u64::from(N_RECEIVES) {
        let list =
            Raw::new(16).set(0, 31, 0, 0x800).set(4, 31, 0, card.key).set64(8, card.data + slot * 0x800);
        card.rig.write(receives + slot * 16, &list.0);
    }
    card.rig.write(card.qp.record, &u32::from(N_RECEIVES).to_be_bytes());
    let mut n_requests = 0;
    for _ in 0..30 {
        if choices.ended() {
            break;
        }
        match choices.below(8) {
            0 => {
                let mut frame = vec![0; 14 + choices.below(400)];
                choices.fill(&mut frame);
                far.send(&frame);
            }
            1 if n_requests < 8 => {
                n_requests += 1;
                let doorbell = request(&mut choices, &mut card);
                page.ring(doorbell);
            }
            _ => {
                let mut frame = packet(&mut choices, &card);
                if choices.one_in(8) {
                    damage(&mut choices, &mut frame);
                }
                far.send(&frame);
            }
        }
        for _ in 0..2 {
            card.rig.function.relax(Duration::from_micros(20));
        }
        far.drain();
    }
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    while let Some(cqe) = card.cq.poll(&card.rig, true) {
        let qpn = u32::from_be_bytes([0, cqe[57], cqe[58], cqe[59]]);
        let counter = u16::from_be_bytes([cqe[60], cqe[61]]);
        assert_eq!(qpn, card.qp.number, "{cqe:x?}");
        // REQ and REQ_ERR are of the send queue.
        let of_queue = if [0x0, 0xd].contains(&(cqe[63] >> 4)) { &mut sent } else { &mut received };
        assert!(!of_queue.contains(&counter), "twice: {cqe:x?}");
        of_queue.push(counter);
    }
    assert!(sent.len() <= n_requests && received.len() <= N_RECEIVES.into());
    card.rig.model.assert_clean();
    card.assert_named();
}

impl Far {
    fn send(&self, frame: &[u8]) {
        self.socket.send_to(frame, &self.paths[0]).expect("a card at the other end");
    }

    fn drain(&self) {
        let mut frame = [0; 16 << 10];
        while let Ok(len) = self.socket.recv(&mut frame) {
            let frame = &frame[..len];
            if let Err(error) = Packet::parse(frame) {
                panic!("the card has sent {frame:02x?}: {error}");
            }
            wire::check(frame);
        }
    }
}

/// SEND, WRITE, READ or an atomic, with a completion. Its doorbell.
fn request(choices: &mut Choices, card: &mut Card) -> [u8; 8] {
    let len = choices.below(0x1000) as u32 + 1;
    let local = (card.data + choices.below(0x3000) as u64, card.key);
    let remote = (choices.u64(), choices.u32());
    let rdma = rdma_segments(remote, local, len);
    let atomic = || {
        let word = Raw::new(16).set(0, 31, 0, 8).set(4, 31, 0, local.1).set64(8, local.0 & !7);
        let remote = Raw::new(32).set64(0, remote.0 & !7).set(8, 31, 0, remote.1).set64(16, 1);
        [remote.0, word.0].concat()
    };
    let (opcode, segments) = match choices.below(5) {
        0 => (0x0a, rdma.0[16..].to_vec()),
        1 => (0x08, rdma.0),
        2 => (0x10, rdma.0),
        3 => (0x11, atomic()),
        _ => (0x12, atomic()),
    };
    card.qp.long_wqe(&card.rig, opcode, 0, &segments)
}

/// A packet for the queue pair, or nearly.
fn packet(choices: &mut Choices, card: &Card) -> Vec<u8> {
    let opcode = match choices.one_in(8) {
        true => Opcode(choices.u8()),
        false => Opcode(choices.below(0x20) as u8),
    };
    let psn = match choices.one_in(8) {
        true => choices.u32() & 0xff_ffff,
        false => choices.below(12) as u32,
    };
    let addr = match choices.one_in(8) {
        true => choices.u64(),
        false => card.data + choices.below(0x4000) as u64,
    };
    let rkey = if choices.one_in(8) { choices.u32() } else { card.key };
    let qpn = if choices.one_in(8) { choices.u32() & 0xff_ffff } else { card.qp.number };
    let [flags, syndrome] = [choices.u8(), choices.u8()];
    let len_bytes = choices.below(0x1000) as u32;
    let network = Network {
        kind: RoceKind::V2Ipv6,
        source_gid: GID,
        dest_gid: card.gid,
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
        udp_source_port: 0xc000,
    };
    let headers = Headers {
        link: LinkHeader::Ethernet(Ethernet { dest: card.mac, source: MAC, vlan_tci: None }),
        network: Some(network),
        bth: Bth {
            opcode,
            solicited: flags & 1 != 0,
            pkey: if flags & 0xc == 4 { 0x7fff } else { 0xffff },
            dest_qpn: Qpn::new(qpn),
            ack_req: flags & 2 != 0,
            psn: Psn::new(psn),
        },
        reth: Some(Reth { addr, rkey, len_bytes }),
        atomic: Some(AtomicEth { addr, rkey, swap_or_add: choices.u64(), compare: 0 }),
        masks: Some(MaskEth { len_bytes: 8, swap_or_boundary: u64::MAX, compare: u64::MAX }),
        aeth: Some(Aeth { syndrome, msn: psn }),
        atomic_ack: Some(1),
        deth: None,
        xrc_srqn: None,
        dc: None,
        imm: Some(0x1234_5678),
        invalidate: Some(rkey),
    };
    let payload = vec![syndrome; *choices.one_of(&[0, 1, 8, 64, 255, 1023, 1024, 1025, 2048])];
    headers.frame(&payload)
}
