//! `mlx5 model run`: another program on the software ConnectX.

use crate::{args::ModelRun, failure::Failure};
use mlx5_model::ModelConfig;
use std::{env, os::unix::process::CommandExt, path::PathBuf, process::Command};

/// The library that answers `/dev/vfio`, built beside this program.
const LIBRARY: &str = "libmlx5_standin.so";

/// Where the library is: named by `MLX5_STANDIN`, or beside this program.
fn library() -> Result<PathBuf, Failure> {
    if let Some(path) = env::var_os("MLX5_STANDIN") {
        return Ok(path.into());
    }
    let own = env::current_exe()?;
    let path = own.with_file_name(LIBRARY);
    if path.is_file() {
        return Ok(path);
    }
    let text =
        format!("{} is not there: build it with `cargo build --release -p mlx5-standin`", path.display());
    Err(Failure::Run(text))
}

/// Becomes `args.program`, with the model as `/dev/vfio/5555`. Returns only if it cannot be started.
pub(crate) fn run(args: &ModelRun) -> Result<(), Failure> {
    let (kind, options) = args.device.device.split_once(':').unwrap_or((&args.device.device, ""));
    if kind != "model" {
        return Err(Failure::Usage(format!("device kind `{kind}`: `mlx5 model run` takes model:OPTIONS")));
    }
    let _: ModelConfig = options.parse().map_err(|error| Failure::Usage(format!("{error}")))?;
    let [program, arguments @ ..] = &args.command[..] else {
        return Err(Failure::Usage("no program to run".into()));
    };
    let mut command = Command::new(program);
    command.args(arguments).env("LD_PRELOAD", library()?).env("MLX5_MODEL", options);
    for (name, path) in
        [("MLX5_MODEL_TRACE", &args.recording.trace), ("MLX5_MODEL_PCAP", &args.recording.pcap)]
    {
        if let Some(path) = path {
            command.env(name, path);
        }
    }
    let error = command.exec();
    Err(Failure::Run(format!("{}: {error}", program.to_string_lossy())))
}
