//! MPI programs that know nothing of foldback, under both MPIs, in labs of several hosts: they
//! check their answers by themselves, and the statistics must show that the kernel did the work.
//!
//! Needs root, Open MPI and MPICH. What is missing is a failure. The long tests are ignored unless
//! asked for (`make test-long`); FOLDBACK_TEST_LONG=slice cuts them to a tenth (`make test`).

#[path = "mpi/agents.rs"]
mod agents;
#[path = "mpi/conformance.rs"]
mod conformance;
#[path = "mpi/faults.rs"]
mod faults;
#[path = "mpi/harness.rs"]
mod harness;
#[path = "mpi/programs.rs"]
mod programs;
