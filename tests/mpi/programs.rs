//! The other programs: progress, communicators, errors, what is not ours, and launching.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::harness::{
    FOLDBACK, HANG, Job, Mpi, Scratch, WITHOUT_FOLDBACK_ON_H1, command, library, program, succeed,
    turn, wait,
};

const BOTH: [Mpi; 2] = [Mpi::Open, Mpi::Mpich];

/// Ranks of MPICH do not yield, so there are not more of them than CPUs.
fn hosts(mpi: Mpi) -> u32 {
    if mpi == Mpi::Open { 3 } else { 2 }
}

#[test]
fn waiting_drives_the_real_mpi() {
    let _turn = turn();
    for mpi in BOTH {
        let outcome = Job::new(mpi, hosts(mpi)).run("progress", &[]);
        outcome.assert_prints("progress: all ok");
        outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
    }
}

#[test]
fn several_ranks_a_host_drive_the_real_mpi() {
    let _turn = turn();
    let outcome = Job::new(Mpi::Open, 2).ranks_per_host(2).run("progress", &[]);
    outcome.assert_prints("progress: all ok");
    outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
}

#[test]
fn communicators_of_every_making_work() {
    let _turn = turn();
    for mpi in BOTH {
        let outcome = Job::new(mpi, hosts(mpi)).run("subcomm", &["--cycles", "60"]);
        outcome.assert_prints("subcomm: all ok");
        outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
    }
    let job = Job::new(Mpi::Open, 2).ranks_per_host(3);
    let outcome = job.run("subcomm", &["--cycles", "60"]);
    outcome.assert_prints("subcomm: all ok");
    // Some communicators were of one host, but that says nothing of the job.
    assert!(outcome.stats["no_group"].is_null(), "{}", outcome.stats["no_group"]);
}

/// From their first call, by groups that serve one after the other.
#[test]
fn duplicates_of_the_world_are_folded_at_once() {
    let _turn = turn();
    for (mpi, hosts, ranks_per_host) in [(Mpi::Open, 3, 2), (Mpi::Mpich, 2, 1)] {
        let job = Job::new(mpi, hosts).ranks_per_host(ranks_per_host);
        let outcome = job.run("duplicates", &["--cycles", "300", "--under-way"]);
        outcome.assert_prints("duplicates: 300 cycles ok");
        assert_eq!(outcome.all_calls(Some("fold")), outcome.all_calls(None), "{:#}", outcome.stats);
        outcome.assert_folded(&["Allreduce", "Bcast", "Barrier"]);
    }
}

/// More of them alive than there are groups for; frames lost; and groups that do not grow in number.
#[test]
fn duplicates_come_and_go_in_numbers() {
    let _turn = turn();
    let outcome = Job::new(Mpi::Open, 2)
        .option(&["--loss", "1%", "--dup", "1%", "--reorder", "1%", "--faults-on", "udp"])
        .run("duplicates", &["--cycles", "300", "--alive", "64", "--calls", "3"]);
    outcome.assert_prints("duplicates: 300 cycles ok");
    outcome.assert_folded(&["Allreduce", "Bcast", "Barrier"]);
}

/// The first rank of a communicator waits as long as in MPI; not every rank of a program is there at once.
#[test]
fn a_rank_may_come_late_to_a_communicator() {
    let _turn = turn();
    let job = Job::new(Mpi::Open, 2).env("FOLDBACK_SETUP_TIMEOUT", "8");
    let outcome = job.run("subcomm", &["--late", "9", "--cycles", "6"]);
    outcome.assert_prints("subcomm: a late rank: ok");
    outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
}

/// It would go to the real MPI alone, and the others wait for it for ever.
#[test]
fn a_rank_without_foldback_ends_the_job_with_a_message() {
    let _turn = turn();
    let program = program(Mpi::Open, "histogram");
    let job = Job::new(Mpi::Open, 2).env("FOLDBACK_SETUP_TIMEOUT", "1");
    let said = job.run_path_to_failure(
        Path::new("/bin/sh"),
        &["-c", WITHOUT_FOLDBACK_ON_H1, "sh", program.to_str().unwrap()],
    );
    assert!(said.contains("did not answer within 1 s"), "{said}");
}

/// Groups take the kernel grace periods of RCU, which are long on a busy machine: time enough for those.
#[test]
#[ignore = "long: 1,000 communicators"]
fn a_thousand_communicators_come_and_go() {
    let _turn = turn();
    let job = Job::new(Mpi::Open, 2).timeout(1800);
    let outcome = job.run("subcomm", &["--cycles", "1000"]);
    outcome.assert_prints("1000 cycles");
}

#[test]
fn what_is_not_ours_goes_to_mpi() {
    let _turn = turn();
    for mpi in BOTH {
        let outcome = Job::new(mpi, hosts(mpi)).run("fallback", &[]);
        outcome.assert_prints("fallback: all ok");
        outcome.assert_folded(&["Allreduce"]);
        for reason in ["datatype", "op", "too large", "intercommunicator"] {
            assert!(outcome.calls_for(reason) > 0, "no {reason:?}: {:#}", outcome.stats);
        }
    }
}

const REDUCTIONS: &[&str] =
    &["Allreduce", "Reduce", "Reduce_scatter", "Reduce_scatter_block", "Scan", "Exscan"];

/// Bit for bit, on all ranks, whatever the rounding and whether the op commutes.
#[test]
fn what_the_kernel_does_not_fold_is_folded_in_the_order_of_ranks() {
    let _turn = turn();
    for mpi in BOTH {
        for (hosts, ranks) in [(2, 1), (4, 1), (2, 2)] {
            // Ranks of MPICH do not yield, and send each other what they compare with.
            let rounds = if mpi == Mpi::Mpich && hosts * ranks > 2 { "4" } else { "12" };
            let job = Job::new(mpi, hosts).ranks_per_host(ranks).env("FOLDBACK_SUM", "rank-order");
            let outcome = job.run("order", &["--exact", "--rounds", rounds]);
            outcome.assert_prints("order: all ok");
            outcome.assert_folded(REDUCTIONS);
            for collective in REDUCTIONS {
                let folded = outcome.calls_in_form(collective, "Nonblocking", "fold");
                assert!(folded > 0, "no non-blocking {collective}: {:#}", outcome.stats);
            }
            for reason in ["datatype", "op", "too large", "argument"] {
                assert_eq!(outcome.calls_for(reason), 0, "{reason:?}: {:#}", outcome.stats);
            }
        }
    }
}

/// By shards, each of which its host folds; with one rank on each, in the order of ranks as well.
#[test]
fn long_vectors_of_floating_point_are_folded_in_the_order_of_ranks() {
    let _turn = turn();
    for (mpi, hosts) in [(Mpi::Open, 2), (Mpi::Open, 3), (Mpi::Open, 4), (Mpi::Mpich, 2)] {
        let job = Job::new(mpi, hosts).env("FOLDBACK_SUM", "rank-order");
        let outcome = job.run("order", &["--exact", "--long", "--rounds", "12"]);
        outcome.assert_prints("order: all ok");
        for collective in ["Allreduce", "Reduce_scatter_block"] {
            let folded = outcome.calls_in_form(collective, "Nonblocking", "fold");
            assert!(folded > 0, "no non-blocking {collective}: {:#}", outcome.stats);
        }
        for reason in ["datatype", "op", "too large", "argument"] {
            assert_eq!(outcome.calls_for(reason), 0, "{reason:?}: {:#}", outcome.stats);
        }
    }
}

/// Rounded once, whatever the order, the number of ranks and the length; also where MPI brings the numbers together.
#[test]
fn sums_are_exact_where_that_is_asked_for() {
    let _turn = turn();
    let job = |mpi, hosts| Job::new(mpi, hosts).env("FOLDBACK_SUM", "exact");
    for (mpi, hosts, ranks) in
        [(Mpi::Open, 2, 1), (Mpi::Open, 4, 1), (Mpi::Open, 3, 2), (Mpi::Mpich, 2, 1)]
    {
        let job = job(mpi, hosts).ranks_per_host(ranks).env("FOLDBACK_MAX_BYTES", "");
        // Calls of all forms, many of them too long to be brought together at once.
        let long = ["--calls", "120", "--longest", "40000", "--waits", "1000000"];
        let outcome = job.run("sums", &long);
        outcome.assert_prints("sums: 120 calls ok");
        outcome.assert_folded(REDUCTIONS);
        assert!(!outcome.stderr.contains("a sum is not exact"), "{}", outcome.stderr);
    }
    let left = job(Mpi::Open, 3).env("FOLDBACK_ROUTE", "mpi");
    let outcome = left.run("sums", &["--calls", "120", "--longest", "40000", "--blocking"]);
    outcome.assert_prints("sums: 120 calls ok");
    assert!(!outcome.stderr.contains("a sum is not exact"), "{}", outcome.stderr);
    // Non-blocking sums cannot be helped, but are said.
    let outcome = job(Mpi::Open, 2).env("FOLDBACK_ROUTE", "mpi").run("sums", &[]);
    outcome.assert_prints("sums: 300 calls ok");
    let said = outcome.stderr.lines().filter(|line| line.contains("a sum is not exact"));
    assert_eq!(said.count(), 2, "once on each rank: {}", outcome.stderr);
}

/// The history of residuals of a solver's run by eight ranks on so many hosts.
pub fn history(mpi: Mpi, hosts: u32, sum: &str) -> String {
    let job = Job::new(mpi, hosts).ranks_per_host(8 / hosts);
    let outcome = job.env("FOLDBACK_SUM", sum).run("cg", &[]);
    let said = outcome.stdout.split("history ").nth(1).and_then(|rest| rest.split(',').next());
    let folded = outcome.calls("Allreduce", "fold");
    assert_eq!(folded > 0, hosts > 1, "{:#}", outcome.stats);
    said.expect("a history").to_owned()
}

/// Wherever they are: on one host nothing is folded, and who wants exact sums has them all the same.
#[test]
fn a_solver_has_one_history_on_any_number_of_hosts() {
    let _turn = turn();
    let one = history(Mpi::Open, 8, "");
    for (hosts, sum) in [(4, ""), (2, ""), (2, "exact"), (1, "exact")] {
        assert_eq!(history(Mpi::Open, hosts, sum), one, "on {hosts} hosts, FOLDBACK_SUM={sum}");
    }
}

/// Out of folded calls, and out of calls that the router leaves to the MPI.
#[test]
fn error_handlers_may_throw_or_jump() {
    let _turn = turn();
    for route in ["auto", "fold"] {
        let job = Job::new(Mpi::Open, 2).env("FOLDBACK_ROUTE", route);
        let outcome = job.run("handlers", &["--folded"]);
        outcome.assert_prints("handlers: all ok");
        outcome.assert_folded(&["Gather", "Allreduce"]);
    }
}

#[test]
fn foldback_off_folds_nothing() {
    let _turn = turn();
    let outcome = Job::new(Mpi::Open, 2).env("FOLDBACK", "off").run("histogram", &[]);
    outcome.assert_prints("histogram: OK");
    assert_eq!(outcome.calls("Allreduce", "fold"), 0);
}

/// In the statistics themselves and as `foldback stats` shows them.
#[test]
fn statistics_tell_type_op_and_all_bytes() {
    let _turn = turn();
    for mpi in BOTH {
        let outcome = Job::new(mpi, 2).run("counted", &[]);
        let text = |value: &Value| value.as_str().unwrap_or("–").to_owned();
        let names = ["collective", "form", "datatype", "op", "reason"];
        let lines = outcome.stats["collectives"].as_array().unwrap().iter();
        let lines = lines.map(|line| {
            let (calls, bytes) = (line["calls"].as_u64(), line["bytes"].as_u64());
            let names = names.map(|name| text(&line[name])).join(" ");
            format!("{names} {} {}", calls.unwrap(), bytes.unwrap())
        });
        let lines: Vec<String> = lines.collect();
        for want in [
            "Allgatherv Blocking MPI_DOUBLE – – 2 2400",
            "Reduce_scatter Blocking MPI_DOUBLE MPI_MAX – 2 2400",
            "Bcast Blocking derived – – 2 48",
            "Allreduce Blocking MPI_INT user op – 2 24",
            "Allreduce Nonblocking MPI_INT user op op 2 24",
            "Allreduce Persistent MPI_LONG_LONG_INT MPI_SUM – 6 48",
            "Allreduce Blocking MPI_UNSIGNED_CHAR MPI_MAX too large 2 2097152",
            "Allreduce Blocking – – empty 2 0",
            "Gather Blocking MPI_INT – – 2 8",
            "Barrier Blocking – – – 2 0",
        ] {
            assert!(lines.iter().any(|line| line == want), "no {want:?} in {lines:#?}");
        }
        let folded = "foldback: folded 18 of 24 collective calls on 2 hosts; 6 left to MPI: ";
        let told = outcome.stderr.lines().filter(|line| line.starts_with(folded));
        assert_eq!(told.count(), 1, "{}", outcome.stderr);

        let file = Scratch::new("stats.json");
        std::fs::write(file.path(), outcome.stats.to_string()).unwrap();
        let stats = |path: &Path| command(FOLDBACK).arg("stats").arg(path).output().unwrap();
        let shown = String::from_utf8(stats(file.path()).stdout).unwrap();
        for want in ["persistent   MPI_LONG_LONG_INT", "MPI: too large", "h1    eth0"] {
            assert!(shown.contains(want), "no {want:?} in\n{shown}");
        }
        std::fs::write(file.path(), "{}").unwrap();
        let refused = stats(file.path());
        let told = String::from_utf8(refused.stderr).unwrap();
        assert!(told.contains("is no statistics of this version") && told.lines().count() == 1);
        assert_eq!(refused.status.code(), Some(1));
    }
}

#[test]
fn nothing_is_reported_unless_asked_for() {
    let _turn = turn();
    let report = |value| {
        let job = Job::new(Mpi::Open, 2).env("FOLDBACK_REPORT", value);
        let told = job.run("counted", &[]).stderr;
        // Of the report, and not of the log, where an agent tells what a rank has folded.
        told.lines().filter(|line| !line.starts_with('[') && line.contains("folded")).count()
    };
    assert_eq!(report("off"), 0);
    assert!(report("full") > 5);
}

#[test]
fn settings_that_nobody_reads_are_told_once_with_host_and_rank() {
    let _turn = turn();
    let outcome = Job::new(Mpi::Open, 2)
        .env("FOLDBACK_MAXBYTES", "7")
        .env("FOLDBACK_LOG", "loud=what=ever")
        .run("counted", &[]);
    let told = |text| outcome.stderr.lines().filter(|line| line.contains(text)).collect::<Vec<_>>();
    let unknown = told("FOLDBACK_MAXBYTES is no setting of foldback: is FOLDBACK_MAX_BYTES meant?");
    assert!(unknown.len() == 1 && unknown[0].contains(" h0 rank 0 "), "{}", outcome.stderr);
    assert!(!told("FOLDBACK_LOG=loud=what=ever: error, warn, info").is_empty());
    outcome.assert_folded(&["Allreduce"]);
}

/// As srun does without `--mpi`: each task is a job of its own.
#[test]
fn tasks_that_are_no_ranks_of_one_job_are_told() {
    let _turn = turn();
    for (rank, is_told) in [("0", true), ("1", false)] {
        let mut task = command(program(Mpi::Open, "histogram").to_str().expect("a plain path"));
        task.env("LD_PRELOAD", library()).env("FOLDBACK_REPORT", "line");
        task.env("SLURM_STEP_NUM_TASKS", "2").env("SLURM_PROCID", rank);
        let (stdout, stderr) = succeed(&mut task, HANG);
        assert!(stdout.contains("histogram: OK"), "{stdout}");
        let why =
            "MPI_COMM_WORLD is left to MPI: there is one rank, though SLURM_STEP_NUM_TASKS=2: ";
        let lines: Vec<_> = stderr.lines().filter(|line| line.contains(why)).collect();
        assert_eq!(lines.iter().any(|line| line.contains(" WARN ")), is_told, "{stderr}");
        assert!(lines.last().is_some_and(|line| line.starts_with("foldback: folded 0 of ")));
    }
}

/// A rank that waits for a frame does not learn that another is gone.
#[test]
fn jobs_that_may_lose_ranks_are_left_to_mpi() {
    let _turn = turn();
    let job = Job::new(Mpi::Open, 2).option(&["-x", "OMPI_MCA_mpi_ft_enable=1"]);
    let outcome = job.run("histogram", &[]);
    outcome.assert_prints("histogram: OK");
    assert!(outcome.stats.is_null(), "foldback was there: {:#}", outcome.stats);
    assert!(outcome.stderr.contains("OMPI_MCA_mpi_ft_enable"), "{}", outcome.stderr);
}

/// `foldback run` on this one host: nothing to fold, but the library is there and counts.
#[test]
fn either_launcher_gets_the_library_to_the_ranks() {
    let _turn = turn();
    // An option of the user's preloads something, too.
    for (mpi, launcher, preloads) in [
        (Mpi::Open, "mpirun.openmpi", ["-x", "LD_PRELOAD=libm.so.6"].as_slice()),
        (Mpi::Mpich, "mpiexec.hydra", &["-genv", "LD_PRELOAD", "libm.so.6"]),
    ] {
        let stats = Scratch::new("run.json");
        let mut command = command(FOLDBACK);
        command.args(["run", "--", launcher]).args(preloads);
        command.args(["-n", "2"]).arg(program(mpi, "histogram"));
        command.env("FOLDBACK_LIB", library()).env("FOLDBACK_STATS", stats.path());
        for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
            command.env(name, "1");
        }
        command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        let (stdout, stderr) = succeed(&mut command, HANG);
        assert!(stdout.contains("histogram: OK"), "{launcher}: {stdout}");
        let why = "MPI_COMM_WORLD is left to MPI: all ranks are on one host";
        let told = stderr.lines().find(|line| line.starts_with("foldback: folded 0 of "));
        assert!(told.is_some_and(|line| line.ends_with(why)), "{launcher}: {stderr}");
        let text = std::fs::read_to_string(stats.path()).expect("statistics were written");
        let stats: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(stats["ranks"], 2, "{launcher}: {text}");
    }
}

/// `foldback run` of two ranks that stay, on this host. Returns what it says up to a line with these words, and ends
/// it.
fn said_of_long_job(launcher: &str, program: &[&str], words: &str) -> String {
    let mut command = command(FOLDBACK);
    command.args(["run", "--", launcher, "-n", "2"]).args(program);
    command.env("FOLDBACK_LIB", library()).env("FOLDBACK_LOG", "info");
    for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
        command.env(name, "1");
    }
    for name in ["OMPI_MCA_rmaps_base_oversubscribe", "OMPI_MCA_mpi_yield_when_idle"] {
        command.env(name, "1");
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (lines, heard) = channel();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let reader = thread::spawn(move || {
        stderr.lines().map_while(Result::ok).try_for_each(|line| lines.send(line))
    });
    let (end, mut said) = (Instant::now() + HANG, String::new());
    while let Ok(line) = heard.recv_timeout(end.saturating_duration_since(Instant::now())) {
        said += &format!("{line}\n");
        if line.contains(words) {
            break;
        }
    }
    let is_running = child.try_wait().unwrap().is_none();
    let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM);
    let status = wait(&mut child, HANG);
    drop(heard);
    let _ = reader.join();
    assert!(is_running && status.is_some(), "{launcher}: {status:?}\n{said}");
    said
}

/// A wrapper drops LD_PRELOAD: said while the job runs. With the library in the ranks, nothing is.
#[test]
fn ranks_without_the_library_are_told() {
    let _turn = turn();
    for (mpi, launcher) in [
        (Mpi::Open, "bin/mpirun.openmpi"),
        (Mpi::Mpich, "bin/mpiexec.hydra"),
        (Mpi::Open5, "bin/mpirun"),
        (Mpi::Mpich5, "bin/mpiexec"),
    ] {
        if !mpi.installed() {
            continue;
        }
        let launcher = mpi.directory().join(launcher);
        let (launcher, program) = (launcher.to_str().unwrap(), program(mpi, "conformance"));
        let program = [program.to_str().unwrap(), "--calls", "1000000000", "--max-bytes", "8"];
        let without = [&["env", "-u", "LD_PRELOAD"], program.as_slice()].concat();
        let told = "the ranks on this host run without foldback: process ";
        let said = said_of_long_job(launcher, &without, told);
        assert!(said.contains(told) && said.contains("(conformance) has loaded libmpi"), "{said}");
        let said = said_of_long_job(launcher, &program, "(conformance) is a rank with foldback");
        assert!(said.contains("a rank with") && !said.contains("without foldback"), "{said}");
    }
}

/// It can be seen beforehand.
#[test]
fn a_static_program_is_told_before_it_starts() {
    let _turn = turn();
    let program = Scratch::new("static");
    let source = "int main(void) { return 0; }";
    let script = format!("echo '{source}' | gcc -x c -static -o \"$0\" -");
    let compiled = Command::new("sh").args(["-c", &script]).arg(program.path()).status();
    assert!(compiled.unwrap().success());
    let mut command = command(FOLDBACK);
    command.args(["run", "--", "mpiexec.hydra", "-n", "1"]).arg(program.path());
    command.env("FOLDBACK_LIB", library());
    let (_, stderr) = succeed(&mut command, HANG);
    let told =
        format!("{} runs without foldback: it is statically linked", program.path().display());
    assert!(stderr.contains(&told), "{stderr}");
}
