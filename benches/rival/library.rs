//! libibverbs and libmlx5, loaded at run time.

use super::ffi::*;
use std::ffi::{CStr, c_char, c_int, c_void};

macro_rules! functions {
    ($($library:literal { $($version:literal: $name:ident($($arg:ty),*) -> $ret:ty;)* })*) => {
        /// The functions that are used.
        pub struct Library { $($(pub $name: unsafe extern "C" fn($($arg),*) -> $ret,)*)* }

        impl Library {
            /// Loads both.
            pub fn load() -> Result<Self, String> {
                $(
                    let library = open($library)?;
                    $(
                        let found = symbol(library, concat!(stringify!($name), "\0"), concat!($version, "\0"))?;
                        // SAFETY: the function of this name and version has this type; its library stays loaded.
                        let $name = unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> $ret>(found)
                        };
                    )*
                )*
                Ok(Self { $($($name,)*)* })
            }
        }
    };
}

functions! {
    "libibverbs.so.1" {
        "IBVERBS_1.1": ibv_get_device_list(*mut c_int) -> *mut *mut IbvDevice;
        "IBVERBS_1.1": ibv_open_device(*mut IbvDevice) -> *mut IbvContext;
        "IBVERBS_1.1": ibv_alloc_pd(*mut IbvContext) -> *mut IbvPd;
        "IBVERBS_1.1": ibv_modify_qp(*mut IbvQp, *mut IbvQpAttr, c_int) -> c_int;
        "IBVERBS_1.1": ibv_create_ah(*mut IbvPd, *mut IbvAhAttr) -> *mut c_void;
        "IBVERBS_1.6": ibv_qp_to_qp_ex(*mut IbvQp) -> *mut IbvQpEx;
    }
    "libmlx5.so.1" {
        "MLX5_1.1": mlx5dv_create_cq(*mut IbvContext, *mut IbvCqInitAttrEx, *mut Mlx5dvCqInitAttr) -> *mut IbvCqEx;
        "MLX5_1.3": mlx5dv_create_qp(*mut IbvContext, *mut IbvQpInitAttrEx, *mut Mlx5dvQpInitAttr) -> *mut IbvQp;
        "MLX5_1.10": mlx5dv_qp_ex_from_ibv_qp_ex(*mut IbvQpEx) -> *mut Mlx5dvQpEx;
        "MLX5_1.2": mlx5dv_init_obj(*mut Mlx5dvObj, u64) -> c_int;
    }
}

fn open(name: &str) -> Result<*mut c_void, String> {
    let path = format!("{name}\0");
    // SAFETY: a C string. Initialisers of these libraries only set up themselves.
    let library = unsafe { libc::dlopen(path.as_ptr().cast(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    match library.is_null() {
        true => {
            Err(format!("{name} is not here: apt install libibverbs1 ibverbs-providers ({})", loader_error()))
        }
        false => Ok(library),
    }
}

/// `name` and `version` are C strings.
fn symbol(library: *mut c_void, name: &str, version: &str) -> Result<*mut c_void, String> {
    let c = |text: &str| text.as_ptr().cast::<c_char>();
    // SAFETY: a library that is loaded, and C strings.
    let found = unsafe { libc::dlvsym(library, c(name), c(version)) };
    if found.is_null() { Err(loader_error()) } else { Ok(found) }
}

fn loader_error() -> String {
    // SAFETY: the message of this thread's last call of the loader, or null.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return "no reason given".into();
    }
    // SAFETY: a string of the loader's, which lives until the next call.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}
