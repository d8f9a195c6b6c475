//! Between the program's buffers and the bytes that go through a group.

mod deposits;
mod finish;
mod keys;
mod staging;

pub use finish::SUCCESS;
pub use staging::{Prepared, prepare};
