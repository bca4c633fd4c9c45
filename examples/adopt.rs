//! A program that has made everything by libibverbs already, device, domain, memory, completion queue and queue pair, and
//! posts and polls by this crate's rings. `cargo run --example adopt -- mlx5_0`.

use mlx5_direct::{
    Connection, Context, Pd,
    backend::{
        Control,
        verbs::{
            VerbsControl,
            ffi::{IBV_QPT_RC, IbvContext, IbvCq, IbvDevice, IbvMr, IbvPd, IbvQp, IbvQpCap, IbvQpInitAttr},
        },
    },
    doorbell::DoorbellMode,
    mlx5::ids::{Lkey, Rkey},
    queue::{Flags, Rc, Remote, Sge},
};
use std::{
    error::Error,
    ffi::{CStr, CString, c_char, c_int, c_void},
    io, mem,
    ptr::{self, NonNull},
    sync::Arc,
    time::{Duration, Instant},
};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const ALL_BUT_ATOMICS: c_int = 1 | 2 | 4;

/// A function of libibverbs.
///
/// # Safety
/// `F` is the type that `infiniband/verbs.h` gives it.
unsafe fn function<F: Copy>(name: &str) -> Outcome<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let c_name = CString::new(name)?;
    // SAFETY: strings that end with 0.
    let address = unsafe {
        let library = libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_NOW);
        if library.is_null() { ptr::null_mut() } else { libc::dlsym(library, c_name.as_ptr()) }
    };
    if address.is_null() {
        return Err(format!("no {name} in libibverbs.so.1 (apt install libibverbs1)").into());
    }
    // SAFETY: a function of this name, of the type that the caller promises; sizes are equal.
    Ok(unsafe { mem::transmute_copy(&address) })
}

fn made<T>(what: &str, pointer: *mut T) -> Outcome<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(|| format!("{what}: {}", io::Error::last_os_error()).into())
}

/// What the program has made by verbs. Nothing of it is ours.
struct Application {
    context: NonNull<IbvContext>,
    pd: NonNull<IbvPd>,
    mr: NonNull<IbvMr>,
    cq: NonNull<IbvCq>,
    qp: NonNull<IbvQp>,
}

impl Application {
    fn new(device: &str, memory: &mut [u8]) -> Outcome<Self> {
        type Devices = unsafe extern "C" fn(*mut c_int) -> *mut *mut IbvDevice;
        type CreateCq =
            unsafe extern "C" fn(*mut IbvContext, c_int, *mut c_void, *mut c_void, c_int) -> *mut IbvCq;
        type RegMr = unsafe extern "C" fn(*mut IbvPd, *mut c_void, usize, c_int) -> *mut IbvMr;
        // SAFETY: the functions have these types; their arguments are objects made before, and memory that lives longer.
        unsafe {
            let devices: Devices = function("ibv_get_device_list")?;
            let name: unsafe extern "C" fn(*mut IbvDevice) -> *const c_char =
                function("ibv_get_device_name")?;
            let open: unsafe extern "C" fn(*mut IbvDevice) -> *mut IbvContext = function("ibv_open_device")?;
            let alloc_pd: unsafe extern "C" fn(*mut IbvContext) -> *mut IbvPd = function("ibv_alloc_pd")?;
            let (reg_mr, create_cq): (RegMr, CreateCq) =
                (function("ibv_reg_mr")?, function("ibv_create_cq")?);
            let create_qp: unsafe extern "C" fn(*mut IbvPd, *mut IbvQpInitAttr) -> *mut IbvQp =
                function("ibv_create_qp")?;

            let mut n = 0;
            let list = made("ibv_get_device_list", devices(&raw mut n))?;
            let mut all = (0..n as usize).map(|at| *list.as_ptr().add(at));
            let found = all.find(|found| CStr::from_ptr(name(*found)).to_bytes() == device.as_bytes());
            let context = made("ibv_open_device", open(found.ok_or("no such device")?))?;
            let pd = made("ibv_alloc_pd", alloc_pd(context.as_ptr()))?;
            let mr = reg_mr(pd.as_ptr(), memory.as_mut_ptr().cast(), memory.len(), ALL_BUT_ATOMICS);
            let cq = create_cq(context.as_ptr(), 64, ptr::null_mut(), ptr::null_mut(), 0);
            let cq = made("ibv_create_cq", cq)?;
            let cap = IbvQpCap {
                max_send_wr: 16,
                max_recv_wr: 16,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 64,
            };
            let mut attr = IbvQpInitAttr {
                qp_context: ptr::null_mut(),
                send_cq: cq.as_ptr(),
                recv_cq: cq.as_ptr(),
                srq: ptr::null_mut(),
                cap,
                qp_type: IBV_QPT_RC,
                sq_sig_all: 0,
            };
            let qp = made("ibv_create_qp", create_qp(pd.as_ptr(), &raw mut attr))?;
            Ok(Self { context, pd, mr: made("ibv_reg_mr", mr)?, cq, qp })
        }
    }

    /// Destroys all of it, which nobody else has.
    fn end(self) -> Outcome {
        // SAFETY: the functions have these types; users go before what they use.
        unsafe {
            let steps = [
                ("ibv_destroy_qp", self.qp.cast::<c_void>()),
                ("ibv_destroy_cq", self.cq.cast()),
                ("ibv_dereg_mr", self.mr.cast()),
                ("ibv_dealloc_pd", self.pd.cast()),
                ("ibv_close_device", self.context.cast()),
            ];
            for (name, object) in steps {
                let end: unsafe extern "C" fn(*mut c_void) -> c_int = function(name)?;
                let result = end(object.as_ptr());
                if result != 0 {
                    return Err(format!("{name}: {}", io::Error::from_raw_os_error(result)).into());
                }
            }
        }
        Ok(())
    }
}

fn main() -> Outcome {
    let device = std::env::args().nth(1).ok_or("usage: adopt DEVICE")?;
    // libmlx5 reads it when a queue pair is made: no payload in CQEs.
    // SAFETY: no other thread runs yet.
    unsafe { std::env::set_var("MLX5_SCATTER_TO_CQE", "0") };
    let mut memory = vec![0_u8; 8192];
    memory[..16].copy_from_slice(b"all made by them");
    let start = memory.as_ptr().expose_provenance() as u64;
    let made = Application::new(&device, &mut memory)?;
    // SAFETY: it is registered.
    let (lkey, rkey) = unsafe { (Lkey::new(made.mr.as_ref().lkey), Rkey::new(made.mr.as_ref().rkey)) };
    {
        // SAFETY: what is taken in lives until the end of this block, was not used, and is used here alone.
        let control: Arc<VerbsControl> = unsafe { VerbsControl::import(made.context)? };
        let ctx = Context::on(Arc::clone(&control) as Arc<dyn Control>);
        // SAFETY: as above.
        let (pd, mut cq) = unsafe {
            (Pd::adopt(&ctx, control.import_pd(made.pd)?), ctx.adopt_cq(control.import_cq(made.cq)?))
        };
        // SAFETY: as above.
        let mut qp = unsafe { pd.adopt_qp::<Rc>(control.import_qp(made.qp)?, DoorbellMode::Auto, &cq, &cq)? };
        let same = control.raw_context() == made.context
            && control.raw_pd(pd.pdn())? == made.pd
            && control.raw_cq(cq.cqn())? == made.cq
            && control.raw_qp(qp.qpn())? == made.qp;
        println!("queue pair {} taken in; handed out again, all pointers are theirs: {same}", qp.qpn());
        // Connected to itself, and a message by each of two ways: their memory by their keys.
        let own = qp.address(1, None)?;
        qp.connect(&own, &Connection::default())?;
        let half = Sge { lkey, addr: start + 4096, len_bytes: 4096 };
        // SAFETY: `memory` is registered, and is not touched before the completions.
        unsafe { qp.post_recv_raw(1, &[half])? };
        let mut list = qp.post_list();
        // SAFETY: as above.
        unsafe {
            let there = Remote { addr: start + 1024, rkey };
            list.rdma_write(2, there, Flags::NONE)?.sge(lkey, start, 16)?.finish();
            list.send(3, Flags::SIGNALED)?.sge(lkey, start, 16)?.finish();
        }
        list.ring();
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut done = Vec::new();
        while done.len() < 2 {
            if let Some(completion) = cq.poll().next() {
                completion.status()?;
                done.push(qp.retire(&completion)?.wr_id);
            }
            if Instant::now() > deadline {
                return Err("no completion within 10 s".into());
            }
        }
        done.sort_unstable();
        println!("requests {done:?} are done, by our rings");
    }
    // What is taken in is forgotten, and not destroyed.
    made.end()?;
    let [written, received] = [1024, 4096].map(|at| String::from_utf8_lossy(&memory[at..at + 16]));
    println!("written {written:?}, received {received:?}");
    Ok(())
}
