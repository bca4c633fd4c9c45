//! A program of librdmacm whose queue pairs are posted to by this crate's rings: an RDMA READ and a SEND.
//!
//! librdmacm finds the peer, makes the queue pair and moves it; the queues are ours. Both ends are in this process.
//! `cargo run --example rdma_cm -- 10.0.0.1`, with an address of an mlx5 port.

use mlx5_direct::{
    Access, Context, Cq, CqAttr, Mr, Pd, Qp,
    backend::{
        Control,
        verbs::{
            VerbsControl,
            ffi::{IBV_QPT_RC, IbvContext, IbvPd, IbvQp, IbvQpCap, IbvQpInitAttr},
        },
    },
    doorbell::DoorbellMode,
    queue::{Flags, Remote},
};
use std::{
    error::Error,
    ffi::{CString, c_int, c_void},
    io, mem,
    net::Ipv4Addr,
    ptr,
    ptr::NonNull,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const PORT: u16 = 7471;
const RDMA_PS_TCP: c_int = 0x0106;
const WAIT_MS: c_int = 5_000;

/// The head of `struct rdma_cm_id`.
#[repr(C)]
struct CmId {
    verbs: *mut IbvContext,
    channel: *mut c_void,
    context: *mut c_void,
    qp: *mut IbvQp,
}

/// The functions of librdmacm that are called. Without an event channel each waits until it is done.
#[derive(Clone, Copy)]
struct Cm {
    create_id: unsafe extern "C" fn(*mut c_void, *mut *mut CmId, *mut c_void, c_int) -> c_int,
    bind_addr: unsafe extern "C" fn(*mut CmId, *const libc::sockaddr_in) -> c_int,
    listen: unsafe extern "C" fn(*mut CmId, c_int) -> c_int,
    get_request: unsafe extern "C" fn(*mut CmId, *mut *mut CmId) -> c_int,
    resolve_addr:
        unsafe extern "C" fn(*mut CmId, *const libc::sockaddr_in, *const libc::sockaddr_in, c_int) -> c_int,
    resolve_route: unsafe extern "C" fn(*mut CmId, c_int) -> c_int,
    create_qp: unsafe extern "C" fn(*mut CmId, *mut IbvPd, *mut IbvQpInitAttr) -> c_int,
    accept: unsafe extern "C" fn(*mut CmId, *mut c_void) -> c_int,
    connect: unsafe extern "C" fn(*mut CmId, *mut c_void) -> c_int,
    disconnect: unsafe extern "C" fn(*mut CmId) -> c_int,
    destroy_qp: unsafe extern "C" fn(*mut CmId),
    destroy_id: unsafe extern "C" fn(*mut CmId) -> c_int,
}

impl Cm {
    fn load() -> Outcome<Self> {
        // SAFETY: a string that ends with 0.
        let library = unsafe { libc::dlopen(c"librdmacm.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Err("no librdmacm.so.1 (apt install librdmacm1)".into());
        }
        let find = |name: &str| -> Outcome<*mut c_void> {
            let name = CString::new(name)?;
            // SAFETY: a loaded library, and a string that ends with 0.
            let address = unsafe { libc::dlsym(library, name.as_ptr()) };
            if address.is_null() { Err(format!("librdmacm has no {name:?}").into()) } else { Ok(address) }
        };
        macro_rules! function {
            ($name:literal) => {{
                let address = find($name)?;
                // SAFETY: the function of this name has the type of the field that it is put into (rdma_cma.h).
                unsafe { mem::transmute_copy(&address) }
            }};
        }
        Ok(Self {
            create_id: function!("rdma_create_id"),
            bind_addr: function!("rdma_bind_addr"),
            listen: function!("rdma_listen"),
            get_request: function!("rdma_get_request"),
            resolve_addr: function!("rdma_resolve_addr"),
            resolve_route: function!("rdma_resolve_route"),
            create_qp: function!("rdma_create_qp"),
            accept: function!("rdma_accept"),
            connect: function!("rdma_connect"),
            disconnect: function!("rdma_disconnect"),
            destroy_qp: function!("rdma_destroy_qp"),
            destroy_id: function!("rdma_destroy_id"),
        })
    }

    fn id(&self) -> Outcome<*mut CmId> {
        let mut id = ptr::null_mut();
        // SAFETY: room for the identifier.
        check("rdma_create_id", unsafe {
            (self.create_id)(ptr::null_mut(), &raw mut id, ptr::null_mut(), RDMA_PS_TCP)
        })?;
        Ok(id)
    }
}

fn check(what: &str, result: c_int) -> Outcome {
    if result == 0 { Ok(()) } else { Err(format!("{what}: {}", io::Error::last_os_error()).into()) }
}

/// An end: the application's identifier and queue pair, and our queues on it. Ours go first.
struct End {
    qp: Qp,
    cq: Cq,
    mr: Mr,
    id: *mut CmId,
}

impl End {
    /// Makes a queue pair by librdmacm on domains and completion queues of ours, and takes it in.
    fn new(cm: Cm, id: *mut CmId) -> Outcome<Self> {
        // SAFETY: an identifier that is bound to a device, which librdmacm keeps open.
        let context = NonNull::new(unsafe { (*id).verbs }).ok_or("the address is no RDMA device's")?;
        // SAFETY: as above.
        let control: Arc<VerbsControl> = unsafe { VerbsControl::import(context)? };
        let ctx = Context::on(Arc::clone(&control) as Arc<dyn Control>);
        let pd: Pd = ctx.alloc_pd()?;
        let cq = ctx.create_cq(&CqAttr::default())?;
        let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
        let raw_cq = control.raw_cq(cq.cqn())?.as_ptr();
        let cap = IbvQpCap {
            max_send_wr: 16,
            max_recv_wr: 16,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 64,
        };
        let mut attr = IbvQpInitAttr {
            qp_context: ptr::null_mut(),
            send_cq: raw_cq,
            recv_cq: raw_cq,
            srq: ptr::null_mut(),
            cap,
            qp_type: IBV_QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: objects of this device, which live as long as the queue pair.
        check("rdma_create_qp", unsafe {
            (cm.create_qp)(id, control.raw_pd(pd.pdn())?.as_ptr(), &raw mut attr)
        })?;
        // SAFETY: made by the call before.
        let raw = NonNull::new(unsafe { (*id).qp }).ok_or("no queue pair")?;
        // SAFETY: nobody has posted to it, nor does; `main` has turned payload in CQEs off; it is destroyed after `qp`.
        let parts = unsafe { control.import_qp(raw)? };
        // SAFETY: as above.
        let mut qp = unsafe { pd.adopt_qp(parts, DoorbellMode::Auto, &cq, &cq)? };
        let lease = qp.lease(&mr)?;
        qp.post_recv(1, &[lease.slice(2048..4096)])?;
        Ok(Self { qp, cq, mr, id })
    }

    fn next(&mut self) -> Outcome<(u64, u32)> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(completion) = self.cq.poll().next() {
                completion.status()?;
                return Ok((self.qp.retire(&completion)?.wr_id, completion.byte_len()));
            }
            if Instant::now() > deadline {
                return Err("no completion within 10 s".into());
            }
            thread::yield_now();
        }
    }

    fn close(self, cm: Cm) -> Outcome {
        let Self { qp, cq, mr, id } = self;
        // SAFETY: connected; it may be that the peer was first, which is no fault.
        unsafe { (cm.disconnect)(id) };
        drop(qp);
        // SAFETY: nobody uses the queue pair any more.
        unsafe { (cm.destroy_qp)(id) };
        drop((cq, mr));
        // SAFETY: the last that is done with it.
        check("rdma_destroy_id", unsafe { (cm.destroy_id)(id) })
    }
}

fn serve(cm: Cm, at: libc::sockaddr_in, ready: mpsc::Sender<Remote>, go: mpsc::Receiver<()>) -> Outcome {
    let listener = cm.id()?;
    let mut id = ptr::null_mut();
    // SAFETY: identifiers of librdmacm, and an address that lives for the call.
    unsafe {
        check("rdma_bind_addr", (cm.bind_addr)(listener, &raw const at))?;
        check("rdma_listen", (cm.listen)(listener, 1))?;
        // The place to read is told once there is one.
        ready.send(Remote { addr: 0, rkey: mlx5_direct::mlx5::ids::Rkey::new(0) })?;
        check("rdma_get_request", (cm.get_request)(listener, &raw mut id))?;
    }
    let mut end = End::new(cm, id)?;
    end.mr.write(0, b"read through rdma_cm");
    ready.send(end.mr.remote(0))?;
    // SAFETY: a request that came.
    check("rdma_accept", unsafe { (cm.accept)(id, ptr::null_mut()) })?;
    println!("server: queue pair {} is {}", end.qp.qpn(), end.qp.refresh()?);
    let (wr_id, len) = end.next()?;
    let mut message = vec![0; len as usize];
    end.mr.read(2048, &mut message);
    println!("server: receive request {wr_id} has {:?}", String::from_utf8_lossy(&message));
    go.recv()?;
    end.close(cm)?;
    // SAFETY: the last that is done with it.
    check("rdma_destroy_id", unsafe { (cm.destroy_id)(listener) })
}

fn main() -> Outcome {
    let address: Ipv4Addr = std::env::args().nth(1).ok_or("usage: rdma_cm ADDRESS")?.parse()?;
    // libmlx5 reads it when a queue pair is made. librdmacm has no other way to say it.
    // SAFETY: no other thread runs yet.
    unsafe { std::env::set_var("MLX5_SCATTER_TO_CQE", "0") };
    let cm = Cm::load()?;
    // SAFETY: integers: zeros are values.
    let mut at: libc::sockaddr_in = unsafe { mem::zeroed() };
    at.sin_family = libc::AF_INET as libc::sa_family_t;
    at.sin_port = PORT.to_be();
    at.sin_addr.s_addr = u32::from(address).to_be();

    let (ready, places) = mpsc::channel();
    let (go, wait) = mpsc::channel();
    let server = thread::spawn(move || serve(cm, at, ready, wait).map_err(|error| error.to_string()));
    places.recv()?;
    let id = cm.id()?;
    // SAFETY: an identifier of librdmacm, and addresses that live for the calls.
    unsafe {
        check("rdma_resolve_addr", (cm.resolve_addr)(id, ptr::null(), &raw const at, WAIT_MS))?;
        check("rdma_resolve_route", (cm.resolve_route)(id, WAIT_MS))?;
    }
    let mut end = End::new(cm, id)?;
    // SAFETY: its route is known.
    check("rdma_connect", unsafe { (cm.connect)(id, ptr::null_mut()) })?;
    println!("client: queue pair {} is {}", end.qp.qpn(), end.qp.refresh()?);

    let far = places.recv()?;
    let lease = end.qp.lease(&end.mr)?;
    let mut list = end.qp.post_list();
    list.rdma_read(2, far, Flags::NONE)?.local(lease, 0..20)?.finish();
    list.send(3, Flags::SIGNALED)?.inline(b"sent by our rings")?.finish();
    list.ring();
    let (wr_id, _) = end.next()?;
    let mut data = [0; 20];
    end.mr.read(0, &mut data);
    println!("client: request {wr_id} and all before it are done: {:?}", String::from_utf8_lossy(&data));
    go.send(())?;
    end.close(cm)?;
    server.join().map_err(|_| "the server panicked")??;
    Ok(())
}
