//! A request in one sentence.

use super::Transport;
use mlx5_direct::{
    mlx5::context::Mkc,
    wqe::{CompletionMode, CtrlSeg, FenceMode, MkeyMask, Placed, Segment, SendOpcode, TmOp, UmrCtrlSeg},
};
use std::net::Ipv6Addr;

/// What the request says.
pub(super) fn sentence(transport: Transport, is_guessed: bool, segments: &[Placed<'_>]) -> String {
    let segments: Vec<_> = segments.iter().map(|placed| placed.segment).collect();
    let Some(Segment::Ctrl(ctrl)) = segments.first().copied() else { return "no control segment".into() };
    let what = what(ctrl, &segments);
    let transport = match transport {
        _ if !differs(ctrl.opcode()) => String::new(),
        transport if is_guessed => format!("{} (by its looks) ", transport.name()),
        transport => format!("{} ", transport.name()),
    };
    format!("{transport}{what}{}{}", to_whom(&segments), asks(ctrl))
}

/// Whether the transport matters.
fn differs(opcode: SendOpcode) -> bool {
    let is_send =
        matches!(opcode, SendOpcode::SEND | SendOpcode::SEND_IMM | SendOpcode::SEND_INVAL | SendOpcode::LSO);
    is_send || opcode.has_raddr()
}

fn what(ctrl: CtrlSeg, segments: &[Segment<'_>]) -> String {
    let name = ctrl.opcode().name().map_or_else(|| ctrl.opcode().to_string(), |name| name.replace('_', " "));
    let imm = ctrl.imm();
    let raddr = segments.iter().find_map(|segment| match segment {
        Segment::Raddr(raddr) => Some(format!("0x{:x} with rkey {}", raddr.raddr(), raddr.rkey())),
        _ => None,
    });
    let there = raddr.unwrap_or_else(|| "an address that is not here".into());
    let data = data(segments);
    match ctrl.opcode() {
        SendOpcode::NOP => "NOP: does nothing".into(),
        SendOpcode::SEND => format!("SEND of {data}"),
        SendOpcode::SEND_IMM => format!("SEND of {data} with immediate data 0x{imm:08x}"),
        SendOpcode::SEND_INVAL => format!("SEND of {data} that invalidates the peer's key 0x{imm:x}"),
        SendOpcode::RDMA_WRITE => format!("RDMA WRITE of {data}, to {there}"),
        SendOpcode::RDMA_WRITE_IMM => {
            format!("RDMA WRITE of {data}, to {there}, with immediate data 0x{imm:08x}")
        }
        SendOpcode::RDMA_READ => format!("RDMA READ of {data}, from {there}"),
        SendOpcode::LSO => {
            let mss = segments.iter().find_map(|segment| match segment {
                Segment::Eth { segment, .. } => Some(segment.mss()),
                _ => None,
            });
            format!("large send of {data} in segments of {} bytes", grouped(mss.unwrap_or(0).into()))
        }
        opcode if opcode.is_atomic() || opcode.is_masked_atomic() => atomic(segments, &there),
        SendOpcode::UMR => umr(ctrl, segments),
        SendOpcode::SET_PSV => psv(segments),
        SendOpcode::ENHANCED_MPSW => format!("{} Ethernet packets in one WQE", n_pieces(segments)),
        SendOpcode::DUMP => format!("reads {data} to the trace of TLS"),
        SendOpcode::MMO => memory_to_memory(ctrl, segments),
        SendOpcode::WAIT | SendOpcode::SEND_EN => waits(segments),
        SendOpcode::TAG_MATCHING => tag_matching(segments),
        _ => format!("{name} of {} bytes", usize::from(ctrl.ds()) * 16),
    }
}

/// Pieces of memory, and data in the WQE.
fn n_pieces(segments: &[Segment<'_>]) -> usize {
    segments.iter().filter(|segment| matches!(segment, Segment::Data(_) | Segment::Inline { .. })).count()
}

/// How much, in how many pieces.
fn data(segments: &[Segment<'_>]) -> String {
    let (mut n_inline, mut total) = (0, 0u64);
    for segment in segments {
        total += match segment {
            Segment::Data(piece) => u64::from(piece.len_bytes()),
            Segment::Inline { data, .. } => {
                n_inline += 1;
                data.len() as u64
            }
            Segment::Eth { segment, header } if segment.inline_hdr_sz() & 0x8000 == 0 => {
                u64::from(segment.inline_hdr_sz()).min(2) + header.len() as u64
            }
            _ => 0,
        };
    }
    let bytes = if total == 1 { "1 byte".into() } else { format!("{} bytes", grouped(total)) };
    match n_pieces(segments) {
        0 => bytes,
        n if n == n_inline => format!("{bytes}, inline in the WQE"),
        1 => bytes,
        n => format!("{n} pieces, {bytes} in all"),
    }
}

fn atomic(segments: &[Segment<'_>], there: &str) -> String {
    let what = segments.iter().find_map(|segment| match segment {
        Segment::Atomic(s) => Some(match segments.first() {
            Some(Segment::Ctrl(ctrl)) if ctrl.opcode() == SendOpcode::ATOMIC_FA => {
                format!("fetch-and-add of 0x{:x}", s.swap_add())
            }
            _ => format!("compare-and-swap: what is 0x{:x} becomes 0x{:x}", s.compare(), s.swap_add()),
        }),
        Segment::MaskedCas64(s) => Some(format!(
            "masked compare-and-swap of 8 bytes: what is 0x{:x} under mask 0x{:x} becomes 0x{:x} under mask 0x{:x}",
            s.compare(),
            s.compare_mask(),
            s.swap(),
            s.swap_mask()
        )),
        Segment::MaskedCas32(s) => Some(format!(
            "masked compare-and-swap of 4 bytes: what is 0x{:x} under mask 0x{:x} becomes 0x{:x} under mask 0x{:x}",
            s.compare(),
            s.compare_mask(),
            s.swap(),
            s.swap_mask()
        )),
        Segment::MaskedFa64(s) => {
            Some(format!("masked fetch-and-add of 0x{:x} in 8 bytes, carries stop at 0x{:x}", s.add(), s.field_boundary()))
        }
        Segment::MaskedFa32(s) => {
            Some(format!("masked fetch-and-add of 0x{:x} in 4 bytes, carries stop at 0x{:x}", s.add(), s.field_boundary()))
        }
        _ => None,
    });
    let result = segments.iter().find_map(|segment| match segment {
        Segment::Data(piece) => Some(format!("; the old value goes to 0x{:x}", piece.addr())),
        _ => None,
    });
    format!("{}, at {there}{}", what.unwrap_or_else(|| "atomic".into()), result.unwrap_or_default())
}

fn umr(ctrl: CtrlSeg, segments: &[Segment<'_>]) -> String {
    let key = format!("0x{:x}", ctrl.imm());
    let find_ctrl = |segment: &Segment<'_>| match segment {
        Segment::UmrCtrl(umr) => Some(*umr),
        _ => None,
    };
    let find_mkc = |segment: &Segment<'_>| match segment {
        Segment::Mkc(mkc) => Some(*mkc),
        _ => None,
    };
    let umr: UmrCtrlSeg = segments.iter().find_map(find_ctrl).unwrap_or_default();
    let mkc: Mkc = segments.iter().find_map(find_mkc).unwrap_or_default();
    if ctrl.opmod() != 0 {
        return format!("UMR that sets the TLS parameters of object 0x{:x}", ctrl.imm() >> 8);
    }
    let frees = umr.mkey_mask().has(MkeyMask::FREE) && mkc.free();
    if frees {
        return format!("UMR that invalidates key {key}: from now on it opens nothing");
    }
    let count = |is: fn(&Segment<'_>) -> bool| segments.iter().filter(|segment| is(segment)).count();
    let n_klm = count(|segment| matches!(segment, Segment::Klm(_)));
    let n_mtt = count(|segment| matches!(segment, Segment::Mtt(_)));
    let n_repeated = count(|segment| matches!(segment, Segment::RepeatEntry(_)));
    let list = match (n_klm, n_mtt, n_repeated) {
        _ if !umr.inline() && umr.klm_octowords() != 0 => {
            format!("a list in memory, {} octowords of it", umr.klm_octowords())
        }
        (0, 0, 0) => "no list".into(),
        (0, n, 0) => format!("{n} pages"),
        (1, 0, 0) => "one piece of another key".into(),
        (n, 0, 0) => format!("{n} pieces of other keys"),
        (_, _, n) => format!("a pattern of {n} pieces that repeats"),
    };
    let len = match umr.mkey_mask().has(MkeyMask::LEN) {
        true => format!(", {} bytes", grouped(mkc.len())),
        false => String::new(),
    };
    let signature = match segments.iter().any(|s| matches!(s, Segment::BsfBasic(_) | Segment::BsfCrypto(_))) {
        true => ", with a byte stream format",
        false => "",
    };
    format!("UMR that sets key {key}: {list}{len}{signature}")
}

fn psv(segments: &[Segment<'_>]) -> String {
    segments
        .iter()
        .find_map(|segment| match segment {
            Segment::SetPsv(psv) => Some(format!(
                "SET_PSV: signature value 0x{:x} begins with guard and tag 0x{:08x}, reference tag 0x{:08x}",
                psv.psv_index(),
                psv.transient_sig(),
                psv.ref_tag()
            )),
            Segment::TlsProgress(tls) => {
                Some(format!("sets where the TLS connection of object 0x{:x} is", tls.tis_tir_num()))
            }
            _ => None,
        })
        .unwrap_or_else(|| "SET_PSV".into())
}

fn memory_to_memory(ctrl: CtrlSeg, segments: &[Segment<'_>]) -> String {
    let pieces: Vec<_> = segments
        .iter()
        .filter_map(|segment| match segment {
            Segment::Data(piece) => Some(piece),
            _ => None,
        })
        .collect();
    match (ctrl.opmod(), &pieces[..]) {
        (1, [from, to]) => format!(
            "memory copy of {} bytes from 0x{:x} to 0x{:x}",
            grouped(from.len_bytes().into()),
            from.addr(),
            to.addr()
        ),
        (opmod, _) => format!("memory to memory operation {opmod}"),
    }
}

fn waits(segments: &[Segment<'_>]) -> String {
    segments
        .iter()
        .find_map(|segment| match segment {
            Segment::WaitCq(s) => {
                Some(format!("WAIT until completion queue {} has got to {}", s.cqn(), s.max_index()))
            }
            Segment::SendEn(s) => Some(format!("SEND_EN: queue {} may go on up to {}", s.qpn(), s.sqnpc())),
            Segment::WaitTime(s) if s.lkey() == 0 => {
                Some(format!("WAIT for the clock: {} 0x{:x}", s.cond(), s.value()))
            }
            Segment::WaitTime(s) => {
                Some(format!("WAIT for memory at 0x{:x}: {} 0x{:x}", s.addr(), s.cond(), s.value()))
            }
            _ => None,
        })
        .unwrap_or_else(|| "WAIT".into())
}

fn tag_matching(segments: &[Segment<'_>]) -> String {
    let tm = segments.iter().find_map(|segment| match segment {
        Segment::Tm(tm) => Some(tm),
        _ => None,
    });
    let Some(tm) = tm else { return "tag matching".into() };
    let what = match tm.op() {
        TmOp::APPEND => format!(
            "adds tag 0x{:x} under mask 0x{:x}, and the next becomes entry {}",
            tm.append_tag(),
            tm.append_mask(),
            tm.index()
        ),
        TmOp::REMOVE => format!("removes the tag in entry {}", tm.index()),
        TmOp::NOP => "changes nothing".into(),
        other => format!("operation {other}"),
    };
    let known = match tm.sw_cnt_valid() {
        true => format!(", {} unexpected messages are known", tm.sw_cnt()),
        false => String::new(),
    };
    let told = if tm.cqe_req() { ", with a CQE of the list" } else { "" };
    format!("tag matching: {what}{known}{told}")
}

/// Whom a request is for, if it says so.
fn to_whom(segments: &[Segment<'_>]) -> String {
    let way = |lid: u16, grh: bool, rgid: [u8; 16], mac: [u8; 6]| {
        let has_gid = rgid != [0; 16];
        let mac: Vec<_> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
        match (has_gid, grh) {
            (true, _) if mac.iter().any(|byte| byte != "00") => {
                format!("{} ({})", Ipv6Addr::from(rgid), mac.join(":"))
            }
            (true, _) => format!("LID {lid} and GID {}", Ipv6Addr::from(rgid)),
            _ => format!("LID {lid}"),
        }
    };
    segments
        .iter()
        .find_map(|segment| match segment {
            Segment::Av(s) => Some(format!(
                ", for QP {} at {}, Q_Key 0x{:x}",
                s.dqpn_dctn(),
                way(s.rlid_or_udp_sport(), s.grh(), s.rgid(), s.rmac()),
                s.qkey()
            )),
            Segment::DcAv(s) => Some(format!(
                ", for DCT {} at {}",
                s.dqpn_dctn(),
                way(s.rlid_or_udp_sport(), s.grh(), s.rgid(), s.rmac())
            )),
            Segment::AvBase(s) => {
                Some(format!(", for QP {} at LID {}", s.dqpn_dctn(), s.rlid_or_udp_sport()))
            }
            Segment::DcAvBase(s) => {
                Some(format!(", for DCT {} at LID {}", s.dqpn_dctn(), s.rlid_or_udp_sport()))
            }
            Segment::Xrc(s) => Some(format!(", for shared receive queue 0x{:x}", s.xrc_srqn())),
            _ => None,
        })
        .unwrap_or_default()
}

/// What it asks beside its operation.
fn asks(ctrl: CtrlSeg) -> String {
    let mut asks = Vec::new();
    match ctrl.ce() {
        CompletionMode::ALWAYS => asks.push("signaled"),
        CompletionMode::CQE_AND_EQE => asks.push("signaled with an event"),
        CompletionMode::ONLY_FIRST_ERR => asks.push("silent but for the first error"),
        _ => asks.push("unsignaled"),
    }
    match ctrl.fm() {
        FenceMode::NONE => {}
        FenceMode::INITIATOR_SMALL => asks.push("after earlier changes of keys"),
        FenceMode::FENCE | FenceMode::SMALL_AND_FENCE => asks.push("fenced"),
        FenceMode::STRONG_ORDERING => asks.push("after everything before it"),
        _ => asks.push("with an unknown fence"),
    }
    if ctrl.se() {
        asks.push("solicited");
    }
    format!("; {}", asks.join(", "))
}

/// A number with its thousands apart.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i != 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
