//! The hash by which a TIR spreads packets over queues.

use super::{Headers, Transport};
use mlx5_direct::mlx5::context::RxHashFieldSelect;

/// `selected_fields`.
const SOURCE_IP: u32 = 1;
const DEST_IP: u32 = 1 << 1;
const SOURCE_PORT: u32 = 1 << 2;
const DEST_PORT: u32 = 1 << 3;

/// How a hash is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HashFunction {
    /// Exclusive or of all bytes, inverted: 8 bits.
    InvertedXor8,
    /// Toeplitz with the TIR's key; `symmetric`: the same for both directions of a connection.
    Toeplitz { key: [u8; 40], symmetric: bool },
}

/// A hash and what went into it, as CQEs say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Hash {
    pub(crate) result: u32,
    /// Ports: 0 none, 1 TCP, 2 UDP.
    pub(crate) l4: u8,
    /// Addresses: 0 none, 1 IPv4, 2 IPv6.
    pub(crate) ip: u8,
}

/// Hash of the fields that `select` names and the frame has.
pub(crate) fn hash(
    frame: &[u8],
    headers: &Headers,
    function: &HashFunction,
    select: &RxHashFieldSelect,
) -> Hash {
    let mut hash = Hash::default();
    let mut input = Vec::with_capacity(36);
    let selected = |field| select.selected_fields() & field != 0;
    let symmetric = matches!(function, HashFunction::Toeplitz { symmetric: true, .. });
    if let Some(ip) = headers.ip.filter(|ip| ip.v6 == select.l3_prot_type()) {
        let (mut source, mut dest) = ip.addresses(frame);
        if symmetric && source > dest {
            (source, dest) = (dest, source);
        }
        for (field, address) in [(SOURCE_IP, source), (DEST_IP, dest)] {
            if selected(field) {
                input.extend_from_slice(address);
                hash.ip = if ip.v6 { 2 } else { 1 };
            }
        }
        let wanted = if select.l4_prot_type() { Transport::Udp } else { Transport::Tcp };
        if let Some(l4) = headers.l4.filter(|l4| l4.transport == wanted) {
            let (mut source, mut dest) = l4.ports(frame);
            if symmetric && source > dest {
                (source, dest) = (dest, source);
            }
            for (field, port) in [(SOURCE_PORT, source), (DEST_PORT, dest)] {
                if selected(field) {
                    input.extend(port.to_be_bytes());
                    hash.l4 = if wanted == Transport::Udp { 2 } else { 1 };
                }
            }
        }
    }
    if !input.is_empty() {
        hash.result = match function {
            HashFunction::InvertedXor8 => u32::from(!input.iter().fold(0, |xor, byte| xor ^ byte)),
            HashFunction::Toeplitz { key, .. } => toeplitz(key, &input),
        };
    }
    hash
}

/// For each bit of the input that is set, 32 bits of the key from that place on.
fn toeplitz(key: &[u8; 40], input: &[u8]) -> u32 {
    let mut window = u64::from_be_bytes(std::array::from_fn(|n| key[n]));
    let mut result = 0;
    for (at, byte) in input.iter().enumerate() {
        for bit in (0..8).rev() {
            if byte >> bit & 1 != 0 {
                result ^= (window >> 32) as u32;
            }
            window <<= 1;
        }
        window |= u64::from(key.get(at + 8).copied().unwrap_or(0));
    }
    result
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    /// Key and results of the verification suite that RSS was published with (NDIS, "Verifying the RSS Hash
    /// Calculation").
    const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
        0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
        0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];
    const TOEPLITZ: HashFunction = HashFunction::Toeplitz { key: KEY, symmetric: false };

    fn of(frame: &[u8], function: &HashFunction, select: RxHashFieldSelect) -> Hash {
        hash(frame, &Headers::of(frame), function, &select)
    }

    #[test]
    fn the_published_values() {
        let (source, dest) = ([66, 9, 149, 187], [161, 142, 100, 80]);
        let frame = sample::ipv4(6, source, dest, &sample::tcp([2794, 1766], 0, 0, &[]));
        let select = RxHashFieldSelect::new();
        let with_ports = of(&frame, &TOEPLITZ, select.with_selected_fields(0xf));
        assert_eq!(with_ports, Hash { result: 0x51cc_c178, l4: 1, ip: 1 });
        let without = of(&frame, &TOEPLITZ, select.with_selected_fields(0x3));
        assert_eq!(without, Hash { result: 0x323e_8fc2, l4: 0, ip: 1 });

        let source = [0x3f, 0xfe, 0x25, 0x01, 0x02, 0x00, 0x1f, 0xff, 0, 0, 0, 0, 0, 0, 0, 0x07];
        let dest = [0x3f, 0xfe, 0x25, 0x01, 0x02, 0x00, 0x00, 0x03, 0, 0, 0, 0, 0, 0, 0, 0x01];
        let frame = sample::ipv6(6, source, dest, &sample::tcp([2794, 1766], 0, 0, &[]));
        let select = select.with_l3_prot_type(true);
        assert_eq!(of(&frame, &TOEPLITZ, select.with_selected_fields(0xf)).result, 0x4020_7d3d);
        assert_eq!(of(&frame, &TOEPLITZ, select.with_selected_fields(0x3)).result, 0x2cc1_8cd5);
    }

    #[test]
    fn symmetric_means_both_directions() {
        let function = HashFunction::Toeplitz { key: KEY, symmetric: true };
        let select = RxHashFieldSelect::new().with_l4_prot_type(true).with_selected_fields(0xf);
        let there = sample::ipv4(17, [10, 0, 0, 1], [10, 0, 0, 2], &sample::udp([9, 5], &[]));
        let back = sample::ipv4(17, [10, 0, 0, 2], [10, 0, 0, 1], &sample::udp([5, 9], &[]));
        assert_eq!(of(&there, &function, select), of(&back, &function, select));
        assert_ne!(of(&there, &TOEPLITZ, select).result, of(&back, &TOEPLITZ, select).result);
        assert_eq!(of(&there, &function, select).l4, 2);
    }

    #[test]
    fn other_protocols_than_selected_hash_to_nothing() {
        let frame = sample::ipv4(17, [10, 0, 0, 1], [10, 0, 0, 2], &sample::udp([9, 5], &[]));
        let select = RxHashFieldSelect::new().with_selected_fields(0xf);
        assert_eq!(of(&frame, &TOEPLITZ, select.with_l3_prot_type(true)), Hash::default());
        assert_eq!(of(&frame, &TOEPLITZ, select).l4, 0, "a TCP hash takes a datagram's addresses only");
        assert_eq!(of(&frame, &HashFunction::InvertedXor8, select).result, 0xfc, "10 ^ 1 ^ 10 ^ 2, inverted");
    }
}
