//! MPI_Neighbor_alltoallw: each rank has a part for each of its neighbours, of its own size and type.

use super::descriptor::Arrays;
use super::pairs::{self, Blocks, OfPairs};
use crate::gate::judge::Bench;
use crate::gate::{Ends, Facts, Refused};

#[allow(non_camel_case_types)]
pub struct Neighbor_alltoallw;

impl OfPairs for Neighbor_alltoallw {
    const ARRAYS: Arrays = Arrays::Neighbors;

    fn judge(bench: &Bench<'_, impl Facts>) -> Result<Ends, Refused> {
        pairs::neighbors(bench, Blocks::Each)
    }
}
