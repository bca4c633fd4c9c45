//! Devices by name: `model` and its options.

use crate::{args::Recording, failure::Failure};
use mlx5_direct::{Context, backend::prm::OpenOptions};
use mlx5_model::{Model, ModelConfig, config::Drive};
use std::{
    fs::File,
    io::{BufWriter, Write},
    path::Path,
    time::Duration,
};

/// An open device.
#[derive(Debug)]
pub(crate) struct Device {
    model: Model,
    functions: Vec<Context>,
}

impl Device {
    /// Opens every function of the device that `text` names, each command to it within `timeout`. What the
    /// card sees from then on is recorded.
    pub(crate) fn open(text: &str, timeout: Duration, recording: &Recording) -> Result<Self, Failure> {
        let model = card(text)?;
        if let Some(path) = &recording.trace {
            model.trace().write_to(create(path)?);
        }
        if let Some(path) = &recording.pcap {
            model.trace().pcap_to(create(path)?).map_err(|error| failed(path, &error))?;
        }
        Self::on(model, timeout)
    }

    /// Opens every function of a card.
    pub(crate) fn on(model: Model, timeout: Duration) -> Result<Self, Failure> {
        let mut functions = Vec::new();
        for index in 0..usize::from(model.config().ports) {
            let function = model.function(index).map_err(|error| Failure::Run(error.to_string()))?;
            let options =
                OpenOptions { command_timeout: timeout, fw_init_timeout: timeout, ..Default::default() };
            functions.push(Context::open(function, options)?);
        }
        Ok(Self { model, functions })
    }

    /// Its functions.
    pub(crate) fn functions(&self) -> &[Context] {
        &self.functions
    }

    /// The two ends of a connection: on both functions, or twice on the only one.
    pub(crate) fn ends(&self) -> Result<[&Context; 2], Failure> {
        match (self.functions.first(), self.functions.last()) {
            (Some(first), Some(last)) => Ok([first, last]),
            _ => Err(Failure::Run("the device has no functions".into())),
        }
    }

    /// Takes the device down, and tells what rules were broken up to and including that.
    pub(crate) fn close(self) -> Result<Vec<String>, Failure> {
        for function in self.functions {
            function.close().map_err(|(_, error)| error)?;
        }
        let recorded = self.model.trace().finish();
        recorded.map_err(|error| Failure::Run(format!("recording: {error}")))?;
        Ok(self.model.violations().iter().map(ToString::to_string).collect())
    }
}

/// Makes the card that `text` names.
pub(crate) fn card(text: &str) -> Result<Model, Failure> {
    let (kind, options) = text.split_once(':').unwrap_or((text, ""));
    if kind != "model" {
        return Err(Failure::Usage(format!(
            "device kind `{kind}` is not known: this version drives `model` only, with options as in \
             `model:ports=2,mtu=4096,bar=trapped`"
        )));
    }
    let config: ModelConfig = options.parse().map_err(|error| Failure::Usage(format!("{error}")))?;
    if config.drive == Drive::Step {
        return Err(Failure::Usage(
            "model option `drive=step` is for tests, which call step() themselves; use drive=thread".into(),
        ));
    }
    Model::new(config).map_err(|error| Failure::Run(error.to_string()))
}

fn create(path: &Path) -> Result<Box<dyn Write + Send>, Failure> {
    let file = File::create(path).map_err(|error| failed(path, &error))?;
    Ok(Box::new(BufWriter::new(file)))
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Run(format!("{}: {error}", path.display()))
}
