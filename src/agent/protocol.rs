//! The messages between a rank and its agent: one JSON document a packet, one reply a request.
//! Pure: nothing here touches a socket.
//!
//! A connection begins with [`Hello`], answered by [`Reply::Welcome`] or by an error of kind
//! `version`. These two are read leniently, so that any two versions understand that they do not
//! understand each other. Everything after is strict.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::agent::error::{Error, ErrorKind, Result};
use crate::agent::hook::{Hook, Tc};
use crate::agent::pod::Work;
use crate::agent::simd::Fold;
use crate::agent::spec::GroupSpec;
use crate::bindings::{FB_INTF_VERSION, FB_WIRE_VERSION, fb_counters};

/// Version of this module. Bump on any change of meaning.
pub const PROTOCOL_VERSION: u32 = 11;
/// Longest request: 64 members take 1.3 KB.
pub const MAX_REQUEST: usize = 8 << 10;
/// Longest reply: a page of groups.
pub const MAX_REPLY: usize = 64 << 10;
/// Groups in one [`Reply::Groups`].
pub const GROUPS_PER_PAGE: usize = 16;
/// Users in one [`Reply::Users`].
pub const USERS_PER_PAGE: usize = 64;
/// Longest name of a job, in bytes.
pub const MAX_JOB: usize = 64;

/// The versions of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// [`PROTOCOL_VERSION`].
    pub protocol: u32,
    /// `FB_INTF_VERSION`: cells, maps and counters.
    pub interface: u32,
    /// `FB_WIRE_VERSION`: frames.
    pub wire: u32,
}

/// First packet of a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// The versions that the client was built with.
    pub versions: Versions,
    /// The job that it belongs to, by the name that the batch system gives it. Nobody vouches for it.
    #[serde(default)]
    pub job: Option<String>,
}

impl Hello {
    /// The name of the job, if it is one that can be shown.
    pub fn sound_job(self) -> Option<String> {
        let is_sound = |job: &String| {
            (1..=MAX_JOB).contains(&job.len())
                && !job.contains(|c: char| c.is_control() || c == ' ')
        };
        self.job.filter(is_sound)
    }
}

/// The agent's answer to [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The versions that the agent was built with.
    pub versions: Versions,
    /// Release of the agent.
    pub release: String,
    /// The agent's process.
    pub pid: i32,
    /// UDP port of all frames.
    pub port: u16,
    /// It lives in an MPI rank.
    pub embedded: bool,
}

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Request {
    /// Make a group that lives as long as this connection.
    CreateGroup(GroupSpec),
    /// Make the table of pairs of a group of this connection, which lives as long as the group.
    CreateTable {
        slot: u32,
    },
    /// Destroy a group of this connection.
    DestroyGroup {
        slot: u32,
    },
    /// Read the counters of a group of this user.
    Counters {
        slot: u32,
    },
    /// Which interface has this address? The programs are attached to it, and cells made, for a group to come.
    Interface {
        /// An address of this host.
        address: Ipv4Addr,
        /// The window that the group would have with chunks of the usual size.
        window: u32,
    },
    Status,
    /// List groups that this user may see, from a slot on.
    Groups {
        from: u32,
    },
    /// List what groups of users have counted, from a uid on: of all, or for a user who is not root of himself.
    Users {
        from: u32,
    },
}

/// An agent's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// To [`Hello`].
    Welcome(Welcome),
    /// To `CreateGroup`; the cell map's descriptor comes along.
    Group(GroupReply),
    /// Done, nothing to say. To `CreateTable` the table's descriptor comes along.
    Done,
    /// To `Counters`.
    Counters(#[serde(with = "words")] fb_counters),
    /// To `Interface`.
    Interface(InterfaceReply),
    /// To `Status`.
    Status(Box<Status>),
    /// To `Groups`.
    Groups(GroupsReply),
    /// To `Users`.
    Users(UsersReply),
    /// It did not work.
    Error { kind: ErrorKind, message: String },
}

/// A group that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupReply {
    /// Its index into the agent's maps.
    pub slot: u32,
    /// The hook that takes its frames in.
    pub hook: Hook,
    /// Name of the interface that the frames take.
    pub interface: String,
    /// UDP port of its frames.
    pub port: u16,
    /// From one cell to the next.
    pub cell_bytes: u32,
    /// The instructions by which the programs fold its long chunks.
    pub fold: Fold,
}

/// An interface that a group could use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceReply {
    /// The interface's name.
    pub name: String,
    /// Its MTU.
    pub mtu: u32,
    /// Most `chunk_bytes` a group may have there.
    pub max_chunk_bytes: u16,
}

/// The agent and what it attached.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// The interfaces that the programs are attached to.
    pub interfaces: Vec<InterfaceStatus>,
    /// The instructions by which its programs fold long chunks.
    pub fold: Fold,
    /// Its programs.
    pub programs: Vec<ProgramStatus>,
    /// Groups of all users.
    pub groups: usize,
    /// Groups that it has made, present ones among them.
    pub groups_made: u64,
    /// Seconds since it began.
    pub age_seconds: u64,
    /// The counters of all groups that it has made.
    #[serde(with = "words")]
    pub counters: fb_counters,
    /// The counters of no group.
    #[serde(with = "words")]
    pub host_counters: fb_counters,
}

/// An interface in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceStatus {
    /// The interface's name.
    pub name: String,
    /// The interface's index (`ifindex`).
    pub index: u32,
    /// The hook that takes frames in.
    pub hook: Hook,
    /// How the TC programs are attached.
    pub tc: Tc,
    /// Groups that use it.
    pub groups: usize,
}

/// A program of the agent's, which runs for each frame of the interfaces that it is attached to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramStatus {
    /// Its hook.
    pub name: String,
    /// Times that it has run while the kernel counted (`kernel.bpf_stats_enabled`).
    pub runs: u64,
    /// How long that took, over all CPUs.
    pub nanoseconds: u64,
}

/// A page of groups.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupsReply {
    /// In order of their slots.
    pub groups: Vec<GroupStatus>,
    /// Ask on from here.
    pub next: Option<u32>,
}

/// A group, as told to its user and to root.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupStatus {
    /// Index into the agent's maps.
    pub slot: u32,
    /// User who made it.
    pub uid: u32,
    /// Process that asked for it.
    pub pid: i32,
    /// The job of this process, by its own word.
    pub job: Option<String>,
    /// Seconds since it was made.
    pub age_seconds: u64,
    /// The interface that its frames come in by.
    pub interface: String,
    /// The hook that takes them in.
    pub hook: Hook,
    /// This host's index among the members.
    pub self_index: u8,
    /// Addresses of all members' hosts.
    pub members: Vec<Ipv4Addr>,
    /// Its window, in cells.
    pub window: u32,
    /// Most payload of a frame.
    pub chunk_bytes: u16,
    /// Its leader's work; of an embedded agent's groups it is not told.
    pub work: Option<Work>,
    /// Since it was made, over all CPUs.
    #[serde(with = "words")]
    pub counters: fb_counters,
}

/// A page of users.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsersReply {
    /// In order of their uids.
    pub users: Vec<UserStatus>,
    /// Ask on from here.
    pub next: Option<u32>,
}

/// All groups of a user since the agent began.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserStatus {
    /// The user.
    pub uid: u32,
    /// Groups that there are.
    pub groups: usize,
    /// Groups that were made, present ones among them.
    pub groups_made: u64,
    /// Their counters.
    #[serde(with = "words")]
    pub counters: fb_counters,
}

impl Versions {
    /// The versions of this build.
    pub const CURRENT: Self =
        Self { protocol: PROTOCOL_VERSION, interface: FB_INTF_VERSION, wire: FB_WIRE_VERSION };

    /// Refuses a peer that speaks anything else.
    pub fn check(&self, peer: &str) -> Result<()> {
        if *self == Self::CURRENT {
            return Ok(());
        }
        let text =
            |v: &Self| format!("protocol {} maps {} frames {}", v.protocol, v.interface, v.wire);
        Err(Error::new(
            ErrorKind::Version,
            format!(
                "the {peer} has another version of foldback ({}; here: {}): install the same on both sides and restart the agent",
                text(self),
                text(&Self::CURRENT)
            ),
        ))
    }
}

/// A request or reply as one packet.
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(message)
        .map_err(|error| Error::new(ErrorKind::Connection, error.to_string()))
}

/// The request or reply of a packet.
pub fn decode<'de, T: Deserialize<'de>>(packet: &'de [u8]) -> Result<T> {
    serde_json::from_slice(packet)
        .map_err(|error| Error::new(ErrorKind::Invalid, format!("not understood: {error}")))
}

/// Counters travel as a list of numbers, in the order of the C header.
mod words {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    use crate::agent::pod;
    use crate::bindings::fb_counters;

    pub(super) fn serialize<S: Serializer>(
        counters: &fb_counters,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        pod::counters_to_words(counters).serialize(out)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        input: D,
    ) -> Result<fb_counters, D::Error> {
        let words = Vec::<u64>::deserialize(input)?;
        pod::counters_from_words(&words)
            .ok_or_else(|| de::Error::invalid_length(words.len(), &"one number a counter"))
    }
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
