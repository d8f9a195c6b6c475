//! The agent: loads and attaches the BPF programs of a host, owns their maps, and admits groups.
//!
//! ```text
//!   rank:  client ── requests ──▶ agent:  server ─ connection     who asks, how fast (service: for systemd)
//!             ◀── cell map's descriptor ──   │
//!                                           host ─ ledger         which groups, of whom (accounts: of ended ones)
//!                                            │
//!                            programs ── attach ── clsact, sweep  what is in the kernel
//!                                            │
//!                           hook (decides) ─ interface, netlink   on which interface, how
//! ```
//!
//! The agent runs as [`Daemon`] for all users of a host, or as [`Embedded`] in a privileged rank.
//! Either serves one network namespace: the one of the thread that started it.

mod accounts;
mod address;
mod answers;
mod attach;
mod capability;
mod client;
mod clsact;
mod connection;
mod daemon;
pub mod echo;
mod embedded;
mod error;
mod hook;
mod host;
mod interface;
mod ledger;
mod multicast;
mod netlink;
mod options;
mod owner;
mod pod;
mod port;
pub mod probe;
mod programs;
mod protocol;
mod server;
mod service;
pub mod simd;
mod slots;
pub(crate) mod socket;
mod spec;
mod sweep;
mod sys;
mod trust;

pub use address::{SocketAddress, default_address};
pub use capability::capable;
pub use client::{Client, Group, Opening};
pub use daemon::Daemon;
pub use embedded::Embedded;
pub use error::{Error, ErrorKind, Result};
pub use hook::{Hook, HookChoice, Tc};
pub use options::{Limits, Options};
pub use pod::Work;
pub use protocol::{
    GroupStatus, InterfaceReply, InterfaceStatus, ProgramStatus, Status, UserStatus, Versions,
    Welcome,
};
pub use spec::{GroupSpec, can_share_address};
