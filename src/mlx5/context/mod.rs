//! Contexts: what the device keeps of each object, and what commands carry of it.

pub mod ads;
pub mod cqc;
pub mod eqc;
pub mod mkc;
pub mod qpc;
pub mod roce_addr;
pub mod vport;

pub use ads::Ads;
pub use cqc::{CqPeriodMode, CqState, CqStatus, Cqc, CqeSize};
pub use eqc::{EqState, EqStatus, Eqc};
pub use mkc::{Mkc, MkcAccessMode};
pub use qpc::{AtomicMode, Mtu, PmState, QpState, Qpc, RqType, ScatterToCqe, ServiceType};
pub use roce_addr::{RoceAddrLayout, RoceL3Type, RoceVersion};
pub use vport::{HcaVportContext, InlineMode, MacAddressLayout, NicVportContext, NicVportListType, Pkey};
