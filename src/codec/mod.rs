//! Between the program's buffers and the bytes that go through a group.

mod deposits;
mod finish;
mod keys;
mod pairs;
mod staging;

use std::ffi::c_int;

pub use staging::{Prepared, prepare, report_mismatch};

/// MPI's code for success.
pub const SUCCESS: c_int = 0;
