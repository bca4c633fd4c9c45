//! The software ConnectX as a VFIO device of one process: loaded with `LD_PRELOAD`, it answers
//! `/dev/vfio/vfio`, `/dev/vfio/5555` (and 5556 for a second port), the device descriptor behind them, and the folder
//! `/sys/bus/pci/devices/0000:01:00.0` (and `.1`), and passes everything else on to libc. QEMU, rdma-core's VFIO
//! provider and others run on it unchanged.
//!
//! | environment | |
//! |---|---|
//! | `MLX5_MODEL` | options of the card, as `part=cx6,mtu=4096`; with `bar=mapped` UAR pages may be mapped and are watched, with `bar=trapped` stores to whatever is mapped fault and are exact |
//! | `MLX5_MODEL_TRACE` | a file that gets the card's trace |
//! | `MLX5_MODEL_HOST` | what else there is, or is wrong, with the computer: `iommu=off` or `none` (VFIO's no-IOMMU mode, with `hugepages=N`), `groups=one`, `driver=mlx5_core` or `none`, `viable=no`, `group=busy` or `denied`, `memlock=BYTES`, `vendor=8086`, `iommufd=on`, `unplug=MILLISECONDS`, `reclaim=MILLISECONDS` |
//! | `MLX5_MODEL_PCAP` | a file that gets the packets that the card sends |
//!
//! When the process ends, the rules that its driver broke are printed, and `model: N violations`.
//!
//! | room | what is in it |
//! |---|---|
//! | `libc_calls` | the calls that are interposed |
//! | `real` | libc's own, found when first needed: interposed calls come before constructors run |
//! | `sysfs` | the paths, and what is in the files |
//! | `host` | the computer around the card |
//! | `listing` | folders, as programs list them |
//! | `descriptor` | descriptors that pretend |
//! | `card` | the card, and what its descriptors stand for |
//! | `container`, `group`, `iommufd`, `device`, `irqs` | the ioctls, by kind of descriptor |
//! | `ioctls` | their numbers |
//! | `physical` | memory without an IOMMU |

mod card;
mod container;
mod descriptor;
mod device;
mod group;
mod host;
mod ioctls;
mod iommufd;
mod irqs;
mod libc_calls;
mod listing;
mod physical;
mod real;
mod sysfs;

use std::{
    collections::BTreeSet,
    ffi::c_int,
    sync::{Mutex, PoisonError},
};

/// An ioctl's result: a value that is not negative, or an errno.
type Answer = Result<c_int, c_int>;

/// Says on standard error what was asked for and is not done; the same thing once.
fn complain(text: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(text.into()) {
        eprintln!("mlx5-standin: {text}");
    }
}

/// A structure that an ioctl takes or gives by address.
///
/// # Safety
/// Every bit pattern is a value of the type.
unsafe trait Plain {}

/// Reads a caller's structure.
///
/// # Safety
/// `at` is the address of a `T` that the caller of the ioctl lends us, or of its first `argsz` bytes.
unsafe fn take<T: Plain>(at: *const u8) -> T {
    // SAFETY: promised by the caller; the address need not be aligned.
    unsafe { at.cast::<T>().read_unaligned() }
}

/// Writes a caller's structure.
///
/// # Safety
/// `at` is the address of a `T` that the caller of the ioctl lends us for writing.
unsafe fn give<T: Plain>(at: *mut u8, value: T) {
    // SAFETY: promised by the caller; the address need not be aligned.
    unsafe { at.cast::<T>().write_unaligned(value) }
}

macro_rules! plain {
    ($($ty:ty)*) => { $(
        // SAFETY: integers only.
        unsafe impl Plain for $ty {}
    )* };
}
plain!(u32 i32 u64);

use vfio_bindings::bindings::vfio;
plain!(
    vfio::vfio_group_status vfio::vfio_device_info vfio::vfio_region_info vfio::vfio_irq_info
    vfio::vfio_iommu_type1_info vfio::vfio_iommu_type1_dma_map vfio::vfio_iommu_type1_dma_unmap
);
