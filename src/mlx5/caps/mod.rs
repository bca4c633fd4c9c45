//! Capability groups, as QUERY_HCA_CAP returns and SET_HCA_CAP takes them.

mod device_mem;
mod eth;
mod flow;
mod general;
mod general_2;
mod qos;
mod transport;

pub use device_mem::DeviceMemCap;
pub use eth::PerProtocolNetworkingOffloadCaps;
pub use flow::{FlowTableNicCap, FlowTablePropLayout};
pub use general::CmdHcaCap;
pub use general_2::CmdHcaCap2;
pub use qos::QosCap;
pub use transport::{AtomicCaps, OdpCap, OdpPerTransportServiceCap, RoceCap};
