//! How the queue pair of a request talks, where nobody says it: the transport whose segments make most sense.

use super::{Transport, taken_apart};
use mlx5_direct::{
    mlx5::layout::Layout,
    wqe::{CtrlSeg, DataSeg, EthSeg, Peer, RaddrSeg, Segment, SendOpcode},
};

/// The transport, the form of its requests, and why it is not certain if it is not.
pub(super) fn guess(bytes: &[u8], ctrl: CtrlSeg) -> (Transport, Peer, Option<&'static str>) {
    let says_nothing = "its bytes are the same on every transport that has this operation: RC is assumed";
    if !has_peer(ctrl.opcode()) {
        let transport = match ctrl.opcode() {
            SendOpcode::ENHANCED_MPSW | SendOpcode::DUMP => Transport::Raw,
            SendOpcode::UMR | SendOpcode::SET_PSV if ctrl.opmod() != 0 => Transport::Raw,
            _ => Transport::Rc,
        };
        return (transport, Peer::None, Some(says_nothing));
    }
    // Of equals the first is taken: what is seen most often.
    let forms = [
        (Transport::Rc, Peer::None),
        (Transport::Raw, Peer::Eth),
        (Transport::Ud, Peer::Av),
        (Transport::Dc, Peer::DcAv),
        (Transport::Xrc, Peer::Xrc),
        (Transport::Ud, Peer::Ipoib),
    ];
    let mut best = (i32::MIN, forms[0]);
    for form in forms {
        let score = score(bytes, ctrl, form);
        if score > best.0 {
            best = (score, form);
        }
    }
    let (transport, peer) = best.1;
    let doubt = match transport {
        Transport::Rc => "a WQE does not say its transport: it looks like RC's (UC's are the same)",
        Transport::Raw => {
            "a WQE does not say its transport: behind the control segment is what looks like an Ethernet segment"
        }
        Transport::Ud => {
            "a WQE does not say its transport: behind the control segment is what looks like an address vector"
        }
        Transport::Dc => {
            "a WQE does not say its transport: behind the control segment is what looks like an address vector of DC"
        }
        _ => "a WQE does not say its transport: behind the control segment is what looks like an XRC segment",
    };
    (transport, peer, Some(doubt))
}

/// Whether requests of an operation differ by transport.
fn has_peer(opcode: SendOpcode) -> bool {
    let is_send =
        matches!(opcode, SendOpcode::SEND | SendOpcode::SEND_IMM | SendOpcode::SEND_INVAL | SendOpcode::LSO);
    is_send || opcode.has_raddr()
}

/// How much sense the segments make: points off for what no driver writes.
fn score(bytes: &[u8], ctrl: CtrlSeg, (transport, peer): (Transport, Peer)) -> i32 {
    let opcode = ctrl.opcode();
    let is_possible = match transport {
        Transport::Raw => matches!(opcode, SendOpcode::SEND | SendOpcode::LSO),
        Transport::Ud => !opcode.has_raddr() && opcode != SendOpcode::SEND_INVAL,
        _ => opcode != SendOpcode::LSO,
    };
    if !is_possible {
        return i32::MIN / 2;
    }
    let (segments, broken) = taken_apart(bytes, peer);
    let mut score = if broken.is_some() { -8 } else { 0 };
    for placed in &segments {
        score += match placed.segment {
            Segment::Data(data) => of_data(data),
            Segment::Raddr(raddr) => of_raddr(raddr),
            Segment::Eth { segment, header } => of_eth(segment, header, opcode),
            Segment::Av(av) => {
                let is_alone = av.rlid_or_udp_sport() == 0 && av.rgid() == [0; 16];
                let reserved = reserved(av, &av.to_bytes());
                4 + reserved - 4 * i32::from(av.dqpn_dctn().get() == 0) - 3 * i32::from(is_alone)
            }
            Segment::DcAv(av) => {
                let is_alone = av.rlid_or_udp_sport() == 0 && av.rgid() == [0; 16];
                // With nothing in the key's lower half it looks like a datagram.
                let has_key = 4 * i32::from(av.dc_key() as u32 != 0);
                has_key + reserved(av, &av.to_bytes())
                    - 4 * i32::from(av.dqpn_dctn().get() == 0)
                    - 3 * i32::from(is_alone)
            }
            // Seldom; and any 16 bytes look like one.
            Segment::AvBase(av) => {
                -3 + reserved(av, &av.to_bytes()) - 4 * i32::from(av.dqpn_dctn().get() == 0 || av.qkey() == 0)
            }
            Segment::DcAvBase(av) => -3 - 4 * i32::from(av.dqpn_dctn().get() == 0 || av.dc_key() == 0),
            Segment::Xrc(xrc) => {
                let rest = xrc.to_bytes()[4..].iter().any(|byte| *byte != 0);
                let is_strange = xrc.xrc_srqn() == 0 || xrc.to_bytes()[0] != 0;
                1 - 3 * i32::from(rest) - 5 * i32::from(is_strange)
            }
            _ => 0,
        };
    }
    score
}

/// Points off for reserved bits.
fn reserved<L: Layout>(_: L, bytes: &[u8]) -> i32 {
    -4 * i32::from(L::DESC.reserved_bit_set(bytes).is_some())
}

/// Whether an address can be one: of user space, of the kernel, or of the bus.
fn is_address(addr: u64) -> bool {
    addr >> 57 == 0 || addr >> 47 == 0x1_ffff
}

fn of_data(data: DataSeg) -> i32 {
    let mut score = 0;
    score -= 5 * i32::from(data == DataSeg::new());
    score -= 3 * i32::from(data.lkey().get() == 0);
    score -= 2 * i32::from(data.byte_count() > 1 << 30);
    score - 3 * i32::from(!is_address(data.addr()))
}

fn of_raddr(raddr: RaddrSeg) -> i32 {
    reserved(raddr, &raddr.to_bytes())
        - 3 * i32::from(!is_address(raddr.raddr()))
        - 2 * i32::from(raddr.rkey().get() == 0)
}

fn of_eth(eth: EthSeg, header: &[u8], opcode: SendOpcode) -> i32 {
    let mut score = reserved(eth, &eth.to_bytes());
    score -= 4 * i32::from((eth.mss() != 0) != (opcode == SendOpcode::LSO));
    score -= 4 * i32::from(eth.cs_flags() & 0xf != 0);
    // Software parsers give offsets only where they give flags.
    score -= 4 * i32::from(eth.swp_flags() & !0x33 != 0);
    let len_bytes = eth.inline_hdr_sz();
    let has_head = len_bytes != 0 && len_bytes & EthSeg::INSERT_VLAN == 0;
    score -= 4 * i32::from(has_head && !(14..=256).contains(&len_bytes));
    // Behind two MAC addresses stands the type of what follows, or its length.
    if let Some(kind) = header.get(10..12) {
        score += i32::from(matches!(kind, [0x08, 0x00 | 0x06] | [0x86, 0xdd] | [0x81, 0x00] | [0x89, 0x15]));
    }
    score
}

/// Why these bytes are hardly a WQE at all.
pub(super) fn no_wqe(bytes: &[u8], ctrl: CtrlSeg) -> Option<String> {
    let entries = bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_be_bytes(*bytes));
    let is_pages = entries.clone().all(|entry| (1..=3).contains(&(entry & 0xfff)));
    if is_pages && bytes.len() >= 32 {
        return Some(format!(
            "not a WQE: {} 8-byte big-endian translation entries (MTTs) with addresses of pages and permissions below; the \
             control segment is only what their bits would mean",
            entries.count()
        ));
    }
    ctrl.opcode().name().is_none().then(|| format!("no opcode of mlx5: 0x{:02x}", ctrl.opcode().0))
}
