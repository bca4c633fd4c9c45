//! Posts WQEs and reads CQEs, by the shared layouts and nothing else.

use super::world::{BASE, KEY, World, qpn};
use mlx5_direct::{
    cqe::{CqeOpcode, CqeSyndrome, ErrorCqe, RequesterCqe, ResponderCqe},
    mlx5::ids::{Cqn, Lkey, Rkey},
    wqe::{
        AtomicSeg, AvSeg, CompletionMode, CtrlSeg, DataSeg, DcAvSeg, FenceMode, InlineSeg, RaddrSeg,
        SendOpcode, XrcSeg,
    },
};
use mlx5_model::exec::Wake;

/// A send WQE to be.
#[derive(Debug, Clone)]
pub(crate) struct Wr {
    pub(crate) opcode: SendOpcode,
    pub(crate) ce: CompletionMode,
    pub(crate) fm: FenceMode,
    pub(crate) se: bool,
    pub(crate) imm: u32,
    /// Shared receive queue of an XRC request.
    pub(crate) xrc_srqn: Option<u32>,
    /// Address vector of a datagram, or in its place that of a DC request.
    pub(crate) av: Option<AvSeg>,
    pub(crate) stream: u16,
    pub(crate) remote: Option<(u64, u32)>,
    pub(crate) operands: Option<(u64, u64)>,
    pub(crate) masked: Option<(u8, Vec<u8>)>,
    /// Offset in memory, length, key.
    pub(crate) sges: Vec<(usize, u32, u32)>,
    pub(crate) inline: Option<Vec<u8>>,
}

impl Wr {
    pub(crate) fn new(opcode: SendOpcode) -> Self {
        Self {
            opcode,
            ce: CompletionMode::ALWAYS,
            fm: FenceMode::NONE,
            se: false,
            imm: 0,
            xrc_srqn: None,
            av: None,
            stream: 0,
            remote: None,
            operands: None,
            masked: None,
            sges: Vec::new(),
            inline: None,
        }
    }
    pub(crate) fn local(mut self, offset: usize, len: u32) -> Self {
        if len > 0 {
            self.sges.push((offset, len, KEY));
        }
        self
    }
    pub(crate) fn local_key(mut self, offset: usize, len: u32, key: u32) -> Self {
        self.sges.push((offset, len, key));
        self
    }
    pub(crate) fn remote(self, offset: usize) -> Self {
        self.remote_key(offset, KEY)
    }
    pub(crate) fn remote_key(mut self, offset: usize, key: u32) -> Self {
        self.remote = Some((BASE + offset as u64, key));
        self
    }
    pub(crate) fn operands(mut self, swap_add: u64, compare: u64) -> Self {
        self.operands = Some((swap_add, compare));
        self
    }
    /// Operands of an atomic under masks, as they stand in the WQE, and `ctrl.opmod`, which says how wide they are.
    pub(crate) fn masked(mut self, opmod: u8, operands: &[u8]) -> Self {
        self.masked = Some((opmod, operands.to_vec()));
        self
    }
    pub(crate) fn imm(mut self, imm: u32) -> Self {
        self.imm = imm;
        self
    }
    pub(crate) fn ce(mut self, ce: CompletionMode) -> Self {
        self.ce = ce;
        self
    }
    pub(crate) fn fence(mut self, fm: FenceMode) -> Self {
        self.fm = fm;
        self
    }
    pub(crate) fn solicited(mut self) -> Self {
        self.se = true;
        self
    }
    pub(crate) fn for_srq(mut self, srqn: u32) -> Self {
        self.xrc_srqn = Some(srqn);
        self
    }
    pub(crate) fn by(mut self, av: AvSeg) -> Self {
        self.av = Some(av);
        self
    }
    /// To a DC target.
    pub(crate) fn at_target(self, av: DcAvSeg) -> Self {
        self.by(AvSeg::from_bytes(av.to_bytes()))
    }
    pub(crate) fn stream(mut self, stream: u16) -> Self {
        self.stream = stream;
        self
    }
    pub(crate) fn inline(mut self, data: &[u8]) -> Self {
        self.inline = Some(data.to_vec());
        self
    }

    pub(crate) fn bytes(&self, index: u16, number: mlx5_direct::mlx5::ids::Qpn) -> Vec<u8> {
        let mut out = vec![0; 16];
        if let Some(srqn) = self.xrc_srqn {
            out.extend(XrcSeg::new().with_xrc_srqn(srqn).to_bytes());
        }
        if let Some(av) = &self.av {
            out.extend(av.to_bytes());
        }
        if let Some((addr, rkey)) = self.remote {
            out.extend(RaddrSeg::new().with_raddr(addr).with_rkey(Rkey::new(rkey)).to_bytes());
        }
        if let Some((swap_add, compare)) = self.operands {
            out.extend(AtomicSeg::new().with_swap_add(swap_add).with_compare(compare).to_bytes());
        }
        if let Some((_, operands)) = &self.masked {
            out.extend(operands);
        }
        if let Some(data) = &self.inline {
            let head = InlineSeg::new().with_inline(true).with_byte_count(data.len() as u16);
            out.extend(head.to_bytes());
            out.extend(data);
            out.resize(out.len().next_multiple_of(16), 0);
        }
        for &(offset, len, key) in &self.sges {
            out.extend(data_seg(offset, len, key).to_bytes());
        }
        let ctrl = CtrlSeg::new()
            .with_wqe_index(index)
            .with_opcode(self.opcode)
            .with_opmod(self.masked.as_ref().map_or(0, |(opmod, _)| *opmod))
            .with_qpn(number)
            .with_ds((out.len() / 16) as u8)
            .with_fm(self.fm)
            .with_ce(self.ce)
            .with_se(self.se)
            .with_dci_stream_channel_id(self.stream)
            .with_imm(self.imm);
        out[..16].copy_from_slice(&ctrl.to_bytes());
        out
    }
}

fn data_seg(offset: usize, len: u32, key: u32) -> DataSeg {
    DataSeg::new().with_byte_count(len).with_lkey(Lkey::new(key)).with_addr(BASE + offset as u64)
}

impl World {
    /// Writes WQE bytes into a send ring without telling the device. Returns its index.
    pub(crate) fn place(&mut self, node: usize, k: u32, wqe: impl FnOnce(u16) -> Vec<u8>) -> u16 {
        let number = qpn(node, k);
        let node = &mut self.nodes[node];
        let counter = node.send_counters.get_mut(&number).unwrap();
        let index = *counter;
        let bytes = wqe(index);
        let ring = node.side.rings.get_mut(&(number, true)).unwrap();
        let start = usize::from(index) * 64 % ring.len();
        for (n, byte) in bytes.iter().enumerate() {
            let at = (start + n) % ring.len();
            ring[at] = *byte;
        }
        *counter = index.wrapping_add(bytes.len().div_ceil(64) as u16);
        index
    }

    pub(crate) fn ring(&mut self, node: usize, k: u32) {
        let number = qpn(node, k);
        let node = &mut self.nodes[node];
        let counter = node.send_counters[&number];
        node.qps.get_mut(&number).unwrap().doorbell(&mut node.side, counter);
    }

    pub(crate) fn post_on(&mut self, node: usize, k: u32, wr: &Wr) -> u16 {
        let index = self.place(node, k, |index| wr.bytes(index, qpn(node, k)));
        self.ring(node, k);
        index
    }

    pub(crate) fn post(&mut self, node: usize, wr: &Wr) -> u16 {
        self.post_on(node, 0, wr)
    }

    pub(crate) fn post_recv_on(&mut self, node: usize, k: u32, sges: &[(usize, u32, u32)]) {
        let number = qpn(node, k);
        let node = &mut self.nodes[node];
        let stride = node.qps[&number].config().receive_stride_bytes as usize;
        let counter = node.side.receive_counters.entry(number).or_default();
        let ring = node.side.rings.get_mut(&(number, false)).unwrap();
        let mut bytes: Vec<u8> =
            sges.iter().flat_map(|&(o, len, key)| data_seg(o, len, key).to_bytes()).collect();
        if bytes.len() < stride {
            bytes.extend(DataSeg::terminator().to_bytes());
        }
        let at = usize::from(*counter) * stride % ring.len();
        ring[at..at + bytes.len()].copy_from_slice(&bytes);
        *counter = counter.wrapping_add(1);
    }

    /// Posts to a shared receive queue: a next segment that nobody reads here, and one piece of memory.
    pub(crate) fn post_srq(&mut self, node: usize, srqn: u32, index: u16, offset: usize, len: u32) {
        let mut bytes = vec![0; 16];
        bytes.extend(data_seg(offset, len, KEY).to_bytes());
        bytes.extend(DataSeg::terminator().to_bytes());
        self.nodes[node].side.srqs.get_mut(&srqn).unwrap().wqes.push_back((index, bytes));
    }

    pub(crate) fn post_recv(&mut self, node: usize, offset: usize, len: u32) {
        let sges = [(offset, len, KEY)];
        self.post_recv_on(node, 0, if len == 0 { &[] } else { &sges });
    }
}

/// A CQE, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cqe {
    pub(crate) cqn: Cqn,
    pub(crate) opcode: CqeOpcode,
    pub(crate) syndrome: CqeSyndrome,
    pub(crate) counter: u16,
    pub(crate) len: u32,
    pub(crate) imm: u32,
    pub(crate) send_opcode: SendOpcode,
    pub(crate) qpn: u32,
    pub(crate) user_index: u32,
    pub(crate) wake: Wake,
}

impl Cqe {
    pub(crate) fn decode(cqn: Cqn, bytes: &[u8; 64], wake: Wake) -> Self {
        let (req, resp) = (RequesterCqe::from_bytes(*bytes), ResponderCqe::from_bytes(*bytes));
        let error = ErrorCqe::from_bytes(*bytes);
        assert!(!req.owner(), "the owner bit is the host's");
        let failed = matches!(req.opcode(), CqeOpcode::REQ_ERR | CqeOpcode::RESP_ERR);
        if failed {
            assert_ne!(error.vendor_err_synd(), 0);
        }
        Self {
            cqn,
            opcode: req.opcode(),
            syndrome: if failed { error.syndrome() } else { CqeSyndrome(0) },
            counter: req.wqe_counter(),
            len: req.byte_cnt(),
            imm: resp.imm_inval_pkey(),
            send_opcode: if cqn == Cqn::new(0x10) { req.send_wqe_opcode() } else { SendOpcode(0) },
            qpn: req.qpn().get(),
            user_index: resp.srqn_or_user_index().get(),
            wake,
        }
    }

    /// Of a send WQE.
    pub(crate) fn send_queue(&self) -> bool {
        self.cqn == Cqn::new(0x10)
    }

    /// What a test mostly cares for.
    pub(crate) fn brief(&self) -> (CqeOpcode, u16, CqeSyndrome) {
        (self.opcode, self.counter, self.syndrome)
    }
}
