//! TIR, TIS and RQT: what stands between flow steering and queues.
#![forbid(unsafe_code)]

use super::{
    Function, caps,
    dispatch::{Input, Output, done, out},
    refusal::Refusal,
};
use crate::eth::HashFunction;
use mlx5_direct::mlx5::{
    cmd::{
        CreateRqtIn, CreateRqtOut, CreateTirIn, CreateTirOut, CreateTisIn, CreateTisOut, DestroyRqtIn,
        DestroyTirIn, DestroyTisIn, ModifyRqtIn, ModifyTirIn, ModifyTisIn, QueryTisIn, QueryTisOut,
    },
    context::{Rqtc, RxHashFieldSelect, Tirc, Tisc},
};

/// `disp_type`: through a table.
const INDIRECT: u8 = 1;
/// `rx_hash_fn`.
const INVERTED_XOR8: u8 = 1;
const TOEPLITZ: u8 = 2;
/// `self_lb_block`. By their name these bits refuse; every driver sets them to receive what its own transport domain
/// sends (Linux `mlx5e_refresh_tirs(enable_uc_lb)`, mlx5_ib's TIR_ALLOW_SELF_LB, DPDK's loopback mode).
const OWN_UNICAST: u8 = 1;
const OWN_MULTICAST: u8 = 2;

/// A transport interface, receive.
#[derive(Debug)]
pub(crate) struct Tir {
    context: Tirc,
}

/// How a TIR chooses a queue.
pub(crate) enum Spread {
    Direct(u32),
    Table {
        rqt: u32,
        /// None: everything goes to the table's first queue.
        function: Option<HashFunction>,
        select: RxHashFieldSelect,
    },
}

impl Tir {
    /// Whether frames that `domain` sends come to this TIR.
    pub(crate) fn takes_own(&self, domain: u32, multicast: bool) -> bool {
        let allowed = if multicast { OWN_MULTICAST } else { OWN_UNICAST };
        domain != self.context.transport_domain() || self.context.self_lb_block() & allowed != 0
    }

    pub(crate) fn spread(&self) -> Spread {
        if self.context.disp_type() != INDIRECT {
            return Spread::Direct(self.context.inline_rqn());
        }
        let function = match self.context.rx_hash_fn() {
            INVERTED_XOR8 => Some(HashFunction::InvertedXor8),
            TOEPLITZ => Some(HashFunction::Toeplitz {
                key: self.context.rx_hash_toeplitz_key(),
                symmetric: self.context.rx_hash_symmetric(),
            }),
            _ => None,
        };
        let (rqt, select) = (self.context.indirect_table(), self.context.rx_hash_field_selector_outer());
        Spread::Table { rqt, function, select }
    }
}

/// A transport interface, send.
#[derive(Debug)]
pub(crate) struct Tis {
    pub(super) context: Tisc,
    /// SQs that send through it.
    pub(crate) n_users: u32,
}

/// A table of RQs.
#[derive(Debug)]
pub(crate) struct Rqt {
    max_size: u16,
    rqs: Vec<u32>,
    /// TIRs that lead here.
    n_users: u32,
}

impl Rqt {
    pub(crate) fn contains(&self, rqn: u32) -> bool {
        self.rqs.contains(&rqn)
    }

    /// The queue for a hash: its lower bits are the place in the table.
    pub(crate) fn select(&self, hash: u32) -> Option<u32> {
        self.rqs.get(hash as usize % self.rqs.len().max(1)).copied()
    }
}

impl Function {
    pub(super) fn create_tir(&mut self, input: &Input<'_>) -> Output {
        let input: CreateTirIn = input.get()?;
        let context = input.ctx();
        if context.disp_type() == INDIRECT {
            let rqt = self.rqts.get_mut(context.indirect_table()).ok_or(Refusal::NO_SUCH_OBJECT)?;
            rqt.n_users += 1;
        } else if !self.rqs.contains(context.inline_rqn()) {
            return Err(Refusal::NO_SUCH_OBJECT);
        }
        let held = self.hold_domain(context.transport_domain(), input.uid());
        let created = held.and_then(|()| self.tirs.insert(Tir { context }));
        if created.is_err() {
            self.release_rqt(&context);
        }
        out(CreateTirOut::new().with_tirn(created?))
    }

    /// Processes may name none: it is domain 0, which is nobody's.
    fn hold_domain(&mut self, domain: u32, uid: u16) -> Result<(), Refusal> {
        let none = domain == 0 && uid != 0;
        if none { Ok(()) } else { self.transport_domains.hold(domain, Refusal::NO_SUCH_OBJECT) }
    }

    fn release_rqt(&mut self, context: &Tirc) {
        if context.disp_type() == INDIRECT
            && let Some(rqt) = self.rqts.get_mut(context.indirect_table())
        {
            rqt.n_users -= 1;
        }
    }

    pub(super) fn modify_tir(&mut self, input: &Input<'_>) -> Output {
        let input: ModifyTirIn = input.get()?;
        let (select, new) = (input.bitmask(), input.ctx());
        let tir = self.tirs.get_mut(input.tirn()).ok_or(Refusal::NO_SUCH_OBJECT)?;
        if select.packet_merge() {
            // Receive offload is not among the capabilities.
            return Err(Refusal::MODIFY_SELECT);
        }
        if select.hash() {
            tir.context.set_rx_hash_fn(new.rx_hash_fn());
            tir.context.set_rx_hash_symmetric(new.rx_hash_symmetric());
            tir.context.set_rx_hash_toeplitz_key(new.rx_hash_toeplitz_key());
            tir.context.set_rx_hash_field_selector_outer(new.rx_hash_field_selector_outer());
            tir.context.set_rx_hash_field_selector_inner(new.rx_hash_field_selector_inner());
        }
        if select.self_lb_en() {
            tir.context.set_self_lb_block(new.self_lb_block());
        }
        done()
    }

    pub(super) fn destroy_tir(&mut self, input: &Input<'_>) -> Output {
        let number = input.get::<DestroyTirIn>()?.tirn();
        let n_flows = self.n_flows_to_tir(number);
        if n_flows != 0 {
            return Err(self.in_use("TIR", number, n_flows));
        }
        let tir = self.tirs.remove(number).ok_or(Refusal::NO_SUCH_OBJECT)?;
        self.transport_domains.release(tir.context.transport_domain());
        self.release_rqt(&tir.context);
        done()
    }

    pub(super) fn create_tis(&mut self, input: &Input<'_>) -> Output {
        let input: CreateTisIn = input.get()?;
        let context = input.ctx();
        self.hold_domain(context.transport_domain(), input.uid())?;
        out(CreateTisOut::new().with_tisn(self.tiss.insert(Tis { context, n_users: 0 })?))
    }

    pub(super) fn modify_tis(&mut self, input: &Input<'_>) -> Output {
        let input: ModifyTisIn = input.get()?;
        let (select, new) = (input.bitmask(), input.ctx());
        let tis = self.tiss.get_mut(input.tisn()).ok_or(Refusal::NO_SUCH_OBJECT)?;
        if select.prio() {
            tis.context.set_prio(new.prio());
        }
        if select.lag_tx_port_affinity() {
            tis.context.set_lag_tx_port_affinity(new.lag_tx_port_affinity());
        }
        if select.strict_lag_tx_port_affinity() {
            tis.context.set_strict_lag_tx_port_affinity(new.strict_lag_tx_port_affinity());
        }
        done()
    }

    /// DPDK asks it for the transport domain of a queue pair for raw packets that the kernel has made.
    pub(super) fn query_tis(&mut self, input: &Input<'_>) -> Output {
        let tis = self.tiss.get(input.get::<QueryTisIn>()?.tisn()).ok_or(Refusal::NO_SUCH_OBJECT)?;
        out(QueryTisOut::new().with_tis_context(tis.context))
    }

    pub(super) fn destroy_tis(&mut self, input: &Input<'_>) -> Output {
        let number = input.get::<DestroyTisIn>()?.tisn();
        let n_users = self.tiss.get(number).ok_or(Refusal::NO_SUCH_OBJECT)?.n_users;
        if n_users != 0 {
            return Err(self.in_use("TIS", number, n_users));
        }
        if let Some(tis) = self.tiss.remove(number) {
            self.transport_domains.release(tis.context.transport_domain());
        }
        done()
    }

    /// The RQ numbers that follow an RQT's context.
    fn rq_list(&self, context: &Rqtc, list: &[u8], max_size: u16) -> Result<Vec<u32>, Refusal> {
        let n_rqs = usize::from(context.rqt_actual_size());
        if n_rqs > max_size.into() || max_size > 1 << caps::LOG_MAX_RQT_SIZE {
            return Err(Refusal::RQT_SIZE);
        }
        let list = list.as_chunks::<4>().0.get(..n_rqs).ok_or(Refusal::LIST_SHORT)?;
        let rqs: Vec<u32> = list.iter().map(|entry| u32::from_be_bytes(*entry) & 0xff_ffff).collect();
        let exist = rqs.iter().all(|rqn| self.rqs.contains(*rqn));
        if exist { Ok(rqs) } else { Err(Refusal::NO_SUCH_OBJECT) }
    }

    pub(super) fn create_rqt(&mut self, input: &Input<'_>) -> Output {
        let (input, list) = input.get_with_list::<CreateRqtIn>()?;
        let context = input.rqt_context();
        let max_size = context.rqt_max_size();
        let rqs = self.rq_list(&context, list, max_size)?;
        out(CreateRqtOut::new().with_rqtn(self.rqts.insert(Rqt { max_size, rqs, n_users: 0 })?))
    }

    pub(super) fn modify_rqt(&mut self, input: &Input<'_>) -> Output {
        let (input, list) = input.get_with_list::<ModifyRqtIn>()?;
        let max_size = self.rqts.get(input.rqtn()).ok_or(Refusal::NO_SUCH_OBJECT)?.max_size;
        if !input.bitmask().rqn_list() {
            return Err(Refusal::MODIFY_SELECT);
        }
        let rqs = self.rq_list(&input.ctx(), list, max_size)?;
        if let Some(rqt) = self.rqts.get_mut(input.rqtn()) {
            rqt.rqs = rqs;
        }
        done()
    }

    pub(super) fn destroy_rqt(&mut self, input: &Input<'_>) -> Output {
        let number = input.get::<DestroyRqtIn>()?.rqtn();
        let n_users = self.rqts.get(number).ok_or(Refusal::NO_SUCH_OBJECT)?.n_users;
        if n_users != 0 {
            return Err(self.in_use("RQT", number, n_users));
        }
        self.rqts.remove(number);
        done()
    }
}
