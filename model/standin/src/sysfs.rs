//! What programs read of the card outside `/dev/vfio`: a folder of sysfs for each function, as
//! `/sys/bus/pci/devices/0000:01:00.0`. A real device of that address is not seen.

use crate::{card, complain, descriptor};
use mlx5_direct::mlx5::pci::VENDOR_ID;
use std::{
    ffi::{CStr, c_int},
    fs::File,
    io::{Seek, Write},
    os::fd::{IntoRawFd, RawFd},
};

/// Group of function 0; the next function has the next number.
const FIRST_GROUP: u32 = 5555;
const DEVICES: &str = "/sys/bus/pci/devices/";
const VFIO: &str = "/dev/vfio/";

/// PCI address of function `index`.
pub(crate) fn address(index: usize) -> String {
    format!("0000:01:00.{index}")
}

fn group(index: usize) -> u32 {
    FIRST_GROUP + index as u32
}

/// A path that is ours.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// `/dev/vfio/vfio`.
    Container,
    /// `/dev/vfio/N`, by function.
    Group(usize),
    /// The folder of a function.
    Folder,
    /// A file in it, and what is in that.
    File(String),
    /// A symbolic link in it, and what it says.
    Link(String),
    /// Nothing: a function that this card does not have, a file that the folder does not have.
    Missing,
}

/// What a path names, if it is ours.
pub(crate) fn node(path: &CStr) -> Option<Node> {
    let path = path.to_str().ok()?;
    if !path.starts_with(VFIO) && !path.starts_with(DEVICES) {
        return None;
    }
    // Options that are wrong are complained of by the open that follows.
    let config = card::config().cloned().unwrap_or_default();
    let n_functions = usize::from(config.ports);
    if let Some(name) = path.strip_prefix(VFIO) {
        if name == "vfio" {
            return Some(Node::Container);
        }
        let index = name.parse::<u32>().ok()?.checked_sub(FIRST_GROUP)? as usize;
        return (index < n_functions).then_some(Node::Group(index));
    }
    let path = path.strip_prefix(DEVICES)?;
    let (folder, name) = path.split_once('/').unwrap_or((path, ""));
    let index = folder.strip_prefix("0000:01:00.")?.parse::<usize>().ok()?;
    if index >= n_functions {
        return Some(Node::Missing);
    }
    let hex = |value: u16| Node::File(format!("0x{value:04x}\n"));
    // rdma-core asks for `FOLDER//vendor`.
    Some(match name.trim_start_matches('/') {
        "" => Node::Folder,
        "vendor" | "subsystem_vendor" => hex(VENDOR_ID),
        "device" => hex(config.part.device_id()),
        "class" => Node::File("0x020000\n".into()),
        "iommu_group" => Node::Link(format!("../../../kernel/iommu_groups/{}", group(index))),
        "subsystem" => Node::Link("../../../bus/pci".into()),
        "driver" => Node::Link("../../../bus/pci/drivers/vfio-pci".into()),
        _ => Node::Missing,
    })
}

impl Node {
    /// Opens it.
    pub(crate) fn open(&self) -> Result<RawFd, c_int> {
        match self {
            Self::Container => card::open()?.open_container(),
            Self::Group(index) => card::open()?.open_group(*index),
            Self::File(text) => {
                let mut file = File::from(descriptor::memfd(c"mlx5-sysfs")?);
                let written = file.write_all(text.as_bytes()).and_then(|()| file.rewind());
                written.map_err(|error| descriptor::errno_of(&error))?;
                Ok(file.into_raw_fd())
            }
            Self::Folder | Self::Link(_) => {
                complain(
                    "a folder of the card's part of /sys was opened, and cannot be listed: only its files can be read",
                );
                Err(libc::ENOTSUP)
            }
            Self::Missing => Err(libc::ENOENT),
        }
    }

    /// Kind and permissions, as `stat` gives them: links are followed.
    pub(crate) fn mode(&self) -> Result<libc::mode_t, c_int> {
        match self {
            Self::Container | Self::Group(_) => Ok(libc::S_IFCHR | 0o600),
            Self::Folder | Self::Link(_) => Ok(libc::S_IFDIR | 0o755),
            Self::File(_) => Ok(libc::S_IFREG | 0o444),
            Self::Missing => Err(libc::ENOENT),
        }
    }

    /// What a symbolic link says.
    pub(crate) fn link(&self) -> Result<&str, c_int> {
        match self {
            Self::Link(target) => Ok(target),
            Self::Missing => Err(libc::ENOENT),
            _ => Err(libc::EINVAL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_one_function_card() {
        assert_eq!(node(c"/dev/vfio/vfio"), Some(Node::Container));
        assert_eq!(node(c"/dev/vfio/5555"), Some(Node::Group(0)));
        assert_eq!(node(c"/dev/vfio/5556"), None);
        assert_eq!(node(c"/dev/vfio/1"), None);
        assert_eq!(node(c"/sys/bus/pci/devices/0000:01:00.0"), Some(Node::Folder));
        assert_eq!(node(c"/sys/bus/pci/devices/0000:01:00.0/"), Some(Node::Folder));
        assert_eq!(node(c"/sys/bus/pci/devices/0000:01:00.0/vendor"), Some(Node::File("0x15b3\n".into())));
        assert_eq!(node(c"/sys/bus/pci/devices/0000:01:00.0//device"), Some(Node::File("0x1017\n".into())));
        assert_eq!(node(c"/sys/bus/pci/devices/0000:01:00.0/nothing"), Some(Node::Missing));
        assert_eq!(node(c"/sys/bus/pci/devices/0000:01:00.1/vendor"), Some(Node::Missing));
        assert_eq!(node(c"/sys/bus/pci/devices/0000:02:00.0/vendor"), None);
        let group = node(c"/sys/bus/pci/devices/0000:01:00.0/iommu_group").unwrap();
        assert!(group.link().unwrap().ends_with("/5555"));
    }
}
