//! What programs read of the card outside `/dev/vfio`: a folder of sysfs for each function, as
//! `/sys/bus/pci/devices/0000:01:00.0`. A real device of that address is not seen.

use crate::{
    card, complain, descriptor,
    host::{Host, Translation, host},
};
use mlx5_direct::mlx5::pci::VENDOR_ID;
use std::{
    ffi::{CStr, c_int},
    fs::{self, File},
    io::{Seek, Write},
    os::fd::{IntoRawFd, RawFd},
};

/// Group of function 0; the next function has the next number.
const FIRST_GROUP: u32 = 5555;
const DEVICES: &str = "/sys/bus/pci/devices";
const GROUPS: &str = "/sys/kernel/iommu_groups/";
const VFIO: &str = "/dev/vfio/";
const IOMMUFD: &str = "/dev/iommu";
const PAGEMAP: &str = "/proc/self/pagemap";
const KPAGEFLAGS: &str = "/proc/kpageflags";

/// PCI address of function `index`.
pub(crate) fn address(index: usize) -> String {
    format!("0000:01:00.{index}")
}

fn group(host: &Host, index: usize) -> u32 {
    if host.one_group { FIRST_GROUP } else { FIRST_GROUP + index as u32 }
}

/// A path that is ours.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// `/dev/vfio/vfio`.
    Container,
    /// `/dev/vfio/N`, by function.
    Group(usize),
    /// `/dev/iommu`.
    Iommufd,
    /// `/dev/vfio/devices/vfioN`, by function.
    Cdev(usize),
    /// `/proc/self/pagemap` in no-IOMMU mode, and `/proc/kpageflags`.
    Pagemap,
    KpageFlags,
    /// The folder of a function.
    Folder,
    /// A folder that can be listed, and what is in it.
    Listing(Vec<String>),
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
    if path == IOMMUFD {
        return host().is_ok_and(|host| host.iommufd).then_some(Node::Iommufd);
    }
    if path == PAGEMAP || path == KPAGEFLAGS {
        let node = if path == PAGEMAP { Node::Pagemap } else { Node::KpageFlags };
        return host().is_ok_and(|host| host.iommu == Translation::NoIommu).then_some(node);
    }
    if !path.starts_with(VFIO) && !path.starts_with(DEVICES) && !path.starts_with(GROUPS) {
        return None;
    }
    // Options that are wrong are complained of by the open that follows.
    let config = card::config().cloned().unwrap_or_default();
    let host = host().cloned().unwrap_or_default();
    let n_functions = usize::from(config.ports);
    if let Some(name) = path.strip_prefix(VFIO) {
        if name == "vfio" {
            return Some(Node::Container);
        }
        if let Some(index) = name.strip_prefix("devices/vfio") {
            let index = index.parse().ok().filter(|index| *index < n_functions)?;
            return host.iommufd.then_some(Node::Cdev(index));
        }
        let name = match host.iommu {
            Translation::Iommu => name,
            Translation::NoIommu => name.strip_prefix("noiommu-")?,
            Translation::Off => return None,
        };
        let index = name.parse::<u32>().ok()?.checked_sub(FIRST_GROUP)? as usize;
        let n_groups = if host.one_group { 1 } else { n_functions };
        return (index < n_groups).then_some(Node::Group(index));
    }
    if let Some(path) = path.strip_prefix(GROUPS) {
        let (number, name) = path.split_once('/')?;
        let number = number.parse::<u32>().ok()?;
        let has_groups = host.iommu != Translation::Off;
        let members = (0..n_functions).filter(|index| has_groups && group(&host, *index) == number);
        let members: Vec<_> = members.map(address).collect();
        return match name {
            _ if members.is_empty() => None,
            "devices" => Some(Node::Listing(members)),
            "name" if host.iommu == Translation::NoIommu => Some(Node::File("vfio-noiommu\n".into())),
            _ => None,
        };
    }
    let path = path.strip_prefix(DEVICES)?;
    if path.is_empty() {
        return Some(Node::Listing((0..n_functions).map(address).chain(others()).collect()));
    }
    let path = path.strip_prefix('/')?;
    let (folder, name) = path.split_once('/').unwrap_or((path, ""));
    let index = folder.strip_prefix("0000:01:00.")?.parse::<usize>().ok()?;
    if index >= n_functions {
        return Some(Node::Missing);
    }
    let hex = |value: u16| Node::File(format!("0x{value:04x}\n"));
    let text = |text: &str| Node::File(format!("{text}\n"));
    // rdma-core asks for `FOLDER//vendor`.
    Some(match name.trim_start_matches('/') {
        "" => Node::Folder,
        "vendor" | "subsystem_vendor" => hex(host.vendor.unwrap_or(VENDOR_ID)),
        "device" => hex(config.part.device_id()),
        "class" => text("0x020000"),
        "current_link_speed" | "max_link_speed" => text("16.0 GT/s PCIe"),
        "current_link_width" | "max_link_width" => text("16"),
        "iommu_group" if host.iommu != Translation::Off => {
            Node::Link(format!("../../../kernel/iommu_groups/{}", group(&host, index)))
        }
        "vfio-dev" if host.iommufd => Node::Listing(vec![format!("vfio{index}")]),
        "subsystem" => Node::Link("../../../bus/pci".into()),
        "driver" => match &host.driver {
            Some(driver) => Node::Link(format!("../../../bus/pci/drivers/{driver}")),
            None => Node::Missing,
        },
        _ => Node::Missing,
    })
}

/// The functions that the computer has besides.
fn others() -> Vec<String> {
    // With a dot behind it, the path is not one that is ours.
    let Ok(entries) = fs::read_dir(format!("{DEVICES}/.")) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| !name.starts_with("0000:01:00.")).collect()
}

impl Node {
    /// Opens it.
    pub(crate) fn open(&self) -> Result<RawFd, c_int> {
        match self {
            Self::Container => card::open()?.open_container(),
            Self::Group(index) => card::open()?.open_group(*index),
            Self::Iommufd => card::open()?.open_iommufd(),
            Self::Cdev(index) => card::open()?.open_cdev(*index),
            Self::Pagemap => card::open()?.open_physical(0),
            Self::KpageFlags => card::open()?.open_physical(1),
            Self::File(text) => {
                let mut file = File::from(descriptor::memfd(c"mlx5-sysfs")?);
                let written = file.write_all(text.as_bytes()).and_then(|()| file.rewind());
                written.map_err(|error| descriptor::errno_of(&error))?;
                Ok(file.into_raw_fd())
            }
            Self::Folder | Self::Link(_) | Self::Listing(_) => {
                complain(
                    "a folder of the card's part of /sys was opened by number, and can be listed by opendir only",
                );
                Err(libc::ENOTSUP)
            }
            Self::Missing => Err(libc::ENOENT),
        }
    }

    /// Kind and permissions, as `stat` gives them: links are followed.
    pub(crate) fn mode(&self) -> Result<libc::mode_t, c_int> {
        match self {
            Self::Container | Self::Group(_) | Self::Iommufd | Self::Cdev(_) => Ok(libc::S_IFCHR | 0o600),
            Self::Folder | Self::Link(_) | Self::Listing(_) => Ok(libc::S_IFDIR | 0o755),
            Self::File(_) | Self::Pagemap | Self::KpageFlags => Ok(libc::S_IFREG | 0o444),
            Self::Missing => Err(libc::ENOENT),
        }
    }

    /// What is in a folder.
    pub(crate) fn names(&self) -> Result<Vec<String>, c_int> {
        match self {
            Self::Listing(names) => Ok(names.clone()),
            Self::Folder => {
                Ok(["class", "device", "driver", "iommu_group", "vendor"].map(String::from).into())
            }
            Self::Missing => Err(libc::ENOENT),
            _ => Err(libc::ENOTDIR),
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
