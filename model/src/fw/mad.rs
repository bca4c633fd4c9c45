//! MAD_IFC.
#![forbid(unsafe_code)]

use super::{
    Function,
    dispatch::{Input, Output, out},
    refusal::Refusal,
};
use mlx5_direct::mlx5::cmd::{MadIfcIn, MadIfcOut};

impl Function {
    pub(super) fn mad_ifc(&mut self, input: &Input<'_>) -> Output {
        let input: MadIfcIn = input.get()?;
        if input.port() != 1 {
            return Err(Refusal::PORT);
        }
        let answer = self.management(input.mad());
        out(MadIfcOut::new().with_response_mad_packet(answer))
    }
}
