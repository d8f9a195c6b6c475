//! The accumulators of `bpf/exact.h`.
#![allow(unsafe_code)]

use foldback::bindings as b;

use super::reference::Format;

#[derive(Clone)]
pub enum Accumulator {
    Of64(Box<b::fb_exact64>),
    Of32(Box<b::fb_exact32>),
}

use Accumulator::{Of32, Of64};

/// Calls one of two functions of C with an accumulator that is valid.
macro_rules! call {
    ($on:expr, $of_64:ident, $of_32:ident $(, $argument:expr)?) => {
        match $on {
            // SAFETY: an accumulator, and a number.
            Of64(sum) => unsafe { b::$of_64(&raw mut **sum $(, $argument)?).into() },
            // SAFETY: as above.
            Of32(sum) => unsafe { b::$of_32(&raw mut **sum $(, $argument as u32)?).into() },
        }
    };
}

impl Accumulator {
    pub fn new(format: Format) -> Self {
        // All zeroes is an empty one.
        if format.width() == 8 {
            Of64(Box::new(b::fb_exact64 {
                head: b::fb_exact_head::default(),
                chunk: [0; b::FB_EXACT64_CHUNKS as usize],
            }))
        } else {
            Of32(Box::default())
        }
    }

    pub fn add(&mut self, bits: u64) {
        call!(self, fb_native_exact64_add, fb_native_exact32_add, bits)
    }

    pub fn carry(&mut self) {
        call!(self, fb_native_exact64_carry, fb_native_exact32_carry)
    }

    pub fn round(&mut self) -> u64 {
        call!(self, fb_native_exact64_round, fb_native_exact32_round)
    }

    pub fn clear(&mut self) {
        call!(self, fb_native_exact64_clear, fb_native_exact32_clear)
    }

    pub fn merge(&mut self, from: &Self) {
        match (self, from) {
            // SAFETY: two accumulators.
            (Of64(sum), Of64(from)) => unsafe {
                b::fb_native_exact64_merge(&raw mut **sum, &raw const **from);
            },
            // SAFETY: as above.
            (Of32(sum), Of32(from)) => unsafe {
                b::fb_native_exact32_merge(&raw mut **sum, &raw const **from);
            },
            _ => panic!("of one format"),
        }
    }

    pub fn is_empty(&self) -> bool {
        let empty = |head: &b::fb_exact_head, chunks: &[i64]| {
            (head.end, head.depth, head.seen) == (0, 0, 0) && chunks.iter().all(|chunk| *chunk == 0)
        };
        match self {
            Of64(sum) => empty(&sum.head, &sum.chunk),
            Of32(sum) => empty(&sum.head, &sum.chunk),
        }
    }
}
