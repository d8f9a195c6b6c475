//! MPI_Neighbor_alltoall: each rank has a part for each of its neighbours.

use super::descriptor::Arrays;
use super::pairs::{self, Blocks, OfPairs};
use crate::gate::judge::Bench;
use crate::gate::{Ends, Facts, Refused};

#[allow(non_camel_case_types)]
pub struct Neighbor_alltoall;

impl OfPairs for Neighbor_alltoall {
    const ARRAYS: Arrays = Arrays::Neighbors;

    fn judge(bench: &Bench<'_, impl Facts>) -> Result<Ends, Refused> {
        pairs::neighbors(bench, Blocks::Even)
    }
}
