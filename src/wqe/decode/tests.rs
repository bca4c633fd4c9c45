use super::*;
use crate::mlx5::context::Mkc;
use crate::mlx5::ids::{Lkey, Qpn, Rkey};
use crate::wqe::*;
use std::{string::ToString, vec, vec::Vec};

mod operations;

fn wqe(opcode: SendOpcode, ds: u8, segments: &[[u8; 16]]) -> Vec<u8> {
    let ctrl = CtrlSeg::new().with_opcode(opcode).with_ds(ds).with_qpn(Qpn::new(0x111));
    let mut bytes = ctrl.to_bytes().to_vec();
    segments.iter().for_each(|s| bytes.extend(s));
    bytes
}

fn rule(bytes: &[u8]) -> Rule {
    let error = decode(bytes).unwrap_err();
    assert!(error.to_string().starts_with("WQE byte 0x"));
    error.rule
}

#[test]
fn segments_come_by_opcode() {
    let raddr = RaddrSeg::new().with_raddr(0x1000).with_rkey(Rkey::new(7));
    let data = DataSeg::new().with_byte_count(8).with_lkey(Lkey::new(9)).with_addr(0x2000);
    let atomic = AtomicSeg::new().with_swap_add(1);
    let bytes = wqe(SendOpcode::ATOMIC_FA, 4, &[raddr.to_bytes(), atomic.to_bytes(), data.to_bytes()]);
    let segments: Vec<_> = decode(&bytes).unwrap().segments().skip(1).collect();
    assert_eq!(segments, [Segment::Raddr(raddr), Segment::Atomic(atomic), Segment::Data(data)]);
    let text = decode(&bytes).unwrap().to_string();
    for part in ["ATOMIC_FA", "RaddrSeg:", "AtomicSeg:", "DataSeg:", "lkey", "0x1000"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }

    let header = InlineSeg::new().with_inline(true).with_byte_count(5).to_bytes();
    let mut inline = [0xa5; 16];
    inline[..4].copy_from_slice(&header);
    inline[4..9].copy_from_slice(b"hello");
    let bytes = wqe(SendOpcode::SEND, 2, &[inline]);
    let decoded = decode(&bytes).unwrap();
    let Some(Segment::Inline { data, .. }) = decoded.segments().nth(1) else { panic!("{decoded}") };
    assert_eq!(data, b"hello");
    assert!(decoded.to_string().contains("68656c6c6f"));

    let bytes = wqe(SendOpcode::CONFIG_CMD, 3, &[[1; 16], [2; 16]]);
    assert!(matches!(decode(&bytes).unwrap().segments().nth(1), Some(Segment::Other(b)) if b.len() == 32));
}

#[test]
fn a_datagram_has_an_address_vector() {
    let av = AvSeg::new().with_ext(true).with_qkey(0x1111_1111).with_dqpn_dctn(Qpn::new(0x42));
    let data = DataSeg::new().with_byte_count(8).with_lkey(Lkey::new(9));
    let mut bytes = wqe(SendOpcode::SEND, 5, &[]);
    bytes.extend(av.to_bytes());
    bytes.extend(data.to_bytes());
    let decoded = decode_as(&bytes, Peer::Av).unwrap();
    assert_eq!(decoded.segments().skip(1).collect::<Vec<_>>(), [Segment::Av(av), Segment::Data(data)]);
    assert!(decoded.to_string().contains("dqpn_dctn"), "{decoded}");
    decode_as(&wqe(SendOpcode::NOP, 1, &[]), Peer::Av).unwrap();
    for ds in [1, 3] {
        // The bit that says 48 bytes is set.
        let short = wqe(SendOpcode::SEND, ds, &[[0x80; 16]; 2]);
        let rule = decode_as(&short, Peer::Av).unwrap_err().rule;
        assert_eq!(rule, Rule::TooShort { opcode: SendOpcode::SEND, ds: ds.into(), min_ds: 4 });
    }
}

#[test]
fn an_xrc_request_names_a_shared_receive_queue() {
    let xrc = XrcSeg::new().with_xrc_srqn(0x42);
    let raddr = RaddrSeg::new().with_raddr(0x1000);
    let atomic = AtomicSeg::new().with_swap_add(1);
    let data = DataSeg::new().with_byte_count(8);
    let [x, r, a, d] = [xrc.to_bytes(), raddr.to_bytes(), atomic.to_bytes(), data.to_bytes()];
    let request = wqe(SendOpcode::ATOMIC_FA, 5, &[x, r, a, d]);
    let segments: Vec<_> = decode_as(&request, Peer::Xrc).unwrap().segments().skip(1).collect();
    let [xrc, data] = [Segment::Xrc(xrc), Segment::Data(data)];
    assert_eq!(segments, [xrc, Segment::Raddr(raddr), Segment::Atomic(atomic), data]);
    let request = wqe(SendOpcode::SEND, 3, &[x, d]);
    assert_eq!(decode_as(&request, Peer::Xrc).unwrap().segments().skip(1).collect::<Vec<_>>(), [xrc, data]);
    for (opcode, min_ds) in [(SendOpcode::SEND, 2), (SendOpcode::RDMA_READ, 3), (SendOpcode::ATOMIC_CS, 5)] {
        let ds = min_ds as u8 - 1;
        let short = wqe(opcode, ds, &[d; 4]);
        assert_eq!(
            decode_as(&short, Peer::Xrc).unwrap_err().rule,
            Rule::TooShort { opcode, ds: ds.into(), min_ds }
        );
    }
    decode_as(&wqe(SendOpcode::NOP, 1, &[]), Peer::Xrc).unwrap();
    assert!(decode_as(&wqe(SendOpcode::SEND, 2, &[x]), Peer::Xrc).unwrap().to_string().contains("xrc_srqn"));
}

#[test]
fn every_rule_is_named() {
    let data = DataSeg::new().with_byte_count(8).to_bytes();
    let mut inline = [0; 16];
    inline[..4].copy_from_slice(&InlineSeg::new().with_inline(true).with_byte_count(13).to_bytes());
    assert_eq!(rule(&[0; 15]), Rule::Truncated { need: 16, have: 15 });
    assert_eq!(rule(&wqe(SendOpcode::SEND, 3, &[data])), Rule::Truncated { need: 48, have: 32 });
    assert_eq!(rule(&wqe(SendOpcode::SEND, 0, &[])), Rule::NoDs);
    let opcode = SendOpcode::RDMA_WRITE;
    assert_eq!(rule(&wqe(opcode, 1, &[])), Rule::TooShort { opcode, ds: 1, min_ds: 2 });
    let opcode = SendOpcode::ATOMIC_CS;
    assert_eq!(rule(&wqe(opcode, 3, &[data, data])), Rule::TooShort { opcode, ds: 3, min_ds: 4 });
    assert_eq!(rule(&wqe(SendOpcode::NOP, 2, &[data])), Rule::NopWithSegments);
    let length = Rule::InlineLength { len_bytes: 13, room_bytes: 12 };
    assert_eq!(rule(&wqe(SendOpcode::SEND, 2, &[inline])), length);
    assert_eq!(rule(&wqe(SendOpcode::RDMA_READ, 3, &[data, inline])), Rule::InlineTarget);
    let long = DataSeg::new().with_byte_count(16).to_bytes();
    let atomic = wqe(SendOpcode::ATOMIC_FA, 4, &[data, data, long]);
    assert_eq!(rule(&atomic), Rule::AtomicLength { len_bytes: 16, wanted: 8 });
    assert_eq!(rule(&wqe(SendOpcode::ATOMIC_FA, 5, &[data; 4])), Rule::AtomicSegments);
}

#[test]
fn a_raw_packet_has_an_ethernet_segment() {
    let head: [u8; 34] = core::array::from_fn(|i| i as u8);
    let eth = EthSeg::new().with_inline_hdr_sz(34).with_inline_hdr_start(0x0001).with_mss(100);
    let data = DataSeg::new().with_byte_count(500).with_lkey(Lkey::new(9));
    let [first, second] = [2, 18].map(|at| head[at..at + 16].try_into().unwrap());
    let bytes = wqe(SendOpcode::LSO, 5, &[eth.to_bytes(), first, second, data.to_bytes()]);
    let decoded = decode_as(&bytes, Peer::Eth).unwrap();
    let segments: Vec<_> = decoded.segments().skip(1).collect();
    assert_eq!(segments, [Segment::Eth { segment: eth, header: &head[2..] }, Segment::Data(data)]);
    assert!(decoded.to_string().contains("0x64") && decoded.to_string().contains("header"), "{decoded}");
    // Of a queue pair that has no such segment it is nothing known.
    assert!(matches!(decode(&bytes).unwrap().segments().nth(1), Some(Segment::Other(_))));

    let short = wqe(SendOpcode::LSO, 3, &[eth.to_bytes(), first]);
    let rule = decode_as(&short, Peer::Eth).unwrap_err().rule;
    assert_eq!(rule, Rule::HeaderLength { len_bytes: 34, room_bytes: 18 });
    // A tag to insert is no head.
    let tagged = eth.with_inline_hdr_sz(EthSeg::INSERT_VLAN);
    let bytes = wqe(SendOpcode::SEND, 3, &[tagged.to_bytes(), data.to_bytes()]);
    let segments: Vec<_> = decode_as(&bytes, Peer::Eth).unwrap().segments().skip(1).collect();
    assert_eq!(segments, [Segment::Eth { segment: tagged, header: &[] }, Segment::Data(data)]);
    let opcode = SendOpcode::SEND;
    let rule = decode_as(&wqe(opcode, 1, &[]), Peer::Eth).unwrap_err().rule;
    assert_eq!(rule, Rule::TooShort { opcode, ds: 1, min_ds: 2 });
    decode_as(&wqe(SendOpcode::NOP, 1, &[]), Peer::Eth).unwrap();
}

/// A UMR with the segments behind its control segment as one row.
fn umr(umr: UmrCtrlSeg, context: Mkc, list: &[[u8; 16]]) -> Vec<u8> {
    let segments = [umr.to_bytes().as_slice(), &context.to_bytes(), list.as_flattened()].concat();
    let ds = 1 + segments.len() / 16;
    wqe(SendOpcode::UMR, ds as u8, segments.as_chunks().0)
}

#[test]
fn a_umr_shows_what_becomes_of_the_key() {
    let ctrl = UmrCtrlSeg::new().with_inline(true).with_klm_octowords(4);
    let context = Mkc::new().with_len(300).with_lw(true);
    let klm = KlmEntry::new().with_byte_count(300).with_mkey(Lkey::new(7)).with_address(0x1000);
    let bytes = umr(ctrl, context, &[klm.to_bytes(), [0; 16], [0; 16], [0; 16]]);
    let decoded = decode_as(&bytes, Peer::Xrc).unwrap();
    let segments: Vec<_> = decoded.segments().skip(1).collect();
    assert_eq!(segments, [Segment::UmrCtrl(ctrl), Segment::Mkc(context), Segment::Klm(klm)]);
    for part in ["UmrCtrlSeg:", "Mkc:", "KlmEntry:", "klm_octowords"] {
        assert!(decoded.to_string().contains(part), "{decoded}");
    }

    let block =
        RepeatBlockSeg::new().with_op(KlmEntry::REPEAT.get()).with_num_entries(2).with_repeat_count(9);
    let entry = RepeatEntrySeg::new().with_byte_count(8).with_mkey(Lkey::new(7));
    let bytes = umr(ctrl, context, &[block.to_bytes(), entry.to_bytes(), entry.to_bytes(), [0; 16]]);
    let segments: Vec<_> = decode(&bytes).unwrap().segments().skip(3).collect();
    let entry = Segment::RepeatEntry(entry);
    assert_eq!(segments, [Segment::RepeatBlock(block), entry, entry]);

    // The list is in memory; a signature's block follows the one that is here.
    let data = DataSeg::new().with_byte_count(640).with_lkey(Lkey::new(7));
    let bytes = umr(ctrl.with_inline(false).with_klm_octowords(40), context, &[data.to_bytes()]);
    assert_eq!(decode(&bytes).unwrap().segments().skip(3).collect::<Vec<_>>(), [Segment::Data(data)]);
    let bytes = umr(ctrl, context, &[[0; 16], [0; 16], [0; 16], [0; 16], [1; 16]]);
    assert_eq!(decode(&bytes).unwrap().segments().skip(3).collect::<Vec<_>>(), [Segment::Other(&[1; 16])]);

    let rule = |bytes: &[u8]| decode(bytes).unwrap_err().rule;
    assert_eq!(
        rule(&umr(ctrl, context, &[[0; 16]; 3])),
        Rule::ListLength { n_octowords: 4, room_octowords: 3 }
    );
    for n_bytes in [16, 64, 112] {
        let short = &umr(ctrl, context, &[])[..n_bytes];
        let short = wqe(SendOpcode::UMR, (n_bytes / 16) as u8, short[16..].as_chunks().0);
        let ds = n_bytes / 16;
        assert_eq!(rule(&short), Rule::TooShort { opcode: SendOpcode::UMR, ds, min_ds: 8 });
    }
}

/// Segments behind the zeros that fill a list up are where they are: here a byte stream format.
#[test]
fn padding_is_passed_over() {
    let entry = KlmEntry::new().with_byte_count(300).with_mkey(Lkey::new(9)).to_bytes();
    let basic = BsfBasic::new().with_bsf_size(2).with_w_psv(0x5b34);
    let dif = BsfInl::new().with_valid(true).with_dif_apptag(0x1234);
    let ctrl = UmrCtrlSeg::new().with_inline(true).with_klm_octowords(4);
    let mut list = vec![entry, [0; 16], [0; 16], [0; 16]];
    list.extend([basic.to_bytes(), [0; 16], [0; 16], dif.to_bytes()]);
    let bytes = umr(ctrl.with_translation_offset_or_bsf_octowords(4), Mkc::new(), &list);
    let placed: Vec<_> = decode(&bytes).unwrap().placed().skip(3).collect();
    let places: Vec<_> = placed.iter().map(|placed| placed.at_bytes).collect();
    assert_eq!(places, [128, 192, 208, 224, 240]);
    assert_eq!(placed[1].segment, Segment::BsfBasic(basic));
    assert_eq!(placed[4].segment, Segment::BsfMem(dif));
}

/// A list in which every entry has a page's address and permissions is one of pages.
#[test]
fn pages_are_told_from_pieces() {
    let page = |n: u64| (n << 12 | 3).to_be_bytes();
    let octoword = |first: [u8; 8], second: [u8; 8]| [first, second].concat().try_into().unwrap();
    let ctrl = UmrCtrlSeg::new().with_inline(true).with_klm_octowords(4);
    let list = [octoword(page(1), page(2)), octoword(page(3), [0; 8]), [0; 16], [0; 16]];
    let bytes = umr(ctrl, Mkc::new(), &list);
    let placed: Vec<_> = decode(&bytes).unwrap().placed().skip(3).collect();
    assert_eq!(placed.iter().map(|placed| placed.at_bytes).collect::<Vec<_>>(), [128, 136, 144]);
    assert!(matches!(placed[2].segment, Segment::Mtt(page) if page.ptag() == 3 << 10 && page.wr_en()));
}
