//! The agent of a host, at a path where everybody finds it.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::agent::address::SocketAddress;
use crate::agent::error::{Context, Error, ErrorKind, Result};
use crate::agent::options::Options;
use crate::agent::port::is_anybodys;
use crate::agent::server::{Audience, Server};
use crate::agent::service::Service;
use crate::agent::socket::Socket;

const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// An agent that serves every user of the host.
pub struct Daemon {
    server: Server,
    file: Option<SocketFile>,
}

impl Daemon {
    /// Takes the address and loads the programs.
    pub fn start(address: &SocketAddress, options: Options) -> Result<Self> {
        if is_anybodys(options.port) {
            log::warn!(
                "UDP port {} is no privileged one: any user of this host may take it while no agent runs, and read frames there",
                options.port
            );
        }
        let (listener, file) = match address {
            SocketAddress::Path(path) => {
                let (listener, file) = SocketFile::listen(path)?;
                (listener, Some(file))
            }
            SocketAddress::Abstract(_) => (
                Socket::listen(address)
                    .context(ErrorKind::Kernel, || format!("listening at {address}"))?,
                None,
            ),
        };
        Ok(Self { server: Server::new(listener, Audience::Everybody, options)?, file })
    }

    /// Serves until `stop` can be read from. Tells systemd that it does, if that started it.
    pub fn run(&mut self, stop: BorrowedFd<'_>) -> Result<()> {
        self.server.set_service(Service::ready());
        self.server.run(stop)
    }

    /// Gives up its address, so that another agent can take it. Serves the present groups until they are gone,
    /// `limit` has passed, or `stop` can be read from.
    pub fn drain(&mut self, stop: BorrowedFd<'_>, limit: Duration) -> Result<()> {
        self.file = None;
        self.server.drain(stop, limit)
    }
}

/// The file of a socket; removed when dropped, unless somebody replaced it.
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    fn listen(path: &Path) -> Result<(Socket, Self)> {
        let doing = || format!("listening at {}", path.display());
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(directory)
            .context(ErrorKind::Kernel, doing)?;
        let _lock = lock(directory).context(ErrorKind::Kernel, doing)?;
        clear(path)?;
        let listener =
            Socket::listen(&SocketAddress::Path(path.into())).context(ErrorKind::Kernel, doing)?;
        // Every user may ask; the agent decides by user.
        fs::set_permissions(path, Permissions::from_mode(0o666))
            .context(ErrorKind::Kernel, doing)?;
        let identity = identity(path).context(ErrorKind::Kernel, doing)?;
        Ok((listener, Self { path: path.into(), identity }))
    }

    fn remove(&self) -> io::Result<()> {
        let _lock = match self.path.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => lock(directory)?,
            _ => lock(Path::new("."))?,
        };
        if identity(&self.path)? == self.identity {
            fs::remove_file(&self.path)?;
        }
        Ok(())
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        match self.remove() {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                log::warn!("{} stays: {error}", self.path.display());
            }
            _ => {}
        }
    }
}

/// Removes the socket of an agent that is dead; an error if it lives.
fn clear(path: &Path) -> Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.context(ErrorKind::Kernel, || path.display().to_string())?,
    };
    let refuse =
        |why: &str| Err(Error::new(ErrorKind::Kernel, format!("{}: {why}", path.display())));
    if !metadata.file_type().is_socket() {
        return refuse("in the way, and not a socket");
    }
    match Socket::connect(&SocketAddress::Path(path.into()), Duration::ZERO) {
        Err(Errno::ECONNREFUSED) => fs::remove_file(path)
            .context(ErrorKind::Kernel, || format!("removing {}", path.display())),
        Ok(socket) => {
            let pid = socket.peer().map_or(0, |peer| peer.pid);
            refuse(&format!("an agent (process {pid}) serves here already"))
        }
        Err(Errno::EAGAIN) => refuse("an agent serves here already"),
        Err(error) => refuse(error.desc()),
    }
}

/// One agent at a time looks at the directory of its socket. The lock is on the directory itself,
/// so that no lock file remains. Any user can take it, so it is not waited for long.
fn lock(directory: &Path) -> io::Result<Option<Flock<File>>> {
    for _ in 0..LOCK_TRIES {
        match Flock::lock(File::open(directory)?, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(Some(lock)),
            Err((_, Errno::EWOULDBLOCK | Errno::EINTR)) => thread::sleep(LOCK_PAUSE),
            Err((_, error)) => return Err(error.into()),
        }
    }
    log::warn!("{} stays locked by somebody; going on without", directory.display());
    Ok(None)
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}
