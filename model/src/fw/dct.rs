//! DC targets: receivers for every initiator that has their key. They share the numbers of queue pairs.
#![forbid(unsafe_code)]

use super::{
    Function, caps,
    dispatch::{Input, Output, done, out},
    host::FunctionHost,
    pages::Cost,
    qp::FIRST_QPN,
    refusal::Refusal,
    scatter_to_cqe,
};
use crate::exec::{DcTarget, Host, Path, QpConfig, Service, SharedQueue};
use mlx5_direct::mlx5::{
    cmd::{ArmDctIn, CreateDctIn, CreateDctOut, DestroyDctIn, DrainDctIn, QueryDctIn, QueryDctOut},
    context::{DctState, Dctc},
    eqe::{EqeDct, EventType},
    ids::Qpn,
};

/// First DCT number: behind all that queue pairs can have.
pub(crate) const FIRST_DCTN: u32 = (FIRST_QPN + (1 << caps::LOG_MAX_QP)).next_power_of_two();

/// A DC target.
#[derive(Debug)]
pub(crate) struct Dct {
    context: Dctc,
    /// Absent while it runs, since its host is the function.
    target: Option<Box<DcTarget>>,
    /// Its next key violation is an event.
    armed: bool,
}

impl Dct {
    pub(super) fn counter_set_id(&self) -> u8 {
        self.context.counter_set_id()
    }

    fn is_active(&self) -> bool {
        self.context.state() == DctState::ACTIVE
    }

    /// Requests that came with another key.
    fn n_key_violations(&self) -> u32 {
        self.target.as_ref().map_or(0, |target| target.n_key_violations())
    }
}

/// The context as the transport engine takes it.
fn config(context: &Dctc, dctn: u32, shared: SharedQueue, port_mtu_bytes: u32) -> QpConfig {
    QpConfig {
        service: Service::Dynamic,
        qpn: Qpn::new(dctn),
        pd: context.pd(),
        user_index: context.user_index(),
        cqn_receive: context.cqn(),
        cs_res_bytes: scatter_to_cqe::of_responder(context.cs_res()).unwrap_or(0),
        shared: Some(shared),
        mtu_bytes: context.mtu().bytes().unwrap_or(port_mtu_bytes).min(port_mtu_bytes),
        log_msg_max: caps::LOG_MAX_MSG,
        path: Path {
            gid_index: context.my_addr_index(),
            traffic_class: context.tclass(),
            hop_limit: context.hop_limit(),
            flow_label: context.flow_label(),
            eth_prio: context.eth_prio(),
            ..Path::default()
        },
        min_rnr_nak: context.min_rnr_nak(),
        max_served_reads: 1 << caps::LOG_MAX_READS,
        remote_read: context.rre(),
        remote_write: context.rwe(),
        remote_atomic: context.rae(),
        ..QpConfig::default()
    }
}

impl Function {
    fn check_dct(&self, context: &Dctc) -> Result<(), Refusal> {
        if context.mtu().bytes().is_none_or(|mtu| mtu > self.config.mtu_bytes.into()) {
            return Err(Refusal::QP_MTU);
        }
        if u16::from(context.my_addr_index()) >= caps::ROCE_TABLE_SIZE {
            return Err(Refusal::QP_GID_INDEX);
        }
        if context.port() != 1 {
            return Err(Refusal::QP_PORT);
        }
        if !self.cqs.contains(context.cqn().get()) {
            return Err(Refusal::NO_SUCH_CQ);
        }
        self.check_scatter_of_dct(context)
    }

    pub(super) fn create_dct(&mut self, input: &Input<'_>) -> Output {
        let context = input.get::<CreateDctIn>()?.dct_context_entry();
        self.check_dct(&context)?;
        let shared = self.shared_queue(context.srqn_xrqn(), context.cqn(), context.user_index());
        let shared = shared.ok_or(Refusal::QP_SRQ)?;
        self.pds.hold(context.pd().get(), Refusal::NO_SUCH_PD)?;
        let number = self.insert_dct(context).inspect_err(|_| self.pds.release(context.pd().get()))?;
        let config = config(&context, number, shared, self.config.mtu_bytes.into());
        if let Some(dct) = self.dcts.get_mut(number) {
            dct.target = Some(Box::new(DcTarget::new(config, context.dc_access_key())));
        }
        self.hold_of_dct(&context, 1);
        out(CreateDctOut::new().with_dctn(number))
    }

    fn insert_dct(&mut self, context: Dctc) -> Result<u32, Refusal> {
        let counter = context.counter_set_id().into();
        self.hold_counters(counter)?;
        let made = self.charge(Cost::QP).and_then(|()| {
            let context = context.with_state(DctState::ACTIVE);
            let dct = Dct { context, target: None, armed: false };
            self.dcts.insert(dct).inspect_err(|_| self.refund(Cost::QP))
        });
        made.inspect_err(|_| self.release_counters(counter))
    }

    /// Counts the target as a user of its queues (`step` 1), or no longer (`step` -1).
    fn hold_of_dct(&mut self, context: &Dctc, step: i32) {
        if let Some(cq) = self.cqs.get_mut(context.cqn().get()) {
            cq.n_users = cq.n_users.wrapping_add_signed(step);
        }
        if let Some(srq) = self.srqs.get_mut(context.srqn_xrqn()) {
            srq.n_users = srq.n_users.wrapping_add_signed(step);
        }
    }

    pub(super) fn query_dct(&mut self, input: &Input<'_>) -> Output {
        let dct = self.dcts.get(input.get::<QueryDctIn>()?.dctn()).ok_or(Refusal::NO_SUCH_OBJECT)?;
        let context = dct.context.with_dc_access_key_violation_count(dct.n_key_violations());
        out(QueryDctOut::new().with_dct_context_entry(context))
    }

    pub(super) fn arm_dct(&mut self, input: &Input<'_>) -> Output {
        let number = input.get::<ArmDctIn>()?.dct_number();
        self.dcts.get_mut(number).ok_or(Refusal::NO_SUCH_OBJECT)?.armed = true;
        done()
    }

    /// The target takes nothing more. What its initiators are told they have is acknowledged first, so that it is drained at once.
    pub(super) fn drain_dct(&mut self, input: &Input<'_>) -> Output {
        let number = input.get::<DrainDctIn>()?.dctn();
        let dct = self.dcts.get_mut(number).ok_or(Refusal::NO_SUCH_OBJECT)?;
        if !dct.is_active() {
            return Err(Refusal::DCT_STATE);
        }
        dct.context.set_state(DctState::DRAINED);
        self.with_dct(number, |target, host| target.drain(host));
        self.event(EventType::DCT_DRAINED, 0, EqeDct::new().with_dctn(number).to_bytes());
        done()
    }

    pub(super) fn destroy_dct(&mut self, input: &Input<'_>) -> Output {
        let number = input.get::<DestroyDctIn>()?.dctn();
        if self.dcts.get(number).ok_or(Refusal::NO_SUCH_OBJECT)?.is_active() {
            return Err(Refusal::DCT_STATE);
        }
        let dct = self.dcts.remove(number).ok_or(Refusal::NO_SUCH_OBJECT)?;
        self.hold_of_dct(&dct.context, -1);
        self.pds.release(dct.context.pd().get());
        self.release_counters(dct.counter_set_id().into());
        self.forget_page_faults(number);
        self.ready.remove(&number);
        self.refund(Cost::QP);
        done()
    }

    /// Calls into a target with the function as its host.
    pub(super) fn with_dct<T>(
        &mut self,
        number: u32,
        call: impl FnOnce(&mut DcTarget, &mut dyn Host) -> T,
    ) -> Option<T> {
        let mut target = self.dcts.get_mut(number)?.target.take()?;
        let result = call(&mut target, &mut FunctionHost { function: self });
        self.dcts.get_mut(number)?.target = Some(target);
        Some(result)
    }

    /// Gives a packet to a target, if there is one with this number that still takes any.
    pub(super) fn receive_at_dct(&mut self, number: u32, packet: &crate::wire::Packet<'_>) {
        let Some(dct) = self.dcts.get(number).filter(|dct| dct.is_active()) else { return };
        let known = dct.n_key_violations();
        self.with_dct(number, |target, host| target.receive(host, packet));
        self.ready.insert(number);
        let Some(dct) = self.dcts.get_mut(number) else { return };
        if dct.n_key_violations() != known && std::mem::take(&mut dct.armed) {
            self.event(EventType::DCT_KEY_VIOLATION, 0, EqeDct::new().with_dctn(number).to_bytes());
        }
    }
}
