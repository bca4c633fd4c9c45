//! `mlx5 model run --verbs`: a program of libibverbs on the software ConnectX.

use super::{VERBS, command, not_started};
use crate::{args::ModelRun, failure::Failure};
use mlx5_devices::sysfs::Tree;
use mlx5_model::ModelConfig;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    os::unix::process::ExitStatusExt,
    process::{Child, ExitStatus},
};

/// Exit code of a program that a signal has ended, less the signal's number, as shells have it.
const BY_SIGNAL: i32 = 128;

/// Runs the program, with a pretend `/sys` for as long as it runs.
pub(super) fn run(args: &ModelRun, config: &ModelConfig, options: &str) -> Result<(), Failure> {
    let tree = Tree::new(config).map_err(|error| Failure::Run(format!("a pretend /sys: {error}")))?;
    let mut command = command(args, &VERBS, options)?;
    command.env("SYSFS_PATH", tree.root());
    let mut child = command.spawn().map_err(|error| not_started(&command, &error))?;
    pass_signals_on(&child)?;
    verdict(child.wait()?)
}

/// A signal that is to end this program is to end the other one: then this one ends too.
fn pass_signals_on(child: &Child) -> Result<(), Failure> {
    let pid = Pid::from_child(child);
    let handler = ctrlc::set_handler(move || {
        // Gone already, perhaps: a terminal's own signals come to both.
        let _ = kill_process(pid, Signal::TERM);
    });
    handler.map_err(|error| Failure::Run(format!("a signal handler: {error}")))
}

/// Its exit code is ours.
fn verdict(status: ExitStatus) -> Result<(), Failure> {
    match status.code().unwrap_or(BY_SIGNAL + status.signal().unwrap_or(0)) {
        0 => Ok(()),
        code => Err(Failure::Program(code as u8)),
    }
}
