//! Pretend descriptors. Every one is a memfd, so that `dup`, `close`, `mmap` and `fcntl` need no help, and is known by
//! its inode, whatever copies of it there are. One descriptor of each inode is ours, so that none is used twice.

use std::{
    ffi::{CStr, c_int},
    fs, io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd},
};

/// Device and number of an inode.
pub(crate) type Inode = (u64, u64);

/// A new descriptor of an empty file.
pub(crate) fn memfd(name: &CStr) -> Result<OwnedFd, c_int> {
    // SAFETY: the name is a C string; the result is checked.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(errno_of(&io::Error::last_os_error()));
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The inode behind a descriptor, if it is open.
pub(crate) fn inode(fd: RawFd) -> Option<Inode> {
    // SAFETY: all-zero bytes are a valid stat.
    let mut stat: libc::stat64 = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is ours to write; any descriptor number may be asked for.
    let result = unsafe { libc::fstat64(fd, &mut stat) };
    (result == 0).then_some((stat.st_dev, stat.st_ino))
}

/// A copy for the program to own.
pub(crate) fn give_away(fd: BorrowedFd<'_>) -> Result<RawFd, c_int> {
    let copy = fd.try_clone_to_owned().map_err(|error| errno_of(&error))?;
    Ok(copy.into_raw_fd())
}

/// Whether the program has a copy of `fd`, which is our own.
pub(crate) fn is_given_away(fd: BorrowedFd<'_>) -> bool {
    let Some(ours) = inode(fd.as_raw_fd()) else { return false };
    let Ok(open) = fs::read_dir("/proc/self/fd") else {
        // Nobody can tell: it counts as open, which is what a program that never closes anything gets.
        return true;
    };
    let numbers = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok());
    numbers.filter(|&number| number != fd.as_raw_fd()).any(|number| inode(number) == Some(ours))
}

/// The errno in an error of the operating system.
pub(crate) fn errno_of(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(libc::EIO)
}
