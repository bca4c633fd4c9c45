//! What the card did: commands, doorbells, WQEs, CQEs, EQEs and packets.
//!
//! Off until asked for. Records stay in a ring of bounded length and may also go to a text sink, packets
//! to a pcap file that Wireshark reads.
#![forbid(unsafe_code)]

mod pcap;

pub use pcap::PcapWriter;

use crate::config::LinkType;
use std::{
    collections::VecDeque,
    fmt,
    io::{self, Write},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

/// Kind of a [`Record`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Input of a command.
    CommandIn,
    /// Output of a command.
    CommandOut,
    /// Store to a UAR page.
    Doorbell,
    /// Send WQE taken up.
    SendWqe,
    /// Receive WQE taken up.
    RecvWqe,
    /// CQE written.
    Cqe,
    /// EQE written.
    Eqe,
    /// Packet sent.
    Packet,
    /// Anything else worth a line.
    Note,
}

/// One thing that the card did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// When.
    pub at: Duration,
    /// By which of the card's functions.
    pub function: u8,
    /// Kind.
    pub kind: Kind,
    /// One line of text.
    pub text: String,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (secs, micros) = (self.at.as_secs(), self.at.subsec_micros());
        writeln!(f, "[{secs:5}.{micros:06}] mlx5_model {}: {:?}: {}", self.function, self.kind, self.text)?;
        Hexdump(&self.bytes).fmt(f)
    }
}

/// Bytes as the kernel prints them: offset, sixteen bytes a line.
#[derive(Debug, Clone, Copy)]
pub struct Hexdump<'a>(
    /// The bytes.
    pub &'a [u8],
);

impl fmt::Display for Hexdump<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (line, bytes) in self.0.chunks(16).enumerate() {
            write!(f, "{:08x}:", line * 16)?;
            for byte in bytes {
                write!(f, " {byte:02x}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[derive(Default)]
struct Inner {
    ring: VecDeque<Record>,
    capacity: usize,
    sink: Option<Box<dyn Write + Send>>,
    pcap: Option<PcapWriter<Box<dyn Write + Send>>>,
    error: Option<io::Error>,
}

/// What is recorded: nothing, packets, or everything.
const NOTHING: u8 = 0;
const PACKETS: u8 = 1;
const EVERYTHING: u8 = 2;

/// A handle on a card's trace; clones are the same trace.
#[derive(Clone, Default)]
pub struct Trace {
    wanted: Arc<AtomicU8>,
    link: LinkType,
    inner: Arc<Mutex<Inner>>,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("on", &self.is_on()).finish_non_exhaustive()
    }
}

impl Trace {
    /// A trace of a card whose ports are of this kind.
    pub(crate) fn new(link: LinkType) -> Self {
        Self { link, ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut Inner)) {
        let mut inner = self.lock();
        change(&mut inner);
        let wanted = match (inner.capacity != 0 || inner.sink.is_some(), inner.pcap.is_some()) {
            (true, _) => EVERYTHING,
            (false, true) => PACKETS,
            (false, false) => NOTHING,
        };
        self.wanted.store(wanted, Ordering::Relaxed);
    }

    /// Whether anything is recorded; if not, recording costs one load.
    pub fn is_on(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) != NOTHING
    }

    /// Whether records of this kind go anywhere.
    pub fn wants(&self, kind: Kind) -> bool {
        match self.wanted.load(Ordering::Relaxed) {
            NOTHING => false,
            PACKETS => kind == Kind::Packet,
            _ => true,
        }
    }

    /// Keeps the last `n_records` records; 0 keeps none.
    pub fn keep(&self, n_records: usize) {
        self.update(|inner| {
            inner.capacity = n_records;
            let excess = inner.ring.len().saturating_sub(n_records);
            inner.ring.drain(..excess);
        });
    }

    /// Writes every record as text to `sink` from now on.
    pub fn write_to(&self, sink: Box<dyn Write + Send>) {
        self.update(|inner| inner.sink = Some(sink));
    }

    /// Writes every packet to `sink` in pcap format from now on.
    ///
    /// # Errors
    /// Whatever writing the file header gives.
    pub fn pcap_to(&self, sink: Box<dyn Write + Send>) -> io::Result<()> {
        let pcap = PcapWriter::new(sink, self.link)?;
        self.update(|inner| inner.pcap = Some(pcap));
        Ok(())
    }

    /// The kept records, oldest first.
    pub fn records(&self) -> Vec<Record> {
        self.lock().ring.iter().cloned().collect()
    }

    /// Flushes and closes the sinks.
    ///
    /// # Errors
    /// The first error that a sink gave since it was set.
    pub fn finish(&self) -> io::Result<()> {
        let mut result = Ok(());
        self.update(|inner| {
            if let Some(mut sink) = inner.sink.take() {
                result = sink.flush();
            }
            if let Some(pcap) = inner.pcap.take() {
                result = pcap.finish().and(std::mem::replace(&mut result, Ok(())));
            }
            if let Some(error) = inner.error.take() {
                result = Err(error);
            }
        });
        result
    }

    /// Records what `function` did; `text` is made only if someone listens.
    pub fn record(
        &self,
        at: Duration,
        function: u8,
        kind: Kind,
        bytes: &[u8],
        text: impl FnOnce() -> String,
    ) {
        if !self.wants(kind) {
            return;
        }
        let record = Record { at, function, kind, text: text(), bytes: bytes.to_vec() };
        let mut inner = self.lock();
        let mut outcome = Ok(());
        if let Some(sink) = &mut inner.sink {
            outcome = write!(sink, "{record}");
        }
        if let (Kind::Packet, Some(pcap)) = (kind, &mut inner.pcap) {
            outcome = outcome.and(pcap.packet(at, bytes));
        }
        if let Err(error) = outcome {
            inner.error.get_or_insert(error);
        }
        if inner.capacity != 0 {
            if inner.ring.len() == inner.capacity {
                inner.ring.pop_front();
            }
            inner.ring.push_back(record);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_reads_like_the_kernels() {
        let bytes: Vec<u8> = (0..18).collect();
        assert_eq!(
            Hexdump(&bytes).to_string(),
            "00000000: 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f\n00000010: 10 11\n"
        );
    }

    #[test]
    fn the_ring_keeps_the_last() {
        let trace = Trace::default();
        trace.record(Duration::ZERO, 0, Kind::Note, &[], || unreachable!());
        trace.keep(2);
        for n in 0..3 {
            trace.record(Duration::from_micros(n), 0, Kind::Note, &[n as u8], || format!("{n}"));
        }
        let texts: Vec<_> = trace.records().into_iter().map(|record| record.text).collect();
        assert_eq!(texts, ["1", "2"]);
    }
}
