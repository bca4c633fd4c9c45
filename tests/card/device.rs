//! Devices as a whole: what they say of themselves, ports, GIDs, doorbell pages, death. Cases of group A,
//! and those of K and L that are about the function.

use crate::support::*;
use mlx5_direct::{
    Context, CqAttr, Error, Gone, QpInit,
    backend::{
        AsyncEvent, GidEntry, GidType, LinkLayer, PhysState, PortState,
        pci::PciFunction,
        prm::{OpenOptions, PrmControl},
    },
    doorbell::DoorbellMode,
    mlx5::{
        caps::CmdHcaCap,
        cmd::{CapType, CmdOpcode, QueryHcaCapIn, QueryHcaCapOut},
        context::QpState,
        init_segment::{HealthSyndrome, NicInterface},
    },
};
use mlx5_model::trace::Kind;
use std::{
    collections::HashSet,
    sync::{Arc, Barrier},
    thread,
    time::{Duration, Instant},
};
use zerocopy::FromBytes;

/// Long enough for a device that answers, short enough for a test that fails.
const SOON: Duration = Duration::from_secs(5);

/// The next event of any kind, waited for.
#[track_caller]
fn event(ctx: &Context) -> AsyncEvent {
    ctx.next_async_event(SOON).expect("events").expect("an event")
}

#[test]
fn a1_list_devices() {
    needs!(Need::Model);
    for n_functions in [1, 2] {
        let card = card(&format!("ports={n_functions}"));
        let names: HashSet<_> =
            (0..n_functions).map(|index| card.model().function(index).unwrap().name()).collect();
        let expected: HashSet<_> = (0..n_functions).map(|index| format!("model:{index}")).collect();
        assert_eq!(names, expected, "every function once");
        let refused = card.model().function(n_functions).unwrap_err().to_string();
        let says = [format!("no function {n_functions}"), format!("it has {n_functions}")];
        assert!(says.iter().all(|part| refused.contains(part)), "{refused}");
        for index in 0..n_functions {
            assert_eq!(open(&card, index).name(), format!("model:{index}"));
        }
        card.assert_clean();
    }
}

#[test]
fn a3_query_device_caps() {
    needs!(Need::Model);
    for part in ["cx5", "cx6", "cx6dx"] {
        let card = card(&format!("ports=2,part={part}"));
        card.model().trace().keep(10_000);
        let ctx = open(&card, 1);
        let device = ctx.device();
        // The mailbox itself, from the card's own record of the last current general capabilities it told.
        let commands = card.model().trace().records();
        let asked = CapType::GENERAL.op_mod(true);
        let question = commands.iter().rposition(|record| {
            record.kind == Kind::CommandIn
                && QueryHcaCapIn::read_from_prefix(&record.bytes).is_ok_and(|(input, _)| {
                    input.opcode() == CmdOpcode::QUERY_HCA_CAP && input.op_mod() == asked
                })
        });
        let answer = commands[question.expect("QUERY_HCA_CAP")..]
            .iter()
            .find(|record| record.kind == Kind::CommandOut);
        let caps = general_caps(&answer.expect("its answer").bytes);
        assert_eq!(device.max_qp, 1 << caps.log_max_qp());
        assert_eq!(device.max_qp_wr, 1 << caps.log_max_qp_sz());
        assert_eq!(device.max_cq, 1 << caps.log_max_cq());
        assert_eq!(device.max_pd, 1 << caps.log_max_pd());
        assert_eq!(device.max_mr, 1 << caps.log_max_mkey());
        assert_eq!(device.max_mr_size, 1 << caps.log_max_mrw_sz());
        assert_eq!(device.max_msg_size, 1 << caps.log_max_msg());
        // `ctrl.ds` counts segments in 6 bits.
        assert_eq!(device.max_wqe_sz_sq, u32::from(caps.max_wqe_sz_sq()).min(63 * 16));
        assert_eq!(device.max_qp_init_rd_atom, 1 << caps.log_max_ra_req_qp());
        assert_eq!(device.max_qp_rd_atom, 1 << caps.log_max_ra_res_qp());
        assert_eq!(device.local_ca_ack_delay, caps.local_ca_ack_delay());
        assert_eq!(device.bf_reg_size_bytes, 1 << caps.log_bf_reg_size());
        assert_eq!(device.hca_core_clock_khz, caps.device_frequency_khz());
        assert_eq!(device.cqe_version, caps.cqe_version());
        assert_eq!(device.phys_port_cnt, caps.num_ports());
        assert!(device.max_cqe < 1 << caps.log_max_cq_sz() || device.max_cqe == 1 << caps.log_max_cq_sz());
        assert!(device.atomic_cap, "8-byte atomics");
        // ctrl 16, raddr 16 and data segments of 16 bytes share a WQE.
        assert!(
            device.max_send_sge >= 1 && device.max_send_sge <= (u32::from(caps.max_wqe_sz_sq()) - 16) / 16
        );
        assert!(device.max_sge_rd <= 30);
        assert!(device.max_recv_sge <= u32::from(caps.max_wqe_sz_rq()) / 16);
        assert!(device.max_inline_data > 0 && device.max_inline_data < device.max_wqe_sz_sq);
        // Firmware version: the registers' three numbers, with points between.
        let function = card.model().function(1).unwrap();
        let (rev, sub) = (function.bar_read32(0), function.bar_read32(4));
        assert_eq!(device.fw_ver, format!("{}.{}.{:04}", rev & 0xffff, rev >> 16, sub & 0xffff));
        // PCI identity, as config space tells it.
        let mut ids = [0; 4];
        function.config_read(0, &mut ids).unwrap();
        let (vendor, part) = (u16::from_le_bytes([ids[0], ids[1]]), u16::from_le_bytes([ids[2], ids[3]]));
        assert_eq!((device.vendor_id, device.vendor_part_id), (vendor.into(), part.into()));
        // Two functions of one card.
        let other = open(&card, 0);
        assert_ne!(other.device().node_guid, device.node_guid);
        assert_eq!(other.device().sys_image_guid, device.sys_image_guid);
        card.assert_clean();
    }
}

/// The group that QUERY_HCA_CAP answered, read as the general one.
fn general_caps(output: &[u8]) -> CmdHcaCap {
    let tail = output.get(size_of::<QueryHcaCapOut>()..).unwrap_or_default();
    CmdHcaCap::read_from_prefix(tail).map_or(CmdHcaCap::new(), |(caps, _)| caps)
}

#[test]
fn a4_query_port_state_mtu_speed() {
    needs!(Need::Model);
    for (options, mtu_bytes) in
        [("ports=2,mtu=1024", 1024), ("ports=1,mtu=4096", 4096), ("ports=1,mtu=256", 256)]
    {
        let card = card(options);
        let ctx = open(&card, 0);
        let port = ctx.port(1).unwrap();
        assert_eq!((port.state, port.phys_state), (PortState::Active, PhysState::LinkUp));
        assert_eq!(port.active_mtu.bytes(), Some(mtu_bytes));
        assert!(port.max_mtu >= port.active_mtu);
        assert!(u32::from(port.netdev_mtu_bytes) > mtu_bytes, "room for RoCE headers");
        assert_eq!(port.link_layer, LinkLayer::Ethernet);
        assert!(port.active_speed_mbps >= 1000 && port.active_width >= 1);
        assert!(port.gid_tbl_len >= 2 && port.pkey_tbl_len >= 1);
        assert_ne!(port.mac, [0; 6]);
        assert!(port.roce_enabled);
        assert_eq!((port.lid, port.qkey_viol_cntr), (0, 0));
        assert_eq!(ctx.pkey(1, 0).unwrap(), 0xffff);

        for wrong in [0, ctx.device().phys_port_cnt + 1, 255] {
            for refused in [
                ctx.port(wrong).map(|_| ()),
                ctx.gid(wrong, 0).map(|_| ()),
                ctx.pkey(wrong, 0).map(|_| ()),
                ctx.set_port(wrong, true),
                ctx.set_gid(wrong, 3, None),
            ] {
                let refused = refused.unwrap_err();
                assert!(matches!(refused, Error::InvalidArgument(_)), "{refused}");
                assert!(refused.to_string().contains(&format!("port {wrong}")), "{refused}");
            }
        }
        let refused = ctx.pkey(1, port.pkey_tbl_len).unwrap_err();
        assert!(matches!(refused, Error::InvalidArgument(_)), "{refused}");

        // What goes down comes back as down.
        card.model().set_port(0, false);
        assert_eq!(event(&ctx), AsyncEvent::PortChange { port: 1, up: false });
        let port = ctx.port(1).unwrap();
        assert_eq!((port.state, port.active_speed_mbps), (PortState::Down, 0));
        assert_ne!(port.phys_state, PhysState::LinkUp);
        card.assert_clean();
    }
}

#[test]
fn a5_query_gid_table_and_types() {
    needs!(Need::Prm);
    let card = card("ports=2");
    let ctx = open(&card, 0);
    let port = ctx.port(1).unwrap();
    // As Linux fills them: the link-local address of the MAC, in both formats.
    let [a, b, c, d, e, f] = port.mac;
    let link_local = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f];
    let (v1, v2) = (ctx.gid(1, 0).unwrap(), ctx.gid(1, 1).unwrap());
    assert_eq!((v1.gid, v1.mac, v1.vlan), (link_local, port.mac, None));
    assert_eq!((v2.gid, v2.mac, v2.vlan), (link_local, port.mac, None));
    assert_eq!(HashSet::from([v1.gid_type, v2.gid_type]), HashSet::from([GidType::RoceV1, GidType::RoceV2]));

    // Every other slot is empty, and says so by number.
    for index in 2..port.gid_tbl_len {
        let refused = ctx.gid(1, index).unwrap_err();
        assert!(matches!(refused, Error::InvalidArgument(_)), "{refused}");
        assert!(
            refused.to_string().contains(&format!("{index}")) && refused.to_string().contains("empty"),
            "{refused}"
        );
    }
    // There is no slot after the last.
    for index in [port.gid_tbl_len, u16::MAX] {
        for refused in [ctx.gid(1, index).map(|_| ()), ctx.set_gid(1, index, Some(&v2))] {
            let refused = refused.unwrap_err();
            assert!(matches!(refused, Error::InvalidArgument(_)), "{refused}");
            assert!(refused.to_string().contains(&port.gid_tbl_len.to_string()), "{refused}");
        }
    }
    // What is set comes back, each type, with and without VLAN; then it is empty again.
    let ipv4 = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 7];
    for (gid, gid_type, vlan) in [
        (ipv4, GidType::RoceV2, None),
        (ipv4, GidType::RoceV2, Some(0)),
        (link_local, GidType::RoceV1, Some(4094)),
        (link_local, GidType::RoceV2, Some(100)),
    ] {
        let entry = GidEntry { gid, gid_type, mac: [2, 0, 0, 1, 2, 3], vlan };
        let last = port.gid_tbl_len - 1;
        ctx.set_gid(1, last, Some(&entry)).unwrap();
        assert_eq!(ctx.gid(1, last).unwrap(), entry);
        assert_eq!(entry.ipv4().is_some(), gid == ipv4);
        ctx.set_gid(1, last, None).unwrap();
        assert!(ctx.gid(1, last).is_err());
    }
    // No such VLAN.
    let refused = ctx.set_gid(1, 3, Some(&GidEntry { vlan: Some(4095), ..v2 })).unwrap_err();
    assert!(
        matches!(refused, Error::InvalidArgument(_)) && refused.to_string().contains("4095"),
        "{refused}"
    );
    card.assert_clean();
}

#[test]
fn a8_alloc_uar_variants() {
    needs!(Need::Prm);
    makes(&["ports=1", "ports=1,bf=off"]).for_each(alloc_uar_variants);
}

fn alloc_uar_variants(options: &str) {
    let card = card(options);
    let control = PrmControl::open(card.function(0), &OpenOptions::default()).unwrap();
    let ctx = Context::on(control.clone());
    // Pages of one's own: distinct numbers, distinct places, two BlueFlame registers of 512 bytes each if the card has them.
    let bf_regs = match ctx.device().bf_reg_size_bytes {
        0 => (0, 0),
        _ => (2, 512),
    };
    assert!(!options.contains("bf=off") || bf_regs == (0, 0), "{options}: {bf_regs:?}");
    let pages: Vec<_> = (0..16).map(|_| control.alloc_uar().unwrap()).collect();
    let numbers: HashSet<_> = pages.iter().map(|page| page.index()).collect();
    let places: HashSet<_> = pages.iter().map(|uar| uar.page().base()).collect();
    assert_eq!((numbers.len(), places.len()), (16, 16));
    for uar in &pages {
        assert!(uar.index().get() > 0, "page 0 holds the init segment");
        let page = uar.page();
        assert_eq!((page.n_bf_regs(), page.bf_reg_size_bytes()), bf_regs);
        assert_eq!(page.base().addr().get() % 4096, 0);
    }
    for number in numbers {
        control.dealloc_uar(number).unwrap();
        let twice = control.dealloc_uar(number).unwrap_err();
        assert!(twice.to_string().contains(&format!("UAR page 0x{:x}", number.get())), "{twice}");
    }
    drop(pages);

    // Queue pairs: two share a page, and never a register. Whichever way they ring, all work.
    let setups = [DoorbellMode::Auto, DoorbellMode::Doorbell]
        .map(|doorbell| Setup { init: QpInit { doorbell, ..QpInit::default() }, ..Setup::default() });
    let mut sides: Vec<_> = (0..5).map(|i| looped(&card, &ctx, &setups[i % 2])).collect();
    for round in 0..4 {
        for side in &mut sides {
            side.recv(round, 0..64);
            side.post(|list, _| {
                list.send(round, SIGNALED).unwrap().inline(&[round as u8; 40]).unwrap().finish()
            });
        }
        for side in &mut sides {
            assert_eq!([side.ok().wr_id, side.ok().wr_id], [round; 2]);
            assert_eq!(side.bytes(0, 40), [round as u8; 40]);
        }
    }
    drop(sides);
    card.assert_clean();
}

/// A device that has died: everything answers, with the reason, and soon.
fn assert_gone(ctx: &Context, side: &mut Side, gone: impl Fn(&Gone) -> bool) {
    let pd = side.pd.clone();
    let calls: [(&str, &dyn Fn() -> Option<Error>); 9] = [
        ("health", &|| ctx.health().err()),
        ("port", &|| ctx.port(1).err()),
        ("gid", &|| ctx.gid(1, 0).err()),
        ("set_port", &|| ctx.set_port(1, true).err()),
        ("special_contexts", &|| ctx.special_contexts().err()),
        ("alloc_pd", &|| ctx.alloc_pd().err()),
        ("create_cq", &|| ctx.create_cq(&CqAttr::default()).err()),
        ("alloc_mr", &|| pd.alloc_mr(64, ALL).err()),
        ("query_qp", &|| side.qp.query().err()),
    ];
    for (what, call) in calls {
        let start = Instant::now();
        let error = call().unwrap_or_else(|| panic!("{what} works on a dead device"));
        assert!(matches!(&error, Error::DeviceGone(why) if gone(why)), "{what}: {error}");
        assert!(start.elapsed() < Duration::from_secs(1), "{what} took {:?}", start.elapsed());
    }
    let error = side.qp.modify(&mlx5_direct::backend::QpModify::to(QpState::ERR)).unwrap_err();
    assert!(matches!(&error, Error::DeviceGone(why) if gone(why)), "{error}");
    // The data path has no device to ask: it neither fails nor hangs.
    side.post(|list, _| list.send(9, SIGNALED).unwrap().inline(b"void").unwrap().finish());
    assert_eq!(side.poll(), None);
}

/// A death, its undoing, and how it is told.
type Death = (&'static str, &'static str, fn(&Gone) -> bool);

#[test]
fn k7_fatal_device_error() {
    needs!(Need::Model);
    let of_firmware: fn(&Gone) -> bool =
        |gone| matches!(gone, Gone::Firmware { syndrome, .. } if *syndrome == HealthSyndrome::FW_ERR);
    let deaths: [Death; 4] = [
        ("@0 health FW_ERR", "", of_firmware),
        ("@0 gone", "@0 back", |gone| *gone == Gone::Pci),
        ("@0 hang", "", |gone| matches!(gone, Gone::HealthCounter { .. })),
        ("@0 reset", "", |gone| *gone == Gone::NicInterface(NicInterface::DISABLED)),
    ];
    for (kill, mend, gone) in deaths {
        let card = card("ports=1");
        let function = card.model().function(0).unwrap();
        let options = OpenOptions { health_interval: Duration::from_millis(20), ..OpenOptions::default() };
        let ctx = Context::open(function.clone(), options.clone()).unwrap();
        let mut side = looped(&card, &ctx, &Setup::default());
        let mut sleeper =
            ctx.create_cq(&CqAttr { events: mlx5_direct::Events::Own, ..CqAttr::default() }).unwrap();
        let asleep = Arc::new(Barrier::new(2));
        let woken = {
            let asleep = Arc::clone(&asleep);
            thread::spawn(move || {
                asleep.wait();
                (sleeper.wait(SOON), sleeper)
            })
        };
        asleep.wait();
        thread::sleep(Duration::from_millis(50));
        let died = Instant::now();
        card.model().inject(&kill.parse().unwrap());
        // Told without being asked, to those who wait for events and those who wait for completions.
        let told = event(&ctx);
        assert!(matches!(told, AsyncEvent::DeviceFatal(why) if gone(&why)), "{told:?}");
        let (woken, sleeper) = woken.join().unwrap();
        assert!(matches!(&woken, Err(Error::DeviceGone(why)) if gone(why)), "{woken:?}");
        assert!(died.elapsed() < SOON, "told after {:?}", died.elapsed());
        assert_gone(&ctx, &mut side, gone);
        // Letting go of everything does not hang either.
        let start = Instant::now();
        drop((side, sleeper));
        let closed = ctx.close();
        assert!(start.elapsed() < SOON, "took down in {:?}", start.elapsed());
        drop(closed);
        // It can be opened again: after a reset it is as new.
        card.model().inject(&mend.parse().unwrap());
        let ctx = Context::open(function, OpenOptions { reset: true, ..options }).unwrap();
        ctx.health().unwrap();
        let mut side = looped(&card, &ctx, &Setup::default());
        side.recv(1, 0..64);
        side.post(|list, _| list.send(2, SIGNALED).unwrap().inline(b"alive").unwrap().finish());
        side.ok();
        side.ok();
        assert_eq!(side.bytes(0, 5), b"alive");
    }
}

#[test]
fn l7_command_delivery_and_status_errors() {
    needs!(Need::Model);
    let card = card("ports=1");
    let ctx = open(&card, 0);
    // Every status that the interface has comes back by name, with the command and the firmware's number.
    for status in 1..=0x51u8 {
        let fails = format!("command ALLOC_PD 1 fail 0x{status:x} 0xabcd00{status:02x}");
        card.model().inject(&fails.parse().unwrap());
        let error = ctx.alloc_pd().unwrap_err();
        let Error::Command { opcode, status: told, syndrome, .. } = &error else { panic!("{error}") };
        assert_eq!(
            (*opcode, told.0, *syndrome),
            (CmdOpcode::ALLOC_PD, status, 0xabcd_0000 + u32::from(status))
        );
        let text = error.to_string();
        assert!(text.contains("ALLOC_PD") && text.contains(&format!("0xabcd00{status:02x}")), "{text}");
    }
    // And so does every status of the delivery, which firmware has no part in.
    for status in 1..0x80u8 {
        card.model().inject(&format!("command ALLOC_PD 1 undelivered 0x{status:x}").parse().unwrap());
        let error = ctx.alloc_pd().unwrap_err();
        let Error::Delivery { opcode, status: told } = &error else { panic!("{error}") };
        assert_eq!((*opcode, told.0), (CmdOpcode::ALLOC_PD, status));
        let named = told.name().is_none_or(|name| error.to_string().contains(name));
        assert!(named && error.to_string().contains("ALLOC_PD"), "{error}");
    }
    // And nothing has stayed behind.
    ctx.alloc_pd().unwrap().dealloc().map_err(|(_, error)| error).unwrap();
    card.assert_clean();
}

#[test]
fn l6_command_parallel_timeout_cancel() {
    needs!(Need::Model);
    let card = card("ports=1");
    let function = card.model().function(0).unwrap();
    let options = OpenOptions { command_timeout: Duration::from_millis(300), ..OpenOptions::default() };
    let ctx = Context::open(function, options).unwrap();
    // Many at once, out of order: each gets its own answer.
    card.model().inject(&"@0 command * last".parse().unwrap());
    let pds: HashSet<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..40).map(|_| scope.spawn(|| ctx.alloc_pd().unwrap())).collect();
        let pds: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        pds.iter().map(mlx5_direct::Pd::pdn).collect()
    });
    assert_eq!(pds.len(), 40);
    card.model().clear_faults();
    // One that never ends is given up after its deadline; the others go on.
    card.model().inject(&"@0 command ALLOC_PD * stuck".parse().unwrap());
    let start = Instant::now();
    let error = ctx.alloc_pd().unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert!(error.to_string().contains("ALLOC_PD"), "{error}");
    assert!(start.elapsed() >= Duration::from_millis(300) && start.elapsed() < SOON);
    ctx.port(1).unwrap();
    // Released, it completes late, for nobody.
    card.model().clear_faults();
    for _ in 0..100 {
        ctx.alloc_pd().unwrap();
    }
}

#[test]
fn l9_signal_during_command() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: a handler that does nothing, without SA_RESTART: system calls are interrupted.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
    let card = card("ports=1");
    let ctx = open(&card, 0);
    // SAFETY: no conditions.
    let target = unsafe { libc::pthread_self() };
    let done = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                // SAFETY: the thread lives: it waits for this one at the end of the scope.
                unsafe { libc::pthread_kill(target, libc::SIGUSR1) };
                thread::sleep(Duration::from_micros(50));
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..300 {
                ctx.port(1).unwrap();
                ctx.alloc_pd().unwrap();
            }
            // Neither is a wait cut short.
            let start = Instant::now();
            assert_eq!(ctx.next_async_event(Duration::from_millis(100)).unwrap(), None);
            assert!(start.elapsed() >= Duration::from_millis(100));
        }));
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
    card.assert_clean();
}
