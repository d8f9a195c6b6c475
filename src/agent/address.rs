//! The address of an agent: a path, or a name in the network namespace ("abstract").

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::agent::error::Result;
use crate::agent::options::{parse, value};

/// Address of an agent's socket. Written as a path, or as `@` and a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SocketAddress {
    /// A socket file.
    Path(PathBuf),
    /// An abstract name: no file, gone with its process, seen in its network namespace only.
    Abstract(String),
}

/// The socket of a host's agent, unless it has another address.
pub(crate) const HOST_SOCKET: &str = "/run/foldback/agent.sock";

/// The address at which `foldback agent` listens and a rank looks for it: `FOLDBACK_AGENT_SOCKET`,
/// else [`HOST_SOCKET`].
pub fn default_address() -> Result<SocketAddress> {
    const NAME: &str = "FOLDBACK_AGENT_SOCKET";
    match value(NAME)? {
        Some(value) => parse(NAME, &value),
        None => Ok(SocketAddress::Path(HOST_SOCKET.into())),
    }
}

impl FromStr for SocketAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        match text.strip_prefix('@') {
            Some(name) if !name.is_empty() => Ok(Self::Abstract(name.to_string())),
            Some(_) => Err("an abstract socket needs a name after '@'"),
            None if text.is_empty() => Err("the agent's socket has an empty name"),
            None => Ok(Self::Path(text.into())),
        }
    }
}

impl TryFrom<String> for SocketAddress {
    type Error = &'static str;

    fn try_from(text: String) -> std::result::Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<SocketAddress> for String {
    fn from(address: SocketAddress) -> Self {
        address.to_string()
    }
}

impl fmt::Display for SocketAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Abstract(name) => write!(f, "@{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_survives_the_round_trip() {
        for text in ["/run/x.sock", "@00f3a", "relative.sock"] {
            assert_eq!(text.parse::<SocketAddress>().unwrap().to_string(), text);
        }
        assert!("".parse::<SocketAddress>().is_err());
        assert!("@".parse::<SocketAddress>().is_err());
    }
}
