//! Registers and config space: what the regions are, what may be mapped, and what resets do.

use crate::rig::{Vfio, errno, ioctl, ioctl_raw, is_inside, on_card};
use std::{ffi::c_int, os::fd::AsRawFd};
use vfio_bindings::bindings::vfio::*;

const BAR0: u32 = 0;
const CONFIG: u32 = 7;
const BAR_LEN_BYTES: usize = 32 << 20;
/// Registers of the init segment, and where UAR pages begin.
const CMDQ_ADDR_H: u64 = 0x10;
const CMDQ_ADDR_L: u64 = 0x14;
const UAR_PAGES: usize = 0x8000;
/// Where they end: device memory follows, the addresses of its operations first.
const UAR_PAGES_END: usize = 0x1f4_0000;
/// PCI command register, and device control in the PCI Express capability.
const COMMAND: u64 = 4;
const DEVICE_CONTROL: u64 = 0x68;

fn info(vfio: &Vfio, index: u32, argsz: u32) -> Result<(vfio_region_info, [u8; 96]), c_int> {
    let mut bytes = [0xee; 96];
    let head = vfio_region_info { argsz, index, ..Default::default() };
    // SAFETY: the buffer is longer than the structure.
    unsafe { bytes.as_mut_ptr().cast::<vfio_region_info>().write_unaligned(head) };
    ioctl(&vfio.device, 8, bytes.as_mut_ptr())?;
    // SAFETY: as above.
    Ok((unsafe { bytes.as_ptr().cast::<vfio_region_info>().read_unaligned() }, bytes))
}

fn map(vfio: &Vfio, offset: i64, len_bytes: usize, flags: c_int) -> Result<*mut u32, c_int> {
    // SAFETY: a mapping at an address of the kernel's choice.
    let at = unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), len_bytes, protection, flags, vfio.device.as_raw_fd(), offset)
    };
    if at == libc::MAP_FAILED { Err(errno()) } else { Ok(at.cast()) }
}

/// Turns memory on, so that registers answer.
fn turn_on(vfio: &Vfio) {
    vfio.write(CONFIG, COMMAND, &[6, 0]).expect("command register");
}

#[test]
fn regions_of_a_trapped_bar() {
    on_card("region::regions_of_a_trapped_bar", "bar=trapped", || {
        let vfio = Vfio::open();
        for index in 0..8 {
            let (info, bytes) = info(&vfio, index, 32).expect("GET_REGION_INFO");
            let size = [BAR_LEN_BYTES as u64, 0, 0, 0, 0, 0, 0, 4096][index as usize];
            let flags = if size == 0 { 0 } else { VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE };
            assert_eq!(
                (info.size, info.flags, info.offset),
                (size, flags, u64::from(index) << 40),
                "{index}"
            );
            assert_eq!(bytes[32..], [0xee; 64]);
        }
        assert_eq!(info(&vfio, 8, 32).err(), Some(libc::EINVAL), "VGA");
        assert_eq!(info(&vfio, 9, 32).err(), Some(libc::EINVAL));
        assert_eq!(info(&vfio, 0, 31).err(), Some(libc::EINVAL));
    });
}

/// Words of the capability of BAR0, which must be the only one.
fn areas(vfio: &Vfio) -> Vec<u32> {
    let (small, bytes) = info(vfio, BAR0, 32).expect("GET_REGION_INFO");
    assert_eq!((small.argsz, small.cap_offset), (64, 0), "what would be needed");
    assert_eq!(bytes[32..], [0xee; 64]);
    let (whole, bytes) = info(vfio, BAR0, 64).expect("GET_REGION_INFO");
    let all = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
    assert_eq!(whole.flags, all | VFIO_REGION_INFO_FLAG_MMAP | VFIO_REGION_INFO_FLAG_CAPS);
    assert_eq!((whole.cap_offset, whole.size), (32, BAR_LEN_BYTES as u64));
    assert_eq!(bytes[64..], [0xee; 32]);
    let (config, _) = info(vfio, CONFIG, 64).expect("GET_REGION_INFO");
    assert_eq!((config.argsz, config.flags), (32, all));
    bytes[32..64].as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word)).collect()
}

/// Sparse, version 1, the only one; one area.
fn one_area(start: usize) -> [u32; 8] {
    let header = VFIO_REGION_INFO_CAP_SPARSE_MMAP | 1 << 16;
    [header, 0, 1, 0, start as u32, 0, (UAR_PAGES_END - start) as u32, 0]
}

#[test]
fn areas_of_a_mapped_bar() {
    on_card("region::areas_of_a_mapped_bar", "bar=mapped", || {
        assert_eq!(areas(&Vfio::open()), one_area(UAR_PAGES));
    });
}

#[test]
fn areas_of_a_sparse_bar() {
    on_card("region::areas_of_a_sparse_bar", "", || {
        assert_eq!(areas(&Vfio::open()), one_area(UAR_PAGES + 4096));
    });
}

/// What rdma-core's provider does: it maps all of BAR0 without asking.
#[test]
fn a_sparse_bar_mapped_as_a_whole() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let said = on_card("region::a_sparse_bar_mapped_as_a_whole", "bar=sparse", || {
        let vfio = Vfio::open();
        turn_on(&vfio);
        let bar = map(&vfio, 0, BAR_LEN_BYTES, libc::MAP_SHARED).expect("mmap");
        let register = |offset: u64| bar.wrapping_add(offset as usize / 4);
        // SAFETY: a register inside the mapping; the store faults and is carried out.
        unsafe { register(CMDQ_ADDR_H).write_volatile(0x1234u32.to_be()) };
        assert_eq!(vfio.read(BAR0, CMDQ_ADDR_H), Ok([0, 0, 0x12, 0x34]));
        for uar_page in [UAR_PAGES, UAR_PAGES + 4096] {
            // SAFETY: as above; the second page is memory.
            unsafe { register(uar_page as u64 + 0x800).cast::<u64>().write_volatile(7) };
        }
        assert_eq!(vfio.read(BAR0, UAR_PAGES as u64 + 0x800), Ok([0; 8]), "carried out, not stored");
        assert_eq!(vfio.read(BAR0, UAR_PAGES as u64 + 4096 + 0x800), Ok(7u64.to_ne_bytes()));
        // SAFETY: the mapping made above.
        assert_eq!(unsafe { libc::munmap(bar.cast(), BAR_LEN_BYTES) }, 0);
    });
    // A card whose driver has not begun listens to no doorbell.
    assert!(
        is_inside() || said.ends_with("model: 1 violations\n") && said.contains("UAR page 0x8"),
        "{said}"
    );
}

#[test]
fn reads_and_writes_stay_inside() {
    on_card("region::reads_and_writes_stay_inside", "", || {
        let vfio = Vfio::open();
        vfio.write(CONFIG, COMMAND, &[0, 0]).expect("command register");
        assert_eq!(vfio.read::<4>(BAR0, 0), Ok([0xff; 4]), "memory is off");
        turn_on(&vfio);
        assert_ne!(vfio.read::<4>(BAR0, 0), Ok([0xff; 4]), "firmware's revision");
        assert_eq!(vfio.read::<8>(BAR0, BAR_LEN_BYTES as u64 - 8), Ok([0; 8]));
        assert_eq!(vfio.read::<8>(BAR0, BAR_LEN_BYTES as u64 - 4), Err(libc::EINVAL));
        assert_eq!(vfio.read::<4>(1, 0), Err(libc::EINVAL), "no BAR1");
        assert_eq!(vfio.read::<4>(CONFIG, 4094), Err(libc::EINVAL));
        assert_eq!(vfio.write(CONFIG, 4096, &[0]), Err(libc::EINVAL));
        // Sizing of BAR0.
        vfio.write(CONFIG, 0x10, &[0xff; 8]).expect("BAR0");
        let bar = u64::from_le_bytes(vfio.read(CONFIG, 0x10).expect("BAR0"));
        assert_eq!(bar & !0xf, !(BAR_LEN_BYTES as u64 - 1));
        vfio.write(CONFIG, 0, &[0; 4]).expect("ignored");
        assert_eq!(vfio.read(CONFIG, 0), Ok([0xb3, 0x15]), "the identity is not to be written");
    });
}

#[test]
fn resets() {
    on_card("region::resets", "bar=trapped", || {
        let vfio = Vfio::open();
        turn_on(&vfio);
        let flr = || vfio.write(CONFIG, DEVICE_CONTROL, &0x8000u16.to_le_bytes()).map(drop);
        let reset = || ioctl_raw(vfio.device.as_raw_fd(), 11, 0).map(drop);
        for reset in [&flr as &dyn Fn() -> Result<(), c_int>, &reset] {
            vfio.write(BAR0, CMDQ_ADDR_H, &[0, 0, 0x12, 0x34]).expect("register");
            assert_eq!(vfio.read(BAR0, CMDQ_ADDR_H), Ok([0, 0, 0x12, 0x34]));
            assert_eq!(reset(), Ok(()));
            assert_eq!(vfio.read(BAR0, CMDQ_ADDR_H), Ok([0; 4]));
        }
    });
}

#[test]
fn only_shared_pages_of_bar0_are_mapped() {
    on_card("region::only_shared_pages_of_bar0_are_mapped", "", || {
        let vfio = Vfio::open();
        let page = 4096;
        assert_eq!(map(&vfio, 0, page, libc::MAP_PRIVATE), Err(libc::EINVAL));
        assert_eq!(map(&vfio, BAR_LEN_BYTES as i64 - 4096, 2 * page, libc::MAP_SHARED), Err(libc::EINVAL));
        assert_eq!(map(&vfio, i64::from(CONFIG) << 40, page, libc::MAP_SHARED), Err(libc::EINVAL));
        assert_eq!(map(&vfio, 1 << 40, page, libc::MAP_SHARED), Err(libc::EINVAL));
        assert!(map(&vfio, 0, BAR_LEN_BYTES, libc::MAP_SHARED).is_ok());
    });
}

#[test]
fn stores_to_a_trapped_mapping_are_exact() {
    let said = on_card("region::stores_to_a_trapped_mapping_are_exact", "bar=trapped", || {
        let vfio = Vfio::open();
        turn_on(&vfio);
        let bar = map(&vfio, 0, BAR_LEN_BYTES, libc::MAP_SHARED).expect("mmap");
        let register = |offset: u64| bar.wrapping_add(offset as usize / 4);
        // SAFETY: registers inside the mapping; the store faults and is carried out.
        unsafe { register(CMDQ_ADDR_H).write_volatile(0x1234u32.to_be()) };
        assert_eq!(vfio.read(BAR0, CMDQ_ADDR_H), Ok([0, 0, 0x12, 0x34]));
        // SAFETY: as above.
        unsafe { register(CMDQ_ADDR_L).write_volatile(0xabcd_e000u32.to_be()) };
        // It reads back as log_cmdq_size 5 and log_cmdq_stride 6, through the mapping and by pread.
        assert_eq!(vfio.read(BAR0, CMDQ_ADDR_L), Ok([0, 0, 0, 0x56]));
        // SAFETY: as above.
        assert_eq!(u32::from_be(unsafe { register(CMDQ_ADDR_L).read_volatile() }), 0x56);
        // A page that nobody allocated: the rule names the store and its width.
        // SAFETY: as above.
        unsafe { register(UAR_PAGES as u64 + 0x800).cast::<u64>().write_volatile(7) };
        // SAFETY: the mapping made above.
        assert_eq!(unsafe { libc::munmap(bar.cast(), BAR_LEN_BYTES) }, 0);
        let again = map(&vfio, UAR_PAGES as i64, 4096, libc::MAP_SHARED).expect("mmap");
        // SAFETY: the first register of the new mapping.
        unsafe { again.write_volatile(0) };
    });
    let rule = "DoorbellAllocatedPage";
    assert!(
        is_inside() || said.contains(rule) && said.contains("store of 8 bytes to UAR page 0x8"),
        "{said}"
    );
    assert!(is_inside() || said.ends_with("model: 2 violations\n"), "{said}");
}
