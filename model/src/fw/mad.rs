//! MAD_IFC, and what the vport counted.
#![forbid(unsafe_code)]

use super::{
    Function,
    dispatch::{Input, Output, out},
    refusal::Refusal,
    vport::own_vport,
};
use mlx5_direct::mlx5::cmd::{MadIfcIn, MadIfcOut, QueryVportCounterIn, QueryVportCounterOut};

/// Places in a management datagram's header.
const METHOD: usize = 3;
const STATUS: usize = 4;
/// Bit of the method: a response.
const RESPONSE: u8 = 0x80;
/// Status: this method and attribute are not supported.
const UNSUPPORTED: u16 = 0x000c;

impl Function {
    /// A RoCE port has no subnet management agent, and the model no other: every datagram is answered as one
    /// that asks for what there is not.
    pub(super) fn mad_ifc(&mut self, input: &Input<'_>) -> Output {
        let input: MadIfcIn = input.get()?;
        if input.port() != 1 {
            return Err(Refusal::PORT);
        }
        let mut mad = input.mad();
        mad[METHOD] |= RESPONSE;
        mad[STATUS..STATUS + 2].copy_from_slice(&UNSUPPORTED.to_be_bytes());
        out(MadIfcOut::new().with_response_mad_packet(mad))
    }

    pub(super) fn query_vport_counter(&mut self, input: &Input<'_>) -> Output {
        let input: QueryVportCounterIn = input.get()?;
        own_vport(input.other_vport(), input.vport_number())?;
        let sent = self.vport.sent;
        if input.clear() {
            self.vport.sent = Default::default();
        }
        // Of what RoCE sends and what arrives nothing is counted yet.
        out(QueryVportCounterOut::new()
            .with_transmitted_eth_unicast(sent.unicast)
            .with_transmitted_eth_multicast(sent.multicast)
            .with_transmitted_eth_broadcast(sent.broadcast))
    }
}
