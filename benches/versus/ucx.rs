//! UCX's way to send a short active message: `uct_ep_am_short` of the transport `rc_mlx5`, which has WQEs of its own.
//!
//! The structures are those of `uct/api/uct.h` and `tl.h`, of version 1.13, as far as they are used.

use crate::{measure::Contender, rival::eyes::Queues};
use mlx5_direct::wqe::SendOpcode;
use std::{
    cell::RefCell,
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    hint::black_box,
    ptr,
    rc::Rc,
};

type Handle = *mut c_void;

/// `uct_iface_ops_t`, with which an interface begins, as places of what is called.
const EP_AM_SHORT: usize = 48;
const PROGRESS_ENABLE: usize = 320;
const PROGRESS: usize = 336;
const GET_DEVICE_ADDRESS: usize = 376;
type AmShort = unsafe extern "C" fn(Handle, u8, u64, *const c_void, c_uint) -> c_int;

/// `uct_component_attr_t`, the name alone asked for (bit 0 of the mask).
#[repr(C)]
struct ComponentAttr {
    field_mask: u64,
    name: [c_char; 16],
    _rest: [u64; 3],
}

/// `uct_iface_params_t`: a device's transport by name (bits 1 and 2).
#[repr(C)]
struct IfaceParams {
    field_mask: u64,
    _cpu_mask: [u64; 16],
    open_mode: u64,
    tl_name: *const c_char,
    dev_name: *const c_char,
    _rest: [u64; 18],
}

/// `uct_ep_params_t`: of an interface (bit 0).
#[repr(C)]
struct EpParams {
    field_mask: u64,
    iface: Handle,
    _rest: [u64; 16],
}

/// A connected endpoint, and where its completions are written.
struct Ucx {
    ep: Handle,
    iface: Handle,
    queues: Queues,
    /// Counter of the WQEs when everything was retired.
    retired: u16,
}

/// `uct_ep_am_short`, which is an inline function.
#[inline(never)]
fn am_short_call(ucx: &mut Ucx, id: u8, header: u64, data: &[u8; 8]) {
    // SAFETY: an endpoint begins with its interface, and that with its functions.
    let status = unsafe {
        let iface = ucx.ep.cast::<Handle>().read();
        operation::<AmShort>(iface, EP_AM_SHORT)(ucx.ep, id, header, data.as_ptr().cast(), 8)
    };
    assert_eq!(status, 0, "uct_ep_am_short");
}

/// A contender, or nothing where UCX is not installed or has another version.
pub fn am_short() -> Option<Contender> {
    // SAFETY: the libraries of these names are UCX's.
    let ucx = match unsafe { open() } {
        Ok(ucx) => Rc::new(RefCell::new(ucx)),
        Err(error) => {
            eprintln!("Without UCX (apt install libucx0): {error}");
            return None;
        }
    };
    let a = Rc::clone(&ucx);
    Some(Contender {
        who: "UCX am_short",
        entry: am_short_call as *const () as usize,
        prepare: Box::new(move |_| a.borrow_mut().retire()),
        run: Box::new(move |calls| {
            let ucx = &mut *ucx.borrow_mut();
            for _ in 0..calls {
                am_short_call(ucx, 1, 0x1234, black_box(&[7; 8]));
            }
        }),
    })
}

type Done<T> = Result<T, String>;

/// A library, for the life of the process.
fn load(name: &CStr) -> Done<Handle> {
    // SAFETY: a C string. Initialisers of these libraries only set up themselves.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if library.is_null() { Err(format!("{} is not here", name.to_string_lossy())) } else { Ok(library) }
}

/// A function of a library.
///
/// # Safety
/// `F` is its type.
unsafe fn function<F: Copy>(library: Handle, name: &CStr) -> Done<F> {
    const { assert!(size_of::<F>() == size_of::<Handle>()) };
    // SAFETY: a library or `RTLD_DEFAULT`, and a C string.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    if found.is_null() {
        return Err(format!("no {}", name.to_string_lossy()));
    }
    // SAFETY: promised by the caller.
    Ok(unsafe { std::mem::transmute_copy(&found) })
}

fn done(what: &str, status: c_int) -> Done<()> {
    if status == 0 { Ok(()) } else { Err(format!("{what}: status {status}")) }
}

/// An endpoint that is connected to itself.
///
/// # Safety
/// The libraries are UCX's.
unsafe fn open() -> Done<Ucx> {
    let (ucp, ucs, uct) = (load(c"libucp.so.0")?, load(c"libucs.so.0")?, load(c"libuct.so.0")?);
    // SAFETY: UCX's functions, of the types that its headers give them; every result goes to a place of its type, and
    // nothing is ever freed.
    unsafe {
        let (mut major, mut minor, mut release) = (0, 0, 0);
        function::<unsafe extern "C" fn(&mut c_uint, &mut c_uint, &mut c_uint)>(ucp, c"ucp_get_version")?(
            &mut major,
            &mut minor,
            &mut release,
        );
        if (major, minor) != (1, 13) {
            return Err(format!("version {major}.{minor}, where 1.13 is known"));
        }
        type Make<A> = unsafe extern "C" fn(A, *mut Handle) -> c_int;
        let mut async_context = ptr::null_mut();
        // `UCS_ASYNC_MODE_POLL`.
        done("async", function::<Make<c_int>>(ucs, c"ucs_async_context_create")?(3, &mut async_context))?;
        let mut worker = ptr::null_mut();
        type WorkerCreate = unsafe extern "C" fn(Handle, c_int, *mut Handle) -> c_int;
        // `UCS_THREAD_MODE_SINGLE`.
        done("worker", function::<WorkerCreate>(uct, c"uct_worker_create")?(async_context, 0, &mut worker))?;
        let ib = component(uct)?;

        let null = ptr::null::<c_char>();
        let (mut config, mut md) = (ptr::null_mut(), ptr::null_mut());
        type ConfigRead = unsafe extern "C" fn(Handle, *const c_char, *const c_char, *mut Handle) -> c_int;
        done("config", function::<ConfigRead>(uct, c"uct_md_config_read")?(ib, null, null, &mut config))?;
        type Open = unsafe extern "C" fn(Handle, *const c_char, Handle, *mut Handle) -> c_int;
        done("device", function::<Open>(uct, c"uct_md_open")?(ib, c"mlx5_0".as_ptr(), config, &mut md))?;

        let transport = c"rc_mlx5".as_ptr();
        type IfaceConfig =
            unsafe extern "C" fn(Handle, *const c_char, *const c_char, *const c_char, *mut Handle) -> c_int;
        let read = function::<IfaceConfig>(uct, c"uct_md_iface_config_read")?;
        done("config of rc_mlx5", read(md, transport, null, null, &mut config))?;
        let params = IfaceParams {
            field_mask: 1 << 1 | 1 << 2,
            _cpu_mask: [0; 16],
            open_mode: 1,
            tl_name: transport,
            dev_name: c"mlx5_0:1".as_ptr(),
            _rest: [0; 18],
        };
        let mut iface = ptr::null_mut();
        type IfaceOpen = unsafe extern "C" fn(Handle, Handle, &IfaceParams, Handle, *mut Handle) -> c_int;
        done(
            "rc_mlx5",
            function::<IfaceOpen>(uct, c"uct_iface_open")?(md, worker, &params, config, &mut iface),
        )?;
        // `UCT_PROGRESS_SEND`.
        operation::<unsafe extern "C" fn(Handle, c_uint)>(iface, PROGRESS_ENABLE)(iface, 1);

        let mut ep = ptr::null_mut();
        let params = EpParams { field_mask: 1, iface, _rest: [0; 16] };
        done("endpoint", function::<Make<&EpParams>>(uct, c"uct_ep_create")?(&params, &mut ep))?;
        // More than any address takes.
        let (mut device_address, mut ep_address) = ([0u8; 64], [0u8; 64]);
        type Address = unsafe extern "C" fn(Handle, *mut u8) -> c_int;
        let address = operation::<Address>(iface, GET_DEVICE_ADDRESS);
        done("device's address", address(iface, device_address.as_mut_ptr()))?;
        let address = function::<Address>(uct, c"uct_ep_get_address")?;
        done("endpoint's address", address(ep, ep_address.as_mut_ptr()))?;
        type Connect = unsafe extern "C" fn(Handle, *const u8, *const u8) -> c_int;
        let connect = function::<Connect>(uct, c"uct_ep_connect_to_ep")?;
        done("connect", connect(ep, device_address.as_ptr(), ep_address.as_ptr()))?;

        let queues = Queues::newest().ok_or("no queue pair was made")?;
        Ok(Ucx { ep, iface, queues, retired: 0 })
    }
}

/// The component `ib`.
///
/// # Safety
/// `uct` is UCX's.
unsafe fn component(uct: Handle) -> Done<Handle> {
    // SAFETY: as in `open`.
    unsafe {
        let (mut components, mut n) = (ptr::null_mut::<Handle>(), 0);
        type QueryAll = unsafe extern "C" fn(*mut *mut Handle, *mut c_uint) -> c_int;
        done("components", function::<QueryAll>(uct, c"uct_query_components")?(&mut components, &mut n))?;
        type Query = unsafe extern "C" fn(Handle, &mut ComponentAttr) -> c_int;
        let query = function::<Query>(uct, c"uct_component_query")?;
        for i in 0..n as usize {
            let component = components.add(i).read();
            let mut attr = ComponentAttr { field_mask: 1, name: [0; 16], _rest: [0; 3] };
            done("component", query(component, &mut attr))?;
            if CStr::from_ptr(attr.name.as_ptr()) == c"ib" {
                return Ok(component);
            }
        }
        Err("it has no InfiniBand".into())
    }
}

/// A function of an interface.
///
/// # Safety
/// `iface` is one, and `F` is the type of what is at `place`.
unsafe fn operation<F: Copy>(iface: Handle, place: usize) -> F {
    // SAFETY: promised by the caller.
    unsafe { iface.cast::<u8>().add(place).cast::<F>().read() }
}

impl Ucx {
    /// Completes and retires everything sent.
    fn retire(&mut self) {
        let pi = self.queues.send_counter();
        if pi == self.retired {
            return;
        }
        self.retired = pi;
        self.queues.complete(pi.wrapping_sub(1), SendOpcode::SEND);
        // SAFETY: an interface.
        let n =
            unsafe { operation::<unsafe extern "C" fn(Handle) -> c_uint>(self.iface, PROGRESS)(self.iface) };
        assert_eq!(n, 1, "UCX takes the completion");
    }
}
