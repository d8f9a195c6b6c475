//! MPI_Scan and MPI_Exscan: a deposit; each folds its own prefix.

use super::{Case, Fit, Plan, fitting, reducing};
use crate::gate::Reason;
use crate::topology::Place;

pub fn fit(case: Case<'_>, place: &mut Place) -> Result<Fit, Reason> {
    fitting::parts(place.even_image(reducing::reduction(case).bytes), case.admitted.most)
}

pub fn plan(case: Case<'_>, fit: Fit) -> Plan {
    let part = reducing::reduction(case).bytes;
    reducing::deposit(case, fit, 0..case.ends.rank + 1, 0..part)
}

/// MPI_Exscan.
pub mod without_own {
    use super::{Case, Fit, Plan, reducing};

    pub use super::fit;

    pub fn plan(case: Case<'_>, fit: Fit) -> Plan {
        let part = reducing::reduction(case).bytes;
        reducing::deposit(case, fit, 0..case.ends.rank, 0..part)
    }
}
