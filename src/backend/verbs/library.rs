//! libibverbs and libmlx5, loaded when they are first needed: nothing of them is needed to build.

use super::ffi::{
    IbvAh, IbvAhAttr, IbvAsyncEvent, IbvCompChannel, IbvContext, IbvCq, IbvCqInitAttrEx, IbvDevice,
    IbvDeviceAttr, IbvGidEntry, IbvMr, IbvPd, IbvPortAttr, IbvQp, IbvQpAttr, IbvQpInitAttr, IbvQpInitAttrEx,
    Mlx5dvCqInitAttr, Mlx5dvObj, Mlx5dvQpInitAttr,
};
use crate::{Error, Result};
use std::{
    ffi::{CStr, c_char, c_int, c_void},
    io,
    sync::OnceLock,
};

/// Functions by name, each of the version whose interface is written here.
macro_rules! functions {
    ($($library:literal { $($version:literal: { $($name:ident($($arg:ty),*) $(-> $ret:ty)?;)* })* })*) => {
        /// The functions that are used.
        #[derive(Debug)]
        #[allow(missing_docs)] // the manual pages of the functions
        pub(super) struct Library {
            $($($(pub(super) $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*)*)*
        }

        impl Library {
            fn load() -> Result<Self> {
                $(
                    let library = open($library)?;
                    $($(let $name = symbol(library, $library, concat!(stringify!($name), "\0"), concat!($version, "\0"))?;)*)*
                )*
                Ok(Self {
                    $($($(
                        // SAFETY: the function of this name and version has this type, and its library is never
                        // unloaded.
                        $name: unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) $(-> $ret)?>($name)
                        },
                    )*)*)*
                })
            }
        }
    };
}

functions! {
    "libibverbs.so.1" {
        "IBVERBS_1.1": {
            ibv_get_device_list(*mut c_int) -> *mut *mut IbvDevice;
            ibv_free_device_list(*mut *mut IbvDevice);
            ibv_get_device_name(*mut IbvDevice) -> *const c_char;
            ibv_open_device(*mut IbvDevice) -> *mut IbvContext;
            ibv_close_device(*mut IbvContext) -> c_int;
            ibv_query_device(*mut IbvContext, *mut IbvDeviceAttr) -> c_int;
            ibv_query_port(*mut IbvContext, u8, *mut IbvPortAttr) -> c_int;
            ibv_query_pkey(*mut IbvContext, u8, c_int, *mut u16) -> c_int;
            ibv_get_async_event(*mut IbvContext, *mut IbvAsyncEvent) -> c_int;
            ibv_ack_async_event(*mut IbvAsyncEvent);
            ibv_alloc_pd(*mut IbvContext) -> *mut IbvPd;
            ibv_dealloc_pd(*mut IbvPd) -> c_int;
            ibv_dereg_mr(*mut IbvMr) -> c_int;
            ibv_destroy_cq(*mut IbvCq) -> c_int;
            ibv_get_cq_event(*mut IbvCompChannel, *mut *mut IbvCq, *mut *mut c_void) -> c_int;
            ibv_ack_cq_events(*mut IbvCq, u32);
            ibv_query_qp(*mut IbvQp, *mut IbvQpAttr, c_int, *mut IbvQpInitAttr) -> c_int;
            ibv_modify_qp(*mut IbvQp, *mut IbvQpAttr, c_int) -> c_int;
            ibv_destroy_qp(*mut IbvQp) -> c_int;
            ibv_create_ah(*mut IbvPd, *mut IbvAhAttr) -> *mut IbvAh;
            ibv_destroy_ah(*mut IbvAh) -> c_int;
        }
        "IBVERBS_1.0": {
            ibv_create_comp_channel(*mut IbvContext) -> *mut IbvCompChannel;
            ibv_destroy_comp_channel(*mut IbvCompChannel) -> c_int;
        }
        "IBVERBS_1.8": {
            ibv_reg_mr_iova2(*mut IbvPd, *mut c_void, usize, u64, u32) -> *mut IbvMr;
        }
        "IBVERBS_1.11": {
            _ibv_query_gid_ex(*mut IbvContext, u32, u32, *mut IbvGidEntry, u32, usize) -> c_int;
        }
    }
    "libmlx5.so.1" {
        "MLX5_1.2": {
            mlx5dv_init_obj(*mut Mlx5dvObj, u64) -> c_int;
        }
        "MLX5_1.1": {
            mlx5dv_create_cq(*mut IbvContext, *mut IbvCqInitAttrEx, *mut Mlx5dvCqInitAttr) -> *mut IbvCq;
        }
        "MLX5_1.3": {
            mlx5dv_create_qp(*mut IbvContext, *mut IbvQpInitAttrEx, *mut Mlx5dvQpInitAttr) -> *mut IbvQp;
        }
        "MLX5_1.8": {
            mlx5dv_is_supported(*mut IbvDevice) -> bool;
        }
    }
}

/// Both libraries, loaded once for the life of the process.
///
/// # Errors
/// The package that has the missing one.
pub(super) fn library() -> Result<&'static Library> {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    if let Some(library) = LIBRARY.get() {
        return Ok(library);
    }
    let library = Library::load()?;
    Ok(LIBRARY.get_or_init(|| library))
}

/// Loads a library, for the life of the process.
fn open(name: &'static str) -> Result<*mut c_void> {
    let package = if name.starts_with("libmlx5") { "ibverbs-providers" } else { "libibverbs1" };
    let path: Vec<u8> = name.bytes().chain([0]).collect();
    // SAFETY: a string that ends with 0. Initialisers of these libraries only set up themselves.
    let handle = unsafe { libc::dlopen(path.as_ptr().cast(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if handle.is_null() {
        let what = format!("loading {name}, which verbs devices need (apt install {package})");
        return Err(Error::os(what, loader_error()));
    }
    Ok(handle)
}

/// A function of a library. `name` and `version` end with 0.
fn symbol(library: *mut c_void, file: &str, name: &str, version: &str) -> Result<*mut c_void> {
    // SAFETY: a library that is loaded, and strings that end with 0.
    #[cfg(target_env = "gnu")]
    let address = unsafe { libc::dlvsym(library, name.as_ptr().cast(), version.as_ptr().cast()) };
    // Other C libraries find the default version, which is the newest.
    // SAFETY: as above.
    #[cfg(not(target_env = "gnu"))]
    let address = unsafe { libc::dlsym(library, name.as_ptr().cast()) };
    if address.is_null() {
        let what = format!(
            "{file} has no {} of version {}; rdma-core 32 or later is needed",
            name.trim_end_matches('\0'),
            version.trim_end_matches('\0')
        );
        return Err(Error::os(what, loader_error()));
    }
    Ok(address)
}

fn loader_error() -> io::Error {
    // SAFETY: the message of this thread's last call of the loader, or null.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return io::Error::other("no reason given");
    }
    // SAFETY: a string of the loader's, which lives until the next call.
    io::Error::other(unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned())
}

/// The result of a function that gives 0 or an error number; some give -1 and set `errno`.
pub(super) fn done(what: impl FnOnce() -> String, result: c_int) -> Result<()> {
    match result {
        0 => Ok(()),
        1.. => Err(Error::os(what(), io::Error::from_raw_os_error(result))),
        _ => Err(Error::os(what(), io::Error::last_os_error())),
    }
}

/// The result of a function that gives an object, or null and sets `errno`.
pub(super) fn made<T>(what: impl FnOnce() -> String, object: *mut T) -> Result<std::ptr::NonNull<T>> {
    std::ptr::NonNull::new(object).ok_or_else(|| Error::os(what(), io::Error::last_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_library_names_its_package() {
        for (library, package) in [
            ("libibverbs.so.none", "apt install libibverbs1"),
            ("libmlx5.so.none", "apt install ibverbs-providers"),
        ] {
            let text = open(library).unwrap_err().to_string();
            assert!(text.contains(library) && text.contains(package), "{text}");
        }
    }

    #[test]
    fn an_absent_function_names_the_version_needed() {
        let Ok(libc) = open("libc.so.6") else { return println!("skipped: no libc.so.6 to look into") };
        let text = symbol(libc, "libc.so.6", "ibv_nothing\0", "IBVERBS_9.9\0").unwrap_err().to_string();
        assert!(text.contains("ibv_nothing of version IBVERBS_9.9; rdma-core 32"), "{text}");
    }

    #[test]
    fn every_function_is_in_the_installed_libraries() {
        match library() {
            Ok(_) => {}
            Err(error) if error.to_string().starts_with("loading ") => println!("skipped: {error}"),
            Err(error) => panic!("{error}"),
        }
    }
}
