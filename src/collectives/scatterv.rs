//! MPI_Scatterv: the root has a part for each rank, of its own size.

use super::descriptor::{Arrays, At};
use super::pairs::{self, OfPairs};
use crate::call::{Call, Side};
use crate::gate::judge::Bench;
use crate::gate::{Ends, Facts, Refused};

pub struct Scatterv;

impl OfPairs for Scatterv {
    const SIGNIFICANT: (At, At) = (At::Root, At::Everywhere);
    const ARRAYS: Arrays = Arrays::RanksAtRoot;

    fn sides(call: &Call) -> (&Side, &Side) {
        (&call.recv, &call.send)
    }

    fn judge(bench: &Bench<'_, impl Facts>) -> Result<Ends, Refused> {
        pairs::from_root(bench)
    }
}
