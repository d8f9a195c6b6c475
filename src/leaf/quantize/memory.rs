//! Memory that the sums of a communicator borrow, one after the other.

use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Scratch;

/// The owner of a [`Scratch`]. It is locked only to lend: the program may ask for it while a sum is under way.
#[derive(Clone, Default)]
pub struct Lender(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    /// Empty while it is lent.
    scratch: Scratch,
    /// Rounding errors are to be forgotten that lent memory has.
    forgets: bool,
}

/// Memory of a lender, which gets it back when this is dropped.
pub struct Lent {
    scratch: Scratch,
    lender: Lender,
}

impl Lender {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lends the memory. Another that asks meanwhile gets new memory, which is not kept.
    pub fn lend(&self) -> Lent {
        let mut kept = self.kept();
        kept.forgets = false;
        Lent { scratch: mem::take(&mut kept.scratch), lender: self.clone() }
    }

    /// Forgets the rounding errors of earlier sums.
    pub fn forget(&self) {
        let mut kept = self.kept();
        kept.forgets = true;
        kept.scratch.forget();
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut kept = self.lender.kept();
        kept.scratch = mem::take(&mut self.scratch);
        if kept.forgets {
            kept.scratch.forget();
        }
    }
}

impl Deref for Lent {
    type Target = Scratch;

    fn deref(&self) -> &Scratch {
        &self.scratch
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Scratch {
        &mut self.scratch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leaf::quantize::{Number, Quantizer, Width};

    /// Begins a sum of 8 floats, whose errors are all `error` in the end. Returns the errors that it begins with.
    fn sum(lent: &mut Lent, error: u8) -> Vec<u8> {
        let quantizer = Quantizer::new(Number::F32, Width::Int8, 4, 2).expect("a quantizer");
        lent.begin(&quantizer, 32, 8, true);
        let (numbers, left_out) = lent.room().carried.expect("errors are carried over");
        let before = left_out.clone();
        numbers.fill(error);
        lent.carry();
        before
    }

    #[test]
    fn errors_come_back_with_the_memory() {
        let lender = Lender::default();
        assert_eq!(sum(&mut lender.lend(), 1), [0; 32]);
        assert_eq!(sum(&mut lender.lend(), 2), [1; 32]);
        // Another at the same time has memory of its own.
        let mut lent = lender.lend();
        assert_eq!(sum(&mut lender.lend(), 3), [0; 32]);
        assert_eq!(sum(&mut lent, 4), [2; 32]);
        drop(lent);
        assert_eq!(sum(&mut lender.lend(), 5), [4; 32]);
    }

    #[test]
    fn errors_are_forgotten_that_lent_memory_has() {
        let lender = Lender::default();
        let mut lent = lender.lend();
        sum(&mut lent, 1);
        lender.forget();
        drop(lent);
        assert_eq!(sum(&mut lender.lend(), 2), [0; 32]);
        lender.forget();
        assert_eq!(sum(&mut lender.lend(), 3), [0; 32]);
        assert_eq!(sum(&mut lender.lend(), 4), [3; 32]);
    }
}
