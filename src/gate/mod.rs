//! Whether a call may be folded.
//!
//! ```text
//! Call ─▶ admit ─▶ judge ─▶ fit ─▶ choice ─▶ plan
//!         all      this     all        ║
//!         ranks    rank     ranks      ║ from here on nothing goes back to the real MPI
//!         alike    alone    alike
//! ```
//!
//! [`admit()`] and `fit` say whether the call may be folded, alike on all ranks. Then [`judge()`] says
//! whether its arguments are right on this rank, where the real MPI may refuse them alone.

pub mod admit;
pub mod eligibility;
mod facts;
pub mod judge;
mod reason;
mod refusal;

pub use admit::{Admitted, admit};
pub use facts::Facts;
pub use judge::{Ends, judge};
pub use reason::{Left, Reason, Refused};
