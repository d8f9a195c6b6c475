//! Counters of reductions over neighbours with kept aggregates.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// Reductions by a `foldback_neighbor_cache`, and the payload that ranks bring their neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachedLine {
    /// Calls of all ranks.
    pub reductions: u64,
    /// Calls in which no vector had changed that came to the rank: it got what it had kept.
    pub reused: u64,
    /// Bytes of the vectors, to all neighbours.
    pub bytes: u64,
    /// Bytes that went to them instead.
    pub bytes_sent: u64,
    /// Frames of the usual length that the vectors would take, each to all neighbours at once.
    pub frames: u64,
    /// Frames that went instead: a notice, and the changed blocks.
    pub frames_sent: u64,
}

impl CachedLine {
    /// Adds the counts of other calls.
    pub fn add(&mut self, more: &Self) {
        let Self { reductions, reused, bytes, bytes_sent, frames, frames_sent } = more;
        self.reductions += reductions;
        self.reused += reused;
        self.bytes += bytes;
        self.bytes_sent += bytes_sent;
        self.frames += frames;
        self.frames_sent += frames_sent;
    }
}

/// The counters of a process.
#[derive(Default)]
pub struct Cached([AtomicU64; 6]);

impl Cached {
    pub fn add(&self, more: &CachedLine) {
        let CachedLine { reductions, reused, bytes, bytes_sent, frames, frames_sent } = *more;
        let all = [reductions, reused, bytes, bytes_sent, frames, frames_sent];
        for (counter, more) in self.0.iter().zip(all) {
            counter.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// The counts so far; `None`: there was no such call.
    pub fn line(&self) -> Option<CachedLine> {
        let [reductions, reused, bytes, bytes_sent, frames, frames_sent] =
            self.0.each_ref().map(|counter| counter.load(Ordering::Relaxed));
        let line = CachedLine { reductions, reused, bytes, bytes_sent, frames, frames_sent };
        (reductions > 0).then_some(line)
    }
}
