//! The other end of the cable: packets that come in at `v0`, and the host's answers to them. In this
//! thread's network namespace.
#![allow(unsafe_code)]

use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};

use foldback::bindings::FB_UDP_PORT;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

use crate::hello;
use crate::world::{HERE, THERE, eventually, run};

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
const THEIRS: [u8; 6] = [2, 0, 0, 0, 0, 2];
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// A port that the peer sends datagrams to.
const PORT: u16 = 5000;
const IP: usize = 14;
const BODY: usize = IP + 20;

/// `THERE`, by hand.
pub struct Peer {
    cable: OwnedFd,
    /// Its datagrams arrive here.
    datagrams: UdpSocket,
}

/// Something that was seen to arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seen {
    /// A frame of foldback's, by the peer.
    Frame,
    /// An echo, by the peer.
    Echo,
    /// The end of a TCP connection that nobody listens for, by the peer.
    Reset,
    /// A datagram, by this host.
    Datagram,
}

/// All that [`Peer::send_others`] brings about.
const OTHERS: [Seen; 3] = [Seen::Echo, Seen::Reset, Seen::Datagram];

impl Peer {
    pub fn new() -> Self {
        // Before, the host's answers are dropped.
        for name in ["v0", "v1"] {
            let is_up = || run(&format!("ip link show {name}")).contains("state UP");
            eventually("the cable is up", is_up);
        }
        let kind = (SockType::Raw, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK);
        let cable = socket(AddressFamily::Packet, kind.0, kind.1, SockProtocol::EthAll);
        let cable = cable.expect("a packet socket");
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
            sll_ifindex: nix::net::if_::if_nametoindex("v1").expect("v1") as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: the address lives, and is of the length that is said.
        let bound = unsafe {
            let length = size_of_val(&address) as u32;
            libc::bind(cable.as_raw_fd(), (&raw const address).cast(), length)
        };
        assert_eq!(bound, 0, "binding to v1");
        let datagrams = UdpSocket::bind((HERE, PORT)).expect("a port");
        datagrams.set_nonblocking(true).expect("a socket");
        let peer = Self { cable, datagrams };
        peer.is_answered();
        peer
    }

    /// Sends HELLOs of member 1 to member 0.
    pub fn send_hellos(&self, token: u64, count: u64) {
        let port = FB_UDP_PORT as u16;
        (0..count).for_each(|_| self.send(UDP, &datagram(port, port, &hello(token, 1))));
    }

    /// Sends an echo request, the beginning of a TCP connection, and a datagram.
    pub fn send_others(&self) {
        let mut echo = vec![8, 0, 0, 0, 0, 1, 0, 1];
        put_sum(&mut echo, 2, 0);
        self.send(ICMP, &echo);
        let mut syn = vec![0; 20];
        syn[..4].copy_from_slice(&[0x13, 0x88, 0x13, 0x89]);
        (syn[12], syn[13], syn[14]) = (5 << 4, 2, 0x10);
        let pseudo = HERE.octets().into_iter().chain(THERE.octets());
        let pseudo = words(&pseudo.collect::<Vec<_>>()) + u32::from(TCP) + syn.len() as u32;
        put_sum(&mut syn, 16, pseudo);
        self.send(TCP, &syn);
        self.send(UDP, &datagram(PORT, PORT, b"datagram"));
    }

    /// Sends these, and waits until all have reached the host's stack.
    pub fn is_answered(&self) {
        self.seen();
        self.send_others();
        let mut seen = Vec::new();
        eventually("other packets are answered", || {
            seen.extend(self.seen());
            OTHERS.iter().all(|one| seen.contains(one))
        });
    }

    /// All that was seen since the last look.
    pub fn seen(&self) -> Vec<Seen> {
        let mut seen = Vec::new();
        let mut packet = [0; 2048];
        while self.datagrams.recv(&mut packet).is_ok() {
            seen.push(Seen::Datagram);
        }
        loop {
            match recv(self.cable.as_raw_fd(), &mut packet, MsgFlags::empty()) {
                Ok(length) => seen.extend(of_host(&packet[..length])),
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                Err(error) => panic!("reading packets: {error}"),
            }
        }
        seen.sort_unstable();
        seen.dedup();
        seen
    }

    fn send(&self, protocol: u8, body: &[u8]) {
        let mut packet = [OURS, THEIRS].concat();
        packet.extend([8, 0]);
        let mut ip = vec![0x45, 0];
        ip.extend((20 + body.len() as u16).to_be_bytes());
        ip.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
        ip.extend(THERE.octets().into_iter().chain(HERE.octets()));
        put_sum(&mut ip, 10, 0);
        packet.extend(ip);
        packet.extend(body);
        let sent = send(self.cable.as_raw_fd(), &packet, MsgFlags::empty());
        assert_eq!(sent, Ok(packet.len()), "a packet into v0");
    }
}

/// Recognizes a packet of the host's.
fn of_host(packet: &[u8]) -> Option<Seen> {
    if packet.len() < BODY + 8 || packet[6..12] != OURS || packet[12..14] != [8, 0] {
        return None;
    }
    match packet[IP + 9] {
        ICMP => (packet[BODY] == 0).then_some(Seen::Echo),
        TCP => packet.get(BODY + 13).is_some_and(|flags| flags & 4 != 0).then_some(Seen::Reset),
        UDP => {
            let to = u16::from_be_bytes([packet[BODY + 2], packet[BODY + 3]]);
            (u32::from(to) == FB_UDP_PORT).then_some(Seen::Frame)
        }
        _ => None,
    }
}

/// UDP, without a checksum.
fn datagram(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let header = [from, to, 8 + payload.len() as u16, 0];
    let mut datagram: Vec<u8> = header.into_iter().flat_map(u16::to_be_bytes).collect();
    datagram.extend(payload);
    datagram
}

fn words(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum()
}

/// Puts the checksum of the Internet (RFC 1071) of all bytes, whose sum begins so, at a place.
fn put_sum(bytes: &mut [u8], at: usize, begin: u32) {
    let mut sum = begin + words(bytes);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    bytes[at..at + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}
