//! Ethernet frames as they are, past the kernel.
#![forbid(unsafe_code)]

use super::Qp;
use crate::{
    Result,
    backend::{FlowId, FrameMatch, QpModify},
    mlx5::context::QpState,
    queue::RawPacket,
};

/// A queue pair for Ethernet frames (`IBV_QPT_RAW_PACKET`): to the device a send queue and a receive queue of
/// raw Ethernet, and entries of its flow table.
///
/// A frame begins with the destination's MAC address and has no FCS, sent or received. Frames longer than the port's MTU
/// are not sent.
///
/// ```no_run
/// # fn f(pd: &mlx5_direct::Pd, cq: &mut mlx5_direct::Cq) -> Result<(), Box<dyn std::error::Error>> {
/// use mlx5_direct::{Access, QpInit, backend::FrameMatch, queue::{Checksums, Flags}};
///
/// let mut qp = pd.create_raw_packet_qp(&QpInit::default(), cq, cq)?;
/// qp.bring_up(1)?;
/// let own = pd.context().port(1)?.mac;
/// qp.steer(&FrameMatch { dmac: Some(own), ethertype: Some(0x88b5), ..FrameMatch::default() })?;
///
/// let mr = pd.alloc_mr(2048, Access::LOCAL_WRITE)?;
/// let memory = qp.lease(&mr)?;
/// qp.post_recv(1, &[memory.slice(0..2048)])?;
///
/// // Devices that want heads in requests say how much: here it is all of Ethernet's header, and four bytes.
/// let mut head = [0; 18];
/// head[..6].fill(0xff);
/// head[6..12].copy_from_slice(&own);
/// head[12..14].copy_from_slice(&0x88b5u16.to_be_bytes());
/// let mut list = qp.post_list();
/// list.send_with_header(2, &head, Checksums::NONE, Flags::SIGNALED)?.inline(b"who is there?")?.finish();
/// list.ring();
///
/// let mut done = cq.poll();
/// while let Some(wc) = done.next() {
///     wc.status()?;
///     if qp.retire(&wc)?.wr_id == 1 {
///         println!("a frame of {} bytes", wc.byte_len());
///     }
/// }
/// # Ok(()) }
/// ```
pub type RawPacketQp = Qp<RawPacket>;

impl RawPacketQp {
    /// Moves from RST over INIT and RTR to RTS, on `port`.
    pub fn bring_up(&mut self, port: u8) -> Result<()> {
        self.modify(&QpModify { port: Some(port), ..QpModify::to(QpState::INIT) })?;
        self.modify(&QpModify::to(QpState::RTR))?;
        self.modify(&QpModify::to(QpState::RTS))
    }

    /// Has frames that match come here, until the rule or the queue pair ends. What no rule of any queue pair matches is
    /// dropped, and RoCE packets are no frames to the device.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if the same frames go to a queue pair of this process
    /// already.
    pub fn steer(&self, frames: &FrameMatch) -> Result<FlowId> {
        self.object.context().control().create_flow(self.qpn(), frames)
    }

    /// Ends a rule.
    pub fn unsteer(&self, flow: FlowId) -> Result<()> {
        self.object.context().control().destroy_flow(self.qpn(), flow)
    }
}
