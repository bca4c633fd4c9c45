//! The headers, field by field. Sizes and places: InfiniBand Architecture Specification volume 1, chapters 8 and 9, and annex 17
//! (RoCE v2); IP and UDP as everywhere.

use mlx5_direct::mlx5::layout::{Desc, Field, Kind};
use std::fmt;

type Show = fn(u64, &mut fmt::Formatter<'_>) -> fmt::Result;

/// A field of bits: of the dword at `offset`, or of the qword there if `hi` is above 31.
const fn bits(
    name: &'static str,
    offset: usize,
    hi: usize,
    lo: usize,
    show: Show,
    doc: &'static str,
) -> Field {
    let span = if hi > 31 { 64 } else { 32 };
    Field {
        name,
        bit_offset: offset * 8 + span - 1 - hi,
        bit_width: hi + 1 - lo,
        kind: Kind::Bits { show, enumeration: None },
        doc,
    }
}

/// A field of bytes, in the order of the wire.
const fn bytes(name: &'static str, offset: usize, len_bytes: usize, doc: &'static str) -> Field {
    Field { name, bit_offset: offset * 8, bit_width: len_bytes * 8, kind: Kind::Bytes, doc }
}

fn number(value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if value < 10 { write!(f, "{value}") } else { write!(f, "0x{value:x} ({value})") }
}

fn hex(value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "0x{value:x}")
}

fn decimal(value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{value}")
}

fn opcode(value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match opcode_name(value as u8) {
        Some(name) => write!(f, "{name} (0x{value:02x})"),
        None => write!(f, "0x{value:02x}"),
    }
}

/// The AETH's syndrome: two bits of kind, five of value.
fn syndrome(value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let what = match value {
        0x00..=0x1f => "ACK",
        0x20..=0x3f => "RNR NAK",
        0x60 => "NAK, PSN sequence error",
        0x61 => "NAK, invalid request",
        0x62 => "NAK, remote access error",
        0x63 => "NAK, remote operational error",
        0x64 => "NAK, invalid RD request",
        _ => "reserved",
    };
    write!(f, "{what} (0x{value:02x})")
}

fn ethertype(value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let name = match value {
        0x0800 => "IPv4",
        0x86dd => "IPv6",
        0x8915 => "RoCE v1",
        0x8100 => "VLAN",
        _ => return write!(f, "0x{value:04x}"),
    };
    write!(f, "{name} (0x{value:04x})")
}

fn next_header(value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match value {
        17 => write!(f, "UDP (17)"),
        0x1b => write!(f, "BTH (0x1b)"),
        _ => write!(f, "{value}"),
    }
}

/// Name of a BTH opcode: transport and operation.
pub fn opcode_name(opcode: u8) -> Option<String> {
    let transport = match opcode >> 5 {
        0 => "RC",
        1 => "UC",
        3 => "UD",
        5 => "XRC",
        _ => return None,
    };
    let operation = match opcode & 0x1f {
        0x00 => "SEND first",
        0x01 => "SEND middle",
        0x02 => "SEND last",
        0x03 => "SEND last with immediate",
        0x04 => "SEND only",
        0x05 => "SEND only with immediate",
        0x06 => "RDMA WRITE first",
        0x07 => "RDMA WRITE middle",
        0x08 => "RDMA WRITE last",
        0x09 => "RDMA WRITE last with immediate",
        0x0a => "RDMA WRITE only",
        0x0b => "RDMA WRITE only with immediate",
        0x0c => "RDMA READ request",
        0x0d => "RDMA READ response first",
        0x0e => "RDMA READ response middle",
        0x0f => "RDMA READ response last",
        0x10 => "RDMA READ response only",
        0x11 => "acknowledge",
        0x12 => "atomic acknowledge",
        0x13 => "compare and swap",
        0x14 => "fetch and add",
        0x16 => "SEND last with invalidate",
        0x17 => "SEND only with invalidate",
        _ => return None,
    };
    Some(format!("{transport} {operation}"))
}

/// Ethernet, without a VLAN tag.
pub(super) static ETHERNET: Desc = Desc {
    name: "Ethernet",
    prm: "IEEE 802.3",
    size_bytes: 14,
    doc: "Ethernet header.",
    fields: &[
        bytes("destination", 0, 6, "MAC of the port that the frame is for."),
        bytes("source", 6, 6, "MAC of the port that sent it."),
        bits("ethertype", 12, 31, 16, ethertype, "What follows."),
    ],
};

/// What stands between an Ethernet header's ethertype and the one that counts.
pub(super) static VLAN: Desc = Desc {
    name: "Vlan",
    prm: "IEEE 802.1Q",
    size_bytes: 4,
    doc: "VLAN tag, behind its own ethertype.",
    fields: &[
        bits("pcp", 0, 31, 29, number, "Priority."),
        bits("dei", 0, 28, 28, number, "May be dropped first."),
        bits("vid", 0, 27, 16, number, "VLAN."),
        bits("ethertype", 0, 15, 0, ethertype, "What follows."),
    ],
};

/// IPv4 without options.
pub(super) static IPV4: Desc = Desc {
    name: "Ipv4",
    prm: "RFC 791",
    size_bytes: 20,
    doc: "IPv4 header.",
    fields: &[
        bits("version", 0, 31, 28, number, "4."),
        bits("ihl", 0, 27, 24, number, "Length of the header in dwords."),
        bits("tos", 0, 23, 16, number, "Type of service. Under ones in the ICRC."),
        bits("total_length", 0, 15, 0, number, "Bytes from here to the ICRC's end."),
        bits("identification", 4, 31, 16, number, "Number of the packet. Under the ICRC."),
        bits("flags", 4, 15, 13, number, "2: don't fragment."),
        bits("fragment_offset", 4, 12, 0, number, "0: a RoCE packet is never a fragment."),
        bits("ttl", 8, 31, 24, decimal, "Hops that are left. Under ones in the ICRC."),
        bits("protocol", 8, 23, 16, next_header, "What follows."),
        bits("checksum", 8, 15, 0, hex, "Of this header. Under ones in the ICRC."),
        bytes("source", 12, 4, "Sender."),
        bytes("destination", 16, 4, "Receiver."),
    ],
};

/// IPv6 without extension headers.
pub(super) static IPV6: Desc =
    Desc { name: "Ipv6", prm: "RFC 8200", size_bytes: 40, doc: "IPv6 header.", fields: IPV6_FIELDS };

/// A global routing header has the form of an IPv6 header.
pub(super) static GRH: Desc = Desc {
    name: "Grh",
    prm: "GRH",
    size_bytes: 40,
    doc: "Global routing header, in the form of IPv6.",
    fields: IPV6_FIELDS,
};

const IPV6_FIELDS: &[Field] = &[
    bits("version", 0, 31, 28, number, "6."),
    bits("traffic_class", 0, 27, 20, number, "Service class. Under ones in the ICRC."),
    bits("flow_label", 0, 19, 0, number, "Packets of one flow. Under ones in the ICRC."),
    bits("payload_length", 4, 31, 16, number, "Bytes behind this header."),
    bits("next_header", 4, 15, 8, next_header, "What follows."),
    bits("hop_limit", 4, 7, 0, decimal, "Hops that are left. Under ones in the ICRC."),
    bytes("source", 8, 16, "Address of the sender: its GID."),
    bytes("destination", 24, 16, "Address of the receiver: its GID."),
];

/// UDP.
pub(super) static UDP: Desc = Desc {
    name: "Udp",
    prm: "RFC 768",
    size_bytes: 8,
    doc: "UDP header.",
    fields: &[
        bits("source_port", 0, 31, 16, hex, "Free: switches choose a path by it."),
        bits("destination_port", 0, 15, 0, decimal, "4791: RoCE v2."),
        bits("length", 4, 31, 16, number, "Bytes from here to the ICRC's end."),
        bits("checksum", 4, 15, 0, hex, "0: none, since the ICRC is stronger."),
    ],
};

/// Base transport header.
pub(super) static BTH: Desc = Desc {
    name: "Bth",
    prm: "BTH",
    size_bytes: 12,
    doc: "Base transport header: what every packet has.",
    fields: &[
        bits("opcode", 0, 31, 24, opcode, "Transport, operation, and which part of the message."),
        bits("se", 0, 23, 23, number, "Solicited event: wake the receiver."),
        bits("migreq", 0, 22, 22, number, "State of path migration; 1 where there is none."),
        bits("pad_count", 0, 21, 20, number, "Zeros behind the payload, up to a multiple of 4."),
        bits("tver", 0, 19, 16, number, "Version: 0."),
        bits("p_key", 0, 15, 0, hex, "Partition; 0xffff on RoCE."),
        bits("fecn", 4, 31, 31, number, "Congestion was seen on the way. Under ones in the ICRC."),
        bits("becn", 4, 30, 30, number, "Congestion was seen on the way back. Under ones in the ICRC."),
        bits("dest_qp", 4, 23, 0, hex, "The queue pair that the packet is for."),
        bits("ack_req", 8, 31, 31, number, "Acknowledge this packet."),
        bits("psn", 8, 23, 0, hex, "Packet sequence number."),
    ],
};

/// RDMA extended transport header.
pub(super) static RETH: Desc = Desc {
    name: "Reth",
    prm: "RETH",
    size_bytes: 16,
    doc: "RDMA extended transport header: where, by which key, how much.",
    fields: &[
        bits("va", 0, 63, 0, hex, "Address in the responder's memory."),
        bits("r_key", 8, 31, 0, hex, "The key that opens it."),
        bits("dma_len", 12, 31, 0, number, "Bytes of the whole message."),
    ],
};

/// Acknowledge extended transport header.
pub(super) static AETH: Desc = Desc {
    name: "Aeth",
    prm: "AETH",
    size_bytes: 4,
    doc: "Acknowledge extended transport header.",
    fields: &[
        bits("syndrome", 0, 31, 24, syndrome, "Whether it went well."),
        bits("msn", 0, 23, 0, number, "Messages that the responder has completed."),
    ],
};

/// Operands of an atomic.
pub(super) static ATOMIC_ETH: Desc = Desc {
    name: "AtomicEth",
    prm: "AtomicETH",
    size_bytes: 28,
    doc: "Atomic extended transport header.",
    fields: &[
        bits("va", 0, 63, 0, hex, "Address of the 8 bytes in the responder's memory."),
        bits("r_key", 8, 31, 0, hex, "The key that opens it."),
        bits("swap_add", 12, 63, 0, hex, "The value to swap in, or to add."),
        bits("compare", 20, 63, 0, hex, "The value to compare with."),
    ],
};

/// Result of an atomic.
pub(super) static ATOMIC_ACK_ETH: Desc = Desc {
    name: "AtomicAckEth",
    prm: "AtomicAckETH",
    size_bytes: 8,
    doc: "Atomic acknowledge extended transport header.",
    fields: &[bits("original", 0, 63, 0, hex, "The value that was there before.")],
};

/// Datagram extended transport header.
pub(super) static DETH: Desc = Desc {
    name: "Deth",
    prm: "DETH",
    size_bytes: 8,
    doc: "Datagram extended transport header.",
    fields: &[
        bits("q_key", 0, 31, 0, hex, "The key that the receiving queue pair must have."),
        bits("src_qp", 4, 23, 0, hex, "The queue pair that sent it."),
    ],
};

/// XRC extended transport header.
pub(super) static XRC_ETH: Desc = Desc {
    name: "XrcEth",
    prm: "XRCETH",
    size_bytes: 4,
    doc: "XRC extended transport header.",
    fields: &[bits("xrc_srq", 0, 23, 0, hex, "The shared receive queue that it is for.")],
};

/// Immediate data.
pub(super) static IMM_DT: Desc = Desc {
    name: "ImmDt",
    prm: "ImmDt",
    size_bytes: 4,
    doc: "Immediate data.",
    fields: &[bits("imm", 0, 31, 0, hex, "32 bits for the receiver's completion.")],
};

/// Key to invalidate.
pub(super) static IETH: Desc = Desc {
    name: "Ieth",
    prm: "IETH",
    size_bytes: 4,
    doc: "Invalidate extended transport header.",
    fields: &[bits("r_key", 0, 31, 0, hex, "The receiver's key that ends here.")],
};

/// Invariant CRC.
pub(super) static ICRC: Desc = Desc {
    name: "Icrc",
    prm: "ICRC",
    size_bytes: 4,
    doc: "Invariant CRC, least significant byte first.",
    fields: &[bytes("icrc", 0, 4, "CRC-32 over all that nobody may change on the way.")],
};
