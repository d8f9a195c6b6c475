//! Every collective in every form, from every language, amid everything else that a program may do.

use std::path::Path;
use std::process::Command;

use crate::harness::{
    COLLECTIVES, Job, Mpi, Outcome, Scratch, command, install_script, library, program, turn,
};

/// Random collectives. `--real-above -1` allows for the known errors of real MPIs in their own
/// calls.
fn random(job: Job, batches: &str, form: &str) -> Outcome {
    let arguments = ["--batches", batches, "--form", form, "--real-above", "-1"];
    let outcome = job.run("collectives", &arguments);
    outcome.assert_prints(&format!("collectives: {batches} batches ok"));
    outcome
}

fn assert_form_folded(outcome: &Outcome, form: &str) {
    for collective in COLLECTIVES {
        let folded = outcome.calls_in_form(collective, form, "fold");
        assert!(folded > 0, "no {form} {collective} was folded: {:#}", outcome.stats);
    }
}

#[test]
fn blocking_collectives_of_every_kind_are_folded() {
    let _turn = turn();
    for mpi in [Mpi::Open, Mpi::Mpich] {
        assert_form_folded(&random(Job::new(mpi, 2), "100", "blocking"), "Blocking");
    }
    assert_form_folded(&random(Job::new(Mpi::Open, 3), "100", "blocking"), "Blocking");
    random(Job::new(Mpi::Open, 2).ranks_per_host(3), "60", "blocking");
}

/// Nothing is folded: each wrong answer of the real MPI is one that mpi-tests/lib/deviation.c names.
#[test]
fn the_real_mpi_does_wrong_only_what_is_known_of_it() {
    let _turn = turn();
    let job = Job::new(Mpi::Mpich, 2).ranks_per_host(2).option(&["--off"]);
    let arguments = ["--only", "Reduce", "--batches", "100", "--real-above", "-1"];
    job.run("collectives", &arguments).assert_prints("collectives: 100 batches ok");
}

#[test]
fn nonblocking_collectives_of_every_kind_are_folded() {
    let _turn = turn();
    assert_form_folded(&random(Job::new(Mpi::Open, 2), "100", "nonblocking"), "Nonblocking");
    assert_form_folded(&random(Job::new(Mpi::Open, 4), "100", "nonblocking"), "Nonblocking");
    random(Job::new(Mpi::Open, 2).ranks_per_host(2), "60", "nonblocking");
}

#[test]
fn persistent_collectives_are_folded() {
    let _turn = turn();
    let outcome = random(Job::new(Mpi::Open, 2), "40", "persistent");
    for collective in ["Allreduce", "Reduce", "Bcast", "Barrier"] {
        let folded = outcome.calls_in_form(collective, "Persistent", "fold");
        assert!(folded > 0, "no persistent {collective}: {:#}", outcome.stats);
    }
    random(Job::new(Mpi::Open, 2).ranks_per_host(2), "30", "persistent");
    let again = Job::new(Mpi::Open, 2).ranks_per_host(2).run("again", &[]);
    again.assert_prints("again: all ok");
    assert_eq!(again.calls_for("too many persistent collectives"), 0, "{:#}", again.stats);
}

#[test]
fn forms_mix_while_frames_are_lost() {
    let _turn = turn();
    let faults = ["--loss", "1%", "--dup", "1%", "--reorder", "1%", "--faults-on", "udp"];
    random(Job::new(Mpi::Open, 3).option(&faults), "60", "any");
}

/// Of two hosts, in `families.rs`.
#[test]
fn operations_under_way_go_on_whatever_the_program_does() {
    let _turn = turn();
    Job::new(Mpi::Open, 4).run("zoo", &[]).assert_prints("zoo: all ok");
    Job::new(Mpi::Open, 2).ranks_per_host(2).run("zoo", &[]).assert_prints("zoo: all ok");
}

/// A process that wants all the CPU it can get, for some time at most.
struct Busy(std::process::Child);

impl Busy {
    fn start() -> Self {
        let arguments = ["100", "sh", "-c", "while :; do :; done"];
        Self(command("timeout").args(arguments).spawn().expect("timeout starts"))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // Not kill: timeout passes this on.
        let _ = nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(self.0.id() as i32),
            nix::sys::signal::Signal::SIGTERM,
        );
        let _ = self.0.wait();
    }
}

/// Waiting threads must leave the CPU to the threads that they wait for: zoo, beside a busy process,
/// once stood still for a minute.
#[test]
fn operations_under_way_go_on_beside_a_busy_process() {
    let _turn = turn();
    let _busy = Busy::start();
    let outcome = Job::new(Mpi::Open, 2).ranks_per_host(2).run("zoo", &[]);
    outcome.assert_prints("zoo: all ok");
}

#[test]
fn threads_make_collectives_side_by_side() {
    let _turn = turn();
    for level in ["multiple", "serialized", "funneled"] {
        let outcome = Job::new(Mpi::Open, 2).run("threads", &["--level", level]);
        outcome.assert_prints("threads: all ok");
        outcome.assert_folded(&["Allreduce"]);
    }
    Job::new(Mpi::Mpich, 2).run("threads", &[]).assert_prints("threads: all ok");
}

/// Callbacks, signals, forks, errno and the floating-point environment.
#[test]
fn surroundings_do_no_harm_and_come_to_none() {
    let _turn = turn();
    for mpi in [Mpi::Open, Mpi::Mpich] {
        let outcome = Job::new(mpi, 2).run("surroundings", &["--folded"]);
        outcome.assert_prints("surroundings: all ok");
        outcome.assert_folded(&["Allreduce"]);
    }
}

#[test]
fn fortran_and_cplusplus_are_folded() {
    let _turn = turn();
    for mpi in [Mpi::Open, Mpi::Mpich] {
        for program in ["fortran_mpif", "fortran_use", "fortran_f08", "cxx"] {
            let outcome = Job::new(mpi, 2).run(program, &[]);
            outcome.assert_prints(&format!("{program}: all ok"));
            outcome.assert_folded(&["Allreduce", "Bcast", "Barrier"]);
            let nonblocking = outcome.calls_in_form("Allreduce", "Nonblocking", "fold");
            assert!(nonblocking > 0, "{program} on {mpi:?}: {:#}", outcome.stats);
            if program != "cxx" {
                // The first calls on communicators that were made with a topology.
                let folded = outcome.calls_in_form("Neighbor_alltoall", "Nonblocking", "fold");
                assert_eq!(folded, 2 * 20, "{program} on {mpi:?}: {:#}", outcome.stats);
            }
            // On the duplicates that have a hint, and once on each.
            let quantized = if program == "cxx" { 0 } else { 2 * 20 };
            assert_eq!(outcome.quantized("Allreduce"), quantized, "{program} on {mpi:?}");
        }
    }
}

/// A C++ program that is linked with foldback, by what `make install` leaves, needs no LD_PRELOAD.
#[test]
fn a_program_may_be_linked_with_foldback_instead() {
    let _turn = turn();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (prefix, program) = (Scratch::new("prefix"), Scratch::new("linked"));
    let prefix = prefix.path();
    // Knows the unit of this prefix, and writes down whatever else it is asked.
    let (tools, asked) = (Scratch::new("tools"), Scratch::new("asked"));
    let unit = prefix.join("lib/systemd/system/foldback-agent.service");
    let systemctl = tools.path().join("systemctl");
    let (unit, log) = (unit.display(), asked.path().display());
    std::fs::create_dir(tools.path()).unwrap();
    let script = format!("#!/bin/sh\n[ $1 = show ] && echo {unit} || echo $* >>{log}\n");
    install_script(&script, &systemctl);
    let search = format!("{}:{}", tools.path().display(), std::env::var("PATH").unwrap());
    let install = |what| {
        let script = Command::new(root.join("scripts/install.sh"))
            .arg(what)
            .env("PREFIX", prefix)
            .env("LIBRARY", library())
            .env("PATH", &search)
            .status();
        assert!(script.expect("the script starts").success());
    };
    install("install");

    let flags = Command::new("pkg-config")
        .args(["--cflags", "--libs", "foldback"])
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .output()
        .expect("pkg-config");
    let flags = String::from_utf8(flags.stdout).unwrap();
    let built = Command::new("mpicxx.openmpi")
        .args(["-std=c++17", "-include", "foldback.h", "-o"])
        .arg(program.path())
        .arg(root.join("mpi-tests/cxx.cpp"))
        .args(flags.split_whitespace())
        .arg(format!("-Wl,-rpath,{}/lib", prefix.display()))
        .status()
        .expect("the compiler");
    assert!(built.success(), "{flags}");
    // Nothing is preloaded.
    let options = ["--off", "-x", "FOLDBACK=on"];
    let outcome = Job::new(Mpi::Open, 2).option(&options).run_path(program.path(), &[]);
    outcome.assert_prints("cxx: all ok");
    outcome.assert_folded(&["Allreduce"]);

    let installed = prefix.join("bin/foldback");
    let doctor = command(&installed).arg("doctor").output().unwrap();
    let found = format!("ok  {}", prefix.join("lib/libfoldback.so").display());
    assert!(String::from_utf8(doctor.stdout).unwrap().contains(&found), "{found}");
    for file in ["share/man/man1/foldback-run.1", "share/bash-completion/completions/foldback"] {
        assert!(prefix.join(file).is_file(), "{file}");
    }
    install("uninstall");
    let left = Command::new("find").arg(prefix).args(["!", "-type", "d"]).output().unwrap().stdout;
    assert!(left.is_empty(), "{}", String::from_utf8_lossy(&left));
    let asked = std::fs::read_to_string(asked.path()).unwrap();
    assert_eq!(asked, "disable --now foldback-agent.service\n");
}

/// Runs `surroundings` under a profiling library that comes before foldback, and wraps what is `defined`. One line
/// names what it `takes`.
fn under_a_tool(defined: &str, takes: &str) -> Outcome {
    let tool = Scratch::new("tool.so");
    let built = Command::new("mpicc.openmpi")
        .args(["-shared", "-fPIC", defined, "-o"])
        .arg(tool.path())
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mpi/tool.c"))
        .status();
    assert!(built.expect("the compiler").success());
    let program = program(Mpi::Open, "surroundings");
    let (tool, program) = (tool.path().display(), program.display());
    let script = format!("LD_PRELOAD={tool}:$LD_PRELOAD exec {program}");
    let outcome = Job::new(Mpi::Open, 2).run_path(Path::new("/bin/sh"), &["-c", &script]);
    outcome.assert_prints("surroundings: all ok");
    let lines = outcome.stderr.matches(&format!("takes {takes} before foldback")).count();
    assert_eq!(lines, 1, "{}", outcome.stderr);
    outcome
}

/// Its waits never come to foldback, so nothing that is waited for is folded; once, folded requests were never
/// complete.
#[test]
fn a_tool_may_take_the_waits() {
    let _turn = turn();
    let outcome = under_a_tool("-DWAITS", "MPI_Wait and 1 more");
    outcome.assert_folded(&["Allreduce", "Bcast"]);
    assert_eq!(outcome.calls_in_form("Allreduce", "Nonblocking", "fold"), 0);
    assert!(outcome.calls_for("waits that foldback does not see") > 0, "{:#}", outcome.stats);
}

#[test]
fn a_tool_that_takes_collectives_is_named() {
    let _turn = turn();
    let outcome = under_a_tool("-DCOLLECTIVES", "MPI_Allreduce");
    assert_eq!(outcome.calls_in_form("Allreduce", "Blocking", "fold"), 0);
    assert!(outcome.calls_in_form("Allreduce", "Nonblocking", "fold") > 0, "{:#}", outcome.stats);
}
