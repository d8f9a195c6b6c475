//! Makers of scripts: calls as lists of steps ([`crate::engine::Script`]).
#![allow(unsafe_code)]

mod addends;
mod by_shards;
mod exact;
mod quantized;

use crate::engine::{Job, Pattern};
use crate::leaf::arithmetic::{Arithmetic, Element, Operator};

pub use addends::Addends;
pub use by_shards::ByShards;
pub use exact::Exact;
pub use quantized::{Numbers, Quantized, Request};

/// The fold of everyone's data, in its place.
fn to_all(op: Operator, element: Element, data: *mut u8, bytes: usize) -> Job {
    let pattern = Pattern::FoldToAll(Arithmetic { op, element });
    Job { pattern, bytes, send: data, recv: data }
}
