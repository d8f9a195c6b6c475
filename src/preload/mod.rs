//! Between the program and its MPI: what is exported, and what MPI calls back.

pub mod guard;
pub mod hooks;
pub mod lifetime;
