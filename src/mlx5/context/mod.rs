//! Contexts: what the device keeps of each object, and what commands carry of it.

pub mod ads;
pub mod cqc;
pub mod dctc;
pub mod eqc;
pub mod flow;
pub mod fte_match;
pub mod mkc;
pub mod qpc;
pub mod qpc_ext;
pub mod roce_addr;
pub mod rqc;
pub mod sqc;
pub mod srq;
pub mod tir;
pub mod vport;
pub mod wq;
pub mod xrqc;

pub use ads::Ads;
pub use cqc::{CqPeriodMode, CqState, CqStatus, Cqc, CqeSize, MiniCqeFormat};
pub use dctc::{DctState, Dctc};
pub use eqc::{EqState, EqStatus, Eqc};
pub use flow::{DestFormatStruct, FlowAction, FlowContext, FlowDestination, FlowTableContext, Vlan};
pub use fte_match::{FteMatchParam, FteMatchSetLyr24, FteMatchSetMisc};
pub use mkc::{Mkc, MkcAccessMode};
pub use qpc::{AtomicMode, Mtu, PmState, QpState, Qpc, RqType, ScatterToCqe, ServiceType};
pub use qpc_ext::QpcExt;
pub use roce_addr::{RoceAddrLayout, RoceL3Type, RoceVersion};
pub use rqc::{Rmpc, Rqc};
pub use sqc::Sqc;
pub use srq::XrcSrqc;
pub use tir::{Rqtc, RxHashFieldSelect, Tirc, Tisc};
pub use vport::{HcaVportContext, InlineMode, MacAddressLayout, NicVportContext, NicVportListType, Pkey};
pub use wq::{Wq, WqType};
pub use xrqc::{TagMatchingTopologyContext, XrqOffload, XrqState, XrqTopology, Xrqc};
