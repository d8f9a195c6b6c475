//! Errors between a rank, the agent and the kernel.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

/// Kinds of errors that a caller may tell apart. Travels over the socket; never reuse a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// Nobody serves the socket.
    Unreachable,
    /// Agent and library were built from different headers.
    Version,
    /// The peer may not do this.
    Denied,
    /// A limit on groups, memory or connections is reached.
    Limit,
    /// The request makes no sense.
    Invalid,
    /// The member's address is on no interface of this host.
    NotLocal,
    /// No hook of the interface can be used.
    Hook,
    /// The kernel refused a program or a map.
    Kernel,
    /// The group does not exist.
    NotFound,
    /// The agent is ending: a client that wants a group asks the next agent.
    Ending,
    /// The connection broke, or the other side does not speak the protocol.
    Connection,
}

/// An error: its kind, and one line for a person.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// `Result` with this module's error.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of a kind, in words.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The kind of the error, for the caller to act upon.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Turns an error of the operating system into ours, saying what was being done.
pub(crate) trait Context<T> {
    fn context(self, kind: ErrorKind, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Cause>> Context<T> for std::result::Result<T, E> {
    fn context(self, kind: ErrorKind, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::new(kind, format!("{}: {}", doing(), error.into().0)))
    }
}

/// A cause's text. libbpf's own text runs over several lines; its error number says as much.
pub(crate) struct Cause(String);

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<nix::Error> for Cause {
    fn from(error: nix::Error) -> Self {
        Self(error.desc().to_string())
    }
}

impl From<libbpf_rs::Error> for Cause {
    fn from(error: libbpf_rs::Error) -> Self {
        // In front of it libbpf-rs may have put what it was doing.
        let mut cause: &dyn std::error::Error = &error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        Self(cause.to_string())
    }
}
