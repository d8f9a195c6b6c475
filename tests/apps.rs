//! Programs of others, unmodified, in labs of two hosts: with foldback they say the same as without,
//! and the kernel folds for them.
//!
//! `make setup-apps` installs them. Tests of missing programs say that they are skipped. Tests that
//! take minutes are ignored unless asked for (`make test-apps`).

#[path = "apps/containers.rs"]
mod containers;
#[path = "apps/gnn.rs"]
mod gnn;
#[path = "mpi/harness.rs"]
#[allow(dead_code, reason = "tests/mpi.rs uses the rest")]
mod harness;
#[path = "apps/hpcc.rs"]
mod hpcc;
#[path = "apps/keys.rs"]
mod keys;
#[path = "apps/netpipe.rs"]
mod netpipe;
#[path = "apps/osu.rs"]
mod osu;
#[path = "apps/python.rs"]
mod python;
#[path = "apps/science.rs"]
mod science;
#[path = "mpi/served.rs"]
#[allow(dead_code, reason = "tests/mpi.rs uses the rest")]
mod served;
#[path = "apps/slurm.rs"]
mod slurm;
#[path = "apps/training.rs"]
mod training;

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;

const HOSTS: u32 = 2;

/// Said past the test harness, which would hide it when the test succeeds.
fn skip(what: &str) {
    let _ = writeln!(std::io::stderr(), "apps: {what}, so its tests are skipped");
}

/// A program of Debian's; if there is none, says so.
fn debian(name: &str) -> Option<PathBuf> {
    let found = in_path(name.as_ref());
    if found.is_none() {
        skip(&format!("{name} is not installed (make setup-apps)"));
    }
    found
}

fn in_path(name: &OsStr) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}
