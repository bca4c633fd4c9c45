//! Our driver as a client of the software ConnectX on a socket. The tests of the whole driver run over it too,
//! with `MLX5_TEST_BACKEND=vfio-user`; here is what is of this path alone.

use mlx5_direct::{
    Access, Connection, Context, Cq, CqAttr, Error, Qp, QpInit,
    backend::{
        Control,
        dma::PageSize,
        pci::{PciFunction, VfioUserFunction},
        prm::OpenOptions,
    },
    queue::Flags,
};
use mlx5_model::Model;
use mlx5_vfio_user::{Gone, Service};
use std::{
    io::ErrorKind,
    path::PathBuf,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// A card on a socket, for one client.
struct Served {
    model: Model,
    path: PathBuf,
    server: JoinHandle<Gone>,
}

impl Served {
    fn new(options: &str) -> Self {
        static N: AtomicU32 = AtomicU32::new(0);
        let n = N.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("mlx5-driver-{}-{n}", std::process::id()));
        let model = Model::new(options.parse().unwrap()).unwrap();
        let service = Service::bind(&path, &model, 0).unwrap();
        let server = thread::spawn(move || service.serve(&mut |line| eprintln!("{line}")).unwrap());
        Self { model, path, server }
    }

    fn connect(&self) -> Arc<VfioUserFunction> {
        VfioUserFunction::connect(&self.path).unwrap()
    }

    /// Waits for the server to see that its client is gone, and checks that nothing is left.
    fn end(self) {
        assert_eq!(self.server.join().unwrap(), Gone::Closed);
        assert_eq!(self.model.function(0).unwrap().dma().n_mappings(), 0);
        self.model.assert_clean();
    }
}

#[track_caller]
fn completes(cq: &mut Cq, qp: &mut Qp, wr_id: u64) {
    let start = Instant::now();
    loop {
        let mut done = cq.poll();
        if let Some(wc) = done.next() {
            wc.status().unwrap();
            assert_eq!(qp.retire(&wc).unwrap().wr_id, wr_id);
            return;
        }
        drop(done);
        assert!(start.elapsed() < Duration::from_secs(20), "request {wr_id} does not complete");
        thread::yield_now();
    }
}

#[test]
fn messages_pass_on_memory_of_files() {
    let served = Served::new("part=cx6");
    let ctx = Context::open(served.connect(), OpenOptions::default()).unwrap();
    assert_eq!(ctx.name(), format!("vfio-user:{}", served.path.display()));
    let pd = ctx.alloc_pd().unwrap();
    let mut cq = ctx.create_cq(&CqAttr::default()).unwrap();
    let mut qp = pd.create_qp(&QpInit::default(), &cq, &cq).unwrap();
    let how = Connection::default();
    let to_self = qp.address(1, None).unwrap();
    qp.connect(&to_self, &how).unwrap();
    // Not a multiple of a page, and large enough for large device pages.
    let mr = pd.alloc_mr((3 << 20) + 77, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let lease = qp.lease(&mr).unwrap();
    let len = 1 << 20;
    let bytes: Vec<u8> = (0..len).map(|at| (at * 7 / 8) as u8).collect();
    mr.write(0, &bytes);
    let mut list = qp.post_list();
    let to = mr.remote((2 << 20) + 77);
    list.rdma_write(1, to, Flags::SIGNALED).unwrap().local(lease, 0..len as u64).unwrap().finish();
    list.ring();
    completes(&mut cq, &mut qp, 1);
    let mut arrived = vec![0; len];
    mr.read((2 << 20) + 77, &mut arrived);
    assert!(arrived == bytes);
    drop((qp, cq, mr, pd));
    ctx.close().map_err(|(_, error)| error).unwrap();
    served.end();
}

#[test]
fn memory_of_the_application_is_refused() {
    let served = Served::new("");
    let ctx = Context::open(served.connect(), OpenOptions::default()).unwrap();
    let pd = ctx.alloc_pd().unwrap();
    let mut memory = vec![0_u8; 8192];
    let base = NonNull::new(memory.as_mut_ptr()).unwrap();
    // SAFETY: the memory outlives the registration, which is refused.
    let refused = unsafe { pd.reg_mr(base, memory.len(), Access::LOCAL_WRITE) }.unwrap_err();
    assert!(refused.to_string().contains("reaches memory of files only"), "{refused}");
    drop(pd);
    ctx.close().map_err(|(_, error)| error).unwrap();
    served.end();
}

#[test]
fn huge_pages_are_asked_of_the_system() {
    let served = Served::new("");
    let function = served.connect();
    assert!(function.needs_files());
    let control = mlx5_direct::backend::prm::PrmControl::open(function, &OpenOptions::default()).unwrap();
    match control.alloc_memory(4096, PageSize::Huge2M) {
        Ok(memory) => assert_eq!(memory.len_bytes(), 4096),
        Err(refused) => assert!(refused.to_string().contains("vm.nr_hugepages"), "{refused}"),
    }
    control.close().unwrap();
    drop(control);
    served.end();
}

#[test]
fn doorbells_that_cannot_be_mapped_are_told() {
    let served = Served::new("bar=trapped");
    let ctx = Context::open(served.connect(), OpenOptions::default()).unwrap();
    let refused = ctx.create_cq(&CqAttr::default()).unwrap_err().to_string();
    assert!(refused.contains("bar=mapped"), "{refused}");
    drop(ctx);
    served.end();
}

#[test]
fn nobody_serves() {
    let path = std::env::temp_dir().join(format!("mlx5-nobody-{}", std::process::id()));
    let refused = VfioUserFunction::connect(&path).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    let text = refused.to_string();
    assert!(text.contains("mlx5 model serve --socket PATH") && text.contains("mlx5-nobody"), "{text}");
}

#[test]
fn registers_of_a_server_that_is_gone_are_all_ones() {
    let served = Served::new("");
    let function = served.connect();
    function.config_write(4, &[6, 0]).unwrap();
    assert_eq!(function.bar_read32(4) >> 16, 5, "cmdif_rev");
    assert_eq!(function.n_vectors(), 16);
    let mut ids = [0; 4];
    function.config_read(0, &mut ids).unwrap();
    assert_eq!(ids, [0xb3, 0x15, 0x17, 0x10]);
    // Out of its range: refused, and the server lives.
    assert!(function.config_read(4096, &mut ids).is_err());
    assert!(function.set_irq(16, None).is_err());
    function.reset().unwrap();
    drop(function);
    served.end();
}

/// Tells the child process of `a_server_is_killed` where to listen.
const VICTIM: &str = "MLX5_TEST_VICTIM_SERVER";

#[test]
fn a_server_is_killed() {
    if let Ok(path) = std::env::var(VICTIM) {
        let model = Model::new("".parse().unwrap()).unwrap();
        let service = Service::bind(path.as_ref(), &model, 0).unwrap();
        service.serve(&mut |line| eprintln!("{line}")).unwrap();
        return;
    }
    let path = std::env::temp_dir().join(format!("mlx5-killed-{}", std::process::id()));
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["a_server_is_killed", "--exact"])
        .env(VICTIM, &path)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let function = loop {
        match VfioUserFunction::connect(&path) {
            Ok(function) => break function,
            Err(error) => assert!(start.elapsed() < Duration::from_secs(20), "{error}"),
        }
        thread::sleep(Duration::from_millis(5));
    };
    let ctx = Context::open(Arc::clone(&function) as _, OpenOptions::default()).unwrap();
    let pd = ctx.alloc_pd().unwrap();
    let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let start = Instant::now();
    assert_eq!(function.bar_read32(4), u32::MAX);
    let gone = ctx.alloc_pd().unwrap_err();
    assert!(matches!(gone, Error::DeviceGone(_)), "{gone}");
    drop((mr, pd, ctx));
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    std::fs::remove_file(path).unwrap();
}
