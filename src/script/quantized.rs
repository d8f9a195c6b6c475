//! Sums of floating point that are made of integers (`FOLDBACK_QUANTIZE`). The first step folds the greatest exponent of
//! each block. The next ones sum integers of that scale, part by part, as the program's own integers are summed.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::mem;
use std::ops::Range;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Script, Step, Ways};
use crate::bindings::{FB_OP_MAX, FB_OP_SUM, FB_TYPE_U16};
use crate::call::Collective;
use crate::codec::{SUCCESS, told};
use crate::config::Quantize;
use crate::engine::{Job, Pattern};
use crate::leaf::quantize::{Quantizer, Rounding, Scratch, Width, is_alike, witness_of};
use crate::mpi::Mpi;
use crate::plan::mine;
use crate::route::Ends;
use crate::wire::Mismatch;

/// Bytes of integers that are summed at a time: they are in a cache still when they are made numbers again. Fewer make
/// more of the cost that each sum has.
const PART_BYTES: usize = 1 << 20;

/// A sum that is asked to be quantized.
pub struct Request<'a> {
    pub collective: Collective,
    pub ends: &'a Ends,
    /// The kind of its numbers, which a [`Quantizer`] takes.
    pub element: u8,
    pub quantize: Quantize,
    /// Most bytes that a sum may have; and of one message of the group.
    pub most_asked: usize,
    pub most_bytes: usize,
}

/// The numbers of a sum: alike on all ranks but for the memory.
struct Numbers {
    quantize: Quantize,
    quantizer: Quantizer,
    rank: usize,
    /// This rank's contribution.
    brings: *const c_void,
    /// The numbers of the sums that it gets, and the place for them.
    gets: Option<(*mut c_void, Range<usize>)>,
    /// Bytes of a number, and of an integer.
    size: usize,
    width: usize,
    /// Numbers: a complex one is two.
    count: usize,
}

/// The script of a quantized sum.
pub struct Quantized {
    numbers: Numbers,
    scratch: Scratch,
    stage: Stage,
}

/// The job that is under way.
enum Stage {
    /// None, yet.
    Begin,
    /// The greatest exponents.
    Exponents,
    /// The integers of these numbers.
    Part(Range<usize>),
    /// A sum of as many bytes as all integers have, which finds that ranks bring unlike numbers. It is made in this memory.
    Unlike { _memory: Vec<u8> },
}

impl Numbers {
    /// `None`: they are not to be quantized.
    fn of(request: &Request<'_>) -> Option<Self> {
        let Request { ends, quantize, .. } = request;
        let brings = ends.brings?;
        let bytes = brings.bytes();
        if bytes < quantize.min || bytes > request.most_asked {
            return None;
        }
        let quantizer = Quantizer::new(request.element, quantize.width, quantize.block, ends.ranks);
        let Some(quantizer) = quantizer else {
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
        let gets = ends.gets.map(|gets| match request.collective {
            Collective::Reduce_scatter | Collective::Reduce_scatter_block => {
                let own = mine(ends, brings.shape.size);
                (gets.data, own.start / size..own.end / size)
            }
            _ => (gets.data, 0..count),
        });
        let (quantize, rank, brings) = (*quantize, ends.rank, brings.data.cast_const());
        let numbers = Self { quantize, quantizer, rank, brings, gets, size, width, count };
        Some(numbers).filter(|numbers| numbers.bytes() <= request.most_bytes)
    }

    /// Bytes of all integers.
    fn bytes(&self) -> usize {
        self.count * self.width
    }

    /// The numbers that are summed at a time, in whole blocks, from one on.
    fn part(&self, first: usize) -> Range<usize> {
        first..self.count.min(first + self.most_of_part())
    }

    fn most_of_part(&self) -> usize {
        let block = self.quantize.block;
        (PART_BYTES / self.width / block).max(1) * block
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

    fn rounding(&self, number: u64, part: &Range<usize>) -> Rounding {
        match self.quantize.stochastic {
            None => Rounding::Nearest,
            Some(seed) => Rounding::drawn_for([seed, self.rank as u64, number, part.start as u64]),
        }
    }
}

impl Quantized {
    /// The script; `None`: the sum is not to be quantized, alike on all ranks. `scratch` lends its memory until
    /// [`Quantized::end`].
    pub fn new(request: &Request<'_>, scratch: impl FnOnce() -> Scratch) -> Option<Self> {
        let numbers = Numbers::of(request)?;
        let mut scratch = scratch();
        let (bytes, carry) = (numbers.count * numbers.size, numbers.quantize.error_feedback);
        scratch.begin(&numbers.quantizer, bytes, numbers.most_of_part(), carry);
        Some(Self { numbers, scratch, stage: Stage::Begin })
    }

    /// The memory that it was lent.
    pub fn end(self) -> Scratch {
        self.scratch
    }

    /// # Safety
    /// As [`Script::next`].
    unsafe fn exponents(&mut self) -> Step {
        let Numbers { quantizer, size, count, .. } = &self.numbers;
        // SAFETY: nothing is written there before all ranks have what they need of it.
        let numbers = unsafe { self.numbers.brought(0..count * size) };
        let room = self.scratch.room();
        let brought = match room.carried {
            Some((fed, left_out)) => {
                quantizer.add(numbers, left_out, fed);
                fed.as_slice()
            }
            None => numbers,
        };
        let (own, witness) = room.words.split_at_mut(quantizer.blocks(*count));
        quantizer.exponents(brought, own);
        witness.copy_from_slice(&witness_of(*count));
        let (data, length) = (room.words.as_mut_ptr().cast(), size_of_val(room.words));
        self.stage = Stage::Exponents;
        Step::Job(to_all(FB_OP_MAX as u8, FB_TYPE_U16 as u8, data, length), Ways::Usual)
    }

    /// # Safety
    /// As [`Script::next`].
    unsafe fn after_exponents(&mut self) -> Step {
        let Numbers { quantizer, count, .. } = &self.numbers;
        let (exponents, witness) = self.scratch.room().words.split_at(quantizer.blocks(*count));
        if exponents.contains(&quantizer.special()) {
            return Step::Otherwise;
        }
        if !is_alike(witness) {
            let mut bytes = vec![0; self.numbers.bytes()];
            let job = self.sum(bytes.as_mut_ptr(), bytes.len());
            self.stage = Stage::Unlike { _memory: bytes };
            return Step::Job(job, Ways::Usual);
        }
        // SAFETY: as demanded of this function.
        unsafe { self.part(0) }
    }

    /// The sum of the next part.
    ///
    /// # Safety
    /// As [`Script::next`].
    unsafe fn part(&mut self, first: usize) -> Step {
        let part = self.numbers.part(first);
        if part.is_empty() {
            self.scratch.carry();
            return Step::Over(SUCCESS);
        }
        let Numbers { quantizer, quantize, size, width, .. } = &self.numbers;
        let room = self.scratch.room();
        let exponents = &room.words[part.start / quantize.block..];
        let exponents = &exponents[..quantizer.blocks(part.len())];
        let integers = &mut room.integers[..part.len() * width];
        let rounding = self.numbers.rounding(room.number, &part);
        let bytes = part.start * size..part.end * size;
        if let Some((fed, _)) = room.carried {
            let fed = &mut fed[bytes];
            quantizer.quantize(fed, exponents, rounding, integers);
            quantizer.leave_out(fed, exponents, integers);
        } else {
            // SAFETY: the slice is gone before sums are written, which in place lie before all that is still to be read.
            let brought = unsafe { self.numbers.brought(bytes) };
            quantizer.quantize(brought, exponents, rounding, integers);
        }
        let (data, length) = (integers.as_mut_ptr(), integers.len());
        let job = self.sum(data, length);
        self.stage = Stage::Part(part);
        // Also of what one rank alone gets: by shards each host receives as much as it sends, and by a fold to the root that
        // has everyone's.
        Step::Job(job, Ways::Compared { width: self.numbers.width })
    }

    /// # Safety
    /// As [`Script::next`].
    unsafe fn after_part(&mut self, part: &Range<usize>) -> Step {
        let Numbers { quantizer, quantize, width, .. } = &self.numbers;
        let room = self.scratch.room();
        let exponents = &room.words[part.start / quantize.block..];
        let exponents = &exponents[..quantizer.blocks(part.len())];
        // SAFETY: as demanded of this function.
        unsafe {
            self.numbers.put(part, &room.integers[..part.len() * width], exponents);
            self.part(part.end)
        }
    }

    /// The sum of integers of all ranks, in their place.
    fn sum(&self, data: *mut u8, bytes: usize) -> Job {
        to_all(FB_OP_SUM as u8, self.numbers.quantize.width.element(), data, bytes)
    }
}

impl Script for Quantized {
    unsafe fn next(&mut self, mpi: &Mpi, outcome: Result<(), Mismatch>) -> Step {
        let stage = mem::replace(&mut self.stage, Stage::Begin);
        if !matches!(stage, Stage::Begin) && outcome.is_err() {
            return Step::Over(told(mpi, outcome));
        }
        // SAFETY: as demanded of this function.
        unsafe {
            match stage {
                Stage::Begin => self.exponents(),
                Stage::Exponents => self.after_exponents(),
                Stage::Part(part) => self.after_part(&part),
                Stage::Unlike { .. } => Step::Over(SUCCESS),
            }
        }
    }
}

/// The fold of everyone's data, in its place.
fn to_all(op: u8, element: u8, data: *mut u8, bytes: usize) -> Job {
    Job { pattern: Pattern::FoldToAll, op, element, bytes, send: data, recv: data }
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

/// Says once that sums are left to MPI whose integers would be longer than the numbers.
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
