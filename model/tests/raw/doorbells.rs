//! Doorbells through mapped and trapped UAR pages.

use crate::{
    rig::{Cq, Page, Qp, Raw, Rig},
    rules,
};
use mlx5_direct::backend::pci::PciFunction;
use mlx5_model::{Model, Rule};
use std::time::Duration;

/// A rig with a page, a CQ of 16 entries and QPs of 16 WQEBBs in RTS, connected to themselves.
struct Ready {
    rig: Rig,
    page: Page,
    uar: u32,
    cq: Cq,
    qps: Vec<Qp>,
}

fn ready(config: &str, n_qps: usize) -> Ready {
    let mut rig = Rig::new(config);
    rig.bring_up();
    let (uar, pd) = (rig.alloc_uar(), rig.alloc_pd());
    let (eqn, _) = rig.create_eq(uar, 6, 0, 0);
    let cq = rig.create_cq(uar, 4, eqn);
    let (mac, gid) = (rig.mac(), rig.set_gid());
    let qps: Vec<_> = (0..n_qps).map(|_| rig.create_qp(pd, uar, &cq, 4)).collect();
    for qp in &qps {
        rig.connect(qp, qp.number, mac, gid);
    }
    let page = rig.map_uar(uar);
    Ready { rig, page, uar, cq, qps }
}

fn trapped() -> bool {
    cfg!(all(target_arch = "x86_64", target_os = "linux"))
}

const CONFIGS: [&str; 6] = [
    "bar=sparse,drive=step",
    "bar=sparse,drive=thread",
    "bar=mapped,drive=step",
    "bar=mapped,drive=thread",
    "bar=trapped,drive=step",
    "bar=trapped,drive=thread",
];

#[test]
fn a_rung_nop_completes() {
    for config in CONFIGS.into_iter().filter(|config| trapped() || !config.contains("trapped")) {
        let Ready { rig, page, mut cq, mut qps, .. } = ready(config, 1);
        for n in 0..70u16 {
            let doorbell = qps[0].nop(&rig);
            page.ring(doorbell);
            let cqe = cq.wait(&rig);
            assert_eq!(cqe[63] >> 4, 0, "{config}");
            assert_eq!(u16::from_be_bytes([cqe[60], cqe[61]]), n);
            assert_eq!(u32::from_be_bytes(cqe[56..60].try_into().unwrap()) & 0xff_ffff, qps[0].number);
        }
        rig.model.assert_clean();
    }
}

/// H6: without an MMIO write nothing starts.
#[test]
fn doorbell_record_only_no_ring() {
    for config in CONFIGS.into_iter().filter(|config| trapped() || !config.contains("trapped")) {
        let Ready { rig, page, mut cq, mut qps, .. } = ready(config, 1);
        let doorbell = qps[0].nop(&rig);
        rig.model.advance(Duration::from_millis(20));
        assert_eq!(cq.poll(&rig, true), None, "{config}");
        page.ring(doorbell);
        cq.wait(&rig);
        rig.model.assert_clean();
    }
}

#[test]
fn mapped_doorbells_that_are_equal_or_overwritten_are_seen() {
    let Ready { rig, page, mut cq, mut qps, .. } = ready("bar=mapped,drive=step", 3);
    // 64 laps of the 16-bit counter would be needed for an equal value: ring the same one twice instead.
    let doorbell = qps[0].nop(&rig);
    page.ring(doorbell);
    rig.model.step();
    page.ring(doorbell);
    while rig.model.step() {}
    assert!(cq.poll(&rig, true).is_some() && cq.poll(&rig, true).is_none());
    // Three queues on one register between two looks of the model: the last value stays, all are executed.
    for qp in &mut qps {
        let doorbell = qp.nop(&rig);
        page.ring(doorbell);
    }
    while rig.model.step() {}
    let mut seen: Vec<u32> = (0..3)
        .map(|_| u32::from_be_bytes(cq.poll(&rig, true).unwrap()[56..60].try_into().unwrap()) & 0xff_ffff)
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, qps.iter().map(|qp| qp.number).collect::<Vec<_>>());
    rig.model.assert_clean();
}

#[test]
fn one_page_serves_many_registers() {
    let Ready { rig, page, mut cq, mut qps, .. } = ready("bar=mapped,drive=step", 1);
    for register in (0x800..0x1000).step_by(0x100) {
        let doorbell = qps[0].nop(&rig);
        page.store64(register, doorbell);
        while rig.model.step() {}
        assert!(cq.poll(&rig, true).is_some(), "register 0x{register:x}");
    }
    rig.model.assert_clean();
}

#[test]
fn trapped_doorbells_are_exact() {
    if !trapped() {
        return assert!(Model::new("bar=trapped".parse().unwrap()).is_err());
    }
    let Ready { rig, page, uar, mut cq, mut qps } = ready("bar=trapped,drive=step", 2);
    // The record after the doorbell.
    let doorbell = qps[0].wqe(&rig, 0, &[]);
    page.ring(doorbell);
    qps[0].record(&rig);
    assert_eq!(rules(&rig), [Rule::RecordBeforeDoorbell]);
    page.ring(doorbell);
    while rig.model.step() {}
    assert!(cq.poll(&rig, true).is_some());
    // Not the last WQE's control segment.
    let first = qps[0].nop(&rig);
    qps[0].nop(&rig);
    page.ring(first);
    assert_eq!(rules(&rig), [Rule::DoorbellNamesLastWqe]);
    // Registers that are none, widths that are wrong, a queue that is none.
    page.store64(0x100, [0; 8]);
    page.store32(0x20, [0; 4]);
    page.store32(0x800, [0; 4]);
    page.ring([0, 0, 0, 0, 0, 0xff, 0xff, 1]);
    assert_eq!(
        rules(&rig),
        [Rule::DoorbellRegister, Rule::DoorbellRegister, Rule::DoorbellRegister, Rule::DoorbellQueueExists]
    );
    // Another page than the queue's, and one that was never allocated.
    let other = rig.map_uar(rig.alloc_uar());
    let doorbell = qps[1].nop(&rig);
    other.ring(doorbell);
    rig.map_uar(uar + 100).ring(doorbell);
    assert_eq!(rules(&rig), [Rule::DoorbellRightPage, Rule::DoorbellAllocatedPage]);
    page.ring(doorbell);
    rig.model.assert_clean();
}

#[test]
fn blue_flame_lines_are_compared_with_the_ring() {
    if !trapped() {
        return;
    }
    let Ready { rig, page, mut cq, mut qps, .. } = ready("bar=trapped,drive=step", 1);
    let copy = |at: usize, bytes: &[u8]| {
        for (offset, eight) in (at..).step_by(8).zip(bytes.as_chunks::<8>().0) {
            page.store64(offset, *eight);
        }
    };
    qps[0].nop(&rig);
    copy(0x800, &qps[0].wqe_bytes(&rig));
    rig.model.assert_clean();
    let doorbell = qps[0].nop(&rig);
    let mut line = qps[0].wqe_bytes(&rig);
    line[40] ^= 1;
    copy(0x900, &line);
    assert_eq!(rules(&rig), [Rule::BlueFlameMatchesRing]);
    // A line cut short shows when the buffer is used again; beyond the WQE shows at once.
    copy(0x800, &qps[0].wqe_bytes(&rig)[..32]);
    assert_eq!(rules(&rig), [Rule::DoorbellAddsWork], "rung for before, all of them");
    page.ring(doorbell);
    assert_eq!(rules(&rig), [Rule::BlueFlameWholeLines, Rule::DoorbellAddsWork]);
    copy(0x840, &[0; 8]);
    assert_eq!(rules(&rig), [Rule::BlueFlameWholeLines]);
    while rig.model.step() {}
    assert!(cq.poll(&rig, true).is_some() && cq.poll(&rig, true).is_some());
}

#[cfg(target_arch = "x86_64")]
#[test]
fn wide_stores_arrive_whole() {
    use std::arch::x86_64::*;
    let Ready { rig, page, mut cq, mut qps, .. } = ready("bar=trapped,drive=step", 1);
    #[target_feature(enable = "avx")]
    fn avx_copy(to: *mut u8, from: &[u8; 64]) {
        for half in 0..2 {
            // SAFETY: 64 readable bytes, and 64 bytes of a mapped page whose stores are carried out.
            unsafe {
                let line = _mm256_loadu_si256(from.as_ptr().cast::<__m256i>().add(half));
                _mm256_storeu_si256(to.cast::<__m256i>().add(half), line);
            }
        }
    }
    qps[0].nop(&rig);
    let line = qps[0].wqe_bytes(&rig);
    for quarter in 0..4 {
        // SAFETY: 16 bytes of 64, and 16 bytes of a mapped page whose stores are carried out.
        unsafe {
            let part = _mm_loadu_si128(line.as_ptr().cast::<__m128i>().add(quarter));
            _mm_stream_si128(page.at(0x800).cast::<__m128i>().add(quarter), part);
        }
    }
    qps[0].nop(&rig);
    if is_x86_feature_detected!("avx") {
        // SAFETY: the feature was just detected.
        unsafe { avx_copy(page.at(0x900), &qps[0].wqe_bytes(&rig)) };
    } else {
        page.store64(0x900, qps[0].wqe_bytes(&rig)[..8].try_into().unwrap());
    }
    while rig.model.step() {}
    assert!(cq.poll(&rig, true).is_some() && cq.poll(&rig, true).is_some());
    rig.model.assert_clean();
}

#[test]
fn other_faults_go_to_the_handler_before() {
    if !trapped() {
        return;
    }
    // In a child process: install the trap, then fault elsewhere; it must die by SIGSEGV, not hang.
    if std::env::var_os("MLX5_MODEL_FAULT").is_some() {
        let ready = ready("bar=trapped,drive=step", 1);
        // SAFETY: none; the fault is the point, and it ends this child.
        unsafe { std::ptr::dangling_mut::<u64>().write_volatile(1) };
        drop(ready);
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["doorbells::other_faults_go_to_the_handler_before", "--exact"])
        .env("MLX5_MODEL_FAULT", "1")
        .output()
        .unwrap();
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{output:?}");
}

#[test]
fn a_slot_written_again_early_is_named() {
    let config = if trapped() { "bar=trapped,drive=step" } else { return };
    let Ready { rig, page, mut cq, mut qps, .. } = ready(config, 1);
    let first = qps[0].send;
    for _ in 0..2 {
        let doorbell = qps[0].nop(&rig);
        page.ring(doorbell);
    }
    // The model has taken the doorbells up, and has executed nothing yet.
    rig.write(first + 40, &[0xee]);
    while rig.model.step() {}
    assert!(cq.poll(&rig, true).is_some() && cq.poll(&rig, true).is_some());
    let violations = rig.model.take_violations();
    assert_eq!(violations.len(), 1, "{violations:?}");
    assert_eq!((violations[0].rule, violations[0].index), (Rule::SlotReusedEarly, Some(0)));
    // After the completions it is free to be written.
    rig.write(first + 40, &[0xdd]);
    let doorbell = qps[0].nop(&rig);
    page.ring(doorbell);
    while rig.model.step() {}
    rig.model.assert_clean();
}

#[test]
fn command_doorbells_that_merge_in_a_mapped_init_segment() {
    let rig = Rig::new("bar=mapped,drive=step");
    let bar = rig.function.map_bar(0, 0x1000).expect("mapping");
    let ring = |slots: u32| {
        // SAFETY: the command doorbell, inside the mapping.
        unsafe { bar.base().add(0x18).cast::<u32>().write_volatile(slots.to_be()) };
    };
    let enable = Raw::cmd(0x104, 16);
    // Slot 0 rings, and slot 31 before anyone has looked.
    rig.lay(0, &enable.0, 12, 0x5a);
    rig.lay(31, &enable.0, 12, 0x5b);
    ring(1);
    ring(1 << 31);
    while rig.model.step() {}
    assert!(rig.done(0) && rig.done(31));
    // A slot that software has given away, and not rung: executed with the other, and its doorbell comes later.
    rig.lay(0, &enable.0, 12, 0x5a);
    rig.lay(31, &enable.0, 12, 0x5b);
    ring(1);
    while rig.model.step() {}
    assert!(rig.done(0) && rig.done(31));
    ring(1 << 31);
    while rig.model.step() {}
    rig.model.assert_clean();
    // Once.
    ring(1 << 31);
    while rig.model.step() {}
    assert_eq!(rules(&rig), [Rule::CommandEntry]);
}
