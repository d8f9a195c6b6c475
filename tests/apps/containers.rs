//! Ranks in containers of runc, on the network of their host: by root, and in user namespaces as without root.

use std::path::PathBuf;

use crate::harness::{Job, Mpi, Outcome, program, turn};
use crate::served::Served;
use crate::{HOSTS, debian};

/// A program of `mpi-tests/` in a container on each host, of which each host has an agent.
fn run(mpi: Mpi, ranks_per_host: u32, options: &[&str]) -> Option<Outcome> {
    debian("runc")?;
    let served = Served::new(HOSTS);
    served.attach();
    let program = program(mpi, "histogram");
    let container = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("mpi-tests/container.py");
    let mut words = options.to_vec();
    words.push(program.to_str().expect("a path in UTF-8"));
    let job = Job::new(mpi, HOSTS).lab(&served.lab).ranks_per_host(ranks_per_host);
    Some(job.run_path(&container, &words))
}

/// Open MPI 4 ends its own ranks where two on a host have process numbers of their own, with foldback and without.
const MPIS: [(Mpi, u32); 2] = [(Mpi::Open, 1), (Mpi::Mpich, 2)];

#[test]
#[ignore = "make test-apps: containers of runc need cgroups that are root's"]
fn ranks_in_containers_fold_by_the_agents_of_their_hosts() {
    let _turn = turn();
    for (mpi, ranks_per_host) in MPIS {
        let Some(outcome) = run(mpi, ranks_per_host, &[]) else { return };
        outcome.assert_prints("histogram: OK");
        outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
        outcome.assert_hook("tc");
    }
}

#[test]
#[ignore = "make test-apps: containers of runc need cgroups that are root's"]
fn ranks_in_containers_of_user_namespaces_fold_by_the_agents_of_their_hosts() {
    let _turn = turn();
    for (mpi, ranks_per_host) in MPIS {
        let Some(outcome) = run(mpi, ranks_per_host, &["--user"]) else { return };
        outcome.assert_prints("histogram: OK");
        outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
        outcome.assert_hook("tc");
    }
}
