//! Libraries before foldback that take functions of MPI: profilers and the like, first in `LD_PRELOAD`.
//!
//! They call the real MPI, past foldback. A request of a folded collective would never be complete then.

use std::ffi::CString;

use serde::{Deserialize, Serialize};

use crate::call::COLLECTIVES;
use crate::mpi::pmpi;

/// Functions that make a communicator with a topology, which may get a group there.
const LAYING: &[&str] = &[
    "MPI_Cart_create",
    "MPI_Graph_create",
    "MPI_Dist_graph_create",
    "MPI_Dist_graph_create_adjacent",
];

/// Functions that complete requests, or start and free persistent ones.
const COMPLETING: &[&str] = &[
    "MPI_Wait",
    "MPI_Waitall",
    "MPI_Waitany",
    "MPI_Waitsome",
    "MPI_Test",
    "MPI_Testall",
    "MPI_Testany",
    "MPI_Testsome",
    "MPI_Request_get_status",
    "MPI_Start",
    "MPI_Startall",
    "MPI_Request_free",
];

/// A function that a library takes before foldback.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Taken {
    function: String,
    by: String,
}

fn find_taken(functions: impl Iterator<Item = String>) -> Vec<Taken> {
    let look = |function: String| {
        let by = pmpi::before_us(&CString::new(function.as_str()).ok()?)?;
        Some(Taken { function, by })
    };
    functions.filter_map(look).collect()
}

/// The functions that libraries take on a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Before {
    /// Collectives that block.
    collectives: Vec<Taken>,
    completing: Vec<Taken>,
    laying: Vec<Taken>,
}

impl Before {
    /// All that this rank finds.
    pub(super) fn find() -> Self {
        let blocking = COLLECTIVES.iter().map(|one| format!("MPI_{}", one.name()));
        let completing = COMPLETING.iter().map(|name| (*name).to_owned());
        let laying = LAYING.iter().map(|name| (*name).to_owned());
        Self {
            collectives: find_taken(blocking),
            completing: find_taken(completing),
            laying: find_taken(laying),
        }
    }

    /// Whether the program's own waits complete folded requests.
    pub(super) fn completes(&self) -> bool {
        self.completing.is_empty()
    }

    /// Whether the calls of all ranks come to foldback as on another rank.
    pub(super) fn takes_as(&self, other: &Self) -> bool {
        let ([blocking, _, laying], [others, _, others_laying]) =
            (self.functions(), other.functions());
        (blocking, laying) == (others, others_laying)
    }

    /// The names of each kind.
    pub(super) fn functions(&self) -> [Vec<&str>; 3] {
        [&self.collectives, &self.completing, &self.laying]
            .map(|kind| kind.iter().map(|taken| taken.function.as_str()).collect())
    }

    /// Says to the log what this is about.
    pub(super) fn warn(&self) {
        self.lines().iter().for_each(|line| log::warn!("{line}"));
    }

    /// The lines for the log.
    fn lines(&self) -> Vec<String> {
        let line = |taken: &[Taken], so: &str| {
            let first = taken.first()?;
            let more = match taken.len() {
                1 => String::new(),
                all => format!(" and {} more", all - 1),
            };
            let Taken { function, by } = first;
            Some(format!(
                "{by} takes {function}{more} before foldback, so {so}. Put libfoldback.so first in LD_PRELOAD"
            ))
        };
        let all = self.collectives.len() == COLLECTIVES.len();
        let so = if all { "nothing is folded" } else { "those calls are not folded" };
        let waits = "non-blocking and persistent collectives are left to MPI";
        line(&self.collectives, so).into_iter().chain(line(&self.completing, waits)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(names: &[&str]) -> Vec<Taken> {
        let taken = |name: &&str| Taken { function: (*name).into(), by: "libtool.so".into() };
        names.iter().map(taken).collect()
    }

    #[test]
    fn each_kind_is_told_in_a_line() {
        assert!(Before::default().lines().is_empty());
        assert!(Before::default().completes());
        let waits = Before { completing: some(COMPLETING), ..Before::default() };
        assert!(!waits.completes());
        let [line] = &waits.lines()[..] else { panic!("one line") };
        assert!(line.starts_with("libtool.so takes MPI_Wait and 11 more before foldback, so non-"));
        let one = Before { collectives: some(&["MPI_Bcast"]), ..Before::default() };
        assert!(one.completes());
        let [line] = &one.lines()[..] else { panic!("one line") };
        assert!(line.contains("takes MPI_Bcast before foldback, so those calls are not folded"));
        let all =
            Before { collectives: some(&["MPI_Bcast"; COLLECTIVES.len()]), ..Before::default() };
        assert!(all.lines()[0].contains("so nothing is folded"));
    }

    #[test]
    fn nobody_is_before_a_test() {
        assert_eq!(Before::find(), Before::default());
    }
}
