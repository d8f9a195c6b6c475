//! A network namespace for each test, with a pair of interfaces: what the programs send on one is
//! read at the other. Nothing here touches the host's own interfaces, and nothing is left: the
//! namespace goes with the thread.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, recvfrom, setsockopt, socket,
};
use nix::sys::time::TimeVal;
use nix::unistd::geteuid;

/// Longer than any test takes, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long a frame that was sent may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(60);

/// Index of the interface that programs send on, in each test's namespace, and of its peer.
pub const V0: u32 = 10;
const V1: usize = 11;

/// Runs a test in a namespace of its own.
pub fn in_namespace(test: impl FnOnce() + Send + 'static) {
    assert!(geteuid().is_root(), "this test needs root: it makes network namespaces and loads BPF");
    let (done, wait) = channel();
    let thread = thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        without_ipv6();
        ip("link add v0 index 10 mtu 9000 type veth peer name v1 index 11 mtu 9000");
        // In this order: v0 has a carrier when it comes up, and sends from the first frame on.
        ip("link set v1 up");
        ip("link set v0 up");
        let _done = done;
        test();
    });
    match wait.recv_timeout(PATIENCE) {
        Err(RecvTimeoutError::Timeout) => panic!("the test hangs"),
        Ok(()) | Err(RecvTimeoutError::Disconnected) => {}
    }
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("iproute2");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {complaint}");
}

/// So that the programs' frames are the only ones.
fn without_ipv6() {
    for scope in ["all", "default"] {
        let file = format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
        if Path::new(&file).exists() {
            fs::write(&file, "1").expect("IPv6 can be turned off");
        }
    }
}

/// The far end of `V0`.
pub struct Peer(OwnedFd);

impl Peer {
    /// Sees what is sent from now on.
    pub fn listen() -> Self {
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)
            .expect("a packet socket");
        Self(socket)
    }

    /// The next `count` frames; there must be no more.
    pub fn frames(&self, count: usize) -> Vec<Vec<u8>> {
        let frames: Vec<_> = (0..count)
            .map(|index| {
                self.next(ARRIVAL).unwrap_or_else(|| panic!("{index} of {count} frames arrived"))
            })
            .collect();
        let more = self.next(Duration::from_millis(1));
        assert!(more.is_none(), "a frame too many: {more:02x?}");
        frames
    }

    fn next(&self, patience: Duration) -> Option<Vec<u8>> {
        let end = Instant::now() + patience;
        let timeout = TimeVal::new(patience.as_secs() as i64, patience.subsec_micros().into());
        setsockopt(&self.0, ReceiveTimeout, &timeout).expect("a timeout");
        let mut buffer = vec![0; 16384];
        while Instant::now() < end {
            match recvfrom::<LinkAddr>(self.0.as_raw_fd(), &mut buffer) {
                // The socket sees both ends.
                Ok((length, Some(from))) if from.ifindex() == V1 => {
                    buffer.truncate(length);
                    return Some(buffer);
                }
                Ok(_) | Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return None,
                Err(error) => panic!("reading frames: {error}"),
            }
        }
        None
    }
}
