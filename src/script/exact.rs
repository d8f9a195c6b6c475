//! Sums of floating point that are exact (`FOLDBACK_SUM=exact`) and too long to be brought together at once. Each step
//! brings the same elements of all ranks together, and each rank sums its share of them.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use super::Addends;
use crate::engine::{Job, Pattern, Script, Step, Ways};
use crate::leaf::arithmetic::Real;
use crate::leaf::exact;
use crate::topology::Image;
use crate::wire::Mismatch;

/// The script of an exact sum.
#[derive(Clone)]
pub struct Exact {
    addends: Addends,
    real: Real,
    /// Numbers of a step.
    step: usize,
    /// Places of the parts of all ranks, for a step of usual length and for the last one.
    images: [Arc<Image>; 2],
    /// The numbers whose parts are being brought together.
    under_way: Range<usize>,
    /// The parts of all ranks.
    came: Vec<u8>,
}

impl Exact {
    /// The script, of numbers of a format, that takes so many in a step. `image` places parts of so many bytes. `None`:
    /// a step is nothing.
    pub fn new(
        addends: Addends,
        real: Real,
        step: usize,
        mut image: impl FnMut(usize) -> Arc<Image>,
    ) -> Option<Self> {
        let (count, width) = (addends.count(), addends.width());
        let step = step.min(count);
        let last = match count.checked_rem(step)? {
            0 => step,
            last => last,
        };
        let images = [image(step * width), image(last * width)];
        Some(Self { addends, real, step, images, under_way: 0..0, came: Vec::new() })
    }

    /// The places of the parts of some numbers.
    fn image(&self, numbers: &Range<usize>) -> &Arc<Image> {
        let [usual, last] = &self.images;
        if numbers.len() == self.step { usual } else { last }
    }

    /// Sums this rank's share of some numbers, whose parts have come.
    ///
    /// # Safety
    /// *Buffers* of the [program](crate::mpi).
    unsafe fn sum(&self, numbers: &Range<usize>) {
        let Some((into, first)) = self.addends.place_of(numbers) else { return };
        // Of MPI_Exscan the first rank gets nothing.
        if self.addends.ranks() == 0 {
            return;
        }
        // SAFETY: as demanded of this function.
        let into = unsafe { &mut *into };
        let start = first * self.addends.width();
        let part = |rank| &self.came[self.image(numbers).part(rank)][start..start + into.len()];
        let parts: Vec<_> = (0..self.addends.ranks()).map(part).collect();
        exact::sum(into, &parts, self.real);
    }
}

impl Script for Exact {
    unsafe fn next(&mut self, outcome: Result<(), Mismatch>) -> Step {
        if outcome.is_err() {
            return Step::Over(outcome);
        }
        // SAFETY: as demanded of this function.
        unsafe { self.sum(&self.under_way) };
        self.under_way = self.addends.some(self.under_way.end, self.step);
        if self.under_way.is_empty() {
            return Step::Over(Ok(()));
        }
        let image = Arc::clone(self.image(&self.under_way));
        self.came.resize(image.bytes(), 0);
        let job = Job {
            pattern: Pattern::GatherToAll(image),
            bytes: self.under_way.len() * self.addends.width(),
            send: self.addends.at(&self.under_way),
            recv: self.came.as_mut_ptr(),
        };
        Step::Job(job, Ways::Usual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Elements;
    use crate::gate::judge::Parts;
    use crate::gate::{Ends, Share};
    use crate::mpi::types::Shape;
    use crate::topology::Layout;

    const COUNT: usize = 1000;

    /// Sums as a group of three ranks does, each rank's `share` of the result. Returns the results, and the bytes of
    /// jobs.
    fn sum(
        image: impl Fn(usize) -> Arc<Image>,
        share: impl Fn(usize) -> Share,
    ) -> (Vec<Vec<f64>>, Vec<usize>) {
        // In the order of ranks the 3 would be lost.
        let number = |rank: usize, _: usize| [1e300, 3.0, -1e300][rank];
        let mut data: Vec<Vec<f64>> =
            (0..3).map(|rank| (0..COUNT).map(|i| number(rank, i)).collect()).collect();
        let shape = Shape { size: 8, extent: 8, contiguous: true };
        let script = |(rank, data): (usize, &mut Vec<f64>)| {
            let data = data.as_mut_ptr().cast();
            let elements = Some(Elements { data, count: COUNT, datatype: 0, shape });
            let (brings, gets, parts) = (elements, elements, Parts::Even(0));
            let ends = Ends {
                rank,
                ranks: 3,
                root: None,
                brings,
                gets,
                parts,
                in_place: false,
                edges: None,
            };
            let addends = Addends::of(&ends, &share(rank), 8).expect("addends");
            Exact::new(addends, Real::F64, 149, &image).expect("a script")
        };
        let mut scripts: Vec<_> = data.iter_mut().enumerate().map(script).collect();
        let mut lengths = Vec::new();
        loop {
            // SAFETY: the numbers stay; the job of the step before is over.
            let steps: Vec<_> = scripts.iter_mut().map(|s| unsafe { s.next(Ok(())) }).collect();
            let job = |step: &Step| match step {
                Step::Job(job, _) => Some(job.clone()),
                _ => None,
            };
            let jobs: Vec<Job> = steps.iter().filter_map(job).collect();
            if jobs.is_empty() {
                return (data, lengths);
            }
            lengths.push(jobs[0].bytes);
            for from in 0..3 {
                for to in &jobs {
                    let Pattern::GatherToAll(image) = &to.pattern else { panic!("{to:?}") };
                    assert!(image.bytes() <= 4096);
                    // SAFETY: the numbers, and the script's memory for all parts.
                    unsafe {
                        let to = to.recv.add(image.part(from).start);
                        to.copy_from_nonoverlapping(jobs[from].send, jobs[from].bytes);
                    }
                }
            }
        }
    }

    fn by_hosts(bytes: usize) -> Arc<Image> {
        Arc::new(Image::new(&Layout::new(["a", "b", "a"]), |_| bytes))
    }

    #[test]
    fn parts_are_brought_together_one_after_the_other() {
        let all = |_| Share { elements: 0..COUNT, ranks: 3 };
        let images: [&dyn Fn(usize) -> Arc<Image>; 2] =
            [&by_hosts, &|bytes| Arc::new(Image::side_by_side(3, bytes))];
        for image in images {
            let (data, lengths) = sum(image, all);
            assert_eq!(lengths.iter().sum::<usize>(), 8 * COUNT);
            assert!(
                lengths.len() == 7 && data.iter().flatten().all(|sum| *sum == 3.0),
                "{lengths:?}"
            );
        }
    }

    #[test]
    fn each_rank_sums_its_share_alone() {
        // As in a scan: rank 0 sums its own, and rank 1 those of two.
        let (data, _) = sum(by_hosts, |rank| Share { elements: 0..COUNT, ranks: rank + 1 });
        assert!(
            [1e300, 1e300, 3.0].iter().zip(&data).all(|(sum, got)| got.iter().all(|x| x == sum))
        );
        // As in a reduction that is scattered.
        let part = |rank| Share { elements: rank * 300..(rank + 1) * 300, ranks: 3 };
        let (data, _) = sum(by_hosts, part);
        assert!(data.iter().all(|got| got[..300].iter().all(|sum| *sum == 3.0)));
        // A rank that gets nothing.
        let (data, _) = sum(by_hosts, |_| Share { elements: 0..COUNT, ranks: 0 });
        assert!(data[0].iter().all(|number| *number == 1e300));
    }
}
