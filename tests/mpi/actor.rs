//! A process beside a job that is this very test binary, in a role. A test that is called as the role plays it.

use std::io::{Read, read_to_string, stdin};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const ROLE: &str = "FOLDBACK_TEST_ROLE";
/// Begins the line that an actor says.
const SAYS: &str = "actor: ";

pub struct Actor(Child);

impl Actor {
    /// Has `role` played where `there` runs programs: a command whose arguments are still to be given.
    pub fn start(mut there: Command, role: &str) -> Self {
        let child = there
            .arg(std::env::current_exe().expect("this test has a path"))
            .args([role, "--exact", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the actor starts");
        Self(child)
    }

    /// Tells it to end. Returns what it says.
    pub fn report(mut self) -> String {
        drop(self.0.stdin.take());
        let said = read_to_string(self.0.stdout.take().expect("piped")).expect("text");
        self.0.wait().expect("its status");
        said.lines().find_map(|line| line.strip_prefix(SAYS)).expect("it reports").to_owned()
    }
}

/// Whether this process is the actor of `role`.
pub fn plays(role: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|played| played == role)
}

/// Acts again and again until the test tells this process to end.
pub fn until_told(mut act: impl FnMut()) {
    static OVER: AtomicBool = AtomicBool::new(false);
    thread::spawn(|| {
        let _ = stdin().read(&mut [0]);
        OVER.store(true, Ordering::Relaxed);
    });
    while !OVER.load(Ordering::Relaxed) {
        act();
    }
}

/// Says what this process has done.
pub fn say(text: &str) {
    // The first line of a test follows libtest's own words.
    println!("\n{SAYS}{text}");
}
