//! The control path on the software ConnectX: what verbs promise of devices, keys and queue pairs.
//!
//! Test names are those of `tests/data/cases.csv` where a case is covered.

use mlx5_direct::{
    Error, Gone,
    backend::{
        Access, AddressVector, AsyncEvent, Control, CqParams, GidEntry, GidType, LinkLayer, MrParams,
        PortState, QpModify, QpParams,
        dma::{HostMemory, PageSize},
        prm::{OpenOptions, PrmControl},
    },
    mlx5::{
        cmd::CmdOpcode,
        context::{Mtu, QpState, ServiceType},
        ids::{Cqn, Psn, Qpn, UserIndex},
        init_segment::HealthSyndrome,
    },
};
use mlx5_model::Model;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

const SECOND: Duration = Duration::from_secs(1);

fn open(model: &Model, options: &OpenOptions) -> Arc<PrmControl> {
    PrmControl::open(model.function(0).unwrap(), options).unwrap_or_else(|error| panic!("open: {error}"))
}

fn model(make: &str) -> Model {
    Model::new(make.parse().unwrap()).unwrap()
}

/// A QP's parts that a test needs, on a device of its own.
struct Bed {
    control: Arc<PrmControl>,
    cqn: Cqn,
    params: QpParams,
}

impl Bed {
    fn new(control: Arc<PrmControl>) -> Self {
        let pd = control.alloc_pd().unwrap();
        let cq = CqParams { n_cqes: 100, cqe_bytes: 64, channel: None, ignore_overrun: false };
        let cqn = control.create_cq(&cq).unwrap().cqn;
        let params = QpParams {
            service: ServiceType::RC,
            pd,
            send_cq: cqn,
            recv_cq: cqn,
            user_index: UserIndex::new(7),
            max_send_wr: 10,
            max_recv_wr: 10,
            max_send_sge: 2,
            max_recv_sge: 3,
            max_inline_data: 0,
        };
        Self { control, cqn, params }
    }
}

fn to_init() -> QpModify {
    let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    QpModify { pkey_index: Some(0), port: Some(1), access: Some(access), ..QpModify::to(QpState::INIT) }
}

fn to_rtr(control: &PrmControl, dest: Qpn) -> QpModify {
    let gid = control.query_gid(1, 1).unwrap();
    let ah = AddressVector {
        port: 1,
        sgid_index: 1,
        dgid: gid.gid,
        dmac: gid.mac,
        dlid: 0,
        sl: 3,
        hop_limit: 64,
        traffic_class: 0x28,
        flow_label: 0x12345,
        udp_sport: Some(0xc123),
        force_loopback: false,
    };
    QpModify {
        ah: Some(ah),
        path_mtu: Some(Mtu::MTU_1024),
        dest_qp_num: Some(dest),
        rq_psn: Some(Psn::new(0xabcdef)),
        max_dest_rd_atomic: Some(3),
        min_rnr_timer: Some(12),
        ..QpModify::to(QpState::RTR)
    }
}

fn to_rts() -> QpModify {
    QpModify {
        timeout: Some(14),
        retry_cnt: Some(6),
        rnr_retry: Some(7),
        sq_psn: Some(Psn::new(0x123456)),
        max_rd_atomic: Some(2),
        ..QpModify::to(QpState::RTS)
    }
}

#[test]
fn query_device_caps() {
    let model = model("part=cx6");
    let control = open(&model, &OpenOptions::default());
    let attr = control.device_attr();
    assert_eq!((attr.vendor_id, attr.vendor_part_id, attr.phys_port_cnt), (0x15b3, 0x101b, 1));
    assert_eq!(attr.fw_ver.split('.').count(), 3, "{}", attr.fw_ver);
    assert!(attr.max_qp.is_power_of_two() && attr.max_qp_wr >= 1024 && attr.max_cqe >= 4096, "{attr:?}");
    assert!(attr.max_send_sge >= 30 && attr.max_recv_sge >= 16 && attr.atomic_cap, "{attr:?}");
    assert!(attr.node_guid != 0 && attr.bf_reg_size_bytes == 512 && !attr.board_id.is_empty(), "{attr:?}");
    assert!(control.firmware_pages() > 0);
    let before = control.read_clock().unwrap();
    std::thread::sleep(Duration::from_millis(1));
    assert!(control.read_clock().unwrap() > before);
    control.close().unwrap();
    assert_eq!(control.firmware_pages(), 0);
    model.assert_clean();
}

#[test]
fn query_port_state_mtu_speed() {
    let model = model("");
    let control = open(&model, &OpenOptions::default());
    let port = control.query_port(1).unwrap();
    assert_eq!((port.state, port.link_layer), (PortState::Active, LinkLayer::Ethernet));
    assert_eq!((port.max_mtu, port.active_mtu), (Mtu::MTU_4096, Mtu::MTU_4096));
    assert!(port.active_speed_mbps >= 25_000 && port.roce_enabled && port.mac != [0; 6], "{port:?}");
    for number in [0, 2] {
        let text = control.query_port(number).unwrap_err().to_string();
        assert_eq!(text, format!("port {number} does not exist: ports are counted from 1, and there are 1"));
    }
    assert_eq!(control.query_pkey(1, 0).unwrap(), 0xffff);
    drop(control);
    model.assert_clean();
}

#[test]
fn query_gid_table_and_types() {
    let model = model("");
    let control = open(&model, &OpenOptions::default());
    let len = control.query_port(1).unwrap().gid_tbl_len;
    assert_eq!(control.query_gid(1, 0).unwrap().gid_type, GidType::RoceV1);
    let second = control.query_gid(1, 1).unwrap();
    assert_eq!((second.gid_type, second.gid[0]), (GidType::RoceV2, 0xfe));
    let mut ipv4 = GidEntry { vlan: Some(100), ..second };
    ipv4.gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
    control.set_gid(1, 2, Some(&ipv4)).unwrap();
    assert_eq!(control.query_gid(1, 2).unwrap(), ipv4);
    assert_eq!(ipv4.ipv4(), Some([10, 0, 0, 1]));
    control.set_gid(1, 2, None).unwrap();
    for (index, rule) in [(2, "is empty"), (len, "entries, from 0")] {
        let text = control.query_gid(1, index).unwrap_err().to_string();
        assert!(text.contains(rule), "{text}");
    }
    let vlan = GidEntry { vlan: Some(4095), ..ipv4 };
    assert!(control.set_gid(1, 2, Some(&vlan)).unwrap_err().to_string().contains("4095"));
    drop(control);
    model.assert_clean();
}

#[test]
fn open_close_repeat() {
    let model = model("drive=step");
    let fds = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mut before = 0;
    for round in 0..100 {
        let control = open(&model, &OpenOptions { reset: round % 2 == 0, ..OpenOptions::default() });
        control.alloc_pd().unwrap();
        control.close().unwrap();
        assert_eq!(control.firmware_pages(), 0);
        assert!(matches!(control.alloc_pd(), Err(Error::DeviceGone(Gone::Closed))));
        drop(control);
        if round == 10 {
            before = fds();
        }
    }
    // Other tests of this program open descriptors too.
    assert!(fds() < before + 100, "{before} descriptors, now {}", fds());
    model.assert_clean();
}

#[test]
fn mr_register_sizes_alignments() {
    let model = model("drive=step");
    let control = open(&model, &OpenOptions::default());
    let pd = control.alloc_pd().unwrap();
    let before = control.free_iova_bytes();
    let pool = HostMemory::alloc(64 << 20, PageSize::Default).unwrap();
    for (offset, len) in [
        (0, 1),
        (1, 1),
        (4095, 2),
        (0, 4096),
        (123, 8192),
        (4096, 1 << 20),
        (777, (2 << 20) + 1),
        (0, 64 << 20),
    ] {
        let base = pool.base().map_addr(|base| base.saturating_add(offset));
        // SAFETY: inside the pool, which outlives the registration, and no reference to it exists.
        let memory = unsafe { HostMemory::lend(base, len) };
        for start_addr in [None, Some(0x7_0000_0000 + (base.addr().get() as u64 & 0xfff))] {
            let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
            let mr = MrParams { pd, memory: Arc::clone(&memory), access, start_addr };
            let keys = control.reg_mr(&mr).unwrap_or_else(|error| panic!("{offset} {len}: {error}"));
            assert_eq!(keys.lkey.get(), keys.rkey.get());
            control.dereg_mr(keys.lkey).unwrap();
        }
    }
    assert_eq!(control.free_iova_bytes(), before);
    let mr = MrParams { pd, memory: Arc::clone(&pool), access: Access::LOCAL_WRITE, start_addr: Some(12) };
    assert!(control.reg_mr(&mr).unwrap_err().to_string().contains("offsets in a 4 KiB page"));
    drop(control);
    model.assert_clean();
}

#[test]
fn qp_create_illegal_caps() {
    let model = model("");
    let bed = Bed::new(open(&model, &OpenOptions::default()));
    let attr = bed.control.device_attr().clone();
    let cases = [
        ("max_send_wr", QpParams { max_send_wr: attr.max_qp_wr + 1, ..bed.params.clone() }),
        ("max_recv_wr", QpParams { max_recv_wr: attr.max_qp_wr + 1, ..bed.params.clone() }),
        ("max_send_sge", QpParams { max_send_sge: attr.max_send_sge + 1, ..bed.params.clone() }),
        ("max_recv_sge", QpParams { max_recv_sge: attr.max_recv_sge + 1, ..bed.params.clone() }),
        ("max_inline_data", QpParams { max_inline_data: attr.max_inline_data + 1, ..bed.params.clone() }),
        ("completion queue", QpParams { recv_cq: Cqn::new(0xdead), ..bed.params.clone() }),
    ];
    for (limit, params) in cases {
        let text = bed.control.create_qp(&params).unwrap_err().to_string();
        assert!(text.contains(limit), "{text}");
    }
    model.assert_clean();
}

#[test]
fn qp_walk_rst_init_rtr_rts() {
    for make in ["drive=thread", "drive=step"] {
        let model = model(make);
        let bed = Bed::new(open(&model, &OpenOptions::default()));
        let control = &bed.control;
        let parts = control.create_qp(&bed.params).unwrap();
        assert!(parts.max_send_wr >= 10 && parts.max_recv_wr >= 10 && parts.max_recv_sge >= 3, "{parts:?}");
        assert_eq!(parts.sq.len_bytes(), 64 << parts.log_sq_size);
        assert_eq!(parts.rq.len_bytes(), 1 << (parts.log_rq_size + parts.log_rq_stride_bytes));
        let qpn = parts.qpn;
        assert_eq!(control.query_qp(qpn).unwrap().state, QpState::RST);
        control.modify_qp(qpn, &to_init()).unwrap();
        let again = QpModify { access: Some(Access::REMOTE_WRITE), ..QpModify::to(QpState::INIT) };
        control.modify_qp(qpn, &again).unwrap();
        assert_eq!(control.query_qp(qpn).unwrap().access, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
        let rtr = to_rtr(control, qpn);
        control.modify_qp(qpn, &rtr).unwrap();
        control.modify_qp(qpn, &to_rts()).unwrap();
        let attr = control.query_qp(qpn).unwrap();
        assert_eq!(attr.state, QpState::RTS);
        assert_eq!(Some(attr.ah), rtr.ah);
        assert_eq!((attr.path_mtu, attr.dest_qp_num), (Mtu::MTU_1024, qpn));
        assert_eq!((attr.rq_psn, attr.sq_psn), (Psn::new(0xabcdef), Psn::new(0x123456)));
        assert_eq!((attr.max_dest_rd_atomic, attr.max_rd_atomic), (4, 2));
        assert_eq!((attr.min_rnr_timer, attr.timeout), (12, 14));
        assert_eq!((attr.retry_cnt, attr.rnr_retry), (6, 7));
        let rts = QpModify { min_rnr_timer: Some(5), ..QpModify::to(QpState::RTS) };
        control.modify_qp(qpn, &rts).unwrap();
        assert_eq!(control.query_qp(qpn).unwrap().min_rnr_timer, 5);
        control.modify_qp(qpn, &QpModify::to(QpState::ERR)).unwrap();
        assert_eq!(control.query_qp(qpn).unwrap().state, QpState::ERR);
        control.modify_qp(qpn, &QpModify::to(QpState::RST)).unwrap();
        control.modify_qp(qpn, &to_init()).unwrap();
        control.destroy_qp(qpn).unwrap();
        assert!(control.destroy_qp(qpn).is_err());
        control.destroy_cq(bed.cqn).unwrap();
        control.close().unwrap();
        model.assert_clean();
    }
}

#[test]
fn qp_illegal_transitions() {
    let model = model("drive=step");
    let bed = Bed::new(open(&model, &OpenOptions::default()));
    let control = &bed.control;
    let qpn = control.create_qp(&bed.params).unwrap().qpn;
    let refused = control.modify_qp(qpn, &to_rts()).unwrap_err();
    assert!(matches!(refused, Error::Transition { from: QpState::RST, to: QpState::RTS, .. }), "{refused}");
    let incomplete = control.modify_qp(qpn, &QpModify::to(QpState::INIT)).unwrap_err();
    assert!(incomplete.to_string().contains("give pkey_index, port, access"), "{incomplete}");
    control.modify_qp(qpn, &to_init()).unwrap();
    let good = to_rtr(control, qpn);
    let ah = good.ah.unwrap();
    for (rule, bad) in [
        ("GID index 9", QpModify { ah: Some(AddressVector { sgid_index: 9, ..ah }), ..good }),
        ("MAC", QpModify { ah: Some(AddressVector { dmac: [0; 6], ..ah }), ..good }),
        ("ah.sl is 8", QpModify { ah: Some(AddressVector { sl: 8, ..ah }), ..good }),
        ("port 2", QpModify { ah: Some(AddressVector { port: 2, ..ah }), ..good }),
        ("path_mtu", QpModify { path_mtu: Some(Mtu(9)), ..good }),
        ("max_dest_rd_atomic is 255", QpModify { max_dest_rd_atomic: Some(255), ..good }),
        ("min_rnr_timer is 32", QpModify { min_rnr_timer: Some(32), ..good }),
    ] {
        let text = control.modify_qp(qpn, &bad).unwrap_err().to_string();
        assert!(text.contains(rule), "{text}");
    }
    control.modify_qp(qpn, &good).unwrap();
    model.assert_clean();
}

#[test]
fn port_change_event() {
    let model = model("");
    let control = open(&model, &OpenOptions::default());
    while control.next_async_event(Duration::from_millis(20)).unwrap().is_some() {}
    model.set_port(0, false);
    let down = control.next_async_event(SECOND).unwrap();
    assert_eq!(down, Some(AsyncEvent::PortChange { port: 1, up: false }));
    assert_eq!(control.query_port(1).unwrap().state, PortState::Down);
    model.set_port(0, true);
    assert_eq!(control.next_async_event(SECOND).unwrap(), Some(AsyncEvent::PortChange { port: 1, up: true }));
    assert_eq!(control.next_async_event(Duration::ZERO).unwrap(), None);
    control.close().unwrap();
    model.assert_clean();
}

#[test]
fn fatal_device_error() {
    let model = model("");
    let options = OpenOptions { health_interval: Duration::from_millis(20), ..OpenOptions::default() };
    let control = open(&model, &options);
    control.health().unwrap();
    let channel = control.create_comp_channel().unwrap();
    while control.next_async_event(Duration::from_millis(20)).unwrap().is_some() {}
    let waiting = std::thread::spawn(move || channel.wait(Duration::from_secs(30)));
    std::thread::sleep(Duration::from_millis(50));
    model.inject(&"@0 health HW_UNRECOVERABLE_ERR".parse().unwrap());
    let start = Instant::now();
    let told = waiting.join().unwrap().unwrap_err();
    assert!(
        matches!(told, Error::DeviceGone(Gone::Firmware { syndrome, .. })
        if syndrome == HealthSyndrome::HW_UNRECOVERABLE_ERR),
        "{told}"
    );
    assert!(start.elapsed() < SECOND);
    assert!(matches!(control.next_async_event(SECOND).unwrap(), Some(AsyncEvent::DeviceFatal(_))));
    assert!(matches!(control.alloc_pd(), Err(Error::DeviceGone(_))));
    assert!(matches!(control.health(), Err(Error::DeviceGone(_))));
    assert!(matches!(control.close(), Err(Error::DeviceGone(_))));
    assert_eq!(control.firmware_pages(), 0);
    // Reset at close: it opens again.
    let control = open(&model, &options);
    control.alloc_pd().unwrap();
    control.close().unwrap();
}

/// A command finds out long before the next look at the health, and who sleeps learns it all the same.
#[test]
fn a_death_that_a_command_finds_is_told() {
    let model = model("");
    let control = open(&model, &OpenOptions { health_interval: SECOND, ..OpenOptions::default() });
    let channel = control.create_comp_channel().unwrap();
    while control.next_async_event(Duration::from_millis(20)).unwrap().is_some() {}
    let waiting = std::thread::spawn(move || channel.wait(Duration::from_secs(30)));
    std::thread::sleep(Duration::from_millis(50));
    model.inject(&"@0 gone".parse().unwrap());
    let start = Instant::now();
    assert!(matches!(control.alloc_pd(), Err(Error::DeviceGone(Gone::Pci))));
    assert!(matches!(waiting.join().unwrap(), Err(Error::DeviceGone(Gone::Pci))));
    let told = control.next_async_event(5 * SECOND).unwrap();
    assert!(matches!(told, Some(AsyncEvent::DeviceFatal(Gone::Pci))), "{told:?}");
    assert!(start.elapsed() < 5 * SECOND, "{:?}", start.elapsed());
}

#[test]
fn device_leaves_the_bus() {
    let model = model("");
    let options = OpenOptions { health_interval: Duration::from_millis(20), ..OpenOptions::default() };
    let control = open(&model, &options);
    model.inject(&"@0 gone".parse().unwrap());
    let gone = control.alloc_pd().unwrap_err();
    assert!(matches!(gone, Error::DeviceGone(Gone::Pci)), "{gone}");
    drop(control);
    model.inject(&"@0 back".parse().unwrap());
    open(&model, &OpenOptions { reset: true, ..options }).close().unwrap();
}

#[test]
fn stuck_command_times_out_and_others_go_on() {
    let model = model("");
    let options = OpenOptions { command_timeout: Duration::from_millis(100), ..OpenOptions::default() };
    let control = open(&model, &options);
    model.inject(&"@0 command ALLOC_PD * stuck".parse().unwrap());
    for _ in 0..3 {
        let start = Instant::now();
        let late = control.alloc_pd().unwrap_err();
        assert!(matches!(late, Error::Timeout { after, .. } if after == options.command_timeout), "{late}");
        assert!(start.elapsed() < SECOND);
        control.query_port(1).unwrap();
    }
    model.clear_faults();
    let pd = control.alloc_pd().unwrap();
    control.dealloc_pd(pd).unwrap();
    // What timed out may have made protection domains that nobody knows: teardown takes them.
    control.close().unwrap();
}

#[test]
fn bring_up_that_fails_leaves_nothing_behind() {
    let steps = [
        CmdOpcode::ENABLE_HCA,
        CmdOpcode::SET_ISSI,
        CmdOpcode::MANAGE_PAGES,
        CmdOpcode::ACCESS_REG,
        CmdOpcode::QUERY_HCA_CAP,
        CmdOpcode::SET_HCA_CAP,
        CmdOpcode::INIT_HCA,
        CmdOpcode::QUERY_ADAPTER,
        CmdOpcode::ALLOC_UAR,
        CmdOpcode::CREATE_EQ,
        CmdOpcode::SET_ROCE_ADDRESS,
    ];
    let model = model("drive=step");
    for opcode in steps {
        let name = opcode.name().unwrap();
        model.inject(&format!("@0 command {name} 1 fail 0x1 0x1234").parse().unwrap());
        let failed = PrmControl::open(model.function(0).unwrap(), &OpenOptions::default()).unwrap_err();
        assert!(
            matches!(failed, Error::Command { opcode: at, syndrome: 0x1234, .. } if at == opcode),
            "{opcode}: {failed}"
        );
        let control = open(&model, &OpenOptions::default());
        control.close().unwrap();
    }
    model.assert_clean();
}

#[test]
fn page_requests_boot_init_runtime() {
    let model = model("");
    let control = open(&model, &OpenOptions::default());
    let pd = control.alloc_pd().unwrap();
    let at_start = control.firmware_pages();
    let memory = HostMemory::alloc(4096, PageSize::Default).unwrap();
    let mr = MrParams { pd, memory, access: Access::LOCAL_WRITE, start_addr: None };
    for _ in 0..2 {
        let keys: Vec<_> = (0..4000).map(|_| control.reg_mr(&mr).unwrap().lkey).collect();
        assert!(control.firmware_pages() > at_start);
        keys.into_iter().for_each(|lkey| control.dereg_mr(lkey).unwrap());
    }
    control.close().unwrap();
    assert_eq!(control.firmware_pages(), 0);
    model.assert_clean();
}

#[test]
fn pages_that_the_host_has_not() {
    let model = model("");
    let control = open(&model, &OpenOptions { max_firmware_pages: 80, ..OpenOptions::default() });
    let pd = control.alloc_pd().unwrap();
    let memory = HostMemory::alloc(4096, PageSize::Default).unwrap();
    let mr = MrParams { pd, memory, access: Access::LOCAL_WRITE, start_addr: None };
    let starved = (0..10_000).find_map(|_| control.reg_mr(&mr).err()).unwrap();
    assert!(matches!(starved, Error::Command { opcode: CmdOpcode::CREATE_MKEY, .. }), "{starved}");
    assert!(control.firmware_pages() <= 80);
    control.close().unwrap();
    let refused = OpenOptions { max_firmware_pages: 10, ..OpenOptions::default() };
    let refused = PrmControl::open(model.function(0).unwrap(), &refused).unwrap_err().to_string();
    assert!(refused.contains("the limit is 10"), "{refused}");
}

#[test]
fn signed_commands() {
    let model = model("drive=step");
    let bed = Bed::new(open(&model, &OpenOptions { command_signatures: true, ..OpenOptions::default() }));
    bed.control.create_qp(&bed.params).unwrap();
    bed.control.close().unwrap();
    model.assert_clean();
}
