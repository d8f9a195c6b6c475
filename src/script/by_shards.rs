//! Sums of floating point as they are, a part at a time. Each host folds its shards of a part.
#![allow(unsafe_code)]

use std::ops::Range;

use super::{Addends, to_all};
use crate::engine::{Script, Step, Ways};
use crate::leaf::arithmetic::{Operator, Real};
use crate::wire::Mismatch;

/// Bytes of a part.
const PART_BYTES: usize = 1 << 20;

/// The script of a sum by shards.
#[derive(Clone)]
pub struct ByShards {
    addends: Addends,
    real: Real,
    /// The numbers whose sums are being made, and the memory for them.
    under_way: Range<usize>,
    memory: Vec<u8>,
}

impl ByShards {
    /// The script, of numbers of a format.
    pub fn new(addends: Addends, real: Real) -> Self {
        Self { addends, real, under_way: 0..0, memory: Vec::new() }
    }
}

impl Script for ByShards {
    unsafe fn next(&mut self, outcome: Result<(), Mismatch>) -> Step {
        let Self { addends, real, under_way, memory } = self;
        if outcome.is_err() {
            return Step::Over(outcome);
        }
        if let Some((into, first)) = addends.place_of(under_way) {
            // SAFETY: *buffers*, as demanded of this function.
            let into = unsafe { &mut *into };
            let start = first * addends.width();
            into.copy_from_slice(&memory[start..start + into.len()]);
        }
        let numbers = addends.some(under_way.end, PART_BYTES / addends.width());
        if numbers.is_empty() {
            return Step::Over(Ok(()));
        }
        memory.clear();
        // SAFETY: *buffers*, as demanded of this function; nothing is written to them meanwhile.
        memory.extend_from_slice(unsafe { addends.brought(&numbers) });
        *under_way = numbers;
        let job = to_all(Operator::Sum, (*real).into(), memory.as_mut_ptr(), memory.len());
        Step::Job(job, Ways::Usual)
    }
}
