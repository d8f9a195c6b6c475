//! Ranks that die: the job ends as without foldback, and nothing of it is left on any host.

use crate::harness::{Job, Mpi, turn};
use crate::served::{HOSTS, Served};

/// Rank 0 runs the command in mid-run, and is its parent.
const DEATHS: [(&str, &str); 3] = [
    ("by a signal that nobody hears", "kill -KILL $PPID"),
    ("of a wrong pointer", "kill -SEGV $PPID"),
    // The program calls MPI_Abort when its command fails.
    ("by MPI_Abort", "false"),
];

#[test]
fn a_rank_that_dies_ends_the_job_and_leaves_no_group() {
    let _turn = turn();
    let served = Served::new(HOSTS);
    for (mpi, ranks_per_host) in [(Mpi::Open, 2), (Mpi::Mpich, 1)] {
        for (how, command) in DEATHS {
            let job = Job::new(mpi, HOSTS).ranks_per_host(ranks_per_host).lab(&served.lab);
            let said = job.run_to_failure("orphan", &["--command", command]);
            assert!(said.contains("has a group of"), "{mpi:?}, dead {how}: {said}");
            served.await_no_groups();
        }
    }
}
