//! The OSU micro-benchmarks, which check what they get (`-c`). Nobody packages them: OSU_DIR names a
//! directory that has them somewhere below, OSU_MPI the MPI that they are built with (openmpi4).

use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::{Job, Mpi, turn};
use crate::{HOSTS, skip};

/// Benchmarks, and the form in which they call the collective of that name.
const BENCHMARKS: &[(&str, &str, &str)] = &[
    ("osu_allreduce", "Allreduce", "Blocking"),
    ("osu_reduce", "Reduce", "Blocking"),
    ("osu_bcast", "Bcast", "Blocking"),
    ("osu_allgather", "Allgather", "Blocking"),
    ("osu_allgatherv", "Allgatherv", "Blocking"),
    ("osu_gather", "Gather", "Blocking"),
    ("osu_scatter", "Scatter", "Blocking"),
    ("osu_reduce_scatter", "Reduce_scatter", "Blocking"),
    ("osu_alltoall", "Alltoall", "Blocking"),
    ("osu_iallreduce", "Allreduce", "Nonblocking"),
    ("osu_ireduce", "Reduce", "Nonblocking"),
    ("osu_ibcast", "Bcast", "Nonblocking"),
    ("osu_iallgather", "Allgather", "Nonblocking"),
    ("osu_iallgatherv", "Allgatherv", "Nonblocking"),
    ("osu_igather", "Gather", "Nonblocking"),
    ("osu_iscatter", "Scatter", "Nonblocking"),
    ("osu_ireduce_scatter", "Reduce_scatter", "Nonblocking"),
    ("osu_ialltoall", "Alltoall", "Nonblocking"),
    ("osu_allreduce_persistent", "Allreduce", "Persistent"),
    ("osu_bcast_persistent", "Bcast", "Persistent"),
];

fn find(name: &str, below: &Path) -> Option<PathBuf> {
    let entries: Vec<_> = fs::read_dir(below).ok()?.flatten().collect();
    // Libtool keeps what it links in .libs.
    let inside = |path: &Path| path.is_dir() && !path.ends_with(".libs");
    let here = below.join(name);
    here.is_file().then_some(here).or_else(|| {
        entries.iter().map(|e| e.path()).filter(|p| inside(p)).find_map(|path| find(name, &path))
    })
}

#[test]
fn osu_benchmarks_find_their_answers_right() {
    let Some(directory) = std::env::var_os("OSU_DIR").map(PathBuf::from) else {
        return skip("OSU_DIR names no directory of the OSU micro-benchmarks");
    };
    let name = std::env::var("OSU_MPI").unwrap_or_else(|_| Mpi::Open.name().into());
    let all = [Mpi::Open, Mpi::Open5, Mpi::Mpich, Mpi::Mpich5, Mpi::Mpich5Abi, Mpi::Intel];
    let mpi = *all.iter().find(|mpi| mpi.name() == name).expect("OSU_MPI names an MPI of the lab");
    let _turn = turn();
    let mut ran = 0;
    for (name, collective, form) in BENCHMARKS {
        let Some(program) = find(name, &directory) else {
            skip(&format!("OSU_DIR has no {name}"));
            continue;
        };
        let job = Job::new(mpi, HOSTS).env("FOLDBACK_MAX_BYTES", "4194304");
        // Sums of the default, char, are not among what is folded, and wrong on Debian's Open MPI.
        let mut arguments = vec!["-c", "-i", "20", "-x", "5", "-m", "4:16384"];
        if name.contains("reduce") {
            arguments.extend(["-T", "mpi_int"]);
        }
        let outcome = job.run_path(&program, &arguments);
        assert!(outcome.stdout.contains("Pass"), "{name}: {}", outcome.stdout);
        assert!(!outcome.stdout.contains("Fail"), "{name}: {}", outcome.stdout);
        let folded = outcome.calls_in_form(collective, form, "fold");
        assert!(folded > 0, "{name} folded nothing: {:#}", outcome.stats);
        ran += 1;
    }
    assert!(ran > 0, "OSU_DIR has none of the benchmarks");
}
