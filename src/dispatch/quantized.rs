//! Sums of floating point that are made of integers (`FOLDBACK_QUANTIZE`): first the greatest exponent of each block is
//! folded, then integers of that scale are, as those of the program's are.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

use super::{Judged, quantize, usual_algorithm};
use crate::bindings::{FB_OP_MAX, FB_OP_SUM, FB_TYPE_U16};
use crate::call::Collective;
use crate::comm::complete;
use crate::engine::{Job, Pattern};
use crate::group::Group;
use crate::leaf::fold::F32;
use crate::leaf::quantize::{Quantizer, Room, Rounding, Width};
use crate::plan::mine;
use crate::setup::Context;
use crate::wire::Mismatch;

/// The sum, to its end; `None` if it is to be made in another way, on all ranks alike: some number is none, or is infinite.
///
/// # Safety
/// *Buffers* of the [program](crate::mpi).
pub(super) unsafe fn sum(
    judged: &Judged<'_>,
    context: &Context<'_>,
    group: &mut Group,
) -> Option<Result<(), Mismatch>> {
    let Judged { process, config, call, admitted, ends, communicator, .. } = judged;
    let element = admitted.quantized?;
    let quantize = quantize(process, call)?;
    let brings = ends.brings?;
    let bytes = brings.bytes();
    if bytes < quantize.min || bytes > config.shared.most_bytes_asked(call.collective) {
        return None;
    }
    let Some(quantizer) = Quantizer::new(element, quantize.width, quantize.block, ends.ranks)
    else {
        if ends.rank == 0 {
            warn_of(quantize.width, ends.ranks);
        }
        return None;
    };
    // A complex number is two.
    let size = if element == F32 { 4 } else { 8 };
    let lanes = bytes / size * quantize.width.bytes();
    if lanes > group.engine.place.most_bytes {
        return None;
    }
    // SAFETY: elements of the program's, contiguous as predefined types are.
    let numbers = unsafe { std::slice::from_raw_parts(brings.data.cast(), bytes) };
    let mut quantizing = communicator.quantizing();
    let room = quantizing.scratch.room(&quantizer, bytes, quantize.error_feedback);
    let Room { exponents, integers, mut carried, number } = room;
    if let Some((fed, left_out)) = &mut carried {
        quantizer.add(numbers, left_out, fed);
    }
    let brought = carried.as_ref().map_or(numbers, |(fed, _)| fed.as_slice());
    quantizer.exponents(brought, exponents);
    // Also what one rank alone gets: by shards each host receives as much as it sends, and by a fold to the root that
    // has everyone's.
    let fold = |group: &mut Group, op, element, data: *mut u8, bytes| {
        let job = Job { pattern: Pattern::FoldToAll, op, element, bytes, send: data, recv: data };
        let by = usual_algorithm(judged.config, group, &job);
        // SAFETY: memory of as many bytes, that stays until it is over.
        unsafe { complete(context, group, job, by) }
    };
    let (data, length) = (exponents.as_mut_ptr().cast(), size_of_val(exponents));
    let mut outcome = fold(group, FB_OP_MAX as u8, FB_TYPE_U16 as u8, data, length);
    if outcome.is_ok() && exponents.contains(&quantizer.special()) {
        return None;
    }
    if outcome.is_ok() {
        let rounding = match quantize.stochastic {
            None => Rounding::Nearest,
            Some(seed) => Rounding::Stochastic(seed_of([seed, ends.rank as u64, number])),
        };
        quantizer.quantize(brought, exponents, rounding, integers);
        if let Some((fed, left_out)) = carried {
            quantizer.leave_out(fed, exponents, integers);
            std::mem::swap(fed, left_out);
        }
        let element = quantize.width.element();
        outcome = fold(group, FB_OP_SUM as u8, element, integers.as_mut_ptr(), lanes);
        if let (Ok(()), Some(gets)) = (outcome, ends.gets) {
            let own = match call.collective {
                Collective::Reduce_scatter | Collective::Reduce_scatter_block => {
                    mine(ends, brings.shape.size)
                }
                _ => 0..bytes,
            };
            // SAFETY: room for as many elements; what was read from there has been.
            let into = unsafe { std::slice::from_raw_parts_mut(gets.data.cast(), own.len()) };
            quantizer.dequantize(integers, exponents, own.start / size, into);
        }
    }
    Some(outcome)
}

/// Another seed for each rank and sum, alike in every run: of words that hardly differ, words that do.
/// (The step of SplitMix64: Steele, Lea and Flood, OOPSLA 2014.)
fn seed_of(words: [u64; 3]) -> u64 {
    words.into_iter().fold(0, |seed: u64, word| {
        let mut mixed = (seed ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    })
}

/// Says once that a sum is not quantized which is asked to be.
#[cold]
fn warn_of(width: Width, ranks: usize) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        let bits = 8 * width.bytes();
        log::warn!(
            "quantization: {bits} bits cannot hold a sum of {ranks} ranks, so it is not quantized"
        );
    }
}
