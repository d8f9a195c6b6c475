//! foldback: fold in the kernel, fall back to MPI.
pub mod agent;
pub mod bindings;
pub mod config;
pub mod wire;
