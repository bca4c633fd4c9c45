//! The socket at the end of a wire that leaves the process.
//!
//! Nothing here waits: what cannot be sent now stays in the wire's queue or is lost and counted, as on a cable.
//! What goes wrong is said once on standard error, by name, and counted.

use super::{Port, UplinkAddress, Wire, datagram, packet::ROCE_UDP_PORT};
use rustix::net::sockopt;
use std::{
    borrow::Cow,
    fmt, fs,
    io::{self, ErrorKind},
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixDatagram,
    },
    path::PathBuf,
    sync::Arc,
};

/// Ethernet header.
const MIN_FRAME_BYTES: usize = 14;
/// Longer than any frame of a card, so that a frame that is too long is seen to be.
const BUFFER_BYTES: usize = 16 << 10;
const MAX_FRAME_BYTES: usize = 9978 + 18;
/// Frames of a round, so that work on queues gets its turn.
const BUDGET_FRAMES: usize = 64;
/// Bytes of frames that the kernel keeps until the engine takes them: the windows of some queue pairs.
const KERNEL_BUFFER_BYTES: usize = 8 << 20;

/// What has passed an uplink, and what has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UplinkCounters {
    /// Frames sent.
    pub n_sent: u64,
    /// Frames received.
    pub n_received: u64,
    /// Frames lost since nobody listens at the peer's address (ECONNREFUSED, ENOENT).
    pub n_refused: u64,
    /// Frames lost since the way to the peer takes no datagrams that long (EMSGSIZE).
    pub n_too_long: u64,
    /// Frames lost for another error of the socket.
    pub n_failed: u64,
    /// Frames lost since they are not RoCE v2 over IPv4 from the wire's address, which is all that `roce:` carries.
    pub n_not_roce: u64,
    /// Datagrams received that are no frames: shorter than an Ethernet header, longer than the largest frame; or no
    /// RoCE packet.
    pub n_malformed: u64,
}

impl fmt::Display for UplinkCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} frames sent, {} received", self.n_sent, self.n_received)?;
        for (n, what) in [
            (self.n_refused, "lost since nobody listened"),
            (self.n_too_long, "lost since too long for the way"),
            (self.n_failed, "lost by errors"),
            (self.n_not_roce, "lost since not RoCE v2 over IPv4 from here"),
            (self.n_malformed, "malformed"),
        ] {
            if n != 0 {
                write!(f, ", {n} {what}")?;
            }
        }
        Ok(())
    }
}

/// What to poll, and how frames go through it.
#[derive(Debug)]
pub(crate) enum Socket {
    /// Connected: only the peer's frames come in.
    Udp(UdpSocket),
    /// The peer may come and go at its path.
    Unix { socket: UnixDatagram, peer: PathBuf },
    /// RoCE v2 from this address.
    Roce { socket: UdpSocket, local: Ipv4Addr },
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Udp(socket) | Self::Roce { socket, .. } => socket.as_fd(),
            Self::Unix { socket, .. } => socket.as_fd(),
        }
    }
}

impl Socket {
    fn open(address: &UplinkAddress) -> io::Result<Self> {
        let socket = match address {
            UplinkAddress::Udp { local, peer } => {
                let socket = UdpSocket::bind(local)?;
                socket.connect(peer)?;
                socket.set_nonblocking(true)?;
                Self::Udp(socket)
            }
            UplinkAddress::Roce { local } => {
                // Not connected and not to be fragmented: so the host's packets have the identification 0.
                let socket = UdpSocket::bind((*local, ROCE_UDP_PORT))?;
                sockopt::set_ip_mtu_discover(&socket, sockopt::Ipv4PathMtuDiscovery::DO)?;
                socket.set_nonblocking(true)?;
                Self::Roce { socket, local: *local }
            }
            UplinkAddress::Unix { local, peer } => {
                // Left over by a process that is gone: nobody takes what is sent there.
                if let Err(error) = UnixDatagram::unbound()?.connect(local)
                    && error.kind() == ErrorKind::ConnectionRefused
                {
                    fs::remove_file(local)?;
                }
                let socket = UnixDatagram::bind(local)?;
                socket.set_nonblocking(true)?;
                Self::Unix { socket, peer: peer.clone() }
            }
        };
        // Beyond the system's limit for all if we may, else up to it.
        if sockopt::set_socket_recv_buffer_size_force(&socket, KERNEL_BUFFER_BYTES).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, KERNEL_BUFFER_BYTES)?;
        }
        Ok(socket)
    }

    /// Sends a frame; false if this wire does not carry such.
    fn send(&self, frame: &[u8]) -> io::Result<bool> {
        match self {
            Self::Udp(socket) => socket.send(frame)?,
            Self::Unix { socket, peer } => socket.send_to(frame, peer)?,
            Self::Roce { socket, local } => match datagram::from_frame(frame, *local) {
                Some((dest, datagram)) => socket.send_to(&datagram, (dest, ROCE_UDP_PORT))?,
                None => return Ok(false),
            },
        };
        Ok(true)
    }

    /// The frame of the next datagram, if it has one; and the datagram's length.
    fn receive<'a>(
        &self,
        buffer: &'a mut [u8],
        dest_mac: [u8; 6],
    ) -> io::Result<(usize, Option<Cow<'a, [u8]>>)> {
        let len = match self {
            Self::Udp(socket) => socket.recv(buffer)?,
            Self::Unix { socket, .. } => socket.recv(buffer)?,
            Self::Roce { socket, local } => {
                let (len, from) = socket.recv_from(buffer)?;
                let frame = match from {
                    SocketAddr::V4(from) if len <= MAX_FRAME_BYTES => {
                        datagram::to_frame(&buffer[..len], from, *local, dest_mac)
                    }
                    _ => None,
                };
                return Ok((len, frame.map(Cow::Owned)));
            }
        };
        let fits = (MIN_FRAME_BYTES..=MAX_FRAME_BYTES).contains(&len);
        Ok((len, fits.then(|| Cow::Borrowed(&buffer[..len]))))
    }
}

/// A port of a [`Wire`] that a socket continues.
#[derive(Debug)]
pub struct Uplink {
    address: UplinkAddress,
    socket: Arc<Socket>,
    port: Port,
    /// A frame that the socket did not take yet.
    stuck: Option<Vec<u8>>,
    buffer: Vec<u8>,
    counters: UplinkCounters,
}

impl Uplink {
    /// Opens the socket and gives `wire` a port that leads to it.
    ///
    /// # Errors
    /// Whatever binding the own end gives: another process has it, it is no address of this machine.
    pub fn open(address: &UplinkAddress, wire: &mut Wire) -> io::Result<Self> {
        Ok(Self {
            address: address.clone(),
            socket: Arc::new(Socket::open(address)?),
            port: wire.add_uplink(),
            stuck: None,
            buffer: vec![0; BUFFER_BYTES],
            counters: UplinkCounters::default(),
        })
    }

    pub(crate) fn socket(&self) -> Arc<Socket> {
        Arc::clone(&self.socket)
    }

    /// What has passed so far.
    pub fn counters(&self) -> UplinkCounters {
        self.counters
    }

    /// A frame waits for the socket, which does not tell when it takes one again.
    pub(crate) fn is_stuck(&self) -> bool {
        self.stuck.is_some()
    }

    /// Sends what waits for this port, as far as the socket takes it. True if anything moved.
    pub(crate) fn send_waiting(&mut self, wire: &mut Wire, now_ns: u64) -> bool {
        let mut busy = false;
        while let Some(frame) = self.stuck.take().or_else(|| wire.receive(self.port, now_ns)) {
            if !self.send(&frame) {
                self.stuck = Some(frame);
                break;
            }
            busy = true;
            wire.recycle(frame);
        }
        busy
    }

    /// Sends what waits for this port, and puts what has come in on the wire. True if anything moved.
    pub fn exchange(&mut self, wire: &mut Wire, now_ns: u64) -> bool {
        let mut busy = self.send_waiting(wire, now_ns);
        // RoCE of the host has no MACs; the card that it is for has one port.
        let dest_mac = wire.mac(Port(0)).unwrap_or_default();
        for _ in 0..BUDGET_FRAMES {
            match self.socket.receive(&mut self.buffer, dest_mac) {
                Ok((_, Some(frame))) => {
                    self.counters.n_received += 1;
                    wire.send(self.port, &frame, now_ns);
                }
                Ok((len, None)) => {
                    self.counters.n_malformed += 1;
                    let what = format!("a datagram of {len} bytes is no frame");
                    self.say_once(self.counters.n_malformed, &what);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // What was sent before has met nobody.
                Err(error) => self.lost(&error),
            }
            busy = true;
        }
        busy
    }

    /// Sends a frame or loses it; false if the socket has no room now.
    fn send(&mut self, frame: &[u8]) -> bool {
        let mut result = self.socket.send(frame);
        // A connected UDP socket tells here that an earlier datagram met nobody, and sends nothing.
        if let (Err(error), Socket::Udp(_)) = (&result, &*self.socket)
            && error.kind() == ErrorKind::ConnectionRefused
        {
            self.lost(&io::Error::from(ErrorKind::ConnectionRefused));
            result = self.socket.send(frame);
        }
        match result {
            Ok(true) => self.counters.n_sent += 1,
            Ok(false) => {
                self.counters.n_not_roce += 1;
                let what = "a frame is not RoCE v2 over IPv4 from this address, and lost like all such";
                self.say_once(self.counters.n_not_roce, what);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) => self.lost(&error),
        }
        true
    }

    fn lost(&mut self, error: &io::Error) {
        let counters = &mut self.counters;
        let (counter, what) = match error.kind() {
            ErrorKind::ConnectionRefused | ErrorKind::NotFound => (
                &mut counters.n_refused,
                "nobody listens at the peer's address; frames are lost until then".into(),
            ),
            _ if error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error()) => {
                let what =
                    "a frame is too long for the way to the peer (EMSGSIZE) and lost; use a smaller MTU";
                (&mut counters.n_too_long, what.into())
            }
            _ => (&mut counters.n_failed, format!("a frame is lost: {error}")),
        };
        *counter += 1;
        let count = *counter;
        self.say_once(count, &what);
    }

    fn say_once(&self, count: u64, what: &str) {
        if count == 1 {
            eprintln!("mlx5-model: wire {}: {what} (said once)", self.address);
        }
    }
}

impl Drop for Uplink {
    fn drop(&mut self) {
        if let UplinkAddress::Unix { local, .. } = &self.address {
            // Nobody is left to tell.
            let _ = fs::remove_file(local);
        }
    }
}
