//! PPCNT and MPCNT: what has been counted, in the groups that drivers read.
#![forbid(unsafe_code)]

use super::{
    Function,
    refusal::Refusal,
    reg::one_port,
    traffic::{PortCounters, Traffic},
};
use mlx5_direct::mlx5::cmd::{
    Eth2819CntrsGrp, Eth2863CntrsGrp, Eth3635CntrsGrp, Eth8023CntrsGrp, EthExtendedCntrsGrp, EthPerPrioGrp,
    EthPerTcCongestPrioGrp, EthPerTcPrioGrp, IbPortCntrsGrp, MpcntReg, PciePerfCntrsGrp, PhysLayerCntrs,
    PhysLayerStatisticalCntrs, PpcntGroup, PpcntReg,
};
use zerocopy::{Immutable, IntoBytes};

/// Counters that follow the head.
const COUNTER_BYTES: usize = 248;
/// The only group of MPCNT.
const PCIE_PERFORMANCE: u8 = 0;
/// Bits on the wire in a nanosecond, traffic or not: 100 Gb/s.
const BITS_PER_NS: u64 = 100;
const NS_PER_MS: u64 = 1_000_000;

fn ieee_802_3(counters: &PortCounters) -> Eth8023CntrsGrp {
    let (received, sent) = (&counters.received.by_cast, &counters.sent.by_cast);
    Eth8023CntrsGrp::new()
        .with_a_frames_transmitted_ok(sent.all().packets)
        .with_a_frames_received_ok(received.all().packets)
        .with_a_octets_transmitted_ok(sent.all().octets)
        .with_a_octets_received_ok(received.all().octets)
        .with_a_multicast_frames_xmitted_ok(sent.multicast.packets)
        .with_a_broadcast_frames_xmitted_ok(sent.broadcast.packets)
        .with_a_multicast_frames_received_ok(received.multicast.packets)
        .with_a_broadcast_frames_received_ok(received.broadcast.packets)
        .with_a_frame_too_long_errors(counters.too_long)
}

fn rfc_2863(counters: &PortCounters) -> Eth2863CntrsGrp {
    let (received, sent) = (&counters.received.by_cast, &counters.sent.by_cast);
    Eth2863CntrsGrp::new()
        .with_if_in_octets(received.all().octets)
        .with_if_in_ucast_pkts(received.unicast.packets)
        .with_if_in_multicast_pkts(received.multicast.packets)
        .with_if_in_broadcast_pkts(received.broadcast.packets)
        .with_if_in_errors(counters.too_long)
        .with_if_out_octets(sent.all().octets)
        .with_if_out_ucast_pkts(sent.unicast.packets)
        .with_if_out_multicast_pkts(sent.multicast.packets)
        .with_if_out_broadcast_pkts(sent.broadcast.packets)
}

fn rfc_2819(counters: &PortCounters) -> Eth2819CntrsGrp {
    let Traffic { packets, octets } = counters.received.by_cast.all();
    let by_size = &counters.received.by_size;
    Eth2819CntrsGrp::new()
        .with_ether_stats_octets(octets)
        .with_ether_stats_pkts(packets)
        .with_ether_stats_broadcast_pkts(counters.received.by_cast.broadcast.packets)
        .with_ether_stats_multicast_pkts(counters.received.by_cast.multicast.packets)
        .with_ether_stats_oversize_pkts(counters.too_long)
        .with_ether_stats_pkts64octets(by_size[0])
        .with_ether_stats_pkts65to127octets(by_size[1])
        .with_ether_stats_pkts128to255octets(by_size[2])
        .with_ether_stats_pkts256to511octets(by_size[3])
        .with_ether_stats_pkts512to1023octets(by_size[4])
        .with_ether_stats_pkts1024to1518octets(by_size[5])
        .with_ether_stats_pkts1519to2047octets(by_size[6])
        .with_ether_stats_pkts2048to4095octets(by_size[7])
        .with_ether_stats_pkts4096to8191octets(by_size[8])
        .with_ether_stats_pkts8192to10239octets(by_size[9])
}

fn per_priority(counters: &PortCounters, priority: u8) -> EthPerPrioGrp {
    let at = usize::from(priority);
    let (received, sent) = (counters.received.by_priority[at], counters.sent.by_priority[at]);
    EthPerPrioGrp::new()
        .with_rx_octets(received.octets)
        .with_rx_frames(received.packets)
        .with_tx_octets(sent.octets)
        .with_tx_frames(sent.packets)
}

/// These stay at their greatest value.
fn infiniband(counters: &PortCounters) -> IbPortCntrsGrp {
    let word = |value: u64| value.min(u16::MAX.into()) as u16;
    IbPortCntrsGrp::new()
        .with_link_downed_counter(counters.link_downs.min(u8::MAX.into()) as u8)
        .with_port_rcv_errors(word(counters.malformed))
        .with_port_xmit_discards(word(counters.not_sent))
}

/// Counters at the size of a group.
fn padded(counters: &(impl IntoBytes + Immutable)) -> Vec<u8> {
    let mut bytes = counters.as_bytes().to_vec();
    bytes.resize(COUNTER_BYTES, 0);
    bytes
}

impl Function {
    /// A group of the port's counters behind its head.
    pub(super) fn ppcnt(&mut self, head: PpcntReg) -> Result<Vec<u8>, Refusal> {
        one_port(head.local_port())?;
        let (group, priority) = (head.grp(), head.prio_tc());
        let mut now = self.port_counters;
        now.start_ns = self.clock.now_ns();
        let counters = match self.cleared_counters.get(&(group.0, priority)) {
            Some(before) => now.since(before),
            None => self.port_counters,
        };
        let age_ns = now.start_ns - counters.start_ns;
        let bytes = match group {
            PpcntGroup::IEEE_802_3_COUNTERS_GROUP => padded(&ieee_802_3(&counters)),
            PpcntGroup::RFC_2863_COUNTERS_GROUP => padded(&rfc_2863(&counters)),
            PpcntGroup::RFC_2819_COUNTERS_GROUP => padded(&rfc_2819(&counters)),
            PpcntGroup::RFC_3635_COUNTERS_GROUP => {
                padded(&Eth3635CntrsGrp::new().with_dot3stats_frame_too_longs(counters.too_long))
            }
            PpcntGroup::ETHERNET_EXTENDED_COUNTERS_GROUP => {
                padded(&EthExtendedCntrsGrp::new().with_rx_icrc_encapsulated(counters.wrong_icrc))
            }
            PpcntGroup::PER_PRIORITY_COUNTERS_GROUP => padded(&per_priority(&counters, priority)),
            // Nothing waits in the model's port, and nothing is dropped there.
            PpcntGroup::PER_TRAFFIC_CLASS_COUNTERS_GROUP => padded(&EthPerTcPrioGrp::new()),
            PpcntGroup::PER_TRAFFIC_CLASS_CONGESTION_GROUP => padded(&EthPerTcCongestPrioGrp::new()),
            PpcntGroup::PHYSICAL_LAYER_COUNTERS_GROUP => padded(
                &PhysLayerCntrs::new()
                    .with_time_since_last_clear(age_ns / NS_PER_MS)
                    .with_link_down_events(counters.link_downs as u32),
            ),
            PpcntGroup::PHYSICAL_LAYER_STATISTICAL_GROUP => padded(
                &PhysLayerStatisticalCntrs::new()
                    .with_time_since_last_clear(age_ns / NS_PER_MS)
                    .with_phy_received_bits(age_ns * BITS_PER_NS),
            ),
            PpcntGroup::INFINIBAND_PORT_COUNTERS_GROUP => padded(&infiniband(&counters)),
            _ => return Err(Refusal::COUNTER_GROUP),
        };
        if head.clr() {
            self.cleared_counters.insert((group.0, priority), now);
        }
        Ok([head.as_bytes(), &bytes].concat())
    }

    /// A group of the counters of PCI Express, on which nothing ever goes wrong here.
    pub(super) fn mpcnt(&self, head: MpcntReg) -> Result<Vec<u8>, Refusal> {
        if head.grp() != PCIE_PERFORMANCE {
            return Err(Refusal::COUNTER_GROUP);
        }
        let counters = PciePerfCntrsGrp::new().with_life_time_counter(self.clock.now_ns() / NS_PER_MS);
        Ok([head.as_bytes(), &padded(&counters)].concat())
    }
}
