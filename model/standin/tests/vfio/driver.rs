//! This project's own driver over VFIO, in a process that has the stand-in.

use crate::rig::{is_inside, on_card, on_host};
use mlx5_direct::{
    Access, Connection, Context, Cq, CqAttr, Error, Events, Mr, Qp, QpInit,
    backend::{
        pci::{VfioApi, VfioFunction, VfioOptions},
        prm::OpenOptions,
    },
    device::{self, DeviceName},
    host::Host,
    queue::{Flags, Lease},
};
use std::{
    fs::{self, File},
    ptr::NonNull,
    time::{Duration, Instant},
};

pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
pub(crate) const FIRST: &str = "vfio:0000:01:00.0";
const SECOND: &str = "vfio:0000:01:00.1";

pub(crate) fn open(name: &str) -> Result<Context, Error> {
    name.parse::<DeviceName>()?.open(&OpenOptions::default())
}

/// One end of a connection.
pub(crate) struct End {
    pub(crate) qp: Qp,
    pub(crate) cq: Cq,
    mr: Mr,
    pub(crate) lease: Lease,
}

impl End {
    fn new(context: &Context, events: bool) -> Self {
        let pd = context.alloc_pd().expect("pd");
        let events = if events { Events::Own } else { Events::None };
        let cq = context.create_cq(&CqAttr { n_cqes: 64, events, ..CqAttr::default() }).expect("cq");
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        // Several pages, which need not lie beside each other for the device.
        let mr = pd.alloc_mr(1 << 20, access).expect("mr");
        let mut qp = pd.create_qp(&QpInit::default(), &cq, &cq).expect("qp");
        let lease = qp.lease(&mr).expect("lease");
        Self { qp, cq, mr, lease }
    }

    pub(crate) fn pair(on: [&Context; 2], events: bool) -> [Self; 2] {
        let mut ends = on.map(|context| Self::new(context, events));
        let how = Connection::default();
        let addresses = ends.each_ref().map(|end| end.qp.address(1, None).expect("address"));
        ends[0].qp.connect(&addresses[1], &how).expect("connect");
        ends[1].qp.connect(&addresses[0], &how).expect("connect");
        ends
    }

    /// The next completion, which must be without error.
    fn done(&mut self, events: bool) -> u64 {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let mut poll = self.cq.poll();
            if let Some(wc) = poll.next() {
                wc.status().expect("success");
                return self.qp.retire(&wc).expect("ours").wr_id;
            }
            drop(poll);
            assert!(Instant::now() < deadline, "no completion");
            if events {
                self.cq.wait(DEADLINE).expect("wait");
            }
        }
    }
}

/// SEND, WRITE and READ of messages that begin and end inside pages.
pub(crate) fn traffic(on: [&Context; 2], events: bool) {
    const LEN: u64 = 300_001;
    let [mut a, mut b] = End::pair(on, events);
    let message: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
    a.mr.write(17, &message);
    let arrived = |end: &End, at: usize| {
        let mut bytes = vec![0; LEN as usize];
        end.mr.read(at, &mut bytes);
        bytes == message
    };

    b.qp.post_recv(7, &[b.lease.slice(4099..4099 + LEN)]).expect("post_recv");
    let mut list = a.qp.post_list();
    list.send(1, Flags::SIGNALED).expect("room").local(a.lease, 17..17 + LEN).expect("range").finish();
    list.ring();
    assert_eq!((a.done(events), b.done(events)), (1, 7));
    assert!(arrived(&b, 4099));

    b.mr.write(4099, &[0; LEN as usize]);
    let far = b.mr.remote(4099);
    let mut list = a.qp.post_list();
    let write = list.rdma_write(2, far, Flags::SIGNALED).expect("room");
    write.local(a.lease, 17..17 + LEN).expect("range").finish();
    list.ring();
    assert_eq!(a.done(events), 2);
    assert!(arrived(&b, 4099));

    a.mr.write(17, &[0; LEN as usize]);
    let mut list = a.qp.post_list();
    let read = list.rdma_read(3, far, Flags::SIGNALED).expect("room");
    read.local(a.lease, 17..17 + LEN).expect("range").finish();
    list.ring();
    assert_eq!(a.done(events), 3);
    assert!(arrived(&a, 17));
}

pub(crate) fn clean(said: &str) -> bool {
    is_inside() || said.ends_with("model: 0 violations\n")
}

/// RC on one function, by polling and by MSI-X; twice, so that what is left behind would show.
#[test]
fn rc_over_vfio() {
    let said = on_card("driver::rc_over_vfio", "", || {
        for events in [false, true] {
            let context = open(FIRST).expect("open");
            assert_eq!(context.name(), FIRST);
            traffic([&context, &context], events);
            context.close().map_err(|(_, error)| error).expect("close");
        }
    });
    assert!(clean(&said), "{said}");
}

/// Both functions of a card, each in its own group, with Ethernet ports that no kernel driver has set up.
#[test]
fn two_functions_over_vfio() {
    let said = on_card("driver::two_functions_over_vfio", "ports=2", || {
        let contexts = [FIRST, SECOND].map(|name| open(name).expect("open"));
        for context in &contexts {
            let port = context.port(1).expect("port");
            assert_eq!(port.state, mlx5_direct::backend::PortState::Active);
            assert!(port.roce_enabled && context.gid(1, 1).is_ok(), "{port:?}");
        }
        assert_ne!(contexts[0].port(1).expect("port").mac, contexts[1].port(1).expect("port").mac);
        traffic([&contexts[0], &contexts[1]], true);
        let listed = device::list(&Host::default()).expect("list");
        let names: Vec<_> =
            listed.iter().filter_map(|device| Some(device.name.as_ref()?.to_string())).collect();
        assert!(
            names.iter().any(|name| name == FIRST) && names.iter().any(|name| name == SECOND),
            "{names:?}"
        );
    });
    assert!(clean(&said), "{said}");
}

/// Functions of one group share its address space, each with its part of the addresses, and the group stays open
/// until the last of them is gone.
#[test]
fn one_group_two_functions() {
    let said = on_host("driver::one_group_two_functions", "ports=2", "groups=one", || {
        let contexts = [FIRST, SECOND].map(|name| open(name).expect("open"));
        traffic([&contexts[0], &contexts[1]], false);
        let [first, second] = contexts;
        drop(first);
        traffic([&second, &second], true);
        let again = open(FIRST).expect("open again");
        traffic([&again, &second], false);
    });
    assert!(clean(&said), "{said}");
}

/// By iommufd: one function; both, each with an address space of its own; both in one group, and one space.
#[test]
fn by_iommufd() {
    for host in ["iommufd=on", "iommufd=on,groups=one"] {
        let said = on_host("driver::by_iommufd", "ports=2", host, || {
            let by_iommufd = VfioOptions { api: VfioApi::Iommufd, ..VfioOptions::default() };
            let open = |address: &str| {
                let function =
                    VfioFunction::open(address.parse().expect("address"), &by_iommufd).expect("open");
                Context::open(function, OpenOptions::default()).expect("bring-up")
            };
            for _ in 0..2 {
                let contexts = ["0000:01:00.0", "0000:01:00.1"].map(open);
                traffic([&contexts[0], &contexts[1]], true);
                refused(SECOND, &["this process has 0000:01:00.1 open already"]);
                let [first, second] = contexts;
                drop(first);
                traffic([&second, &second], false);
            }
        });
        assert!(clean(&said), "{said}");
    }
}

/// No-IOMMU mode: physical addresses, of huge pages that do not lie in a row.
#[test]
fn without_iommu() {
    const NAMES: [&str; 2] = ["vfio-noiommu:0000:01:00.0", "vfio-noiommu:0000:01:00.1"];
    let said = on_host("driver::without_iommu", "ports=2", "iommu=none", || {
        // Only if asked for by name.
        refused(FIRST, &["no-IOMMU group 5555", "past all protection", NAMES[0]]);
        let listed = device::list(&Host::default()).expect("list");
        let names: Vec<_> =
            listed.iter().filter_map(|device| Some(device.name.as_ref()?.to_string())).collect();
        assert!(NAMES.iter().all(|name| names.iter().any(|listed| listed == name)), "{names:?}");
        for events in [false, true] {
            let contexts = NAMES.map(|name| open(name).expect("open"));
            assert_eq!(contexts[0].name(), NAMES[0]);
            traffic([&contexts[0], &contexts[1]], events);
            let [first, second] = contexts;
            first.close().map_err(|(_, error)| error).expect("close");
            traffic([&second, &second], events);
        }
    });
    assert!(clean(&said), "{said}");
}

/// Memory that may move is not given to a card that no IOMMU stands before.
#[test]
fn without_iommu_only_huge_pages() {
    let said = on_host("driver::without_iommu_only_huge_pages", "", "iommu=none", || {
        let context = open("vfio-noiommu:0000:01:00.0").expect("open");
        let pd = context.alloc_pd().expect("pd");
        let mut memory = vec![0_u8; 1 << 16];
        let base = NonNull::new(memory.as_mut_ptr()).expect("memory");
        // SAFETY: it is refused, and outlives the call.
        let error =
            unsafe { pd.reg_mr(base, memory.len(), Access::LOCAL_WRITE) }.expect_err("must be refused");
        for word in ["not in a huge page", "alloc_mr"] {
            assert!(error.to_string().contains(word), "`{word}` is not in: {error}");
        }
        traffic([&context, &context], false);
    });
    assert!(clean(&said), "{said}");
}

#[test]
fn without_iommu_no_huge_pages() {
    on_host("driver::without_iommu_no_huge_pages", "", "iommu=none,hugepages=0", || {
        let text = open("vfio-noiommu:0000:01:00.0").expect_err("must be refused").to_string();
        assert!(text.contains("vm.nr_hugepages"), "{text}");
    });
}

/// Without being asked for: chosen where it is, and its errors are as clear as the group's.
#[test]
fn iommufd_is_chosen() {
    let said = on_host("driver::iommufd_is_chosen", "", "iommufd=on", || {
        let context = open(FIRST).expect("open");
        // The group's file is the same device's.
        let group = File::options().read(true).write(true).open("/dev/vfio/5555").expect("group");
        let links: Vec<_> = fs::read_dir("/proc/self/fd").expect("descriptors").collect();
        let targets = links.into_iter().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        let n_iommufd = targets.filter(|target| target.to_string_lossy().contains("mlx5-iommufd")).count();
        // The program's, and the stand-in's own.
        assert_eq!(n_iommufd, 2);
        drop((group, context));
    });
    assert!(clean(&said), "{said}");
}

/// A device that is open, or whose group another process has, says so.
#[test]
fn l_one_owner() {
    on_card("driver::l_one_owner", "", || {
        let context = open(FIRST).expect("open");
        refused(FIRST, &["this process has 0000:01:00.0 open already"]);
        drop(context);
        open(FIRST).expect("closed means free");
    });
}

/// What the driver says to a computer that is not set up.
#[track_caller]
fn refused(name: &str, words: &[&str]) {
    let error = open(name).expect_err("must be refused");
    assert!(matches!(error, Error::Host { .. }), "{error:?}");
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
}

macro_rules! misuse {
    ($($name:ident: $host:literal, $device:expr, $words:expr;)*) => { $(
        #[test]
        fn $name() {
            on_host(concat!("driver::", stringify!($name)), "", $host, || refused($device, &$words));
        }
    )* };
}

misuse! {
    bound_to_the_kernel_driver: "driver=mlx5_core", FIRST,
        ["is bound to mlx5_core, not to vfio-pci", "drivers/mlx5_core/unbind", "drivers_probe"];
    bound_to_nothing: "driver=none", FIRST, ["bound to no driver", "driver_override"];
    no_mlx5_device: "vendor=8086", FIRST, ["8086:1017", "not an mlx5 device", "mlx5 list"];
    nothing_there: "", SECOND, ["there is no PCI function 0000:01:00.1"];
    iommu_off: "iommu=off", FIRST, ["no IOMMU group", "intel_iommu=on"];
    group_busy: "group=busy", FIRST, ["/dev/vfio/5555 does not open", "Device or resource busy", "fuser -v"];
    group_denied: "group=denied", FIRST, ["/dev/vfio/5555 does not open", "Permission denied", "chown"];
    file_denied: "iommufd=on,group=denied", FIRST, ["/dev/vfio/devices/vfio0 does not open", "chown"];
    file_busy: "iommufd=on,group=busy", FIRST, ["/dev/vfio/devices/vfio0 does not open", "fuser -v"];
    noiommu_with_iommu: "", "vfio-noiommu:0000:01:00.0", ["is in IOMMU group 5555", "vfio:0000:01:00.0"];
    noiommu_off: "iommu=off", "vfio-noiommu:0000:01:00.0", ["no group of no-IOMMU mode", "enable_unsafe_noiommu_mode"];
    group_not_viable: "viable=no", FIRST, ["group 5555 of 0000:01:00.0 is not viable", "vfio-pci"];
}

/// Locked memory is limited: the error has the numbers. What had been mapped is unmapped.
#[test]
fn tiny_memlock() {
    for host in ["memlock=65536", "memlock=65536,iommufd=on"] {
        on_host("driver::tiny_memlock", "", host, tiny_memlock_says);
    }
}

fn tiny_memlock_says() {
    let text = open(FIRST).expect_err("must be refused").to_string();
    for word in ["for DMA", "Cannot allocate memory", "the limit is", "ulimit -l"] {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
    // Nothing stays behind: it fails at the same place again.
    assert_eq!(open(FIRST).expect_err("again").to_string(), text);
}
