//! Sums of floating point that are made of integers (`FOLDBACK_QUANTIZE`). The first step folds the greatest exponent
//! of each block. The next ones sum integers of that scale, part by part, as the program's own integers are summed.
#![allow(unsafe_code)]

use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Addends, to_all};
use crate::config::Quantize;
use crate::engine::{Job, Script, Step, Ways};
use crate::gate::{Ends, Share};
use crate::leaf::arithmetic::{Element, Operator};
use crate::leaf::quantize::{
    Lender, Lent, Number, Quantizer, Rounding, Width, is_alike, witness_of,
};
use crate::wire::Mismatch;

/// Bytes of integers that are summed at a time: they are in a cache still when they are made numbers again. Fewer make
/// more of the cost that each sum has.
const PART_BYTES: usize = 1 << 20;

/// A sum that is asked to be quantized.
pub struct Request<'a> {
    pub ends: &'a Ends,
    /// The part of the sums that this rank gets.
    pub share: Share,
    pub element: Number,
    pub quantize: Quantize,
    /// Most bytes that a sum may have; and of one message of the group.
    pub max_bytes_asked: usize,
    pub max_bytes: usize,
}

/// The numbers of a sum that is quantized.
#[derive(Clone)]
pub struct Numbers {
    addends: Addends,
    quantize: Quantize,
    quantizer: Quantizer,
    rank: usize,
    /// Bytes of an integer.
    width: usize,
}

/// The script of a quantized sum.
pub struct Quantized {
    numbers: Numbers,
    /// The sum of numbers with an infinity or a NaN, which integers cannot have. `None`: the call goes another way
    /// then.
    otherwise: Option<Box<dyn Script>>,
    lender: Lender,
    /// The lender's memory, from the first step on.
    lent: Option<Lent>,
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
    /// A job of the other script, which sums numbers that are not finite. The memory for integers is not needed.
    NotFinite,
    /// A sum of as many bytes as all integers have, which finds that ranks bring unlike numbers. It is made in this
    /// memory.
    Unlike { _memory: Vec<u8> },
}

impl Numbers {
    /// `None`: they are not to be quantized, alike on all ranks.
    pub fn of(request: &Request<'_>) -> Option<Self> {
        let Request { ends, quantize, .. } = request;
        let brings = ends.brings?;
        let bytes = brings.bytes();
        if bytes < quantize.min || bytes > request.max_bytes_asked {
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
        let addends = Addends::of(ends, &request.share, size)?;
        let numbers = Self { addends, quantize: *quantize, quantizer, rank: ends.rank, width };
        Some(numbers).filter(|numbers| numbers.bytes() <= request.max_bytes)
    }

    /// Bytes of all integers.
    fn bytes(&self) -> usize {
        self.addends.count() * self.width
    }

    /// The numbers that are summed at a time, in whole blocks, from one on.
    fn part(&self, first: usize) -> Range<usize> {
        self.addends.some(first, self.most_of_part())
    }

    fn most_of_part(&self) -> usize {
        let block = self.quantize.block;
        (PART_BYTES / self.width / block).max(1) * block
    }

    fn rounding(&self, number: u64, part: &Range<usize>) -> Rounding {
        match self.quantize.stochastic {
            None => Rounding::Nearest,
            Some(seed) => Rounding::drawn_for([seed, self.rank as u64, number, part.start as u64]),
        }
    }
}

impl Quantized {
    /// The script. It borrows the lender's memory from its first step to its end.
    pub fn new(numbers: Numbers, otherwise: Option<Box<dyn Script>>, lender: Lender) -> Self {
        Self { numbers, otherwise, lender, lent: None, stage: Stage::Begin }
    }

    /// # Safety
    /// As [`Script::next`].
    unsafe fn exponents(&mut self) -> Step {
        let numbers = &self.numbers;
        let Numbers { addends, quantizer, .. } = numbers;
        let count = addends.count();
        let lent = self.lent.insert(self.lender.lend());
        let carry = numbers.quantize.error_feedback;
        lent.begin(quantizer, count * addends.width(), numbers.most_of_part(), carry);
        // SAFETY: nothing is written there before all ranks have what they need of it.
        let own = unsafe { addends.brought(&(0..count)) };
        let room = lent.room();
        let brought = match room.carried {
            Some((fed, left_out)) => {
                quantizer.add(own, left_out, fed);
                fed.as_slice()
            }
            None => own,
        };
        let (exponents, witness) = room.words.split_at_mut(quantizer.blocks(count));
        quantizer.exponents(brought, exponents);
        witness.copy_from_slice(&witness_of(count));
        let (data, length) = (room.words.as_mut_ptr().cast(), size_of_val(room.words));
        self.stage = Stage::Exponents;
        Step::Job(to_all(Operator::Max, Element::U16, data, length), Ways::Usual)
    }

    /// # Safety
    /// As [`Script::next`].
    unsafe fn after_exponents(&mut self, lent: &mut Lent) -> Step {
        let Numbers { addends, quantizer, .. } = &self.numbers;
        let blocks = quantizer.blocks(addends.count());
        let (exponents, witness) = lent.room().words.split_at(blocks);
        if !is_alike(witness) {
            let mut bytes = vec![0; self.numbers.bytes()];
            let job = self.sum(bytes.as_mut_ptr(), bytes.len());
            self.stage = Stage::Unlike { _memory: bytes };
            return Step::Job(job, Ways::Usual);
        }
        if exponents.contains(&quantizer.special()) {
            self.stage = Stage::NotFinite;
            return match &mut self.otherwise {
                // SAFETY: as demanded of this function.
                Some(script) => unsafe { script.next(Ok(())) },
                None => Step::Otherwise,
            };
        }
        // SAFETY: as demanded of this function.
        unsafe { self.part(0, lent) }
    }

    /// The sum of the next part.
    ///
    /// # Safety
    /// As [`Script::next`].
    unsafe fn part(&mut self, first: usize, lent: &mut Lent) -> Step {
        let part = self.numbers.part(first);
        if part.is_empty() {
            lent.carry();
            return Step::Over(Ok(()));
        }
        let Numbers { addends, quantizer, quantize, width, .. } = &self.numbers;
        let room = lent.room();
        let exponents = &room.words[part.start / quantize.block..];
        let exponents = &exponents[..quantizer.blocks(part.len())];
        let integers = &mut room.integers[..part.len() * width];
        let rounding = self.numbers.rounding(room.number, &part);
        if let Some((fed, _)) = room.carried {
            let fed = &mut fed[part.start * addends.width()..part.end * addends.width()];
            quantizer.quantize(fed, exponents, rounding, integers);
            quantizer.leave_out(fed, exponents, integers);
        } else {
            // SAFETY: *buffers*, as demanded of this function; the slice is gone before sums are written.
            let brought = unsafe { addends.brought(&part) };
            quantizer.quantize(brought, exponents, rounding, integers);
        }
        let (data, length) = (integers.as_mut_ptr(), integers.len());
        let job = self.sum(data, length);
        self.stage = Stage::Part(part);
        // Also of what one rank alone gets: by shards each host receives as much as it sends, and by a fold to the root
        // that has everyone's.
        Step::Job(job, Ways::Compared { width: self.numbers.width })
    }

    /// # Safety
    /// As [`Script::next`].
    unsafe fn after_part(&mut self, part: &Range<usize>, lent: &mut Lent) -> Step {
        let Numbers { addends, quantizer, quantize, width, .. } = &self.numbers;
        let room = lent.room();
        let exponents = &room.words[part.start / quantize.block..];
        let exponents = &exponents[..quantizer.blocks(part.len())];
        let integers = &room.integers[..part.len() * width];
        // SAFETY: as demanded of this function.
        unsafe {
            if let Some((into, first)) = addends.place_of(part) {
                quantizer.dequantize(integers, exponents, first, &mut *into);
            }
            self.part(part.end, lent)
        }
    }

    /// The sum of integers of all ranks, in their place.
    fn sum(&self, data: *mut u8, bytes: usize) -> Job {
        to_all(Operator::Sum, self.numbers.quantize.width.element(), data, bytes)
    }

    /// # Safety
    /// As [`Script::next`].
    unsafe fn after(&mut self, stage: Stage, lent: &mut Lent) -> Step {
        // SAFETY: as demanded of this function.
        unsafe {
            match stage {
                Stage::Exponents => self.after_exponents(lent),
                Stage::Part(part) => self.after_part(&part, lent),
                Stage::Begin | Stage::NotFinite | Stage::Unlike { .. } => Step::Over(Ok(())),
            }
        }
    }
}

impl Script for Quantized {
    unsafe fn next(&mut self, outcome: Result<(), Mismatch>) -> Step {
        let stage = mem::replace(&mut self.stage, Stage::Begin);
        if let (Stage::NotFinite, Some(script)) = (&stage, &mut self.otherwise) {
            self.stage = stage;
            // SAFETY: as demanded of this function.
            return unsafe { script.next(outcome) };
        }
        let Some(mut lent) = self.lent.take() else {
            // SAFETY: as demanded of this function.
            return unsafe { self.exponents() };
        };
        if outcome.is_err() {
            return Step::Over(outcome);
        }
        // SAFETY: as demanded of this function.
        let step = unsafe { self.after(stage, &mut lent) };
        self.lent = Some(lent).filter(|_| matches!(step, Step::Job(..)));
        step
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

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;
    use crate::call::Elements;
    use crate::engine::Pattern;
    use crate::gate::judge::Parts;
    use crate::leaf::arithmetic::Real;
    use crate::leaf::fold::fold;
    use crate::mpi::types::Shape;
    use crate::script::ByShards;

    const COUNT: usize = 600_000;

    fn quantize() -> Quantize {
        let mut quantize = "int16,min=0".parse::<Quantize>().expect("a way to quantize");
        quantize.error_feedback = true;
        quantize
    }

    /// An Allreduce of these numbers in place, on a rank of so many.
    fn numbers(rank: usize, ranks: usize, data: &mut [f32]) -> Numbers {
        let shape = Shape { size: 4, extent: 4, contiguous: true };
        let (data, count) = (data.as_mut_ptr().cast(), data.len());
        let elements = Some(Elements { data, count, datatype: 0, shape });
        let parts = Parts::Even(0);
        let ends = Ends {
            rank,
            ranks,
            root: None,
            brings: elements,
            gets: elements,
            parts,
            in_place: false,
            edges: None,
        };
        let most = usize::MAX;
        let request = Request {
            ends: &ends,
            share: Share { elements: 0..count, ranks },
            element: Number::F32,
            quantize: quantize(),
            max_bytes_asked: most,
            max_bytes: most,
        };
        Numbers::of(&request).expect("numbers that can be quantized")
    }

    /// The script of a call that blocks, or stays in its group.
    fn script(numbers: Numbers, stays: bool, lender: Lender) -> Quantized {
        let by_shards = ByShards::new(numbers.addends.clone(), Real::F32);
        let otherwise = stays.then(|| Box::new(by_shards) as Box<dyn Script>);
        Quantized::new(numbers, otherwise, lender)
    }

    /// Runs the scripts of all ranks, step by step, as a group without a network does. Returns the bytes of each job,
    /// and whether the call goes another way.
    fn run(scripts: &mut [Quantized]) -> (Vec<usize>, bool) {
        let mut lengths = Vec::new();
        loop {
            // SAFETY: the numbers are the caller's, and stay; the job of the step before is over.
            let steps: Vec<_> = scripts.iter_mut().map(|s| unsafe { s.next(Ok(())) }).collect();
            let jobs: Vec<&Job> = steps
                .iter()
                .filter_map(|step| match step {
                    Step::Job(job, _) => Some(job),
                    _ => None,
                })
                .collect();
            if jobs.is_empty() {
                return (lengths, matches!(steps[0], Step::Otherwise));
            }
            assert_eq!(jobs.len(), scripts.len(), "ranks take different steps");
            let bytes = jobs[0].bytes;
            assert!(jobs.iter().all(|job| job.bytes == bytes));
            lengths.push(bytes);
            // SAFETY: the scripts keep the memory of their jobs.
            unsafe {
                let part = |job: &Job| slice::from_raw_parts(job.send, bytes).to_vec();
                let mut all = part(jobs[0]);
                for job in &jobs[1..] {
                    let Pattern::FoldToAll(arithmetic) = job.pattern else { panic!("{job:?}") };
                    fold(&mut all, &part(job), arithmetic);
                }
                for job in jobs {
                    slice::from_raw_parts_mut(job.recv, bytes).copy_from_slice(&all);
                }
            }
        }
    }

    /// Sums as a group of so many ranks does. Returns the results, and what [`run`] does.
    fn sum(
        ranks: usize,
        stays: bool,
        lenders: &[Lender],
        number: impl Fn(usize, usize) -> f32,
    ) -> (Vec<Vec<f32>>, Vec<usize>, bool) {
        let mut data: Vec<Vec<f32>> =
            (0..ranks).map(|rank| (0..COUNT).map(|i| number(rank, i)).collect()).collect();
        let begin = |(rank, data): (usize, &mut Vec<f32>)| {
            script(numbers(rank, ranks, data), stays, lenders[rank].clone())
        };
        let mut scripts: Vec<_> = data.iter_mut().enumerate().map(begin).collect();
        let (lengths, otherwise) = run(&mut scripts);
        (data, lengths, otherwise)
    }

    fn lenders() -> Vec<Lender> {
        (0..3).map(|_| Lender::default()).collect()
    }

    #[test]
    fn a_sum_is_exponents_and_then_parts() {
        let number = |rank: usize, i: usize| (i % 1000) as f32 / 7.0 + rank as f32;
        let (data, lengths, otherwise) = sum(3, true, &lenders(), number);
        let exponents = 2 * (COUNT.div_ceil(quantize().block) + 4);
        assert_eq!(lengths, [exponents, PART_BYTES, 2 * COUNT - PART_BYTES]);
        assert!(!otherwise && data[0] == data[1] && data[0] == data[2]);
        for (i, sum) in data[0].iter().enumerate() {
            let exact: f32 = (0..3).map(|rank| number(rank, i)).sum();
            // The unit is 2^-5, of numbers below 2^8 and 3 ranks.
            assert!((sum - exact).abs() <= 3.0 / 64.0 + 3e-5, "{sum} for {exact}");
        }
    }

    #[test]
    fn numbers_that_are_not_finite_are_summed_as_they_are() {
        let number = |rank: usize, i: usize| match (i, rank) {
            (599_999, 1) => f32::INFINITY,
            (7, _) => f32::NAN,
            _ => (i % 1000) as f32,
        };
        let lenders = lenders();
        let (data, lengths, otherwise) = sum(3, true, &lenders, number);
        let parts = [PART_BYTES, PART_BYTES, 4 * COUNT - 2 * PART_BYTES];
        assert!(!otherwise && lengths[1..] == parts, "{lengths:?}");
        for data in data {
            assert!(data[7].is_nan() && data[599_999] == f32::INFINITY);
            assert!((8..599_999).all(|i| data[i] == 3.0 * (i % 1000) as f32));
        }
        // A call that blocks goes another way, and has changed nothing.
        let (data, lengths, otherwise) = sum(3, false, &lenders, number);
        assert!(otherwise && lengths.len() == 1);
        assert!((8..599_999).all(|i| data[1][i] == (i % 1000) as f32));
    }

    /// A step of a fourth of a unit, over and over: no rounding error is lost with the memory that scripts borrow.
    #[test]
    fn errors_are_carried_from_script_to_script() {
        let (lenders, steps) = (lenders(), 64);
        let step = |_: usize, i: usize| if i.is_multiple_of(256) { 1.0 } else { 1e-4 };
        let mut all = 0.0;
        for _ in 0..steps {
            let (data, ..) = sum(2, true, &lenders, step);
            all += f64::from(data[0][1]);
        }
        let exact = 2.0 * 1e-4 * f64::from(steps);
        // One sum is off by two units of 2^-13 at most, and so are all.
        assert!((all - exact).abs() <= 2.0 / 8192.0, "{all} for {exact}");
    }

    #[test]
    fn ranks_that_bring_unlike_numbers_find_out() {
        let (mut one, mut other) = (vec![1.0; 300], vec![1.0; 301]);
        let data = [&mut one, &mut other].into_iter().enumerate();
        let begin = |(rank, data): (usize, &mut Vec<f32>)| {
            script(numbers(rank, 2, data), true, Lender::default())
        };
        let mut scripts: Vec<_> = data.map(begin).collect();
        let lengths = |scripts: &mut [Quantized]| {
            scripts
                .iter_mut()
                .map(|script| {
                    // SAFETY: the numbers stay; the job before is over.
                    match unsafe { script.next(Ok(())) } {
                        Step::Job(job, _) => (job.bytes, job.recv.cast::<u16>()),
                        _ => panic!("the call is over"),
                    }
                })
                .collect::<Vec<_>>()
        };
        let words = lengths(&mut scripts);
        assert_eq!(words[0].0, words[1].0, "as many blocks");
        for at in 0..words[0].0 / 2 {
            // SAFETY: the scripts' words.
            unsafe {
                let greatest = (*words[0].1.add(at)).max(*words[1].1.add(at));
                words.iter().for_each(|(_, words)| *words.add(at) = greatest);
            }
        }
        // The sums that follow are of different lengths, which the group finds.
        let sums: Vec<_> = lengths(&mut scripts).into_iter().map(|(bytes, _)| bytes).collect();
        assert_eq!(sums, [600, 602]);
        let mismatch = Mismatch::OutOfStep;
        // SAFETY: as above.
        let step = unsafe { scripts[0].next(Err(mismatch)) };
        assert!(matches!(step, Step::Over(Err(Mismatch::OutOfStep))));
    }
}
