//! The libc calls that are interposed, under libc's names. Each looks whether it concerns the device, and if not calls libc's own.
//!
//! The device's descriptor is one of `/dev/zero`: a character device, as libibverbs checks, of the number 1:5,
//! which it compares with sysfs.
#![expect(unreachable_pub, reason = "the linker reaches them")]

use crate::{command::Command, device::Device, real::real};
use std::{
    collections::BTreeMap,
    ffi::{CStr, c_char, c_int, c_ulong, c_void},
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The device's file.
const NODE: &[u8] = b"/dev/infiniband/uverbs0";
/// What is opened in its place.
const ZERO: &CStr = c"/dev/zero";
/// `NETLINK_RDMA`: where the kernel has it, libibverbs would look for devices there and not in sysfs.
const NETLINK_RDMA: c_int = 20;

/// The open descriptors of the device.
fn devices() -> MutexGuard<'static, BTreeMap<c_int, Device>> {
    static DEVICES: Mutex<BTreeMap<c_int, Device>> = Mutex::new(BTreeMap::new());
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_device(fd: c_int) -> bool {
    devices().contains_key(&fd)
}

/// A descriptor that can be waited for, and on which nothing comes.
pub(crate) fn event_descriptor() -> Result<c_int, c_int> {
    // SAFETY: makes a descriptor, which is given away.
    match unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) } {
        -1 => Err(errno()),
        fd => Ok(fd),
    }
}

fn errno() -> c_int {
    // SAFETY: the address of this thread's errno.
    unsafe { *libc::__errno_location() }
}

/// -1, and errno.
fn failed<T: From<i8>>(error: c_int) -> T {
    // SAFETY: the address of this thread's errno.
    unsafe { *libc::__errno_location() = error };
    T::from(-1)
}

/// Whether a path is the device's.
///
/// # Safety
/// `path` is a C string or null.
unsafe fn is_node(path: *const c_char) -> bool {
    // SAFETY: promised by the caller.
    !path.is_null() && unsafe { CStr::from_ptr(path) }.to_bytes() == NODE
}

macro_rules! opens {
    ($( $name:ident, $c_name:literal, ($($mode:ident: $ty:ty)?); )*) => { $(
        #[doc = concat!("libc's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, flags: c_int $(, $mode: $ty)?) -> c_int {
            // SAFETY: libc's contract: a C string.
            let ours = unsafe { is_node(path) };
            let path = if ours { ZERO.as_ptr() } else { path };
            let fd = real!($c_name, fn(*const c_char, c_int $(, $ty)?) -> c_int, path, flags $(, $mode)?);
            if ours && fd >= 0 {
                devices().insert(fd, Device::default());
            }
            fd
        }
    )* };
}

// `open` is variadic: an argument that the caller did not pass is an unspecified register, handed on as it is.
opens! {
    open, c"open", (mode: libc::mode_t);
    open64, c"open64", (mode: libc::mode_t);
    __open_2, c"__open_2", ();
    __open64_2, c"__open64_2", ();
}

macro_rules! paths {
    ($( $name:ident, $c_name:literal, $argument:ident: $ty:ty; )*) => { $(
        #[doc = concat!("libc's `", stringify!($name), "`: the device is there.")]
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, $argument: $ty) -> c_int {
            // SAFETY: libc's contract: a C string.
            let path = if unsafe { is_node(path) } { ZERO.as_ptr() } else { path };
            real!($c_name, fn(*const c_char, $ty) -> c_int, path, $argument)
        }
    )* };
}

paths! {
    stat, c"stat", into: *mut libc::stat;
    stat64, c"stat64", into: *mut libc::stat64;
    access, c"access", mode: c_int;
}

/// libc's `close`: what a program has closed is gone.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    devices().remove(&fd);
    real!(c"close", fn(c_int) -> c_int, fd)
}

/// libc's `socket`: there is no RDMA in the kernel's netlink.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if domain == libc::AF_NETLINK && protocol == NETLINK_RDMA {
        return failed(libc::EPROTONOSUPPORT);
    }
    real!(c"socket", fn(c_int, c_int, c_int) -> c_int, domain, kind, protocol)
}

/// libc's `ioctl`: a kernel without that interface.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if is_device(fd) {
        return failed(libc::ENOTTY);
    }
    real!(c"ioctl", fn(c_int, c_ulong, *mut c_void) -> c_int, fd, request, argument)
}

/// libc's `write`: a command.
///
/// # Safety
/// As libc's; what is written to the device is a command whose response address may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, from: *const c_void, len: usize) -> isize {
    let mut devices = devices();
    let Some(device) = devices.get_mut(&fd) else {
        drop(devices);
        return real!(c"write", fn(c_int, *const c_void, usize) -> isize, fd, from, len);
    };
    // SAFETY: libc's contract: `len` bytes to read.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast(), len) };
    let done = Command::parse(bytes).and_then(|command| {
        let reply = device.execute(&command)?;
        // SAFETY: the caller's promise.
        unsafe { command.answer(&reply) };
        Ok(())
    });
    match done {
        Ok(()) => len as isize,
        Err(error) => failed(error),
    }
}

macro_rules! mmaps {
    ($($name:ident, $c_name:literal;)*) => { $(
        #[doc = concat!("libc's `", stringify!($name), "`: of the device, a UAR page that is ordinary memory.")]
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            at: *mut c_void, len: usize, protection: c_int, flags: c_int, fd: c_int, offset: i64,
        ) -> *mut c_void {
            let ours = fd >= 0 && is_device(fd);
            if ours && !is_uar(offset) {
                return ptr::without_provenance_mut(failed::<isize>(libc::EINVAL) as usize);
            }
            let (flags, fd, offset) = match ours {
                // Private: a child that is traced rings no register of its parent's.
                true => (flags & !libc::MAP_SHARED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
                false => (flags, fd, offset),
            };
            // Registers are written only, but libmlx5 maps them so; what looks at them needs to read.
            let protection = if ours { protection | libc::PROT_READ } else { protection };
            real!(
                $c_name, fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void,
                at, len, protection, flags, fd, offset
            )
        }
    )* };
}

mmaps! {
    mmap, c"mmap";
    mmap64, c"mmap64";
}

/// Whether the offset's command is that of a UAR page: regular, write-combining or not cached.
fn is_uar(offset: i64) -> bool {
    // `MLX5_IB_MMAP_CMD_SHIFT` counts from the page number.
    matches!(offset >> (12 + 8) & 0xff, 0 | 2 | 3)
}
