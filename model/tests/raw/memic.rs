//! Memory on the device: pieces of it, and keys that reach them.

use crate::{
    rig::{Answer, Raw, Rig},
    rules,
};
use mlx5_model::{Rule, fw::Refusal};

/// Where the capability says that it is.
fn range(rig: &Rig) -> (u64, u32) {
    let caps = rig.exec(&Raw::cmd(0x100, 16).set(4, 15, 0, 0x0f << 1 | 1), 4112).ok();
    assert_eq!(caps.dword(0x10) >> 31, 1, "there is MEMIC");
    (u64::from(caps.dword(0x18)) << 32 | u64::from(caps.dword(0x1c)), caps.dword(0x20))
}

fn alloc(start: u64, range_bytes: u32, len_bytes: u32) -> Raw {
    Raw::cmd(0x205, 32).set64(0x10, start).set(0x18, 31, 0, range_bytes).set(0x1c, 31, 0, len_bytes)
}

/// A key of memory on the device with every right.
fn key(pd: u32, at: u64, len_bytes: u64) -> Raw {
    Raw::cmd(0x200, 272)
        .set(0x10, 28, 26, 1)
        .set(0x10, 14, 10, 0b11111)
        .set(0x10, 9, 8, 1)
        .set(0x14, 31, 8, 0xff_ffff)
        .set(0x1c, 23, 0, pd)
        .set64(0x20, at)
        .set64(0x28, len_bytes)
}

#[test]
fn driver_and_peers_reach_a_piece() {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    let (start, _) = range(&rig);
    let answer = rig.run(alloc(start + 0x1000, 0x1000, 128)).ok();
    let at = u64::from(answer.dword(8)) << 32 | u64::from(answer.dword(12));
    assert_eq!(at, start + 0x1000);

    let (uar, pd) = (rig.alloc_uar(), rig.alloc_pd());
    let rkey = rig.run(key(pd, at, 128)).ok().dword(8) << 8;
    let (eqn, _) = rig.create_eq(uar, 6, 0, 0);
    let mut cq = rig.create_cq(uar, 4, eqn);
    let (mac, gid) = (rig.mac(), rig.set_gid());
    let mut qp = rig.create_qp(pd, uar, &cq, 4);
    rig.connect(&qp, qp.number, mac, gid);
    let page = rig.map_uar(uar);
    // RDMA WRITE of 8 inline bytes; addresses of the key count from 0.
    let mut write = |rig: &Rig, addr: u64| {
        let inline = Raw::new(16).set(0, 31, 0, 1 << 31 | 8).set64(4, 0x0102_0304_0506_0708);
        let remote = Raw::new(16).set64(0, addr).set(8, 31, 0, rkey);
        let doorbell = qp.wqe(rig, 0x08, &[remote.0, inline.0].concat());
        qp.record(rig);
        page.ring(doorbell);
        while rig.model.step() {}
        cq.wait(rig)[63] >> 4
    };
    rig.function.bar_write(at + 112, &[0xee; 16]);
    assert_eq!(write(&rig, 120), 0);
    let mut bytes = [0; 16];
    rig.function.bar_read(at + 112, &mut bytes);
    assert_eq!(bytes, [0xee, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(write(&rig, 121), 13, "one byte past the end is a requester's error");
    rig.model.assert_clean();
}

#[test]
fn pieces_and_keys_are_refused_outside() {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    let (start, len_bytes) = range(&rig);
    let syndrome = |input: Raw| rig.run(input).syndrome();
    assert_eq!(syndrome(alloc(start - 0x1000, 0x1000, 64)), Refusal::MEMIC_RANGE.syndrome);
    assert_eq!(syndrome(alloc(start, len_bytes + 1, 64)), Refusal::MEMIC_RANGE.syndrome);
    assert_eq!(syndrome(alloc(start, 0x1000, 0)), Refusal::MEMIC_SIZE.syndrome);
    assert_eq!(syndrome(alloc(start, 0x1000, 65)), Refusal::MEMIC_SIZE.syndrome);
    assert_eq!(syndrome(alloc(start, 0x1000, 64).set(0x0c, 7, 0, 7)), Refusal::MEMIC_ALIGNMENT.syndrome);
    rig.run(alloc(start, len_bytes, len_bytes)).ok();
    assert_eq!(rig.run(alloc(start, 0x1000, 64)).status(), (0, 0x0f), "no resources: try elsewhere");
    let pd = rig.alloc_pd();
    let end = start + u64::from(len_bytes);
    assert_eq!(syndrome(key(pd, end - 64, 65)), Refusal::MKEY_MEMIC.syndrome);
    let dealloc = |bytes: u32| Raw::cmd(0x206, 32).set64(0x10, start).set(0x18, 31, 0, bytes);
    assert_eq!(syndrome(dealloc(64)), Refusal::NO_SUCH_OBJECT.syndrome);
    assert_eq!(rules(&rig), [Rule::ObjectExists]);
    rig.run(dealloc(len_bytes)).ok();
    assert_eq!(syndrome(key(pd, start, 64)), Refusal::MKEY_MEMIC.syndrome);
    rig.model.assert_clean();
}

/// MODIFY_MEMIC: gives a piece an address for an operation (`op_mod` 0), or takes it away (1).
fn modify(rig: &Rig, op_mod: u32, operation: u32, at: u64) -> Answer {
    let input = Raw::cmd(0x207, 64).set(4, 15, 0, op_mod).set(0x0c, 7, 0, operation).set64(0x10, at);
    rig.exec(&input, 64)
}

/// The address that it gave.
fn operation(rig: &Rig, operation: u32, at: u64) -> u64 {
    let answer = modify(rig, 0, operation, at).ok();
    u64::from(answer.dword(0x10)) << 32 | u64::from(answer.dword(0x14))
}

#[test]
fn accesses_to_second_addresses_are_operations() {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    let (start, len_bytes) = range(&rig);
    let caps = rig.exec(&Raw::cmd(0x100, 16).set(4, 15, 0, 0x0f << 1 | 1), 4112).ok();
    assert_eq!((caps.bytes[0x14], caps.bytes[0x16], caps.dword(0x50)), (1, 1, 3), "widths, and operations");
    rig.run(alloc(start + 0x1000, 0x1000, 128)).ok();
    let at = start + 0x1000;
    let (increment, test_and_set) = (operation(&rig, 0, at), operation(&rig, 1, at));
    assert!(increment + 128 <= start && test_and_set + 128 <= start, "they are not in MEMIC");
    let load = |at: u64| {
        let mut byte = [0];
        rig.function.bar_read(at, &mut byte);
        byte[0]
    };

    rig.function.bar_write(at, &[0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80]);
    rig.function.bar_write(increment + 2, &[0x0f]);
    rig.function.bar_write(increment + 7, &[0x85]);
    assert_eq!([load(at + 1), load(at + 2), load(at + 7)], [0x20, 0x3f, 0x05], "no carry");
    assert_eq!(load(test_and_set + 2), 0x3f);
    assert_eq!([load(at + 1), load(at + 2), load(at + 3)], [0x20, 0xff, 0x40]);
    // No operation: another width, a load from INCREMENT, a store to TEST_AND_SET, behind the piece.
    rig.function.bar_write(increment, &[1, 1]);
    rig.function.bar_write(test_and_set, &[1]);
    rig.function.bar_write(increment + 128, &[1]);
    let mut two = [0; 2];
    rig.function.bar_read(test_and_set, &mut two);
    assert_eq!((two, load(increment), load(test_and_set + 128)), ([0xff; 2], 0xff, 0xff));
    assert_eq!([load(at), load(at + 1), load(at + 128)], [0x10, 0x20, 0]);

    assert_eq!(modify(&rig, 0, 1, at).syndrome(), Refusal::MEMIC_OPERATION_STATE.syndrome);
    assert_eq!(modify(&rig, 0, 2, at).syndrome(), Refusal::MEMIC_OPERATION.syndrome);
    assert_eq!(modify(&rig, 2, 1, at).syndrome(), Refusal::BAD_OP_MOD.syndrome);
    assert_eq!(modify(&rig, 0, 0, at + 64).syndrome(), Refusal::NO_SUCH_OBJECT.syndrome);
    assert_eq!(rules(&rig), [Rule::ObjectExists]);
    let dealloc = Raw::cmd(0x206, 32).set64(0x10, at).set(0x18, 31, 0, 128);
    modify(&rig, 1, 0, at).ok();
    assert_eq!(modify(&rig, 1, 0, at).syndrome(), Refusal::MEMIC_OPERATION_STATE.syndrome);
    rig.function.bar_write(increment, &[1]);
    assert_eq!(load(at), 0x10, "the address is nobody's now");
    assert_eq!(rig.run(dealloc.clone()).syndrome(), Refusal::MEMIC_OPERATIONS_LEFT.syndrome);
    modify(&rig, 1, 1, at).ok();
    rig.run(dealloc).ok();
    rig.run(alloc(start, len_bytes, len_bytes)).ok();
    rig.model.assert_clean();
}
