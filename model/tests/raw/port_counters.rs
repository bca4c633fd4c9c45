//! What a port and its vport count, and the registers that tools ask for.

use super::{
    port::{Port, cable, ipv4, udp},
    rig::{Answer, Raw, Rig},
};
use mlx5_model::fw::Refusal;

const READ: u32 = 1;
const WRITE: u32 = 0;
const PFCC: u32 = 0x5007;
const PPCNT: u32 = 0x5008;
const MPCNT: u32 = 0x9051;
/// Groups of PPCNT.
const IEEE_802_3: u32 = 0x00;
const RFC_2819: u32 = 0x02;
const PER_PRIORITY: u32 = 0x10;
/// Where counters begin: behind the output's head and the register's.
const COUNTERS: usize = 0x18;

/// A register of 256 bytes at most; its image begins at 0x10.
fn access(rig: &Rig, op_mod: u32, register: u32, image: &Raw) -> Answer {
    let input = Raw::cmd(0x805, 16 + 256).set(4, 15, 0, op_mod).set(8, 15, 0, register);
    rig.exec(&input.put(0x10, &image.0), 16 + 256)
}

fn port_counters(rig: &Rig, group: u32, priority: u32, clear: u32) -> Answer {
    let image = Raw::new(8).set(0, 23, 16, 1).set(0, 5, 0, group).set(4, 31, 31, clear);
    access(rig, READ, PPCNT, &image.set(4, 2, 0, priority)).ok()
}

fn counter(answer: &Answer, at: usize) -> u64 {
    u64::from(answer.dword(COUNTERS + at)) << 32 | u64::from(answer.dword(COUNTERS + at + 4))
}

/// Packets and bytes of a kind of traffic, by its place in QUERY_VPORT_COUNTER.
fn vport(rig: &Rig, at: usize) -> (u32, u32) {
    let answer = rig.exec(&Raw::cmd(0x770, 32), 528).ok();
    (answer.dword(at + 4), answer.dword(at + 12))
}

/// A frame of `len` bytes to the other end.
fn frame(near: &Port, far: &Port, len: usize) -> Vec<u8> {
    near.to(far, &ipv4(17, &udp(&vec![7; len - 42])))
}

#[test]
fn both_ends_count_what_passes() {
    let (mut near, mut far) = cable();
    far.take_all();
    far.post(1500);
    far.post(1500);
    near.send(&frame(&near, &far, 60), 0);
    near.send_tagged(&frame(&near, &far, 300), 0xa001);
    far.receive();
    far.receive();
    let (sent, received) =
        (port_counters(&near.rig, IEEE_802_3, 0, 0), port_counters(&far.rig, IEEE_802_3, 0, 0));
    assert_eq!(
        (counter(&sent, 0x00), counter(&sent, 0x20)),
        (2, 64 + 308),
        "with check sequences and the tag"
    );
    assert_eq!((counter(&received, 0x08), counter(&received, 0x28)), (2, 64 + 308));
    assert_eq!((counter(&sent, 0x08), counter(&received, 0x00)), (0, 0), "nothing went the other way");
    let by_size = port_counters(&far.rig, RFC_2819, 0, 0);
    assert_eq!([0x58, 0x60, 0x68, 0x70, 0x78].map(|at| counter(&by_size, at)), [1, 0, 0, 1, 0]);
    for (priority, n_bytes) in [(0, 64), (5, 308), (3, 0)] {
        assert_eq!(counter(&port_counters(&near.rig, PER_PRIORITY, priority, 0), 0x28), n_bytes);
        assert_eq!(counter(&port_counters(&far.rig, PER_PRIORITY, priority, 0), 0x00), n_bytes);
    }
    assert_eq!((vport(&near.rig, 0xa0), vport(&far.rig, 0x90)), ((2, 364), (2, 364)), "no check sequences");
    near.rig.model.assert_clean();
}

/// Reading with `clr` gives what there is, and only that group begins anew.
#[test]
fn a_group_is_cleared_when_it_was_read() {
    let (mut near, mut far) = cable();
    far.take_all();
    let mut send = |n_bytes| {
        far.post(1500);
        near.send(&frame(&near, &far, n_bytes), 0);
        far.receive();
        [IEEE_802_3, RFC_2819].map(|group| counter(&port_counters(&far.rig, group, 0, 1 - group / 2), 0x08))
    };
    // Frames of one group, bytes of the other.
    assert_eq!(send(60), [1, 64]);
    assert_eq!(send(96), [1, 164]);
    assert_eq!(send(96), [1, 264]);
}

#[test]
fn a_frame_for_nobody_is_counted_as_that() {
    let (mut near, far) = cable();
    near.send(&frame(&near, &far, 60), 0);
    let missed = |rig: &Rig| rig.exec(&Raw::cmd(0x76f, 16), 528).ok().dword(0x24);
    far.rig.wait("the frame", |rig| missed(rig) == 1);
    assert_eq!(counter(&port_counters(&far.rig, IEEE_802_3, 0, 0), 0x08), 1, "the port had it");
    assert_eq!(vport(&far.rig, 0x90), (0, 0));
}

#[test]
fn a_short_frame_is_padded() {
    let (mut near, mut far) = cable();
    far.take_all();
    far.post(1500);
    let short = near.to(&far, &ipv4(17, &udp(b"short")));
    near.send(&short, 0);
    let cqe = far.receive();
    assert_eq!(cqe[0x2c..0x30], 60u32.to_be_bytes());
    assert_eq!(far.buffer(0)[short.len()..61], [[0; 60].as_slice(), &[0xee]].concat()[short.len()..]);
}

#[test]
fn groups_that_there_are_not_are_refused() {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    let group = |number| Raw::new(8).set(0, 23, 16, 1).set(0, 5, 0, number);
    let refused = |register, image: &Raw, refusal: Refusal| {
        assert_eq!(access(&rig, READ, register, image).syndrome(), refusal.syndrome, "{}", refusal.text);
    };
    refused(PPCNT, &group(0x3f), Refusal::COUNTER_GROUP);
    refused(PPCNT, &Raw::new(8).set(0, 23, 16, 2), Refusal::PORT);
    refused(MPCNT, &group(7), Refusal::COUNTER_GROUP);
    refused(0x507f, &Raw::new(8).set(0, 7, 0, 1), Refusal::REGISTER_GROUP);
    refused(0x907f, &Raw::new(8).set(0, 7, 0, 3), Refusal::REGISTER_GROUP);
    refused(0x500f, &Raw::new(8).set(0, 23, 16, 1), Refusal::REGISTER);
    assert_eq!(access(&rig, WRITE, PPCNT, &group(0)).syndrome(), Refusal::REGISTER_READ_ONLY.syndrome);
}

/// Every register that PCAM and MCAM name answers, and no other of the ports'.
#[test]
fn the_registers_named_are_the_registers_there() {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    for (capabilities, first) in [(0x507f, 0x5000), (0x907f, 0x9000)] {
        let masks = access(&rig, READ, capabilities, &Raw::new(8)).ok();
        for at in 0..128 {
            let named = masks.dword(0x18 + 12 - at / 32 * 4) >> (at % 32) & 1 != 0;
            let port = if first == 0x5000 { 1 } else { 0 };
            let answer = access(&rig, READ, first + at as u32, &Raw::new(80).set(0, 23, 16, port));
            let there = answer.syndrome() != Refusal::REGISTER.syndrome;
            // PCAP is InfiniBand's, and older than PCAM.
            assert!(there == named || first + at as u32 == 0x5001, "0x{:x}", first + at as u32);
        }
    }
}

/// PFCC: a mask chooses the priorities that are written; the port's own pauses are written unless a bit says not.
#[test]
fn pauses_are_written_where_masks_say() {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    let pauses = || {
        let answer = access(&rig, READ, PFCC, &Raw::new(32).set(0, 23, 16, 1)).ok();
        [answer.dword(0x18), answer.dword(0x1c)].map(|dword| (dword >> 31, dword >> 16 & 0xff))
    };
    assert_eq!(pauses(), [(1, 0), (1, 0)], "of the port, both ways");
    let write = |masks: Raw| access(&rig, WRITE, PFCC, &masks.set(0, 23, 16, 1)).ok();
    write(Raw::new(32).set(4, 23, 16, 0x0f).set(8, 31, 31, 1).set(8, 23, 16, 0x3c).set(12, 29, 29, 1));
    assert_eq!(pauses(), [(1, 0x0c), (1, 0)]);
    write(Raw::new(32));
    assert_eq!(pauses(), [(0, 0x0c), (0, 0)]);
}
