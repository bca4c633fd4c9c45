//! A container with one group in it: the older of VFIO's two ways, which every kernel has.

use super::{
    ioctl::{
        CHECK_EXTENSION, GET_API_VERSION, GROUP_GET_DEVICE_FD, GROUP_GET_STATUS, GROUP_SET_CONTAINER,
        SET_IOMMU, call, call_number,
    },
    problem,
};
use crate::{
    Error, Result,
    host::{Host, PciAddress, PciDevice},
};
use std::{
    ffi::CString,
    fs::{File, OpenOptions},
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd},
};
use vfio_bindings::bindings::vfio::*;

const CONTAINER: &str = "/dev/vfio/vfio";

/// What stands between a container's functions and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Translation {
    /// An IOMMU.
    Type1,
    /// Nothing.
    None,
}

/// A container and its only group.
#[derive(Debug)]
pub(super) struct Container {
    container: File,
    group: File,
}

/// Opens a file of `/dev/vfio`.
pub(super) fn open(path: &str) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

impl Container {
    /// Opens the group of `device`, and puts it into a new container.
    pub(super) fn open(
        host: &Host,
        device: &PciDevice,
        number: u32,
        translation: Translation,
    ) -> Result<Self> {
        let container = open(CONTAINER).map_err(|source| problem::open(CONTAINER, source))?;
        // SAFETY: takes nothing.
        let version = unsafe { call_number(container.as_fd(), GET_API_VERSION, 0) };
        let version = version.map_err(|source| Error::os("VFIO_GET_API_VERSION", source))?;
        if version != VFIO_API_VERSION as i32 {
            return Err(Error::host(
                format!("the kernel speaks version {version} of VFIO, this driver {VFIO_API_VERSION}"),
                "use a kernel of Linux's main line",
                None,
            ));
        }
        let (kind, path, missing): (_, _, fn(Option<io::Error>) -> Error) = match translation {
            Translation::Type1 => (VFIO_TYPE1v2_IOMMU, format!("/dev/vfio/{number}"), problem::no_type1),
            Translation::None => {
                (VFIO_NOIOMMU_IOMMU, format!("/dev/vfio/noiommu-{number}"), problem::no_noiommu)
            }
        };
        // SAFETY: takes a number.
        let has_kind = unsafe { call_number(container.as_fd(), CHECK_EXTENSION, kind) };
        if !has_kind.is_ok_and(|answer| answer > 0) {
            return Err(missing(None));
        }
        let group = open(&path).map_err(|source| problem::open(&path, source))?;
        let mut status = vfio_group_status { argsz: size_of::<vfio_group_status>() as u32, flags: 0 };
        // SAFETY: this ioctl takes a `vfio_group_status`.
        let asked = unsafe { call(group.as_fd(), GROUP_GET_STATUS, (&raw mut status).cast()) };
        asked.map_err(|source| Error::os("VFIO_GROUP_GET_STATUS", source))?;
        if status.flags & VFIO_GROUP_FLAGS_VIABLE == 0 {
            return Err(problem::not_viable(host, device, number));
        }
        let mut fd = container.as_raw_fd();
        // SAFETY: this ioctl takes the address of a descriptor's number.
        let joined = unsafe { call(group.as_fd(), GROUP_SET_CONTAINER, (&raw mut fd).cast()) };
        joined.map_err(|source| Error::os(format!("putting {path} into a container"), source))?;
        // SAFETY: takes a number.
        let chosen = unsafe { call_number(container.as_fd(), SET_IOMMU, kind) };
        chosen.map_err(|source| match source.raw_os_error() {
            Some(libc::EPERM) if translation == Translation::Type1 => problem::unsafe_interrupts(source),
            Some(libc::ENODEV) => missing(Some(source)),
            _ => Error::os("VFIO_SET_IOMMU", source),
        })?;
        Ok(Self { container, group })
    }

    /// Opens a function of the group.
    pub(super) fn device(&self, address: PciAddress) -> Result<File> {
        let name = CString::new(address.to_string()).unwrap_or_default();
        // SAFETY: this ioctl takes a C string, which it only reads.
        let fd = unsafe { call(self.group.as_fd(), GROUP_GET_DEVICE_FD, name.as_ptr().cast_mut().cast()) };
        let fd = fd.map_err(|source| problem::device(address, source))?;
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok(unsafe { File::from_raw_fd(fd) })
    }
}

impl AsFd for Container {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.container.as_fd()
    }
}
