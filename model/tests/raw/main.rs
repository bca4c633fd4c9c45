//! The model driven without the driver: commands, contexts, WQEs and doorbells built by hand.

mod commands;
mod compact_address;
mod completions;
mod compression;
mod copies;
mod counters;
mod cq_modify;
mod dct;
mod devx;
mod doorbells;
mod ethernet;
mod keys;
mod memic;
mod multicast;
mod paging;
mod plain_pages;
mod port;
mod port_counters;
mod rig;
mod scatter_to_cqe;
mod scheduling;
mod signatures;
mod srq;
mod umr;
mod xrq;

use mlx5_model::Rule;

/// Takes the rules broken so far.
fn rules(rig: &rig::Rig) -> Vec<Rule> {
    rig.model.take_violations().into_iter().map(|violation| violation.rule).collect()
}
