//! MPI_Alltoallw: each pair of ranks has parts of its own size and type.

use super::pairs::{self, OfPairs};
use crate::gate::judge::Bench;
use crate::gate::{Ends, Facts, Refused};

pub struct Alltoallw;

impl OfPairs for Alltoallw {
    fn judge(bench: &Bench<'_, impl Facts>) -> Result<Ends, Refused> {
        pairs::all_to_all(bench)
    }
}
