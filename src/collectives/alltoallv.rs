//! MPI_Alltoallv: each pair of ranks has parts of its own size.

use super::pairs::{self, OfPairs};
use crate::gate::judge::Bench;
use crate::gate::{Ends, Facts, Refused};

pub struct Alltoallv;

impl OfPairs for Alltoallv {
    fn judge(bench: &Bench<'_, impl Facts>) -> Result<Ends, Refused> {
        pairs::all_to_all(bench)
    }
}
