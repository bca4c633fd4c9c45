//! What a broken device does, kind by kind, and that the driver and its user live with it. Random mixtures of the same are in
//! `tests/schedules`.

use crate::support::*;
use mlx5_direct::{
    Context, CqAttr, Error, Events, Gone,
    backend::{
        Control,
        prm::{OpenOptions, PrmControl},
    },
    cqe::CqeSyndrome,
    mlx5::init_segment::HealthSyndrome,
    queue::Flags,
};
use mlx5_model::{
    Model, Rule,
    fault::{EntryFate, Fault, Nth},
};
use std::{
    thread,
    time::{Duration, Instant},
};

/// What nobody should have to wait longer for.
const SOON: Duration = Duration::from_secs(5);

fn options() -> OpenOptions {
    OpenOptions {
        command_timeout: Duration::from_millis(400),
        health_interval: Duration::from_millis(20),
        ..OpenOptions::default()
    }
}

fn inject(model: &Model, script: &str) {
    model.inject(&script.parse().unwrap());
}

/// Sends a message to itself, and waits for it asleep.
fn say(side: &mut Side, what: &[u8]) {
    side.recv(1, 0..64);
    side.post(|list, _| list.send(2, SIGNALED).unwrap().inline(what).unwrap().finish());
    let start = Instant::now();
    for _ in 0..2 {
        assert!(side.cq.wait(SOON).unwrap(), "no completion in {SOON:?}");
        side.ok();
    }
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    assert_eq!(side.bytes(0, what.len()), what);
}

fn sleeper() -> Setup {
    Setup { cq: CqAttr { events: Events::Own, ..CqAttr::default() }, ..Setup::default() }
}

#[test]
fn interrupts_and_events_that_do_not_come() {
    needs!(Need::Model);
    for fate in ["lost", "silent", "garbage"] {
        let card = card("ports=1");
        let ctx = Context::open(card.model().function(0).unwrap(), options()).unwrap();
        let mut side = looped(&card, &ctx, &sleeper());
        inject(card.model(), &format!("seed 5\nevent CMD 1..4 {fate}\nevent COMP 1..3 {fate}"));
        // Nobody waits for ever: neither for commands nor for completions.
        for n in 0..6u8 {
            say(&mut side, &[n; 10]);
            ctx.alloc_pd().unwrap();
        }
        let n = card.model().faults_done().faults.len();
        assert!(n >= 5, "{n} faults happened");
        drop(side);
        ctx.close().map_err(|(_, error)| error).unwrap();
        card.assert_clean();
    }
}

#[test]
fn an_event_that_seems_not_to_be_there() {
    needs!(Need::Model);
    // Its owner bit is wrong: the queue looks empty from there on. Commands are found done by looking at them.
    let card = card("ports=1");
    let control = PrmControl::open(card.model().function(0).unwrap(), &options()).unwrap();
    inject(card.model(), "event CMD 2 owner");
    let ctx = Context::on(control.clone());
    let mut side = looped(&card, &ctx, &Setup::default());
    side.recv(1, 0..64);
    side.post(|list, _| list.send(2, SIGNALED).unwrap().inline(b"alive").unwrap().finish());
    side.ok();
    side.ok();
    drop((side, ctx));
    control.close().unwrap();
    assert_eq!(control.firmware_pages(), 0);
    card.assert_clean();
}

#[test]
fn completions_that_are_garbage() {
    needs!(Need::Model);
    // Whatever a CQE says, polling goes on, nothing is retired by it but what is outstanding, and other queue pairs never are.
    for seed in 0..200u64 {
        let card = card("ports=1,drive=step");
        let ctx = open(&card, 0);
        let setup = Setup { cq: CqAttr { n_cqes: 63, ..CqAttr::default() }, ..Setup::default() };
        let mut side = looped(&card, &ctx, &setup);
        let nth = Nth::One(1 + seed % 7);
        let fate = match seed % 4 {
            0 => EntryFate::Lost,
            _ => EntryFate::Garbage(Some(seed)),
        };
        card.model().inject(&Fault::Completion { function: None, nth, fate }.into());
        let remote = side.remote(0);
        let mut retired = Vec::new();
        for n in 0..20u64 {
            side.post(|list, _| {
                list.rdma_write(n, remote, SIGNALED).unwrap().inline(&[1]).unwrap().finish();
            });
            while card.step() {}
            let mut poll = side.cq.poll();
            while let Some(wc) = poll.next() {
                let _ =
                    (wc.error().map(|error| side.qp.explain(&error).to_string()), wc.byte_len(), wc.imm());
                if let Ok(done) = side.qp.retire(&wc) {
                    retired.push(done.wr_id);
                }
            }
        }
        let sorted = retired.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(sorted && retired.len() >= 18, "seed {seed}: each once at most, and in order: {retired:?}");
        assert_eq!(
            side.qp.send_queue().n_outstanding(),
            0,
            "a later completion retires what was passed over"
        );
        // Rings of doorbell records are as ever: nothing was believed that the device must not say.
        card.assert_clean();
    }
}

#[test]
fn a_completion_that_seems_not_to_be_there() {
    needs!(Need::Model);
    // Nothing can be known of it or of what lies behind it, but everything can be let go of.
    let card = card("ports=1,drive=step");
    let ctx = open(&card, 0);
    let mut side = looped(&card, &ctx, &Setup::default());
    inject(card.model(), "completion 2 owner");
    let remote = side.remote(0);
    for n in 0..5 {
        side.post(|list, _| list.rdma_write(n, remote, SIGNALED).unwrap().inline(b"x").unwrap().finish());
    }
    assert_eq!(side.ok().wr_id, 0);
    side.assert_quiet();
    let Side { qp, mut cq, mr, .. } = side;
    drop(qp);
    assert!(cq.poll().next().is_none());
    drop((cq, mr));
    let mut side = looped(&card, &ctx, &Setup::default());
    side.recv(1, 0..64);
    side.post(|list, _| list.send(2, SIGNALED).unwrap().inline(b"anew").unwrap().finish());
    side.ok();
    side.ok();
    card.assert_clean();
}

#[test]
fn page_requests_absurd_huge_and_negative() {
    needs!(Need::Model);
    for pages in [i32::MAX, 1 << 20, 5000, 513, 1, 0, -1, -64, -5000, i32::MIN] {
        let model = Model::new("".parse().unwrap()).unwrap();
        let function = model.function(0).unwrap();
        let limited = OpenOptions { max_firmware_pages: 20_000, ..OpenOptions::default() };
        let control = PrmControl::open(function.clone(), &limited).unwrap();
        let before = control.firmware_pages();
        inject(&model, &format!("pages {pages}"));
        // Served behind the scenes, while commands go on. What is absurd is refused, none are taken that are in use, and what
        // firmware has no use for it gives back. It asks for some by itself.
        let most = before + 64 + if (1..=5000).contains(&pages) { pages as usize } else { 0 };
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(30) {
            let pd = control.alloc_pd().unwrap();
            control.dealloc_pd(pd).unwrap();
            assert!(control.firmware_pages() <= most, "{pages}: {} of {most}", control.firmware_pages());
        }
        control.close().unwrap();
        assert_eq!((control.firmware_pages(), function.dma().n_mappings()), (0, 0), "{pages}");
        model.assert_clean();
    }
}

#[test]
fn every_health_syndrome_is_told_by_name() {
    needs!(Need::Model);
    let model = Model::new("drive=step".parse().unwrap()).unwrap();
    let function = model.function(0).unwrap();
    for (name, value) in HealthSyndrome::TABLE.1.iter().copied().chain([("0x7f", 0x7f)]) {
        let reset = OpenOptions { reset: true, ..OpenOptions::default() };
        let control = PrmControl::open(function.clone(), &reset).unwrap();
        inject(&model, &format!("@0 health {name} 0x1234"));
        let Err(Error::DeviceGone(gone)) = control.health() else { panic!("{name}") };
        let of_firmware = Gone::Firmware {
            syndrome: HealthSyndrome(value as u8),
            ext_syndrome: 0x1234,
            reset_required: true,
        };
        assert_eq!(gone, of_firmware);
        let told = Error::DeviceGone(gone).to_string();
        assert!(told.contains(name), "{told}");
    }
}

#[test]
fn page_requests_come_while_commands_fail() {
    needs!(Need::Model);
    let model = Model::new("".parse().unwrap()).unwrap();
    let function = model.function(0).unwrap();
    let control = PrmControl::open(function.clone(), &options()).unwrap();
    inject(
        &model,
        "command MANAGE_PAGES 1 fail 0x8\ncommand MANAGE_PAGES 2 undelivered 0x6\ncommand MANAGE_PAGES 3 stuck",
    );
    for _ in 0..4 {
        inject(&model, "pages 100");
        thread::sleep(Duration::from_millis(30));
    }
    control.alloc_pd().unwrap();
    // The slot of the third is the device's for good, and pages have but one: taking down says so, and leaves nothing.
    let closed = control.close();
    assert!(matches!(closed, Err(Error::Timeout { .. }) | Ok(())), "{closed:?}");
    assert_eq!(function.dma().n_mappings(), 0);
    PrmControl::open(function, &OpenOptions { reset: true, ..options() }).unwrap().close().unwrap();
}

#[test]
fn late_and_reordered_commands() {
    needs!(Need::Model);
    let card = card("ports=1");
    inject(card.model(), "seed 1\ncommand 50% late 1ms\ncommand 50% last");
    let ctx = Context::open(card.model().function(0).unwrap(), options()).unwrap();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let pd = ctx.alloc_pd().unwrap();
                    pd.alloc_mr(100, ALL).unwrap();
                    pd.dealloc().map_err(|(_, error)| error).unwrap();
                }
            });
        }
    });
    ctx.close().map_err(|(_, error)| error).unwrap();
    assert!(card.model().faults_done().faults.len() > 50);
    card.assert_clean();
}

#[test]
fn a_command_later_than_its_deadline_harms_nobody() {
    needs!(Need::Model);
    let model = Model::new("".parse().unwrap()).unwrap();
    let function = model.function(0).unwrap();
    let hasty = OpenOptions { command_timeout: Duration::from_millis(60), ..OpenOptions::default() };
    let control = PrmControl::open(function.clone(), &hasty).unwrap();
    let ctx = Context::on(control.clone());
    for opcode in ["ALLOC_PD", "CREATE_MKEY", "CREATE_CQ", "CREATE_QP"] {
        inject(&model, &format!("command {opcode} 1 late 150ms"));
        // Given up, and then done by the device all the same: what it was given stays mapped until it is down.
        let made = ctx.alloc_pd().and_then(|pd| {
            pd.alloc_mr(100, ALL)?;
            let cq = ctx.create_cq(&CqAttr::default())?;
            pd.create_qp(&mlx5_direct::QpInit::default(), &cq, &cq).map(drop)
        });
        assert!(matches!(made, Err(Error::Timeout { .. })), "{opcode}: {made:?}");
        thread::sleep(Duration::from_millis(150));
        ctx.alloc_pd().unwrap();
    }
    drop(ctx);
    // The event queue is in use by a completion queue that nobody knows of: the device says so, and is reset.
    let closed = control.close();
    assert!(matches!(closed, Err(Error::Command { .. })), "{closed:?}");
    assert_eq!(function.dma().n_mappings(), 0);
    // Memory was not taken away before.
    let rules: Vec<_> = model.take_violations().iter().map(|broken| broken.rule).collect();
    // A command that comes late names what was given up meanwhile.
    let expected = [Rule::LeakAtClose, Rule::ObjectInUse, Rule::ObjectExists];
    assert!(rules.iter().all(|rule| expected.contains(rule)), "{rules:?}");
}

#[test]
fn a_firmware_that_starts_anew_in_mid_traffic() {
    needs!(Need::Model);
    for mishap in ["reset", "hang", "health HIGH_TEMP", "gone"] {
        let card = card("ports=2");
        let functions = [0, 1].map(|index| card.model().function(index).unwrap());
        let ctx = [0, 1].map(|n: usize| Context::open(functions[n].clone(), options()).unwrap());
        let (mut a, mut b) = (Side::new(&card, &ctx[0], &sleeper()), Side::new(&card, &ctx[1], &sleeper()));
        connect(&mut a.qp, &mut b.qp, &Setup::default().connection, &Setup::default().connection);
        inject(card.model(), &format!("@0 time 30ms {mishap}"));
        let remote = b.remote(0);
        let start = Instant::now();
        // Until the device is said to be gone: by a wait, or by what is asked meanwhile.
        let gone = loop {
            let posted = a.qp.send_queue().n_outstanding() < 100;
            if posted {
                let mut list = a.qp.post_list();
                list.rdma_write(1, remote, Flags::SIGNALED).unwrap().inline(b"x").unwrap().finish();
                list.ring();
            }
            match a.cq.wait(Duration::from_millis(50)) {
                Ok(true) => drop(a.poll()),
                Ok(false) => {}
                Err(error) => break error,
            }
            assert!(start.elapsed() < SOON, "{mishap}: still not gone");
        };
        assert!(matches!(gone, Error::DeviceGone(_)), "{mishap}: {gone}");
        if mishap == "hang" {
            assert!(matches!(gone, Error::DeviceGone(Gone::HealthCounter { .. })), "{gone}");
        }
        // Everybody is told, at once; the other function and its queue pair live on.
        let asked = Instant::now();
        assert!(matches!(ctx[0].alloc_pd(), Err(Error::DeviceGone(_))));
        assert!(matches!(a.qp.query(), Err(Error::DeviceGone(_))));
        assert!(asked.elapsed() < Duration::from_secs(1));
        ctx[1].alloc_pd().unwrap();
        // Objects first, or the context first.
        let [ctx_a, ctx_b] = ctx;
        if mishap.len() % 2 == 0 {
            drop(ctx_a);
            drop(a);
        } else {
            drop(a);
            drop(ctx_a);
        }
        assert!(asked.elapsed() < SOON, "{mishap}: let go of in {:?}", asked.elapsed());
        assert_eq!(functions[0].dma().n_mappings(), 0);
        if mishap == "gone" {
            inject(card.model(), "@0 back");
        }
        let again = Context::open(functions[0].clone(), OpenOptions { reset: true, ..options() }).unwrap();
        let mut a = Side::new(&card, &again, &sleeper());
        b.qp.modify(&mlx5_direct::backend::QpModify::to(mlx5_direct::mlx5::context::QpState::RST)).unwrap();
        connect(&mut a.qp, &mut b.qp, &Setup::default().connection, &Setup::default().connection);
        b.recv(1, 0..64);
        a.post(|list, _| list.send(2, SIGNALED).unwrap().inline(b"again").unwrap().finish());
        a.ok();
        assert_eq!(b.ok().byte_len, 5);
        drop((a, b, again, ctx_b));
        card.assert_clean();
    }
}

#[test]
fn a_link_that_flaps() {
    needs!(Need::Model);
    let mut pair = Pair::new("ports=2,drive=step");
    inject(
        pair.card.model(),
        "@1 time 100us link down\n@1 time 900us link up\n@0 time 2ms link down\n@0 time 3ms link up",
    );
    let remote = pair.b.remote(0);
    for n in 0..400u64 {
        pair.a.post(|list, _| {
            list.rdma_write(n, remote, SIGNALED).unwrap().inline(&n.to_ne_bytes()).unwrap().finish();
        });
        assert_eq!(pair.a.ok().wr_id, n);
        pair.card.advance(Duration::from_micros(10));
    }
    assert_eq!((pair.b.mr.load_u64(0), pair.card.model().faults_done().faults.len()), (399, 4));
}

#[test]
fn a_link_that_stays_down() {
    needs!(Need::Model);
    let mut pair = Pair::new("ports=2,drive=step");
    inject(pair.card.model(), "@1 link down");
    let remote = pair.b.remote(0);
    pair.a.post(|list, _| list.rdma_write(1, remote, SIGNALED).unwrap().inline(b"x").unwrap().finish());
    let error = loop {
        match pair.a.poll() {
            Some(done) => break done.error.unwrap(),
            None => pair.card.advance(Duration::from_millis(50)),
        }
    };
    assert_eq!(error.syndrome, CqeSyndrome::TRANSPORT_RETRY_EXC_ERR);
}
