//! Objects of user processes: a number for each process, and umems in place of page lists.

use crate::{
    keys::{MTT, PAGE},
    port::cable,
    rig::{Cq, Qp, Raw, Rig, pages},
    rules,
};
use mlx5_model::{Rule, fw::Refusal};

/// A umem over `len_bytes` at `memory`.
#[track_caller]
pub(crate) fn create_umem(rig: &Rig, uid: u32, memory: u64, len_bytes: u64) -> u32 {
    let inside = memory % PAGE;
    let list: Vec<u64> = pages(memory - inside, inside + len_bytes).iter().map(|page| page | 3).collect();
    let input = Raw::cmd(0xa08, 48)
        .set(0, 15, 0, uid)
        .set(0x24, 31, 0, inside as u32)
        .set64(0x28, list.len() as u64)
        .list(&list);
    rig.run(input).ok().dword(8)
}

/// A process makes everything that an RC queue pair needs, as rdma-core's DevX cases do: rings, records and the
/// region are parts of umems.
#[test]
fn a_process_makes_a_queue_pair_of_umems() {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    let uid = rig.run(Raw::cmd(0xa04, 64)).ok().dword(8) & 0xffff;
    let uar = rig.alloc_uar();
    let pd = rig.run(Raw::cmd(0x800, 16).set(0, 15, 0, uid)).ok().dword(8);
    let (eqn, _) = rig.create_eq(uar, 6, 0, 0);
    let (mac, gid) = (rig.mac(), rig.set_gid());
    // CQEs from 64 bytes into the second page on; records behind the rings.
    let memory = rig.alloc(6 * PAGE, 0xf1);
    rig.write(memory + 5 * PAGE, &[0; PAGE as usize]);
    let rings = create_umem(&rig, uid, memory + 0x40, 6 * PAGE - 0x40);
    let records = create_umem(&rig, uid, memory + 5 * PAGE, PAGE);
    let cq = Raw::cmd(0x400, 272)
        .set(0, 15, 0, uid)
        .set(0x10, 25, 25, 1)
        .set(0x14, 31, 0, records)
        .set(0x1c, 28, 24, 4)
        .set(0x1c, 23, 0, uar)
        .set(0x24, 7, 0, eqn)
        .set64(0x48, 0x80)
        .set64(0x50, PAGE)
        .set(0x58, 31, 0, rings)
        .set(0x5c, 31, 31, 1);
    let number = rig.run(cq.clone()).ok().dword(8);
    let mut cq = Cq { number, memory: memory + PAGE + 0x40, record: memory + 5 * PAGE + 0x80, log: 4, ci: 0 };
    let qp = Raw::cmd(0x500, 272)
        .set(0, 15, 0, uid)
        .set(0x18 + 0x04, 23, 0, pd)
        .set(0x18 + 0x08, 22, 19, 4)
        .set(0x18 + 0x08, 14, 11, 4)
        .set(0x18 + 0x0c, 23, 0, uar)
        .set(0x18 + 0x7c, 23, 0, cq.number)
        .set(0x18 + 0x9c, 23, 0, cq.number)
        .set64(0x18 + 0xa0, 0x40)
        .set(0x18 + 0xd0, 28, 28, 1)
        .set(0x18 + 0xe4, 31, 0, records)
        .set64(0x100, 3 * PAGE - 0x40)
        .set(0x108, 31, 0, rings)
        .set(0x10c, 31, 31, 1);
    let number = rig.run(qp).ok().dword(8);
    let mut qp =
        Qp { number, send: memory + 3 * PAGE + 256, record: memory + 5 * PAGE + 0x40, log_sq: 4, pi: 0 };
    rig.connect(&qp, qp.number, mac, gid);

    let data = rig.alloc(2 * PAGE, 0x5a);
    let region = create_umem(&rig, uid, data, 2 * PAGE);
    let key = Raw::cmd(0x200, 272)
        .set(0, 15, 0, uid)
        .set(0x0c, 30, 30, 1)
        .set(0x10, 14, 10, 0b11111)
        .set(0x10, 9, 8, MTT)
        .set(0x14, 31, 8, 0xff_ffff)
        .set(0x1c, 23, 0, pd)
        .set64(0x20, data)
        .set64(0x28, 2 * PAGE)
        .set(0x44, 31, 0, 1)
        .set(0x48, 4, 0, 12)
        .set(0x60, 31, 0, 1)
        .set(0x64, 31, 0, region);
    let key = rig.run(key).ok().dword(8) << 8;
    let wqe = Raw::new(32)
        .set64(0, data + 0x1800)
        .set(8, 31, 0, key)
        .set(16, 31, 0, 0x800)
        .set(20, 31, 0, key)
        .set64(24, data + 0x100);
    rig.write(data + 0x100, &[0x77; 0x800]);
    let doorbell = qp.long_wqe(&rig, 0x08, 0, &wqe.0);
    rig.map_uar(uar).ring(doorbell);
    while rig.model.step() {}
    assert_eq!(cq.poll(&rig, true).expect("a completion")[63] >> 4, 0);
    assert_eq!(rig.read(data + 0x17ff, 0x801), [&[0x5a][..], &[0x77; 0x800]].concat());
    rig.model.assert_clean();
}

#[test]
fn what_is_not_there_is_refused() {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    let (uar, memory) = (rig.alloc_uar(), rig.alloc(PAGE, 0xf1));
    let (eqn, _) = rig.create_eq(uar, 6, 0, 0);
    // A process that has no context, or none any more.
    let alloc_pd = |uid: u32| rig.run(Raw::cmd(0x800, 16).set(0, 15, 0, uid)).syndrome();
    assert_eq!(alloc_pd(1), Refusal::UID.syndrome);
    // What all share, as Linux makes its completion EQs.
    assert_eq!(alloc_pd(0xffff), 0);
    let uid = rig.run(Raw::cmd(0xa04, 64)).ok().dword(8) & 0xffff;
    assert_eq!(alloc_pd(uid), 0);
    rig.run(Raw::cmd(0xa06, 16).set(8, 15, 0, uid)).ok();
    assert_eq!(alloc_pd(uid), Refusal::UID.syndrome);
    // A umem too small for the ring, and one that is gone.
    let umem = create_umem(&rig, 0, memory, PAGE);
    let record = rig.alloc(8, 0);
    let cq = |rig: &Rig, log: u32, offset: u64| {
        let input = Raw::cmd(0x400, 272)
            .set(0x1c, 28, 24, log)
            .set(0x1c, 23, 0, uar)
            .set(0x24, 7, 0, eqn)
            .set64(0x48, record)
            .set64(0x50, offset)
            .set(0x58, 31, 0, umem)
            .set(0x5c, 31, 31, 1);
        rig.run(input).syndrome()
    };
    assert_eq!(cq(&rig, 6, 64), Refusal::UMEM.syndrome);
    assert_eq!(cq(&rig, 6, u64::MAX), Refusal::UMEM.syndrome);
    assert_eq!(cq(&rig, 6, 0), 0);
    rig.run(Raw::cmd(0xa0a, 16).set(8, 23, 0, umem)).ok();
    assert_eq!(cq(&rig, 6, 0), Refusal::UMEM.syndrome);
    // Pages that are not aligned to their size.
    let odd = Raw::cmd(0xa08, 48).set(0x20, 4, 0, 1).set64(0x28, 1).list(&[memory | 0x1000 | 3]);
    assert_eq!(rig.run(odd).syndrome(), Refusal::PAS_ALIGNMENT.syndrome);
    assert_eq!(rules(&rig), [Rule::PageList]);
}

/// Commands whose structure names no `uid` have one all the same when a user process sends them.
#[test]
fn a_process_asks_in_its_own_name() {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    let caps = rig.exec(&Raw::cmd(0x100, 16).set(4, 15, 0, 1), 4112).ok();
    assert_ne!(caps.dword(0x10 + 0x8c) >> 24 & 0x1f, 0, "log_max_uctx");
    let uid = rig.run(Raw::cmd(0xa04, 64)).ok().dword(8) & 0xffff;
    let query = Raw::cmd(0x100, 16).set(4, 15, 0, 1);
    rig.exec(&query.clone().set(0, 15, 0, uid), 4112).ok();
    rig.run(Raw::cmd(0xa06, 16).set(8, 15, 0, uid)).ok();
    assert_eq!(rig.exec(&query.set(0, 15, 0, uid), 4112).syndrome(), Refusal::UID.syndrome);
    rig.model.assert_clean();
}

/// SET_PP_RATE_LIMIT: rates are set, taken back and refused outside of what the capabilities say.
#[test]
fn rates_are_kept_by_number() {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    let caps = rig.exec(&Raw::cmd(0x100, 16).set(4, 15, 0, 0x0c << 1 | 1), 4112).ok();
    assert_eq!(caps.dword(0x10) >> 31, 1, "packet_pacing");
    let (max, min, size) = (caps.dword(0x18), caps.dword(0x1c), caps.dword(0x20) & 0xffff);
    let rate = |index: u32, kbit: u32| {
        rig.run(Raw::cmd(0x780, 64).set(8, 15, 0, index).set(0x10, 31, 0, kbit)).syndrome()
    };
    assert_eq!([rate(1, min), rate(size - 1, max), rate(1, 0), rate(1, 0)], [0; 4]);
    assert_eq!([rate(0, min), rate(size, min)], [Refusal::RATE_INDEX.syndrome; 2]);
    assert_eq!(rate(1, max + 1), Refusal::RATE.syndrome);
    let in_packets = Raw::cmd(0x780, 64).set(8, 15, 0, 1).set(0x10, 31, 0, min).set(0x18, 19, 16, 1);
    assert_eq!(rig.run(in_packets).syndrome(), Refusal::RATE.syndrome);
    rig.model.assert_clean();
}

/// A TIR or TIS of a process need not be of a transport domain; without a process it is of one.
#[test]
fn a_process_names_no_transport_domain() {
    let mut port = cable().0;
    let rig = &mut port.rig;
    let uid = rig.run(Raw::cmd(0xa04, 64)).ok().dword(8) & 0xffff;
    let (tir, tis) = (Raw::cmd(0x900, 272).set(0x20 + 0x1c, 23, 0, port.rq.number), Raw::cmd(0x912, 192));
    for (create, destroy) in [(&tir, 0x902), (&tis, 0x914)] {
        let number = rig.run(create.clone().set(0, 15, 0, uid)).ok().dword(8);
        rig.run(Raw::cmd(destroy, 16).set(8, 23, 0, number)).ok();
        rig.model.assert_clean();
        assert_eq!(rig.run(create.clone()).syndrome(), Refusal::NO_SUCH_OBJECT.syndrome);
        assert_eq!(rules(rig), [Rule::ObjectExists]);
    }
}
