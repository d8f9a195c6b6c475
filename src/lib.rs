//! foldback: fold in the kernel, fall back to MPI.
//!
//! ```text
//!  program ── MPI_Allreduce ─▶ preload ─▶ runtime ── not eligible ─▶ mpi (the real one)
//!                              collective ─┤ eligible
//!                                requests ─┤
//!                                        group ─ leaf           ranks of this host
//!                                           │
//!                                          wire ── sendmsg ─▶ tc egress ─▶ other hosts
//!                                           ▲                                   │
//!                                           └──── cells ◀──── tc ingress, xdp ◀─┘
//! ```
//!
//! `setup` makes groups, with the help of the `agent`, which has the privileges. `docs/architecture.md`
//! explains; `docs/protocol.md` proves.

pub mod agent;
pub mod bindings;
pub mod capi;
pub mod collective;
pub mod config;
mod group;
mod guard;
pub mod leaf;
pub mod logging;
pub mod mpi;
mod preload;
mod requests;
mod router;
mod runtime;
pub mod settings;
mod setup;
mod sockopt;
pub mod stats;
mod wait;
pub mod wire;
