//! The ways that a call can go.

use serde::{Deserialize, Serialize};

use crate::wire::Algorithm;

/// A way that a call can go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    Fold(Algorithm),
    /// By the real MPI.
    Mpi,
}

/// Number of ways; their order in sums and statistics.
pub const WAYS: usize = 5;
pub(super) const ORDER: [Way; WAYS] = [
    Way::Fold(Algorithm::Star),
    Way::Fold(Algorithm::Direct),
    Way::Fold(Algorithm::Shards),
    Way::Mpi,
    Way::Fold(Algorithm::Ring),
];

impl Way {
    pub(super) fn index(self) -> usize {
        ORDER.iter().position(|way| *way == self).unwrap_or(0)
    }

    /// The one of that name.
    pub(super) fn named(name: &str) -> Option<Self> {
        ORDER.into_iter().find(|way| way.name() == name)
    }

    /// As it stands in the statistics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fold(Algorithm::Star) => "star",
            Self::Fold(Algorithm::Direct) => "direct",
            Self::Fold(Algorithm::Shards) => "shards",
            Self::Fold(Algorithm::Ring) => "ring",
            Self::Mpi => "mpi",
        }
    }
}
