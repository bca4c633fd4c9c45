//! Messages that only tell where their data are: the device reads them, or leaves that to software.

use super::{FAR, TAGGED, header, memory_of, tags, tags_with};
use crate::{
    operations::fill,
    world::{KEY, OTHER_PD, READ_ONLY},
};
use mlx5_direct::{
    cqe::{CqeOpcode, TmAppOp},
    wqe::TmhOp,
};
use mlx5_model::exec::{QpConfig, QpState};

#[test]
fn a_rendezvous_is_read_and_told_of() {
    for len in [0, 1, 100, 4096] {
        let mut tags = tags();
        tags.append(0, 7, !0);
        let data = fill(&mut tags.world, 0, FAR, len);
        tags.rendezvous(7, KEY, len as u32);
        let cqes = tags.cqes();
        let brief: Vec<_> = cqes.iter().map(|c| (c.opcode(), c.app_op(), c.byte_cnt())).collect();
        let want = [
            (CqeOpcode::NO_PACKET, TmAppOp::CONSUMED, 0),
            (CqeOpcode::RESP_SEND, TmAppOp::EXPECTED, len as u32),
        ];
        assert_eq!(brief, want);
        assert_eq!((cqes[0].tmh().tag(), cqes[1].tmh().tag()), (7, 0));
        assert_eq!(tags.bytes(memory_of(0), len), data);
        // The sender has its own headers back.
        let told = tags.world.take_cqes(0);
        assert_eq!(told.last().map(|c| (c.opcode, c.len)), Some((CqeOpcode::RESP_SEND, 32)));
        let finish = &tags.world.nodes[0].side.memory[0x6000..0x6020];
        assert_eq!(finish[..16], header(TmhOp::FIN, 7).to_bytes());
        assert_eq!(finish[24..28], KEY.to_be_bytes());
        tags.world.assert_clean();
    }
}

#[test]
fn a_rendezvous_that_matches_nothing_is_softwares() {
    let mut tags = tags();
    tags.rendezvous(7, KEY, 4096);
    assert_eq!(tags.happened(), [(TmAppOp::UNEXPECTED, 0, 32)]);
    assert_eq!(tags.world.take_cqes(0).len(), 1, "nothing is read");
    tags.world.assert_clean();
}

#[test]
fn a_rendezvous_without_room_or_a_reader_leaves_its_headers_in_the_tag() {
    // More than the memory, less than the headers, and a QP that is not lent.
    for (len, room, rendezvous, want) in [(4097, 4096, true, 32), (100, 20, true, 20), (100, 4096, false, 32)]
    {
        let mut tags = tags_with(|config| QpConfig { rendezvous, ..config });
        tags.append_at(1, 7, !0, TAGGED, room);
        tags.outcome(TmAppOp::APPEND);
        tags.rendezvous(7, KEY, len);
        assert_eq!(tags.happened(), [(TmAppOp::CONSUMED_MSG_SW_RDNV, 0, want)]);
        assert_eq!(tags.bytes(TAGGED, 16), header(TmhOp::RNDV, 7).to_bytes());
        assert_eq!(tags.bytes(TAGGED + want as usize, 16), [0; 16]);
        assert_eq!(tags.world.take_cqes(0).len(), 1, "nothing is read");
        tags.world.assert_clean();
    }
}

#[test]
fn data_that_cannot_be_read_cancel_the_tag() {
    for key in [READ_ONLY, OTHER_PD, 0xbad00] {
        let mut tags = tags();
        tags.append(0, 7, !0);
        tags.rendezvous(7, key, 64);
        assert_eq!(tags.happened(), [(TmAppOp::CONSUMED, 0, 0), (TmAppOp::MSG_COMPLETION_CANCELED, 0, 0)]);
        assert_eq!(tags.world.state(1), QpState::Err);
        tags.world.assert_clean();
    }
}
