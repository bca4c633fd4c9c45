//! Messages of the vfio-user protocol 0.1, and the socket that carries them, as a client sees them.
#![allow(unsafe_code)]

use std::{
    io::{self, Read, Write},
    mem,
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    ptr,
    time::{Duration, Instant},
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Commands that this client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Command {
    Version = 1,
    DmaMap = 2,
    DmaUnmap = 3,
    DeviceGetInfo = 4,
    DeviceGetRegionInfo = 5,
    DeviceGetIrqInfo = 7,
    DeviceSetIrqs = 8,
    RegionRead = 9,
    RegionWrite = 10,
    DeviceReset = 13,
}

/// What every message begins with. Integers are of the machine's own byte order.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    message_id: u16,
    command: u16,
    message_size: u32,
    flags: u32,
    error: u32,
}

/// `flags`: the message is an answer.
const REPLY: u32 = 1;
/// `flags`: the kinds of messages.
const TYPE_MASK: u32 = 0xf;
/// `flags`: the sender wants no answer.
const NO_REPLY: u32 = 1 << 4;
/// `flags`: the command failed with `error`.
const ERROR: u32 = 1 << 5;

const HEADER_BYTES: usize = size_of::<Header>();

/// Longest answer that a command of this client has.
const MAX_REPLY_BYTES: usize = 4096;

/// DMA_MAP.
#[derive(Debug, Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct DmaMap {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    /// Of the memory in its file.
    pub(super) offset: u64,
    pub(super) address: u64,
    pub(super) size: u64,
}

/// DMA_UNMAP.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct DmaUnmap {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) address: u64,
    pub(super) size: u64,
}

/// DEVICE_GET_INFO.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct DeviceInfo {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) num_regions: u32,
    pub(super) num_irqs: u32,
}

/// DEVICE_GET_REGION_INFO, before its capabilities.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RegionInfo {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) index: u32,
    pub(super) cap_offset: u32,
    pub(super) size: u64,
    /// Of the region in the file that can be mapped.
    pub(super) offset: u64,
}

/// DEVICE_GET_IRQ_INFO.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct IrqInfo {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) index: u32,
    pub(super) count: u32,
}

/// DEVICE_SET_IRQS.
#[derive(Debug, Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct SetIrqs {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) index: u32,
    pub(super) start: u32,
    pub(super) count: u32,
}

/// REGION_READ, and REGION_WRITE before its data.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RegionAccess {
    pub(super) offset: u64,
    pub(super) region: u32,
    pub(super) count: u32,
}

/// VERSION, before its capabilities.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Version {
    major: u16,
    minor: u16,
}

/// What this client can do: two file descriptors come in no message to it, and it moves no bulk data.
const CAPABILITIES: &str = "{\"capabilities\":{\"max_msg_fds\":1,\"max_data_xfer_size\":65536}}\0";

/// What an answer says.
#[derive(Debug)]
pub(super) struct Reply {
    bytes: Vec<u8>,
    /// The file that came with it.
    pub(super) file: Option<OwnedFd>,
}

impl Reply {
    /// The structure that it begins with.
    pub(super) fn head<T: FromBytes>(&self) -> io::Result<T> {
        T::read_from_prefix(&self.bytes).map(|(head, _)| head).map_err(|_| {
            malformed(format!("an answer of {} bytes where {} are due", self.bytes.len(), size_of::<T>()))
        })
    }

    /// All of it.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

pub(super) fn malformed(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the vfio-user server broke the protocol: {text}"))
}

/// The connection: one command, one answer. After an error of the connection itself it is of no more use.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    timeout: Duration,
    next_message_id: u16,
    broken: bool,
}

impl Connection {
    /// Connects to the server at `path`, and agrees on the version. Every answer is due within `timeout`.
    pub(super) fn open(path: &Path, timeout: Duration) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_write_timeout(Some(timeout))?;
        let mut connection = Self { stream, timeout, next_message_id: 0, broken: false };
        let mut body = Version { major: 0, minor: 1 }.as_bytes().to_vec();
        body.extend(CAPABILITIES.as_bytes());
        let version: Version = connection.call(Command::Version, &body, None)?.head()?;
        if version.major != 0 {
            return Err(malformed(format!("version {}.{}, not 0.1", version.major, version.minor)));
        }
        Ok(connection)
    }

    /// Whether the server is lost.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Sends a command, and a file with it, and waits for its answer.
    ///
    /// # Errors
    /// What the server refused; or what broke the connection.
    pub(super) fn call(
        &mut self,
        command: Command,
        body: &[u8],
        file: Option<BorrowedFd<'_>>,
    ) -> io::Result<Reply> {
        if self.broken {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the vfio-user server is gone"));
        }
        let answer = self.exchange(command, body, file).map_err(|error| match error.kind() {
            // A read or write that reached its deadline.
            io::ErrorKind::WouldBlock => self.late(),
            _ => error,
        });
        self.broken = answer.is_err();
        let (header, reply) = answer?;
        if header.flags & ERROR == 0 {
            return Ok(reply);
        }
        // Servers exist that say no reason.
        let reason = match i32::try_from(header.error) {
            Ok(errno @ 1..) => io::Error::from_raw_os_error(errno),
            _ => io::Error::other("it gives no reason; its own output may"),
        };
        Err(io::Error::new(reason.kind(), format!("the vfio-user server refused {command:?}: {reason}")))
    }

    fn exchange(
        &mut self,
        command: Command,
        body: &[u8],
        file: Option<BorrowedFd<'_>>,
    ) -> io::Result<(Header, Reply)> {
        let deadline = Instant::now() + self.timeout;
        let message_id = self.next_message_id;
        self.next_message_id = message_id.wrapping_add(1);
        let mut header = Header { message_id, command: command as u16, message_size: 0, flags: 0, error: 0 };
        self.send(&mut header, body, file)?;
        loop {
            let (mut header, reply) = self.receive(deadline)?;
            if header.flags & TYPE_MASK == REPLY {
                if (header.message_id, header.command) == (message_id, command as u16) {
                    return Ok((header, reply));
                }
                return Err(malformed(format!(
                    "an answer to message {} of command {}, not to {message_id} of {}",
                    header.message_id, header.command, command as u16
                )));
            }
            // The server asks (DMA_READ, DMA_WRITE): it can map all memory that it was given.
            if header.flags & NO_REPLY == 0 {
                header.flags = REPLY | ERROR;
                header.error = libc::EOPNOTSUPP as u32;
                self.send(&mut header, &[], None)?;
            }
        }
    }

    fn send(&mut self, header: &mut Header, body: &[u8], file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        // No message of this client is long.
        header.message_size = (HEADER_BYTES + body.len()) as u32;
        let bytes = [header.as_bytes(), body].concat();
        let n_sent = match file {
            Some(file) => send_with_file(&self.stream, &bytes, file)?,
            None => 0,
        };
        self.stream.write_all(&bytes[n_sent..])
    }

    /// One whole message.
    fn receive(&mut self, deadline: Instant) -> io::Result<(Header, Reply)> {
        let mut header = Header::new_zeroed();
        self.wait(deadline)?;
        // The file comes with the first byte.
        let (n, file) = receive_with_file(&self.stream, header.as_mut_bytes())?;
        if n == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the vfio-user server closed the connection",
            ));
        }
        self.fill(&mut header.as_mut_bytes()[n..], deadline)?;
        let len_bytes = (header.message_size as usize).checked_sub(HEADER_BYTES);
        let Some(len_bytes) = len_bytes.filter(|len| *len <= MAX_REPLY_BYTES) else {
            return Err(malformed(format!(
                "a message of {} bytes; {HEADER_BYTES} to {} are expected",
                header.message_size,
                HEADER_BYTES + MAX_REPLY_BYTES
            )));
        };
        let mut bytes = vec![0; len_bytes];
        self.fill(&mut bytes, deadline)?;
        Ok((header, Reply { bytes, file }))
    }

    fn fill(&mut self, mut bytes: &mut [u8], deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            self.wait(deadline)?;
            match self.stream.read(bytes)? {
                0 => return Err(malformed("the connection ends inside a message".into())),
                n => bytes = &mut bytes[n..],
            }
        }
        Ok(())
    }

    /// Lets the next read wait until the deadline.
    fn wait(&self, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.late());
        }
        self.stream.set_read_timeout(Some(left))
    }

    fn late(&self) -> io::Error {
        let text = format!("the vfio-user server did not answer within {:?}", self.timeout);
        io::Error::new(io::ErrorKind::TimedOut, text)
    }
}

/// Room for one descriptor in a control message.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Sends `bytes` with a file: how many bytes went.
fn send_with_file(stream: &UnixStream, bytes: &[u8], file: BorrowedFd<'_>) -> io::Result<usize> {
    let mut control = Control([0; 64]);
    let mut iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: a structure of integers and pointers, for which zeros are a value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut iov;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: arithmetic on a length.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<i32>() as u32) } as _;
    // SAFETY: `message` has room for the header, and for one descriptor behind it; `sendmsg` reads `bytes` and
    // `control`, which outlive the call.
    let n = unsafe {
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        (*head).cmsg_level = libc::SOL_SOCKET;
        (*head).cmsg_type = libc::SCM_RIGHTS;
        (*head).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as _;
        ptr::write_unaligned(libc::CMSG_DATA(head).cast::<i32>(), file.as_raw_fd());
        libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Receives into `bytes`: how many came, and the file that came with them.
fn receive_with_file(stream: &UnixStream, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut control = Control([0; 64]);
    let mut iov = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: a structure of integers and pointers, for which zeros are a value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut iov;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    let n = loop {
        // SAFETY: `recvmsg` writes `bytes` and `control`, which outlive the call, up to the lengths given.
        let n = unsafe { libc::recvmsg(stream.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        match usize::try_from(n) {
            Ok(n) => break n,
            Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(io::Error::last_os_error()),
        }
    };
    let mut file = None;
    // SAFETY: `message` is as `recvmsg` left it, and the headers that CMSG_FIRSTHDR and CMSG_NXTHDR give are
    // inside `control`. Every descriptor in them was made for us, and is owned by nobody else.
    unsafe {
        let mut head = libc::CMSG_FIRSTHDR(&raw const message);
        while !head.is_null() {
            if ((*head).cmsg_level, (*head).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let n_bytes = ((*head).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                for i in 0..n_bytes / size_of::<i32>() {
                    let fd = ptr::read_unaligned(libc::CMSG_DATA(head).cast::<i32>().add(i));
                    // One is kept, and more than one is closed.
                    file = Some(OwnedFd::from_raw_fd(fd));
                }
            }
            head = libc::CMSG_NXTHDR(&raw const message, head);
        }
    }
    Ok((n, file))
}

#[cfg(test)]
mod tests;
