//! Sums of floating point that are made of integers (`FOLDBACK_QUANTIZE`): first the greatest exponent of each block is
//! folded, then integers of that scale are summed as the program's are, by the fastest way.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::mem;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::blocking::choose;
use super::stopwatch::{Stopwatch, took};
use super::{Judged, quantize, usual_algorithm};
use crate::bindings::{FB_OP_MAX, FB_OP_SUM, FB_TYPE_U16};
use crate::call::{Collective, Elements};
use crate::codec::{SUCCESS, told};
use crate::comm::{Held, complete};
use crate::config::{Policy, Quantize};
use crate::engine::{Job, Pattern};
use crate::leaf::quantize::{Quantizer, Room, Rounding, Scratch, Width, is_alike, witness_of};
use crate::plan::mine;
use crate::route::{Step, Way};
use crate::setup::Context;
use crate::wire::Mismatch;

/// What is to be done, alike on all ranks but for the memory.
struct Plan {
    quantize: Quantize,
    quantizer: Quantizer,
    /// What this rank brings.
    brings: Elements,
    /// Bytes of a number, and of an integer.
    size: usize,
    width: usize,
    /// Numbers: a complex one is two.
    count: usize,
}

impl Plan {
    /// `None`: it is not to be quantized. `most_bytes`: of one message of the group.
    fn of(judged: &Judged<'_>, most_bytes: usize) -> Option<Self> {
        let Judged { process, config, call, admitted, ends, .. } = judged;
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
                warn_of_ranks(quantize.width, ends.ranks);
            }
            return None;
        };
        let (size, width) = (quantizer.size(), quantize.width.bytes());
        if width > size {
            if ends.rank == 0 {
                warn_of_length(quantize.width);
            }
            return None;
        }
        let plan = Self { quantize, quantizer, brings, size, width, count: bytes / size };
        Some(plan).filter(|plan| plan.count * width <= most_bytes)
    }
}

/// The sum, to its end; the group again, if it is to be made in another way, on all ranks alike: some number is none, or
/// is infinite.
///
/// # Safety
/// *Buffers* of the [program](crate::mpi).
pub(super) unsafe fn sum<'a>(
    judged: &Judged<'_>,
    context: &Context<'_>,
    held: Held<'a>,
) -> Result<c_int, Held<'a>> {
    let most_bytes = held.as_ref().map_or(0, |folding| folding.group.engine.place.most_bytes);
    let Some(plan) = Plan::of(judged, most_bytes) else { return Err(held) };
    // Not locked meanwhile: the MPI may call what the program has given it, and that ask for it.
    let mut scratch = mem::take(&mut judged.communicator.quantizing().scratch);
    // SAFETY: as demanded of this function.
    let ended = unsafe { sum_in(&mut scratch, judged, context, &plan, held) };
    judged.communicator.quantizing().scratch = scratch;
    ended
}

/// # Safety
/// As [`sum`].
unsafe fn sum_in<'a>(
    scratch: &mut Scratch,
    judged: &Judged<'_>,
    context: &Context<'_>,
    plan: &Plan,
    mut held: Held<'a>,
) -> Result<c_int, Held<'a>> {
    let Judged { call, ends, .. } = judged;
    let Some(folding) = held.as_mut() else { return Err(held) };
    let Plan { quantize, quantizer, brings, size, count, .. } = plan;
    // SAFETY: elements of the program's, contiguous as predefined types are.
    let numbers = unsafe { slice::from_raw_parts(brings.data.cast(), count * size) };
    let Room { words, integers, mut carried, number } =
        scratch.room(quantizer, numbers.len(), quantize.error_feedback);
    if let Some((fed, left_out)) = &mut carried {
        quantizer.add(numbers, left_out, fed);
    }
    let brought = carried.as_ref().map_or(numbers, |(fed, _)| fed.as_slice());
    let (own, witness) = words.split_at_mut(quantizer.blocks(*count));
    quantizer.exponents(brought, own);
    witness.copy_from_slice(&witness_of(*count));
    let (data, length) = (words.as_mut_ptr().cast(), size_of_val(words));
    let greatest = to_all(FB_OP_MAX as u8, FB_TYPE_U16 as u8, data, length);
    let by = usual_algorithm(judged.config, &folding.group, &greatest);
    // SAFETY: memory that stays until it is over.
    let outcome = unsafe { complete(context, &mut folding.group, greatest, by) };
    if outcome.is_err() {
        return Ok(judged.told(held, outcome));
    }
    let (exponents, witness) = words.split_at(quantizer.blocks(*count));
    if exponents.contains(&quantizer.special()) {
        return Err(held);
    }
    let rounding = match quantize.stochastic {
        None => Rounding::Nearest,
        Some(seed) => Rounding::Stochastic(seed_of([seed, ends.rank as u64, number])),
    };
    quantizer.quantize(brought, exponents, rounding, integers);
    if let Some((fed, left_out)) = carried {
        quantizer.leave_out(fed, exponents, integers);
        std::mem::swap(fed, left_out);
    }
    let code = add_up(judged, context, held, plan, integers, is_alike(witness));
    if let (SUCCESS, Some(gets)) = (code, ends.gets) {
        let own = match call.collective {
            Collective::Reduce_scatter | Collective::Reduce_scatter_block => {
                mine(ends, brings.shape.size)
            }
            _ => 0..numbers.len(),
        };
        // SAFETY: room for as many elements; what was read from there has been.
        let into = unsafe { slice::from_raw_parts_mut(gets.data.cast(), own.len()) };
        quantizer.dequantize(integers, exponents, own.start / *size, into);
    }
    Ok(code)
}

/// The sums of integers of all ranks, in their place; `alike`: all have as many. Returns what MPI does.
///
/// Also of what one rank alone gets: by shards each host receives as much as it sends, and by a fold to the root that
/// has everyone's.
fn add_up(
    judged: &Judged<'_>,
    context: &Context<'_>,
    mut held: Held<'_>,
    plan: &Plan,
    integers: &mut [u8],
    alike: bool,
) -> c_int {
    let Judged { process, config, call, communicator, .. } = judged;
    let Some(folding) = held.as_mut() else { return process.mpi.truncated() };
    let (data, bytes) = (integers.as_mut_ptr(), integers.len());
    // Those that are not alike fold, and are told.
    let measured =
        alike && config.shared.policy == Policy::Auto && c_int::try_from(plan.count).is_ok();
    let chosen = measured.then(|| choose(judged, folding, Collective::Allreduce, bytes));
    let begin = chosen.and_then(|(_, step)| step.timed.then(Instant::now));
    if let Some((id, Step { way: Way::Mpi, .. })) = chosen {
        drop(held);
        let stopwatch = Stopwatch::start(Arc::clone(communicator), id, begin);
        let code = process.mpi.add_up(process.mpi.abi.handle(call.comm), plan.width, integers);
        stopwatch.stop();
        return code;
    }
    let job = to_all(FB_OP_SUM as u8, plan.quantize.width.element(), data, bytes);
    let by = match chosen {
        Some((_, Step { way: Way::Fold(algorithm), .. })) => algorithm,
        _ => usual_algorithm(config, &folding.group, &job),
    };
    // SAFETY: these integers stay until it is over.
    let outcome = unsafe { complete(context, &mut folding.group, job, by) };
    let code = judged.told(held, outcome);
    if let (Some((id, step)), Some(begin)) = (chosen, begin) {
        took(communicator, id, step.way, begin);
    }
    code
}

/// The fold of everyone's data, in its place.
fn to_all(op: u8, element: u8, data: *mut u8, bytes: usize) -> Job {
    Job { pattern: Pattern::FoldToAll, op, element, bytes, send: data, recv: data }
}

impl Judged<'_> {
    /// What MPI is to return for the outcome of a fold, of which an error is told once nothing is held.
    fn told(&self, held: Held<'_>, outcome: Result<(), Mismatch>) -> c_int {
        drop(held);
        let code = told(&self.process.mpi, outcome);
        if code != SUCCESS {
            self.process.mpi.handle_error(self.process.mpi.abi.handle(self.call.comm), code);
        }
        code
    }
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

/// Says once that a sum is not quantized which is asked to be, since the ranks are too many.
#[cold]
fn warn_of_ranks(width: Width, ranks: usize) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        let bits = 8 * width.bytes();
        log::warn!(
            "quantization: {bits} bits cannot hold a sum of {ranks} ranks, so it is not quantized"
        );
    }
}

/// Likewise, since it would be for nothing.
#[cold]
fn warn_of_length(width: Width) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        let bits = 8 * width.bytes();
        log::warn!(
            "quantization: integers of {bits} bits are longer than the numbers, whose sums are left to MPI"
        );
    }
}
