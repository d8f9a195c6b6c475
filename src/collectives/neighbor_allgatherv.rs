//! MPI_Neighbor_allgatherv: each rank has one part of its own size, for all of its neighbours.

use super::descriptor::Arrays;
use super::pairs::{self, Blocks, OfPairs};
use crate::gate::judge::Bench;
use crate::gate::{Ends, Facts, Refused};

#[allow(non_camel_case_types)]
pub struct Neighbor_allgatherv;

impl OfPairs for Neighbor_allgatherv {
    const ARRAYS: Arrays = Arrays::Neighbors;

    fn judge(bench: &Bench<'_, impl Facts>) -> Result<Ends, Refused> {
        pairs::neighbors(bench, Blocks::One)
    }
}
