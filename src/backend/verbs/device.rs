//! The device list, and an open context.

use super::{
    Object, done,
    ffi::{
        IBV_VALUES_MASK_RAW_CLOCK, IbvContext, IbvContextOps, IbvDevice, IbvDeviceAttr, IbvDeviceAttrEx,
        IbvParentDomainInitAttr, IbvPd, IbvTd, IbvTdInitAttr, IbvValuesEx, MLX5DV_OBJ_PD, Mlx5dvObj,
        Mlx5dvPd, VERBS_ABI_IS_EXTENDED, VerbsContext, VerbsOps,
    },
    library::{Library, library},
    made, sysfs,
};
use crate::{Error, Gone, Result, backend::DeviceAttr, mlx5::ids::Pdn};
use std::{
    ffi::CStr,
    io, mem,
    mem::offset_of,
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
    ptr::NonNull,
    slice,
    sync::OnceLock,
};

const _: () = assert!(size_of::<IbvContextOps>() == 32 * size_of::<usize>());

/// Bytes of the largest send WQE of every ConnectX so far. Verbs do not tell it.
const MAX_WQE_BYTES: u32 = 1024;
/// What libmlx5 puts before the data of a request of a reliable connection, at most (`sq_overhead`): a UMR's
/// segments, 16 of control, 48 of UMR control, 64 of the key's context and 64 of its list.
const REQUEST_BYTES: u32 = 192;
const INLINE_HEADER_BYTES: u32 = 4;

/// Devices in a list of libibverbs.
struct List {
    library: &'static Library,
    /// `None` in a kernel without verbs.
    first: Option<NonNull<*mut IbvDevice>>,
    n: usize,
}

impl List {
    fn get() -> Result<Self> {
        let library = library()?;
        let mut n = 0;
        // SAFETY: writes the number, and gives a list or null.
        let first = unsafe { (library.ibv_get_device_list)(&raw mut n) };
        let first = match made(|| "listing verbs devices".into(), first) {
            Ok(first) => Some(first),
            Err(Error::Os { source, .. }) if source.raw_os_error() == Some(libc::ENOSYS) => None,
            Err(error) => return Err(error),
        };
        Ok(Self { library, first, n: usize::try_from(n).unwrap_or(0) })
    }

    /// Those that libmlx5 drives, by name.
    fn mlx5(&self) -> impl Iterator<Item = (String, *mut IbvDevice)> {
        let devices = self.first.map_or(&[][..], |first| {
            // SAFETY: the list has `n` entries until it is freed, and is not written.
            unsafe { slice::from_raw_parts(first.as_ptr(), self.n) }
        });
        devices.iter().filter_map(|&device| {
            // SAFETY: a device of the list.
            let ours = unsafe { (self.library.mlx5dv_is_supported)(device) };
            // SAFETY: as above.
            let name = unsafe { (self.library.ibv_get_device_name)(device) };
            if !ours || name.is_null() {
                return None;
            }
            // SAFETY: a string inside the device.
            Some((unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(), device))
        })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        if let Some(first) = self.first {
            // SAFETY: freed once. Devices that were opened stay.
            unsafe { (self.library.ibv_free_device_list)(first.as_ptr()) }
        }
    }
}

/// Names of the mlx5 devices that the kernel offers by verbs, each once: `mlx5_0`.
///
/// # Errors
/// The libraries are not there.
pub fn devices() -> Result<Vec<String>> {
    Ok(List::get()?.mlx5().map(|(name, _)| name).collect())
}

/// An open device.
#[derive(Debug)]
pub(super) struct Device {
    library: &'static Library,
    context: Object<IbvContext>,
    name: String,
    /// Closed on drop.
    owned: bool,
    gone: OnceLock<Gone>,
}

impl Device {
    pub(super) fn open(name: &str) -> Result<Self> {
        let list = List::get()?;
        let devices: Vec<_> = list.mlx5().collect();
        let Some((name, device)) = devices.iter().find(|(found, _)| found == name) else {
            let found: Vec<_> = devices.iter().map(|(name, _)| name.as_str()).collect();
            return Err(Error::invalid(if found.is_empty() {
                format!(
                    "no verbs device `{name}`: the kernel offers no mlx5 device (modprobe mlx5_ib ib_uverbs; lspci -d 15b3: \
                     shows the cards)"
                )
            } else {
                format!("no verbs device `{name}`: there are {}", found.join(", "))
            }));
        };
        // SAFETY: a device of the list, which is not freed yet.
        let context = unsafe { (list.library.ibv_open_device)(*device) };
        let context = made(|| format!("opening verbs device {name} (/dev/infiniband/uverbs*)"), context)?;
        let device = Self {
            library: list.library,
            context: Object(context),
            name: name.clone(),
            owned: true,
            gone: OnceLock::new(),
        };
        device.set_nonblocking(device.async_fd())?;
        Ok(device)
    }

    /// A device that somebody else has opened, and closes.
    ///
    /// # Safety
    /// `context` is open, by this process's libibverbs, as long as the value lives.
    pub(super) unsafe fn import(context: NonNull<IbvContext>) -> Result<Self> {
        let library = library()?;
        // SAFETY: the caller's promise: an open context has a device.
        let device = unsafe { (*context.as_ptr()).device };
        // SAFETY: a device of libibverbs.
        if !unsafe { (library.mlx5dv_is_supported)(device) } {
            return Err(Error::invalid("the verbs context is not one of an mlx5 device"));
        }
        // SAFETY: as above; a string inside the device.
        let name = unsafe { CStr::from_ptr((library.ibv_get_device_name)(device)) };
        let name = name.to_string_lossy().into_owned();
        let device = Self { library, context: Object(context), name, owned: false, gone: OnceLock::new() };
        device.set_nonblocking(device.async_fd())?;
        Ok(device)
    }

    pub(super) fn raw(&self) -> NonNull<IbvContext> {
        self.context.0
    }

    pub(super) fn library(&self) -> &'static Library {
        self.library
    }

    pub(super) fn context(&self) -> *mut IbvContext {
        self.context.as_ptr()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn declare(&self, gone: Gone) {
        let _ = self.gone.set(gone);
    }

    /// Fails when the device is known to be dead.
    pub(super) fn alive(&self) -> Result<()> {
        self.gone.get().map_or(Ok(()), |gone| Err(Error::DeviceGone(*gone)))
    }

    pub(super) fn num_comp_vectors(&self) -> u32 {
        // SAFETY: open as long as `self`; set at open.
        u32::try_from(unsafe { (*self.context()).num_comp_vectors }).unwrap_or(0).max(1)
    }

    pub(super) fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as `self`, and so is its descriptor.
        unsafe { BorrowedFd::borrow_raw((*self.context()).async_fd) }
    }

    /// Makes reads of a descriptor of the library's answer at once: events are waited for with a deadline.
    pub(super) fn set_nonblocking(&self, fd: BorrowedFd<'_>) -> Result<()> {
        // SAFETY: an open descriptor.
        let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
        // SAFETY: as above.
        if flags < 0 || unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
            let what = format!("preparing an event descriptor of {}", self.name);
            return Err(Error::os(what, io::Error::last_os_error()));
        }
        Ok(())
    }

    /// The functions that are beside the context and not in the library's symbols.
    fn ops(&self, what: impl FnOnce() -> String) -> Result<VerbsOps> {
        // SAFETY: open as long as `self`.
        let is_extended = unsafe { (*self.context()).abi_compat }.addr() == VERBS_ABI_IS_EXTENDED;
        let head = self.context().cast::<u8>().wrapping_sub(offset_of!(VerbsContext, context));
        let sz = head.wrapping_add(offset_of!(VerbsContext, sz)).cast::<usize>();
        // SAFETY: a context that says so is the last field of a `verbs_context`, whose `sz` is right before it.
        if !is_extended || unsafe { sz.read() } < size_of::<VerbsContext>() {
            return Err(Error::os(what(), io::Error::from_raw_os_error(libc::EOPNOTSUPP)));
        }
        // SAFETY: the library's structure goes back as far as ours, and its functions do not change.
        Ok(unsafe { head.cast::<VerbsOps>().read() })
    }

    /// Makes a thread domain, and a protection domain `pd` with it: a doorbell register of one's own.
    pub(super) fn thread_domain(&self, pd: Object<IbvPd>) -> Result<Domain> {
        let what = || format!("allocating a thread domain of {}", self.name);
        let ops = self.ops(what)?;
        let lacks = || Error::os(what(), io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        let (alloc_td, dealloc_td) = (ops.alloc_td.ok_or_else(lacks)?, ops.dealloc_td.ok_or_else(lacks)?);
        let alloc_parent_domain = ops.alloc_parent_domain.ok_or_else(lacks)?;
        let mut attr = IbvTdInitAttr { comp_mask: 0 };
        // SAFETY: an open context, and an argument that lives for the call.
        let td = made(what, unsafe { alloc_td(self.context(), &raw mut attr) })?;
        let mut attr = IbvParentDomainInitAttr {
            pd: pd.as_ptr(),
            td: td.as_ptr(),
            comp_mask: 0,
            alloc: 0,
            free: 0,
            pd_context: ptr::null_mut(),
        };
        // SAFETY: as above; domains of this context.
        let parent = made(what, unsafe { alloc_parent_domain(self.context(), &raw mut attr) });
        match parent {
            Ok(parent) => {
                Ok(Domain { library: self.library, dealloc_td, td: Object(td), parent: Object(parent) })
            }
            Err(error) => {
                // SAFETY: nothing uses it.
                unsafe { dealloc_td(td.as_ptr()) };
                Err(error)
            }
        }
    }

    /// The number of a protection domain.
    pub(super) fn pdn(&self, pd: Object<IbvPd>) -> Result<Pdn> {
        let mut out = Mlx5dvPd { pdn: 0, comp_mask: 0 };
        let mut object = Mlx5dvObj::default();
        object.pd.input = pd.as_ptr();
        object.pd.output = &raw mut out;
        // SAFETY: an object of libmlx5, and room for what it tells.
        let result = unsafe { (self.library.mlx5dv_init_obj)(&raw mut object, MLX5DV_OBJ_PD) };
        done(|| "asking for the number of a protection domain".into(), result)?;
        Ok(Pdn::new(out.pdn))
    }

    /// The device's clock, in ticks.
    pub(super) fn read_clock(&self) -> Result<u64> {
        let what = || format!("reading the clock of {}", self.name);
        let lacks = || Error::os(what(), io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        let query = self.ops(what)?.query_rt_values.ok_or_else(lacks)?;
        let raw_clock = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let mut values = IbvValuesEx { comp_mask: IBV_VALUES_MASK_RAW_CLOCK, raw_clock };
        // SAFETY: an open context, and room for the values.
        done(what, unsafe { query(self.context(), &raw mut values) })?;
        // libmlx5 tells ticks, all of them in `tv_nsec`.
        Ok(values.raw_clock.tv_nsec as u64)
    }

    fn core_clock_khz(&self) -> u32 {
        let Ok(VerbsOps { query_device_ex: Some(query), .. }) = self.ops(String::new) else { return 0 };
        // SAFETY: integers and arrays of them: zeros are values.
        let mut attr: IbvDeviceAttrEx = unsafe { mem::zeroed() };
        let size = size_of::<IbvDeviceAttrEx>();
        // SAFETY: an open context, and room for what the last argument says.
        let result = unsafe { query(self.context(), ptr::null(), &raw mut attr, size) };
        if result == 0 { u32::try_from(attr.hca_core_clock).unwrap_or(0) } else { 0 }
    }

    /// Limits and identity.
    pub(super) fn query(&self) -> Result<DeviceAttr> {
        // SAFETY: integers and arrays of them: zeros are values.
        let mut attr: IbvDeviceAttr = unsafe { mem::zeroed() };
        // SAFETY: an open context, and room for the attributes.
        let result = unsafe { (self.library.ibv_query_device)(self.context(), &raw mut attr) };
        done(|| format!("querying verbs device {}", self.name), result)?;
        let fw_ver: Vec<u8> = attr.fw_ver.iter().map(|c| *c as u8).take_while(|c| *c != 0).collect();
        let u32_of = |value: i32| u32::try_from(value).unwrap_or(0);
        let u8_of = |value: i32| u8::try_from(value.clamp(0, 255)).unwrap_or(0);
        let max_sge = u32_of(attr.max_sge);
        let atomic_cap = attr.atomic_cap != 0;
        Ok(DeviceAttr {
            fw_ver: String::from_utf8_lossy(&fw_ver).into_owned(),
            board_id: sysfs::device(&self.name, "board_id").unwrap_or_default(),
            vendor_id: attr.vendor_id,
            vendor_part_id: attr.vendor_part_id,
            hw_ver: attr.hw_ver,
            node_guid: attr.node_guid.get(),
            sys_image_guid: attr.sys_image_guid.get(),
            phys_port_cnt: attr.phys_port_cnt,
            page_size_cap: attr.page_size_cap,
            max_mr_size: attr.max_mr_size,
            max_msg_size: self.port_attr(1)?.max_msg_sz,
            max_qp: u32_of(attr.max_qp),
            max_qp_wr: u32_of(attr.max_qp_wr),
            max_send_sge: max_sge,
            max_sge_rd: u32_of(attr.max_sge_rd),
            max_recv_sge: max_sge,
            max_inline_data: MAX_WQE_BYTES - REQUEST_BYTES - INLINE_HEADER_BYTES,
            max_wqe_sz_sq: MAX_WQE_BYTES,
            max_cq: u32_of(attr.max_cq),
            // The kernel says one less than the ring holds.
            max_cqe: u32_of(attr.max_cqe) + 1,
            max_mr: u32_of(attr.max_mr),
            max_pd: u32_of(attr.max_pd),
            max_qp_rd_atom: u8_of(attr.max_qp_rd_atom),
            max_qp_init_rd_atom: u8_of(attr.max_qp_init_rd_atom),
            atomic_cap,
            // The kernel offers atomics only where they are in host order.
            atomic_host_endian: atomic_cap,
            local_ca_ack_delay: attr.local_ca_ack_delay,
            max_pkeys: attr.max_pkeys,
            bf_reg_size_bytes: 0,
            hca_core_clock_khz: self.core_clock_khz(),
            cqe_version: 0,
            roce_udp_sport: false,
            roce_min_udp_sport: 0,
            num_comp_vectors: self.num_comp_vectors(),
        })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: nobody uses it any more: whoever does holds `self`. What the kernel still has of it ends with its
            // descriptor.
            unsafe { (self.library.ibv_close_device)(self.context()) };
        }
    }
}

/// A thread domain with the protection domain of its objects, ended on drop: after they are.
#[derive(Debug)]
pub(super) struct Domain {
    library: &'static Library,
    dealloc_td: unsafe extern "C" fn(*mut IbvTd) -> i32,
    td: Object<IbvTd>,
    pub(super) parent: Object<IbvPd>,
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: ended once, users before what they use. One that is refused stays until the device is closed.
        unsafe {
            (self.library.ibv_dealloc_pd)(self.parent.as_ptr());
            (self.dealloc_td)(self.td.as_ptr());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_there_is_told_with_what_there_is() {
        let found = match devices() {
            Ok(found) => found,
            Err(error) if error.to_string().starts_with("loading ") => return println!("skipped: {error}"),
            Err(error) => panic!("{error}"),
        };
        let text = Device::open("mlx5_none").unwrap_err().to_string();
        assert!(text.starts_with("no verbs device `mlx5_none`: "), "{text}");
        match found.first() {
            None => assert!(text.contains("modprobe mlx5_ib"), "{text}"),
            Some(first) => assert!(text.contains(first), "{text}"),
        }
    }
}
