//! Devices by name, for command lines: `model:ports=2` is the software ConnectX, everything else is what
//! [`DeviceName`] knows.
#![forbid(unsafe_code)]

pub mod sysfs;

use mlx5_direct::{Context, Error, backend::prm::OpenOptions, device::DeviceName};
use mlx5_model::{Model, ModelConfig, Strict, config::Drive};
use std::{fmt, str::FromStr};

/// What a command line says after `--device`.
#[derive(Debug, Clone)]
pub enum Target {
    /// `model`, with options: all functions of a software card.
    Model(Box<ModelConfig>),
    /// Functions of cards, as `vfio:0000:01:00.0`, separated by commas. Two are the two ends of connections.
    Cards(Vec<DeviceName>),
}

/// Why a device did not open.
#[derive(Debug)]
pub enum OpenError {
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

impl std::error::Error for OpenError {}

impl From<Error> for OpenError {
    fn from(error: Error) -> Self {
        Self::Device(error.to_string())
    }
}

impl FromStr for Target {
    type Err = OpenError;

    fn from_str(text: &str) -> Result<Self, OpenError> {
        let (kind, options) = text.split_once(':').unwrap_or((text, ""));
        if kind == "model" {
            let config: ModelConfig =
                options.parse().map_err(|error| OpenError::Usage(format!("{error}")))?;
            if config.drive == Drive::Step {
                return Err(OpenError::Usage(
                    "model option `drive=step` is for tests, which call step() themselves; use drive=thread"
                        .into(),
                ));
            }
            return Ok(Self::Model(Box::new(config)));
        }
        let names = text.split(',').map(str::parse).collect::<Result<Vec<DeviceName>, _>>();
        let names = names.map_err(|error| {
            OpenError::Usage(format!("{error}, or `model` with options as in `model:ports=2,mtu=4096`"))
        })?;
        match names.as_slice() {
            [_] => {}
            [a, b] if a != b => {}
            [_, _] => return Err(OpenError::Usage(format!("`{text}` names a device twice: once is enough"))),
            _ => return Err(OpenError::Usage(format!("`{text}` names more than two devices"))),
        }
        Ok(Self::Cards(names))
    }
}

/// An open device: one or two functions, and the model behind them if it is one.
#[derive(Debug)]
pub struct Device {
    functions: Vec<Context>,
    model: Option<Model>,
}

/// Makes the software card that `text` names.
pub fn card(text: &str) -> Result<Model, OpenError> {
    match text.parse()? {
        Target::Model(config) => Model::new(*config).map_err(|error| OpenError::Device(error.to_string())),
        Target::Cards(_) => {
            Err(OpenError::Usage(format!("`{text}` is not the software card: write `model`")))
        }
    }
}

/// The broken rule at which a software card stopped, if it is to stop at the first.
pub fn stopped_by(card: &Model) -> Option<String> {
    let violations = card.violations();
    violations.first().filter(|_| card.config().strict == Strict::Stop).map(ToString::to_string)
}

impl Device {
    /// Opens every function of the device that `text` names.
    pub fn open(text: &str, options: &OpenOptions) -> Result<Self, OpenError> {
        match text.parse()? {
            Target::Model(config) => {
                let model = Model::new(*config).map_err(|error| OpenError::Device(error.to_string()))?;
                Self::on(model, options)
            }
            Target::Cards(names) => {
                let functions = names.iter().map(|name| name.open(options)).collect::<Result<_, _>>()?;
                Ok(Self { functions, model: None })
            }
        }
    }

    /// Opens every function of a software card.
    pub fn on(model: Model, options: &OpenOptions) -> Result<Self, OpenError> {
        let mut functions = Vec::new();
        for index in 0..usize::from(model.config().ports) {
            let function = model.function(index).map_err(|error| OpenError::Device(error.to_string()))?;
            functions.push(Context::open(function, options.clone())?);
        }
        Ok(Self { functions, model: Some(model) })
    }

    /// Its functions: one or two.
    pub fn functions(&self) -> &[Context] {
        &self.functions
    }

    /// The two ends of a connection: on both functions, or twice on the only one.
    pub fn ends(&self) -> [&Context; 2] {
        // There is one at least, by construction.
        [&self.functions[0], &self.functions[self.functions.len() - 1]]
    }

    /// The broken rule at which the card stopped, if it is to stop at the first.
    pub fn stopped_by(&self) -> Option<String> {
        self.model.as_ref().and_then(stopped_by)
    }

    /// Rules of the interface that were broken since the last call. A card does not tell.
    pub fn take_violations(&self) -> Vec<String> {
        let Some(model) = &self.model else { return Vec::new() };
        model.take_violations().iter().map(ToString::to_string).collect()
    }

    /// The faults that happened to a software card, as a script; nothing if there were none.
    pub fn faults_done(&self) -> String {
        self.model.as_ref().map(|model| model.faults_done().to_string()).unwrap_or_default()
    }

    /// Takes the device down, and tells what rules were broken up to and including that: `None` for a card,
    /// which does not tell.
    pub fn close(self) -> Result<Option<Vec<String>>, OpenError> {
        for function in self.functions {
            function.close().map_err(|(_, error)| error)?;
        }
        let Some(model) = self.model else { return Ok(None) };
        let recorded = model.trace().finish();
        recorded.map_err(|error| OpenError::Device(format!("recording: {error}")))?;
        Ok(Some(model.take_violations().iter().map(ToString::to_string).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_direct::backend::pci::PciFunction;

    #[test]
    fn names_of_devices() {
        let refused = |text: &str| match text.parse::<Target>() {
            Err(OpenError::Usage(text)) => text,
            other => panic!("{text}: {other:?}"),
        };
        assert!(refused("nothing").contains("model"));
        assert!(refused("model:drive=step").contains("drive=thread"));
        assert!(refused("vfio:0000:01:00.0,vfio:01:00.0").contains("twice"));
        assert!(refused("vfio:01:00.0,vfio:01:00.1,vfio:01:00.2").contains("two"));
        let two: Target = "vfio:0000:01:00.0,vfio:0000:01:00.1".parse().unwrap();
        assert!(matches!(two, Target::Cards(names) if names.len() == 2));
    }

    #[test]
    fn a_card_that_stopped_says_at_which_rule() {
        for (options, stops) in [("model:strict=stop", true), ("model", false)] {
            let model = card(options).unwrap();
            assert_eq!(stopped_by(&model), None);
            let function = model.function(0).unwrap();
            function.config_write(4, &[6, 0]).unwrap();
            // A doorbell in a page that nobody was given.
            function.bar_write(0x9800, &[0; 8]);
            let rule = stopped_by(&model);
            assert_eq!(rule.is_some_and(|rule| rule.contains("DoorbellAllocatedPage")), stops);
        }
    }

    #[test]
    fn the_model_tells_what_was_broken_and_a_card_does_not_exist() {
        let device = Device::open("model:ports=2", &OpenOptions::default()).unwrap();
        assert_eq!(device.functions().len(), 2);
        assert_eq!(device.close().unwrap(), Some(Vec::new()));
        let error = Device::open("vfio:fffe:00:00.0", &OpenOptions::default()).unwrap_err();
        assert!(error.to_string().contains("there is no PCI function fffe:00:00.0"), "{error}");
    }
}
