//! `mlx5 decode`: what pasted dumps and error lines say.

mod input;
mod print;

use crate::failure::Failure;
use clap::{Args, ValueEnum};
use mlx5_study::{
    record::Record,
    structure::{As, ReceiveHead, Transport},
    text::{Finder, Options},
};
use print::Printer;
use std::{ffi::OsString, io::Write};

/// Arguments of `decode`.
#[derive(Debug, Args)]
pub(crate) struct Decode {
    /// Text with dumps or error lines in it, whole logs too; `-` is standard input, which is the default
    #[arg(value_name = "FILE")]
    files: Vec<OsString>,
    /// Print JSON, one object a record and line
    #[arg(long)]
    json: bool,
    /// What bytes are that nothing announces. Bare hexadecimal will do then, of 16 bytes or more
    #[arg(long = "as", value_enum, default_value_t = Kind::Auto, value_name = "WHAT")]
    read_as: Kind,
    /// How the queue pair of a WQE talks, which no WQE says
    #[arg(long, value_enum)]
    transport: Option<Talk>,
}

/// What bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Whatever they look like
    Auto,
    /// A send request
    Wqe,
    /// A receive request of a queue pair's own queue
    Recv,
    /// A receive request of a shared receive queue
    Srq,
    /// A completion
    Cqe,
    /// An event
    Eqe,
    /// A slot of the command queue, or a command's input or output
    Cmd,
}

/// A transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Talk {
    /// Reliable connection
    Rc,
    /// Unreliable connection
    Uc,
    /// Datagrams
    Ud,
    /// Extended reliable connection
    Xrc,
    /// Dynamically connected
    Dc,
    /// Raw Ethernet
    Raw,
}

impl From<Kind> for As {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Auto => Self::Auto,
            Kind::Wqe => Self::Wqe,
            Kind::Recv => Self::Receive(ReceiveHead::None),
            Kind::Srq => Self::Receive(ReceiveHead::Next),
            Kind::Cqe => Self::Cqe,
            Kind::Eqe => Self::Eqe,
            Kind::Cmd => Self::Cmd,
        }
    }
}

impl From<Talk> for Transport {
    fn from(talk: Talk) -> Self {
        match talk {
            Talk::Rc => Self::Rc,
            Talk::Uc => Self::Uc,
            Talk::Ud => Self::Ud,
            Talk::Xrc => Self::Xrc,
            Talk::Dc => Self::Dc,
            Talk::Raw => Self::Raw,
        }
    }
}

impl Decode {
    fn options(&self) -> Options {
        Options { read_as: self.read_as.into(), transport: self.transport.map(Into::into) }
    }
}

/// `decode`: every record in the files is printed as soon as it is whole.
pub(crate) fn decode(args: &Decode, out: &mut impl Write) -> Result<(), Failure> {
    let mut printer = Printer::new(args.json, args.files.len() > 1);
    let standard_input = [OsString::from("-")];
    let files = if args.files.is_empty() { &standard_input[..] } else { &args.files };
    for name in files {
        let mut finder = Finder::new(args.options());
        printer.next_file(name);
        input::read(name, |piece| {
            let mut result = Ok(());
            let mut found = |record: Record| {
                if result.is_ok() {
                    result = printer.record(&record, out);
                }
            };
            match piece {
                input::Piece::Bytes(bytes) => finder.feed(bytes, &mut found),
                input::Piece::Pause => finder.settle(&mut found),
                input::Piece::End => finder.end(&mut found),
            }
            // Whoever follows a log wants to see a record when it comes.
            if !matches!(piece, input::Piece::Bytes(_)) {
                result = result.and_then(|()| out.flush());
            }
            Ok(result?)
        })?;
        printer.end_of_file(finder.summary());
    }
    printer.summary(out)?;
    if printer.n_records() == 0 {
        return Err(Failure::Run(
            "nothing here is a dump or an error line of mlx5 that is known; bare hexadecimal needs --as wqe, recv, srq, cqe, eqe or cmd"
                .into(),
        ));
    }
    Ok(())
}
