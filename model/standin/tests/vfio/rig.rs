//! A test is run again as a process of its own, with the stand-in loaded into it; there it speaks VFIO.

use std::{
    env,
    ffi::{CString, c_int, c_ulong},
    fs, io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    path::PathBuf,
    process::Command,
};
use vfio_bindings::bindings::vfio::*;

/// Set in the process that has the stand-in.
const INSIDE: &str = "MLX5_STANDIN_TEST";

fn library() -> PathBuf {
    let own = env::current_exe().expect("path of this program");
    let found = own.ancestors().skip(1).take(2).map(|folder| folder.join("libmlx5_standin.so"));
    found.into_iter().find(|path| path.is_file()).expect("libmlx5_standin.so beside the test programs")
}

/// Runs `body` in a process of its own on a card with these options, and gives back what that said on standard error.
/// The caller's own test is the one that is named.
pub(crate) fn on_card(name: &str, options: &str, body: impl FnOnce()) -> String {
    on_host(name, options, "", body)
}

/// The same in a computer that is set up as `host` says.
pub(crate) fn on_host(name: &str, options: &str, host: &str, body: impl FnOnce()) -> String {
    run(name, &[("MLX5_MODEL", options), ("MLX5_MODEL_HOST", host)], body)
}

/// The same, and the card's trace beside what was said.
pub(crate) fn traced(name: &str, host: &str, body: impl FnOnce()) -> (String, String) {
    let path = env::temp_dir().join(format!("{}-{}", name.replace("::", "-"), std::process::id()));
    let file = path.to_str().expect("a path of ASCII");
    let said = run(name, &[("MLX5_MODEL_HOST", host), ("MLX5_MODEL_TRACE", file)], body);
    let trace = if is_inside() { String::new() } else { fs::read_to_string(&path).expect("the trace") };
    // Inside there is none.
    let _ = fs::remove_file(&path);
    (said, trace)
}

fn run(name: &str, environment: &[(&str, &str)], body: impl FnOnce()) -> String {
    if env::var_os(INSIDE).is_some() {
        body();
        return String::new();
    }
    let child = Command::new(env::current_exe().expect("path of this program"))
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .envs(environment.iter().copied())
        .env("LD_PRELOAD", library())
        .output()
        .expect("the test program runs");
    let (stdout, stderr) =
        (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr).into_owned());
    assert!(child.status.success(), "{:?}\n{stdout}\n{stderr}", child.status);
    assert!(stdout.contains("test result: ok. 1 passed"), "no test of this name ran: {name}\n{stdout}");
    stderr
}

/// Whether this process is the one with the stand-in: what it says is read by the other.
pub(crate) fn is_inside() -> bool {
    env::var_os(INSIDE).is_some()
}

/// Number of VFIO's ioctl `n`.
pub(crate) fn number(n: u32) -> c_ulong {
    c_ulong::from(VFIO_TYPE) << 8 | c_ulong::from(VFIO_BASE + n)
}

/// An ioctl by its number: its value, or errno.
pub(crate) fn ioctl<T: ?Sized>(fd: &impl AsRawFd, n: u32, argument: *mut T) -> Result<c_int, c_int> {
    ioctl_raw(fd.as_raw_fd(), n, argument.cast::<u8>().addr())
}

/// An ioctl whose argument is a number.
pub(crate) fn ioctl_raw(fd: RawFd, n: u32, argument: usize) -> Result<c_int, c_int> {
    // SAFETY: the tests pass what the ioctl's definition asks for, or what must be refused before it is looked at.
    let result = unsafe { libc::ioctl(fd, number(n), argument) };
    if result < 0 { Err(errno()) } else { Ok(result) }
}

pub(crate) fn errno() -> c_int {
    io::Error::last_os_error().raw_os_error().expect("an errno")
}

/// Opens a path as C programs do.
pub(crate) fn open(path: &str) -> Result<OwnedFd, c_int> {
    let path = CString::new(path).expect("no NUL");
    // SAFETY: a C string.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR) };
    // SAFETY: a descriptor that was just opened.
    if fd < 0 { Err(errno()) } else { Ok(unsafe { OwnedFd::from_raw_fd(fd) }) }
}

pub(crate) fn eventfd() -> OwnedFd {
    // SAFETY: no pointers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK) };
    assert!(fd >= 0);
    // SAFETY: a descriptor that was just opened.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// How often an eventfd was signalled since it was last asked.
pub(crate) fn signals(fd: &OwnedFd) -> u64 {
    let mut count = [0; 8];
    // SAFETY: eight bytes to write.
    let n = unsafe { libc::read(fd.as_raw_fd(), count.as_mut_ptr().cast(), 8) };
    if n == 8 { u64::from_ne_bytes(count) } else { 0 }
}

/// Page-aligned memory that lives as long as the process.
pub(crate) fn pages(n_pages: usize) -> u64 {
    // SAFETY: fresh anonymous memory.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            n_pages * 4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(at, libc::MAP_FAILED);
    at.addr() as u64
}

pub(crate) const READ_WRITE: u32 = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE;

pub(crate) fn map(container: &OwnedFd, flags: u32, vaddr: u64, iova: u64, size: u64) -> Result<c_int, c_int> {
    let argsz = size_of::<vfio_iommu_type1_dma_map>() as u32;
    let mut map = vfio_iommu_type1_dma_map { argsz, flags, vaddr, iova, size };
    ioctl(container, 13, &raw mut map)
}

/// Unmaps, and returns how many bytes that were.
pub(crate) fn unmap(container: &OwnedFd, flags: u32, iova: u64, size: u64) -> Result<u64, c_int> {
    let argsz = size_of::<vfio_iommu_type1_dma_unmap>() as u32;
    let mut unmap = vfio_iommu_type1_dma_unmap { argsz, flags, iova, size, ..Default::default() };
    ioctl(container, 14, &raw mut unmap)?;
    Ok(unmap.size)
}

/// A device, opened the usual way.
pub(crate) struct Vfio {
    pub(crate) container: OwnedFd,
    pub(crate) group: OwnedFd,
    pub(crate) device: OwnedFd,
}

/// Puts function `index` into a container.
pub(crate) fn attach(container: &OwnedFd, index: u32) -> OwnedFd {
    let group = open(&format!("/dev/vfio/{}", 5555 + index)).expect("group");
    let mut fd = container.as_raw_fd();
    ioctl(&group, 4, &raw mut fd).expect("GROUP_SET_CONTAINER");
    group
}

/// Opens a device of a group that is in a container.
pub(crate) fn device(group: &OwnedFd, name: &str) -> Result<OwnedFd, c_int> {
    let name = CString::new(name).expect("no NUL");
    let fd = ioctl(group, 6, name.as_ptr().cast_mut())?;
    // SAFETY: a descriptor that was just opened.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Vfio {
    pub(crate) fn open() -> Self {
        let container = open("/dev/vfio/vfio").expect("container");
        let group = attach(&container, 0);
        ioctl_raw(container.as_raw_fd(), 2, VFIO_TYPE1v2_IOMMU as usize).expect("SET_IOMMU");
        let device = device(&group, "0000:01:00.0").expect("GROUP_GET_DEVICE_FD");
        Self { container, group, device }
    }

    /// Reads of region `index`.
    pub(crate) fn read<const N: usize>(&self, index: u32, offset: u64) -> Result<[u8; N], c_int> {
        let mut bytes = [0; N];
        let at = (u64::from(index) << 40 | offset) as i64;
        // SAFETY: N bytes to write.
        let n = unsafe { libc::pread64(self.device.as_raw_fd(), bytes.as_mut_ptr().cast(), N, at) };
        if n < 0 { Err(errno()) } else { Ok(bytes) }
    }

    /// Writes to region `index`.
    pub(crate) fn write(&self, index: u32, offset: u64, bytes: &[u8]) -> Result<isize, c_int> {
        let at = (u64::from(index) << 40 | offset) as i64;
        // SAFETY: the bytes are there.
        let n = unsafe { libc::pwrite64(self.device.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), at) };
        if n < 0 { Err(errno()) } else { Ok(n) }
    }
}
