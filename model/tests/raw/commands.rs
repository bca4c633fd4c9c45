//! The command interface, driven by hand-built entries.

use crate::{
    rig::{MEMORY, Raw, Rig, pages},
    rules,
};
use mlx5_direct::backend::pci::PciFunction;
use mlx5_model::{Rule, fw::Refusal};
use std::time::Duration;

#[test]
fn bring_up_and_teardown_in_the_golden_order() {
    for config in ["drive=step", "drive=thread"] {
        let mut rig = Rig::new(config);
        assert_eq!(rig.function.bar_read32(4) >> 16, 5);
        assert_eq!(rig.function.bar_read32(0x14) & 0xfff, 0x56);
        rig.bring_up();
        rig.tear_down();
        rig.model.assert_clean();
    }
}

#[test]
fn commands_before_their_time_are_refused_and_named() {
    let mut rig = Rig::new("drive=step");
    let alloc_pd = Raw::cmd(0x800, 16);
    let answer = rig.run(alloc_pd.clone());
    assert_eq!((answer.status(), answer.syndrome()), ((0, 4), Refusal::NOT_ENABLED.syndrome));
    rig.run(Raw::cmd(0x104, 16)).ok();
    assert_eq!(rig.run(alloc_pd).syndrome(), Refusal::NOT_INITIALISED.syndrome);
    assert_eq!(rules(&rig), [Rule::CommandOrder; 2]);
    let [rule, shown] = {
        rig.run(Raw::cmd(0x800, 16));
        let violation = rig.model.take_violations().remove(0);
        [violation.rule.source().to_owned(), violation.to_string()]
    };
    assert!(shown.contains(&rule) && shown.contains("ALLOC_PD"), "{shown}");
    let init = Raw::cmd(0x102, 16);
    assert_eq!(rig.run(init.clone()).syndrome(), Refusal::BOOT_PAGES_MISSING.syndrome);
    rig.give_pages(1);
    assert_eq!(rig.run(init.clone()).syndrome(), Refusal::INIT_PAGES_MISSING.syndrome);
    rig.give_pages(2);
    rig.run(init).ok();
    assert_eq!(rig.exec(&Raw::cmd(0x105, 16), 12).syndrome(), Refusal::INITIALISED.syndrome);
    assert_eq!(rules(&rig), [Rule::CommandOrder; 2], "twice without pages");
}

#[test]
fn undeliverable_entries() {
    let rig = Rig::new("drive=step");
    let enable = Raw::cmd(0x104, 16);
    let damaged = |at: u64, bytes: &[u8]| {
        rig.lay(0, &Raw::cmd(0x805, 32).0, 32, 0x5a);
        rig.write(MEMORY + at, bytes);
        rig.ring(1);
        assert!(rig.done(0));
        rig.answer(0, 32).delivery
    };
    assert_eq!(damaged(0, &[6]), 0x10, "type");
    assert_eq!(damaged(0x3c, &[0x5b]), 2, "token of the entry");
    assert_eq!(
        damaged(0x3d, &[0x77]),
        0,
        "no checksums, so nobody looks at signatures; the command comes early"
    );
    assert_eq!(damaged(0x1000 + 571, &[1]), 3, "block number of the input");
    assert_eq!(damaged(0x1000 + 0x4000 + 573, &[1]), 2, "token of the output");
    assert_eq!(damaged(8, &(MEMORY + 0x1100).to_be_bytes()), 5, "alignment of the input");
    assert_eq!(damaged(0x30, &0u64.to_be_bytes()), 4, "no output mailbox");
    assert_eq!(damaged(4, &4u32.to_be_bytes()), 7, "input length");
    assert_eq!(damaged(0x38, &4u32.to_be_bytes()), 8, "output length");
    assert_eq!(damaged(8, &0x5000_0000u64.to_be_bytes()), 6, "unmapped mailbox");
    assert_eq!(rules(&rig).len(), 10);

    // A slot that software owns is not executed.
    rig.lay(0, &enable.0, 12, 0x5a);
    rig.write(MEMORY + 63, &[0]);
    rig.ring(1);
    assert_eq!(rules(&rig), [Rule::CommandEntry]);
    // Nor one whose bit did not ring.
    rig.lay(1, &enable.0, 12, 0x5a);
    rig.ring(0);
    assert!(!rig.done(1));
    rig.ring(2);
    assert!(rig.done(1));
    rig.model.assert_clean();
}

#[test]
fn bad_commands_get_status_and_syndrome() {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    let refused = |input: Raw, status: u8, refusal: Refusal| {
        let answer = rig.run(input);
        assert_eq!((answer.bytes[0], answer.syndrome()), (status, refusal.syndrome), "{}", refusal.text);
    };
    refused(Raw::cmd(0x7ff, 16), 0x2, Refusal::UNKNOWN_OPCODE);
    refused(Raw::cmd(0x301, 64), 0x50, Refusal::INPUT_SHORT);
    refused(Raw::cmd(0x801, 16).set(8, 23, 0, 0x123), 0x5, Refusal::NO_SUCH_OBJECT);
    refused(Raw::cmd(0x800, 16).set(0, 15, 0, 1), 0x3, Refusal::UID);
    refused(Raw::cmd(0x109, 4112), 0x4, Refusal::INITIALISED);
    refused(Raw::cmd(0x100, 16).set(4, 15, 0, 0x7e), 0x3, Refusal::CAP_GROUP);
    refused(Raw::cmd(0x805, 32).set(4, 15, 0, 1).set(8, 15, 0, 0x9028), 0x3, Refusal::REGISTER);
    refused(Raw::cmd(0x761, 48).set(8, 31, 16, 99), 0x3, Refusal::ROCE_INDEX);
    refused(
        Raw::cmd(0x108, 16).set(4, 15, 0, 1).set(12, 31, 0, 1).list(&[0x123]),
        0x3,
        Refusal::PAGE_ALIGNMENT,
    );
    refused(
        Raw::cmd(0x108, 16).set(4, 15, 0, 1).set(12, 31, 0, 2).list(&[MEMORY]),
        0x50,
        Refusal::LIST_SHORT,
    );
    refused(
        Raw::cmd(0x108, 16).set(4, 15, 0, 1).set(12, 31, 0, 1).list(&[0x5000_0000]),
        0x3,
        Refusal::PAGE_NOT_MAPPED,
    );
    let broken = [
        Rule::CommandLength,
        Rule::ObjectExists,
        Rule::CommandOrder,
        Rule::WithinCapabilities,
        Rule::PageList,
        Rule::CommandLength,
        Rule::DmaWritable,
    ];
    assert_eq!(rules(&rig), broken, "who asks for what there is not breaks none");
}

#[test]
fn reserved_bits_of_commands_are_named_with_their_place() {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    // ALLOC_PD: the dword after uid and op_mod. CREATE_MKEY: the first bit of its context's second dword.
    rig.run(Raw::cmd(0x800, 16).set(8, 0, 0, 1)).ok();
    let pd = rig.alloc_pd();
    let key = Raw::cmd(0x200, 272).set(0x10, 10, 10, 1).set(0x1c, 31, 31, 1).set(0x1c, 23, 0, pd);
    rig.run(key.set(0x18, 31, 0, 0).set(0x10, 31, 31, 0).set(0x20 + 0x20, 31, 0, 1)).ok();
    let broken = rig.model.take_violations();
    assert_eq!(broken.iter().map(|broken| broken.rule).collect::<Vec<_>>(), [Rule::CommandReserved; 2]);
    assert!(broken[0].detail.contains("+0x8"), "{}", broken[0]);
    assert!(broken[1].detail.contains("mkc"), "{}", broken[1]);
}

#[test]
fn memory_that_goes_before_its_object_is_named() {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    let uar = rig.alloc_uar();
    let (eqn, _) = rig.create_eq(uar, 6, 0, 0);
    let cq = rig.create_cq(uar, 4, eqn);
    let cut = |rig: &Rig| {
        // All memory of the rig is one mapping, and stays: the model is told, as by a front end.
        rig.function.check_unmap(MEMORY + 0x10_0000, 0x100_0000);
        rules(rig)
    };
    assert_eq!(cut(&rig), [Rule::DmaUnmapInUse]);
    rig.run(Raw::cmd(0x401, 16).set(8, 23, 0, cq.number)).ok();
    rig.run(Raw::cmd(0x302, 16).set(8, 7, 0, eqn)).ok();
    // Firmware's pages are left.
    assert_eq!(cut(&rig), [Rule::DmaUnmapInUse]);
    rig.run(Raw::cmd(0x803, 16).set(8, 23, 0, uar)).ok();
    rig.tear_down();
    assert_eq!(cut(&rig), []);
}

#[test]
fn capabilities_that_were_set_are_current() {
    let mut rig = Rig::new("drive=step");
    rig.run(Raw::cmd(0x104, 16)).ok();
    rig.give_pages(1);
    let max = rig.exec(&Raw::cmd(0x100, 16), 4112).ok();
    // log_max_qp, bits [4:0] of dword 0x10 of the group.
    assert_eq!(max.dword(16 + 0x10) & 0x1f, 17);
    let set = Raw::cmd(0x109, 4112).put(16, &max.bytes[16..]).set(16 + 0x10, 4, 0, 10);
    rig.run(set.clone()).ok();
    let current = rig.exec(&Raw::cmd(0x100, 16).set(4, 15, 0, 1), 4112).ok();
    assert_eq!(current.dword(16 + 0x10) & 0x1f, 10);
    let too_much = set.set(16 + 0x10, 4, 0, 20);
    assert_eq!(rig.run(too_much).syndrome(), Refusal::CAP_ABOVE_MAX.syndrome);
}

#[test]
fn pages_are_accounted_to_zero() {
    let mut rig = Rig::new("drive=step");
    rig.run(Raw::cmd(0x104, 16)).ok();
    let boot = rig.give_pages(1);
    assert_eq!(rig.give_pages(1), 0);
    let init = rig.give_pages(2);
    rig.run(Raw::cmd(0x102, 16)).ok();
    assert!(boot > 0 && init > 0);
    rig.run(Raw::cmd(0x103, 16)).ok();
    let mut taken = 0;
    loop {
        match rig.take(7) {
            0 => break,
            n => taken += n,
        }
    }
    assert_eq!(taken, boot + init);
    rig.exec(&Raw::cmd(0x105, 16), 12).ok();
    rig.model.assert_clean();

    rig.run(Raw::cmd(0x104, 16)).ok();
    rig.give_pages(1);
    rig.exec(&Raw::cmd(0x105, 16), 12).ok();
    assert_eq!(rules(&rig), [Rule::PagesAtClose]);
}

#[test]
fn pages_are_asked_for_as_objects_grow_and_refusal_is_taken() {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    let uar = rig.alloc_uar();
    let (_, eq) = rig.create_eq(uar, 6, 0, 1 << 0xb);
    let requested = |rig: &Rig, index: u64| {
        let eqe = rig.read(eq + index * 64, 64);
        (eqe[63] & 1 == 0 && eqe[1] == 0xb).then(|| i32::from_be_bytes(eqe[0x24..0x28].try_into().unwrap()))
    };
    // ALLOC_PD in slot 1, until one waits for pages. The number of those before it.
    let until_one_waits = |rig: &Rig| {
        for n in 0.. {
            rig.lay(1, &Raw::cmd(0x800, 16).0, 16, 0x77);
            rig.ring(2);
            rig.function.relax(Duration::from_micros(100));
            if !rig.done(1) {
                return n;
            }
            rig.answer(1, 16).ok();
        }
        0
    };
    let n_pds = until_one_waits(&rig);
    assert!(n_pds > 100, "{n_pds}");
    let wanted = requested(&rig, 0).expect("a page request");
    assert!(wanted > 0 && requested(&rig, 1).is_none(), "asked once");
    // Cannot give: what waited is refused. The next creation asks again.
    rig.run(Raw::cmd(0x108, 16)).ok();
    rig.wait("the command that waited", |rig| rig.done(1));
    let refused = rig.answer(1, 16);
    assert_eq!((refused.bytes[0], refused.syndrome()), (0xf, Refusal::NO_PAGES.syndrome));
    assert_eq!(rig.run(Raw::cmd(0x800, 16)).syndrome(), Refusal::NO_PAGES.syndrome);
    let wanted = requested(&rig, 1).expect("another request");
    rig.give(wanted as u32);
    for _ in 0..100 {
        rig.alloc_pd();
    }
    // Given, while one waits: it succeeds.
    until_one_waits(&rig);
    let wanted = requested(&rig, 2).expect("another request");
    rig.give(wanted as u32);
    rig.wait("the command that waited", |rig| rig.done(1));
    rig.answer(1, 16).ok();
    rig.model.assert_clean();
}

#[test]
fn objects_in_use_stay() {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    let (uar, pd) = (rig.alloc_uar(), rig.alloc_pd());
    let (eqn, _) = rig.create_eq(uar, 6, 0, 0);
    let cq = rig.create_cq(uar, 4, eqn);
    let qp = rig.create_qp(pd, uar, &cq, 4);
    let key =
        rig.run(Raw::cmd(0x200, 272).set(0x10, 10, 10, 1).set(0x1c, 31, 31, 1).set(0x1c, 23, 0, pd)).ok();
    let end = |opcode: u16, number: u32| rig.run(Raw::cmd(opcode, 16).set(8, 23, 0, number));
    for (opcode, number) in [(0x801, pd), (0x803, uar), (0x302, eqn), (0x401, cq.number)] {
        let answer = end(opcode, number);
        assert_eq!((answer.bytes[0], answer.syndrome()), (9, Refusal::OBJECT_IN_USE.syndrome));
    }
    assert_eq!(rules(&rig), [Rule::ObjectInUse; 4]);
    rig.run(Raw::cmd(0x103, 16)).ok();
    let left = rig.model.take_violations();
    assert_eq!(left.len(), 1);
    assert!(left[0].detail.contains("1 × QP") && left[0].detail.contains("1 × mkey"), "{}", left[0]);

    rig.run(Raw::cmd(0x102, 16)).ok();
    assert_eq!(end(0x501, qp.number).syndrome(), Refusal::NO_SUCH_OBJECT.syndrome, "gone with the teardown");
    assert_eq!(end(0x202, key.dword(8)).syndrome(), Refusal::NO_SUCH_OBJECT.syndrome);
    assert_eq!(rules(&rig), [Rule::ObjectExists; 2]);
}

#[test]
fn signatures_are_checked_once_they_are_asked_for() {
    let mut rig = Rig::new("drive=step");
    rig.run(Raw::cmd(0x104, 16)).ok();
    rig.give_pages(1);
    let query = Raw::cmd(0x100, 16).set(4, 15, 0, 1);
    let caps = rig.exec(&query, 16 + 4096).ok();
    // cmdif_checksum of the general group.
    let set = Raw::cmd(0x109, 16 + 4096).put(16, &caps.bytes[16..]).set(16 + 0x40, 15, 14, 3);
    rig.run(set).ok();
    rig.model.assert_clean();
    rig.lay(0, &Raw::cmd(0x80d, 16).0, 16, 0x5a);
    rig.write(MEMORY + 0x3d, &[0x77]);
    rig.ring(1);
    assert_eq!(rig.answer(0, 16).delivery, 1, "signature of the entry");
    assert_eq!(rules(&rig), [Rule::CommandEntry]);
}

#[test]
fn queues_must_be_mapped_aligned_and_filled() {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    let uar = rig.alloc_uar();
    let eq = |memory: u64, log: u32, list: &[u64]| {
        let input = Raw::cmd(0x301, 272).set(0x1c, 28, 24, log).set(0x1c, 23, 0, uar);
        (memory, input.list(list))
    };
    let memory = rig.alloc(4096, 0);
    let create = |(_, input): (u64, Raw)| rig.run(input);
    assert_eq!(create(eq(memory, 6, &[memory + 8])).syndrome(), Refusal::PAS_ALIGNMENT.syndrome);
    assert_eq!(create(eq(memory, 7, &[memory])).syndrome(), Refusal::LIST_SHORT.syndrome);
    assert_eq!(create(eq(memory, 17, &[memory])).syndrome(), Refusal::QUEUE_SIZE.syndrome);
    assert_eq!(create(eq(memory, 6, &[0x5000_0000])).syndrome(), Refusal::QUEUE_NOT_MAPPED.syndrome);
    let broken = [Rule::PageList, Rule::CommandLength, Rule::WithinCapabilities, Rule::DmaMapped];
    assert_eq!(rules(&rig), broken);
    let number = create(eq(memory, 6, &pages(memory, 4096))).ok().dword(8);
    // Whoever makes an EQ through rdma-core's DevX is given its memory then: it is looked at by the first doorbell.
    rig.model.assert_clean();
    rig.function.bar_write(u64::from(uar) << 12 | 0x40, &(number << 24).to_be_bytes());
    assert_eq!(rules(&rig), [Rule::RingInitialised]);
    rig.function.bar_write(u64::from(uar) << 12 | 0x40, &(number << 24).to_be_bytes());
    rig.model.assert_clean();
}

#[test]
fn commands_complete_by_event_once_there_is_an_eq() {
    for config in ["drive=step", "drive=thread"] {
        let mut rig = Rig::new(config);
        rig.bring_up();
        let uar = rig.alloc_uar();
        let (_, eq) = rig.create_eq(uar, 5, 0, 1 << 0xa);
        assert_eq!(rig.read(eq + 63, 1)[0] & 1, 1, "the creation itself is polled for");
        rig.model.inject(&"@0 command * last".parse().unwrap());
        for slot in [0, 3, 9] {
            rig.lay(slot, &Raw::cmd(0x80d, 16).0, 16, slot as u8 + 1);
        }
        rig.ring(1 << 0 | 1 << 3 | 1 << 9);
        rig.wait("three events", |rig| rig.read(eq + 2 * 64 + 63, 1)[0] & 1 == 0);
        let vectors: Vec<u32> =
            (0..3).map(|n| u32::from_be_bytes(rig.read(eq + n * 64 + 0x20, 4).try_into().unwrap())).collect();
        assert_eq!(vectors, [1 << 9, 1 << 3, 1]);
        rig.model.assert_clean();
    }
}

#[test]
fn eq_overrun_is_named() {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    let uar = rig.alloc_uar();
    let (eqn, _) = rig.create_eq(uar, 2, 0, 1 << 9);
    for flap in 0..4 {
        rig.model.set_port(0, flap % 2 == 1);
    }
    rig.model.assert_clean();
    rig.model.set_port(0, false);
    assert_eq!(rules(&rig), [Rule::EqOverrun]);
    // The consumer may not run ahead of the producer.
    let consumer = |n: u32| (eqn << 24 | n).to_be_bytes();
    rig.function.bar_write(u64::from(uar) << 12 | 0x48, &consumer(4));
    rig.model.assert_clean();
    rig.function.bar_write(u64::from(uar) << 12 | 0x48, &consumer(5));
    assert_eq!(rules(&rig), [Rule::EqConsumerForward]);
}

#[test]
fn health_stuck_commands_gone_devices_and_resets() {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    let counter = rig.function.bar_read32(0x1010);
    rig.model.advance(Duration::from_millis(50));
    assert_ne!(rig.function.bar_read32(0x1010), counter);

    rig.model.inject(&"@0 command ALLOC_PD * stuck".parse().unwrap());
    rig.lay(0, &Raw::cmd(0x800, 16).0, 16, 1);
    rig.ring(1);
    rig.model.advance(Duration::from_secs(60));
    assert!(!rig.done(0));
    rig.model.clear_faults();

    rig.model.inject(&"@0 health FW_ERR 0x57".parse().unwrap());
    assert_eq!(rig.function.bar_read32(0x238) >> 31, 1, "rfr");
    let counter = rig.function.bar_read32(0x1010);
    rig.model.advance(Duration::from_millis(50));
    assert_eq!(rig.function.bar_read32(0x1010), counter);

    rig.function.reset().unwrap();
    assert_eq!(rig.function.bar_read32(0x1fc) >> 31, 1, "initialising");
    rig.model.advance(Duration::from_millis(10));
    assert_eq!(rig.function.bar_read32(0x1fc) >> 31, 0);
    rig.function.bar_write32(0x10, (MEMORY >> 32) as u32);
    rig.function.bar_write32(0x14, MEMORY as u32);
    rig.bring_up();
    rig.tear_down();
    rig.model.assert_clean();

    rig.model.inject(&"@0 gone".parse().unwrap());
    assert_eq!(rig.function.bar_read32(0x230), u32::MAX);
    let mut id = [0; 2];
    rig.function.config_read(0, &mut id).unwrap();
    assert_eq!(id, [0xff; 2]);
}

#[test]
fn strict_stop_ends_in_fatal_health() {
    let rig = Rig::new("drive=step,strict=stop");
    rig.run(Raw::cmd(0x800, 16));
    assert_eq!(rules(&rig), [Rule::CommandOrder]);
    assert_eq!(rig.function.bar_read32(0x238) >> 31, 1);
}
