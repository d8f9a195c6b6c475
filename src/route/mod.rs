//! Whether a call may be folded, and which way it goes.
//!
//! ```text
//! Call ─▶ admit ─▶ judge ─▶ plan::fit ─▶ router ─▶ plan::plan
//!         all      this     all ranks        ║
//!         ranks    rank     alike            ║ from here on nothing goes back to the real MPI
//!         alike    alone
//! ```
//!
//! [`admit()`] and `fit` say whether the call may be folded, alike on all ranks. Then [`judge()`] says
//! whether its arguments are right on this rank, where the real MPI may refuse them alone.

pub mod admit;
mod class;
pub mod eligibility;
mod facts;
pub mod judge;
mod profile;
mod reason;
mod refusal;
pub mod router;
mod way;

pub use admit::{Admitted, admit};
pub use class::Step;
pub use facts::Facts;
pub use judge::{Ends, judge};
pub use profile::{Ground, Profile};
pub use reason::{Left, Reason, Refused};
pub use router::{ClassId, RouteLine, Router};
pub use way::Way;
