//! Hosts A and B: a software card with two ports and a cable between them, and what was seen of it.
//!
//! The card is stepped and its clock stands still, so that the same bytes come each time.

use super::TourArgs;
use crate::failure::Failure;
use mlx5_direct::{
    Access, Connection, Context, Cq, CqAttr, Mr, Qp, QpInit,
    backend::prm::OpenOptions,
    mlx5::{
        cmd::{CmdOpcode, Command, CreateQpIn},
        context::QpState,
        uar::{BF_OFFSET, BFREGS_PER_UAR, PAGE_BYTES},
    },
    queue::{Lease, MAX_RECV_WQE_BYTES, PostError, PostList},
    wqe::{CtrlSeg, MAX_WQEBBS, SEGMENT_BYTES, WQEBB_BYTES},
};
use mlx5_model::{
    Model, ModelFunction,
    trace::{Kind, Record},
};
use std::{net::Ipv6Addr, sync::Arc, time::Duration};

/// Bytes of each host's memory.
pub(super) const MEMORY_BYTES: usize = 64 << 10;
/// Where requests begin to name memory of A and of B.
pub(super) const ADDRESSES: [u64; 2] = [0xaaaa_0000, 0xbbbb_0000];
/// The card's clock when traffic begins.
const START: Duration = Duration::from_millis(100);
/// Offsets of the counters in a doorbell record.
const RECEIVE_COUNTER: u64 = 0;
const SEND_COUNTER: u64 = 4;
/// Half a BlueFlame register: halves are rung in turn.
const BUFFER_BYTES: usize = 256;

/// One host.
pub(super) struct Host {
    pub(super) cq: Cq,
    pub(super) qp: Qp,
    pub(super) mr: Mr,
    pub(super) lease: Lease,
    pub(super) gid: String,
    pub(super) psn: u32,
    function: Arc<ModelFunction>,
    /// As CREATE_QP told the card.
    created: CreateQpIn,
    _spare: Option<(Qp, Cq)>,
}

/// What a host's software did to post send requests, as it was found in memory.
pub(super) struct Posted {
    /// The WQEs, each `ds` times 16 bytes.
    pub(super) wqes: Vec<Vec<u8>>,
    /// The send counter in the doorbell record, before and after.
    pub(super) record: [u32; 2],
    /// What was stored to the BlueFlame register: 8 bytes, or the whole WQE.
    pub(super) register: Vec<u8>,
    /// Where in BAR0.
    pub(super) register_offset: u64,
}

impl Posted {
    /// Whether the register took the WQE itself.
    pub(super) fn is_blue_flame(&self) -> bool {
        self.register.len() > 8
    }
}

/// What a host's software did to post receive requests.
pub(super) struct Receives {
    /// The WQE.
    pub(super) wqe: Vec<u8>,
    /// The receive counter in the doorbell record, before and after.
    pub(super) record: [u32; 2],
}

/// The two hosts.
pub(super) struct Scene {
    pub(super) a: Host,
    pub(super) b: Host,
    model: Model,
}

impl Scene {
    /// Two connected queue pairs. `access` is what B lets A do, as far as its memory is concerned.
    pub(super) fn new(args: &TourArgs, access: Access) -> Result<Self, Failure> {
        let config = format!("ports=2,drive=step,mtu={}", args.mtu);
        let config = config.parse().map_err(|error| Failure::Usage(format!("{error}")))?;
        let model = Model::new(config).map_err(|error| Failure::Run(error.to_string()))?;
        model.trace().keep(100_000);
        let max_inline_data = if args.inline { args.size } else { 0 };
        let init = QpInit { max_inline_data, ..QpInit::default() };
        let mut a = Host::new(&model, 0, &init, Access::LOCAL_WRITE)?;
        let mut b = Host::new(&model, 1, &init, Access::LOCAL_WRITE | access)?;
        let how = Connection::default();
        let [to_a, to_b] = [a.qp.address(how.port, how.gid_index)?, b.qp.address(how.port, how.gid_index)?];
        a.qp.connect(&to_b, &how)?;
        b.qp.connect(&to_a, &how)?;
        (a.psn, b.psn) = (to_a.psn.get(), to_b.psn.get());
        (a.gid, b.gid) = (Ipv6Addr::from(to_a.gid).to_string(), Ipv6Addr::from(to_b.gid).to_string());
        a.created = created(&model, 0)?;
        b.created = created(&model, 1)?;
        model.advance(START.saturating_sub(model.now()));
        // What was seen until now is of no interest any more.
        model.trace().keep(0);
        model.trace().keep(100_000);
        Ok(Self { a, b, model })
    }

    /// Lets the cards do all that there is to do, and gives what was seen, oldest first.
    pub(super) fn run(&self) -> Vec<Record> {
        while self.model.step() {}
        let records = self.model.trace().records();
        self.model.trace().keep(0);
        self.model.trace().keep(100_000);
        records
    }

    /// Fails if the driver broke a rule.
    pub(super) fn end(self) -> Result<(), Failure> {
        let Self { a, b, model, .. } = self;
        drop((a, b));
        let broken: Vec<_> = model.violations().iter().map(ToString::to_string).collect();
        if broken.is_empty() { Ok(()) } else { Err(Failure::Run(broken.join("\n"))) }
    }
}

/// What the last CREATE_QP of function `index` told the card.
fn created(model: &Model, index: u8) -> Result<CreateQpIn, Failure> {
    let records = model.trace().records();
    let is_create = |record: &&Record| {
        record.function == index
            && record.kind == Kind::CommandIn
            && record.bytes.starts_with(&CreateQpIn::OPCODE.0.to_be_bytes())
    };
    let input = records.iter().rev().find(is_create).and_then(|record| record.bytes.first_chunk());
    let input = input.ok_or_else(|| Failure::Run(format!("no {} was seen", CmdOpcode::CREATE_QP)))?;
    Ok(CreateQpIn::from_bytes(*input))
}

impl Host {
    fn new(model: &Model, index: u8, init: &QpInit, access: Access) -> Result<Self, Failure> {
        let function = model.function(usize::from(index)).map_err(|error| Failure::Run(error.to_string()))?;
        let ctx = Context::open(function.clone(), OpenOptions::default())?;
        let pd = ctx.alloc_pd()?;
        // The numbers of both hosts' objects would be the same. B makes one more of each, and the two are told apart.
        let spare = match index {
            0 => None,
            _ => {
                let cq = ctx.create_cq(&CqAttr::default())?;
                let qp = pd.create_qp(init, &cq, &cq)?;
                Some((qp, cq))
            }
        };
        let cq = ctx.create_cq(&CqAttr::default())?;
        let mut qp = pd.create_qp(init, &cq, &cq)?;
        let mr = pd.alloc_mr_at(MEMORY_BYTES, ADDRESSES[usize::from(index)], access)?;
        let lease = qp.lease(&mr)?;
        Ok(Self {
            cq,
            qp,
            mr,
            lease,
            gid: String::new(),
            psn: 0,
            function,
            created: CreateQpIn::new(),
            _spare: spare,
        })
    }

    /// Where the BlueFlame registers of the queue pair's UAR page are in BAR0.
    fn registers(&self) -> (u64, [u8; BFREGS_PER_UAR * 2 * BUFFER_BYTES]) {
        let offset = u64::from(self.created.qpc().uar_page().get()) * PAGE_BYTES as u64 + BF_OFFSET as u64;
        let mut bytes = [0; BFREGS_PER_UAR * 2 * BUFFER_BYTES];
        self.function.bar_read(offset, &mut bytes);
        (offset, bytes)
    }

    /// A counter of the doorbell record, as the card would read it.
    fn record(&self, offset_bytes: u64) -> Result<u32, Failure> {
        let address = self.created.qpc().dbr_addr() + offset_bytes;
        self.function
            .dma()
            .load_be32(address)
            .map_err(|fault| Failure::Run(format!("doorbell record: {fault}")))
    }

    /// Posts the send requests that `fill` puts in a list, and looks at what the driver has stored. The card does nothing yet.
    pub(super) fn post(
        &mut self,
        fill: impl FnOnce(&mut PostList<'_>) -> Result<(), PostError>,
    ) -> Result<Posted, Failure> {
        let before = (self.record(SEND_COUNTER)?, self.registers().1);
        let mut list = self.qp.post_list();
        fill(&mut list)?;
        list.ring();
        let after = self.record(SEND_COUNTER)?;
        let (offset, bytes) = self.registers();
        let rung = bytes.iter().zip(&before.1).position(|(new, old)| new != old);
        let at = rung.ok_or_else(|| Failure::Run("no register was rung".into()))? & !(BUFFER_BYTES - 1);
        let wqes = self.wqes(before.0 as u16, after as u16);
        let first = wqes.first().map_or(&[][..], Vec::as_slice);
        let stored = &bytes[at..];
        // Of a list of several, and of a WQE longer than half a register, 8 bytes are stored.
        let len_bytes = if wqes.len() == 1 && stored.starts_with(first) { first.len() } else { 8 };
        Ok(Posted {
            register: stored[..len_bytes].to_vec(),
            register_offset: offset + at as u64,
            record: [before.0, after],
            wqes,
        })
    }

    /// The WQEs from one counter to another, as they are in the ring.
    fn wqes(&mut self, mut index: u16, end: u16) -> Vec<Vec<u8>> {
        let mut wqes = Vec::new();
        while index != end {
            let mut buffer = [0; MAX_WQEBBS * WQEBB_BYTES];
            let Some(wqe) = self.qp.send_queue().copy_wqe(index, &mut buffer) else { break };
            index = index.wrapping_add((wqe.len() / WQEBB_BYTES) as u16);
            let ds = wqe.first_chunk().map_or(0, |first| CtrlSeg::from_bytes(*first).ds());
            wqes.push(wqe[..wqe.len().min(usize::from(ds) * SEGMENT_BYTES)].to_vec());
        }
        wqes
    }

    /// Posts a receive request for `len_bytes` of memory from `offset` on.
    pub(super) fn post_recv(&mut self, wr_id: u64, offset: u64, len_bytes: u64) -> Result<Receives, Failure> {
        let before = self.record(RECEIVE_COUNTER)?;
        self.qp.post_recv(wr_id, &[self.lease.slice(offset..offset + len_bytes)])?;
        let mut buffer = [0; MAX_RECV_WQE_BYTES];
        let wqe = self.qp.recv_queue().copy_wqe(before as u16, &mut buffer).map(<[u8]>::to_vec);
        Ok(Receives { wqe: wqe.unwrap_or_default(), record: [before, self.record(RECEIVE_COUNTER)?] })
    }

    /// Takes all completions, and gives their requests' numbers.
    pub(super) fn take_completions(&mut self) -> Result<Vec<u64>, Failure> {
        let mut taken = Vec::new();
        let mut done = self.cq.poll();
        while let Some(completion) = done.next() {
            taken.push(self.qp.retire(&completion)?.wr_id);
        }
        Ok(taken)
    }

    /// The state that the card has the queue pair in.
    pub(super) fn state(&self) -> Result<QpState, Failure> {
        Ok(self.qp.query()?.state)
    }

    /// Copies memory.
    pub(super) fn bytes(&self, offset: usize, len_bytes: usize) -> Vec<u8> {
        let mut bytes = vec![0; len_bytes];
        self.mr.read(offset, &mut bytes);
        bytes
    }
}
