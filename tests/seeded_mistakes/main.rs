//! A driver that makes one mistake at a time, by hand: each is caught by its own rule of the model.

#[path = "../support/mod.rs"]
mod support;

mod bare;
mod forms;

use bare::{Bare, QKEY, load, poke, store};
use mlx5_direct::{
    Error,
    backend::Control,
    mlx5::{
        ids::{Cqn, Qpn, UarIndex},
        uar::BF_OFFSET,
    },
    wqe::{DataSeg, SendOpcode},
};
use mlx5_model::Rule;
use std::time::Duration;

#[test]
fn h12_sanitizer_seeded_bugs_none_without_a_mistake() {
    let bare = Bare::new();
    for index in 0..100 {
        bare.post(index, bare.wqe(index));
        bare.settle();
        // The consumer index keeps up.
        store(&bare.cq.record, 0, &(u32::from(index) + 1).to_be_bytes());
    }
    bare.model.assert_clean();
}

#[test]
fn h12_sanitizer_seeded_bugs_record_after_doorbell() {
    let bare = Bare::new();
    bare.put(0, bare.wqe(0));
    bare.ring(bare.ctrl(0).to_bytes());
    bare.record(1);
    bare.assert_caught(Rule::RecordBeforeDoorbell);
}

#[test]
fn h6_doorbell_record_only_no_ring() {
    let bare = Bare::new();
    bare.put(0, bare.wqe(0));
    bare.record(1);
    bare.settle();
    bare.model.advance(Duration::from_millis(100));
    assert_eq!(load(&bare.cq.ring, 63), 0xf1, "nothing starts");
    bare.model.assert_clean();
    // Whether it was to be rung for is known when the queue pair ends.
    bare.control.destroy_qp(bare.qp.qpn).unwrap();
    bare.assert_caught(Rule::DoorbellFollowsRecord);
}

#[test]
fn h12_sanitizer_seeded_bugs_doorbell_names_the_first_wqe() {
    let bare = Bare::new();
    bare.put(0, bare.wqe(0));
    bare.put(1, bare.wqe(1));
    bare.record(2);
    bare.ring(bare.ctrl(0).to_bytes());
    bare.assert_caught(Rule::DoorbellNamesLastWqe);
}

#[test]
fn h12_sanitizer_seeded_bugs_doorbell_of_no_queue() {
    let bare = Bare::new();
    bare.put(0, bare.wqe(0));
    bare.record(1);
    bare.ring(bare.ctrl(0).with_qpn(Qpn::new(0x00be_ef00)).to_bytes());
    bare.assert_caught(Rule::DoorbellQueueExists);
}

#[test]
fn h12_sanitizer_seeded_bugs_doorbell_on_another_page() {
    let bare = Bare::new();
    bare.put(0, bare.wqe(0));
    bare.record(1);
    let mut first = [0; 8];
    first.copy_from_slice(&bare.ctrl(0).to_bytes()[..8]);
    poke(bare.other_uar.page(), BF_OFFSET, u64::from_ne_bytes(first));
    bare.assert_caught(Rule::DoorbellRightPage);
}

#[test]
fn h12_sanitizer_seeded_bugs_doorbell_of_4_bytes() {
    let bare = Bare::new();
    bare.put(0, bare.wqe(0));
    bare.record(1);
    let mut first = [0; 4];
    first.copy_from_slice(&bare.ctrl(0).to_bytes()[..4]);
    poke(bare.qp.register.page(), BF_OFFSET, u32::from_ne_bytes(first));
    bare.assert_caught(Rule::DoorbellRegister);
}

#[test]
fn h12_sanitizer_seeded_bugs_wqe_index() {
    let bare = Bare::new();
    let mut wqe = bare.wqe(0);
    wqe[..16].copy_from_slice(&bare.ctrl(0).with_wqe_index(7).to_bytes());
    bare.put(0, wqe);
    bare.record(1);
    bare.ring(bare.ctrl(0).to_bytes());
    bare.assert_caught(Rule::WqeIndexMatchesPosition);
}

#[test]
fn h12_sanitizer_seeded_bugs_wqe_qpn() {
    let bare = Bare::new();
    let mut wqe = bare.wqe(0);
    wqe[..16].copy_from_slice(&bare.ctrl(0).with_qpn(Qpn::new(3)).to_bytes());
    bare.put(0, wqe);
    bare.record(1);
    bare.ring(bare.ctrl(0).to_bytes());
    bare.assert_caught(Rule::WqeQpnMatchesQueue);
}

#[test]
fn h12_sanitizer_seeded_bugs_ds() {
    for ds in [0, 1, 3] {
        let bare = Bare::new();
        let mut wqe = bare.wqe(0);
        wqe[..16].copy_from_slice(&bare.ctrl(0).with_ds(ds).to_bytes());
        bare.put(0, wqe);
        bare.record(1);
        bare.ring(bare.ctrl(0).to_bytes());
        bare.assert_caught(Rule::DsCoversSegments);
    }
}

#[test]
fn h12_sanitizer_seeded_bugs_opcode() {
    let bare = Bare::new();
    let mut wqe = bare.wqe(0);
    wqe[..16].copy_from_slice(&bare.ctrl(0).with_opcode(SendOpcode(0x3e)).to_bytes());
    bare.post(0, wqe);
    bare.assert_caught(Rule::OpcodeKnown);
}

#[test]
fn h12_sanitizer_seeded_bugs_reserved_bits() {
    let bare = Bare::new();
    let mut wqe = bare.wqe(0);
    wqe[28] = 1; // the reserved dword of the remote address segment
    bare.post(0, wqe);
    bare.assert_caught(Rule::ReservedBits);
}

#[test]
fn h12_sanitizer_seeded_bugs_producer_beyond_the_ring() {
    let bare = Bare::new();
    let ring = 1u16 << bare.qp.log_sq_size;
    for slot in 0..ring {
        bare.put(slot.into(), bare.wqe(slot));
    }
    bare.put(0, bare.wqe(ring));
    bare.record(u32::from(ring) + 1);
    bare.ring(bare.ctrl(ring).to_bytes());
    bare.assert_caught(Rule::ProducerWithinRing);
}

#[test]
fn h12_sanitizer_seeded_bugs_atomic_of_16_bytes() {
    let bare = Bare::new();
    let mut wqe = bare.wqe(0);
    wqe[..16].copy_from_slice(&bare.ctrl(0).with_opcode(SendOpcode::ATOMIC_FA).to_bytes());
    wqe[32..36].fill(0); // add 0
    let addr = bare.memory.base().addr().get() as u64;
    let data = DataSeg::new().with_byte_count(16).with_lkey(bare.keys.lkey).with_addr(addr);
    wqe[48..].copy_from_slice(&data.to_bytes());
    bare.post(0, wqe);
    bare.assert_caught(Rule::AtomicLength);
}

#[test]
fn h12_sanitizer_seeded_bugs_post_before_rts() {
    let bare = Bare::unconnected(64);
    bare.post(0, bare.wqe(0));
    bare.assert_caught(Rule::PostInRightState);
}

#[test]
fn h12_sanitizer_seeded_bugs_cq_overrun() {
    let bare = Bare::with_cqes(4);
    let n_cqes = 1u16 << bare.cq.log_cq_size;
    for index in 0..=n_cqes {
        bare.post(index, bare.wqe(index));
    }
    bare.assert_caught(Rule::CqOverrun);
}

#[test]
fn h12_sanitizer_seeded_bugs_consumer_index_ahead() {
    let bare = Bare::new();
    bare.post(0, bare.wqe(0));
    bare.settle();
    store(&bare.cq.record, 0, &5u32.to_be_bytes());
    bare.post(1, bare.wqe(1));
    bare.assert_caught(Rule::CqConsumerForward);
}

#[test]
fn h8_blueflame_vs_ring_mismatch() {
    let bare = Bare::new();
    let wqe = bare.wqe(0);
    bare.put(0, wqe);
    bare.record(1);
    let mut line = wqe;
    line[40] ^= 1; // of the inline data
    for at in (0..64).step_by(8) {
        let mut word = [0; 8];
        word.copy_from_slice(&line[at..at + 8]);
        poke(bare.qp.register.page(), BF_OFFSET + at, u64::from_ne_bytes(word));
    }
    bare.assert_caught(Rule::BlueFlameMatchesRing);
}

#[test]
fn h12_sanitizer_seeded_bugs_none_in_a_datagram() {
    let bare = Bare::datagram();
    bare.post_long(&bare.datagram_wqe());
    bare.settle();
    bare.model.assert_clean();
    // A wrong Q_Key is no mistake that can be seen at the sender: nobody receives it, and the port counts.
    let bare = Bare::datagram();
    let mut wqe = bare.datagram_wqe();
    wqe[16..20].copy_from_slice(&(QKEY ^ 1).to_be_bytes());
    bare.post_long(&wqe);
    bare.settle();
    assert_eq!(bare.control.query_port(1).unwrap().qkey_viol_cntr, 1);
    bare.model.assert_clean();
}

#[test]
fn h12_sanitizer_seeded_bugs_datagram() {
    type Spoil = fn(&mut [u8; 128]);
    let mistakes: [(Rule, Spoil); 7] = [
        // No address vector, or not all of it.
        (Rule::DsCoversSegments, |wqe| wqe[7] = 1),
        (Rule::DsCoversSegments, |wqe| wqe[7] = 3),
        // The short form; no MAC; an empty entry of the GID table.
        (Rule::AddressVector, |wqe| wqe[24] = 0),
        (Rule::AddressVector, |wqe| wqe[36..42].fill(0)),
        (Rule::SourceAddressSet, |wqe| wqe[44..48].copy_from_slice(&(7u32 << 20).to_be_bytes())),
        // One byte more than a packet carries.
        (Rule::MessageWithinLimit, |wqe| wqe[64..68].copy_from_slice(&4097u32.to_be_bytes())),
        (Rule::OpcodeKnown, |wqe| wqe[3] = SendOpcode::RDMA_WRITE.0),
    ];
    for (rule, spoil) in mistakes {
        let bare = Bare::datagram();
        let mut wqe = bare.datagram_wqe();
        spoil(&mut wqe);
        bare.post_long(&wqe);
        bare.assert_caught(rule);
    }
}

#[test]
fn h12_sanitizer_seeded_bugs_objects_destroyed_while_used() {
    let bare = Bare::new();
    assert!(bare.control.destroy_cq(bare.cq.cqn).is_err());
    assert!(bare.control.dealloc_pd(bare.pd).is_err());
    // The queue pair's, whatever its number.
    let uars = (0..256).map(UarIndex::new).filter(|uar| *uar != bare.other_uar.index());
    let refused = uars.filter(|uar| matches!(bare.control.dealloc_uar(*uar), Err(Error::Command { .. })));
    assert_eq!(refused.count(), 1);
    bare.assert_caught(Rule::ObjectInUse);
}

#[test]
fn h12_sanitizer_seeded_bugs_objects_that_do_not_exist() {
    // Refused before the device is asked: no rule is broken.
    let bare = Bare::new();
    assert!(bare.control.destroy_cq(Cqn::new(0x7777)).is_err());
    assert!(bare.control.dealloc_uar(UarIndex::new(0x7777)).is_err());
    bare.model.assert_clean();
}
