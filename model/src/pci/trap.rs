//! Mapped pages that fault on every store, carried out by a SIGSEGV handler.
//!
//! A store to a register page faults, since the page is mapped read-only. The handler decodes the one
//! instruction, gives its bytes to the page's owner, and goes on after it. All other faults go to the
//! handler that was there before. The handler runs on the faulting thread's own stack: it calls the model,
//! and an alternate stack is too small for that. So a thread that overflows its stack dies by SIGSEGV
//! without the message that Rust would print.

use super::store::{SignalRegisters, decode};
use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr::NonNull,
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

/// Who carries out a store.
pub(crate) trait StoreSink: Send + Sync {
    /// Takes a store of `bytes` at `offset` of BAR0, in memory order.
    fn store(&self, offset: u64, bytes: &[u8]);
}

struct Region {
    base: usize,
    len_bytes: usize,
    bar_offset: u64,
    sink: Arc<dyn StoreSink>,
}

static REGIONS: RwLock<Vec<Region>> = RwLock::new(Vec::new());
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// A trapped range, released on drop.
#[derive(Debug)]
pub(crate) struct Trap {
    base: usize,
}

impl Trap {
    /// Gives every store to `len_bytes` at `base` to `sink`, as a store to `bar_offset` on.
    ///
    /// # Errors
    /// The signal handler could not be installed.
    pub(crate) fn new(
        base: NonNull<u8>,
        len_bytes: usize,
        bar_offset: u64,
        sink: Arc<dyn StoreSink>,
    ) -> io::Result<Self> {
        install()?;
        let base = base.addr().get();
        let mut regions = REGIONS.write().unwrap_or_else(PoisonError::into_inner);
        regions.push(Region { base, len_bytes, bar_offset, sink });
        Ok(Self { base })
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        let mut regions = REGIONS.write().unwrap_or_else(PoisonError::into_inner);
        let region = regions.iter().position(|region| region.base == self.base);
        let region = region.map(|at| regions.swap_remove(at));
        drop(regions);
        drop(region); // may be the card's last owner: not under the lock
    }
}

fn install() -> io::Result<()> {
    static INSTALLED: std::sync::Mutex<bool> = std::sync::Mutex::new(false);
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if *installed {
        return Ok(());
    }
    // iced-x86 builds its tables on first use: not in a signal handler.
    decode(&[0x90], 0, &NoRegisters);
    // SAFETY: all-zero bytes are a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as extern "C" fn(_, _, _) as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: all-zero bytes are a valid sigaction.
    let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: both point to sigactions; the handler keeps to what a synchronous fault of a plain store
    // allows, since that store held none of the locks that the handler takes.
    unsafe {
        if libc::sigaction(libc::SIGSEGV, std::ptr::null(), &mut previous) != 0 {
            return Err(io::Error::last_os_error());
        }
        PREVIOUS.get_or_init(|| previous);
        if libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    *installed = true;
    Ok(())
}

struct NoRegisters;
impl super::store::Registers for NoRegisters {
    fn general(&self, _: usize) -> u64 {
        0
    }
    fn vector(&self, _: usize) -> [u8; 64] {
        [0; 64]
    }
}

fn say(text: &str) {
    // SAFETY: the pointer and length are those of a string. Nothing useful can be done if it fails.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

extern "C" fn handler(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives both pointers to a handler with SA_SIGINFO.
    let (addr, ucontext) = unsafe { ((*info).si_addr() as usize, &mut *context.cast::<libc::ucontext_t>()) };
    match catch_unwind(AssertUnwindSafe(|| carry_out(addr, ucontext))) {
        Ok(true) => {}
        Ok(false) => chain(signal, info, context),
        Err(_) => {
            say("mlx5-model: a panic while carrying out a store to a trapped page\n");
            // SAFETY: ends the process.
            unsafe { libc::abort() };
        }
    }
}

/// Carries out the store at `addr`; false if it is not ours.
fn carry_out(addr: usize, context: &mut libc::ucontext_t) -> bool {
    let found = {
        let regions = REGIONS.read().unwrap_or_else(PoisonError::into_inner);
        regions
            .iter()
            .find(|region| addr.wrapping_sub(region.base) < region.len_bytes)
            .map(|region| (region.bar_offset + (addr - region.base) as u64, Arc::clone(&region.sink)))
    };
    let Some((offset, sink)) = found else { return false };
    let rip = context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
    // The page after the instruction's may not be mapped: look there only if need be.
    let to_page_end = 0x1000 - (rip & 0xfff);
    // SAFETY: the pointer is to this very context, inside its handler.
    let registers = unsafe { SignalRegisters::new(context) };
    let store = [to_page_end.min(15), 15].into_iter().find_map(|len_bytes| {
        // SAFETY: the instruction at `rip` was just fetched, so its page is mapped; the second page is read
        // only if the first part is not a whole instruction.
        let code = unsafe { std::slice::from_raw_parts(rip as *const u8, len_bytes) };
        decode(code, rip as u64, &registers)
    });
    let Some(store) = store else {
        say("mlx5-model: an instruction that is no plain store writes to a trapped register page\n");
        return false;
    };
    sink.store(offset, store.bytes());
    context.uc_mcontext.gregs[libc::REG_RIP as usize] = (rip + store.instruction_bytes) as i64;
    true
}

/// Hands the fault to the handler that was installed before.
fn chain(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(previous) = PREVIOUS.get() else { return };
    match previous.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: back to the default: the instruction faults again and the process ends as it would
            // have without us.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: a handler that was installed with SA_SIGINFO has this signature.
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: a handler that was installed without SA_SIGINFO has this signature.
            let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}
