//! Between the program and its MPI: what is exported.

pub mod hooks;
