//! Limits of the system: what foldback does not get, it does without, and says so in a line.

use foldback::agent::{Client, ErrorKind, GroupSpec};

use crate::harness::{Job, Mpi, Outcome, program, turn};
use crate::served::{HOSTS, Served};

/// Runs `histogram` behind a command of the shell, in a mount namespace of its own.
fn histogram_behind(ranks_per_host: u32, transport: &str, before: &str) -> Outcome {
    let program = program(Mpi::Open, "histogram");
    let script = format!("{before}; exec {}", program.display());
    let outcome = Job::new(Mpi::Open, 2)
        .ranks_per_host(ranks_per_host)
        .env("FOLDBACK_TRANSPORT", transport)
        .env("FOLDBACK_LOG", "warn")
        .run_path("/usr/bin/unshare".as_ref(), &["-m", "sh", "-c", &script]);
    outcome.assert_prints("histogram: OK");
    outcome
}

/// Of files, on one host, and of so many that Open MPI itself gets along.
#[test]
fn without_descriptors_there_are_no_programs() {
    let _turn = turn();
    for (files, transport) in [(24, "programs"), (40, "programs"), (24, "auto"), (40, "auto")] {
        let limit = format!("test $(hostname) = h0 || ulimit -n {files}");
        let outcome = histogram_behind(1, transport, &limit);
        if transport == "auto" && outcome.calls("Allreduce", "fold") > 0 {
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

/// Rank 0 may open no file any more, in mid-run: what is there goes on, also when the agents are gone, and new
/// communicators are left to MPI.
#[test]
fn descriptors_may_run_out_in_mid_run() {
    let _turn = turn();
    // The shell's parent is rank 0; all descriptors below the limit are taken.
    let limit = "n=0; while test -e /proc/$PPID/fd/$n; do n=$((n + 1)); done; \
        prlimit --pid $PPID --nofile=$n:$n";
    for (mpi, ranks_per_host) in [(Mpi::Open, 1), (Mpi::Mpich, 2)] {
        let served = Served::new(HOSTS);
        let job = || Job::new(mpi, HOSTS).ranks_per_host(ranks_per_host).lab(&served.lab);
        let outcome = job().run("orphan", &["--command", limit, "--until", "true", "--dup"]);
        outcome.assert_prints("orphan: OK");
        outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
        assert!(outcome.stderr.contains("Too many open files"), "{}", outcome.stderr);
        let kill = served.signal("KILL", served.all());
        let outcome = job().run("orphan", &["--command", &format!("{limit}; {kill}")]);
        outcome.assert_prints("orphan: OK");
        outcome.assert_rescued();
    }
}

/// Groups of root until he may have no more, on one host.
fn fill(served: &Served) -> Client {
    let client = Client::connect(&served.address(1)).expect("the agent serves root");
    let members: Vec<_> = served.addresses();
    for token in 1.. {
        let members = members.clone();
        let spec = GroupSpec {
            secret: None,
            token,
            self_index: 1,
            members,
            window: 256,
            chunk_bytes: 1408,
            multicast: false,
        };
        match client.create_group(&spec) {
            Ok(group) => drop(group.cells),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
                break;
            }
        }
    }
    client
}

/// If an agent has no group left, the communicator is left to MPI, and a line says why; older groups stay.
#[test]
fn agents_may_have_no_group_left() {
    let _turn = turn();
    let served = Served::new(HOSTS);
    let client = fill(&served);
    let job = || Job::new(Mpi::Open, HOSTS).lab(&served.lab);
    let outcome = job().run("histogram", &[]);
    outcome.assert_prints("histogram: OK");
    assert_eq!(outcome.calls("Allreduce", "fold"), 0, "{:#}", outcome.stats);
    assert!(outcome.stderr.contains("which is the limit"), "{}", outcome.stderr);

    // One for MPI_COMM_WORLD, none for its duplicates.
    let slot = client.groups().expect("root sees them").first().expect("there are some").slot;
    client.destroy_group(slot).expect("it is his");
    let duplicates = job().env("FOLDBACK_SETUP_CALLS", "");
    let outcome = duplicates.run("duplicates", &["--cycles", "300"]);
    outcome.assert_prints("duplicates: 300 cycles ok");
    assert!(outcome.all_calls(Some("fold")) > 0, "{:#}", outcome.stats);
    assert!(outcome.calls_for("group not set up yet") > 0, "{:#}", outcome.stats);

    drop(client);
    served.await_no_groups();
    job().run("histogram", &[]).assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
}

/// A rank that becomes another user may have no agent make a group any more, and says so once. Sockets serve it.
#[test]
fn another_user_has_no_more_programs_and_hears_why() {
    let _turn = turn();
    let outcome = Job::new(Mpi::Open, 2).run("setuid", &[]);
    outcome.assert_prints("setuid: OK");
    outcome.assert_folded(&["Allreduce"]);
    let warned = outcome.stderr.lines().filter(|line| line.contains(" WARN "));
    let warned: Vec<_> = warned.filter(|line| line.contains(" h0 rank 0 ")).collect();
    let why = "this process has changed its user from 0 since MPI_Init (setuid, seteuid)";
    assert!(warned.len() == 1 && warned[0].ends_with(why), "{}", outcome.stderr);
    // An agent may have had cells for one more in stock, so it is either's trouble.
    assert!(warned[0].contains("folding by ordinary sockets alone"), "{warned:?}");
}
