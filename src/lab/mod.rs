//! The lab: a small cluster on one machine.
//!
//! ```text
//!   host h0          host h1          host h2        one network namespace each, with its own
//!   10.77.0.1        10.77.0.2        10.77.0.3      host name, /sys, /sys/fs/bpf and /dev/shm
//!     eth0             eth0             eth0  ◀─ tbf: --rate
//!      │                │                │
//!     p0               p1               p2    ◀─ netem: --delay; tbf: --rate; faults: lab_faults.bpf.c
//!      └────────────── br0 ──────────────┘           the fabric, one more namespace
//! ```
//!
//! Nothing of it is visible in the namespace the user works in. Everything a lab owns is under one
//! directory, [`registry::BASE`]`/NAME`. To remove a lab: kill what runs in its namespaces, unmount
//! what is mounted below the directory, delete the directory.
//!
//! * [`settings`]: options of the network, and their parsing.
//! * [`registry`]: the labs that exist, their owners, removal of what dead owners left.
//! * [`fabric`], [`netns`], [`faults`]: building the network.
//! * [`enter`], [`rank`]: steps that a process goes through on its way into a host.
//! * [`launch`]: the command lines of the MPIs' launchers.
//! * [`run`], [`supervise`], [`processes`], [`trace`]: running a job and ending it.
//! * [`status`]: the output of `lab status`.

pub(crate) mod enter;
pub mod fabric;
mod faults;
pub mod launch;
pub mod netns;
pub(crate) mod processes;
pub(crate) mod rank;
pub mod registry;
pub(crate) mod run;
pub mod settings;
pub(crate) mod status;
pub mod supervise;
mod tool;
mod trace;
