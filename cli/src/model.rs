//! `mlx5 model run`: another program on the software ConnectX.

mod verbs;

use crate::{args::ModelRun, failure::Failure};
use mlx5_model::ModelConfig;
use std::{env, os::unix::process::CommandExt, path::PathBuf, process::Command};

/// A library that is loaded into programs, built beside this program.
struct Library {
    file: &'static str,
    package: &'static str,
    /// Environment variable that names it, if it is elsewhere.
    variable: &'static str,
}

/// Answers `/dev/vfio`.
const VFIO: Library =
    Library { file: "libmlx5_standin.so", package: "mlx5-standin", variable: "MLX5_STANDIN" };
/// Answers `/dev/infiniband`.
const VERBS: Library = Library { file: "libmlx5_uverbs.so", package: "mlx5-uverbs", variable: "MLX5_UVERBS" };

impl Library {
    /// Where it is: named by its variable, or beside this program.
    fn path(&self) -> Result<PathBuf, Failure> {
        if let Some(path) = env::var_os(self.variable) {
            return Ok(path.into());
        }
        let path = env::current_exe()?.with_file_name(self.file);
        if path.is_file() {
            return Ok(path);
        }
        let (path, package) = (path.display(), self.package);
        Err(Failure::Run(format!("{path} is not there: build it with `cargo build --release -p {package}`")))
    }
}

/// Starts `args.program` with the model as `/dev/vfio/5555`, or as an RDMA device.
pub(crate) fn run(args: &ModelRun) -> Result<(), Failure> {
    let device = args.device.text()?;
    let (kind, options) = device.split_once(':').unwrap_or((&device, ""));
    if kind != "model" {
        return Err(Failure::Usage(format!("device kind `{kind}`: `mlx5 model run` takes model:OPTIONS")));
    }
    let with_faults = args.recording.faults.as_ref().map(|faults| format!("{options},faults={faults}"));
    let options = with_faults.as_deref().unwrap_or(options);
    let config: ModelConfig = options.parse().map_err(|error| Failure::Usage(format!("{error}")))?;
    if args.verbs || args.pair {
        return verbs::run(args, &config, options);
    }
    let mut command = command(args, &VFIO, options)?;
    // Becomes the program; returns only if it cannot be started.
    let error = command.exec();
    Err(not_started(&command, &error))
}

/// The program of a command line, with a card of these options in it.
fn command(args: &ModelRun, library: &Library, options: &str) -> Result<Command, Failure> {
    let [program, arguments @ ..] = &args.command[..] else {
        return Err(Failure::Usage("no program to run".into()));
    };
    let mut command = Command::new(program);
    command.args(arguments).env("LD_PRELOAD", library.path()?).env("MLX5_MODEL", options);
    for (name, path) in
        [("MLX5_MODEL_TRACE", &args.recording.trace), ("MLX5_MODEL_PCAP", &args.recording.pcap)]
    {
        if let Some(path) = path {
            command.env(name, path);
        }
    }
    Ok(command)
}

fn not_started(command: &Command, error: &std::io::Error) -> Failure {
    Failure::Run(format!("{}: {error}", command.get_program().to_string_lossy()))
}
