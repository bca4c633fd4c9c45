//! Packets of the wire.

use mlx5_model::wire::{
    Packet, PacketError,
    icrc::{Carrier, icrc, vcrc},
};

/// The bytes of a frame: what is a packet is the same packet when it is written anew.
pub(crate) fn check(input: &[u8]) {
    let (mut ethernet, mut infiniband) = (input.to_vec(), input.to_vec());
    parse(&ethernet, |frame| Packet::parse(frame));
    parse(&infiniband, |frame| Packet::parse_infiniband(frame));
    // The same with the checks made good, which nobody hits upon.
    seal_ethernet(&mut ethernet);
    parse(&ethernet, |frame| Packet::parse(frame));
    seal_infiniband(&mut infiniband);
    parse(&infiniband, |frame| Packet::parse_infiniband(frame));
}

fn parse(frame: &[u8], parse: fn(&[u8]) -> Result<Packet<'_>, PacketError>) {
    match parse(frame) {
        Ok(packet) => {
            assert!(packet.payload.len() <= frame.len());
            let again = packet.headers.frame(packet.payload);
            match parse(&again) {
                Ok(same) => assert_eq!(same, packet),
                Err(error) => panic!("{packet:?} of {frame:02x?} is written as {again:02x?}: {error}"),
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn half(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?])))
}

/// Writes the ICRC behind the transport's part, whose end the network header says.
fn seal_network(packet: &mut [u8], carrier: Carrier, transport_len: usize) -> Option<()> {
    let end = carrier.len_bytes() + transport_len.checked_sub(4)?;
    packet.get(end..end + 4)?;
    let check = icrc(&packet[..end], carrier);
    packet[end..end + 4].copy_from_slice(&check.to_le_bytes());
    Some(())
}

fn seal_ethernet(frame: &mut [u8]) -> Option<()> {
    let mut at = 12;
    if half(frame, at)? == 0x8100 {
        at += 4;
    }
    let ethertype = half(frame, at)?;
    let packet = &mut frame[at + 2..];
    match ethertype {
        0x0800 => {
            packet.get(..28)?;
            packet[10..12].fill(0);
            let sum: u32 =
                packet[..20].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            let udp_len = half(packet, 24)?;
            seal_network(packet, Carrier::Ipv4Udp, udp_len.checked_sub(8)?)
        }
        0x86dd => {
            let udp_len = half(packet, 44)?;
            seal_network(packet, Carrier::Ipv6Udp, udp_len.checked_sub(8)?)
        }
        0x8915 => {
            let len = half(packet, 4)?;
            seal_network(packet, Carrier::Grh, len)
        }
        _ => None,
    }
}

/// Makes the length that of the packet, and both checks.
fn seal_infiniband(packet: &mut [u8]) -> Option<()> {
    let end = packet.len().checked_sub(2)?;
    let covered = &mut packet[..end];
    covered.get(..8)?;
    let n_words = (end / 4) as u16;
    covered[4] = (n_words >> 8) as u8 & 7;
    covered[5] = n_words as u8;
    match covered[1] & 3 {
        2 => seal_network(covered, Carrier::Lrh, end - 8)?,
        3 => {
            let len = half(covered, 12)?;
            seal_network(&mut covered[8..], Carrier::Grh, len)?
        }
        _ => return None,
    }
    let check = vcrc(covered);
    packet[end..].copy_from_slice(&check.to_le_bytes());
    Some(())
}
