//! Packet pacing: rates that send queues name. They are kept and checked; nothing is slowed down, as nothing else in
//! the model takes as long as on a card.
#![forbid(unsafe_code)]

use super::{
    Function,
    dispatch::{Input, Output, done},
    refusal::Refusal,
};
use mlx5_direct::mlx5::{caps::QosCap, cmd::SetPpRateLimitIn};
use std::collections::BTreeSet;

const MIN_KBIT_PER_S: u32 = 1;
const MAX_KBIT_PER_S: u32 = 100_000_000;
/// Rates, with number 0, which is no limit.
const TABLE_SIZE: u16 = 128;

/// What QUERY_HCA_CAP says of it.
pub(super) fn capabilities() -> QosCap {
    QosCap::new()
        .with_packet_pacing(true)
        .with_packet_pacing_uid(true)
        .with_packet_pacing_burst_bound(true)
        .with_packet_pacing_typical_size(true)
        .with_packet_pacing_min_rate(MIN_KBIT_PER_S)
        .with_packet_pacing_max_rate(MAX_KBIT_PER_S)
        .with_packet_pacing_rate_table_size(TABLE_SIZE)
}

/// Numbers of the rates that are set.
#[derive(Debug, Default)]
pub(super) struct Rates(BTreeSet<u16>);

impl Rates {
    /// Whether a send queue may name a rate.
    pub(super) fn check(&self, index: u16) -> Result<(), Refusal> {
        if index == 0 || self.0.contains(&index) { Ok(()) } else { Err(Refusal::NO_SUCH_OBJECT) }
    }
}

impl Function {
    pub(super) fn set_pp_rate_limit(&mut self, input: &Input<'_>) -> Output {
        let input: SetPpRateLimitIn = input.get()?;
        let (index, rate) = (input.rate_limit_index(), input.ctx());
        if !(1..TABLE_SIZE).contains(&index) {
            return Err(Refusal::RATE_INDEX);
        }
        if rate.rate_limit() == 0 {
            self.rates.0.remove(&index);
            return done();
        }
        if rate.rate_mode() != 0 || !(MIN_KBIT_PER_S..=MAX_KBIT_PER_S).contains(&rate.rate_limit()) {
            return Err(Refusal::RATE);
        }
        self.rates.0.insert(index);
        done()
    }
}
