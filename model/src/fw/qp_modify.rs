//! The state machine of a QP: which transition is legal and which fields it takes.
#![forbid(unsafe_code)]

use super::{
    Function, caps,
    dispatch::{Input, Output, done, of_command},
    qp::wire_state,
    refusal::Refusal,
};
use crate::{
    config::LinkType,
    exec::{QpConfig, QpState},
    strict::{Rule, Violation},
};
use mlx5_direct::mlx5::{
    cmd::{CmdOpcode, Init2initQpIn, Init2rtrQpIn, MboxIn, Qp2errIn, Rts2rtsQpIn},
    context::{Qpc, QpcExt, ServiceType},
    ids::Qpn,
};
use zerocopy::FromBytes;

/// Bits of `opt_param_mask`.
mod opt {
    pub(super) const ALT_ADDR_PATH: u32 = 0x1;
    pub(super) const RRE: u32 = 0x2;
    pub(super) const RAE: u32 = 0x4;
    pub(super) const RWE: u32 = 0x8;
    pub(super) const PKEY_INDEX: u32 = 0x10;
    pub(super) const Q_KEY: u32 = 0x20;
    pub(super) const RNR_TIMEOUT: u32 = 0x40;
    /// Of INIT2INIT; another field's elsewhere.
    pub(super) const DRAIN_SIGERR: u32 = 0x800;
    pub(super) const PM_STATE: u32 = 0x400;
    pub(super) const RETRY_COUNT: u32 = 0x1000;
    pub(super) const RNR_RETRY: u32 = 0x2000;
    pub(super) const ACK_TIMEOUT: u32 = 0x4000;
    pub(super) const LAG_TX_AFF: u32 = 0x8000;
    pub(super) const PRI_PORT: u32 = 0x1_0000;
    pub(super) const COUNTER_SET_ID: u32 = 0x200_0000;
    pub(super) const ACCESS: u32 = RRE | RAE | RWE;
}

/// Bits of `opt_param_mask_95_32`.
mod opt_95_32 {
    pub(super) const DCI_STREAM_CHANNEL_ID: u64 = 1;
    pub(super) const QOS_QUEUE_GROUP_ID: u64 = 2;
    pub(super) const UDP_SPORT: u64 = 4;
    pub(super) const MMO: u64 = 8;
}

/// One arrow of the state graph.
#[derive(Debug)]
struct Transition {
    opcode: CmdOpcode,
    from: &'static [QpState],
    to: QpState,
    /// Bits of `opt_param_mask` that it takes.
    optional: u32,
    /// Copies the fields that it always takes.
    required: fn(&mut Qpc, &Qpc),
}

use QpState::{Init, Rst, Rtr, Rts, Sqd, Sqer};
const ERR: QpState = QpState::Err;

/// The arrows of a QP. Only datagram queues enter SQER.
const TRANSITIONS: &[Transition] = &[
    Transition {
        opcode: CmdOpcode::RST2INIT_QP,
        from: &[Rst],
        to: Init,
        optional: opt::COUNTER_SET_ID | opt::LAG_TX_AFF,
        required: |qpc, new| {
            take_pkey(qpc, new);
            take_port(qpc, new);
            qpc.set_pm_state(new.pm_state());
            qpc.set_q_key(new.q_key());
            qpc.set_rre(new.rre());
            qpc.set_rwe(new.rwe());
            qpc.set_rae(new.rae());
            qpc.set_atomic_mode(new.atomic_mode());
        },
    },
    Transition {
        opcode: CmdOpcode::INIT2INIT_QP,
        from: &[Init],
        to: Init,
        optional: opt::ACCESS
            | opt::PKEY_INDEX
            | opt::Q_KEY
            | opt::LAG_TX_AFF
            | opt::PRI_PORT
            | opt::DRAIN_SIGERR
            | opt::COUNTER_SET_ID,
        required: |_, _| (),
    },
    Transition {
        opcode: CmdOpcode::INIT2RTR_QP,
        from: &[Init],
        to: Rtr,
        optional: opt::ACCESS | opt::ALT_ADDR_PATH | opt::PKEY_INDEX | opt::Q_KEY | opt::LAG_TX_AFF,
        required: |qpc, new| {
            // The path is new but for what RST2INIT and RTR2RTS set.
            let (old, path) = (qpc.primary_address_path(), new.primary_address_path());
            qpc.set_primary_address_path(
                path.with_pkey_index(old.pkey_index()).with_vhca_port_num(old.vhca_port_num()),
            );
            qpc.set_mtu(new.mtu());
            qpc.set_log_msg_max(new.log_msg_max());
            qpc.set_remote_qpn(new.remote_qpn());
            qpc.set_next_rcv_psn(new.next_rcv_psn());
            qpc.set_log_rra_max(new.log_rra_max());
            qpc.set_min_rnr_nak(new.min_rnr_nak());
        },
    },
    Transition {
        opcode: CmdOpcode::RTR2RTS_QP,
        from: &[Rtr],
        to: Rts,
        optional: opt::ACCESS
            | opt::ALT_ADDR_PATH
            | opt::RNR_TIMEOUT
            | opt::PM_STATE
            | opt::Q_KEY
            | opt::COUNTER_SET_ID
            | opt::LAG_TX_AFF,
        required: |qpc, new| {
            qpc.set_next_send_psn(new.next_send_psn());
            qpc.set_retry_count(new.retry_count());
            qpc.set_rnr_retry(new.rnr_retry());
            qpc.set_log_sra_max(new.log_sra_max());
            qpc.set_log_ack_req_freq(new.log_ack_req_freq());
            take_ack_timeout(qpc, new);
        },
    },
    Transition {
        opcode: CmdOpcode::RTS2RTS_QP,
        from: &[Rts],
        to: Rts,
        optional: IN_RTS,
        required: |_, _| (),
    },
    Transition {
        opcode: CmdOpcode::SQD_RTS_QP,
        from: &[Sqd],
        to: Rts,
        optional: IN_RTS,
        required: |_, _| (),
    },
    Transition {
        opcode: CmdOpcode::SQERR2RTS_QP,
        from: &[Sqer],
        to: Rts,
        optional: IN_RTS,
        required: |_, _| (),
    },
    Transition {
        opcode: CmdOpcode::QP_2ERR,
        from: &[Rst, Init, Rtr, Rts, Sqer, Sqd, ERR],
        to: ERR,
        optional: 0,
        required: |_, _| (),
    },
    Transition {
        opcode: CmdOpcode::QP_2RST,
        from: &[Rst, Init, Rtr, Rts, Sqer, Sqd, ERR],
        to: Rst,
        optional: 0,
        required: |_, _| (),
    },
];

/// What may change while a QP sends.
const IN_RTS: u32 = opt::ACCESS
    | opt::ALT_ADDR_PATH
    | opt::RNR_TIMEOUT
    | opt::PM_STATE
    | opt::RETRY_COUNT
    | opt::RNR_RETRY
    | opt::ACK_TIMEOUT
    | opt::LAG_TX_AFF
    | opt::Q_KEY
    | opt::COUNTER_SET_ID;

fn take_pkey(qpc: &mut Qpc, new: &Qpc) {
    let index = new.primary_address_path().pkey_index();
    qpc.set_primary_address_path(qpc.primary_address_path().with_pkey_index(index));
}

fn take_port(qpc: &mut Qpc, new: &Qpc) {
    let port = new.primary_address_path().vhca_port_num();
    qpc.set_primary_address_path(qpc.primary_address_path().with_vhca_port_num(port));
}

fn take_ack_timeout(qpc: &mut Qpc, new: &Qpc) {
    let timeout = new.primary_address_path().ack_timeout();
    qpc.set_primary_address_path(qpc.primary_address_path().with_ack_timeout(timeout));
}

/// Copies the fields that `mask` selects.
fn take_optional(qpc: &mut Qpc, new: &Qpc, mask: u32) {
    let selected = |bit| mask & bit != 0;
    if selected(opt::RRE) {
        qpc.set_rre(new.rre());
    }
    if selected(opt::RAE) {
        qpc.set_rae(new.rae());
        qpc.set_atomic_mode(new.atomic_mode());
    }
    if selected(opt::RWE) {
        qpc.set_rwe(new.rwe());
    }
    if selected(opt::PKEY_INDEX) {
        take_pkey(qpc, new);
    }
    if selected(opt::Q_KEY) {
        qpc.set_q_key(new.q_key());
    }
    if selected(opt::PRI_PORT) {
        take_port(qpc, new);
    }
    if selected(opt::ALT_ADDR_PATH) {
        qpc.set_secondary_address_path(new.secondary_address_path());
    }
    if selected(opt::RNR_TIMEOUT) {
        qpc.set_min_rnr_nak(new.min_rnr_nak());
    }
    if selected(opt::DRAIN_SIGERR) {
        qpc.set_drain_sigerr(new.drain_sigerr());
    }
    if selected(opt::PM_STATE) {
        qpc.set_pm_state(new.pm_state());
    }
    if selected(opt::RETRY_COUNT) {
        qpc.set_retry_count(new.retry_count());
    }
    if selected(opt::RNR_RETRY) {
        qpc.set_rnr_retry(new.rnr_retry());
    }
    if selected(opt::ACK_TIMEOUT) {
        take_ack_timeout(qpc, new);
    }
    if selected(opt::LAG_TX_AFF) {
        qpc.set_lag_tx_port_affinity(new.lag_tx_port_affinity());
    }
    if selected(opt::COUNTER_SET_ID) {
        qpc.set_counter_set_id(new.counter_set_id());
    }
}

/// What two transitions take beside what all may (`opt_param_mask_95_32`).
#[derive(Debug, Default)]
struct Further {
    /// Of the extended context.
    mmo: Option<bool>,
    /// DC initiator: the stream whose error software has seen.
    stream: Option<u16>,
    /// Queue groups: of the requester and of the responder.
    groups: [u32; 2],
    udp_sport: bool,
}

impl Further {
    fn of(opcode: CmdOpcode, input: &Input<'_>) -> Result<Self, Refusal> {
        let (mask, is_extended, rest, allowed) = match opcode {
            CmdOpcode::INIT2INIT_QP => {
                let (head, rest) = input.get_with_list::<Init2initQpIn>()?;
                (
                    head.opt_param_mask_95_32(),
                    head.qpc_ext(),
                    rest,
                    opt_95_32::MMO | opt_95_32::QOS_QUEUE_GROUP_ID,
                )
            }
            CmdOpcode::RTS2RTS_QP => {
                let (head, rest) = input.get_with_list::<Rts2rtsQpIn>()?;
                let allowed =
                    opt_95_32::DCI_STREAM_CHANNEL_ID | opt_95_32::QOS_QUEUE_GROUP_ID | opt_95_32::UDP_SPORT;
                (head.opt_param_mask_95_32(), head.qpc_ext(), rest, allowed)
            }
            _ => return Ok(Self::default()),
        };
        let selected = |bit| mask & bit != 0;
        let extended = opt_95_32::MMO | opt_95_32::DCI_STREAM_CHANNEL_ID | opt_95_32::QOS_QUEUE_GROUP_ID;
        if mask & !allowed != 0 || selected(extended) && !is_extended {
            return Err(Refusal::QP_OPT_PARAM);
        }
        let mut further = Self { udp_sport: selected(opt_95_32::UDP_SPORT), ..Self::default() };
        if selected(extended) {
            let (extension, _) = QpcExt::read_from_prefix(rest).map_err(|_| Refusal::INPUT_SHORT)?;
            further.mmo = selected(opt_95_32::MMO).then(|| extension.mmo());
            further.stream =
                selected(opt_95_32::DCI_STREAM_CHANNEL_ID).then(|| extension.dci_stream_channel_id());
            if selected(opt_95_32::QOS_QUEUE_GROUP_ID) {
                further.groups =
                    [extension.qos_queue_group_id_requester(), extension.qos_queue_group_id_responder()];
            }
        }
        Ok(further)
    }
}

/// The flow's entropy of a connected QP on RoCE v2.
fn take_udp_sport(qpc: &mut Qpc, new: &Qpc) -> Result<(), Refusal> {
    let port = new.primary_address_path().udp_sport();
    let connected = matches!(qpc.st(), ServiceType::RC | ServiceType::UC);
    if !connected || !caps::UDP_SOURCE_PORTS.contains(&port) {
        return Err(Refusal::QP_UDP_PORT);
    }
    qpc.set_primary_address_path(qpc.primary_address_path().with_udp_sport(port));
    Ok(())
}

impl Function {
    /// All transitions: their inputs have one form, those to ERR and RST only its head.
    pub(super) fn modify_qp(&mut self, input: &Input<'_>) -> Output {
        let opcode = input.get::<MboxIn>()?.opcode();
        let transition = TRANSITIONS.iter().find(|t| t.opcode == opcode).ok_or(Refusal::QP_TRANSITION)?;
        let to_end = matches!(transition.to, ERR | Rst);
        let (qpn, mask, new) = if to_end {
            (input.get::<Qp2errIn>()?.qpn(), 0, Qpc::new())
        } else {
            let input: Init2rtrQpIn = input.get()?;
            (input.qpn(), input.opt_param_mask(), input.qpc())
        };
        let number = qpn.get();
        let further = Further::of(opcode, input)?;
        let qp = self.qps.get(number).ok_or(Refusal::NO_SUCH_OBJECT)?;
        let state = qp.state();
        if !transition.from.contains(&state) {
            // The device moves QPs to SQER and ERR by itself, and software may not know it yet.
            if !matches!(state, Sqer | ERR) {
                let detail = format!("{opcode} of QP 0x{number:x} in {state:?}");
                let violation = Violation::new(Rule::QpTransition, detail);
                self.violate(of_command(violation, opcode, input.bytes));
            }
            return Err(Refusal::QP_TRANSITION);
        }
        if mask & !transition.optional != 0 {
            return Err(Refusal::QP_OPT_PARAM);
        }
        let old_counter = u32::from(qp.context.counter_set_id());
        let mut context = qp.context;
        (transition.required)(&mut context, &new);
        if opcode == CmdOpcode::RST2INIT_QP {
            // Reset to INIT takes the counter set without a mask bit.
            context.set_counter_set_id(new.counter_set_id());
        }
        take_optional(&mut context, &new, mask);
        self.check_context(opcode, &context)?;
        if further.udp_sport {
            take_udp_sport(&mut context, &new)?;
        }
        for group in further.groups {
            self.check_queue_group(group)?;
        }
        if let Some(stream) = further.stream {
            self.reset_stream(number, stream)?;
        }
        let counter = u32::from(context.counter_set_id());
        if counter != old_counter {
            self.hold_counters(counter)?;
            self.release_counters(old_counter);
        }
        if let Some(qp) = self.qps.get_mut(number) {
            qp.mmo = further.mmo.unwrap_or(qp.mmo);
            if state == Sqd {
                qp.retake_shadow(&self.dma);
            }
        }
        match opcode {
            CmdOpcode::RST2INIT_QP => self.check_record_is_zero(number),
            CmdOpcode::QP_2RST => self.check_rung(number),
            _ => {}
        }
        self.enter(number, transition.to, context);
        done()
    }

    /// Software has seen the error of a DC initiator's stream.
    fn reset_stream(&mut self, number: u32, stream: u16) -> Result<(), Refusal> {
        let was_errored = self.with_engine(number, |engine, _| engine.reset_stream(stream));
        if was_errored == Some(true) { Ok(()) } else { Err(Refusal::DCI_STREAM) }
    }

    fn check_context(&self, opcode: CmdOpcode, context: &Qpc) -> Result<(), Refusal> {
        let path = context.primary_address_path();
        match opcode {
            CmdOpcode::RST2INIT_QP | CmdOpcode::INIT2INIT_QP if path.vhca_port_num() != 1 => {
                Err(Refusal::QP_PORT)
            }
            CmdOpcode::INIT2RTR_QP => {
                let mtu = context.mtu().bytes().ok_or(Refusal::QP_MTU)?;
                // Linux gives datagrams 4096 whatever the port carries.
                let connected = matches!(
                    context.st(),
                    ServiceType::RC | ServiceType::UC | ServiceType::XRC | ServiceType::DCI
                );
                if connected && mtu > self.config.mtu_bytes.into() {
                    return Err(Refusal::QP_MTU);
                }
                if u16::from(path.src_addr_index()) >= caps::ROCE_TABLE_SIZE {
                    return Err(Refusal::QP_GID_INDEX);
                }
                if context.log_msg_max() > caps::LOG_MAX_MSG {
                    return Err(Refusal::QP_MESSAGE);
                }
                if context.log_rra_max() > caps::LOG_MAX_READS {
                    return Err(Refusal::QP_READS);
                }
                Ok(())
            }
            CmdOpcode::RTR2RTS_QP if context.log_sra_max() > caps::LOG_MAX_READS => Err(Refusal::QP_READS),
            _ => Ok(()),
        }
    }

    /// Stores the context and tells the engine.
    fn enter(&mut self, number: u32, to: QpState, context: Qpc) {
        let (shared, rendezvous) = (self.shared_queue_of(&context), self.reads_for_xrq(&context));
        let Some(qp) = self.qps.get_mut(number) else { return };
        qp.context = context.with_state(wire_state(to));
        if to == Rtr && context.st() == ServiceType::DCI {
            self.n_dc_sessions = self.n_dc_sessions.wrapping_add(1);
            qp.dc_session = self.n_dc_sessions;
        }
        if to == Rst {
            qp.forget_posted();
        }
        let config = qp.config(Qpn::new(number));
        // A context may ask for longer packets than the port carries.
        let mtu_bytes = config.mtu_bytes.min(self.config.mtu_bytes.into());
        let compact_av = self.config.link == LinkType::InfiniBand;
        let config = QpConfig { shared, mtu_bytes, rendezvous, compact_av, ..config };
        self.with_engine(number, |engine, host| engine.set_state(host, to, config));
        self.ready.insert(number);
    }
}
