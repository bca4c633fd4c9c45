//! Descriptors from which programs read events: pipes, in which each event is one record.
//!
//! The kernel counts the events of an object that a program has read, and libibverbs waits at the object's end until as
//! many are acknowledged. A pipe does not tell what was read: so the events that are still in it are taken out.

use crate::{libc_calls::errno, uapi::CompEventDesc};
use std::{
    collections::BTreeMap,
    ffi::c_int,
    fs::{File, OpenOptions},
    io::{ErrorKind, Read, Write},
    os::{
        fd::{FromRawFd, OwnedFd, RawFd},
        unix::fs::OpenOptionsExt,
    },
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};
use zerocopy::IntoBytes;

/// A descriptor of events.
#[derive(Debug)]
pub(crate) struct EventPipe {
    record_bytes: usize,
    ends: Mutex<Ends>,
}

#[derive(Debug)]
struct Ends {
    /// Does not wait when the pipe is full.
    writer: File,
    /// An opening of our own, which does not wait. It keeps the pipe whole when the program has closed it.
    reader: File,
}

impl EventPipe {
    /// A pipe for records of a length; its reading end is the program's.
    pub(crate) fn new(record_bytes: usize) -> Result<(Arc<Self>, RawFd), c_int> {
        let mut fds = [0; 2];
        // SAFETY: room for two descriptors.
        if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(errno());
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        let writer = unsafe { OwnedFd::from_raw_fd(fds[1]) };
        // SAFETY: a descriptor of ours, and flags.
        if unsafe { libc::fcntl(fds[1], libc::F_SETFL, libc::O_NONBLOCK) } != 0 {
            return Err(errno());
        }
        // Another opening: whether the program's own waits is the program's.
        let path = format!("/proc/self/fd/{}", fds[0]);
        let reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let reader = reader.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
        let ends = Mutex::new(Ends { writer: writer.into(), reader });
        Ok((Arc::new(Self { record_bytes, ends }), fds[0]))
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a record; false if the program has left so many unread that there is no room.
    pub(crate) fn post(&self, record: &[u8]) -> bool {
        debug_assert_eq!(record.len(), self.record_bytes);
        // Records are shorter than what a pipe takes in one piece.
        self.ends().writer.write(record).is_ok_and(|n| n == record.len())
    }

    /// Takes the records out that begin with `element`, and returns how many there were.
    pub(crate) fn retract(&self, element: u64) -> u32 {
        let mut ends = self.ends();
        let mut unread = Vec::new();
        loop {
            let mut some = [0; 4096];
            match ends.reader.read(&mut some) {
                Ok(0) => break,
                Ok(n) => unread.extend_from_slice(&some[..n]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Empty.
                Err(_) => break,
            }
        }
        let mut n = 0;
        for record in unread.chunks_exact(self.record_bytes) {
            if record.starts_with(&element.to_ne_bytes()) {
                n += 1;
            } else {
                // There was room for them before.
                let _ = ends.writer.write(record);
            }
        }
        n
    }
}

/// An object of a program's, and the events of it that were told.
#[derive(Debug)]
pub(crate) struct Source {
    pipe: Arc<EventPipe>,
    element: u64,
    n_posted: AtomicU32,
}

impl Source {
    /// Events of the object that the program calls `element`.
    pub(crate) fn new(pipe: &Arc<EventPipe>, element: u64) -> Arc<Self> {
        Arc::new(Self { pipe: Arc::clone(pipe), element, n_posted: AtomicU32::new(0) })
    }

    /// The program's name of the object.
    pub(crate) fn element(&self) -> u64 {
        self.element
    }

    /// Tells of a completion.
    pub(crate) fn complete(&self) {
        self.post(CompEventDesc { cq_handle: self.element }.as_bytes());
    }

    /// Writes a record of the object.
    pub(crate) fn post(&self, record: &[u8]) {
        if self.pipe.post(record) {
            self.n_posted.fetch_add(1, Ordering::Relaxed);
        } else {
            super::complain("events are lost: the program has left too many unread");
        }
    }

    /// The object is gone, and nothing more is posted of it: how many of its events the program has read.
    pub(crate) fn retire(&self) -> u32 {
        let unread = self.pipe.retract(self.element);
        self.n_posted.load(Ordering::Relaxed).saturating_sub(unread)
    }
}

type Channels = BTreeMap<RawFd, Arc<EventPipe>>;

/// Completion channels by the program's descriptor.
fn channels() -> MutexGuard<'static, Channels> {
    static CHANNELS: Mutex<Channels> = Mutex::new(BTreeMap::new());
    CHANNELS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a completion channel.
pub(crate) fn create_channel() -> Result<RawFd, c_int> {
    let (pipe, fd) = EventPipe::new(size_of::<CompEventDesc>())?;
    channels().insert(fd, pipe);
    Ok(fd)
}

/// The channel of a descriptor.
pub(crate) fn channel(fd: RawFd) -> Option<Arc<EventPipe>> {
    channels().get(&fd).cloned()
}

/// The program has closed a descriptor.
pub(crate) fn closed(fd: RawFd) {
    // Closes descriptors itself: not under the lock.
    let gone = channels().remove(&fd);
    drop(gone);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the program reads.
    fn read(fd: RawFd) -> u64 {
        let mut bytes = [0; 8];
        // SAFETY: room for 8 bytes.
        let n = unsafe { libc::read(fd, bytes.as_mut_ptr().cast(), 8) };
        assert_eq!(n, 8);
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn what_was_read_is_counted_and_what_was_not_goes() {
        let (pipe, fd) = EventPipe::new(8).unwrap();
        let (a, b) = (Source::new(&pipe, 0xa), Source::new(&pipe, 0xb));
        for source in [&a, &b, &a, &a, &b] {
            source.complete();
        }
        assert_eq!(read(fd), 0xa);
        assert_eq!(a.retire(), 1);
        assert_eq!([read(fd), read(fd)], [0xb, 0xb], "those of others stay, in their order");
        assert_eq!(b.retire(), 2);
    }

    #[test]
    fn a_full_pipe_loses_events_and_does_not_wait() {
        let (pipe, fd) = EventPipe::new(8).unwrap();
        let source = Source::new(&pipe, 1);
        let n_fit = (0..100_000).take_while(|_| pipe.post(&1_u64.to_ne_bytes())).count() as u32;
        assert!(n_fit >= 4096, "{n_fit}");
        source.complete();
        assert_eq!(read(fd), 1);
        assert_eq!(pipe.retract(1), n_fit - 1);
    }
}
