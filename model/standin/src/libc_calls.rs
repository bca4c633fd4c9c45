//! The libc calls that are interposed, under libc's names. Each looks whether it concerns the card, and if not calls libc's own.
//!
//! The variadic ones (`open`, `openat`, `ioctl`) are taken with their last argument always there: on the
//! machines that this runs on, an argument that the caller did not pass is an unspecified register, which is
//! handed on as it is.
#![expect(unreachable_pub, reason = "the linker reaches them")]

use crate::{
    card::{self, Kind},
    device, ioctls, listing, physical,
    real::real,
    sysfs::{self, Node},
};
use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};

/// Result of a call: -1 and errno for an error.
fn answer<T: From<i8>>(result: Result<T, c_int>) -> T {
    result.unwrap_or_else(|errno| {
        // SAFETY: the address of this thread's errno.
        unsafe { *libc::__errno_location() = errno };
        T::from(-1)
    })
}

/// The card's part of a path, if it has one.
///
/// # Safety
/// `path` is a C string or null.
unsafe fn node(path: *const c_char) -> Option<Node> {
    // SAFETY: promised by the caller.
    sysfs::node(unsafe { CStr::from_ptr(std::ptr::NonNull::new(path.cast_mut())?.as_ptr()) })
}

macro_rules! opens {
    ($( $name:ident, $c_name:literal, ($($before:ident: $ty:ty,)*), ($($after:ident: $after_ty:ty),*); )*) => { $(
        #[doc = concat!("libc's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($before: $ty,)* path: *const c_char, flags: c_int, $($after: $after_ty),*) -> c_int {
            // SAFETY: libc's contract: a C string.
            if let Some(node) = unsafe { node(path) } {
                return answer(node.open());
            }
            real!($c_name, fn($($ty,)* *const c_char, c_int, $($after_ty),*) -> c_int, $($before,)* path, flags, $($after),*)
        }
    )* };
}

opens! {
    open, c"open", (), (mode: libc::mode_t);
    open64, c"open64", (), (mode: libc::mode_t);
    __open_2, c"__open_2", (), ();
    __open64_2, c"__open64_2", (), ();
    openat, c"openat", (at: c_int,), (mode: libc::mode_t);
    openat64, c"openat64", (at: c_int,), (mode: libc::mode_t);
}

/// libc's `ioctl`.
///
/// # Safety
/// As libc's: `argument` is what the request asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let Some((card, kind)) = card::kind(fd) else {
        return real!(c"ioctl", fn(c_int, c_ulong, *mut c_void) -> c_int, fd, request, argument);
    };
    // The upper half is not the kernel's to look at: some programs sign-extend the number.
    let (request, argument) = (request as u32, argument.cast::<u8>());
    if argument.is_null() && ioctls::takes_address(request) {
        return answer(Err(libc::EFAULT));
    }
    // SAFETY: libc's contract, for the kind of descriptor that this is.
    answer(unsafe {
        match kind {
            Kind::Container(container) => card.container_ioctl(&container, request, argument),
            Kind::Group(index) => card.group_ioctl(index, request, argument),
            Kind::Iommufd(iommufd) => card.iommufd_ioctl(&iommufd, request, argument),
            Kind::Pagemap | Kind::KpageFlags => Err(libc::ENOTTY),
            Kind::Device(index) => match request {
                ioctls::DEVICE_BIND_IOMMUFD => card.bind_iommufd(index, argument),
                ioctls::DEVICE_ATTACH_IOMMUFD_PT => card.attach_iommufd(index, argument),
                _ => card.devices[index].ioctl(request, argument),
            },
        }
    })
}

/// libc's `close`. What a program has closed, it no longer uses.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    let ours = card::kind(fd);
    let result = real!(c"close", fn(c_int) -> c_int, fd);
    if let Some((card, _)) = ours {
        card.settle();
    }
    result
}

macro_rules! stats {
    ($($name:ident, $c_name:literal, $ty:ty;)*) => { $(
        #[doc = concat!("libc's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, into: *mut $ty) -> c_int {
            // SAFETY: libc's contract: a C string.
            let Some(node) = (unsafe { node(path) }) else {
                return real!($c_name, fn(*const c_char, *mut $ty) -> c_int, path, into);
            };
            answer(node.mode().map(|mode| {
                // SAFETY: all-zero bytes are a valid stat.
                let mut stat: $ty = unsafe { std::mem::zeroed() };
                (stat.st_mode, stat.st_nlink, stat.st_blksize) = (mode, 1, 4096);
                // SAFETY: libc's contract: a stat to write.
                unsafe { into.write(stat) };
                0
            }))
        }
    )* };
}

stats! {
    stat, c"stat", libc::stat;
    stat64, c"stat64", libc::stat64;
}

/// libc's `readlink`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readlink(path: *const c_char, into: *mut c_char, room: usize) -> isize {
    // SAFETY: libc's contract: a C string.
    let Some(node) = (unsafe { node(path) }) else {
        return real!(c"readlink", fn(*const c_char, *mut c_char, usize) -> isize, path, into, room);
    };
    answer(node.link().map(|target| {
        let n = target.len().min(room);
        // SAFETY: libc's contract: `room` bytes to write, and `n` is not more.
        unsafe { std::ptr::copy_nonoverlapping(target.as_ptr(), into.cast(), n) };
        n as isize
    }))
}

macro_rules! fopens {
    ($($name:ident, $c_name:literal;)*) => { $(
        #[doc = concat!("libc's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
            // SAFETY: libc's contract: a C string.
            let Some(node) = (unsafe { node(path) }) else {
                return real!($c_name, fn(*const c_char, *const c_char) -> *mut libc::FILE, path, mode);
            };
            let fd: c_int = answer(node.open());
            // SAFETY: a descriptor of the caller's, and its mode, a C string.
            if fd < 0 { std::ptr::null_mut() } else { unsafe { libc::fdopen(fd, mode) } }
        }
    )* };
}

fopens! {
    fopen, c"fopen";
    fopen64, c"fopen64";
}

/// Reads of a descriptor that is ours.
///
/// # Safety
/// `into` has room for `len` bytes.
unsafe fn read(fd: c_int, into: *mut c_void, len: usize, offset: i64) -> Option<Result<isize, c_int>> {
    let (card, kind) = card::kind(fd)?;
    // SAFETY: promised by the caller.
    let into = || unsafe { std::slice::from_raw_parts_mut(into.cast(), len) };
    let read = match kind {
        Kind::Device(index) => card.devices[index].read(into(), offset),
        Kind::Pagemap => physical::read_pagemap(into(), offset),
        Kind::KpageFlags => physical::read_flags(into(), offset),
        _ => return None,
    };
    Some(read.map(|n| n as isize))
}

macro_rules! preads {
    ($($name:ident, $c_name:literal;)*) => { $(
        #[doc = concat!("libc's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, into: *mut c_void, len: usize, offset: i64) -> isize {
            // SAFETY: libc's contract: `len` bytes to write.
            if let Some(read) = unsafe { read(fd, into, len, offset) } {
                return answer(read);
            }
            real!($c_name, fn(c_int, *mut c_void, usize, i64) -> isize, fd, into, len, offset)
        }
    )* };
}

preads! {
    pread, c"pread";
    pread64, c"pread64";
}

macro_rules! pwrites {
    ($($name:ident, $c_name:literal;)*) => { $(
        #[doc = concat!("libc's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, from: *const c_void, len: usize, offset: i64) -> isize {
            if let Some((card, Kind::Device(index))) = card::kind(fd) {
                // SAFETY: libc's contract: `len` bytes to read.
                let from = unsafe { std::slice::from_raw_parts(from.cast(), len) };
                return answer(card.devices[index].write(from, offset).map(|n| n as isize));
            }
            real!($c_name, fn(c_int, *const c_void, usize, i64) -> isize, fd, from, len, offset)
        }
    )* };
}

pwrites! {
    pwrite, c"pwrite";
    pwrite64, c"pwrite64";
}

macro_rules! checked_preads {
    ($($name:ident, $c_name:literal;)*) => { $(
        #[doc = concat!("libc's `", stringify!($name), "`, which `_FORTIFY_SOURCE` calls.")]
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            fd: c_int,
            into: *mut c_void,
            len: usize,
            offset: i64,
            room: usize,
        ) -> isize {
            // SAFETY: libc's contract: `len` bytes to write.
            if len <= room && let Some(read) = unsafe { read(fd, into, len, offset) } {
                return answer(read);
            }
            real!(
                $c_name, fn(c_int, *mut c_void, usize, i64, usize) -> isize,
                fd, into, len, offset, room
            )
        }
    )* };
}

checked_preads! {
    __pread_chk, c"__pread_chk";
    __pread64_chk, c"__pread64_chk";
}

macro_rules! mmaps {
    ($($name:ident, $c_name:literal;)*) => { $(
        #[doc = concat!("libc's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            addr: *mut c_void,
            len: usize,
            protection: c_int,
            flags: c_int,
            fd: c_int,
            offset: i64,
        ) -> *mut c_void {
            let map = |protection| real!(
                $c_name, fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void,
                addr, len, protection, flags, fd, offset
            );
            if physical::concerns(flags) {
                return physical::map(len, protection, flags).unwrap_or_else(|errno| {
                    let _: c_int = answer(Err(errno));
                    libc::MAP_FAILED
                });
            }
            let ours = if fd >= 0 { card::kind(fd) } else { None };
            let Some((card, Kind::Device(index))) = ours else { return map(protection) };
            let device = &card.devices[index];
            let mapped = device.may_map(offset, len, flags).and_then(|()| {
                let base = map(protection);
                if base != libc::MAP_FAILED && protection & libc::PROT_WRITE != 0 {
                    // SAFETY: just mapped, inside BAR0.
                    unsafe { device.mapped(base.cast(), len, offset as u64)? };
                }
                Ok(base)
            });
            mapped.unwrap_or_else(|errno| {
                let _: c_int = answer(Err(errno));
                libc::MAP_FAILED
            })
        }
    )* };
}

mmaps! {
    mmap, c"mmap";
    mmap64, c"mmap64";
}

/// libc's `opendir`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn opendir(path: *const c_char) -> *mut c_void {
    // SAFETY: libc's contract: a C string.
    let Some(node) = (unsafe { node(path) }) else {
        return real!(c"opendir", fn(*const c_char) -> *mut c_void, path);
    };
    node.names().map(listing::open).unwrap_or_else(|errno| {
        let _: c_int = answer(Err(errno));
        std::ptr::null_mut()
    })
}

macro_rules! readdirs {
    ($($name:ident, $c_name:literal;)*) => { $(
        #[doc = concat!("libc's `", stringify!($name), "`: one type for both, on 64-bit machines.")]
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(dir: *mut c_void) -> *mut libc::dirent64 {
            if listing::is_ours(dir) {
                // SAFETY: libc's contract: open, and used by one thread at a time.
                return unsafe { listing::next(dir) };
            }
            real!($c_name, fn(*mut c_void) -> *mut libc::dirent64, dir)
        }
    )* };
}

readdirs! {
    readdir, c"readdir";
    readdir64, c"readdir64";
}

/// libc's `closedir`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closedir(dir: *mut c_void) -> c_int {
    if listing::is_ours(dir) {
        // SAFETY: libc's contract: open, and not used again.
        unsafe { listing::close(dir) };
        return 0;
    }
    real!(c"closedir", fn(*mut c_void) -> c_int, dir)
}

/// libc's `munmap`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(addr: *mut c_void, len: usize) -> c_int {
    device::MAPPINGS.unmapped(addr.addr(), len);
    physical::unmapped(addr.addr(), len);
    real!(c"munmap", fn(*mut c_void, usize) -> c_int, addr, len)
}
