//! The socket, and one client after the other.
#![forbid(unsafe_code)]

use crate::backend::{Session, irqs, regions};
use mlx5_model::{Bar, Model, ModelFunction, model::ModelError};
use std::{
    fmt, fs, io,
    os::unix::{fs::FileTypeExt, net::UnixStream},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};
use vfio_user::Server;

/// Why a function is not served.
#[derive(Debug)]
pub enum ServeError {
    /// The card has no such function.
    Model(ModelError),
    /// Something else is at the path: a file, or the socket of a server that lives.
    Taken(PathBuf),
    /// The socket could not be made or accepts nobody.
    Socket {
        /// Where it is.
        path: PathBuf,
        /// What went wrong.
        source: vfio_user::Error,
    },
    /// The operating system gave no thread.
    Thread(io::Error),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model(error) => error.fmt(f),
            Self::Taken(path) => write!(
                f,
                "{} exists, and is not the socket of a server that is gone: give another path or remove it",
                path.display()
            ),
            Self::Socket { path, source } => write!(f, "socket {}: {source}", path.display()),
            Self::Thread(error) => write!(f, "no thread to serve a client: {error}"),
        }
    }
}

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Model(error) => Some(error),
            Self::Taken(_) => None,
            Self::Socket { source, .. } => Some(source),
            Self::Thread(error) => Some(error),
        }
    }
}

/// How a client left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gone {
    /// It closed the connection, or died.
    Closed,
    /// The connection was given up, for this reason.
    Broken(String),
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("closed the connection"),
            Self::Broken(why) => write!(f, "was given up: {why}"),
        }
    }
}

/// One function on one socket, which is removed on drop.
pub struct Service {
    server: Server,
    function: Arc<ModelFunction>,
    path: PathBuf,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Service {
    /// Listens at `path` for clients of function `index` of a card that runs by itself (`drive=thread`). The
    /// socket of a server that is gone is replaced.
    ///
    /// # Errors
    /// [`ServeError`]: no such function, the path is taken, no socket.
    pub fn bind(path: &Path, model: &Model, index: usize) -> Result<Self, ServeError> {
        let function = model.function(index).map_err(ServeError::Model)?;
        if let Ok(meta) = fs::symlink_metadata(path) {
            let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
            let stale = meta.file_type().is_socket() && UnixStream::connect(path).is_err_and(refused);
            if !stale || fs::remove_file(path).is_err() {
                return Err(ServeError::Taken(path.into()));
            }
        }
        let config = model.config();
        let server = Server::new(path, true, irqs(config), regions(&function, config))
            .map_err(|source| ServeError::Socket { path: path.into(), source })?;
        if config.bar != Bar::Trapped {
            // The init segment is not in the sparse areas.
            function.watch_bar(false);
        }
        Ok(Self { server, function, path: path.into() })
    }

    /// Waits for a client, as long as that takes, and serves it until it is gone. The function is reset then,
    /// and reaches no memory and no eventfd of that client. `report` hears of every message that was refused,
    /// in words.
    ///
    /// # Errors
    /// [`ServeError::Socket`] if no client can connect any more, [`ServeError::Thread`].
    pub fn serve(&self, report: &mut (dyn FnMut(&str) + Send)) -> Result<Gone, ServeError> {
        // In a thread, because the protocol crate panics on some malformed messages: that ends the client's
        // session and not the server.
        let ended = thread::scope(|scope| {
            let session = move || self.server.run(&mut Session::new(Arc::clone(&self.function), report));
            let thread = thread::Builder::new().name("vfio-user".into()).spawn_scoped(scope, session);
            thread.map(|thread| thread.join()).map_err(ServeError::Thread)
        })?;
        match ended {
            Ok(Ok(())) => Ok(Gone::Closed),
            Ok(Err(source @ vfio_user::Error::SocketAccept(_))) => {
                Err(ServeError::Socket { path: self.path.clone(), source })
            }
            Ok(Err(error)) => Ok(Gone::Broken(error.to_string())),
            Err(_) => Ok(Gone::Broken("it sent a message that is not of the protocol".into())),
        }
    }
}
