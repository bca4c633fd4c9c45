//! What the device is, except WQEs and CQEs: registers, contexts, commands, events. Layouts only.
//!
//! Types have the PRM's names in CamelCase, fields the PRM's names; see [`layout`] for how they
//! are declared and printed.
#![forbid(unsafe_code)]

pub mod be;
pub mod caps;
pub mod cmd;
pub mod context;
pub mod eqe;
pub mod ids;
pub mod init_segment;
pub mod layout;
mod lists;
pub mod pci;
pub mod record;
pub mod uar;

pub use lists::{EnumTable, commands, enums, layouts};

/// A MAC address from the two fields in which contexts keep it.
fn mac_from(high: u16, low: u32) -> [u8; 6] {
    let mut mac = [0; 6];
    mac[..2].copy_from_slice(&high.to_be_bytes());
    mac[2..].copy_from_slice(&low.to_be_bytes());
    mac
}

/// The two fields in which contexts keep a MAC address.
fn mac_halves([a, b, c, d, e, f]: [u8; 6]) -> (u16, u32) {
    (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]))
}
