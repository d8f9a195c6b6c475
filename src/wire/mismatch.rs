//! Members that do not agree on a message: programs that are wrong, in which MPI returns an error, if it
//! does not hang.

use std::fmt;

use crate::bindings::FB_MISMATCHED;

/// The difference between this rank and others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The length of one message differs. The chunks of both are as many, so all can go on.
    Length {
        /// Its bytes on this rank.
        here: u64,
        /// Its bytes on another rank; of several, the most.
        elsewhere: u64,
    },
    /// The numbers of the chunks to come are not the same everywhere: nobody can go on.
    OutOfStep,
}

impl Mismatch {
    /// The mismatch of a message of `here` bytes that is of `elsewhere` bytes somewhere else, or is of another
    /// collective.
    pub fn of(here: u64, elsewhere: u64, same_kind: bool, chunk_bytes: u64) -> Self {
        let [here, elsewhere] = [here, elsewhere].map(|bytes| bytes & !FB_MISMATCHED);
        if same_kind && here.max(elsewhere) <= chunk_bytes {
            Self::Length { here, elsewhere }
        } else {
            Self::OutOfStep
        }
    }

    /// The word of the members' frames from now on.
    pub fn word(self) -> u64 {
        match self {
            Self::Length { here, elsewhere } => here.max(elsewhere) | FB_MISMATCHED,
            Self::OutOfStep => FB_MISMATCHED,
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { here, elsewhere } if here == elsewhere => {
                write!(
                    f,
                    "the ranks do not agree on the length or type of a message ({here} bytes here)"
                )
            }
            Self::Length { here, elsewhere } => write!(
                f,
                "the ranks do not agree on the length of a message ({here} bytes here, {elsewhere} elsewhere)"
            ),
            Self::OutOfStep => write!(
                f,
                "the ranks are in different collectives, or do not agree on the length of a long message"
            ),
        }
    }
}
