use super::{
    Addresses, DmaRegion, DmaSpace, HUGE_PAGE_BYTES, HostMemory, HugePool, PAGE_BYTES, PageSize, Place,
    memory::{Mapped, anonymous},
};
use crate::backend::pci::fake::FakeFunction;
use memmap2::MmapOptions;
use std::{io, ptr::NonNull, sync::Arc};

/// The system's usual pages in place of huge ones, and more of them, so that a whole huge page would fit.
fn usual_pages(_: &MmapOptions, len_bytes: usize) -> io::Result<Mapped> {
    anonymous(MmapOptions::new().len(len_bytes + HUGE_PAGE_BYTES), 0)
}

fn none_left(_: &MmapOptions, _: usize) -> io::Result<Mapped> {
    Err(io::ErrorKind::OutOfMemory.into())
}

fn space(addresses: Addresses) -> Arc<DmaSpace> {
    Arc::new(DmaSpace { function: Arc::new(FakeFunction::new()), addresses, distrusted: false.into() })
}

#[test]
fn parts_of_huge_pages_are_zeroed_aligned_apart_and_come_back() {
    let pool = HugePool::of(usual_pages);
    let at = |memory: &HostMemory| memory.base().addr().get();
    let large = HostMemory::alloc_in_pool(&pool, HUGE_PAGE_BYTES, HUGE_PAGE_BYTES).unwrap();
    let small = HostMemory::alloc_in_pool(&pool, 1, PAGE_BYTES).unwrap();
    assert_eq!((at(&large) % HUGE_PAGE_BYTES, at(&small) % PAGE_BYTES), (0, 0));
    assert!(at(&small) >= at(&large) + HUGE_PAGE_BYTES || at(&small) < at(&large));
    let free = pool.free_bytes();
    large.fill(0, HUGE_PAGE_BYTES, 0xff);
    drop(large);
    assert_eq!(pool.free_bytes(), free + HUGE_PAGE_BYTES as u64);
    let again = HostMemory::alloc_in_pool(&pool, HUGE_PAGE_BYTES, HUGE_PAGE_BYTES).unwrap();
    let mut bytes = vec![1; HUGE_PAGE_BYTES];
    again.read(0, &mut bytes);
    assert!(bytes.iter().all(|byte| *byte == 0));
    drop(again);
    // Larger than what is held: more is taken.
    let held = pool.free_bytes();
    drop(HostMemory::alloc_in_pool(&pool, 5 * HUGE_PAGE_BYTES, PAGE_BYTES).unwrap());
    assert!(pool.free_bytes() >= held + 5 * HUGE_PAGE_BYTES as u64);
}

#[test]
fn huge_pages_that_are_not_there_are_asked_for() {
    let pool = HugePool::of(none_left);
    let text = HostMemory::alloc_in_pool(&pool, 3 << 20, PAGE_BYTES).unwrap_err().to_string();
    assert!(text.contains("2 huge pages") && text.contains("vm.nr_hugepages"), "{text}");
    let text = HostMemory::alloc_in_pool(&pool, 0, PAGE_BYTES).unwrap_err().to_string();
    assert!(text.contains("give 1 to"), "{text}");
}

/// Memory that starts 5 pages before the end of a huge page, and goes on in two that are elsewhere.
#[test]
fn physical_addresses_go_from_huge_page_to_huge_page() {
    let offset_bytes = HUGE_PAGE_BYTES - 5 * PAGE_BYTES;
    let region = DmaRegion {
        space: space(Addresses::Physical(HugePool::of(none_left))),
        memory: HostMemory::alloc(HUGE_PAGE_BYTES + 6 * PAGE_BYTES, PageSize::Default).unwrap(),
        place: Place::Physical { huge_pages: [0x4000_0000, 0x1000_0000, 0x7000_0000].into(), offset_bytes },
    };
    assert_eq!(region.address_of(0), 0x4000_0000 + offset_bytes as u64);
    assert_eq!(region.address_of(5 * PAGE_BYTES - 1), 0x401f_ffff);
    assert_eq!(region.address_of(5 * PAGE_BYTES), 0x1000_0000);
    assert_eq!(region.address_of(5 * PAGE_BYTES + HUGE_PAGE_BYTES), 0x7000_0000);
    let pages: Vec<u64> = region.pages(6 * PAGE_BYTES, PAGE_BYTES).collect();
    assert_eq!(pages, [0x401f_b000, 0x401f_c000, 0x401f_d000, 0x401f_e000, 0x401f_f000, 0x1000_0000]);
    // Device pages that begin before the memory, up to those of a huge page.
    let pages: Vec<u64> = region.pages(6 * PAGE_BYTES, 4 * PAGE_BYTES).collect();
    assert_eq!(pages, [0x401f_8000, 0x401f_c000, 0x1000_0000]);
    let pages: Vec<u64> = region.pages(region.memory().len_bytes(), HUGE_PAGE_BYTES).collect();
    assert_eq!(pages, [0x4000_0000, 0x1000_0000, 0x7000_0000]);
    assert_eq!(region.pages(0, PAGE_BYTES).count(), 0);
}

#[test]
fn a_device_page_is_no_larger_than_addresses_and_name_agree() {
    // SAFETY: only the address is looked at.
    let memory =
        unsafe { HostMemory::lend(NonNull::without_provenance(0x4020_3000.try_into().unwrap()), 8 << 20) };
    let physical = space(Addresses::Physical(HugePool::of(none_left)));
    assert_eq!(physical.log_page_size(&memory, 0x4020_3000), 21);
    assert_eq!(physical.log_page_size(&memory, 0x3000), 21);
    assert_eq!(physical.log_page_size(&memory, 0x1_3000), 16);
    assert_eq!(physical.log_page_size(&memory, 0x2000), 12);
    let mapped = DmaSpace::new(Arc::new(FakeFunction::new()));
    assert_eq!(mapped.log_page_size(&memory, 0x2000), 23);
}

#[test]
fn addresses_that_are_mapped_are_in_a_row() {
    let space = DmaSpace::new(Arc::new(FakeFunction::new()));
    let free = space.free_bytes();
    let region = space.alloc(3 * PAGE_BYTES, 2 * PAGE_BYTES).unwrap();
    let first = region.address_of(0);
    assert_eq!(first % (2 * PAGE_BYTES as u64), 0);
    let pages: Vec<u64> = region.pages(3 * PAGE_BYTES, PAGE_BYTES).collect();
    assert_eq!(pages, [first, first + 0x1000, first + 0x2000]);
    assert_eq!(region.pages(3 * PAGE_BYTES, 2 * PAGE_BYTES).collect::<Vec<_>>(), [first, first + 0x2000]);
    drop(region);
    assert_eq!(space.free_bytes(), free);
}

/// No IOMMU keeps a function that could not be stopped out of memory: that memory is nobody's from then on.
#[test]
fn memory_of_a_function_that_does_not_stop_is_not_used_again() {
    let pool = HugePool::of(usual_pages);
    let region = |space: &Arc<DmaSpace>| DmaRegion {
        space: Arc::clone(space),
        memory: HostMemory::alloc_in_pool(&pool, PAGE_BYTES, PAGE_BYTES).unwrap(),
        place: Place::Physical { huge_pages: [0x4000_0000].into(), offset_bytes: 0 },
    };
    let space = space(Addresses::Physical(Arc::clone(&pool)));
    let first = region(&space);
    let free = pool.free_bytes();
    drop(first);
    assert_eq!(pool.free_bytes(), free + PAGE_BYTES as u64);
    let second = region(&space);
    space.distrust();
    drop(second);
    assert_eq!(pool.free_bytes(), free);
    assert_eq!(Arc::strong_count(&space), 1, "the function is let go of in any case");
}

/// One whose unmapping succeeds is kept out by it.
#[test]
fn memory_that_is_unmapped_is_free() {
    let space = DmaSpace::new(Arc::new(FakeFunction::new()));
    let free = space.free_bytes();
    let region = space.alloc(PAGE_BYTES, PAGE_BYTES).unwrap();
    let memory = Arc::downgrade(region.memory());
    space.distrust();
    drop(region);
    assert_eq!((space.free_bytes(), memory.strong_count()), (free, 0));
}
