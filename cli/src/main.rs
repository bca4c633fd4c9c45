//! The `mlx5` command: run, measure and explain mlx5 devices.
//!
//! Exit code 0: done. 1: it failed. 2: what was asked breaks a rule, which the message names.
#![forbid(unsafe_code)]

mod args;
mod decode;
mod device;
mod diff;
mod doctor;
mod encode;
mod endpoint;
mod explain;
mod failure;
mod hosts;
mod info;
mod model;
mod notes;
mod payload;
mod plan;
mod qp;
mod report;
mod request;
mod run;
mod serve;
mod tour;
mod traffic;

use args::{Cli, Command, ModelCommand};
use clap::Parser;
use std::{
    io::{self, BufWriter, Write},
    process::ExitCode,
};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = BufWriter::new(io::stdout().lock());
    let result = match &cli.command {
        Command::Pingpong(args) => run::pingpong(args, &mut out),
        Command::Lat(args) => run::lat(args, &mut out),
        Command::Bw(args) => run::bw(args, &mut out),
        Command::Info(args) => info::info(args, &mut out),
        Command::List(args) => doctor::list(args, &mut out),
        Command::Doctor(args) => doctor::doctor(args, &mut out),
        Command::Decode(args) => decode::decode(args, &mut out),
        Command::Notes(args) => notes::notes(args, &mut out),
        Command::Diff(args) => diff::diff(args, &mut out),
        Command::Tour(args) => tour::tour(args, &mut out),
        Command::Encode(args) => encode::encode(args, &mut out),
        Command::Model(ModelCommand::Serve(args)) => serve::serve(args, &mut out),
        Command::Model(ModelCommand::Run(args)) => model::run(args),
    };
    let result = result.and_then(|()| Ok(out.flush()?));
    let Err(failure) = result else { return ExitCode::SUCCESS };
    // What was printed before the failure belongs before it. A second failure would add nothing.
    let _ = out.flush();
    if let Some(message) = failure.message() {
        // Nobody to tell if standard error is closed too.
        let _ = writeln!(io::stderr(), "error: {message}");
    }
    failure.code()
}
