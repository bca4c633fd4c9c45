//! The IOMMU: what may be mapped and unmapped.

use crate::rig::{READ_WRITE, Vfio, ioctl, is_inside, map, on_card, pages, unmap};
use std::os::fd::OwnedFd;
use vfio_bindings::bindings::vfio::*;

/// IOMMU_GET_INFO with room for `N` bytes.
fn info<const N: usize>(container: &OwnedFd) -> [u8; N] {
    let mut bytes = [0xeeu8; N];
    bytes[..4].copy_from_slice(&(N as u32).to_ne_bytes());
    ioctl(container, 12, &raw mut bytes).expect("IOMMU_GET_INFO");
    bytes
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// The data of capability `id`, behind its header.
fn capability(bytes: &[u8], id: u16) -> &[u8] {
    let mut at = word(bytes, 16) as usize;
    while at != 0 {
        if word(bytes, at) as u16 == id {
            return &bytes[at + 8..];
        }
        at = word(bytes, at + 4) as usize;
    }
    panic!("no capability {id}");
}

fn n_left(container: &OwnedFd) -> u32 {
    word(capability(&info::<256>(container), VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL as u16), 0)
}

#[test]
fn info_says_pages_ranges_and_how_many_are_left() {
    on_card("dma::info_says_pages_ranges_and_how_many_are_left", "", || {
        let vfio = Vfio::open();
        let container = &vfio.container;
        let small: [u8; 32] = info(container);
        let needed = word(&small, 0) as usize;
        assert!(needed > 32, "what would be needed");
        assert_eq!(word(&small, 4), VFIO_IOMMU_INFO_PGSIZES | VFIO_IOMMU_INFO_CAPS);
        assert_eq!((long(&small, 8), word(&small, 16)), (!0xfff, 0));
        assert_eq!(small[24..], [0xee; 8], "behind the head nothing is written");
        let least: [u8; 16] = info(container);
        assert_eq!(long(&least, 8), !0xfff);

        let whole: [u8; 256] = info(container);
        assert_eq!(word(&whole, 0) as usize, needed);
        let ranges = capability(&whole, VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE as u16);
        assert_eq!(word(ranges, 0), 2);
        let ranges = [8, 16, 24, 32].map(|at| long(ranges, at));
        assert_eq!(ranges, [0, 0xfedf_ffff, 0xfef0_0000, (1 << 48) - 1], "without the window of MSI");
        assert_eq!(whole[needed..], [0xee; 256][needed..]);
        let before = n_left(container);
        map(container, READ_WRITE, pages(2), 0, 0x2000).expect("map");
        assert_eq!(n_left(container), before - 1);
        unmap(container, 0, 0, 0x2000).expect("unmap");
        assert_eq!(n_left(container), before);
    });
}

#[test]
fn maps_that_are_refused() {
    let said = on_card("dma::maps_that_are_refused", "", || {
        let vfio = Vfio::open();
        let container = &vfio.container;
        let page = pages(4);
        let refused = |flags, vaddr, iova, size, errno, why: &str| {
            assert_eq!(map(container, flags, vaddr, iova, size), Err(errno), "{why}");
        };
        assert_eq!(map(container, READ_WRITE, page, 0x10000, 0x2000), Ok(0));
        assert_eq!(map(container, VFIO_DMA_MAP_FLAG_READ, page, 0x20000, 0x1000), Ok(0));
        refused(READ_WRITE, page, 0x10000, 0x1000, libc::EEXIST, "the same");
        refused(READ_WRITE, page, 0x11000, 0x1000, libc::EEXIST, "the end of another");
        refused(READ_WRITE, page, 0xf000, 0x2000, libc::EEXIST, "into the beginning of another");
        refused(READ_WRITE, page, 0x30000, 0, libc::EINVAL, "no bytes");
        refused(0, page, 0x30000, 0x1000, libc::EINVAL, "neither read nor write");
        refused(READ_WRITE | 1 << 7, page, 0x30000, 0x1000, libc::EINVAL, "unknown flag");
        refused(READ_WRITE | VFIO_DMA_MAP_FLAG_VADDR, page, 0x30000, 0x1000, libc::EINVAL, "not done");
        refused(READ_WRITE, page + 0x800, 0x30000, 0x1000, libc::EINVAL, "address in a page");
        refused(READ_WRITE, page, 0x30800, 0x1000, libc::EINVAL, "IOVA in a page");
        refused(READ_WRITE, page, 0x30000, 0x800, libc::EINVAL, "half a page");
        refused(READ_WRITE, page, 0xfee0_0000, 0x1000, libc::EINVAL, "window of MSI");
        refused(READ_WRITE, page, 0xfedf_f000, 0x2000, libc::EINVAL, "into the window of MSI");
        refused(READ_WRITE, page, 1 << 48, 0x1000, libc::EINVAL, "past the width of addresses");
        refused(READ_WRITE, page, !0xfff, 0x2000, libc::EINVAL, "past the end");
        refused(READ_WRITE, !0xfff, 0x30000, 0x2000, libc::EINVAL, "memory past the end");
        refused(READ_WRITE, 0, 0x30000, 0x1000, libc::EFAULT, "no memory");
        refused(READ_WRITE, 0x1000, 0x30000, 0x1000, libc::EFAULT, "memory that is not there");
        // SAFETY: the last of four pages is ours, and nothing is in it.
        unsafe { libc::munmap((page + 0x3000) as *mut _, 0x1000) };
        refused(READ_WRITE, page, 0x30000, 0x4000, libc::EFAULT, "the last page is not there");
        assert_eq!(map(container, READ_WRITE, page, 0, 0x1000), Ok(0), "IOVA 0 is like any other");
    });
    assert!(is_inside() || said.contains("overlaps the mapping at IOVA 0x10000"), "{said}");
}

#[test]
fn unmapping_returns_the_size_and_cuts_nothing() {
    on_card("dma::unmapping_returns_the_size_and_cuts_nothing", "", || {
        let vfio = Vfio::open();
        let container = &vfio.container;
        let memory = pages(16);
        for at in 0..4u64 {
            map(container, READ_WRITE, memory + at * 0x2000, 0x10000 + at * 0x2000, 0x2000).expect("map");
        }
        assert_eq!(unmap(container, 0, 0x11000, 0x1000), Err(libc::EINVAL), "the second half of one");
        assert_eq!(unmap(container, 0, 0x10000, 0x1000), Err(libc::EINVAL), "the first half of one");
        assert_eq!(unmap(container, 0, 0x10000, 0x3000), Err(libc::EINVAL), "one and a half");
        assert_eq!(unmap(container, 0, 0x10000, 0), Err(libc::EINVAL));
        assert_eq!(unmap(container, 0, 0x10800, 0x1000), Err(libc::EINVAL));
        assert_eq!(unmap(container, 0, 0x10000, 0x1800), Err(libc::EINVAL));
        assert_eq!(
            unmap(container, VFIO_DMA_UNMAP_FLAG_GET_DIRTY_BITMAP, 0x10000, 0x2000),
            Err(libc::EINVAL)
        );
        assert_eq!(unmap(container, 0, 0x40000, 0x2000), Ok(0), "nothing is there");
        assert_eq!(unmap(container, 0, 0x12000, 0x2000), Ok(0x2000));
        assert_eq!(unmap(container, 0, 0xf000, 0x5000), Ok(0x2000), "a hole, one, and another hole");
        assert_eq!(unmap(container, VFIO_DMA_UNMAP_FLAG_ALL, 0, 0x1000), Err(libc::EINVAL));
        assert_eq!(unmap(container, VFIO_DMA_UNMAP_FLAG_ALL, 0, 0), Ok(0x4000));
        assert_eq!(unmap(container, VFIO_DMA_UNMAP_FLAG_ALL, 0, 0), Ok(0));
    });
}

#[test]
fn page_by_page_as_a_virtual_iommu_does() {
    on_card("dma::page_by_page_as_a_virtual_iommu_does", "", || {
        const N_PAGES: u64 = 65_535;
        let vfio = Vfio::open();
        let container = &vfio.container;
        let memory = pages(1);
        let before = n_left(container);
        for page in 0..N_PAGES {
            // Backwards, and all the same memory: contiguous addresses are not contiguous memory.
            map(container, READ_WRITE, memory, (N_PAGES - 1 - page) << 12, 0x1000).expect("map");
        }
        assert_eq!(n_left(container), before - N_PAGES as u32);
        for page in 0..N_PAGES / 2 {
            assert_eq!(unmap(container, 0, page << 12, 0x1000), Ok(0x1000));
        }
        assert_eq!(unmap(container, 0, 0, 1 << 40), Ok((N_PAGES - N_PAGES / 2) << 12), "the rest at once");
        assert_eq!(n_left(container), before);
    });
}

#[test]
fn a_full_table_is_enospc_and_says_so_once() {
    let said = on_card("dma::a_full_table_is_enospc_and_says_so_once", "", || {
        let vfio = Vfio::open();
        let container = &vfio.container;
        let memory = pages(1);
        let n = u64::from(n_left(container));
        assert!(n >= 65_535);
        for page in 0..n {
            map(container, READ_WRITE, memory, 0x1_0000_0000 + (page << 12), 0x1000).expect("map");
        }
        assert_eq!(n_left(container), 0);
        for page in 0..3 {
            assert_eq!(map(container, READ_WRITE, memory, page << 12, 0x1000), Err(libc::ENOSPC));
        }
        unmap(container, 0, 0x1_0000_0000, 0x1000).expect("unmap");
        assert_eq!(map(container, READ_WRITE, memory, 0, 0x1000), Ok(0));
    });
    assert!(is_inside() || said.matches("(ENOSPC)").count() == 1, "{said}");
}
