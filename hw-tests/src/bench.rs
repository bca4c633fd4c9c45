//! The device under test.

use mlx5_devices::{Device, OpenError};
use mlx5_direct::{Context, backend::prm::OpenOptions};

/// An open device: one or two functions, and the model behind them if it is one.
#[derive(Debug)]
pub(crate) struct Bench {
    device: Device,
}

impl Bench {
    /// Opens every function of the device.
    pub(crate) fn open(text: &str) -> Result<Self, OpenError> {
        Ok(Self { device: Device::open(text, &OpenOptions::default())? })
    }

    /// The functions on which the two ends of a connection are: the only one twice if there is one.
    pub(crate) fn ends(&self) -> [&Context; 2] {
        self.device.ends()
    }

    /// All its functions.
    pub(crate) fn functions(&self) -> &[Context] {
        self.device.functions()
    }

    /// Rules of the device interface that were broken since the last call. A card does not tell.
    pub(crate) fn take_violations(&self) -> Vec<String> {
        self.device.take_violations()
    }

    /// Takes the device down.
    pub(crate) fn close(self) -> Result<(), String> {
        let broken = self.device.close().map_err(|error| error.to_string())?;
        match broken.unwrap_or_default().first() {
            None => Ok(()),
            Some(first) => Err(first.clone()),
        }
    }
}
