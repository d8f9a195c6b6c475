//! NetPIPE, which sends messages of many sizes to and fro: nothing for foldback but barriers, which
//! must not get between the messages.

use crate::harness::{Job, Mpi, turn};
use crate::{HOSTS, debian};

fn netpipe(mpi: Mpi, name: &str) {
    let Some(netpipe) = debian(name) else { return };
    let _turn = turn();
    // Checks what arrives, in place of measuring; 20 messages of each size.
    let arguments = ["-i", "-l", "1", "-u", "65536", "-n", "20", "-o", "/dev/null"];
    let run = |job: Job| {
        let outcome = job.run_path(&netpipe, &arguments);
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        (outcome, said.matches("Integrity check passed").count(), said)
    };
    let (outcome, with, said) = run(Job::new(mpi, HOSTS));
    let (_, without, _) = run(Job::new(mpi, HOSTS).option(&["--off"]));
    assert!(with > 20, "{said}");
    assert_eq!(with, without, "{said}");
    assert!(!said.contains("Integrity check failed"), "{said}");
    outcome.assert_folded(&["Barrier"]);
}

#[test]
fn netpipe_finds_its_messages_whole_on_open_mpi() {
    netpipe(Mpi::Open, "NPopenmpi");
}

#[test]
fn netpipe_finds_its_messages_whole_on_mpich() {
    netpipe(Mpi::Mpich, "NPmpich2");
}
