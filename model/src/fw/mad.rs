//! MAD_IFC, and what the vport counted.
#![forbid(unsafe_code)]

use super::{
    Function,
    dispatch::{Input, Output, out},
    refusal::Refusal,
    vport::own_vport,
};
use mlx5_direct::mlx5::cmd::{MadIfcIn, MadIfcOut, QueryVportCounterIn, QueryVportCounterOut};

impl Function {
    pub(super) fn mad_ifc(&mut self, input: &Input<'_>) -> Output {
        let input: MadIfcIn = input.get()?;
        if input.port() != 1 {
            return Err(Refusal::PORT);
        }
        let answer = self.management(input.mad());
        out(MadIfcOut::new().with_response_mad_packet(answer))
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
