//! The RoCE address table: the driver's, filled entry by entry.
#![forbid(unsafe_code)]

use super::{
    Function,
    dispatch::{Input, Output, done, out},
    refusal::Refusal,
};
use mlx5_direct::mlx5::{
    cmd::{QueryRoceAddressIn, QueryRoceAddressOut, SetRoceAddressIn},
    context::{RoceL3Type, RoceVersion},
};

/// First 12 bytes of an IPv4 address as a GID.
const IPV4_MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

impl Function {
    pub(super) fn set_roce_address(&mut self, input: &Input<'_>) -> Output {
        let input: SetRoceAddressIn = input.get()?;
        let new = input.roce_address();
        let index = usize::from(input.roce_address_index());
        let entry = self.roce_addresses.get_mut(index).ok_or(Refusal::ROCE_INDEX)?;
        if input.vhca_port_num() > 1 {
            return Err(Refusal::PORT);
        }
        let gid = new.source_l3_address();
        if gid != [0; 16] {
            let v2 = new.roce_version() == RoceVersion::VERSION_2;
            let ipv4 = new.roce_l3_type() == RoceL3Type::L3_TYPE_IPV4;
            if !(v2 || new.roce_version() == RoceVersion::VERSION_1) || new.roce_l3_type().0 > 1 {
                return Err(Refusal::ROCE_VERSION);
            }
            if v2 && ipv4 && gid[..12] != IPV4_MAPPED {
                return Err(Refusal::ROCE_ADDRESS);
            }
        }
        *entry = new;
        done()
    }

    pub(super) fn query_roce_address(&mut self, input: &Input<'_>) -> Output {
        let input: QueryRoceAddressIn = input.get()?;
        let index = usize::from(input.roce_address_index());
        let entry = self.roce_addresses.get(index).ok_or(Refusal::ROCE_INDEX)?;
        out(QueryRoceAddressOut::new().with_roce_address(*entry))
    }
}
