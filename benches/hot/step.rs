//! Counts the instructions and fences of one call exactly, by single-stepping a child process.
#![allow(dead_code, unreachable_pub)] // a module of a benchmark and of an example

use std::mem::MaybeUninit;

/// What one call executes.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Count {
    pub instructions: u32,
    pub sfences: u32,
    /// lfence and mfence.
    pub load_fences: u32,
    /// Instructions with a lock prefix.
    pub locks: u32,
}

/// Runs `call` in a child, and counts from `entry` until it returns to its caller. `None` where the system
/// does not allow tracing.
pub fn count(entry: usize, call: impl FnMut()) -> Option<Count> {
    let mut count = Count::default();
    for at in trace(entry, call)? {
        // SAFETY: the child ran the same program at the same addresses; an instruction that ends a page has no
        // page missing after it in any of these programs' code.
        let code = unsafe { (at as *const [u8; 3]).read_unaligned() };
        count.instructions += 1;
        count.sfences += u32::from(code == [0x0f, 0xae, 0xf8]);
        count.load_fences += u32::from(code[..2] == [0x0f, 0xae] && matches!(code[2], 0xe8 | 0xf0));
        count.locks += u32::from(code[0] == 0xf0);
    }
    Some(count)
}

/// The addresses of the instructions that are executed, in order.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub fn trace(entry: usize, mut call: impl FnMut()) -> Option<Vec<usize>> {
    // SAFETY: the child has this thread alone; it runs `call` and exits without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: asks to be traced, and waits for the parent.
        unsafe {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
        }
        call();
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    let mut executed = vec![];
    let mut return_to = None;
    let mut status = 0;
    loop {
        // SAFETY: waits for the child.
        if unsafe { libc::waitpid(child, &mut status, 0) } != child || !libc::WIFSTOPPED(status) {
            return None;
        }
        let mut registers = MaybeUninit::<libc::user_regs_struct>::uninit();
        // SAFETY: the child is stopped; on success the registers are filled in.
        let registers = unsafe {
            if libc::ptrace(libc::PTRACE_GETREGS, child, 0, registers.as_mut_ptr()) != 0 {
                return None;
            }
            registers.assume_init()
        };
        let at = registers.rip as usize;
        if return_to.is_none() && at == entry {
            // SAFETY: the child is stopped; the top of its stack is the return address.
            return_to =
                Some(unsafe { libc::ptrace(libc::PTRACE_PEEKDATA, child, registers.rsp, 0) } as usize);
        } else if return_to == Some(at) {
            break;
        }
        if return_to.is_some() {
            executed.push(at);
        }
        // SAFETY: the child is stopped.
        if unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, child, 0, 0) } != 0 {
            return None;
        }
    }
    // SAFETY: the child is ours.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, &mut status, 0);
    }
    Some(executed)
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub fn trace(_entry: usize, _call: impl FnMut()) -> Option<Vec<usize>> {
    None
}
