//! Functions of MPI, as a program calls them, of which foldback's own functions are made.

pub use super::collectives::{
    allgather, allgatherv, allreduce, alltoall, alltoallv, gatherv, ineighbor_allgather,
    ineighbor_allgatherv, neighbor_allgather, neighbor_allgatherv,
};
pub use super::freeing::MPI_Comm_free;
pub use super::waits::{MPI_Test, MPI_Wait};
