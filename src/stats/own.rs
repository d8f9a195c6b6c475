//! Counters of foldback's own collectives.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// A line of counts, and the counters of a process. The first of them counts calls.
macro_rules! counted {
    ($(#[$of_line:meta])* $line:ident, $counters:ident:
     $(#[$of_first:meta])* $first:ident, $($(#[$of_field:meta])* $field:ident,)*) => {
        $(#[$of_line])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $line {
            $(#[$of_first])*
            pub $first: u64,
            $($(#[$of_field])* pub $field: u64,)*
        }

        impl $line {
            /// Adds other counts.
            pub fn add(&mut self, more: &Self) {
                self.$first += more.$first;
                $(self.$field += more.$field;)*
            }
        }

        /// The counters of a process.
        #[derive(Default)]
        pub struct $counters {
            $first: AtomicU64,
            $($field: AtomicU64,)*
        }

        impl $counters {
            pub fn add(&self, more: &$line) {
                self.$first.fetch_add(more.$first, Ordering::Relaxed);
                $(self.$field.fetch_add(more.$field, Ordering::Relaxed);)*
            }

            /// The counts so far; `None`: there was no call.
            pub fn line(&self) -> Option<$line> {
                let line = $line {
                    $first: self.$first.load(Ordering::Relaxed),
                    $($field: self.$field.load(Ordering::Relaxed),)*
                };
                (line.$first > 0).then_some(line)
            }
        }
    };
}

counted! {
    /// Reductions by a `foldback_neighbor_cache`, and the payload that ranks bring their neighbours.
    CachedLine, Cached:
    /// Calls of all ranks.
    reductions,
    /// Calls in which no vector had changed that came to the rank: it got what it had kept.
    reused,
    /// Bytes of the vectors, to all out-neighbours.
    bytes,
    /// Bytes that went to them instead.
    bytes_sent,
    /// Frames of the usual length that the vectors would take, each to all neighbours at once.
    frames,
    /// Frames that went instead: a notice, and the changed blocks.
    frames_sent,
}

counted! {
    /// Pairs of keys and values, on their way to the owners of their keys.
    PairsLine, PairsCounts:
    /// Flushes of all ranks.
    flushes,
    /// Pairs that programs have added.
    added,
    /// Records that went to other ranks: combined pairs, or parts of their sums.
    sent,
}
