//! The device under test.

use mlx5_direct::{Context, backend::prm::OpenOptions};
use mlx5_model::{Model, ModelConfig, config::Drive};
use std::fmt;

/// An open device: one or two functions, and the model behind them if it is one.
#[derive(Debug)]
pub(crate) struct Bench {
    model: Model,
    functions: Vec<Context>,
}

/// Why a device did not open.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// It is not named as devices are.
    Usage(String),
    /// It is there or should be, and failed.
    Device(String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Usage(text) | Self::Device(text)) = self;
        f.write_str(text)
    }
}

impl Bench {
    /// Opens every function of the device.
    pub(crate) fn open(text: &str) -> Result<Self, OpenError> {
        let (kind, options) = text.split_once(':').unwrap_or((text, ""));
        if kind != "model" {
            return Err(OpenError::Usage(format!(
                "device kind `{kind}` is not known: this version runs on `model` only"
            )));
        }
        let config: ModelConfig = options.parse().map_err(|error| OpenError::Usage(format!("{error}")))?;
        if config.drive == Drive::Step {
            return Err(OpenError::Usage(
                "model option `drive=step` has nobody to step it; use drive=thread".into(),
            ));
        }
        let device = |error: &dyn fmt::Display| OpenError::Device(error.to_string());
        let model = Model::new(config).map_err(|error| device(&error))?;
        let mut functions = Vec::new();
        for index in 0..usize::from(model.config().ports) {
            let function = model.function(index).map_err(|error| device(&error))?;
            functions.push(Context::open(function, OpenOptions::default()).map_err(|error| device(&error))?);
        }
        Ok(Self { model, functions })
    }

    /// The functions on which the two ends of a connection are: the only one twice if there is one.
    pub(crate) fn ends(&self) -> [&Context; 2] {
        [&self.functions[0], &self.functions[self.functions.len() - 1]]
    }

    /// The device in a line.
    pub(crate) fn describe(&self) -> String {
        let names: Vec<_> = self.functions.iter().map(Context::name).collect();
        format!("{}, firmware {}", names.join(" and "), self.ends()[0].device().fw_ver)
    }

    /// Rules of the device interface that were broken since the last call. A card does not tell.
    pub(crate) fn take_violations(&self) -> Vec<String> {
        self.model.take_violations().iter().map(ToString::to_string).collect()
    }

    /// Takes the device down.
    pub(crate) fn close(self) -> Result<(), String> {
        for function in self.functions {
            function.close().map_err(|(_, error)| error.to_string())?;
        }
        match self.model.violations().as_slice() {
            [] => Ok(()),
            [first, ..] => Err(first.to_string()),
        }
    }
}
