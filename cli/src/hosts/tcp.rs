//! The TCP connection over which two hosts tell each other what traffic needs. Every wait has a deadline.

use crate::failure::Failure;
use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// The port of perftest and of rdma-core's examples, and ours.
pub(crate) const PORT: u16 = 18515;

/// Bytes of a read, and reads that may wait to be taken.
const CHUNK_BYTES: usize = 64 << 10;
const MAX_CHUNKS: usize = 16;
/// The longest line: the addresses of the most queue pairs that there can be.
const MAX_LINE_BYTES: usize = 16 << 20;
/// Pause between two tries.
const TRY_EVERY: Duration = Duration::from_millis(20);

/// A connection to the peer. A thread reads, so that a look for news costs no system call.
#[derive(Debug)]
pub(crate) struct Tcp {
    stream: TcpStream,
    peer: SocketAddr,
    incoming: Receiver<io::Result<Vec<u8>>>,
    /// Read, and not taken.
    buffer: Vec<u8>,
    reader: Option<JoinHandle<()>>,
}

/// Splits `HOST`, `HOST:PORT`, `[V6]:PORT` or a bare IPv6 address.
pub(crate) fn host_port(text: &str) -> Result<(String, u16), String> {
    let port =
        |port: &str| port.parse().map_err(|_| format!("`{port}` in `{text}` is not a TCP port, 0 to 65535"));
    if let Some((host, rest)) = text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        return match rest.strip_prefix(':') {
            Some(number) => Ok((host.into(), port(number)?)),
            None if rest.is_empty() => Ok((host.into(), PORT)),
            None => Err(format!("`{text}`: write [ADDRESS]:PORT")),
        };
    }
    match text.split_once(':') {
        Some((host, number)) if !number.contains(':') => Ok((host.into(), port(number)?)),
        _ => Ok((text.into(), PORT)),
    }
}

impl Tcp {
    /// Waits for a peer at `at` (an empty host for all addresses); `bound` is told where.
    pub(crate) fn accept(
        at: &(String, u16),
        deadline: Instant,
        bound: impl FnOnce(SocketAddr) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let (host, port) = at;
        let listener = match host.as_str() {
            // Both families where the system has IPv6.
            "" => TcpListener::bind(("::", *port)).or_else(|_| TcpListener::bind(("0.0.0.0", *port))),
            host => TcpListener::bind((host, *port)),
        };
        let listener =
            listener.map_err(|error| told(&format!("--listen: cannot listen at {host}:{port}"), &error))?;
        listener.set_nonblocking(true).map_err(|error| told("--listen", &error))?;
        bound(listener.local_addr().map_err(|error| told("--listen", &error))?)?;
        loop {
            match listener.accept() {
                Ok((stream, peer)) => return Self::new(stream, peer),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(told("--listen: accept", &error)),
            }
            if Instant::now() > deadline {
                return Err(Failure::Run(
                    "nobody connected within --wait; start the peer with --connect".into(),
                ));
            }
            thread::sleep(TRY_EVERY);
        }
    }

    /// Connects to the peer at `to`, and tries again until `deadline` if it does not listen yet.
    pub(crate) fn connect(to: &(String, u16), deadline: Instant) -> Result<Self, Failure> {
        let (host, port) = to;
        let addresses: Vec<_> = (host.as_str(), *port)
            .to_socket_addrs()
            .map_err(|error| Failure::Usage(format!("--connect {host}: {error}")))?
            .collect();
        loop {
            let mut last = None;
            for peer in &addresses {
                let left = deadline.saturating_duration_since(Instant::now()).max(TRY_EVERY);
                match TcpStream::connect_timeout(peer, left) {
                    Ok(stream) => return Self::new(stream, *peer),
                    Err(error) => last = Some(error),
                }
            }
            if Instant::now() > deadline {
                let why = last.map_or("it has no address".into(), |error| error.to_string());
                return Err(Failure::Run(format!(
                    "nobody listens at {host}:{port} within --wait ({why}); start the peer with --listen"
                )));
            }
            thread::sleep(TRY_EVERY);
        }
    }

    fn new(stream: TcpStream, peer: SocketAddr) -> Result<Self, Failure> {
        let failed = |error: io::Error| told("the connection to the peer", &error);
        stream.set_nonblocking(false).map_err(failed)?;
        // Peers read each message with one call, so each must be one segment, sent at once.
        stream.set_nodelay(true).map_err(failed)?;
        let mut from = stream.try_clone().map_err(failed)?;
        let (to, incoming) = sync_channel(MAX_CHUNKS);
        let read = move || loop {
            let mut bytes = vec![0; CHUNK_BYTES];
            let chunk = from.read(&mut bytes).map(|n| bytes[..n].to_vec());
            let last = chunk.as_ref().map_or(true, Vec::is_empty);
            if to.send(chunk).is_err() || last {
                return;
            }
        };
        let reader = thread::Builder::new().name("mlx5-tcp".into()).spawn(read).map_err(failed)?;
        Ok(Self { stream, peer, incoming, buffer: Vec::new(), reader: Some(reader) })
    }

    /// The peer's address.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Sends `bytes`, as one segment if they fit one.
    pub(crate) fn send(&mut self, bytes: &[u8], timeout: Duration) -> Result<(), Failure> {
        let sent = self.stream.set_write_timeout(Some(timeout)).and_then(|()| self.stream.write_all(bytes));
        sent.map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => self.gone(),
            ErrorKind::WouldBlock | ErrorKind::TimedOut => self.late("taking a message", timeout),
            _ => told("the connection to the peer", &error),
        })
    }

    /// The next `n` bytes; `what` names them.
    pub(crate) fn receive(&mut self, n: usize, what: &str, timeout: Duration) -> Result<Vec<u8>, Failure> {
        let deadline = Instant::now() + timeout;
        while self.buffer.len() < n {
            self.more(what, deadline, timeout)?;
        }
        Ok(self.buffer.drain(..n).collect())
    }

    /// The next line, without its end.
    pub(crate) fn line(&mut self, what: &str, timeout: Duration) -> Result<String, Failure> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(line) = self.take_line()? {
                return Ok(line);
            }
            self.more(what, deadline, timeout)?;
        }
    }

    /// A line if one is there. Fails if the peer is gone.
    pub(crate) fn try_line(&mut self) -> Result<Option<String>, Failure> {
        loop {
            if let Some(line) = self.take_line()? {
                return Ok(Some(line));
            }
            match self.incoming.try_recv() {
                Ok(chunk) => self.take(chunk)?,
                Err(TryRecvError::Empty) => return Ok(None),
                Err(TryRecvError::Disconnected) => return Err(self.gone()),
            }
        }
    }

    /// The next `n` bytes if they are there. Fails if the peer is gone.
    pub(crate) fn try_receive(&mut self, n: usize) -> Result<Option<Vec<u8>>, Failure> {
        if self.buffer.len() < n {
            self.check()?;
        }
        Ok((self.buffer.len() >= n).then(|| self.buffer.drain(..n).collect()))
    }

    /// Fails if the peer is gone; what it said stays to be taken.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        match self.incoming.try_recv() {
            Ok(chunk) => self.take(chunk),
            Err(TryRecvError::Empty) => Ok(()),
            Err(TryRecvError::Disconnected) => Err(self.gone()),
        }
    }

    /// Waits until the peer has closed the connection, not longer than `timeout`.
    pub(crate) fn wait_closed(&mut self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        // What it still says is of no more interest.
        while self.more("the end", deadline, timeout).is_ok() {
            self.buffer.clear();
        }
    }

    fn take_line(&mut self) -> Result<Option<String>, Failure> {
        let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') else {
            if self.buffer.len() > MAX_LINE_BYTES {
                return Err(Failure::Run(format!(
                    "peer {}: a line longer than {MAX_LINE_BYTES} bytes",
                    self.peer
                )));
            }
            return Ok(None);
        };
        let line: Vec<u8> = self.buffer.drain(..=end).collect();
        Ok(Some(String::from_utf8_lossy(&line[..end]).into_owned()))
    }

    fn more(&mut self, what: &str, deadline: Instant, timeout: Duration) -> Result<(), Failure> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.incoming.recv_timeout(left) {
            Ok(chunk) => self.take(chunk),
            Err(RecvTimeoutError::Timeout) => Err(self.late(what, timeout)),
            Err(RecvTimeoutError::Disconnected) => Err(self.gone()),
        }
    }

    fn take(&mut self, chunk: io::Result<Vec<u8>>) -> Result<(), Failure> {
        match chunk {
            Ok(bytes) if !bytes.is_empty() => {
                self.buffer.extend(bytes);
                return Ok(());
            }
            // It was the last, though the reader may not have ended yet.
            Ok(_) => self.read_no_more(),
            Err(error) => {
                self.read_no_more();
                if error.kind() != ErrorKind::ConnectionReset {
                    return Err(told("the connection to the peer", &error));
                }
            }
        }
        Err(self.gone())
    }

    /// From now on nothing more is there, and a reader that waits for room ends.
    fn read_no_more(&mut self) {
        (_, self.incoming) = sync_channel(0);
    }

    fn gone(&self) -> Failure {
        Failure::Run(format!(
            "peer {} has closed the connection before the run was over; what it printed says why",
            self.peer
        ))
    }

    fn late(&self, what: &str, timeout: Duration) -> Failure {
        Failure::Run(format!("peer {}: no {what} within {timeout:?} (--timeout)", self.peer))
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        // Ends the reader's read; the peer may have done so before.
        let _ = self.stream.shutdown(Shutdown::Both);
        self.read_no_more();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn told(what: &str, error: &io::Error) -> Failure {
    Failure::Run(format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    fn pair() -> (Tcp, Tcp) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = ("127.0.0.1".to_string(), listener.local_addr().unwrap().port());
        let near = Tcp::connect(&to, Instant::now() + SOON).unwrap();
        let (stream, peer) = listener.accept().unwrap();
        (near, Tcp::new(stream, peer).unwrap())
    }

    #[test]
    fn hosts_and_ports() {
        let ok =
            |text: &str, host: &str, port| assert_eq!(host_port(text), Ok((host.into(), port)), "{text}");
        ok("there", "there", PORT);
        ok("there:1", "there", 1);
        ok(":7", "", 7);
        ok("fe80::1", "fe80::1", PORT);
        ok("[fe80::1]", "fe80::1", PORT);
        ok("[fe80::1]:9", "fe80::1", 9);
        for bad in ["there:", "there:x", "there:65536", "[::1]x", "[::1]:"] {
            assert!(host_port(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bytes_and_lines_arrive_in_order() {
        let (mut near, mut far) = pair();
        assert_eq!(far.try_line().unwrap(), None);
        near.send(b"one\ntwo\nxyz", SOON).unwrap();
        assert_eq!(far.line("a line", SOON).unwrap(), "one");
        assert_eq!(far.try_line().unwrap().as_deref(), Some("two"));
        assert_eq!(far.receive(3, "bytes", SOON).unwrap(), b"xyz");
        far.check().unwrap();
    }

    #[test]
    fn silence_ends_at_the_deadline() {
        let (mut near, _far) = pair();
        let error = near.line("a greeting", Duration::from_millis(50)).unwrap_err().message().unwrap();
        assert!(error.contains("no a greeting within 50ms (--timeout)"), "{error}");
    }

    #[test]
    fn a_peer_that_is_gone_is_told_by_every_call() {
        let (mut near, far) = pair();
        drop(far);
        for error in [
            near.receive(1, "a byte", SOON).map(drop).unwrap_err(),
            near.try_line().map(drop).unwrap_err(),
            near.check().unwrap_err(),
        ] {
            assert!(error.message().unwrap().contains("closed the connection"), "{error:?}");
        }
    }

    #[test]
    fn nobody_there_is_told_with_what_to_do() {
        let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let at = ("127.0.0.1".to_string(), unused.port());
        let deadline = Instant::now() + Duration::from_millis(50);
        let error = Tcp::connect(&at, deadline).unwrap_err().message().unwrap();
        assert!(error.contains("nobody listens at 127.0.0.1") && error.contains("--listen"), "{error}");
        let error = Tcp::accept(&at, deadline, |_| Ok(())).unwrap_err().message().unwrap();
        assert!(error.contains("nobody connected") && error.contains("--connect"), "{error}");
    }
}
