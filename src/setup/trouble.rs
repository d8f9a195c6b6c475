//! Why a communicator has no group.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::agent::Later;
use super::exchange::Failure;
use super::roll_call::former_user;
use crate::bindings::FB_MAX_MEMBERS;
use crate::config::{Announced, announced};
use crate::topology::Layout;

/// Why a communicator has no group: the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoGroup {
    /// All ranks are on one host: nothing is wrong.
    OneHost,
    /// The job has one rank; whose launcher has announced several tasks, if it has.
    OneRank(Option<Announced>),
    /// Some rank has yet to load programs.
    Later(Later),
    /// There are so many hosts, more than a group can have.
    TooManyHosts(usize),
    /// A rank is not as rank 0 is, in what all must have alike.
    Differs {
        rank: usize,
        /// The name of what differs.
        what: &'static str,
    },
    /// Settings differ between ranks, or make no sense on one.
    Settings(String),
    /// Ranks of one host belong to different users.
    Users,
    /// A host has no address that the others could reach.
    NoAddress,
    /// The hosts' agents use different UDP ports.
    Ports,
    /// This rank is on none of the hosts.
    Nowhere,
    /// A rank could not make a communicator for messages to itself.
    NoCommunicator { rank: usize },
    /// The ranks could not tell each other.
    Untold(Failure),
    /// Some rank has a trouble of its own.
    Rank {
        rank: usize,
        /// The number of its host.
        host: usize,
        trouble: Trouble,
    },
}

impl NoGroup {
    /// Why there is no group of ranks that are on these hosts, if that is so already.
    pub(super) fn of_hosts(hosts: &[String]) -> Option<Self> {
        Self::of_layout(&Layout::new(hosts.iter().map(String::as_str)))
    }

    /// The job has one rank.
    pub fn one_rank() -> Self {
        Self::OneRank(announced(|name| std::env::var(name).ok()))
    }

    pub(super) fn of_layout(layout: &Layout) -> Option<Self> {
        if layout.ranks() == 1 {
            return Some(Self::one_rank());
        }
        match layout.hosts.len() {
            0 | 1 => Some(Self::OneHost),
            hosts if hosts > FB_MAX_MEMBERS as usize => Some(Self::TooManyHosts(hosts)),
            _ => None,
        }
    }

    /// Whether nothing is wrong with a job whose MPI_COMM_WORLD has no group for this reason, or another process tells.
    pub fn is_usual(&self) -> bool {
        match self {
            Self::OneHost => true,
            Self::OneRank(announced) => announced.is_none_or(|announced| !announced.is_first),
            _ => false,
        }
    }
}

/// A reason that keeps one rank from taking part. The rank tells all others, so it travels; texts are for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// The system has no random numbers.
    Random(String),
    /// There is no agent, or it refuses.
    Agent(String),
    /// The ranks of the host cannot meet.
    SharedMemory(String),
    /// The group's cells or sockets cannot be had.
    Group(String),
    /// Frames do not come through.
    Silence {
        /// The kind of frame that did not come.
        missing: Missing,
        seconds: u64,
        /// The hook that takes frames in.
        hook: String,
        /// The interface that they come from.
        interface: String,
        /// The UDP port that they are sent to.
        port: u16,
    },
    /// A first fold came back wrong.
    WrongFold,
}

/// The frame that does not come where frames do not come through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// A HELLO of each host.
    Hello,
    /// The result of the first fold.
    Fold,
}

impl Trouble {
    /// The agent refuses something, for which a new user of this process may be the cause.
    pub fn of_agent(why: impl fmt::Display) -> Self {
        let changed = former_user().map(|user| {
            format!(
                "; this process has changed its user from {user} since MPI_Init (setuid, seteuid)"
            )
        });
        Self::Agent(format!("{why}{}", changed.unwrap_or_default()))
    }

    /// Hosts hear each other, but a first fold, of whole chunks, does not come back.
    pub fn is_no_fold(&self) -> bool {
        matches!(self, Self::Silence { missing: Missing::Fold, .. })
    }
}

impl fmt::Display for NoGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneHost => f.write_str("all ranks are on one host"),
            Self::Later(_) => f.write_str("programs are yet to be loaded"),
            Self::OneRank(None) => f.write_str("there is one rank"),
            Self::OneRank(Some(Announced { variable, tasks, .. })) => write!(
                f,
                "there is one rank, though {variable}={tasks}: the launcher has started no MPI job (srun takes \
                 --mpi, as in --mpi=pmix; or take the MPI's own launcher)"
            ),
            Self::TooManyHosts(hosts) => write!(f, "{hosts} hosts; at most {FB_MAX_MEMBERS} fold"),
            Self::Differs { rank, what } => write!(f, "rank {rank} has another {what} than rank 0"),
            Self::Settings(why) => f.write_str(why),
            Self::Users => f.write_str("ranks of one host belong to different users"),
            Self::NoAddress => {
                f.write_str("a host has no usable IPv4 address, in FOLDBACK_NET if that is set")
            }
            Self::Ports => f.write_str(
                "the agents use different UDP ports: give them all the same FOLDBACK_PORT",
            ),
            Self::Nowhere => f.write_str("this rank is on no host"),
            Self::NoCommunicator { rank } => {
                write!(f, "rank {rank} cannot duplicate MPI_COMM_SELF")
            }
            Self::Untold(Failure::Silence) => f.write_str("some ranks did not answer"),
            Self::Untold(Failure::Gibberish) => {
                f.write_str("some ranks have another version of foldback")
            }
            Self::Untold(Failure::Mpi) => f.write_str("MPI failed during set-up"),
            Self::Rank { rank, host, trouble } => write!(f, "rank {rank} (host {host}): {trouble}"),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random(why) | Self::Agent(why) | Self::Group(why) => f.write_str(why),
            Self::SharedMemory(why) => write!(f, "shared memory: {why}"),
            Self::Silence { missing, seconds, hook, interface, port } => {
                let missing = match missing {
                    Missing::Hello => "not all hosts were heard",
                    Missing::Fold => "a first fold did not come back",
                };
                write!(
                    f,
                    "{missing} within {seconds} s through {hook} of interface {interface}: is UDP \
                     port {port} let through?"
                )
            }
            Self::WrongFold => f.write_str("a first fold came back wrong"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn troubles_travel_and_are_one_line() {
        let (hook, interface) = ("tc".to_string(), "eth0".to_string());
        let silence =
            Trouble::Silence { missing: Missing::Fold, seconds: 5, hook, interface, port: 7 };
        for trouble in [
            Trouble::Random("no such device".into()),
            Trouble::SharedMemory("no room".into()),
            silence,
            Trouble::WrongFold,
        ] {
            let told = serde_json::to_string(&trouble).unwrap();
            let heard: Trouble = serde_json::from_str(&told).unwrap();
            assert_eq!(heard, trouble);
            let line = NoGroup::Rank { rank: 3, host: 1, trouble }.to_string();
            assert!(line.starts_with("rank 3 (host 1): ") && line.lines().count() == 1, "{line}");
        }
        let silent = NoGroup::Untold(Failure::Silence);
        assert_ne!(silent.to_string(), NoGroup::Untold(Failure::Mpi).to_string());
    }
}
