//! The device of a command, and the recording of what it sees.

use crate::{args::Recording, failure::Failure};
use mlx5_devices::{OpenError, Target};
use mlx5_direct::backend::prm::OpenOptions;
use mlx5_model::Model;
use std::{
    fs::File,
    io::{BufWriter, Write},
    path::Path,
    time::Duration,
};

pub(crate) use mlx5_devices::{Device, card};

/// How functions are opened: each command to the device ends within `timeout`.
pub(crate) fn options(timeout: Duration) -> OpenOptions {
    OpenOptions { command_timeout: timeout, fw_init_timeout: timeout, ..OpenOptions::default() }
}

/// Opens every function of the device that `text` names. What a software card sees from then on is recorded.
pub(crate) fn open(text: &str, timeout: Duration, recording: &Recording) -> Result<Device, Failure> {
    let options = options(timeout);
    if recording.trace.is_none() && recording.pcap.is_none() {
        return Ok(Device::open(text, &options)?);
    }
    let Target::Model(config) = text.parse()? else {
        return Err(Failure::Usage(format!(
            "--trace and --pcap are of the software card: `{text}` sees nothing of it"
        )));
    };
    let model = Model::new(*config).map_err(|error| Failure::Run(error.to_string()))?;
    if let Some(path) = &recording.trace {
        model.trace().write_to(create(path)?);
    }
    if let Some(path) = &recording.pcap {
        model.trace().pcap_to(create(path)?).map_err(|error| failed(path, &error))?;
    }
    Ok(Device::on(model, &options)?)
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Usage(text) => Self::Usage(text),
            OpenError::Device(text) => Self::Run(text),
        }
    }
}

fn create(path: &Path) -> Result<Box<dyn Write + Send>, Failure> {
    let file = File::create(path).map_err(|error| failed(path, &error))?;
    Ok(Box::new(BufWriter::new(file)))
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Run(format!("{}: {error}", path.display()))
}
