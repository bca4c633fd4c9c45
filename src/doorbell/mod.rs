//! How the device learns of work: doorbell records in host memory, doorbells in UAR pages, and the
//! barriers between them.
//!
//! One order holds for every queue: the elements, then the record, then the doorbell. `docs/ordering.md`
//! argues each barrier with the steps of both sides.

mod barrier;
#[cfg(test)]
pub(crate) mod explore;
mod record;
mod uar;

pub use barrier::{
    after_owner_test, before_consumer_index, before_doorbell, before_doorbell_record, flush_write_combining,
};
pub use record::DoorbellRecord;
pub use uar::{DoorbellMode, Sharing, UarPage, UarRegister};
