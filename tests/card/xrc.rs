//! XRC end to end: this driver is the initiator. The target is made command by command, by the tiny driver of the model's
//! own tests, which knows nothing of this one.

#[allow(dead_code)] // it serves other tests too
#[path = "../../model/tests/raw/rig.rs"]
mod rig;

use crate::support::*;
use mlx5_direct::{
    Access, QpAddress,
    cqe::{CqeOpcode, CqeSyndrome, ResponderCqe},
    mlx5::{
        cmd::{AllocXrcdIn, Command, CreateQpIn, CreateXrcSrqIn, Init2rtrQpIn, Rst2initQpIn},
        context::{Ads, AtomicMode, Mtu, PmState, Qpc, RqType, ServiceType, XrcSrqc},
        ids::{Cqn, Lkey, Pdn, Psn, Qpn, Rkey, UserIndex},
    },
    queue::{Flags, PostError, Remote, RemoteSrq, WindowAccess, Xrc},
    wqe::{DataSeg, SrqNextSeg},
};
use rig::{Raw, Rig, pages};

const LOG_SIZE: u8 = 4;
const WQE_BYTES: u64 = 32;

/// A shared receive queue of the target's.
struct Srq {
    number: RemoteSrq,
    ring: u64,
    record: u64,
    cq: rig::Cq,
    n_posted: u16,
}

/// An initiator here, and at the card's other function a target with 64 KiB of memory and two shared receive queues.
struct World {
    a: Side<Xrc>,
    srqs: Vec<Srq>,
    memory: u64,
    key: u32,
    rig: Rig,
}

fn run<C: Command>(rig: &Rig, input: &C, list: &[u64]) -> u32 {
    rig.run(Raw(input.as_bytes().to_vec()).list(list)).ok().dword(8)
}

impl World {
    fn new() -> Self {
        let card = card("ports=2,drive=step");
        let ctx = open(&card, 0);
        let mut rig = Rig::on(card.model(), 1);
        rig.bring_up();
        let (uar, pd) = (rig.alloc_uar(), rig.alloc_pd());
        let (eqn, _) = rig.create_eq(uar, 6, 0, 0);
        let (mac, gid) = (rig.mac(), rig.set_gid());
        let xrcd = run(&rig, &AllocXrcdIn::request(), &[]);
        let srqs: Vec<_> = (0..2).map(|_| srq(&mut rig, uar, eqn, pd, xrcd)).collect();
        let cqn = Cqn::new(srqs[0].cq.number);
        let target = Qpc::new()
            .with_st(ServiceType::XRC)
            .with_pm_state(PmState::MIGRATED)
            .with_pd(Pdn::new(pd))
            .with_no_sq(true)
            .with_rq_type(RqType::SRQ_RQ)
            .with_srqn_rmpn_xrqn(srqs[0].number.get())
            .with_xrcd(xrcd)
            .with_cqn_snd(cqn)
            .with_cqn_rcv(cqn);
        let target_qpn = Qpn::new(run(&rig, &CreateQpIn::request().with_qpc(target), &[]));
        let memory = rig.alloc(1 << 16, 0);
        let key = key(&rig, pd, memory, 1 << 16);

        let mut a = Side::<Xrc>::of(&card, &ctx, &Setup::default());
        let own = a.qp.address(1, None).unwrap();
        let target_address =
            QpAddress { qpn: target_qpn, psn: Psn::new(0), gid, mac, lid: 0, mtu: Mtu::MTU_1024 };
        a.qp.connect(&target_address, &Setup::default().connection).unwrap();
        let rights = target
            .with_primary_address_path(Ads::new().with_vhca_port_num(1))
            .with_rre(true)
            .with_rwe(true)
            .with_rae(true)
            .with_atomic_mode(AtomicMode::IB_SPEC);
        run(&rig, &Rst2initQpIn::request().with_qpn(target_qpn).with_qpc(rights), &[]);
        let path =
            Ads::new().with_vhca_port_num(1).with_rgid_rip(own.gid).with_rmac(own.mac).with_hop_limit(64);
        let ready = rights
            .with_primary_address_path(path)
            .with_mtu(Mtu::MTU_1024)
            .with_log_msg_max(30)
            .with_remote_qpn(own.qpn)
            .with_next_rcv_psn(own.psn)
            .with_log_rra_max(4)
            .with_min_rnr_nak(12);
        run(&rig, &Init2rtrQpIn::request().with_qpn(target_qpn).with_qpc(ready), &[]);
        Self { a, srqs, memory, key, rig }
    }

    fn remote(&self, offset: u64) -> Remote {
        Remote { addr: self.memory + offset, rkey: Rkey::new(self.key) }
    }

    /// The target posts a receive request over 4 KiB at `offset`.
    fn recv(&mut self, srq: usize, offset: u64) {
        let srq = &mut self.srqs[srq];
        let index = srq.n_posted;
        let data = DataSeg::new()
            .with_byte_count(4096)
            .with_lkey(Lkey::new(self.key))
            .with_addr(self.memory + offset);
        let next = SrqNextSeg::new().with_next_wqe_index(index + 1).to_bytes();
        self.rig.write(srq.ring + u64::from(index) * WQE_BYTES, &next);
        self.rig.write(srq.ring + u64::from(index) * WQE_BYTES + 16, &data.to_bytes());
        srq.n_posted += 1;
        self.rig.write(srq.record, &u32::from(srq.n_posted).to_be_bytes());
    }

    /// What completed at the target.
    fn received(&mut self, srq: usize) -> ResponderCqe {
        let cqe = self.srqs[srq].cq.wait(&self.rig);
        ResponderCqe::from_bytes(cqe.try_into().unwrap())
    }

    fn assert_clean(self) {
        assert!(self.srqs.iter().all(|srq| srq.n_posted <= 1 << LOG_SIZE));
        self.a.card.assert_clean();
    }
}

fn srq(rig: &mut Rig, uar: u32, eqn: u32, pd: u32, xrcd: u32) -> Srq {
    let cq = rig.create_cq(uar, 6, eqn);
    let (ring, record) = (rig.alloc(WQE_BYTES << LOG_SIZE, 0), rig.alloc(8, 0));
    let context = XrcSrqc::new()
        .with_log_xrc_srq_size(LOG_SIZE)
        .with_log_rq_stride(1)
        .with_xrcd(xrcd)
        .with_cqn(Cqn::new(cq.number))
        .with_user_index(UserIndex::new(0x700 + cq.number))
        .with_pd(Pdn::new(pd))
        .with_db_record_addr_h((record >> 32) as u32)
        .with_db_record_addr_l((record as u32) >> 2);
    let input = CreateXrcSrqIn::request().with_xrc_srq_context_entry(context);
    let number = RemoteSrq::new(run(rig, &input, &pages(ring, WQE_BYTES << LOG_SIZE)));
    Srq { number, ring, record, cq, n_posted: 0 }
}

/// A key with all rights.
fn key(rig: &Rig, pd: u32, memory: u64, len_bytes: u64) -> u32 {
    let list: Vec<u64> = pages(memory, len_bytes).into_iter().map(|page| page | 3).collect();
    let n_octowords = (list.len() / 2) as u32;
    let input = Raw::cmd(0x200, 272)
        .set(0x0c, 31, 31, 1)
        .set(0x10, 14, 10, 0b11111)
        .set(0x10, 9, 8, 1)
        .set(0x14, 31, 8, 0xff_ffff)
        .set(0x1c, 23, 0, pd)
        .set64(0x20, memory)
        .set64(0x28, len_bytes)
        .set(0x44, 31, 0, n_octowords)
        .set(0x48, 4, 0, 12)
        .set(0x60, 31, 0, n_octowords)
        .list(&list);
    rig.run(input).ok().dword(8) << 8
}

#[test]
fn f6_xrc_send_write_atomic() {
    let mut world = World::new();
    let [first, second] = [world.srqs[0].number, world.srqs[1].number];
    let data = pattern(6, 3000);
    world.a.mr.write(0, &data);
    world.recv(0, 0);
    world.recv(1, 4096);
    world.recv(1, 8192);

    // Each queue gets what is for it, however the requests are mixed.
    world.a.post(|list, memory| {
        list.send(1, second, Flags::NONE).unwrap().local(memory, 0..3000).unwrap().finish();
        list.send_imm(2, first, 0xfeed, Flags::NONE).unwrap().inline(b"to the first").unwrap().finish();
    });
    let remote = world.remote(0x8000);
    world.a.post(|list, memory| {
        let write = list.rdma_write_imm(3, second, remote, 0xbeef, SIGNALED).unwrap();
        write.local(memory, 0..3000).unwrap().finish();
    });
    assert_eq!(world.a.ok().wr_id, 3);
    let got = world.received(1);
    assert_eq!((got.opcode(), got.byte_cnt()), (CqeOpcode::RESP_SEND, 3000));
    let got = world.received(1);
    assert_eq!((got.opcode(), got.byte_cnt()), (CqeOpcode::RESP_WR_IMM, 3000));
    let got = world.received(0);
    assert_eq!((got.opcode(), got.byte_cnt()), (CqeOpcode::RESP_SEND_IMM, 12));
    assert_eq!(world.rig.read(world.memory + 4096, 3000), data);
    assert_eq!(world.rig.read(world.memory + 0x8000, 3000), data);
    assert_eq!(world.rig.read(world.memory, 12), b"to the first");

    // Over the ring's end many times: an atomic's data is the first segment of a second WQEBB.
    let (counter, far) = (world.remote(0xf000), world.remote(0x8000));
    for round in 0..200u64 {
        world.a.post(|list, memory| {
            list.fetch_add(1, first, counter, 3, Flags::NONE).unwrap().local(memory, 8).unwrap().finish();
            let swap = list.compare_swap(2, second, counter, round * 3 + 3, round * 3 + 3, Flags::NONE);
            swap.unwrap().local(memory, 16).unwrap().finish();
            let read = list.rdma_read(3, first, far, SIGNALED).unwrap();
            read.local(memory, 4096..7096).unwrap().finish();
        });
        world.a.ok();
        assert_eq!((world.a.mr.load_u64(8), world.a.mr.load_u64(16)), (round * 3, round * 3 + 3));
    }
    assert_eq!(world.a.bytes(4096, 3000), data);
    world.assert_clean();
}

/// Every length that goes inline, at every place of the ring.
#[test]
fn f6_xrc_send_write_atomic_inline() {
    let mut world = World::new();
    let limits = world.a.qp.send_queue().limits();
    let (srq, remote) = (world.srqs[0].number, world.remote(0));
    let data = pattern(7, limits.max_inline_bytes.into());
    for len in (1..=data.len()).chain([0]) {
        world.a.post(|list, _| {
            list.rdma_write(1, srq, remote, SIGNALED).unwrap().inline(&data[..len]).unwrap().finish();
        });
        world.a.ok();
        assert_eq!(world.rig.read(world.memory, len), data[..len]);
    }
    world.assert_clean();
}

#[test]
fn f6_xrc_send_write_atomic_refused() {
    // A queue that is not of the target's XRC domain.
    let mut world = World::new();
    world.a.post(|list, _| {
        list.send(1, RemoteSrq::new(0x77_7777), SIGNALED).unwrap().inline(b"x").unwrap().finish();
    });
    assert_eq!(world.a.fails().syndrome, CqeSyndrome::REMOTE_INVAL_REQ_ERR);
    // An initiator receives nothing.
    let refused = world.a.qp.post_recv(1, &[world.a.lease.slice(0..8)]);
    assert_eq!(refused, Err(PostError::WrongState));
    world.assert_clean();
}

/// Keys are changed by requests that no queue of the peer's has to do with.
#[test]
fn f6_xrc_send_write_atomic_after_a_window() {
    let mut world = World::new();
    let mr = world.a.pd.alloc_mr(64, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
    let memory = world.a.qp.bindable(&mr).unwrap();
    let mut mw = world.a.pd.alloc_mw().unwrap();
    let (srq, remote) = (world.srqs[0].number, world.remote(0));
    let view = memory.view(0..64, WindowAccess::REMOTE_READ);
    world.a.post(|list, _| {
        list.bind_mw(1, mw.window(), &view, Flags::NONE).unwrap().finish();
        list.local_inv(2, mw.rkey(), Flags::NONE).unwrap().finish();
        let write = list.rdma_write(3, srq, remote, SIGNALED | Flags::AFTER_INVALIDATE).unwrap();
        write.inline(b"after").unwrap().finish();
    });
    assert_eq!(world.a.ok().wr_id, 3);
    assert_eq!(world.rig.read(world.memory, 5), b"after");
    world.assert_clean();
}
