//! Numbers of VFIO's ioctls. They overlap between kinds of descriptors: number 12 is IOMMU_GET_INFO of a container and
//! GET_PCI_HOT_RESET_INFO of a device.

use vfio_bindings::bindings::vfio::{VFIO_BASE, VFIO_TYPE};

const fn number(n: u32) -> u32 {
    (VFIO_TYPE as u32) << 8 | (VFIO_BASE + n)
}

pub(crate) const GET_API_VERSION: u32 = number(0);
pub(crate) const CHECK_EXTENSION: u32 = number(1);
pub(crate) const SET_IOMMU: u32 = number(2);
pub(crate) const IOMMU_GET_INFO: u32 = number(12);
pub(crate) const IOMMU_MAP_DMA: u32 = number(13);
pub(crate) const IOMMU_UNMAP_DMA: u32 = number(14);

pub(crate) const GROUP_GET_STATUS: u32 = number(3);
pub(crate) const GROUP_SET_CONTAINER: u32 = number(4);
pub(crate) const GROUP_UNSET_CONTAINER: u32 = number(5);
pub(crate) const GROUP_GET_DEVICE_FD: u32 = number(6);

pub(crate) const DEVICE_GET_INFO: u32 = number(7);
pub(crate) const DEVICE_GET_REGION_INFO: u32 = number(8);
pub(crate) const DEVICE_GET_IRQ_INFO: u32 = number(9);
pub(crate) const DEVICE_SET_IRQS: u32 = number(10);
pub(crate) const DEVICE_RESET: u32 = number(11);
pub(crate) const DEVICE_GET_PCI_HOT_RESET_INFO: u32 = number(12);
pub(crate) const DEVICE_FEATURE: u32 = number(17);
pub(crate) const DEVICE_BIND_IOMMUFD: u32 = number(18);
pub(crate) const DEVICE_ATTACH_IOMMUFD_PT: u32 = number(19);

/// Whether the argument is an address, not a number or nothing.
pub(crate) fn takes_address(request: u32) -> bool {
    !matches!(request, GET_API_VERSION | CHECK_EXTENSION | SET_IOMMU | GROUP_UNSET_CONTAINER | DEVICE_RESET)
}
