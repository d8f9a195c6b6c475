//! The table of the collectives that foldback takes on, and what is made of it.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Hands the table to the macro `then`, behind `with`. A line has MPI's name without `MPI_`, the file in
/// `src/collectives/` that describes the collective, and its default limit in bytes. The limits are the largest sizes
/// at which folding was not slower than Open MPI at 2, 4 and 8 hosts of the lab (docs/benchmarks.md). Of the
/// collectives whose sizes no rank knows, a limit is the most bytes that one rank sends to another.
macro_rules! table {
    ($then:ident $($with:tt)*) => {
        $then! {
            $($with)*
            Allreduce: allreduce, 64 << 10;
            Reduce: reduce, CHUNK;
            Bcast: bcast, 4096;
            Barrier: barrier, usize::MAX;
            Allgather: allgather, 8192;
            Allgatherv: allgatherv, 4096;
            Gather: gather, CHUNK;
            Scatter: scatter, CHUNK;
            Reduce_scatter: reduce_scatter, 2048;
            Reduce_scatter_block: reduce_scatter_block, 2048;
            Scan: scan, 2048;
            Exscan: exscan, 2048;
            Alltoall: alltoall, 8192;
            Gatherv: gatherv, CHUNK;
            Scatterv: scatterv, CHUNK;
            Alltoallv: alltoallv, CHUNK;
            Alltoallw: alltoallw, CHUNK;
            Neighbor_allgather: neighbor_allgather, CHUNK;
            Neighbor_allgatherv: neighbor_allgatherv, CHUNK;
            Neighbor_alltoall: neighbor_alltoall, CHUNK;
            Neighbor_alltoallv: neighbor_alltoallv, CHUNK;
            Neighbor_alltoallw: neighbor_alltoallw, CHUNK;
        }
    };
}
pub(crate) use table;

const CHUNK: usize = crate::bindings::FB_CHUNK_BYTES as usize;

macro_rules! collectives {
    ($($name:ident: $file:ident, $limit:expr;)*) => {
        /// A collective of the [table].
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Collective {
            $(#[doc = concat!("`MPI_", stringify!($name), "`")] $name,)*
        }

        /// All collectives, in the order of their numbers.
        pub const COLLECTIVES: &[Collective] = &[$(Collective::$name,)*];

        /// Their default limits, in bytes.
        pub(crate) const MAX_BYTES: [usize; COLLECTIVES.len()] = [$($limit,)*];

        impl Collective {
            /// MPI's name without `MPI_`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }
    };
}

table!(collectives);

/// By its name, in letters of any case.
impl FromStr for Collective {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        let is_it = |one: &&Self| one.name().eq_ignore_ascii_case(name);
        COLLECTIVES.iter().find(is_it).copied().ok_or(())
    }
}
