//! The transports between two functions that are nothing but memory: every packet is real bytes, every
//! clock tick virtual.

mod counters;
mod datagrams;
mod dc;
mod errors;
mod faults;
mod masked_atomics;
mod operations;
mod paging;
mod retries;
mod rules;
mod scatter_to_cqe;
mod shared;
mod tag_matching;
mod uc;
mod world;
mod wqe;
mod xrc;
