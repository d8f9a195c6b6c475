//! Somebody on the wire beside a job, who reads every frame and sends any packet to any host. They send copies of
//! frames, at once and later, and frames made of them. They have all but the group's key. Answers stay right.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;

use foldback::bindings as b;
use foldback::wire::{Seal, Secret};
use nix::sys::socket::sockopt::{RcvBuf, ReceiveTimeout};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket,
};
use nix::sys::time::TimeVal;

use crate::actor::{Actor, plays, say, until_told};
use crate::harness::{Job, Lab, Mpi, turn};
use crate::random::Rng;

const HOSTS: u32 = 3;
const ROLE: &str = "forgers::role";

/// Bytes in front of a frame: Ethernet, IPv4 without options, UDP.
const OUTER: usize = 14 + 20 + 8;
const FRAME: usize = OUTER + b::FB_FRAME_BYTES as usize;
/// Places of a frame's fields.
const SEQ: usize = OUTER + 16;
const CONSUMED: usize = OUTER + 24;
const SOURCE: usize = OUTER + 32;
const SEAL: usize = OUTER + 56;

/// One port of the switch: what its host sends comes in here, and what is sent here goes to the host.
struct Port(OwnedFd);

impl Port {
    fn new(host: u32) -> Self {
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll);
        let socket = socket.expect("a packet socket");
        let index = nix::net::if_::if_nametoindex(format!("p{host}").as_str()).expect("a port");
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
            sll_ifindex: index as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: the address lives, and is of the length that is said.
        let bound = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as u32,
            )
        };
        assert_eq!(bound, 0, "binding a port of the switch");
        let ignore = 1i32;
        // SAFETY: the option is an int.
        let set = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_IGNORE_OUTGOING,
                (&raw const ignore).cast(),
                size_of_val(&ignore) as u32,
            )
        };
        assert_eq!(set, 0, "hearing what a host sends alone");
        setsockopt(&socket, RcvBuf, &(1 << 20)).expect("a buffer");
        setsockopt(&socket, ReceiveTimeout, &TimeVal::new(0, 2000)).expect("a time limit");
        Self(socket)
    }

    /// The next packet, if there is one soon.
    fn hear(&self, into: &mut [u8]) -> Option<usize> {
        recv(self.0.as_raw_fd(), into, MsgFlags::empty()).ok()
    }

    fn say(&self, packet: &[u8]) -> bool {
        send(self.0.as_raw_fd(), packet, MsgFlags::MSG_DONTWAIT).is_ok()
    }
}

/// Whether it is a datagram with one frame, by whichever transport.
fn is_frame(packet: &[u8]) -> bool {
    let udp = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    packet.len() >= FRAME
        && packet[12..15] == [8, 0, 0x45]
        && packet[23] == 17
        && packet[OUTER..OUTER + 4] == b::FB_WIRE_MAGIC.to_ne_bytes()
        && udp(38) == packet.len() - 34
}

/// Makes the IPv4 header's checksum fit (RFC 1071), and has UDP do without.
fn finish(packet: &mut [u8]) {
    packet[24..26].fill(0);
    packet[40..42].fill(0);
    let words =
        packet[14..34].as_chunks::<2>().0.iter().map(|pair| u32::from(u16::from_be_bytes(*pair)));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[24..26].copy_from_slice(&sum.to_be_bytes());
}

fn change(packet: &mut [u8], at: usize, by: impl FnOnce(u64) -> u64) {
    let (words, _) = packet[at..].as_chunks_mut::<8>();
    words[0] = by(u64::from_ne_bytes(words[0])).to_ne_bytes();
}

fn seal(packet: &mut [u8], secret: Option<Secret>) {
    let (header, payload) = packet[OUTER..].split_at(FRAME - OUTER);
    // SAFETY: as many bytes as a frame has, which is integers without holes.
    let frame = unsafe { header.as_ptr().cast::<b::fb_frame>().read_unaligned() };
    let seal = Seal::new(secret).sealed(frame, payload).seal;
    packet[SEAL..SEAL + 8].copy_from_slice(&seal.to_ne_bytes());
}

/// A frame made of one that was heard; `None`: a copy of it.
fn forged(heard: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let mut packet = heard.to_vec();
    let bits = 8 * (packet.len() - OUTER) as u64;
    let ahead = 1 + rng.below(64);
    match rng.below(6) {
        0 => return None,
        1 => {
            let bit = rng.below(bits) as usize;
            packet[OUTER + bit / 8] ^= 1 << (bit % 8);
        }
        // Of the chunks that come next, as if sent unasked; all before them are done with.
        2 => {
            change(&mut packet, SEQ, |seq| seq + ahead);
            change(&mut packet, CONSUMED, |consumed| consumed + ahead);
        }
        3 => {
            let member = rng.below(u64::from(HOSTS)) as u8;
            (packet[SOURCE], packet[14 + 15]) = (member, member + 1);
        }
        4 => change(&mut packet, SEAL, |_| rng.next()),
        // Other numbers.
        _ if packet.len() > FRAME + 8 => change(&mut packet, FRAME, |word| word ^ rng.next()),
        _ => packet[OUTER + 5] = 1 + rng.below(6) as u8,
    }
    // With the seal that was heard, a checksum, or what another group's members would make.
    match rng.below(3) {
        0 => {}
        which => seal(&mut packet, (which == 2).then_some(Secret::new([7, 7]))),
    }
    finish(&mut packet);
    (packet != heard).then_some(packet)
}

/// Not a test: the forger, inside the switch. Works until it is told to end, and says what it has done.
#[test]
fn role() {
    if !plays(ROLE) {
        return;
    }
    let ports: Vec<_> = (0..HOSTS).map(Port::new).collect();
    let (mut heard, mut copies, mut forgeries) = (0u64, 0u64, 0u64);
    let mut memory: VecDeque<Vec<u8>> = VecDeque::new();
    let mut rng = Rng(7);
    let mut buffer = vec![0; 1 << 16];
    until_told(|| {
        for port in &ports {
            let Some(bytes) = port.hear(&mut buffer) else { continue };
            if !is_frame(&buffer[..bytes]) {
                continue;
            }
            heard += 1;
            memory.push_back(buffer[..bytes].to_vec());
            if memory.len() > 4096 {
                memory.pop_front();
            }
            for _ in 0..4 {
                // The latest mostly; else one of long ago.
                let back = if rng.below(4) > 0 { rng.below(3) } else { rng.below(4096) };
                let at = memory.len() - 1 - (back as usize).min(memory.len() - 1);
                let packet = &memory[at];
                // To its receiver; a frame to all goes to any.
                let host = match packet[0] & 1 {
                    0 => u64::from(packet[14 + 19]).wrapping_sub(1),
                    _ => rng.below(u64::from(HOSTS)),
                };
                let Some(port) = ports.get(host as usize) else { continue };
                match forged(packet, &mut rng) {
                    Some(packet) => forgeries += u64::from(port.say(&packet)),
                    None => {
                        // As if the sender were elsewhere.
                        let mut packet = packet.clone();
                        packet[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0x66]);
                        copies += u64::from(port.say(&packet));
                    }
                }
            }
        }
    });
    say(&format!("{heard} heard, {copies} copies, {forgeries} forged"));
}

/// Starts the forger inside the switch of a lab.
fn start(lab: &Lab) -> Actor {
    let mut switch = Command::new("nsenter");
    switch.arg(format!("--net=/run/foldback/lab/{}/fabric", lab.name));
    Actor::start(switch, ROLE)
}

/// Ends the forger. Returns the numbers of copies and of forgeries that it has sent.
fn end(forger: Actor) -> [u64; 2] {
    let report = forger.report();
    eprintln!("forger: {report}");
    let numbers: Vec<u64> = report.split(' ').filter_map(|word| word.parse().ok()).collect();
    [numbers[1], numbers[2]]
}

/// A stream of collectives beside a forger: `arguments` say how long.
fn stream(job: Job, arguments: &[&str]) {
    let _turn = turn();
    let lab = Lab::new(HOSTS);
    let forger = start(&lab);
    let outcome = job.lab(&lab).run("stream", arguments);
    let [copies, forgeries] = end(forger);
    outcome.assert_folded(&["Allreduce", "Reduce", "Bcast", "Barrier"]);
    assert!(copies > 100 && forgeries > 1000, "{copies} copies, {forgeries} forged");
    let dropped = outcome.kernel("drop_forged");
    eprintln!("drop_forged {dropped}: {:#}", outcome.stats["hosts"]);
    assert!(dropped > 100, "few forgeries have come to be looked at: {:#}", outcome.stats);
}

const SHORT: &[&str] = &["--calls", "5000"];

#[test]
fn frames_in_the_kernel_cannot_be_forged() {
    stream(Job::new(Mpi::Open, HOSTS), SHORT);
}

#[test]
fn nor_those_that_xdp_takes() {
    stream(Job::new(Mpi::Mpich, HOSTS).env("FOLDBACK_HOOK", "xdp"), SHORT);
}

#[test]
fn nor_those_of_ordinary_sockets() {
    stream(Job::new(Mpi::Open, HOSTS).env("FOLDBACK_TRANSPORT", "sockets"), SHORT);
}

#[test]
#[ignore = "long: an hour"]
fn no_frame_is_forged_in_an_hour() {
    let job = Job::new(Mpi::Open, HOSTS).timeout(7200);
    stream(job, &["--seconds", "3600", "--stall", "3600"]);
}
