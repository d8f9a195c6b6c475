//! Network namespaces: making them, and working inside one.
//!
//! A namespace belongs to a thread, so all of this happens in separate threads and the caller keeps
//! its namespace. A child process starts in the namespace of the thread that spawned it.

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
        plain_network()?;
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

/// Turns off what is not part of a cluster's fabric. Without IPv6 the links carry only the job's own
/// frames and ARP. The packet filter on bridged frames takes a quarter of a frame's time through the
/// bridge; a switch has none.
fn plain_network() -> Result<()> {
    for (file, value) in [
        ("ipv6/conf/all/disable_ipv6", "1"),
        ("ipv6/conf/default/disable_ipv6", "1"),
        ("bridge/bridge-nf-call-iptables", "0"),
        ("bridge/bridge-nf-call-ip6tables", "0"),
        ("bridge/bridge-nf-call-arptables", "0"),
    ] {
        let file = format!("/proc/sys/net/{file}");
        // A kernel built without one of them has no such file.
        if Path::new(&file).exists() {
            fs::write(&file, value).with_context(|| format!("cannot write {file}"))?;
        }
    }
    Ok(())
}
