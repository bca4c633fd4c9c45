//! The libc calls that are interposed, under libc's names. Each looks whether it concerns the device, and if not calls libc's own.
//!
//! The device's descriptor is one of `/dev/zero`: a character device, as libibverbs checks, of the number 1:5,
//! which it compares with sysfs.
#![expect(unreachable_pub, reason = "the linker reaches them")]

use crate::{
    backed::{self, Context},
    command::Command,
    idle::Idle,
    real::real,
};
use std::{
    collections::BTreeMap,
    ffi::{CStr, c_char, c_int, c_ulong, c_void},
    os::fd::AsRawFd,
    ptr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The devices' files, less the number.
const NODES: &[u8] = b"/dev/infiniband/uverbs";
/// What is opened in its place.
const ZERO: &CStr = c"/dev/zero";
/// Bytes of a UAR page.
const UAR_BYTES: usize = 4096;
/// `NETLINK_RDMA`: where the kernel has it, libibverbs would look for devices there and not in sysfs.
const NETLINK_RDMA: c_int = 20;

/// What an open descriptor of the device is.
enum Device {
    /// Numbers only.
    Idle(Box<Idle>),
    /// A function of a software card.
    Backed(Arc<Context>),
}

/// The open descriptors of the device.
fn devices() -> MutexGuard<'static, BTreeMap<c_int, Device>> {
    static DEVICES: Mutex<BTreeMap<c_int, Device>> = Mutex::new(BTreeMap::new());
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_device(fd: c_int) -> bool {
    devices().contains_key(&fd)
}

/// The open device with a card behind it.
fn context(fd: c_int) -> Option<Arc<Context>> {
    match devices().get(&fd)? {
        Device::Backed(context) => Some(Arc::clone(context)),
        Device::Idle(_) => None,
    }
}

/// A descriptor that can be waited for, and on which nothing comes.
pub(crate) fn event_descriptor() -> Result<c_int, c_int> {
    // SAFETY: makes a descriptor, which is given away.
    match unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) } {
        -1 => Err(errno()),
        fd => Ok(fd),
    }
}

pub(crate) fn errno() -> c_int {
    // SAFETY: the address of this thread's errno.
    unsafe { *libc::__errno_location() }
}

/// -1, and errno.
fn failed<T: From<i8>>(error: c_int) -> T {
    // SAFETY: the address of this thread's errno.
    unsafe { *libc::__errno_location() = error };
    T::from(-1)
}

/// Which device's file a path is.
///
/// # Safety
/// `path` is a C string or null.
unsafe fn node(path: *const c_char) -> Option<usize> {
    if path.is_null() {
        return None;
    }
    // SAFETY: promised by the caller.
    match unsafe { CStr::from_ptr(path) }.to_bytes().strip_prefix(NODES)? {
        [digit @ b'0'..=b'9'] => Some(usize::from(digit - b'0')),
        _ => None,
    }
}

/// Opens device `index` behind a descriptor.
fn opened(index: usize, fd: c_int) -> Result<(), c_int> {
    // A card that is brought up opens and writes by itself: not under the lock.
    let device = match backed::card::is_wanted() {
        true => Device::Backed(Context::open(index)?),
        false => Device::Idle(Box::default()),
    };
    let before = devices().insert(fd, device);
    drop(before);
    Ok(())
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
            let ours = unsafe { node(path) };
            let path = if ours.is_some() { ZERO.as_ptr() } else { path };
            let fd = real!($c_name, fn(*const c_char, c_int $(, $ty)?) -> c_int, path, flags $(, $mode)?);
            match ours.filter(|_| fd >= 0).map_or(Ok(()), |index| opened(index, fd)) {
                Ok(()) => fd,
                Err(error) => {
                    real!(c"close", fn(c_int) -> c_int, fd);
                    failed(error)
                }
            }
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
            let path = if unsafe { node(path) }.is_some() { ZERO.as_ptr() } else { path };
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
    // What ends with it closes descriptors itself: not under the lock.
    let gone = devices().remove(&fd);
    drop(gone);
    backed::events::closed(fd);
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
    if !devices.contains_key(&fd) {
        drop(devices);
        return real!(c"write", fn(c_int, *const c_void, usize) -> isize, fd, from, len);
    }
    // SAFETY: libc's contract: `len` bytes to read.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast(), len) };
    let done = Command::parse(bytes).and_then(|command| {
        let reply = match devices.get_mut(&fd) {
            Some(Device::Idle(device)) => device.execute(&command)?,
            Some(Device::Backed(context)) => {
                let context = Arc::clone(context);
                // The card writes to descriptors itself.
                drop(devices);
                context.execute(&command)?
            }
            None => return Err(libc::EBADF),
        };
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
            if ours && let Some(context) = context(fd) {
                let map = |fd: c_int, offset: u64| real!(
                    $c_name, fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void,
                    at, len, protection, flags, fd, offset as i64
                );
                return map_uar(&context, len, offset, map).unwrap_or_else(|error| {
                    ptr::without_provenance_mut(failed::<isize>(error) as usize)
                });
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

/// Maps a UAR page of the card.
fn map_uar(
    context: &Context,
    len: usize,
    offset: i64,
    map: impl FnOnce(c_int, u64) -> *mut c_void,
) -> Result<*mut c_void, c_int> {
    if len != UAR_BYTES {
        return Err(libc::EINVAL);
    }
    let at = context.uar_offset((offset >> 12 & 0xff) as usize)?;
    let host = context.host();
    let base = map(host.function.bar_fd().as_raw_fd(), at);
    if base == libc::MAP_FAILED {
        return Err(errno());
    }
    // SAFETY: a page of the BAR, just mapped.
    unsafe { backed::uar::mapped(host, base.cast(), len, at)? };
    Ok(base)
}

/// libc's `munmap`: of a page whose stores are trapped, they are no more.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(at: *mut c_void, len: usize) -> c_int {
    backed::uar::MAPPINGS.unmapped(at.addr(), len);
    real!(c"munmap", fn(*mut c_void, usize) -> c_int, at, len)
}

/// Whether the offset's command is that of a UAR page: regular, write-combining or not cached.
fn is_uar(offset: i64) -> bool {
    // `MLX5_IB_MMAP_CMD_SHIFT` counts from the page number.
    matches!(offset >> (12 + 8) & 0xff, 0 | 2 | 3)
}
