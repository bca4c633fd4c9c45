//! What this computer has: its PCI functions, which driver each is bound to, and limits of this process.
#![forbid(unsafe_code)]

pub mod doctor;
mod pci;

pub use pci::{NotAnAddress, PciAddress, PciDevice, PcieLink};

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// What Linux calls the groups that VFIO makes up in no-IOMMU mode.
const NOIOMMU_GROUP: &str = "vfio-noiommu";

/// The files in which Linux tells what a computer has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    root: PathBuf,
}

impl Default for Host {
    fn default() -> Self {
        Self::at("/")
    }
}

impl Host {
    /// Files below another root. Devices are not opened there.
    #[doc(hidden)]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where the file is that Linux has at `path`, which begins with a slash.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The text of a file, without white space around it; `None` if it is not there or not readable.
    pub fn text(&self, path: &str) -> Option<String> {
        Some(fs::read_to_string(self.path(path)).ok()?.trim().to_owned())
    }

    /// The names in a folder, sorted. A folder that is not there is empty.
    pub fn names(&self, path: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.path(path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut names = Vec::new();
        for entry in entries {
            names.extend(entry?.file_name().into_string().ok());
        }
        names.sort_unstable();
        Ok(names)
    }

    /// The last part of what a symbolic link says.
    pub fn link_name(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Path::file_name(&target)?.to_str().map(str::to_owned)
    }

    /// A number after `key:` in a file as `/proc/meminfo`.
    pub fn number(&self, path: &str, key: &str) -> Option<u64> {
        let text = self.text(path)?;
        let rest = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        rest.split_whitespace().next()?.parse().ok()
    }
}
