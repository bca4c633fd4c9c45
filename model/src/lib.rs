//! A software ConnectX: a register-level model of an mlx5 device.
//!
//! [`Model`] is one card. [`ModelFunction`] is one of its PCI functions and implements the driver's
//! [`PciFunction`](mlx5_direct::backend::pci::PciFunction) in process: config space, BAR0, DMA through a
//! map of I/O virtual addresses, MSI-X by eventfd. Behind it stand the firmware's command interface
//! ([`fw`]), the WQE engine and the RC transport, and a wire between the ports.
//!
//! The model is stricter than a card: what a card would punish by silence or corruption is a named
//! [`Violation`] here.
//!
//! ```
//! use mlx5_model::{Model, ModelConfig};
//!
//! let config: ModelConfig = "ports=2,mtu=4096,drive=step".parse().unwrap();
//! let model = Model::new(config).unwrap();
//! let function = model.function(0).unwrap();
//! model.step();
//! model.assert_clean();
//! # drop(function);
//! ```

pub mod clock;
pub mod config;
mod eth;
pub mod exec;
pub mod fault;
pub mod fw;
pub mod mem;
pub mod model;
pub mod pci;
pub mod preload;
pub mod strict;
pub mod trace;
pub mod wire;

pub use config::{Bar, ConfigError, Drive, ModelConfig, Part, Strict};
pub use model::Model;
pub use pci::ModelFunction;
pub use strict::{Rule, Violation};
pub use trace::Trace;
