//! The number of keys that are to come, by a sample of them: pure.
//!
//! The pairs of a sample that meet tell the number of keys, as people who share a birthday tell the days of a year.

/// The keys there are, if all come as often.
#[derive(Clone, Copy)]
pub(super) struct Keys {
    before: f64,
    all: f64,
}

impl Keys {
    /// Guesses them: a sample has found some new ones beside those before.
    pub(super) fn from_sample(before: usize, new: usize, sample: usize) -> Self {
        let before = before as f64;
        // The number lies between these. If all were new, nobody knows.
        let (mut least, mut most) = (before + new as f64, 1e18);
        for _ in 0..if new < sample { 100 } else { 0 } {
            let all = (least * most).sqrt();
            let found = Self { before, all }.new_after(sample as f64);
            if found < new as f64 { least = all } else { most = all }
        }
        Self { before, all: most }
    }

    /// Each pair has any of them.
    fn new_after(&self, pairs: f64) -> f64 {
        (self.before - self.all) * (-pairs / self.all).exp_m1()
    }

    /// The keys that one of so many ranks has.
    pub(super) fn of_one(self, ranks: usize) -> Self {
        Self { before: 0.0, all: (self.all / ranks as f64).max(1.0) }
    }

    /// The keys that have come after so many pairs.
    pub(super) fn after(&self, pairs: usize) -> usize {
        (self.before + self.new_after(pairs as f64)).round() as usize
    }

    /// All.
    pub(super) fn all(&self) -> usize {
        self.all as usize
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::random::Rng;

    #[test]
    fn keys_are_foreseen() {
        const COUNT: usize = 1_000_000;
        for before in [0, 300_000] {
            for keys in [1000, 100_000, 1_000_000, u64::MAX] {
                let mut random = Rng(3);
                let mut found = HashSet::new();
                found.extend((0..before).map(|_| random.below(keys)));
                let known = found.len();
                found.extend((0..100_000).map(|_| random.below(keys)));
                let foreseen = Keys::from_sample(known, found.len() - known, 100_000);
                found.extend((100_000..COUNT).map(|_| random.below(keys)));
                let (told, right) = (foreseen.after(COUNT), found.len());
                assert!(told.abs_diff(right) <= right / 20, "{told}, not {right}");
                if keys <= 1_000_000 {
                    let (told, right) = (foreseen.all(), keys as usize);
                    assert!(told.abs_diff(right) <= right / 20, "{told}, not {right}");
                }
            }
        }
        let after = |new, sample| Keys::from_sample(0, new, sample).after(1000);
        assert_eq!((after(7, 7), after(1, 100)), (1000, 1));
    }
}
