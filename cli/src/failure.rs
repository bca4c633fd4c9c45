//! Why a command ended without success, and the exit code for it.

use mlx5_direct::{
    Error,
    queue::{PostError, RetireError},
};
use std::{io, process::ExitCode};

/// Why a command ended without success.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was asked breaks a rule: exit code 2.
    Usage(String),
    /// It was tried and failed: exit code 1.
    Run(String),
    /// It has been told already, by a program that was run or [at once](crate::device::told): the exit code.
    Told(u8),
    /// The result could not be printed: exit code 1, or silence and 0 if the reader went away.
    Output(io::Error),
}

impl Failure {
    /// The exit code.
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(self.number())
    }

    /// The exit code as a number.
    pub(crate) fn number(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Told(code) => *code,
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            Self::Run(_) | Self::Output(_) => 1,
        }
    }

    /// What to tell the user, if anything.
    pub(crate) fn message(&self) -> Option<String> {
        match self {
            Self::Usage(text) | Self::Run(text) => Some(text.clone()),
            Self::Told(_) => None,
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => None,
            Self::Output(error) => Some(format!("cannot write to standard output: {error}")),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::InvalidArgument(rule) => Self::Usage(rule),
            other => Self::Run(other.to_string()),
        }
    }
}

impl From<PostError> for Failure {
    fn from(error: PostError) -> Self {
        Self::Run(format!("a request was not posted: {error}"))
    }
}

impl From<RetireError> for Failure {
    fn from(error: RetireError) -> Self {
        Self::Run(error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}
