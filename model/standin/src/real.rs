//! libc's own functions, behind ours.

use std::{
    ffi::{CStr, c_void},
    sync::atomic::{AtomicPtr, Ordering},
};

/// A symbol of the next library in the search order, looked up when first used.
pub(crate) struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address. Without one the process cannot go on: nobody could be told why.
    pub(crate) fn get(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() {
            return found;
        }
        // SAFETY: the name is a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            // SAFETY: ends the process.
            unsafe { libc::abort() };
        }
        // Two threads find the same.
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// Calls the next library's function of this name and type.
macro_rules! real {
    ($name:literal, fn($($ty:ty),* $(,)?) -> $ret:ty, $($arg:expr),* $(,)?) => {{
        static NEXT: $crate::real::Next = $crate::real::Next::new($name);
        // SAFETY: the symbol is libc's function of that name, which has this type.
        let function = unsafe {
            std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($ty),*) -> $ret>(NEXT.get())
        };
        // SAFETY: our caller called the same function with the same arguments.
        unsafe { function($($arg),*) }
    }};
}
pub(crate) use real;
