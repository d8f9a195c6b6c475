//! The way of a call that may be folded: by one of several algorithms, or by the real MPI.

mod class;
mod kind;
mod profile;
mod router;
mod way;

pub use class::Step;
pub use kind::{Kind, Trials};
pub use profile::{Ground, Profile};
pub use router::{ClassId, RouteLine, Router, Setting};
pub use way::Way;
