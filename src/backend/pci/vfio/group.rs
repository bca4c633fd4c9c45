//! An IOMMU group as this process has it: functions in it share one address space, whichever way it is made.
#![forbid(unsafe_code)]

use super::{VfioApi, iommu::Iommu, problem};
use crate::{
    Error, Result,
    backend::dma::PAGE_BYTES,
    host::{Host, PciAddress, PciDevice},
};
use std::{
    fs::File,
    ops::RangeInclusive,
    sync::{Arc, Mutex, PoisonError},
};

/// A group that is open.
#[derive(Debug)]
pub(super) struct Group {
    number: u32,
    iommu: Iommu,
    ranges: Vec<RangeInclusive<u64>>,
    /// All functions in the group, sorted.
    members: Vec<PciAddress>,
}

/// The groups that this process has open, and the functions. VFIO lets a process open a group once.
static OPEN: Mutex<Vec<(Arc<Group>, Vec<PciAddress>)>> = Mutex::new(Vec::new());

/// A function's hold on its group. The last one closes it.
#[derive(Debug)]
pub(super) struct Membership {
    group: Option<Arc<Group>>,
    address: PciAddress,
}

impl Group {
    /// Opens the group together with a function of it, with which its addresses are known.
    fn open(host: &Host, device: &PciDevice, number: u32, api: VfioApi) -> Result<(Self, File)> {
        let iommu = Iommu::open(host, device, number, api)?;
        let file = iommu.device(host, device)?;
        let (ranges, page_sizes) =
            iommu.iova().map_err(|source| Error::os("asking the IOMMU for its addresses", source))?;
        if page_sizes.trailing_zeros() > PAGE_BYTES.trailing_zeros() {
            return Err(problem::large_pages(page_sizes));
        }
        let mut members: Vec<_> = device.companions(host).into_iter().map(|(address, _)| address).collect();
        members.push(device.address);
        members.sort_unstable();
        Ok((Self { number, iommu, ranges, members }, file))
    }

    /// The addresses that are `address`'s among those of the group. Each function allocates by itself, so each
    /// has a part of every range.
    fn ranges_of(&self, address: PciAddress) -> Vec<RangeInclusive<u64>> {
        let n = self.members.len() as u64;
        let Some(at) = self.members.iter().position(|member| *member == address) else { return Vec::new() };
        let part = |range: &RangeInclusive<u64>| {
            // Whole pages, and the last function has what is left over.
            let part_bytes = ((range.end() - range.start()) / n) & !(PAGE_BYTES as u64 - 1);
            let first = range.start() + part_bytes * at as u64;
            let last = if at as u64 + 1 == n { *range.end() } else { (first + part_bytes).checked_sub(1)? };
            (first <= last).then_some(first..=last)
        };
        self.ranges.iter().filter_map(part).collect()
    }
}

impl Membership {
    /// Opens a function, and its group if no other function of it is open.
    pub(super) fn open(host: &Host, device: &PciDevice, number: u32, api: VfioApi) -> Result<(Self, File)> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let address = device.address;
        let (group, file) = match open.iter_mut().find(|(group, _)| group.number == number) {
            Some((_, functions)) if functions.contains(&address) => {
                return Err(problem::opened_twice(address));
            }
            Some((group, functions)) => {
                let file = group.iommu.device(host, device)?;
                functions.push(address);
                (Arc::clone(group), file)
            }
            None => {
                let (group, file) = Group::open(host, device, number, api)?;
                let group = Arc::new(group);
                open.push((Arc::clone(&group), vec![address]));
                (group, file)
            }
        };
        Ok((Self { group: Some(group), address }, file))
    }

    /// The addresses that the function may use.
    pub(super) fn ranges(&self) -> Vec<RangeInclusive<u64>> {
        self.group().ranges_of(self.address)
    }

    /// The address space.
    pub(super) fn iommu(&self) -> &Iommu {
        &self.group().iommu
    }

    fn group(&self) -> &Group {
        self.group.as_ref().expect("held until dropped")
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // Under the lock until the group's descriptors are closed, so that nobody finds it busy who opens it next.
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(group) = self.group.take() else { return };
        for (other, functions) in open.iter_mut() {
            if Arc::ptr_eq(other, &group) {
                functions.retain(|address| *address != self.address);
            }
        }
        drop(group);
        open.retain(|(_, functions)| !functions.is_empty());
    }
}
