//! Queue pairs that have short payloads in their CQEs.

use crate::{
    completions::create_mkey,
    keys::rdma_segments,
    rig::{Cq, Qp, Raw, Rig, pages},
};
use mlx5_model::fw::Refusal;

const RDMA_READ: u8 = 0x10;
const RC: u32 = 0;
const UD: u32 = 2;

struct Ready {
    rig: Rig,
    uar: u32,
    pd: u32,
    cq: Cq,
}

/// A CQ of 16 slots, of 64 bytes, or of 128 if `cqe_sz` is not 0.
fn ready(cqe_sz: u32) -> Ready {
    let mut rig = Rig::new("drive=step");
    rig.bring_up();
    let (uar, pd) = (rig.alloc_uar(), rig.alloc_pd());
    let (eqn, _) = rig.create_eq(uar, 6, 0, 0);
    let (input, mut cq) = rig.cq_input(uar, 4, eqn, cqe_sz);
    cq.number = rig.run(input).ok().dword(8);
    Ready { rig, uar, pd, cq }
}

impl Ready {
    /// CREATE_QP with a send queue alone, and the queue pair that it makes but for the number.
    fn qp(&mut self, st: u32, cs_req: u32, cs_res: u32) -> (Raw, Qp) {
        let (send, record) = (self.rig.alloc(4096, 0), self.rig.alloc(8, 0));
        let input = Raw::cmd(0x500, 272)
            .set(0x18, 23, 16, st)
            .set(0x18 + 0x04, 23, 0, self.pd)
            .set(0x18 + 0x08, 14, 11, 4)
            .set(0x18 + 0x0c, 23, 0, self.uar)
            .set(0x18 + 0x7c, 23, 0, self.cq.number)
            .set(0x18 + 0x9c, 23, 0, self.cq.number)
            .set64(0x18 + 0xa0, record)
            .set(0x18 + 0xac, 26, 24, 3)
            .set(0x18 + 0xc4, 15, 8, cs_req)
            .set(0x18 + 0xc4, 7, 0, cs_res)
            .list(&pages(send, 64 << 4));
        (input, Qp { number: 0, send, record, log_sq: 4, pi: 0 })
    }
}

#[test]
fn the_capabilities_are_there() {
    let general = ready(0).rig.exec(&Raw::cmd(0x100, 16).set(4, 15, 0, 1), 4112).ok();
    let word = general.dword(16 + 0x40);
    assert_eq!((word >> 10 & 1, word >> 19 & 1), (1, 1), "sctr_data_cqe, dc_req_scat_data_cqe");
}

/// The answer to a READ of 40 bytes in a slot of 128, and of 24 in one of 64.
#[test]
fn an_answer_stands_where_software_looks_for_it() {
    for (cqe_sz, cs_req, len, stride, format) in
        [(0, 0x11, 24usize, 64u64, 1), (1, 0x22, 40, 128, 2), (2, 0x22, 40, 128, 2)]
    {
        let mut ready = ready(cqe_sz);
        let (input, mut qp) = ready.qp(RC, cs_req, 0);
        let rig = &mut ready.rig;
        qp.number = rig.run(input).ok().dword(8);
        let query = rig.exec(&Raw::cmd(0x50b, 16).set(8, 23, 0, qp.number), 272).ok();
        assert_eq!(query.dword(0x18 + 0xc4) >> 8 & 0xff, cs_req);
        let (mac, gid) = (rig.mac(), rig.set_gid());
        rig.connect(&qp, qp.number, mac, gid);
        let memory = rig.alloc(4096, 0);
        let key = create_mkey(rig, ready.pd, memory, 4096);
        let far: Vec<u8> = (1..=len as u8).collect();
        rig.write(memory, &far);
        let wqe = rdma_segments((memory, key), (memory + 0x800, key), len as u32);
        let doorbell = qp.wqe(rig, RDMA_READ, &wqe.0);
        qp.record(rig);
        rig.map_uar(ready.uar).ring(doorbell);
        while rig.model.step() {}
        let slot = rig.read(ready.cq.memory, stride as usize);
        assert_eq!(slot[..len], far, "{stride} bytes a slot");
        let last = slot[stride as usize - 1];
        assert_eq!((last >> 4, last >> 2 & 3, last & 1), (0, format, 0));
        assert_eq!(rig.read(memory + 0x800, len), vec![0; len], "software copies it from there");
        rig.model.assert_clean();
    }
}

#[test]
fn what_a_queue_pair_cannot_have() {
    for (cqe_sz, st, cs_req, cs_res) in
        [(0, RC, 0x22, 0), (0, RC, 0, 2), (1, RC, 0x33, 0), (1, RC, 0, 0x11), (1, RC, 1, 0), (1, UD, 0, 2)]
    {
        let mut ready = ready(cqe_sz);
        let (input, _) = ready.qp(st, cs_req, cs_res);
        let syndrome = ready.rig.run(input).syndrome();
        assert_eq!(syndrome, Refusal::SCATTER_TO_CQE.syndrome, "{cs_req:#x} {cs_res:#x}");
    }
}
