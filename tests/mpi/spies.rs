//! Another user on every host, who wants the tokens of a job's groups: whoever has one can forge frames.

use std::io::{Read, read_to_string, stdin};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use foldback::bindings::FB_UDP_PORT;
use nix::unistd::{Uid, setuid};

use crate::enemy::bind_port;
use crate::harness::{Job, Mpi, turn};
use crate::served::{HOSTS, NOBODY, Served};

const SPY: u32 = 65533;
const ROLE: &str = "FOLDBACK_TEST_ROLE";

/// Not a test: the spy. Tries to bind the port of all frames until its input ends, and says how often it
/// tried, how often it had the port, and how many datagrams came.
#[test]
fn role() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    setuid(Uid::from_raw(SPY)).expect("root may be anybody");
    static OVER: AtomicBool = AtomicBool::new(false);
    thread::spawn(|| {
        let _ = stdin().read(&mut [0]);
        OVER.store(true, Ordering::Relaxed);
    });
    let (mut tries, mut bound, mut frames) = (0, 0, 0);
    while !OVER.load(Ordering::Relaxed) {
        tries += 1;
        let Some(socket) = bind_port(FB_UDP_PORT as u16) else {
            thread::sleep(Duration::from_micros(200));
            continue;
        };
        bound += 1;
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        while socket.recv(&mut [0; 2048]).is_ok() {
            frames += 1;
        }
    }
    println!("\nspy: {tries} tries, {bound} bound, {frames} frames");
}

struct Spy(Child);

impl Spy {
    fn start(served: &Served, host: u32) -> Self {
        let child = served
            .lab
            .on(host)
            .arg(std::env::current_exe().expect("this test has a path"))
            .args(["spies::role", "--exact", "--nocapture"])
            .env(ROLE, "spy")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the spy starts");
        Self(child)
    }

    /// Tells it to end. Returns what it says.
    fn report(mut self) -> String {
        drop(self.0.stdin.take());
        let said = read_to_string(self.0.stdout.take().expect("piped")).expect("text");
        self.0.wait().expect("its status");
        said.lines().find(|line| line.starts_with("spy: ")).expect("the spy reports").to_owned()
    }
}

#[test]
fn nobody_sees_a_token_while_groups_come_and_go() {
    let _turn = turn();
    let served = Served::new(HOSTS);
    let spies: Vec<_> = (0..HOSTS).map(|host| Spy::start(&served, host)).collect();
    let outcome = Job::new(Mpi::Open, HOSTS)
        .lab(&served.lab)
        .option(&["--as-user", NOBODY])
        .readable_by_all()
        .run("subcomm", &["--cycles", "50"]);
    outcome.assert_prints("50 cycles");
    outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
    for spy in spies {
        let report = spy.report();
        assert!(!report.contains("spy: 0 tries"), "{report}");
        assert!(report.ends_with(" tries, 0 bound, 0 frames"), "{report}");
    }
}
