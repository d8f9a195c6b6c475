//! Whether a call may be folded.
//!
//! ```text
//! Call ─▶ admit ─▶ judge ─▶ fit ─▶ choice ─▶ plan
//!         all      this     all        ║
//!         ranks    rank     ranks      ║ from here on nothing goes back to the real MPI
//!         alike    alone    alike
//! ```
//!
//! `admit` and `fit` say whether the call may be folded, alike on all ranks. Then `judge` says whether its arguments
//! are right on this rank, where the real MPI may refuse them alone.
//!
//! This module knows types, ops, sizes and buffers, and no collective. The file of a [collective](crate::collectives)
//! picks what applies to it.

pub mod admit;
pub mod eligibility;
pub mod exchange;
mod facts;
pub mod judge;
mod reason;
mod refusal;

pub use admit::Admitted;
pub use facts::{Alone, Facts};
pub use judge::{Ends, Share};
pub use reason::{Left, Reason, Refused};
