//! Mistakes in the rarer forms of requests.

use crate::bare::Bare;
use mlx5_direct::{
    backend::Control,
    mlx5::context::Mkc,
    wqe::{CompletionMode, DataSeg, KlmEntry, MkeyMask, SendOpcode, UmrCtrlSeg, XrcSeg},
};
use mlx5_model::Rule;

/// A good bind of a new memory window to 64 bytes: ctrl, UMR control, key context, list. 12 segments, 3 WQEBBs.
fn bind_wqe(bare: &Bare) -> Vec<u8> {
    let window = bare.control.alloc_mw(bare.pd).unwrap();
    let addr = bare.memory.base().addr().get() as u64;
    let ctrl = bare.ctrl(0).with_opcode(SendOpcode::UMR).with_ds(12).with_imm(window.get());
    let umr = UmrCtrlSeg::new()
        .with_inline(true)
        .with_translation_offset_en(true)
        .with_check_free(UmrCtrlSeg::FAIL_IF_NOT_FREE)
        .with_klm_octowords(4)
        .with_mkey_mask(MkeyMask(0x203c_6041));
    let context = Mkc::new().with_rw(true).with_qpn(bare.qp.qpn).with_mkey_7_0(7).with_start_addr(addr);
    let entry = KlmEntry::new().with_byte_count(64).with_mkey(bare.keys.lkey).with_address(addr);
    let mut wqe = ctrl.with_ce(CompletionMode::ALWAYS).to_bytes().to_vec();
    wqe.extend(umr.to_bytes());
    wqe.extend(context.with_len(64).to_bytes());
    wqe.extend(entry.to_bytes());
    wqe.resize(192, 0);
    wqe
}

#[test]
fn h12_sanitizer_seeded_bugs_none_in_a_memory_window() {
    let bare = Bare::new();
    bare.post_long(&bind_wqe(&bare));
    bare.settle();
    bare.model.assert_clean();
}

#[test]
fn h12_sanitizer_seeded_bugs_memory_window() {
    type Spoil = fn(&mut [u8]);
    let mistakes: [(Rule, Spoil); 6] = [
        // The list's unit are four octowords, and it has one entry all the same; or goes behind the key's end.
        (Rule::UmrListFits, |wqe| wqe[21] = 1),
        (Rule::UmrListFits, |wqe| wqe[23] = 4),
        // The protection domain is not the user's to change.
        (Rule::UmrMask, |wqe| wqe[31] |= 0x80),
        // ds without the list; without the context.
        (Rule::DsCoversSegments, |wqe| wqe[7] = 8),
        (Rule::DsCoversSegments, |wqe| wqe[7] = 4),
        (Rule::ReservedBits, |wqe| wqe[40] = 1),
    ];
    for (rule, spoil) in mistakes {
        let bare = Bare::new();
        let mut wqe = bind_wqe(&bare);
        spoil(&mut wqe);
        bare.post_long(&wqe);
        bare.assert_caught(rule);
    }
}

/// A good SEND of an XRC initiator: ctrl, XRC, data. 3 segments.
fn xrc_wqe(bare: &Bare) -> [u8; 64] {
    let addr = bare.memory.base().addr().get() as u64;
    let ctrl = bare.ctrl(0).with_opcode(SendOpcode::SEND).with_ds(3);
    let data = DataSeg::new().with_byte_count(64).with_lkey(bare.keys.lkey).with_addr(addr);
    let mut wqe = [0; 64];
    wqe[..16].copy_from_slice(&ctrl.to_bytes());
    wqe[16..32].copy_from_slice(&XrcSeg::new().with_xrc_srqn(5).to_bytes());
    wqe[32..48].copy_from_slice(&data.to_bytes());
    wqe
}

#[test]
fn h12_sanitizer_seeded_bugs_xrc() {
    type Spoil = fn(&mut [u8; 64]);
    let mistakes: [(Rule, Spoil); 4] = [
        // ds without the XRC segment; a READ without its remote address.
        (Rule::DsCoversSegments, |wqe| wqe[7] = 1),
        (Rule::DsCoversSegments, |wqe| (wqe[3], wqe[7]) = (SendOpcode::RDMA_READ.0, 2)),
        // As of a reliable connection, without the XRC segment: what comes third is read as the remote address.
        (Rule::ReservedBits, |wqe| wqe[3] = SendOpcode::RDMA_READ.0),
        (Rule::OpcodeKnown, |wqe| wqe[3] = SendOpcode::LSO.0),
    ];
    for (rule, spoil) in mistakes {
        let bare = Bare::initiator();
        let mut wqe = xrc_wqe(&bare);
        spoil(&mut wqe);
        bare.post(0, wqe);
        bare.assert_caught(rule);
    }
}

/// Reserved bytes of the XRC segment may hold anything: libmlx5 leaves them as the ring had them.
#[test]
fn h12_sanitizer_seeded_bugs_none_in_xrc() {
    let bare = Bare::initiator();
    let mut wqe = xrc_wqe(&bare);
    wqe[20..32].fill(0xa5);
    bare.post(0, wqe);
    bare.settle();
    bare.model.assert_clean();
}
