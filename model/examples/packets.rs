//! Reads pcap files and checks every RoCE packet in them: headers, lengths, ICRC.
//!
//! ```text
//! cargo run --release -p mlx5-model --example packets -- FILE.pcap…
//! ```
//!
//! Fails if a packet is wrong, or if a file has no packets.

use mlx5_model::wire::{Packet, PacketError};
use std::{collections::BTreeMap, env, error::Error, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let mut n_wrong = 0;
    for path in env::args().skip(1) {
        let file = fs::read(&path)?;
        let (mut n_right, mut n_other) = (0, 0);
        let mut opcodes = BTreeMap::<String, usize>::new();
        for (number, frame) in frames(&file).ok_or("not a pcap file of Ethernet frames")?.enumerate() {
            match Packet::parse(frame) {
                Ok(packet) => {
                    n_right += 1;
                    *opcodes.entry(format!("{:?}", packet.headers.bth.opcode)).or_default() += 1;
                }
                Err(PacketError::NotRoce) => n_other += 1,
                Err(error) => {
                    n_wrong += 1;
                    println!("{path}: packet {}: {error}", number + 1);
                }
            }
        }
        println!("{path}: {n_right} RoCE packets with the right ICRC, {n_wrong} wrong, {n_other} others");
        for (opcode, n) in opcodes {
            println!("  {n:7} {opcode}");
        }
        if n_right == 0 {
            return Err(format!("{path}: no RoCE packets").into());
        }
    }
    if n_wrong == 0 { Ok(()) } else { Err(format!("{n_wrong} wrong packets").into()) }
}

/// The frames of a pcap file in the byte order of little-endian machines.
fn frames(file: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    const ETHERNET: u32 = 1;
    let word = |at: usize| Some(u32::from_le_bytes(*file.get(at..)?.first_chunk()?));
    let microseconds_or_nanoseconds = [0xa1b2_c3d4, 0xa1b2_3c4d];
    if !microseconds_or_nanoseconds.contains(&word(0)?) || word(20)? != ETHERNET {
        return None;
    }
    let mut at = 24;
    Some(std::iter::from_fn(move || {
        let len = u32::from_le_bytes(*file.get(at + 8..)?.first_chunk()?) as usize;
        let frame = file.get(at + 16..at + 16 + len)?;
        at += 16 + len;
        Some(frame)
    }))
}
