//! Another user on every host, who wants the tokens of a job's groups: whoever has one can forge frames.

use std::thread;
use std::time::Duration;

use foldback::bindings::FB_UDP_PORT;
use nix::unistd::{Uid, setuid};

use crate::actor::{Actor, plays, say, until_told};
use crate::enemy::bind_port;
use crate::harness::{Job, Mpi, turn};
use crate::served::{HOSTS, NOBODY, Served};

const SPY: u32 = 65533;
const ROLE: &str = "spies::role";

/// Not a test: the spy. Tries to bind the port of all frames until it is told to end. Says how often it
/// tried, how often it had the port, and the number of datagrams that came.
#[test]
fn role() {
    if !plays(ROLE) {
        return;
    }
    setuid(Uid::from_raw(SPY)).expect("root may be anybody");
    let (mut tries, mut bound, mut frames) = (0, 0, 0);
    until_told(|| {
        tries += 1;
        let Some(socket) = bind_port(FB_UDP_PORT as u16) else {
            return thread::sleep(Duration::from_micros(200));
        };
        bound += 1;
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        while socket.recv(&mut [0; 2048]).is_ok() {
            frames += 1;
        }
    });
    say(&format!("{tries} tries, {bound} bound, {frames} frames"));
}

#[test]
fn nobody_sees_a_token_while_groups_come_and_go() {
    let _turn = turn();
    let served = Served::new(HOSTS);
    let spies: Vec<_> = (0..HOSTS).map(|host| Actor::start(served.lab.on(host), ROLE)).collect();
    let outcome = Job::new(Mpi::Open, HOSTS)
        .lab(&served.lab)
        .option(&["--as-user", NOBODY])
        .readable_by_all()
        .run("subcomm", &["--cycles", "50"]);
    outcome.assert_prints("50 cycles");
    outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
    for spy in spies {
        let report = spy.report();
        assert!(!report.starts_with("0 tries"), "{report}");
        assert!(report.ends_with(" tries, 0 bound, 0 frames"), "{report}");
    }
}
