//! The libc calls that are interposed, under libc's names. Each looks whether it concerns the card, and if not calls libc's own.
//!
//! The variadic ones (`open`, `openat`, `ioctl`) are taken with their last argument always there: on the
//! machines that this runs on, an argument that the caller did not pass is an unspecified register, which is
//! handed on as it is.
#![expect(unreachable_pub, reason = "the linker reaches them")]

use crate::{
    card::{self, Kind},
    real::real,
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

/// The card's part of an open, if the path is the card's.
///
/// # Safety
/// `path` is a C string.
unsafe fn open_ours(path: *const c_char) -> Option<c_int> {
    // SAFETY: promised by the caller.
    let kind = card::named(unsafe { CStr::from_ptr(path) })?;
    Some(answer(card::open(kind)))
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
            if let Some(fd) = unsafe { open_ours(path) } {
                return fd;
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
    let (request, argument) = (request as u32, argument.cast());
    // SAFETY: libc's contract, for the kind of descriptor that this is.
    answer(unsafe {
        match kind {
            Kind::Container => card.container_ioctl(request, argument),
            Kind::Group(index) => card.group_ioctl(index, request, argument),
            Kind::Device(index) => card.devices[index].ioctl(request, argument),
        }
    })
}

macro_rules! preads {
    ($($name:ident, $c_name:literal;)*) => { $(
        #[doc = concat!("libc's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, into: *mut c_void, len: usize, offset: i64) -> isize {
            if let Some((card, Kind::Device(index))) = card::kind(fd) {
                // SAFETY: libc's contract: `len` bytes to write.
                let into = unsafe { std::slice::from_raw_parts_mut(into.cast(), len) };
                return answer(card.devices[index].read(into, offset).map(|n| n as isize));
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
            if len <= room
                && let Some((card, Kind::Device(index))) = card::kind(fd)
            {
                // SAFETY: libc's contract: `len` bytes to write.
                let into = unsafe { std::slice::from_raw_parts_mut(into.cast(), len) };
                return answer(card.devices[index].read(into, offset).map(|n| n as isize));
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
            if fd >= 0
                && let Some((card, Kind::Device(index))) = card::kind(fd)
            {
                card.devices[index].mapped();
            }
            real!(
                $c_name, fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void,
                addr, len, protection, flags, fd, offset
            )
        }
    )* };
}

mmaps! {
    mmap, c"mmap";
    mmap64, c"mmap64";
}
