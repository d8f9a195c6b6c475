//! Hosts as network namespaces, and a bridge between them.
//!
//! ```text
//!   namespace of host 0   eth0 10.66.0.1 ─┐
//!   namespace of host 1   eth0 10.66.0.2 ─┤ p0, p1, … ─ bridge br0, in a namespace of its own
//!   …                                    ─┘
//! ```
//!
//! The namespaces have no names: each belongs to a thread, and goes with it, its interfaces and
//! whatever is attached to them included. So a test that panics, or is killed, leaves nothing.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{geteuid, gettid};

/// How long the hosts wait for each other, or for a frame, before they give up.
pub const PATIENCE: Duration = Duration::from_secs(200);

/// Address of a host.
pub fn address(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 66, 0, 1 + host)
}

/// Runs `host` in namespaces at once, each in a thread of its own and on a link of its MTU, with the bridge between
/// them. `bridged`: the link is in a bridge of the host's, as where virtual machines have a part in it.
pub fn run_hosts(
    mtus: &[u32],
    bridged: bool,
    host: impl Fn(u8, &Meeting, &Bridge) + Send + Sync + 'static,
) {
    assert!(geteuid().is_root(), "this test needs root: it makes network namespaces and loads BPF");
    let bridge = Bridge::new();
    let count = mtus.len() as u8;
    let meeting = Arc::new(Meeting::new(count));
    let host = Arc::new(host);
    let (finished, hosts) = channel();
    for (index, mtu) in (0..count).zip(mtus.iter().copied()) {
        let (meeting, host) = (Arc::clone(&meeting), Arc::clone(&host));
        let (bridge, finished) = (bridge.clone(), finished.clone());
        let work = move || {
            let leaving = Leaving(&meeting);
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
            plug_in(index, mtu, bridged, &bridge);
            host(index, &meeting, &bridge);
            std::mem::forget(leaving);
        };
        let body = move || {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            let _ = finished.send(result);
        };
        thread::Builder::new().name(format!("host {index}")).spawn(body).expect("a thread");
    }
    let end = Instant::now() + 4 * PATIENCE;
    let results: Vec<_> = (0..count)
        .map(|_| {
            let left = end.saturating_duration_since(Instant::now());
            hosts.recv_timeout(left).expect("a host hangs")
        })
        .collect();
    if let Some(panic) = results.into_iter().find_map(Result::err) {
        std::panic::resume_unwind(panic);
    }
}

/// The bridge, a thread in a namespace that runs what it is given. It lasts as long as this.
#[derive(Clone)]
pub struct Bridge(Sender<Order>);

type Order = Box<dyn FnOnce() + Send>;

impl Bridge {
    fn new() -> Self {
        let (orders, work): (_, Receiver<Order>) = channel();
        thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
            without_ipv6();
            ip("link add br0 type bridge forward_delay 0");
            ip("link set br0 up");
            work.into_iter().for_each(|order| order());
        });
        Self(orders)
    }

    /// Runs `commands` of iproute2's `ip` at the bridge, and waits until it has.
    fn run(&self, commands: Vec<String>) {
        let (done, over) = channel();
        let order = move || {
            commands.iter().for_each(|command| drop(ip(command)));
            let _ = done.send(());
        };
        self.0.send(Box::new(order)).expect("there is a bridge");
        over.recv_timeout(PATIENCE).expect("the bridge does as it is told");
    }

    /// Forgets which MAC address is behind the cable of a host.
    pub fn forget(&self, host: u8) {
        self.run(vec![format!("link set p{host} type bridge_slave fdb_flush")]);
    }
}

fn plug_in(host: u8, mtu: u32, bridged: bool, bridge: &Bridge) {
    without_ipv6();
    let thread = gettid();
    let link = if bridged { "eth1" } else { "eth0" };
    bridge.run(vec![
        format!("link add p{host} mtu {mtu} type veth peer name {link} mtu {mtu} netns {thread}"),
        format!("link set p{host} master br0"),
        // A host sees what is for its own MAC address, as behind a NIC.
        format!("link set p{host} type bridge_slave flood off"),
        format!("link set p{host} up"),
    ]);
    ip("link set lo up");
    if bridged {
        ip(&format!("link add eth0 mtu {mtu} type bridge forward_delay 0"));
        ip("link set eth1 master eth0");
        ip("link set eth1 up");
    }
    ip(&format!("address add {}/24 dev eth0", address(host)));
    ip("link set eth0 up");
}

/// So that the only frames are the hosts' own, and ARP.
fn without_ipv6() {
    for scope in ["all", "default"] {
        let file = format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
        if Path::new(&file).exists() {
            fs::write(&file, "1").expect("IPv6 can be turned off");
        }
    }
}

/// Runs `ip` in this thread's namespace, and returns what it prints.
pub fn ip(arguments: &str) -> String {
    command("ip", arguments)
}

/// The same for `tc`.
pub fn tc(arguments: &str) -> String {
    command("tc", arguments)
}

fn command(name: &str, arguments: &str) -> String {
    let output = Command::new(name).args(arguments.split(' ')).output().expect("iproute2 is there");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {arguments}: {complaint}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The point where all hosts wait for each other, in place of an MPI's barrier.
pub struct Meeting {
    count: u64,
    arrived: Mutex<u64>,
    all: Condvar,
}

/// Added when a host panics, so that the others see it and do not wait.
const GONE: u64 = 1 << 32;

impl Meeting {
    fn new(count: u8) -> Self {
        Self { count: count.into(), arrived: Mutex::new(0), all: Condvar::new() }
    }

    /// Waits until all hosts are here.
    pub fn meet(&self) {
        let mut arrived = self.arrived.lock().expect("nobody panics with it held");
        *arrived += 1;
        let round = arrived.div_ceil(self.count) * self.count;
        self.all.notify_all();
        let (arrived, timeout) = self
            .all
            .wait_timeout_while(arrived, PATIENCE, |arrived| *arrived < round)
            .expect("nobody panics with it held");
        let (gone, late) = (*arrived >= GONE, timeout.timed_out());
        drop(arrived);
        assert!(!gone, "another host failed");
        assert!(!late, "the other hosts do not come");
    }

    /// Whether a host has failed.
    pub fn broken(&self) -> bool {
        *self.arrived.lock().expect("nobody panics with it held") >= GONE
    }
}

/// Breaks the meeting up when a host's thread unwinds.
struct Leaving<'a>(&'a Meeting);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if let Ok(mut arrived) = self.0.arrived.lock() {
            *arrived += GONE;
        }
        self.0.all.notify_all();
    }
}
