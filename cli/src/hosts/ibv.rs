//! The exchange of rdma-core's `ibv_rc_pingpong`, `ibv_uc_pingpong` and `ibv_ud_pingpong`, and their ping-pong.
//!
//! They are the same, but for the transport. Each end tells `LID:QPN:PSN:GID` in a text of fixed length; the client then says `done`, and both close the
//! socket. Size, iterations and MTU are not told. Both ends send as often as they receive, a message only after the
//! one before it has completed and the answer is here.

use super::{
    Local, Outcome,
    half::{Half, Role},
    tcp::Tcp,
};
use crate::{
    endpoint::Endpoint,
    failure::Failure,
    payload::verify,
    plan::{Measure, Plan},
    report::LatencyRow,
    traffic::{Latencies, Progress},
};
use mlx5_direct::{
    Connection, QpAddress,
    mlx5::{
        context::Mtu,
        ids::{Psn, Qpn},
    },
};
use std::{
    thread,
    time::{Duration, Instant},
};

/// `0000:000000:000000:`, 32 digits and a zero byte.
const ADDRESS_BYTES: usize = 4 + 1 + 6 + 1 + 6 + 1 + 32 + 1;
/// What the client says last.
const DONE: &[u8; 5] = b"done\0";
/// What a message is made of, and the first byte of each of its pages if the client has `-c`.
const FILL: u8 = 0x7b;
const PAGE_START: u8 = 0;
const PAGE_BYTES: usize = 4096;
/// The peer may ask for its last acknowledgement again.
const LINGER: Duration = Duration::from_millis(50);

/// What an end is told of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Address {
    lid: u16,
    qpn: u32,
    psn: u32,
    gid: u128,
}

impl Address {
    fn of(address: &QpAddress) -> Self {
        Self {
            lid: address.lid,
            qpn: address.qpn.get(),
            psn: address.psn.get(),
            gid: u128::from_be_bytes(address.gid),
        }
    }

    fn to_bytes(self) -> Vec<u8> {
        let Self { lid, qpn, psn, gid } = self;
        format!("{lid:04x}:{qpn:06x}:{psn:06x}:{gid:032x}\0").into_bytes()
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Failure> {
        let text = String::from_utf8_lossy(bytes);
        let read = || {
            let mut words = text.trim_end_matches('\0').split(':');
            let mut number = || u128::from_str_radix(words.next()?, 16).ok();
            let (lid, qpn, psn, gid) = (number()?, number()?, number()?, number()?);
            Some(Self {
                lid: lid.try_into().ok()?,
                qpn: qpn.try_into().ok()?,
                psn: psn.try_into().ok()?,
                gid,
            })
        };
        read().ok_or_else(|| {
            Failure::Run(format!(
                "the peer said {text:?}, which is no LID:QPN:PSN:GID; is it ibv_rc_pingpong or its like?"
            ))
        })
    }

    /// As a queue pair to connect to.
    fn to_peer(self, local: &Local<'_>) -> Result<QpAddress, Failure> {
        if self.gid == 0 {
            return Err(Failure::Run(
                "the peer gave no GID, which RoCE needs; start it with -g and the index of one".into(),
            ));
        }
        local.peer(Qpn::new(self.qpn), Psn::new(self.psn), self.gid.to_be_bytes())
    }
}

/// Runs the ping-pong with the peer at the other end of `tcp`.
pub(crate) fn run(plan: &Plan, local: &Local<'_>, tcp: &mut Tcp) -> Result<Outcome<LatencyRow>, Failure> {
    let path_mtu = local.how.path_mtu.or(Some(Mtu::MTU_1024));
    let how = Connection { path_mtu, ..local.how };
    let mut end = Endpoint::new(local.role.name(), local.ctx, plan, Measure::Latency)?;
    let own = end.addresses(&how)?;
    let told = own.first().map(Address::of).map(Address::to_bytes).unwrap_or_default();
    let (what, timeout) = ("address", local.timeout);
    let peer = match local.role {
        Role::Asks => {
            tcp.send(&told, timeout)?;
            let peer = Address::from_bytes(&tcp.receive(ADDRESS_BYTES, what, timeout)?)?.to_peer(local)?;
            end.connect(&[peer], &how)?;
            tcp.send(DONE, timeout)?;
            peer
        }
        Role::Answers => {
            let peer = Address::from_bytes(&tcp.receive(ADDRESS_BYTES, what, timeout)?)?.to_peer(local)?;
            // The client starts as soon as it has the answer.
            end.connect(&[peer], &how)?;
            end.fill_recv_queue(0)?;
            tcp.send(&told, timeout)?;
            let done = tcp.receive(DONE.len(), "`done`", timeout)?;
            if done != DONE {
                return Err(Failure::Run(format!("the peer said {done:?} where `done` was expected")));
            }
            peer
        }
    };
    let far = end.far();
    let mut half = Half::alone(end, far, local.role, tcp);
    half.fill_recv_queues()?;
    let latencies = ping_pong(&mut half)?;
    thread::sleep(LINGER);
    let row = latencies.as_ref().map(|latencies| LatencyRow::new(plan.size, latencies));
    let end = half.end;
    Outcome::new(end, &[peer], row, latencies)
}

/// The message of a client with `-c`.
fn message(size: usize) -> Vec<u8> {
    (0..size).map(|at| if at % PAGE_BYTES == 0 { PAGE_START } else { FILL }).collect()
}

/// Whether these are the bytes of a client, with `-c` or without.
fn is_message(bytes: &[u8]) -> bool {
    let starts = bytes.iter().step_by(PAGE_BYTES);
    let same = starts.clone().all(|byte| *byte == PAGE_START) || starts.clone().all(|byte| *byte == FILL);
    same && bytes.chunks(PAGE_BYTES).all(|page| page.iter().skip(1).all(|byte| *byte == FILL))
}

/// `plan.iters` messages each way. Nothing, if the end that answers had nothing to measure.
fn ping_pong(half: &mut Half<'_>) -> Result<Option<Latencies>, Failure> {
    let mut latencies = Latencies::new()?;
    let (iters, size) = (half.end.plan.iters, half.end.plan.size as usize);
    let mut progress = Progress::new(format!("pingpong {size} B"), iters, std::slice::from_ref(&half.end));
    let asks = half.role == Role::Asks;
    let mut bytes = message(size);
    let mut sent_at = None;
    for n in 0..iters {
        if asks {
            sent_at = Some(send(half, n, &bytes)?);
        }
        half.wait("the arrival of a message", |end| end.lanes[0].received > n)?;
        if let Some(sent) = sent_at {
            latencies.record(Instant::now().saturating_duration_since(sent) / 2);
        }
        let at = half.end.places.incoming(0, n);
        if asks {
            // The peer sends from the memory that it receives to.
            verify(&half.end.mr, at, &bytes, &format!("message {n}"))?;
        } else {
            half.end.mr.try_read(at, &mut bytes)?;
            if !is_message(&bytes) {
                return Err(Failure::Run(format!(
                    "payload of message {n} is wrong: it is not all 0x{FILL:x}, with or without a 0 at the start of \
                     each page, as ibv_rc_pingpong and its like send it"
                )));
            }
            sent_at = Some(send(half, n, &bytes)?);
        }
        half.end.fill_recv_queue(0)?;
        progress.at(n + 1)?;
    }
    half.settle()?;
    let measured = asks || iters > 1;
    Ok(measured.then_some(latencies))
}

/// Sends message `n` when the one before it has completed.
fn send(half: &mut Half<'_>, n: u64, bytes: &[u8]) -> Result<Instant, Failure> {
    if !half.end.has_room(0, 1) {
        half.wait("the completion of a request", |end| end.has_room(0, 1))?;
    }
    half.end.mr.try_write(half.end.places.outgoing(0, n), bytes)?;
    let requests = half.requests(0, half.end.plan.iters, 0);
    let start = Instant::now();
    half.end.request(requests, 1, |_| bytes)?;
    Ok(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_52_bytes_of_text() {
        let address = Address { lid: 0, qpn: 0x104, psn: 0xabcdef, gid: 0xfe80_u128 << 112 | 0x1234 };
        let bytes = address.to_bytes();
        assert_eq!(bytes, b"0000:000104:abcdef:fe800000000000000000000000001234\0");
        assert_eq!((bytes.len(), Address::from_bytes(&bytes).unwrap()), (ADDRESS_BYTES, address));
        for bad in ["", "0000:000104:abcdef", "zzzz:000104:abcdef:00", "{\"hello\":1}"] {
            let told = Address::from_bytes(bad.as_bytes()).unwrap_err().message().unwrap();
            assert!(told.contains("is it ibv_rc_pingpong or its like?"), "{told}");
        }
    }

    #[test]
    fn messages_with_and_without_c() {
        for size in [0, 1, 4096, 4097, 10_000] {
            assert!(is_message(&message(size)) && is_message(&vec![FILL; size]), "{size}");
        }
        for (at, byte) in [(0, FILL), (4096, FILL), (1, 0), (9_999, 1), (0, 1)] {
            let mut bytes = message(10_000);
            bytes[at] = byte;
            assert!(!is_message(&bytes), "{at} {byte}");
        }
    }
}
