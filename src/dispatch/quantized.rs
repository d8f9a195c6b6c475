//! Sums of floating point that are made of integers (`FOLDBACK_QUANTIZE`): first the greatest exponent of each block is
//! folded, then integers of that scale are summed as the program's are, by the fastest way.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::mem;
use std::ops::Range;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::blocking::choose;
use super::stopwatch::{Stopwatch, took};
use super::{Judged, quantize, usual_algorithm};
use crate::bindings::{FB_OP_MAX, FB_OP_SUM, FB_TYPE_U16};
use crate::call::Collective;
use crate::codec::{SUCCESS, told};
use crate::comm::{Held, complete};
use crate::config::{Policy, Quantize};
use crate::engine::{Job, Pattern};
use crate::leaf::quantize::{Quantizer, Room, Rounding, Width, is_alike, witness_of};
use crate::plan::mine;
use crate::route::{Step, Way};
use crate::setup::Context;
use crate::wire::Mismatch;

/// Bytes of integers that are summed at a time: they are in a cache still when they are made numbers again. Fewer make
/// more of what each sum takes.
const PART_BYTES: usize = 1 << 20;

/// What is to be done, alike on all ranks but for the memory.
struct Plan {
    quantize: Quantize,
    quantizer: Quantizer,
    /// What this rank brings.
    brings: *const c_void,
    /// Which numbers of the sums it gets, and where.
    gets: Option<(*mut c_void, Range<usize>)>,
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
        let count = bytes / size;
        let gets = ends.gets.map(|gets| match call.collective {
            Collective::Reduce_scatter | Collective::Reduce_scatter_block => {
                let own = mine(ends, brings.shape.size);
                (gets.data, own.start / size..own.end / size)
            }
            _ => (gets.data, 0..count),
        });
        let plan = Self { quantize, quantizer, brings: brings.data, gets, size, width, count };
        Some(plan).filter(|plan| plan.bytes() <= most_bytes)
    }

    /// Bytes of all integers.
    fn bytes(&self) -> usize {
        self.count * self.width
    }

    /// How many numbers are summed at a time, in whole blocks.
    fn part(&self) -> usize {
        let block = self.quantize.block;
        (PART_BYTES / self.width / block).max(1) * block
    }

    /// Which ones.
    fn parts(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (count, part) = (self.count, self.part());
        (0..count).step_by(part).map(move |first| first..count.min(first + part))
    }

    /// Some of the bytes that this rank brings.
    ///
    /// # Safety
    /// Nobody writes there as long as the slice is used.
    unsafe fn brought(&self, bytes: Range<usize>) -> &[u8] {
        // SAFETY: elements of the program's, contiguous as predefined types are.
        unsafe { slice::from_raw_parts(self.brings.cast::<u8>().add(bytes.start), bytes.len()) }
    }

    /// The sums of a part, as far as this rank gets them.
    ///
    /// # Safety
    /// Nobody else uses that memory.
    unsafe fn put(&self, part: &Range<usize>, integers: &[u8], exponents: &[u16]) {
        let Some((data, gotten)) = &self.gets else { return };
        let (start, end) = (gotten.start.max(part.start), gotten.end.min(part.end));
        if start < end {
            // SAFETY: room of the program's for all that it gets.
            let into = unsafe {
                let data = data.cast::<u8>().add((start - gotten.start) * self.size);
                slice::from_raw_parts_mut(data, (end - start) * self.size)
            };
            self.quantizer.dequantize(integers, exponents, start - part.start, into);
        }
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
    let carry = plan.quantize.error_feedback;
    let room = scratch.room(&plan.quantizer, plan.count * plan.size, plan.part(), carry);
    // SAFETY: as demanded of this function.
    let ended = unsafe { sum_in(room, judged, context, &plan, held) };
    judged.communicator.quantizing().scratch = scratch;
    ended
}

/// # Safety
/// As [`sum`].
unsafe fn sum_in<'a>(
    room: Room<'_>,
    judged: &Judged<'_>,
    context: &Context<'_>,
    plan: &Plan,
    mut held: Held<'a>,
) -> Result<c_int, Held<'a>> {
    let Some(folding) = held.as_mut() else { return Err(held) };
    let Plan { quantizer, size, count, .. } = plan;
    let Room { words, integers, mut carried, number } = room;
    {
        // SAFETY: nothing is written there before all ranks have what they need of it.
        let numbers = unsafe { plan.brought(0..count * size) };
        if let Some((fed, left_out)) = &mut carried {
            quantizer.add(numbers, left_out, fed);
        }
        let brought = carried.as_ref().map_or(numbers, |(fed, _)| fed.as_slice());
        let (own, witness) = words.split_at_mut(quantizer.blocks(*count));
        quantizer.exponents(brought, own);
        witness.copy_from_slice(&witness_of(*count));
    }
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
    if !is_alike(witness) {
        return Ok(tell(judged, context, held, plan));
    }
    drop(held);
    for part in plan.parts() {
        let exponents = &exponents[part.start / plan.quantize.block..];
        let exponents = &exponents[..quantizer.blocks(part.len())];
        let integers = &mut integers[..part.len() * plan.width];
        let rounding = match plan.quantize.stochastic {
            None => Rounding::Nearest,
            Some(seed) => {
                Rounding::drawn_for([seed, judged.ends.rank as u64, number, part.start as u64])
            }
        };
        let bytes = part.start * size..part.end * size;
        if let Some((fed, _)) = &mut carried {
            let fed = &mut fed[bytes];
            quantizer.quantize(fed, exponents, rounding, integers);
            quantizer.leave_out(fed, exponents, integers);
        } else {
            // SAFETY: the slice is gone before sums are written, which in place lie before what is still to be read.
            quantizer.quantize(unsafe { plan.brought(bytes) }, exponents, rounding, integers);
        }
        let code = add_up(judged, context, plan, integers);
        if code != SUCCESS {
            return Ok(code);
        }
        // SAFETY: as demanded of this function.
        unsafe { plan.put(&part, integers, exponents) };
    }
    if let Some((fed, left_out)) = carried {
        mem::swap(fed, left_out);
    }
    Ok(SUCCESS)
}

/// The sums of integers of all ranks, in their place. Returns what MPI does.
///
/// Also of what one rank alone gets: by shards each host receives as much as it sends, and by a fold to the root that
/// has everyone's.
fn add_up(judged: &Judged<'_>, context: &Context<'_>, plan: &Plan, integers: &mut [u8]) -> c_int {
    let Judged { process, config, call, communicator, .. } = judged;
    let mut held = communicator.folding();
    let Some(folding) = held.as_mut() else { return process.mpi.truncated() };
    let (data, bytes) = (integers.as_mut_ptr(), integers.len());
    let measured = config.shared.policy == Policy::Auto;
    let chosen = measured.then(|| choose(judged, folding, Collective::Allreduce, bytes));
    let begin = chosen.and_then(|(_, step)| step.timed.then(Instant::now));
    if let Some((id, Step { way: Way::Mpi, .. })) = chosen {
        drop(held);
        let stopwatch = Stopwatch::start(Arc::clone(communicator), id, begin, call);
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

/// Tells what ranks do wrong that do not bring as many numbers: a fold of as many bytes as all integers have finds it.
fn tell(judged: &Judged<'_>, context: &Context<'_>, mut held: Held<'_>, plan: &Plan) -> c_int {
    let Some(folding) = held.as_mut() else { return judged.process.mpi.truncated() };
    let mut bytes = vec![0; plan.bytes()];
    let element = plan.quantize.width.element();
    let job = to_all(FB_OP_SUM as u8, element, bytes.as_mut_ptr(), bytes.len());
    let by = usual_algorithm(judged.config, &folding.group, &job);
    // SAFETY: these bytes stay until it is over.
    let outcome = unsafe { complete(context, &mut folding.group, job, by) };
    judged.told(held, outcome)
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
