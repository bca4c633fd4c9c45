//! Every operation, of every kind of peer: which segments it has, where, and how many at least.

use super::*;

/// A segment by its structure and length.
type Expected = (&'static str, usize);

const RADDR: Expected = ("RaddrSeg", 16);
const DATA: Expected = ("DataSeg", 16);
const OTHER: Expected = ("", 16);

/// What is said of a WQE, name by name, each with its place.
fn told(bytes: &[u8], peer: Peer) -> Vec<(&'static str, usize)> {
    let name = |segment: Segment<'_>| segment.desc().map_or("", |desc| desc.name);
    let decoded = decode_as(bytes, peer).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(decoded.placed().next().map(|placed| placed.at_bytes), Some(0));
    decoded.placed().skip(1).map(|placed| (name(placed.segment), placed.at_bytes)).collect()
}

/// An operation with these segments behind its control segment, whose bytes are zeros, but for what says that an address vector
/// is whole, and what data there are.
fn operation(opcode: SendOpcode, opmod: u8, segments: &[Expected]) -> Vec<u8> {
    let mut body: Vec<u8> = vec![];
    for &(name, len_bytes) in segments {
        let start = body.len();
        body.resize(start + len_bytes, 0);
        match name {
            "AvSeg" | "DcAvSeg" => body[start + 8] = 0x80,
            "DataSeg" => body[start + 3] = if opmod == 8 { 4 } else { 8 },
            _ => {}
        }
    }
    let ds = 1 + body.len() as u8 / 16;
    let ctrl = CtrlSeg::new().with_opcode(opcode).with_opmod(opmod).with_ds(ds);
    [&ctrl.to_bytes()[..], &body].concat()
}

#[test]
fn every_operation_has_its_segments() {
    use SendOpcode as Op;
    let none = Peer::None;
    let cases: &[(Op, u8, Peer, usize, &[Expected])] = &[
        (Op::SEND, 0, none, 1, &[DATA, DATA]),
        (Op::SEND_IMM, 0, none, 1, &[DATA]),
        (Op::SEND_INVAL, 0, none, 1, &[DATA]),
        (Op::RDMA_WRITE, 0, none, 2, &[RADDR, DATA]),
        (Op::RDMA_WRITE_IMM, 0, none, 2, &[RADDR, DATA]),
        (Op::RDMA_READ, 0, none, 2, &[RADDR, DATA, DATA]),
        (Op::ATOMIC_CS, 0, none, 4, &[RADDR, ("AtomicSeg", 16), DATA]),
        (Op::ATOMIC_FA, 0, none, 4, &[RADDR, ("AtomicSeg", 16), DATA]),
        (Op::ATOMIC_MASKED_CS, 9, none, 5, &[RADDR, ("MaskedCas64Seg", 32), DATA]),
        (Op::ATOMIC_MASKED_CS, 8, none, 4, &[RADDR, ("MaskedCas32Seg", 16), DATA]),
        (Op::ATOMIC_MASKED_FA, 9, none, 4, &[RADDR, ("MaskedFa64Seg", 16), DATA]),
        (Op::ATOMIC_MASKED_FA, 8, none, 4, &[RADDR, ("MaskedFa32Seg", 16), DATA]),
        (Op::ATOMIC_MASKED_CS, 7, none, 2, &[RADDR, OTHER]),
        (Op::ATOMIC_MASKED_FA, 10, none, 2, &[RADDR, OTHER]),
        (Op::LSO, 0, Peer::Eth, 2, &[("EthSeg", 16), DATA]),
        (Op::LSO, 0, Peer::Ipoib, 6, &[("AvSeg", 48), ("EthPadSeg", 16), ("EthSeg", 16), DATA]),
        (Op::LSO, 0, Peer::Av, 1, &[OTHER]),
        (Op::SEND, 0, Peer::Eth, 2, &[("EthSeg", 16), DATA]),
        (Op::SEND, 0, Peer::Ipoib, 6, &[("AvSeg", 48), ("EthPadSeg", 16), ("EthSeg", 16), DATA]),
        (Op::SEND, 0, Peer::Av, 4, &[("AvSeg", 48), DATA]),
        (Op::SEND, 0, Peer::Av, 2, &[("AvBaseSeg", 16), DATA]),
        (Op::RDMA_WRITE, 0, Peer::DcAv, 5, &[("DcAvSeg", 48), RADDR, DATA]),
        (Op::RDMA_WRITE, 0, Peer::DcAv, 3, &[("DcAvBaseSeg", 16), RADDR, DATA]),
        (Op::RDMA_READ, 0, Peer::Xrc, 3, &[("XrcSeg", 16), RADDR, DATA]),
        (Op::SET_PSV, 0, none, 2, &[("SetPsvSeg", 16), OTHER]),
        (Op::SET_PSV, 1, none, 2, &[("TlsProgressSeg", 16), OTHER]),
        (Op::GET_PSV, 0, none, 4, &[("GetPsvSeg", 48), OTHER]),
        (Op::CHECK_PSV, 0, none, 4, &[("CheckPsvSeg", 48), OTHER]),
        (Op::WAIT, 0, none, 2, &[("WaitCqSeg", 16), OTHER]),
        (Op::WAIT, 1, none, 3, &[("WaitTimeSeg", 32), OTHER]),
        (Op::SEND_EN, 0, none, 2, &[("SendEnSeg", 16), OTHER]),
        (Op::DUMP, 0, none, 1, &[DATA]),
        (Op::TAG_MATCHING, 0, none, 3, &[("TmSeg", 32), DATA]),
        (Op::ENHANCED_MPSW, 0, none, 2, &[("EthSeg", 16), DATA]),
        (Op::MMO, 0, none, 2, &[("MmoSeg", 16), DATA, DATA]),
        (Op::ACCESS_ASO, 0, none, 4, &[("AsoCtrlSeg", 48), OTHER]),
        (Op::FLOW_TBL_ACCESS, 0, none, 4, &[("FlowUpdateSeg", 48), OTHER]),
        (Op::CONFIG_CMD, 0, none, 1, &[OTHER]),
    ];
    for &(opcode, opmod, peer, min_ds, segments) in cases {
        let bytes = operation(opcode, opmod, segments);
        let mut at = 16;
        let expected: Vec<_> = segments
            .iter()
            .map(|&(name, len_bytes)| {
                at += len_bytes;
                (name, at - len_bytes)
            })
            .collect();
        assert_eq!(told(&bytes, peer), expected, "{opcode}, {opmod}, {peer:?}");
        // As short as can be, and shorter.
        let short = |ds: usize| {
            let mut short = bytes[..16 * ds].to_vec();
            short[7] = ds as u8;
            decode_as(&short, peer).map(|_| ()).map_err(|error| error.rule)
        };
        assert_eq!(short(min_ds), Ok(()), "{opcode}, {opmod}, {peer:?}");
        for ds in 1..min_ds {
            let told = short(ds);
            // The bit that makes an address vector long may be cut off.
            let rule = Rule::TooShort { opcode, ds, min_ds };
            let rule_if_long = Rule::TooShort { opcode, ds, min_ds: min_ds + 2 };
            let is_cut = ds == 1 && matches!(peer, Peer::Av | Peer::DcAv);
            assert!(
                told == Err(rule) || is_cut && told == Err(rule_if_long),
                "{opcode}, {opmod}, {peer:?}: {told:?}"
            );
        }
    }
}

/// What each rule says: its numbers, and where.
#[test]
fn a_broken_rule_is_said_with_its_numbers() {
    let said = |at_bytes, rule| DecodeError { at_bytes, rule }.to_string();
    let opcode = SendOpcode::RDMA_READ;
    for (rule, parts) in [
        (Rule::Truncated { need: 48, have: 32 }, &["48 bytes", "32 are there"][..]),
        (Rule::NoDs, &["ds is 0"]),
        (Rule::TooShort { opcode, ds: 3, min_ds: 5 }, &["RDMA_READ", "3 segments", "at least 5"]),
        (Rule::NopWithSegments, &["a NOP"]),
        (Rule::InlineLength { len_bytes: 77, room_bytes: 12 }, &["77 bytes of inline", "room for 12"]),
        (Rule::InlineTarget, &["inline data", "brings data"]),
        (Rule::AtomicLength { len_bytes: 16, wanted: 8 }, &["brings 8 bytes", "names 16"]),
        (Rule::AtomicSegments, &["one data segment"]),
        (Rule::HeaderLength { len_bytes: 34, room_bytes: 18 }, &["34 bytes", "head", "room for 18"]),
        (Rule::ListLength { n_octowords: 9, room_octowords: 4 }, &["9 octowords", "room for 4"]),
    ] {
        let said = said(0x24, rule);
        assert!(said.starts_with("WQE byte 0x24: "), "{said}");
        for part in parts {
            assert!(said.contains(part), "{part} in {said}");
        }
    }
}

/// Where a broken rule is found: at the segment that breaks it.
#[test]
fn a_broken_rule_has_its_place() {
    let place = |bytes: &[u8], peer| decode_as(bytes, peer).unwrap_err().at_bytes;
    let data = DataSeg::new().with_byte_count(8).to_bytes();
    let inline = InlineSeg::new().with_inline(true).with_byte_count(13).to_bytes();
    let inline: [u8; 16] = core::array::from_fn(|i| inline.get(i).copied().unwrap_or(0));
    let none = Peer::None;
    assert_eq!(place(&[0; 15], none), 0);
    assert_eq!(place(&wqe(SendOpcode::SEND, 3, &[data]), none), 4, "ds");
    assert_eq!(place(&wqe(SendOpcode::SEND, 0, &[]), none), 4);
    assert_eq!(place(&wqe(SendOpcode::RDMA_READ, 1, &[]), none), 4);
    assert_eq!(place(&wqe(SendOpcode::NOP, 2, &[data]), none), 16);
    assert_eq!(place(&wqe(SendOpcode::SEND, 3, &[data, inline]), none), 32);
    assert_eq!(place(&wqe(SendOpcode::RDMA_READ, 4, &[data, data, inline]), none), 48);
    assert_eq!(place(&wqe(SendOpcode::ATOMIC_FA, 4, &[data, data, [0; 16]]), none), 48);
    assert_eq!(place(&wqe(SendOpcode::ATOMIC_FA, 5, &[data; 4]), none), 64);
    let eth = EthSeg::new().with_inline_hdr_sz(34).to_bytes();
    assert_eq!(place(&wqe(SendOpcode::SEND, 2, &[eth]), Peer::Eth), 16);
    let ctrl = UmrCtrlSeg::new().with_inline(true).with_klm_octowords(4);
    assert_eq!(place(&umr(ctrl, Mkc::new(), &[[0; 16]; 3]), none), 128);
}

/// Inline data and heads take whole segments, to the last byte of them.
#[test]
fn what_is_inline_ends_where_its_segments_do() {
    for len_bytes in 1..=60 {
        let header = InlineSeg::new().with_inline(true).with_byte_count(len_bytes);
        let mut body = header.to_bytes().to_vec();
        body.extend((0..len_bytes).map(|i| i as u8 | 0x80));
        body.resize(body.len().next_multiple_of(16), 0x55);
        let behind = body.len();
        body.extend(DataSeg::new().with_byte_count(9).to_bytes());
        let bytes = wqe(SendOpcode::SEND, 1 + body.len() as u8 / 16, body.as_chunks().0);
        assert_eq!(told(&bytes, Peer::None), [("InlineSeg", 16), ("DataSeg", 16 + behind)]);
        let decoded = decode(&bytes).unwrap();
        let data = decoded.segments().nth(1).unwrap().payload().to_vec();
        assert_eq!(data, (0..len_bytes).map(|i| i as u8 | 0x80).collect::<Vec<_>>());
    }
    for len_bytes in 2..=66 {
        let eth = EthSeg::new().with_inline_hdr_sz(len_bytes);
        let mut body = eth.to_bytes().to_vec();
        body.extend((2..len_bytes).map(|i| i as u8 | 0x80));
        body.resize(body.len().next_multiple_of(16), 0);
        let behind = body.len();
        body.extend(DataSeg::new().with_byte_count(9).to_bytes());
        let bytes = wqe(SendOpcode::SEND, 1 + body.len() as u8 / 16, body.as_chunks().0);
        assert_eq!(told(&bytes, Peer::Eth), [("EthSeg", 16), ("DataSeg", 16 + behind)]);
        let decoded = decode_as(&bytes, Peer::Eth).unwrap();
        assert_eq!(decoded.segments().nth(1).unwrap().payload().len(), usize::from(len_bytes) - 2);
    }
}

/// A dump that is cut off is told as far as whole segments go; then what is missing.
#[test]
fn a_cut_wqe_is_told_as_far_as_it_goes() {
    let data = DataSeg::new().with_byte_count(8).to_bytes();
    let whole = wqe(SendOpcode::RDMA_WRITE, 5, &[data; 4]);
    for have in 0..whole.len() {
        let told: Vec<_> = Segments::new(&whole[..have], Peer::None).collect();
        let (last, there) = told.split_last().unwrap();
        assert_eq!(there.iter().map(|placed| placed.unwrap().at_bytes).collect::<Vec<_>>(), {
            (0..have / 16).map(|n| 16 * n).collect::<Vec<_>>()
        });
        let need = if have < 16 { 16 } else { 80 };
        assert_eq!(last.unwrap_err().rule, Rule::Truncated { need, have });
    }
    assert!(Segments::new(&whole, Peer::None).all(|placed| placed.is_ok()));
    // What is behind it is another's.
    let more = [&whole[..], &[0xff; 30]].concat();
    assert_eq!(decode(&more).unwrap().bytes(), whole);
    // `ds` 0 counts nothing: only the control segment is told.
    let none = wqe(SendOpcode::RDMA_WRITE, 0, &[data; 4]);
    let told: Vec<_> = Segments::new(&none, Peer::None).collect();
    assert_eq!(told.len(), 2);
    assert_eq!(told[1].unwrap_err().rule, Rule::NoDs);
}

/// A hexdump behind what is no structure: 16 bytes a row, named once.
#[test]
fn bytes_are_shown_in_rows() {
    let bytes = wqe(SendOpcode::CONFIG_CMD, 3, &[[0x11; 16], [0x22; 16]]);
    let said = decode(&bytes).unwrap().to_string();
    let first = "  bytes                        11111111111111111111111111111111\n";
    let second = "                               22222222222222222222222222222222\n";
    assert!(said.contains(&[first, second].concat()), "{said}");
    assert!(
        said.contains("segments of CONFIG_CMD") && said.starts_with("WQE 0x0000 of QP 0x111: CONFIG_CMD"),
        "{said}"
    );
    let eth = EthSeg::new().with_inline_hdr_sz(3);
    let bytes = wqe(SendOpcode::SEND, 3, &[eth.to_bytes(), [0x7f; 16]]);
    let said = decode_as(&bytes, Peer::Eth).unwrap().to_string();
    assert!(said.contains("  header                       7f\n"), "{said}");
}

/// What follows a key's list: a signature's byte stream format, or that of an encryption, or parameters of TLS.
#[test]
fn the_byte_stream_format_of_a_key_is_told() {
    let ctrl = UmrCtrlSeg::new().with_inline(true);
    let basic = BsfBasic::new().with_bsf_size(2).to_bytes();
    let crypto = BsfCrypto::new().with_bsf_type(1).to_bytes();
    let rest = |opmod: u8, n_octowords, translation: bool, list: &[[u8; 16]]| {
        let ctrl = ctrl
            .with_translation_offset_or_bsf_octowords(n_octowords)
            .with_translation_offset_en(translation);
        let mut bytes = umr(ctrl, Mkc::new(), list);
        bytes[0] = opmod;
        told(&bytes, Peer::None).split_off(2)
    };
    let one = [basic, [1; 16], [2; 16], [3; 16]];
    let other = [crypto.as_chunks::<16>().0[0], [1; 16], [2; 16], [3; 16]];
    let signature = [("BsfBasic", 128), ("BsfExt", 144), ("BsfInl", 160), ("BsfInl", 176)];
    assert_eq!(rest(0, 4, false, &one), signature);
    assert_eq!(rest(0, 4, false, &other), [("BsfCrypto", 128)]);
    assert_eq!(rest(1, 4, false, &one), [("TlsStaticParams", 128)]);
    let both: Vec<_> = one.into_iter().chain(other).collect();
    assert_eq!(rest(0, 8, false, &both), [&signature[..], &[("BsfCrypto", 192)]].concat());
    let turned: Vec<_> = other.into_iter().chain(one).collect();
    assert_eq!(rest(0, 4, false, &turned), [("BsfCrypto", 128), ("", 192)]);
    assert_eq!(rest(0, 8, false, &turned)[..2], [("BsfCrypto", 128), ("BsfBasic", 192)]);
    // Too little room, or too little said, or nothing at all.
    assert_eq!(rest(0, 8, false, &one), signature);
    assert_eq!(rest(0, 4, false, &one[..3]), [("", 128)]);
    assert_eq!(rest(0, 3, false, &one), [("", 128)]);
    assert_eq!(rest(0, 4, true, &one), [("", 128)]);
    assert_eq!(rest(0, 4, false, &both), [&signature[..], &[("", 192)]].concat());
    assert_eq!(rest(0, 8, false, &[]), []);
    // Both sides of a signature are told apart.
    let bytes = umr(ctrl.with_translation_offset_or_bsf_octowords(4), Mkc::new(), &one);
    let segments: Vec<_> = decode(&bytes).unwrap().segments().skip(5).collect();
    assert!(matches!(segments[..], [Segment::BsfWire(_), Segment::BsfMem(_)]), "{segments:?}");
}

/// A list is as long as it says. Zeros fill it up, but not between what belongs together.
#[test]
fn lists_of_a_key_are_told_entry_by_entry() {
    // An address that no page has.
    let klm = |n: u32| {
        let entry = KlmEntry::new().with_byte_count(300).with_mkey(Lkey::new(n));
        entry.with_address(0x10).to_bytes()
    };
    let list_of = |inline, n_octowords, list: &[[u8; 16]]| {
        let ctrl = UmrCtrlSeg::new().with_inline(inline).with_klm_octowords(n_octowords);
        told(&umr(ctrl, Mkc::new(), list), Peer::None).split_off(2)
    };
    let zeros = [0; 16];
    assert_eq!(list_of(true, 4, &[klm(1), klm(2), zeros, zeros]), [("KlmEntry", 128), ("KlmEntry", 144)]);
    assert_eq!(list_of(true, 4, &[zeros, klm(1), zeros, klm(2)]), [("KlmEntry", 144), ("KlmEntry", 176)]);
    assert_eq!(list_of(true, 4, &[klm(1), klm(2), klm(3), klm(4), klm(5)]).len(), 5);
    assert_eq!(list_of(true, 4, &[klm(1), zeros, zeros, zeros, klm(5)]), [("KlmEntry", 128), ("", 192)]);
    assert_eq!(list_of(true, 0, &[klm(1)]), [("", 128)]);
    assert_eq!(list_of(false, 0, &[klm(1)]), [("", 128)]);
    assert_eq!(list_of(false, 8, &[klm(1), klm(2)]), [("DataSeg", 128), ("", 144)]);
    assert_eq!(list_of(true, 4, &[zeros; 4]), []);
    // An entry of a pattern may be zeros, and is told.
    let block = RepeatBlockSeg::new().with_op(KlmEntry::REPEAT.get()).with_num_entries(2).to_bytes();
    let pattern = [("RepeatBlockSeg", 128), ("RepeatEntrySeg", 144), ("RepeatEntrySeg", 160)];
    assert_eq!(list_of(true, 4, &[block, zeros, klm(1), zeros]), pattern);
    assert_eq!(
        list_of(true, 4, &[block, klm(1), zeros, klm(2)]),
        [&pattern[..], &[("KlmEntry", 176)]].concat()
    );

    // Pages have a permission and nothing else below their address.
    let octoword = |first: u64, second: u64| {
        let both = [first.to_be_bytes(), second.to_be_bytes()].concat();
        <[u8; 16]>::try_from(both).unwrap()
    };
    let pages =
        |list: &[[u8; 16]]| list_of(true, list.len() as u16, list).iter().all(|told| told.0 == "MttEntry");
    for permission in 1..=3 {
        assert!(pages(&[octoword(0x5000 | permission, 0x6000 | permission), zeros, zeros, zeros]));
    }
    assert!(pages(&[octoword(0x1111_1111_1111_1001, 0x1111_1111_1111_1002); 4]), "no byte is 0");
    for not_a_page in [0x5000, 0x5004, 0x5801] {
        assert!(!pages(&[octoword(0x6001, not_a_page), zeros, zeros, zeros]));
        assert!(!pages(&[octoword(0x6001, 0x7001), octoword(not_a_page, 0), zeros, zeros]));
    }
    let list = [octoword(0x5003, 0), octoword(0, 0x6003), octoword(0x7003, 0x8003), zeros];
    let places: Vec<_> = list_of(true, 4, &list).iter().map(|told| told.1).collect();
    assert_eq!(places, [128, 144, 152, 160, 168], "a page that is not there is told before one that is");
    // A list that is cut off in a dump.
    let ctrl = UmrCtrlSeg::new().with_inline(true).with_klm_octowords(4);
    let whole = umr(ctrl, Mkc::new(), &[klm(1), klm(2), klm(3), klm(4)]);
    for have in 128..whole.len() {
        let told: Vec<_> = Segments::new(&whole[..have], Peer::None).collect();
        assert_eq!(told.len(), 3 + (have - 128) / 16 + 1, "{have}");
        assert_eq!(told.last().unwrap().unwrap_err().rule, Rule::Truncated { need: 192, have });
    }
}
