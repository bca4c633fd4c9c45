//! `mlx5 model serve`: the software ConnectX on a vfio-user socket.

use crate::{args::Serve, device, failure::Failure, run};
use mlx5_vfio_user::{ServeError, Service};
use std::io::{self, Write};

/// Serves one client after the other, or the first one only.
pub(crate) fn serve(args: &Serve, out: &mut impl Write) -> Result<(), Failure> {
    let model = device::card(&args.device.text()?)?;
    let service = Service::bind(&args.socket, &model, args.function)?;
    writeln!(out, "model:{} on vfio-user socket {}", args.function, args.socket.display())?;
    loop {
        // The line that a waiting program needs to see.
        out.flush()?;
        let gone = service.serve(&mut |line| {
            // Nobody to tell if standard error is closed too.
            let _ = writeln!(io::stderr(), "{line}");
        })?;
        writeln!(out, "the client {gone}")?;
        let violations: Vec<_> = model.take_violations().iter().map(ToString::to_string).collect();
        let verdict = run::finish(Some(&violations), out);
        if args.once {
            return verdict;
        }
        if let Err(failure @ Failure::Output(_)) = verdict {
            return Err(failure);
        }
    }
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        match error {
            ServeError::Model(_) | ServeError::Taken(_) => Self::Usage(error.to_string()),
            other => Self::Run(other.to_string()),
        }
    }
}
