//! Helpers of tests, by which a killed one leaves nothing: commands that end with it, files that
//! the next one removes.

#![allow(unsafe_code, reason = "only pre_exec tells a child what to do when its parent dies")]

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::prctl;
use nix::sys::signal::Signal;

/// The names of files are this, the process that they belong to, and more.
const PREFIX: &str = "foldback-test-";

/// A command that is told to end when the test does, be it killed: `foldback lab run` then takes its lab
/// down, and `timeout` passes the signal on. The thread that starts it must be the one that waits. Settings of the
/// tests' own environment do not count.
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("FOLDBACK")) {
            command.env_remove(name);
        }
    }
    // Nor does the file of the machine count.
    command.env("FOLDBACK_CONF", "");
    let die_with_us = || prctl::set_pdeathsig(Signal::SIGTERM).map_err(std::io::Error::from);
    // SAFETY: between fork and exec only prctl is called, which is a plain system call.
    unsafe { command.pre_exec(die_with_us) };
    command
}

/// A process that is killed when dropped.
#[allow(dead_code, reason = "not every test has processes of its own")]
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A path that no other test has.
pub fn unique_path(what: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    static SWEPT: Once = Once::new();
    SWEPT.call_once(sweep);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("{PREFIX}{}-{number}-{what}", std::process::id()))
}

/// Copies a file to where it may be executed. Another process writes it, because nobody can execute a file that
/// somebody has open for writing (ETXTBSY). Another thread may start a child meanwhile. Until the child executes its
/// own program, it has all open files of this process.
#[allow(dead_code, reason = "not every test has programs of its own")]
pub fn install(from: &Path, to: &Path) {
    let mut install = command("install");
    let status = install.args(["-m", "755"]).args([from, to]).status();
    assert!(status.expect("install").success(), "a copy of {}", from.display());
}

/// Writes a script that may be executed, in the same way.
#[allow(dead_code, reason = "not every test has programs of its own")]
pub fn install_script(script: &str, to: &Path) {
    let text = unique_path("script");
    std::fs::write(&text, script).expect("a file");
    install(&text, to);
    remove(&text);
}

/// Removes the files of tests that are gone.
fn sweep() {
    for entry in std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            remove(&entry.path());
        }
    }
}

/// Removes a file or a directory, if it is there.
pub fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
    let _ = std::fs::remove_dir_all(path);
}
