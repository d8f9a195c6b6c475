//! foldback: fold in the kernel, fall back to MPI.
//!
//! ```text
//!  program ── MPI_Allreduce ─▶ preload ─▶ dispatch ── left to MPI ─▶ mpi (the real one)
//!               gate ─▶ choice ─▶ codec ────┤
//!                                         engine ─ leaf         ranks of this host
//!                                           │
//!                                          wire ── sendmsg ─▶ tc egress ─▶ other hosts
//!                                           ▲                                   │
//!                                           ├──── cells ◀──── tc ingress, xdp ◀─┤
//!                                           └──── cells ◀──── keeper ◀───────────┘  (programs gone)
//! ```
//!
//! `docs/contributing/architecture.md` explains, and has all modules in their order;
//! `docs/contributing/protocol.md` proves.

#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod agent;
pub mod bindings;
pub mod call;
pub mod capi;
mod choice;
pub mod cli;
mod codec;
mod collectives;
mod comm;
pub mod config;
mod dispatch;
pub mod engine;
mod gate;
mod group;
mod guard;
pub mod keeper;
pub mod lab;
pub mod leaf;
pub mod logging;
mod mpi;
pub mod output;
mod own;
pub mod places;
mod plan;
mod preload;
mod process;
pub mod progress;
#[cfg(test)]
#[path = "../tests/common/random.rs"]
mod random;
mod requests;
mod script;
mod setup;
mod sockopt;
pub mod stats;
mod threads;
pub mod topology;
mod wait;
pub mod wire;
