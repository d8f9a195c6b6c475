//! Limits of the system: what foldback does not get, it does without, and says so in a line.

use crate::harness::{Job, Mpi, Outcome, program, turn};

/// Runs `histogram` behind a command of the shell, in a mount namespace of its own.
fn histogram_behind(ranks_per_host: u32, hook: &str, before: &str) -> Outcome {
    let program = program(Mpi::Open, "histogram");
    let script = format!("{before}; exec {}", program.display());
    let outcome = Job::new(Mpi::Open, 2)
        .ranks_per_host(ranks_per_host)
        .env("FOLDBACK_HOOK", hook)
        .env("FOLDBACK_LOG", "warn")
        .run_path("/usr/bin/unshare".as_ref(), &["-m", "sh", "-c", &script]);
    outcome.assert_prints("histogram: OK");
    outcome
}

/// Of files, on one host, and of so many that Open MPI itself gets along.
#[test]
fn without_descriptors_there_are_no_programs() {
    let _turn = turn();
    for (files, hook) in [(24, "tc"), (40, "tc"), (24, "auto"), (40, "auto")] {
        let limit = format!("test $(hostname) = h0 || ulimit -n {files}");
        let outcome = histogram_behind(1, hook, &limit);
        if hook == "auto" && outcome.calls("Allreduce", "fold") > 0 {
            outcome.assert_hook("none");
        } else {
            assert_eq!(outcome.calls("Allreduce", "fold"), 0, "{files}: {:#}", outcome.stats);
        }
        let warned: Vec<_> =
            outcome.stderr.lines().filter(|line| line.contains(" WARN ")).collect();
        let told = |word| warned.iter().all(|line| line.contains(word));
        assert!(warned.len() == 1 && told("rank 1 (host 1)"), "{files}: {warned:?}");
        assert!(told("Too many open files"), "{files}: {warned:?}");
    }
}

/// BPF maps are not locked memory since Linux 5.11, and must not be taken for it.
#[test]
fn locked_memory_and_shared_memory_are_not_needed() {
    let _turn = turn();
    for before in [
        "ulimit -l 0",
        "mount -t tmpfs -o size=4k tmpfs /dev/shm",
        "mount -t tmpfs -o ro tmpfs /dev/shm",
        "mount --bind /proc/sys /dev/shm",
    ] {
        histogram_behind(2, "auto", before).assert_folded(&["Allreduce", "Reduce"]);
    }
}
