//! MPI_Gatherv: each rank has a part for the root, of its own size.

use super::descriptor::{Arrays, At};
use super::pairs::{self, OfPairs};
use crate::gate::judge::Bench;
use crate::gate::{Ends, Facts, Refused};

pub struct Gatherv;

impl OfPairs for Gatherv {
    const SIGNIFICANT: (At, At) = (At::Everywhere, At::Root);
    const ARRAYS: Arrays = Arrays::RanksAtRoot;

    fn judge(bench: &Bench<'_, impl Facts>) -> Result<Ends, Refused> {
        pairs::to_root(bench)
    }
}
