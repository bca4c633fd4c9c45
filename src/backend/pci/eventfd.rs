//! Interrupts as file descriptors.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd},
    time::{Duration, Instant},
};

/// An eventfd: a counter that is readable while it is not zero. A device's MSI-X vector adds to it.
#[derive(Debug)]
pub struct EventFd {
    file: File,
}

impl EventFd {
    /// A counter at zero.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and nobody else owns it.
        Ok(Self { file: unsafe { File::from_raw_fd(fd) } })
    }

    /// Makes it readable.
    pub fn signal(&self) {
        // Fails only when the counter is full, and then it is readable.
        let _ = (&self.file).write(&1_u64.to_ne_bytes());
    }

    /// Sets the counter to zero; whether it was not.
    pub fn clear(&self) -> bool {
        (&self.file).read(&mut [0; 8]).is_ok()
    }

    /// Sleeps until it is readable, up to `timeout`; whether it is. Signals do not shorten the sleep.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        Self::wait_any(&[self], timeout)
    }

    /// Sleeps until one of `events` is readable, up to `timeout`; whether one is.
    pub fn wait_any(events: &[&Self], timeout: Duration) -> io::Result<bool> {
        let fds: Vec<_> = events.iter().map(|event| event.as_fd()).collect();
        wait_readable(&fds, Instant::now().checked_add(timeout))
    }
}

/// Sleeps until one of `fds` is readable, up to `deadline`; whether one is. Signals do not shorten the sleep.
pub(crate) fn wait_readable(fds: &[BorrowedFd<'_>], deadline: Option<Instant>) -> io::Result<bool> {
    let of = |fd: &BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut fds: Vec<_> = fds.iter().map(of).collect();
    loop {
        let left = deadline.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
        // Rounded up, so that the deadline has passed when poll says so; cut to what poll takes.
        let millis = left.as_nanos().div_ceil(1_000_000).min(60_000) as libc::c_int;
        // SAFETY: the array is valid for its length for the duration of the call.
        let n = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, millis) };
        if n > 0 {
            return Ok(true);
        }
        if n < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        if left.is_zero() {
            return Ok(false);
        }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_times_out() {
        let event = EventFd::new().unwrap();
        assert!(!event.wait(Duration::from_millis(1)).unwrap());
        event.signal();
        event.signal();
        assert!(event.wait(Duration::MAX).unwrap());
        assert!(event.clear() && !event.clear());
    }

    /// Case L9: signals do not shorten a sleep, nor fail it.
    #[test]
    fn signal_during_command() {
        extern "C" fn nothing(_: libc::c_int) {}
        // SAFETY: an all-zero sigaction is valid, and the handler does nothing. Without SA_RESTART, every
        // system call that sleeps is interrupted.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
        }
        let event = EventFd::new().unwrap();
        let start = Instant::now();
        // SAFETY: names the calling thread.
        let sleeper = unsafe { libc::pthread_self() };
        std::thread::scope(|scope| {
            let signals = scope.spawn(move || {
                for _ in 0..20 {
                    std::thread::sleep(Duration::from_millis(5));
                    // SAFETY: the thread lives until the scope ends.
                    assert_eq!(unsafe { libc::pthread_kill(sleeper, libc::SIGUSR1) }, 0);
                }
            });
            assert!(!event.wait(Duration::from_millis(200)).unwrap());
            assert!(start.elapsed() >= Duration::from_millis(200));
            signals.join().unwrap();
        });
    }
}
