//! Network namespaces: making them, and working inside one.
//!
//! A namespace belongs to a thread, so all of this happens in threads of its own: the caller stays
//! where it is, and a child process starts where the thread that spawned it is.

use std::fs::{self, File};
use std::path::Path;
use std::thread;

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};

/// Makes a network namespace, kept alive by a mount on the file `pin`, and runs `f` inside.
pub fn create<T: Send>(pin: &Path, f: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    File::create(pin).with_context(|| format!("cannot create {}", pin.display()))?;
    in_thread(|| {
        unshare(CloneFlags::CLONE_NEWNET).context("cannot make a network namespace")?;
        let none: Option<&str> = None;
        mount(Some("/proc/thread-self/ns/net"), pin, none, MsFlags::MS_BIND, none)
            .with_context(|| format!("cannot mount {}", pin.display()))?;
        without_ipv6()?;
        f()
    })
}

/// Runs `f` in the namespace that `pin` keeps alive.
pub fn inside<T: Send>(pin: &Path, f: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    in_thread(|| {
        join(pin)?;
        f()
    })
}

/// Moves the calling thread into the namespace that `pin` keeps alive.
pub fn join(pin: &Path) -> Result<()> {
    let file = File::open(pin).with_context(|| format!("cannot open {}", pin.display()))?;
    setns(file, CloneFlags::CLONE_NEWNET)
        .with_context(|| format!("cannot enter the network namespace {}", pin.display()))
}

fn in_thread<T: Send>(f: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| match scope.spawn(f).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Turns IPv6 off, so that the only frames on the links are the job's own and ARP.
fn without_ipv6() -> Result<()> {
    for scope in ["all", "default"] {
        let file = format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
        // A kernel without IPv6 has no such file.
        if Path::new(&file).exists() {
            fs::write(&file, "1").with_context(|| format!("cannot write {file}"))?;
        }
    }
    Ok(())
}
