//! What has passed a port and its vport, counted.
#![forbid(unsafe_code)]

use super::{
    Function,
    dispatch::{Input, Output, out},
    infiniband::is_to_group,
    vport::own_vport,
};
use crate::{
    eth,
    wire::{PacketError, packet::VCRC_BYTES},
};
use mlx5_direct::mlx5::cmd::{
    QueryVnicEnvIn, QueryVnicEnvOut, QueryVportCounterIn, QueryVportCounterOut, TrafficCounter,
    VnicDiagnosticStatistics,
};

/// Largest frame of each class of RFC 2819, and of the classes after it; bytes with the frame check sequence.
const SIZES_BYTES: [u64; N_SIZES] = [64, 127, 255, 511, 1023, 1518, 2047, 4095, 8191, u64::MAX];
const N_SIZES: usize = 10;
const N_PRIORITIES: usize = 8;
const BROADCAST: [u8; 6] = [0xff; 6];

/// Packets, and their bytes.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Traffic {
    pub(super) packets: u64,
    pub(super) octets: u64,
}

impl Traffic {
    fn add(&mut self, n_bytes: usize) {
        self.packets += 1;
        self.octets += n_bytes as u64;
    }

    fn since(self, before: Self) -> Self {
        Self { packets: self.packets - before.packets, octets: self.octets - before.octets }
    }

    fn wire(self) -> TrafficCounter {
        TrafficCounter::new().with_packets(self.packets).with_octets(self.octets)
    }
}

/// Traffic by whom it is for.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct ByCast {
    pub(super) unicast: Traffic,
    pub(super) multicast: Traffic,
    pub(super) broadcast: Traffic,
}

impl ByCast {
    /// Counts a frame of `n_bytes` by its destination.
    fn add(&mut self, frame: &[u8], n_bytes: usize) {
        let kind = match frame {
            _ if frame.starts_with(&BROADCAST) => &mut self.broadcast,
            _ if eth::is_multicast(frame) => &mut self.multicast,
            _ => &mut self.unicast,
        };
        kind.add(n_bytes);
    }

    pub(super) fn all(&self) -> Traffic {
        let kinds = [self.unicast, self.multicast, self.broadcast];
        Traffic {
            packets: kinds.iter().map(|t| t.packets).sum(),
            octets: kinds.iter().map(|t| t.octets).sum(),
        }
    }
}

/// Good frames that went one way, as they are on the wire.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Passed {
    pub(super) by_cast: ByCast,
    pub(super) by_size: [u64; N_SIZES],
    pub(super) by_priority: [Traffic; N_PRIORITIES],
}

impl Passed {
    fn add(&mut self, frame: &[u8]) {
        let n_bytes = frame.len().max(eth::MIN_FRAME_BYTES) + eth::FCS_BYTES;
        self.by_cast.add(frame, n_bytes);
        let size = SIZES_BYTES.iter().position(|&largest| n_bytes as u64 <= largest).unwrap_or(N_SIZES - 1);
        self.by_size[size] += 1;
        self.by_priority[usize::from(eth::priority(frame))].add(n_bytes);
    }

    fn since(&self, before: &Self) -> Self {
        let (cast, cast_before) = (&self.by_cast, &before.by_cast);
        Self {
            by_cast: ByCast {
                unicast: cast.unicast.since(cast_before.unicast),
                multicast: cast.multicast.since(cast_before.multicast),
                broadcast: cast.broadcast.since(cast_before.broadcast),
            },
            by_size: std::array::from_fn(|at| self.by_size[at] - before.by_size[at]),
            by_priority: std::array::from_fn(|at| self.by_priority[at].since(before.by_priority[at])),
        }
    }
}

/// What a port has counted since a time.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct PortCounters {
    /// When it began.
    pub(super) start_ns: u64,
    pub(super) received: Passed,
    pub(super) sent: Passed,
    /// Frames longer than the port's MTU, which were dropped.
    pub(super) too_long: u64,
    /// RoCE packets with a wrong ICRC.
    pub(super) wrong_icrc: u64,
    /// Packets that were wrong in another way.
    pub(super) malformed: u64,
    /// Packets that could not leave, the link being down.
    pub(super) not_sent: u64,
    /// Times that the link went down.
    pub(super) link_downs: u64,
}

impl PortCounters {
    /// What was counted after `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            start_ns: before.start_ns,
            received: self.received.since(&before.received),
            sent: self.sent.since(&before.sent),
            too_long: self.too_long - before.too_long,
            wrong_icrc: self.wrong_icrc - before.wrong_icrc,
            malformed: self.malformed - before.malformed,
            not_sent: self.not_sent - before.not_sent,
            link_downs: self.link_downs - before.link_downs,
        }
    }
}

/// What a vport has counted one way. RDMA has no broadcasts: those count among its multicasts.
#[derive(Debug, Default, Clone, Copy)]
struct VportTraffic {
    ethernet: ByCast,
    rdma_unicast: Traffic,
    rdma_multicast: Traffic,
}

impl VportTraffic {
    fn add_rdma(&mut self, to_group: bool, n_bytes: usize) {
        let kind = if to_group { &mut self.rdma_multicast } else { &mut self.rdma_unicast };
        kind.add(n_bytes);
    }
}

/// What a vport has counted.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct VportCounters {
    received: VportTraffic,
    sent: VportTraffic,
    /// Frames that no flow entry took.
    steering_discards: u64,
}

impl Function {
    /// A frame goes out to the wire. What is for the port itself turns around inside.
    pub(crate) fn count_out(&mut self, frame: &[u8]) {
        if !self.is_infiniband() && !frame.starts_with(&self.mac()) {
            self.port_counters.sent.add(frame);
        }
    }

    /// A frame could not go out.
    pub(crate) fn count_not_sent(&mut self) {
        self.port_counters.not_sent += 1;
    }

    /// A good frame has come in from the wire.
    pub(super) fn count_in_port(&mut self, frame: &[u8]) {
        self.port_counters.received.add(frame);
    }

    /// A queue of Ethernet has sent a frame.
    pub(super) fn count_sent(&mut self, frame: &[u8]) {
        self.vport_counters.sent.ethernet.add(frame, frame.len());
    }

    /// Steering has looked at a frame; it was for somebody, or not.
    pub(super) fn count_steered(&mut self, frame: &[u8], taken: bool) {
        if taken {
            self.vport_counters.received.ethernet.add(frame, frame.len());
        } else {
            self.vport_counters.steering_discards += 1;
        }
    }

    /// A queue pair has sent a packet. InfiniBand counts packets without their VCRC.
    pub(super) fn count_rdma_sent(&mut self, packet: &[u8]) {
        let (to_group, check_bytes) = match self.is_infiniband() {
            true => (is_to_group(packet), VCRC_BYTES),
            false => (eth::is_multicast(packet), 0),
        };
        self.vport_counters.sent.add_rdma(to_group, packet.len() - check_bytes);
    }

    /// A packet is not what queue pairs take.
    pub(super) fn count_wrong(&mut self, error: PacketError) {
        match error {
            PacketError::Icrc { .. } => self.port_counters.wrong_icrc += 1,
            _ => self.port_counters.malformed += 1,
        }
    }

    /// A packet has come in for queue pairs.
    pub(super) fn count_rdma_received(&mut self, to_group: bool, n_bytes: usize) {
        self.vport_counters.received.add_rdma(to_group, n_bytes);
    }

    pub(super) fn query_vport_counter(&mut self, input: &Input<'_>) -> Output {
        let input: QueryVportCounterIn = input.get()?;
        own_vport(input.other_vport(), input.vport_number())?;
        let VportCounters { received, sent, .. } = self.vport_counters;
        if input.clear() {
            self.vport_counters = VportCounters::default();
        }
        out(QueryVportCounterOut::new()
            .with_received_ib_unicast(received.rdma_unicast.wire())
            .with_received_ib_multicast(received.rdma_multicast.wire())
            .with_received_eth_unicast(received.ethernet.unicast.wire())
            .with_received_eth_multicast(received.ethernet.multicast.wire())
            .with_received_eth_broadcast(received.ethernet.broadcast.wire())
            .with_transmitted_ib_unicast(sent.rdma_unicast.wire())
            .with_transmitted_ib_multicast(sent.rdma_multicast.wire())
            .with_transmitted_eth_unicast(sent.ethernet.unicast.wire())
            .with_transmitted_eth_multicast(sent.ethernet.multicast.wire())
            .with_transmitted_eth_broadcast(sent.ethernet.broadcast.wire()))
    }

    pub(super) fn query_vnic_env(&mut self, input: &Input<'_>) -> Output {
        let input: QueryVnicEnvIn = input.get()?;
        own_vport(input.other_vport(), input.vport_number())?;
        let statistics = VnicDiagnosticStatistics::new()
            .with_nic_receive_steering_discard(self.vport_counters.steering_discards)
            .with_transmit_discard_vport_down(self.port_counters.not_sent);
        out(QueryVnicEnvOut::new().with_vport_env(statistics))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(dest: [u8; 6], len: usize) -> Vec<u8> {
        let mut frame = dest.to_vec();
        frame.resize(len, 0);
        frame
    }

    #[test]
    fn frames_are_counted_by_destination_size_and_priority() {
        let mut passed = Passed::default();
        passed.add(&frame([2, 0, 0, 0, 0, 1], 14));
        passed.add(&frame([1, 0, 0x5e, 0, 0, 1], 124));
        passed.add(&frame(BROADCAST, 1515));
        let mut tagged = frame([2, 0, 0, 0, 0, 1], 60);
        tagged[12..16].copy_from_slice(&[0x81, 0, 0xa0, 5]);
        passed.add(&tagged);
        let cast = passed.by_cast;
        assert_eq!([cast.unicast, cast.multicast, cast.broadcast].map(|t| t.packets), [2, 1, 1]);
        assert_eq!([cast.unicast, cast.multicast, cast.broadcast].map(|t| t.octets), [128, 128, 1519]);
        assert_eq!(passed.by_size, [2, 0, 1, 0, 0, 0, 1, 0, 0, 0], "padded to 64; 128; one above 1518");
        assert_eq!(passed.by_priority.map(|t| t.packets), [3, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!((cast.all().packets, cast.all().octets), (4, 1775));
    }

    #[test]
    fn a_difference_is_what_came_after() {
        let mut counters = PortCounters { start_ns: 5, ..PortCounters::default() };
        counters.sent.add(&frame(BROADCAST, 60));
        let before = PortCounters { start_ns: 9, ..counters };
        counters.sent.add(&frame(BROADCAST, 1000));
        counters.link_downs += 1;
        let after = counters.since(&before);
        assert_eq!((after.sent.by_cast.all().packets, after.sent.by_cast.all().octets), (1, 1004));
        assert_eq!((after.link_downs, after.start_ns), (1, 9));
        assert_eq!(after.sent.by_size, [0, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
    }
}
