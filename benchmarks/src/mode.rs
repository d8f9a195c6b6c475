//! The two sides of every comparison.

use std::fmt;

/// Whether foldback is preloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    Mpi,
    Foldback,
}

impl Mode {
    /// In tables for other tools.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mpi => "mpi",
            Self::Foldback => "foldback",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mpi => "without",
            Self::Foldback => "with foldback",
        })
    }
}
