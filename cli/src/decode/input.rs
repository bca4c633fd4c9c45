//! Files and standard input, piece by piece.

use crate::failure::Failure;
use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

/// What comes of a file.
#[derive(Debug, Clone, Copy)]
pub(super) enum Piece<'a> {
    /// Some bytes of it.
    Bytes(&'a [u8]),
    /// Nothing for a while.
    Pause,
    /// Its end.
    End,
}

/// Bytes of a piece.
const PIECE_BYTES: usize = 64 * 1024;
/// Pieces that are read before they are asked for.
const AHEAD: usize = 4;
/// After so long without a byte, what has come is all there is for now.
const PAUSE: Duration = Duration::from_millis(300);

/// Gives the pieces of the file `name` to `each`; `-` is standard input.
pub(super) fn read(
    name: &OsStr,
    mut each: impl FnMut(Piece<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let cannot = |error: io::Error| Failure::Run(format!("cannot read {}: {error}", name.display()));
    let mut file: Box<dyn Read + Send> =
        if name == "-" { Box::new(io::stdin()) } else { Box::new(File::open(name).map_err(cannot)?) };
    // A thread reads, so that a pause is seen: `tail -f log | mlx5 decode`.
    let (sender, pieces) = mpsc::sync_channel::<io::Result<Vec<u8>>>(AHEAD);
    thread::spawn(move || {
        loop {
            let mut piece = vec![0; PIECE_BYTES];
            let result = match file.read(&mut piece) {
                Ok(0) => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok(n) => {
                    piece.truncate(n);
                    Ok(piece)
                }
                Err(error) => Err(error),
            };
            let is_end = result.is_err();
            if sender.send(result).is_err() || is_end {
                return;
            }
        }
    });
    let mut is_quiet = false;
    loop {
        let piece = if is_quiet {
            pieces.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            pieces.recv_timeout(PAUSE)
        };
        is_quiet = false;
        match piece {
            Ok(bytes) => each(Piece::Bytes(&bytes.map_err(cannot)?))?,
            Err(RecvTimeoutError::Timeout) => {
                each(Piece::Pause)?;
                is_quiet = true;
            }
            Err(RecvTimeoutError::Disconnected) => return each(Piece::End),
        }
    }
}
