//! What perftest's two ends say over TCP, message by message (version 4.5, as in Debian 12).
//!
//! The client writes first and the server answers, in every exchange. All messages have a fixed length.

use super::super::{Local, half::Role, tcp::Tcp};
use crate::failure::Failure;
use std::time::Duration;

/// The version of perftest that this is, and the field that carries it.
const VERSION: &str = "6.06";
const VERSION_BYTES: usize = 16;
/// Older ones speak otherwise.
const MIN_VERSION: f32 = 5.70;
/// Own page, and cache line: each end takes the larger of both.
const CYCLE_BUFFER_BYTES: u32 = 4096;
const CACHE_LINE_BYTES: u32 = 64;
/// Memory around which the peer's requests go in a circle, if its pages are as large as that.
pub(crate) const MAX_CYCLE_BUFFER_BYTES: u32 = 64 << 10;
/// `KEY_PRINT_FMT_GID` and its zero byte.
const KEYS_BYTES: usize = 108;
/// What both ends say last.
const DONE: &[u8; 5] = b"done\0";

/// The keys of an end (`pingpong_dest`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) lid: u16,
    /// READs and atomics that it takes at once.
    pub(super) out_reads: u8,
    pub(super) qpn: u32,
    pub(super) psn: u32,
    pub(super) rkey: u32,
    /// Where the peer's requests go.
    pub(super) vaddr: u64,
    pub(super) gid: [u8; 16],
}

impl Keys {
    fn to_bytes(self) -> Vec<u8> {
        let Self { lid, out_reads, qpn, psn, rkey, vaddr, gid } = self;
        let gid: String = gid.iter().map(|byte| format!("{byte:02x}:")).collect();
        format!("{lid:04x}:{out_reads:04x}:{qpn:06x}:{psn:06x}:{rkey:08x}:{vaddr:016x}:{gid}00000000:\0")
            .into_bytes()
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Failure> {
        let text = String::from_utf8_lossy(bytes);
        let read = || {
            let mut words = text.split(':');
            let mut number = || u64::from_str_radix(words.next()?, 16).ok();
            let (lid, out_reads, qpn, psn) = (number()?, number()?, number()?, number()?);
            let (rkey, vaddr) = (number()?, number()?);
            let mut gid = [0; 16];
            for byte in &mut gid {
                *byte = number()?.try_into().ok()?;
            }
            Some(Self {
                lid: lid.try_into().ok()?,
                out_reads: out_reads.try_into().ok()?,
                qpn: qpn.try_into().ok()?,
                psn: psn.try_into().ok()?,
                rkey: rkey.try_into().ok()?,
                vaddr,
                gid,
            })
        };
        read()
            .ok_or_else(|| Failure::Run(format!("the peer said {text:?}, which is no address of perftest's")))
    }
}

/// A conversation.
pub(super) struct Talk<'t> {
    pub(super) tcp: &'t mut Tcp,
    role: Role,
    timeout: Duration,
}

impl<'t> Talk<'t> {
    pub(super) fn new(tcp: &'t mut Tcp, local: &Local<'_>) -> Self {
        Self { tcp, role: local.role, timeout: local.timeout }
    }

    /// Says `own` and hears as many bytes.
    fn trade(&mut self, own: &[u8], what: &str) -> Result<Vec<u8>, Failure> {
        if self.role == Role::Asks {
            self.tcp.send(own, self.timeout)?;
        }
        let theirs = self.tcp.receive(own.len(), what, self.timeout)?;
        if self.role == Role::Answers {
            self.tcp.send(own, self.timeout)?;
        }
        Ok(theirs)
    }

    fn trade_u32(&mut self, own: u32, what: &str) -> Result<u32, Failure> {
        let theirs = self.trade(&own.to_be_bytes(), what)?;
        Ok(theirs.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes)))
    }

    /// Versions, pages, cache lines and MTUs: gives the code of the smaller MTU.
    pub(super) fn greet(&mut self, mtu: u8) -> Result<u8, Failure> {
        let mut version = VERSION.as_bytes().to_vec();
        version.resize(VERSION_BYTES, 0);
        let theirs = self.trade(&version, "version of perftest")?;
        let theirs = String::from_utf8_lossy(&theirs);
        let theirs = theirs.trim_end_matches('\0');
        if theirs.parse::<f32>().ok().is_none_or(|version| version < MIN_VERSION) {
            return Err(Failure::Run(format!(
                "the peer's version is {theirs:?}; this speaks the exchange of perftest {VERSION}, and that of \
                 {MIN_VERSION:.2} at least"
            )));
        }
        let cycle_buffer = self.trade_u32(CYCLE_BUFFER_BYTES, "page size")?;
        if cycle_buffer > MAX_CYCLE_BUFFER_BYTES {
            return Err(Failure::Run(format!(
                "the peer's pages are of {cycle_buffer} bytes, and at most {MAX_CYCLE_BUFFER_BYTES} are foreseen"
            )));
        }
        self.trade_u32(CACHE_LINE_BYTES, "cache line size")?;
        // A digit and a zero byte.
        let theirs = self.trade(&[b'0' + mtu, 0], "MTU")?;
        match theirs.first().map(|digit| digit.wrapping_sub(b'0')) {
            Some(theirs @ 1..=5) => Ok(mtu.min(theirs)),
            _ => Ok(mtu),
        }
    }

    /// Keys, which are a barrier too.
    pub(super) fn keys(&mut self, own: &Keys) -> Result<Keys, Failure> {
        Keys::from_bytes(&self.trade(&own.to_bytes(), "address")?)
    }

    /// The part of [`keys`](Self::keys) of the end that waits for the peer's run: the keys if they are here.
    pub(super) fn keys_came(tcp: &mut Tcp) -> Result<Option<Keys>, Failure> {
        tcp.try_receive(KEYS_BYTES)?.map(|bytes| Keys::from_bytes(&bytes)).transpose()
    }

    /// Answers keys that came.
    pub(super) fn answer(&mut self, own: &Keys) -> Result<(), Failure> {
        self.tcp.send(&own.to_bytes(), self.timeout)
    }

    /// Size, iterations, and peak and average rate in MB/s and Mmsg/s.
    pub(super) fn report(&mut self, size: u64, iters: u64, rates: [f64; 3]) -> Result<(), Failure> {
        for word in [size, iters].into_iter().chain(rates.map(f64::to_bits)) {
            self.trade(&word.to_be_bytes(), "report")?;
        }
        Ok(())
    }

    /// The last word of both.
    pub(super) fn done(&mut self) -> Result<(), Failure> {
        self.tcp.send(DONE, self.timeout)?;
        self.tcp.wait_closed(Duration::from_secs(1));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_108_bytes_of_text() {
        let keys = Keys {
            lid: 0,
            out_reads: 16,
            qpn: 0x104,
            psn: 0xabcdef,
            rkey: 0x1000_2300,
            vaddr: 0x7f00_1234_5000,
            gid: [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x6d, 0xa2, 0xff, 0xfe, 0xea, 0xa1, 0xba],
        };
        let bytes = keys.to_bytes();
        let text = "0000:0010:000104:abcdef:10002300:00007f0012345000:\
                    fe:80:00:00:00:00:00:00:00:6d:a2:ff:fe:ea:a1:ba:00000000:\0";
        assert_eq!((bytes.as_slice(), bytes.len()), (text.as_bytes(), KEYS_BYTES));
        assert_eq!(Keys::from_bytes(&bytes).unwrap(), keys);
        for bad in ["", "0000:0010", "{\"hello\"", &text.replace("fe:80", "fe:800")] {
            assert!(Keys::from_bytes(bad.as_bytes()).unwrap_err().message().unwrap().contains("perftest"));
        }
    }
}
