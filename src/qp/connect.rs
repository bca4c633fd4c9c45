//! Connections, reliable and not.
#![forbid(unsafe_code)]

use super::Qp;
use crate::{
    QpAddress, Result,
    backend::{Access, QpModify},
    mlx5::context::{Mtu, QpState, ServiceType},
    queue::Paired,
};

/// From one connection of a queue pair to its next: a packet that comes late is of PSNs long past, and is passed over.
pub(super) const PSN_STEP: u32 = 0x10_1001;

/// How two queue pairs are connected. What says RC concerns reliable connections, an XRC initiator's too, and is passed over
/// by others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// Own port, from 1.
    pub port: u8,
    /// Own entry in the GID table; `None` for the [usual one](crate::Context::usual_gid_index).
    pub gid_index: Option<u8>,
    /// What the peer may do.
    pub access: Access,
    /// Payload of a packet; `None` for the largest that both ports can carry.
    pub path_mtu: Option<Mtu>,
    /// RC: own READs and atomics outstanding at once.
    pub max_rd_atomic: u8,
    /// RC, not XRC: READs and atomics of the peer outstanding at once.
    pub max_dest_rd_atomic: u8,
    /// RC: local ack timeout: 4.096 µs × 2^n, 0 to 31; 0 waits for ever.
    pub timeout: u8,
    /// RC: retries after a timeout or a sequence error, 0 to 7.
    pub retry_cnt: u8,
    /// RC: retries after RNR, 0 to 7; 7 retries for ever.
    pub rnr_retry: u8,
    /// RC, not XRC: pause that an RNR NAK asks for, code 0 to 31.
    pub min_rnr_timer: u8,
}

impl Default for Connection {
    fn default() -> Self {
        Self {
            port: 1,
            gid_index: None,
            access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            path_mtu: None,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
        }
    }
}

impl<T: Paired> Qp<T> {
    /// Connects to the queue pair `peer`, on whatever host: moves from RST over INIT and RTR to RTS.
    ///
    /// The peer does the same; the first request may go when it has reached RTR. [`QpAddress`] shows how two hosts
    /// tell each other.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for an address that packets cannot be sent to, by name, before the device is
    /// asked; the queue pair may be in INIT then.
    pub fn connect(&mut self, peer: &QpAddress, how: &Connection) -> Result<()> {
        let reliable = Self::if_reliable;
        self.modify(&QpModify {
            pkey_index: Some(0),
            port: Some(how.port),
            access: Some(how.access),
            ..QpModify::to(QpState::INIT)
        })?;
        self.modify(&self.rtr(peer, how)?)?;
        self.modify(&QpModify {
            timeout: reliable(how.timeout),
            retry_cnt: reliable(how.retry_cnt),
            rnr_retry: reliable(how.rnr_retry),
            sq_psn: Some(self.psn),
            max_rd_atomic: reliable(how.max_rd_atomic),
            ..QpModify::to(QpState::RTS)
        })
    }

    fn rtr(&self, peer: &QpAddress, how: &Connection) -> Result<QpModify> {
        // An initiator is asked for nothing.
        let answers = |value| (T::SERVICE == ServiceType::RC).then_some(value);
        let ctx = self.object.context();
        let port = ctx.port(how.port)?;
        let sgid_index = how.gid_index.unwrap_or(port.link_layer.usual_gid_index());
        let ah = self.way_to(peer, how.port, &port, sgid_index)?;
        Ok(QpModify {
            ah: Some(ah),
            path_mtu: Some(how.path_mtu.unwrap_or(Mtu(port.active_mtu.0.min(peer.mtu.0)))),
            dest_qp_num: Some(peer.qpn),
            rq_psn: Some(peer.psn),
            max_dest_rd_atomic: answers(how.max_dest_rd_atomic),
            min_rnr_timer: answers(how.min_rnr_timer),
            ..QpModify::to(QpState::RTR)
        })
    }

    /// What only a reliable connection is told.
    fn if_reliable(value: u8) -> Option<u8> {
        matches!(T::SERVICE, ServiceType::RC | ServiceType::XRC).then_some(value)
    }
}
