//! Queue pairs: creation, limits, the state machine. Cases D1 to D6.
//!
//! D1 and D2 ask for every transport. There are RC, UC and UD here: the API has no name for another, so there is nothing
//! that could be asked for and refused.

use crate::support::*;
use mlx5_direct::{
    Access, Connection, CqAttr, Error, QpInit,
    backend::{AddressVector, QpModify},
    cqe::CqeOpcode,
    mlx5::{
        context::{Mtu, QpState},
        ids::{Psn, Qpn},
    },
    queue::{PostError, Rc, Transport, Uc, Ud},
};
use std::collections::HashSet;

#[test]
fn d1_qp_create_rc() {
    create_all_sizes::<Rc>();
}

#[test]
fn d1_qp_create_uc() {
    create_all_sizes::<Uc>();
}

#[test]
fn d1_qp_create_ud() {
    create_all_sizes::<Ud>();
}

fn create_all_sizes<T: Transport>() {
    let card = card("ports=1");
    let ctx = open(&card, 0);
    let pd = ctx.alloc_pd().unwrap();
    let cq = ctx.create_cq(&CqAttr::default()).unwrap();
    let mut qps = Vec::new();
    for max_send_wr in [1, 2, 5, 128, 1000] {
        for max_recv_wr in [1, 3, 64, 1000] {
            for (max_send_sge, max_recv_sge, max_inline_data) in
                [(1, 1, 0), (3, 2, 64), (7, 9, 200), (1, 16, 500)]
            {
                let init = QpInit {
                    max_send_wr,
                    max_recv_wr,
                    max_send_sge,
                    max_recv_sge,
                    max_inline_data,
                    ..QpInit::default()
                };
                let qp = pd.create_qp_of::<T>(&init, &cq, &cq).unwrap();
                let (limits, (send_wr, recv_wr)) = (qp.send_limits(), qp.max_wr());
                assert!(send_wr >= max_send_wr && recv_wr >= max_recv_wr, "{init:?}");
                assert!(
                    u32::from(limits.max_sge) >= max_send_sge && qp.max_recv_sge() >= max_recv_sge,
                    "{init:?}"
                );
                assert!(u32::from(limits.max_inline_bytes) >= max_inline_data, "{init:?}");
                qps.push(qp);
            }
        }
    }
    let numbers: HashSet<_> = qps.iter().map(|qp| qp.qpn()).collect();
    assert_eq!(numbers.len(), qps.len());
    // Of verbs, the library chooses what CQEs carry, and does not tell.
    let indices: HashSet<_> = qps.iter().filter_map(|qp| qp.user_index()).collect();
    assert_eq!(indices.len(), if card.is_verbs() { 0 } else { qps.len() });
    drop(qps);
    card.assert_clean();
}

#[test]
fn d2_qp_create_illegal_caps() {
    let card = card("ports=1");
    let ctx = open(&card, 0);
    let pd = ctx.alloc_pd().unwrap();
    let cq = ctx.create_cq(&CqAttr::default()).unwrap();
    let device = ctx.device();
    let good = QpInit::default();
    let limits = [
        (
            "max_send_wr",
            device.max_qp_wr,
            (|init, n| QpInit { max_send_wr: n, ..init }) as fn(QpInit, u32) -> QpInit,
        ),
        ("max_recv_wr", device.max_qp_wr, |init, n| QpInit { max_recv_wr: n, ..init }),
        ("max_send_sge", device.max_send_sge, |init, n| QpInit { max_send_sge: n, ..init }),
        ("max_recv_sge", device.max_recv_sge, |init, n| QpInit { max_recv_sge: n, ..init }),
        ("max_inline_data", device.max_inline_data, |init, n| QpInit { max_inline_data: n, ..init }),
    ];
    for (name, limit, set) in limits {
        for n in [limit + 1, u32::MAX] {
            let refused = pd.create_qp(&set(good, n), &cq, &cq).unwrap_err();
            assert!(matches!(refused, Error::InvalidArgument(_)), "{refused}");
            let text = refused.to_string();
            for part in [name, &n.to_string(), &limit.to_string()] {
                assert!(text.contains(part), "{text}");
            }
        }
        // The limit itself is granted, if the rest is small. But libmlx5 makes every send request large enough for a UMR.
        if card.is_verbs() && name == "max_send_wr" {
            continue;
        }
        let smallest = QpInit { max_send_wr: 1, max_recv_wr: 1, max_inline_data: 0, ..good };
        pd.create_qp(&set(smallest, limit), &cq, &cq)
            .unwrap_or_else(|error| panic!("{name} {limit}: {error}"));
    }
    // Each within its limit, and together too much for a send queue.
    let init = QpInit { max_send_wr: device.max_qp_wr, max_inline_data: 500, ..good };
    let refused = pd.create_qp(&init, &cq, &cq).unwrap_err();
    assert!(refused.to_string().contains("max_qp_wr"), "{refused}");
    card.assert_clean();
}

#[test]
fn d2_qp_queue_of_size_zero() {
    let init = QpInit { max_send_wr: 0, ..QpInit::default() };
    let only_receives = Setup { init, ..Setup::default() };
    let init = QpInit { max_recv_wr: 0, ..QpInit::default() };
    let only_sends = Setup { init, ..Setup::default() };
    let mut pair = Pair::with("ports=2", &only_sends, &only_receives);
    let lease = pair.a.lease;
    assert_eq!(pair.a.qp.post_recv(1, &[lease.slice(0..8)]), Err(PostError::WrongState));
    let mut list = pair.b.qp.post_list();
    assert_eq!(list.send(1, SIGNALED).unwrap_err(), PostError::WrongState);
    assert_eq!(list.nop(1, SIGNALED).unwrap_err(), PostError::WrongState);
    list.ring();
    assert_eq!((pair.b.qp.max_wr().0, pair.a.qp.max_wr().1), (0, 0));
    pair.b.recv(1, 0..64);
    pair.a.post(|list, _| list.send(2, SIGNALED).unwrap().inline(b"one way").unwrap().finish());
    pair.a.ok();
    pair.b.ok();
    assert_eq!(pair.b.bytes(0, 7), b"one way");
}

#[test]
fn d3_qp_query_after_create() {
    let card = card("ports=1");
    let ctx = open(&card, 0);
    let init =
        QpInit { max_send_wr: 33, max_recv_wr: 17, max_send_sge: 3, max_recv_sge: 3, ..QpInit::default() };
    let side = Side::new(&card, &ctx, &Setup { init, ..Setup::default() });
    let attr = side.qp.query().unwrap();
    assert_eq!((attr.state, side.qp.state()), (QpState::RST, QpState::RST));
    assert_eq!((attr.dest_qp_num, attr.rq_psn, attr.sq_psn), (Qpn::new(0), Psn::new(0), Psn::new(0)));
    let (send_wr, recv_wr) = side.qp.max_wr();
    assert!((33..=64).contains(&send_wr) && recv_wr == 32, "{send_wr} {recv_wr}");
    drop(side);
    card.assert_clean();
}

/// Attributes that are all different and none of them a default.
const PORT: u8 = 1;
const INIT: QpModify = QpModify {
    pkey_index: Some(0),
    port: Some(PORT),
    access: Some(Access(Access::REMOTE_WRITE.0 | Access::REMOTE_ATOMIC.0)),
    ..QpModify::to(QpState::INIT)
};
const AH: AddressVector = AddressVector {
    port: PORT,
    sgid_index: 1,
    dgid: [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8],
    dmac: [0x02, 0x11, 0x22, 0x33, 0x44, 0x55],
    dlid: 0,
    sl: 3,
    hop_limit: 17,
    traffic_class: 0x68,
    flow_label: 0xabcde,
    udp_sport: Some(0xc123),
    force_loopback: false,
};
const RTR: QpModify = QpModify {
    ah: Some(AH),
    path_mtu: Some(Mtu::MTU_1024),
    dest_qp_num: Some(Qpn::new(0x123456)),
    rq_psn: Some(Psn::new(0xfedcba)),
    max_dest_rd_atomic: Some(8),
    min_rnr_timer: Some(21),
    ..QpModify::to(QpState::RTR)
};
/// INIT to RTR, on the way that the card can go.
fn rtr(side: &Side) -> QpModify {
    if !side.card.is_verbs() {
        return RTR;
    }
    // The kernel looks for the way, and knows the one to itself. It takes the hop limit from there, and does not tell the
    // priority.
    let own = side.ctx.gid(PORT, 1).unwrap();
    let way = AddressVector { dgid: own.gid, dmac: own.mac, udp_sport: None, hop_limit: 64, sl: 0, ..AH };
    QpModify { ah: Some(way), ..RTR }
}
const RTS: QpModify = QpModify {
    timeout: Some(19),
    retry_cnt: Some(5),
    rnr_retry: Some(6),
    sq_psn: Some(Psn::new(0x13579b)),
    max_rd_atomic: Some(4),
    ..QpModify::to(QpState::RTS)
};

#[test]
fn d4_qp_walk_rst_init_rtr_rts() {
    let card = card("ports=1");
    let ctx = open(&card, 0);
    let mut side = Side::new(&card, &ctx, &Setup::default());
    let rtr = rtr(&side);
    let ah = rtr.ah.unwrap();
    let qp = &mut side.qp;
    // Linux lets no READ and no atomic in before it knows how many at once, in RTR.
    let early = if card.is_verbs() { Access::REMOTE_WRITE } else { ALL };

    qp.modify(&INIT).unwrap();
    let attr = qp.query().unwrap();
    assert_eq!((attr.state, qp.state()), (QpState::INIT, QpState::INIT));
    assert_eq!((attr.pkey_index, attr.port), (0, PORT));
    assert!(attr.access.contains(Access(INIT.access.unwrap().0 & early.0)));
    assert!(!attr.access.contains(Access::REMOTE_READ));
    // INIT to INIT: what is given changes, the rest stays.
    qp.modify(&QpModify { access: Some(Access::REMOTE_READ), ..QpModify::to(QpState::INIT) }).unwrap();
    let attr = qp.query().unwrap();
    assert!(attr.access.contains(Access(Access::REMOTE_READ.0 & early.0)));
    assert!(!attr.access.contains(Access::REMOTE_WRITE));
    assert_eq!(attr.port, PORT);

    qp.modify(&rtr).unwrap();
    let attr = qp.query().unwrap();
    assert_eq!((attr.state, attr.ah), (QpState::RTR, ah));
    assert_eq!(Some(attr.path_mtu), RTR.path_mtu);
    assert_eq!((Some(attr.dest_qp_num), Some(attr.rq_psn)), (RTR.dest_qp_num, RTR.rq_psn));
    assert_eq!(
        (Some(attr.max_dest_rd_atomic), Some(attr.min_rnr_timer)),
        (RTR.max_dest_rd_atomic, RTR.min_rnr_timer)
    );
    assert!(attr.access.contains(Access::REMOTE_READ), "kept from INIT");

    qp.modify(&RTS).unwrap();
    let attr = qp.query().unwrap();
    assert_eq!((attr.state, attr.ah), (QpState::RTS, ah));
    assert_eq!((Some(attr.timeout), Some(attr.retry_cnt)), (RTS.timeout, RTS.retry_cnt));
    assert_eq!((Some(attr.rnr_retry), Some(attr.sq_psn)), (RTS.rnr_retry, RTS.sq_psn));
    assert_eq!(Some(attr.max_rd_atomic), RTS.max_rd_atomic);
    assert_eq!(Some(attr.dest_qp_num), RTR.dest_qp_num);

    // RTS to RTS: rights and the RNR pause.
    let change =
        QpModify { access: Some(Access::REMOTE_WRITE), min_rnr_timer: Some(3), ..QpModify::to(QpState::RTS) };
    qp.modify(&change).unwrap();
    let attr = qp.query().unwrap();
    assert!(attr.access.contains(Access::REMOTE_WRITE) && !attr.access.contains(Access::REMOTE_READ));
    assert_eq!((attr.min_rnr_timer, Some(attr.timeout)), (3, RTS.timeout));
    drop(side);
    card.assert_clean();
}

#[test]
fn d4_qp_attributes_beyond_limits() {
    needs!(Need::Options("mtu=1024"));
    let card = card("ports=1,mtu=1024");
    let ctx = open(&card, 0);
    let mut side = Side::new(&card, &ctx, &Setup::default());
    let device = ctx.device().clone();
    let refuse = |side: &mut Side, modify: QpModify, says: &[&str]| {
        let (before, refused) = (side.qp.query().unwrap(), side.qp.modify(&modify).unwrap_err());
        assert!(matches!(refused, Error::InvalidArgument(_)), "{refused}");
        for part in says {
            assert!(refused.to_string().contains(part), "{part}: {refused}");
        }
        assert_eq!(side.qp.query().unwrap(), before, "nothing was done");
    };
    refuse(&mut side, QpModify { port: Some(2), ..INIT }, &["port 2"]);
    refuse(&mut side, QpModify { port: Some(0), ..INIT }, &["port 0"]);
    refuse(&mut side, QpModify { pkey_index: Some(9999), ..INIT }, &["pkey_index", "9999"]);
    side.qp.modify(&INIT).unwrap();
    refuse(&mut side, QpModify { path_mtu: Some(Mtu::MTU_2048), ..RTR }, &["path_mtu", "2048", "1024"]);
    refuse(&mut side, QpModify { path_mtu: Some(Mtu(9)), ..RTR }, &["path_mtu"]);
    let too_many = device.max_qp_rd_atom + 1;
    refuse(
        &mut side,
        QpModify { max_dest_rd_atomic: Some(too_many), ..RTR },
        &["max_dest_rd_atomic", &too_many.to_string()],
    );
    refuse(&mut side, QpModify { min_rnr_timer: Some(32), ..RTR }, &["min_rnr_timer", "32"]);
    refuse(&mut side, QpModify { ah: Some(AddressVector { sgid_index: 200, ..AH }), ..RTR }, &["200"]);
    refuse(&mut side, QpModify { ah: Some(AddressVector { sgid_index: 7, ..AH }), ..RTR }, &["7", "empty"]);
    refuse(&mut side, QpModify { ah: Some(AddressVector { port: 2, ..AH }), ..RTR }, &["port 2"]);
    refuse(&mut side, QpModify { ah: Some(AddressVector { sl: 8, ..AH }), ..RTR }, &["sl"]);
    refuse(
        &mut side,
        QpModify { ah: Some(AddressVector { flow_label: 1 << 20, ..AH }), ..RTR },
        &["flow_label"],
    );
    refuse(&mut side, QpModify { ah: Some(AddressVector { dmac: [0; 6], ..AH }), ..RTR }, &["dmac"]);
    refuse(&mut side, QpModify { ah: Some(AddressVector { dmac: [0xff; 6], ..AH }), ..RTR }, &["dmac"]);
    side.qp.modify(&RTR).unwrap();
    let too_many = device.max_qp_init_rd_atom + 1;
    refuse(
        &mut side,
        QpModify { max_rd_atomic: Some(too_many), ..RTS },
        &["max_rd_atomic", &too_many.to_string()],
    );
    refuse(&mut side, QpModify { timeout: Some(32), ..RTS }, &["timeout", "32"]);
    refuse(&mut side, QpModify { retry_cnt: Some(8), ..RTS }, &["retry_cnt", "8"]);
    refuse(&mut side, QpModify { rnr_retry: Some(8), ..RTS }, &["rnr_retry", "8"]);
    side.qp.modify(&RTS).unwrap();
    drop(side);
    card.assert_clean();
}

const STATES: [QpState; 5] = [QpState::RST, QpState::INIT, QpState::RTR, QpState::RTS, QpState::ERR];

/// Attributes of the transition between two states that verbs demand of a reliable connection, or `None` if there
/// is no such transition (InfiniBand 11.2.5.2; Linux `qp_state_table`).
fn mandatory(side: &Side, from: QpState, to: QpState) -> Option<QpModify> {
    match (from, to) {
        (_, QpState::RST) => Some(QpModify::to(to)),
        (QpState::INIT | QpState::RTR | QpState::RTS | QpState::ERR, QpState::ERR) => Some(QpModify::to(to)),
        (QpState::INIT, QpState::INIT) | (QpState::RTS, QpState::RTS) => Some(QpModify::to(to)),
        (QpState::RST, QpState::INIT) => Some(INIT),
        (QpState::INIT, QpState::RTR) => Some(rtr(side)),
        (QpState::RTR, QpState::RTS) => Some(RTS),
        _ => None,
    }
}

/// Every attribute of `modify`, one at a time: its name, and `modify` without it.
fn without_each(modify: &QpModify) -> Vec<(&'static str, QpModify)> {
    let mut all = Vec::new();
    let mut one = |name, given, without| {
        if given {
            all.push((name, without));
        }
    };
    let m = *modify;
    one("pkey_index", m.pkey_index.is_some(), QpModify { pkey_index: None, ..m });
    one("port", m.port.is_some(), QpModify { port: None, ..m });
    one("access", m.access.is_some(), QpModify { access: None, ..m });
    one("ah", m.ah.is_some(), QpModify { ah: None, ..m });
    one("path_mtu", m.path_mtu.is_some(), QpModify { path_mtu: None, ..m });
    one("dest_qp_num", m.dest_qp_num.is_some(), QpModify { dest_qp_num: None, ..m });
    one("rq_psn", m.rq_psn.is_some(), QpModify { rq_psn: None, ..m });
    one("max_dest_rd_atomic", m.max_dest_rd_atomic.is_some(), QpModify { max_dest_rd_atomic: None, ..m });
    one("min_rnr_timer", m.min_rnr_timer.is_some(), QpModify { min_rnr_timer: None, ..m });
    one("timeout", m.timeout.is_some(), QpModify { timeout: None, ..m });
    one("retry_cnt", m.retry_cnt.is_some(), QpModify { retry_cnt: None, ..m });
    one("rnr_retry", m.rnr_retry.is_some(), QpModify { rnr_retry: None, ..m });
    one("sq_psn", m.sq_psn.is_some(), QpModify { sq_psn: None, ..m });
    one("max_rd_atomic", m.max_rd_atomic.is_some(), QpModify { max_rd_atomic: None, ..m });
    all
}

/// Brings a queue pair to `state` from wherever it is.
fn bring(side: &mut Side, state: QpState) {
    side.qp.modify(&QpModify::to(QpState::RST)).unwrap();
    let rtr = rtr(side);
    let steps: &[QpModify] = match state {
        QpState::RST => &[],
        QpState::INIT => &[INIT],
        QpState::RTR => &[INIT, rtr],
        QpState::RTS => &[INIT, rtr, RTS],
        _ => &[INIT, QpModify::to(QpState::ERR)],
    };
    for step in steps {
        side.qp.modify(step).unwrap();
    }
    assert_eq!((side.device_state(), side.qp.state()), (state, state));
}

#[test]
fn d5_qp_illegal_transitions() {
    let card = card("ports=1");
    let ctx = open(&card, 0);
    let mut side = Side::new(&card, &ctx, &Setup::default());
    // States that no transition leads to are among the targets, and so are numbers that are no state.
    let targets = (0..=15).map(QpState);
    for from in STATES {
        for to in targets.clone() {
            bring(&mut side, from);
            let Some(right) = mandatory(&side, from, to) else {
                let refused = side.qp.modify(&QpModify::to(to)).unwrap_err();
                let Error::Transition { from: told_from, to: told_to, missing, excess } = &refused else {
                    panic!("{from} to {to}: {refused}")
                };
                assert_eq!((*told_from, *told_to, missing.len(), excess.len()), (from, to, 0, 0));
                let text = refused.to_string();
                assert!(text.contains(from.name().unwrap()) && text.contains("can be reached"), "{text}");
                assert_eq!((side.device_state(), side.qp.state()), (from, from), "nothing was done");
                continue;
            };
            // Each mandatory attribute, when it is left out, is named.
            for (name, incomplete) in without_each(&right) {
                let refused = side.qp.modify(&incomplete).unwrap_err();
                let Error::Transition { missing, excess, .. } = &refused else {
                    panic!("{from} to {to}: {refused}")
                };
                assert_eq!((missing.as_slice(), excess.len()), ([name].as_slice(), 0), "{refused}");
                assert!(refused.to_string().contains(name), "{refused}");
            }
            // All left out, all are named.
            let names: Vec<_> = without_each(&right).into_iter().map(|(name, _)| name).collect();
            if !names.is_empty() {
                let refused = side.qp.modify(&QpModify::to(to)).unwrap_err();
                let Error::Transition { missing, .. } = &refused else { panic!("{from} to {to}: {refused}") };
                assert_eq!(missing.iter().collect::<HashSet<_>>(), names.iter().collect());
            }
            // One too many is named as well.
            if to != QpState::RTS || from == QpState::RTS {
                let refused = side.qp.modify(&QpModify { timeout: Some(1), ..right }).unwrap_err();
                let Error::Transition { missing, excess, .. } = &refused else {
                    panic!("{from} to {to}: {refused}")
                };
                assert_eq!((missing.len(), excess.as_slice()), (0, ["timeout"].as_slice()), "{from} to {to}");
            }
            assert_eq!((side.device_state(), side.qp.state()), (from, from), "nothing was done");
            side.qp.modify(&right).unwrap_or_else(|error| panic!("{from} to {to}: {error}"));
            assert_eq!((side.device_state(), side.qp.state()), (to, to));
        }
    }
    drop(side);
    card.assert_clean();
}

#[test]
fn d5_qp_post_in_wrong_state() {
    let card = card("ports=1");
    let ctx = open(&card, 0);
    let mut side = Side::new(&card, &ctx, &Setup::default());
    for state in STATES {
        bring(&mut side, state);
        let lease = side.lease;
        let received = side.qp.post_recv(1, &[lease.slice(0..64)]);
        let mut list = side.qp.post_list();
        let sent = list.send(2, SIGNALED).map(|request| request.finish());
        let n_wqebbs = list.n_wqebbs();
        match state {
            QpState::RST => {
                assert_eq!((received, sent), (Err(PostError::WrongState), Err(PostError::WrongState)))
            }
            QpState::INIT | QpState::RTR => {
                assert_eq!((received, sent), (Ok(()), Err(PostError::WrongState)))
            }
            // Sends to nobody: not rung for.
            QpState::RTS => assert_eq!((received, sent, n_wqebbs), (Ok(()), Ok(()), 1)),
            _ => {
                // In ERR both are taken, and come back flushed.
                assert_eq!((received, sent), (Ok(()), Ok(())));
                list.ring();
                let both = [side.fails(), side.fails()];
                assert!(both.iter().all(|error| error.is_flush()), "{both:?}");
                assert!(both.iter().any(|error| error.opcode == CqeOpcode::REQ_ERR));
                assert!(both.iter().any(|error| error.opcode == CqeOpcode::RESP_ERR));
                continue;
            }
        }
        side.assert_quiet();
    }
    drop(side);
    card.assert_clean();
}

#[test]
fn d6_qp_rd_atomic_limits() {
    for depth in [1, 2, 3, 16] {
        let connection =
            Connection { max_rd_atomic: depth, max_dest_rd_atomic: depth, ..Connection::default() };
        let setup = Setup { connection, ..Setup::default() };
        let mut pair = Pair::with("ports=2", &setup, &setup);
        let attr = pair.a.qp.query().unwrap();
        assert!(attr.max_rd_atomic >= depth && attr.max_dest_rd_atomic >= depth);
        // Many more than may be outstanding: they wait, and all succeed.
        let remote = pair.b.remote(0);
        pair.b.mr.write(0, &pattern(6, 4096));
        pair.a.post(|list, memory| {
            for i in 0..100 {
                list.rdma_read(i, remote, SIGNALED).unwrap().local(memory, 0..4096).unwrap().finish();
            }
        });
        for i in 0..100 {
            assert_eq!(pair.a.ok().wr_id, i);
        }
        assert!(pair.a.bytes(0, 4096) == pattern(6, 4096));
    }
}
