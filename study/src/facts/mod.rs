//! What numbers mean: statuses, syndromes, events, and the causes that public reports support.
//!
//! Names and numbers of the interface come from the driver's own enumerations. What stands here besides is what a
//! kernel, a library or a report says in public, with its source. No vendor has confirmed what [`Basis::Reports`]
//! marks.

mod cause;
mod command;
mod device;
mod event;
mod firmware;
mod health;
mod vendor;
mod wc;

pub use cause::{Cause, causes_of, checks_of};
pub use command::{command_by_name, command_name, command_status_by_text, command_status_text};
pub use device::device_of_hw_id;
pub use event::{AsyncEvent, EVENTS, event_by_text, event_of_type, sensors};
pub use firmware::{FIRMWARE, FirmwareSyndrome, firmware_syndrome};
pub use health::{HEALTH, Health, health};
pub use vendor::{VENDOR, Vendor, vendor, vendor_origin};
pub use wc::{WC, Wc, wc_by_name, wc_by_number, wc_by_text, wc_of_syndrome};

/// What a statement rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// A public header or the code that prints it.
    Interface,
    /// Public reports: no vendor has said so.
    Reports,
}
