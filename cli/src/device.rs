//! The device of a command, and the recording of what it sees.

use crate::{args::Recording, failure::Failure};
use mlx5_devices::{OpenError, Target};
use mlx5_direct::backend::prm::OpenOptions;
use mlx5_model::{Model, fault::from_file_or_seed};
use std::{
    fs::File,
    io::{BufWriter, Write},
    path::Path,
    time::Duration,
};

pub(crate) use mlx5_devices::{Device, card, stopped_by};

/// How functions are opened: each command to the device ends within `timeout`.
pub(crate) fn options(timeout: Duration) -> OpenOptions {
    OpenOptions { command_timeout: timeout, fw_init_timeout: timeout, ..OpenOptions::default() }
}

/// Opens every function of the device that `text` names. What a software card sees from then on is recorded.
pub(crate) fn open(text: &str, timeout: Duration, recording: &Recording) -> Result<Device, Failure> {
    let options = options(timeout);
    if recording.trace.is_none() && recording.pcap.is_none() && recording.faults.is_none() {
        return Ok(Device::open(text, &options)?);
    }
    let Target::Model(mut config) = text.parse()? else {
        return Err(Failure::Usage(format!(
            "--trace, --pcap and --faults are of the software card: `{text}` sees nothing of it"
        )));
    };
    if let Some(faults) = &recording.faults {
        config.faults = from_file_or_seed(faults).map_err(|error| Failure::Usage(error.to_string()))?;
    }
    let model = Model::new(*config).map_err(|error| Failure::Run(error.to_string()))?;
    if let Some(path) = &recording.trace {
        model.trace().write_to(create(path)?);
    }
    if let Some(path) = &recording.pcap {
        model.trace().pcap_to(create(path)?).map_err(|error| failed(path, &error))?;
    }
    Device::on(model.clone(), &options)
        .map_err(|error| with_faults(error.into(), &model.faults_done().to_string()))
        .map_err(|failure| with_rule(failure, stopped_by(&model).as_deref()))
}

/// A failure, and the broken rule at which the card stopped (`--strict stop`).
fn with_rule(failure: Failure, rule: Option<&str>) -> Failure {
    match (failure, rule) {
        (Failure::Run(text), Some(rule)) => Failure::Run(format!(
            "the driver broke a rule, and the card stopped: {}\nwhat came of it: {text}",
            rule.trim_end()
        )),
        (other, _) => other,
    }
}

/// A failure, and the faults that may be its reason.
fn with_faults(failure: Failure, faults: &str) -> Failure {
    match failure {
        Failure::Run(text) if !faults.is_empty() => {
            Failure::Run(format!("{text}\nfaults that happened:\n{}", faults.trim_end()))
        }
        other => other,
    }
}

/// Does the work of a command on the device. Why it failed is told at once: taking down a device that is gone may last.
pub(crate) fn told<W: Write, T>(
    device: &Device,
    out: &mut W,
    work: impl FnOnce(&mut W) -> Result<T, Failure>,
) -> Result<T, Failure> {
    work(out).map_err(|failure| {
        let failure = with_faults(failure, &device.faults_done());
        let failure = with_rule(failure, device.stopped_by().as_deref());
        // What was printed before the failure belongs before it. A second failure would add nothing.
        let _ = out.flush();
        if let Some(message) = failure.message() {
            // Nobody to tell if standard error is closed too.
            let _ = writeln!(std::io::stderr(), "error: {message}");
        }
        Failure::Told(failure.number())
    })
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
