//! What libraries share that are loaded into a program with `LD_PRELOAD` and put the software card behind a file of its:
//! the card that the environment asks for, what is told at the end, and the mappings of its BAR.
//!
//! `mlx5 model run` sets the variables: `MLX5_MODEL`, `MLX5_MODEL_TRACE`, `MLX5_MODEL_PCAP`.

pub use crate::pci::Mappings;
use crate::{Drive, Model, ModelConfig, ModelFunction};
use std::{env, fs::File, io};

/// Options of the card.
///
/// # Errors
/// What is wrong with `MLX5_MODEL`.
pub fn config() -> Result<ModelConfig, String> {
    let options = env::var("MLX5_MODEL").unwrap_or_default();
    options.parse().map_err(|error| format!("MLX5_MODEL: {error}"))
}

/// The card, which drives itself and writes down what is asked for.
///
/// # Errors
/// What is wrong with the variables, or with the files that they name.
pub fn card(config: ModelConfig) -> Result<Model, String> {
    if config.drive == Drive::Step {
        return Err("MLX5_MODEL: drive=step needs someone to call step(); use drive=thread".into());
    }
    let model = Model::new(config).map_err(|error| error.to_string())?;
    if let Some(path) = env::var_os("MLX5_MODEL_TRACE") {
        let file = File::create(&path).map_err(|error| format!("MLX5_MODEL_TRACE: {error}"))?;
        model.trace().write_to(Box::new(io::LineWriter::new(file)));
    }
    if let Some(path) = env::var_os("MLX5_MODEL_PCAP") {
        let file =
            File::create(&path).and_then(|file| model.trace().pcap_to(Box::new(io::BufWriter::new(file))));
        file.map_err(|error| format!("MLX5_MODEL_PCAP: {error}"))?;
    }
    Ok(model)
}

/// Tells on standard error, at the end of the program, which rules were broken and how often these functions did what is up to
/// chance, and ends what is written down.
///
/// # Errors
/// The trace or the capture is not complete, and why.
pub fn report<'a>(model: &Model, functions: impl Iterator<Item = &'a ModelFunction>) -> Result<(), String> {
    let (mut n_blue_flames, mut n_sessions, mut n_tagged) = (0, 0, 0);
    for function in functions {
        n_blue_flames += function.n_blue_flames();
        n_sessions += function.n_sessions();
        n_tagged += function.n_tagged();
    }
    let violations = model.violations();
    for violation in &violations {
        eprintln!("model: {violation}");
    }
    eprintln!("model: {n_blue_flames} WQEs by BlueFlame");
    if n_sessions != 0 {
        eprintln!("model: {n_sessions} sessions of compressed CQEs");
    }
    if n_tagged != 0 {
        eprintln!("model: {n_tagged} messages by tag");
    }
    eprintln!("model: {} violations", violations.len());
    model.trace().finish().map_err(|error| format!("the trace is not complete: {error}"))
}
