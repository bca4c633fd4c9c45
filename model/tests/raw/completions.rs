//! Completion queues and events, and data between two functions.

use crate::{
    rig::{Raw, Rig},
    rules,
};
use mlx5_direct::backend::pci::PciFunction;
use mlx5_model::{Model, Rule, trace::Kind};
use std::{
    io::Read,
    os::fd::{AsFd, FromRawFd, OwnedFd},
};

#[test]
fn a_cq_overrun_is_named_and_ends_the_cq() {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    let (uar, pd) = (rig.alloc_uar(), rig.alloc_pd());
    let (eqn, eq) = rig.create_eq(uar, 6, 0, 1 << 4);
    let mut cq = rig.create_cq(uar, 2, eqn);
    let (mac, gid) = (rig.mac(), rig.set_gid());
    let mut qp = rig.create_qp(pd, uar, &cq, 4);
    rig.connect(&qp, qp.number, mac, gid);
    let page = rig.map_uar(uar);
    for _ in 0..4 {
        let doorbell = qp.nop(&rig);
        page.ring(doorbell);
        while rig.model.step() {}
    }
    rig.model.assert_clean();
    assert!(cq.poll(&rig, true).is_some());
    for _ in 0..2 {
        let doorbell = qp.nop(&rig);
        page.ring(doorbell);
        while rig.model.step() {}
    }
    assert_eq!(rules(&rig), [Rule::CqOverrun]);
    let eqe = rig.read(eq, 64);
    assert_eq!((eqe[1], eqe[63] & 1), (4, 0), "CQ error");
    assert_eq!(u32::from_be_bytes(eqe[0x20..0x24].try_into().unwrap()), cq.number);
    assert_eq!(eqe[0x2b], 1, "overrun");
    let status = rig.exec(&Raw::cmd(0x402, 16).set(8, 23, 0, cq.number), 272).ok();
    assert_eq!(status.dword(0x10) >> 28, 9);
}

/// DPDK counts so, and 16 bits tell slot and lap.
#[test]
fn a_consumer_index_of_16_bits_goes_on_behind_65535() {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    let (uar, pd) = (rig.alloc_uar(), rig.alloc_pd());
    let (eqn, _) = rig.create_eq(uar, 6, 0, 0);
    let cq = rig.create_cq(uar, 8, eqn);
    let (mac, gid) = (rig.mac(), rig.set_gid());
    let mut qp = rig.create_qp(pd, uar, &cq, 7);
    rig.connect(&qp, qp.number, mac, gid);
    let page = rig.map_uar(uar);
    let mut complete = |consumer: u32| {
        for _ in 0..127 {
            qp.wqe(&rig, 0, &[]);
        }
        let doorbell = qp.nop(&rig);
        page.ring(doorbell);
        while rig.model.step() {}
        rig.write(cq.record, &consumer.to_be_bytes());
    };
    for n in 1..=513 {
        complete((n * 128) & 0xffff);
    }
    rig.model.assert_clean();
    // Ahead is ahead.
    complete((515 * 128) & 0xffff);
    complete(0);
    assert_eq!(rules(&rig).first(), Some(&Rule::CqConsumerForward));
}

/// The first half of a slot of 128 bytes is the device's only where the CQ is padded (`cqe_sz` 2).
#[test]
fn a_padded_slot_is_written_whole() {
    for (cqe_sz, first_half) in [(1, 0xf1), (2, 0)] {
        let mut rig = Rig::new("drive=step");
        rig.bring_up();
        let (uar, pd) = (rig.alloc_uar(), rig.alloc_pd());
        let (eqn, _) = rig.create_eq(uar, 6, 0, 0);
        let (input, mut cq) = rig.cq_input(uar, 4, eqn, cqe_sz);
        cq.number = rig.run(input).ok().dword(8);
        let (mac, gid) = (rig.mac(), rig.set_gid());
        let mut qp = rig.create_qp(pd, uar, &cq, 4);
        rig.connect(&qp, qp.number, mac, gid);
        let doorbell = qp.nop(&rig);
        rig.map_uar(uar).ring(doorbell);
        while rig.model.step() {}
        let slot = rig.read(cq.memory, 192);
        assert_eq!((slot[127] >> 4, slot[127] & 1), (0, 0), "a send completion of the first lap");
        assert_eq!(slot[..64], [first_half; 64]);
        assert_eq!(slot[128..], [0xf1; 64], "and nothing of the next");
    }
}

#[test]
fn arming_wakes_once_and_loses_nothing() {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    let (uar, pd) = (rig.alloc_uar(), rig.alloc_pd());
    // SAFETY: a fresh descriptor.
    let eventfd = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_NONBLOCK)) };
    rig.function.set_irq(3, Some(eventfd.as_fd())).unwrap();
    let mut eventfd = std::fs::File::from(eventfd);
    let mut interrupts = || {
        let mut count = [0; 8];
        eventfd.read(&mut count).map_or(0, |_| u64::from_ne_bytes(count))
    };
    let (eqn, eq) = rig.create_eq(uar, 6, 3, 0);
    let mut cq = rig.create_cq(uar, 4, eqn);
    let (mac, gid) = (rig.mac(), rig.set_gid());
    let mut qp = rig.create_qp(pd, uar, &cq, 4);
    rig.connect(&qp, qp.number, mac, gid);
    let page = rig.map_uar(uar);
    let arm = |sn: u32, solicited: bool, ci: u32, cq: &crate::rig::Cq| {
        let word = sn << 28 | u32::from(solicited) << 24 | ci;
        rig.write(cq.record + 4, &word.to_be_bytes());
        let doorbell = u64::from(word) << 32 | u64::from(cq.number);
        page.store64(0x20, doorbell.to_be_bytes());
        while rig.model.step() {}
    };
    let eqe = |index: u64| rig.read(eq + index * 64 + 63, 1)[0] & 1 == 0;
    let arm_eq = |ci: u32| {
        page.store32(0x40, (eqn << 24 | ci).to_be_bytes());
        while rig.model.step() {}
    };
    let complete = |qp: &mut crate::rig::Qp| {
        let doorbell = qp.nop(&rig);
        page.ring(doorbell);
        while rig.model.step() {}
    };
    arm_eq(0);
    // Not armed: no event. Armed after the completion that was not seen: at once. (The word is 0.)
    complete(&mut qp);
    assert!(!eqe(0) && interrupts() == 0);
    arm(0, false, 0, &cq);
    assert!(eqe(0) && interrupts() == 1);
    cq.poll(&rig, true).unwrap();
    arm_eq(1);
    // A stale number is no arm; the next one is.
    arm(0, false, 1, &cq);
    complete(&mut qp);
    assert!(!eqe(1));
    cq.poll(&rig, true).unwrap();
    arm(1, false, 2, &cq);
    assert!(!eqe(1));
    complete(&mut qp);
    assert!(eqe(1) && interrupts() == 1);
    cq.poll(&rig, true).unwrap();
    // Solicited only: an ordinary completion does not wake.
    arm_eq(2);
    arm(2, true, 3, &cq);
    complete(&mut qp);
    assert!(!eqe(2) && interrupts() == 0);
    // Turned into an arm for any.
    arm(2, false, 3, &cq);
    assert!(eqe(2) && interrupts() == 1);
    // Armed before that completion is polled: it was told of and is no news, what comes after it is.
    arm_eq(3);
    arm(3, false, 3, &cq);
    assert!(!eqe(3) && interrupts() == 0);
    complete(&mut qp);
    assert!(eqe(3) && interrupts() == 1);
    rig.model.assert_clean();
}

/// Makes a key over `len_bytes` at `memory`, with all rights.
pub(crate) fn create_mkey(rig: &Rig, pd: u32, memory: u64, len_bytes: u64) -> u32 {
    let first = memory & !0xfff;
    let n_pages = (memory - first + len_bytes).div_ceil(0x1000);
    let list: Vec<u64> = (0..n_pages).map(|n| (first + n * 0x1000) | 3).collect();
    let octwords = list.len().div_ceil(2);
    let mut input = Raw::cmd(0x200, 272)
        .set(0x0c, 31, 31, 1)
        .set(0x10, 14, 10, 0b11111)
        .set(0x10, 9, 8, 1)
        .set(0x14, 31, 8, 0xff_ffff)
        .set(0x14, 7, 0, 0x42)
        .set(0x1c, 23, 0, pd)
        .set64(0x20, memory)
        .set64(0x28, len_bytes)
        .set(0x44, 31, 0, octwords as u32)
        .set(0x48, 4, 0, 12)
        .set(0x60, 31, 0, octwords as u32)
        .list(&list);
    input.0.resize(272 + octwords * 16, 0);
    rig.run(input).ok().dword(8) << 8 | 0x42
}

#[test]
fn rdma_write_between_two_functions_with_trace_and_pcap() {
    let model = Model::new("ports=2,mtu=1024,drive=step".parse().unwrap()).unwrap();
    let trace = model.trace();
    trace.keep(10_000);
    let mut rigs = [0, 1].map(|index| Rig::on(&model, index));
    let mut sides = rigs.each_mut().map(|rig| {
        rig.bring_up();
        let (uar, pd) = (rig.alloc_uar(), rig.alloc_pd());
        let (eqn, _) = rig.create_eq(uar, 6, 0, 0);
        let cq = rig.create_cq(uar, 4, eqn);
        let (mac, gid) = (rig.mac(), rig.set_gid());
        let qp = rig.create_qp(pd, uar, &cq, 4);
        let memory = rig.alloc(10_000, 0);
        let key = create_mkey(rig, pd, memory + 100, 9000);
        (uar, cq, mac, gid, qp, memory, key)
    });
    for (here, there) in [(0, 1), (1, 0)] {
        rigs[here].connect(&sides[here].4, sides[there].4.number, sides[there].2, sides[there].3);
    }
    let data: Vec<u8> = (0..9000u32).map(|n| (n * 7) as u8).collect();
    rigs[0].write(sides[0].5 + 100, &data);
    let (remote, remote_key, remote_memory) = (sides[1].5 + 100, sides[1].6, sides[1].5);
    let (uar, cq, _, _, qp, memory, key) = &mut sides[0];
    let wqe = Raw::new(32)
        .set64(0, remote)
        .set(8, 31, 0, remote_key)
        .set(16, 31, 0, 9000)
        .set(20, 31, 0, *key)
        .set64(24, *memory + 100);
    let doorbell = qp.wqe(&rigs[0], 8, &wqe.0);
    qp.record(&rigs[0]);
    rigs[0].map_uar(*uar).ring(doorbell);
    while model.step() {}
    let cqe = cq.poll(&rigs[0], true).expect("a completion");
    assert_eq!(cqe[63] >> 4, 0, "{cqe:x?}");
    let written = rigs[1].read(remote_memory, 10_000);
    assert_eq!(written[100..9100], data);
    assert!(written[..100].iter().chain(&written[9100..]).all(|byte| *byte == 0));
    model.assert_clean();

    let records = trace.records();
    let count = |kind| records.iter().filter(|record| record.kind == kind).count();
    assert!(count(Kind::Packet) >= 10 && count(Kind::Cqe) == 1 && count(Kind::CommandIn) > 20);
    let wqe = records.iter().find(|record| record.kind == Kind::SendWqe).unwrap().to_string();
    assert!(wqe.contains("00000000: 00 00 00 08"), "{wqe}");
}
