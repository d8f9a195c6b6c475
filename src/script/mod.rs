//! Makers of scripts: calls as lists of steps ([`crate::engine::Script`]).
#![allow(unsafe_code)]

mod quantized;

pub use quantized::{NotFinite, Numbers, Quantized, Request};
