//! Other hosts, asked by [echoes](crate::agent::echo): does an agent answer, of which release, how long may frames be on
//! the way, is multicast heard, how long does an answer take.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, ToSocketAddrs, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use super::{Finding, Verdict, no, ok};
use crate::agent::echo::{ECHO_BYTES, ECHO_GROUP, Echo, EchoKind};
use crate::agent::probe::Candidate;
use crate::bindings::FB_WIRE_VERSION;
use crate::sockopt;

/// How long the first answers are waited for: an agent that loads programs answers late.
const PATIENCE: [Duration; 4] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

/// How long later ones are, which come from an agent that has answered before.
const LATER: [Duration; 3] =
    [Duration::from_millis(250), Duration::from_millis(250), Duration::from_millis(500)];

/// Echoes that measure the round trip, the wait for each, and the number that may be lost before it ends.
const ROUND_TRIPS: usize = 20;
const ONCE: [Duration; 1] = [Duration::from_secs(1)];
const LOST: usize = 3;

/// Hosts that are asked at a time.
const AT_A_TIME: usize = 64;

/// Announcements, and the time between two: a switch begins to forward a while after a host has begun to listen.
const ANNOUNCEMENTS: u32 = 5;
const BETWEEN: Duration = Duration::from_millis(50);

/// Headers of IPv4 and UDP.
const HEADERS: u32 = 28;

/// The least MTU of IPv4 that every host takes (RFC 791).
const LEAST_MTU: u32 = 576;

/// Findings about each host that is named, in their order. `here` are this host's own addresses.
pub(super) fn findings(hosts: &[String], port: u16, here: &[Candidate]) -> Vec<Finding> {
    let nonce = RandomState::new().build_hasher().finish();
    hosts.chunks(AT_A_TIME).flat_map(|hosts| ask_all(hosts, port, nonce, here)).collect()
}

fn ask_all(hosts: &[String], port: u16, nonce: u64, here: &[Candidate]) -> Vec<Finding> {
    let met = side_by_side(hosts.iter(), |host| meet(host, port, nonce, here));
    let from = met.iter().filter_map(|met| met.as_ref().ok()).map(|peer| peer.from);
    let mut from: Vec<Ipv4Addr> = from.collect();
    from.sort();
    from.dedup();
    for sequence in 0..ANNOUNCEMENTS {
        for from in &from {
            // One that is not sent is not heard.
            let _ = announce(*from, port, nonce, sequence);
        }
        thread::sleep(BETWEEN);
    }
    side_by_side(met.into_iter(), |met| met.map_or_else(|found| found, |mut peer| peer.examine()))
}

/// Does something for each item in a thread of its own, and returns all results in the items' order.
fn side_by_side<I: Send, O: Send>(
    items: impl Iterator<Item = I>,
    work: impl Fn(I) -> O + Sync,
) -> Vec<O> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = items.map(|item| scope.spawn(move || work(item))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, O>| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect()
    })
}

fn announce(from: Ipv4Addr, port: u16, nonce: u64, sequence: u32) -> io::Result<()> {
    let socket = UdpSocket::bind(SocketAddrV4::new(from, 0))?;
    // As frames have.
    socket.set_multicast_ttl_v4(64)?;
    socket.set_multicast_loop_v4(false)?;
    // The interface, by its address: the route to the group may be another's.
    let interface = u32::from_ne_bytes(from.octets());
    sockopt::set(&socket, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &interface)?;
    let echo = Echo::new(EchoKind::Announcement, nonce, sequence).encode();
    socket.send_to(&echo, SocketAddrV4::new(ECHO_GROUP, port)).map(drop)
}

/// A host whose agent has answered.
struct Peer {
    /// As the user named it, with its address.
    name: String,
    /// The address of this host towards it, and its MTU.
    from: Ipv4Addr,
    mtu: u32,
    /// Its first answer.
    first: Echo,
    line: Line,
}

/// Asks a host for the first time. The error is a finding.
fn meet(host: &str, port: u16, nonce: u64, here: &[Candidate]) -> Result<Peer, Finding> {
    let cannot = |why: &dyn std::fmt::Display, advice: &str| no(format!("{host}: {why}"), advice);
    let known = "name a host that has an IPv4 address";
    let found = (host, port).to_socket_addrs().map_err(|error| cannot(&error, known))?;
    let to = found.into_iter().find_map(|address| match address {
        SocketAddr::V4(address) => Some(address),
        SocketAddr::V6(_) => None,
    });
    let to = to.ok_or_else(|| cannot(&"no IPv4 address", known))?;
    let name =
        if to.ip().to_string() == host { host.into() } else { format!("{host} ({})", to.ip()) };
    if to.ip().is_loopback() || here.iter().any(|own| own.address == *to.ip()) {
        return Err(ok(format!("{name}: this host")));
    }
    let cannot = |why: String, advice: &str| no(format!("{name}: {why}"), advice);
    let (mut line, from) = Line::new(to, nonce)
        .map_err(|error| cannot(error.to_string(), "is there a route to it?"))?;
    let own = here.iter().find(|own| own.address == from);
    let own = own.ok_or_else(|| {
        cannot(format!("the way there begins at {from}"), "foldback needs an Ethernet interface")
    })?;
    match line.ask(ECHO_BYTES, true, &PATIENCE) {
        Ok(Some((first, _))) => Ok(Peer { name, from, mtu: own.mtu, first, line }),
        Ok(None) => Err(cannot(
            format!("nothing answers at UDP port {port}, asked from {from}"),
            "is an agent running there (foldback status), and does every firewall let the port through?",
        )),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Err(cannot(
            format!("no agent there has UDP port {port}"),
            "start one: systemctl enable --now foldback-agent",
        )),
        Err(error) => Err(cannot(error.to_string(), "is the host up, and on this network?")),
    }
}

impl Peer {
    /// Finds out the rest.
    fn examine(&mut self) -> Finding {
        let wire = self.first.wire;
        let release = std::mem::take(&mut self.first.release);
        if wire != FB_WIRE_VERSION {
            let why = format!(
                "foldback {release}, whose frames are of version {wire}, and here of {FB_WIRE_VERSION}"
            );
            return self.found(Verdict::No, why, Some("install the same release on both".into()));
        }
        let times = self.round_trips();
        let lost = ROUND_TRIPS - times.len();
        let (Some(least), Some(median)) = (times.first(), times.get(times.len() / 2)) else {
            let why = format!("foldback {release}, which has answered once, and then no more");
            return self.found(Verdict::No, why, Some("is its agent still running?".into()));
        };
        let took = format!("round trip {} us (least {})", median.as_micros(), least.as_micros());
        let there = self.first.mtu;
        let wanted = if there == 0 { self.mtu } else { self.mtu.min(there) };
        let path = self.path_mtu(wanted);
        if path < wanted {
            let why = format!(
                "foldback {release}, {took}; packets of {wanted} bytes do not arrive there, {path} do"
            );
            let advice = "chunks are as long as the links of the hosts allow: let the network between them have the MTU, or lower theirs";
            return self.found(Verdict::No, why, Some(advice.into()));
        }
        let heard =
            matches!(self.line.ask(ECHO_BYTES, false, &LATER), Ok(Some((echo, _))) if echo.heard);
        let hears = if heard { "hears multicast" } else { "hears no multicast" };
        let what = format!("foldback {release}, MTU {wanted}, {hears}, {took}");
        let advice = if lost > 0 {
            Some(format!("{lost} of {ROUND_TRIPS} echoes had no answer: is the network in order?"))
        } else if there != 0 && there != self.mtu {
            Some(format!("the MTU is {} here and {there} there: a group takes the least", self.mtu))
        } else if !heard {
            Some("groups of more than two hosts send each result once to each host".into())
        } else {
            None
        };
        let verdict = if advice.is_some() { Verdict::Note } else { Verdict::Ok };
        self.found(verdict, what, advice)
    }

    fn found(&self, verdict: Verdict, what: String, advice: Option<String>) -> Finding {
        Finding { verdict, what: format!("{}: {what}", self.name), advice }
    }

    /// The times of answers that came, sorted.
    fn round_trips(&mut self) -> Vec<Duration> {
        let mut times = Vec::new();
        for asked in 1..=ROUND_TRIPS {
            if let Ok(Some((_, time))) = self.line.ask(ECHO_BYTES, false, &ONCE) {
                times.push(time);
            }
            if asked - times.len() >= LOST {
                break;
            }
        }
        times.sort();
        times
    }

    /// The longest packets that arrive whole, up to `wanted` bytes.
    fn path_mtu(&mut self, wanted: u32) -> u32 {
        let mut arrives = |mtu: u32| {
            let bytes = mtu.saturating_sub(HEADERS) as usize;
            let answer = self.line.ask(bytes, false, &LATER);
            matches!(answer, Ok(Some((echo, _))) if echo.bytes as usize == bytes)
        };
        if arrives(wanted) {
            return wanted;
        }
        let (mut most, mut too_long) = (LEAST_MTU.min(wanted), wanted);
        while too_long - most > 1 {
            let half = most.midpoint(too_long);
            if arrives(half) { most = half } else { too_long = half }
        }
        most
    }
}

/// A socket to a host.
struct Line {
    socket: UdpSocket,
    nonce: u64,
    sequence: u32,
}

impl Line {
    /// The line, and the address of this host at which it begins.
    fn new(to: SocketAddrV4, nonce: u64) -> io::Result<(Self, Ipv4Addr)> {
        let socket = UdpSocket::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
        // Packets of any length go out whole, whatever the kernel thinks of the path.
        sockopt::set(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, &libc::IP_PMTUDISC_PROBE)?;
        socket.connect(to)?;
        match socket.local_addr()? {
            SocketAddr::V4(from) => Ok((Self { socket, nonce, sequence: 0 }, *from.ip())),
            SocketAddr::V6(_) => Err(ErrorKind::Unsupported.into()),
        }
    }

    /// Sends a request of so many bytes, and again while no answer comes in time. Returns the answer, and how long it took.
    fn ask(
        &mut self,
        bytes: usize,
        tell: bool,
        patience: &[Duration],
    ) -> io::Result<Option<(Echo, Duration)>> {
        for patience in patience {
            self.sequence += 1;
            let request =
                Echo { tell, ..Echo::new(EchoKind::Request, self.nonce, self.sequence) }.encode();
            let mut datagram = vec![0; bytes.max(ECHO_BYTES)];
            datagram[..ECHO_BYTES].copy_from_slice(&request);
            let start = Instant::now();
            match self.socket.send(&datagram) {
                // The answer to an earlier one was that the packet is too long.
                Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => return Ok(None),
                sent => sent.map(drop)?,
            }
            if let Some(reply) = self.reply(start + *patience)? {
                return Ok(Some((reply, start.elapsed())));
            }
        }
        Ok(None)
    }

    /// The reply to the last request, if it comes in time.
    fn reply(&self, end: Instant) -> io::Result<Option<Echo>> {
        let mut datagram = [0; ECHO_BYTES];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(left))?;
            match self.socket.recv(&mut datagram) {
                Ok(bytes) => {
                    let echo = Echo::decode(&datagram[..bytes]).filter(|echo| {
                        (echo.kind, echo.nonce, echo.sequence)
                            == (EchoKind::Reply, self.nonce, self.sequence)
                    });
                    if echo.is_some() {
                        return Ok(echo);
                    }
                }
                Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => return Ok(None),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Somebody on this host who answers requests as `change` says, or not at all, until the peer is gone.
    fn examined(change: impl Fn(&Echo, &mut Echo) -> bool + Send + 'static) -> Finding {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let Ok(SocketAddr::V4(to)) = socket.local_addr() else { panic!("an address of IPv4") };
        let (line, from) = Line::new(to, 7).unwrap();
        let answers = thread::spawn(move || {
            let mut datagram = [0; 9000];
            while let Ok((bytes @ 1.., from)) = socket.recv_from(&mut datagram) {
                let request = Echo::decode(&datagram[..bytes]).unwrap();
                let mut reply = Echo::new(EchoKind::Reply, request.nonce, request.sequence);
                (reply.bytes, reply.mtu, reply.heard) = (bytes as u32, 1500, true);
                if change(&request, &mut reply) {
                    socket.send_to(&reply.encode(), from).unwrap();
                }
            }
        });
        let mut peer = Peer {
            name: "there".into(),
            from,
            mtu: 1500,
            first: Echo::new(EchoKind::Reply, 7, 0),
            line,
        };
        let (first, _) = peer.line.ask(ECHO_BYTES, true, &PATIENCE).unwrap().expect("an answer");
        peer.first = first;
        let finding = peer.examine();
        peer.line.socket.send(&[]).unwrap();
        answers.join().unwrap();
        finding
    }

    fn release() -> String {
        format!("there: foldback {}", env!("CARGO_PKG_VERSION"))
    }

    #[test]
    fn a_host_in_order_is_well() {
        let found = examined(|_, _| true);
        let start = format!("{}, MTU 1500, hears multicast, round trip ", release());
        assert!(found.what.starts_with(&start), "{}", found.what);
        assert_eq!((found.verdict, found.advice), (Verdict::Ok, None));
    }

    #[test]
    fn another_release_with_other_frames_does_not_do() {
        let found = examined(|_, reply| {
            (reply.wire, reply.release) = (FB_WIRE_VERSION + 1, "9.9.9".into());
            true
        });
        let [there, here] = [FB_WIRE_VERSION + 1, FB_WIRE_VERSION];
        let what = format!(
            "there: foldback 9.9.9, whose frames are of version {there}, and here of {here}"
        );
        assert_eq!((found.verdict, found.what), (Verdict::No, what));
    }

    #[test]
    fn the_longest_packet_that_passes_is_found() {
        for room in [LEAST_MTU, 1400] {
            let found = examined(move |_, reply| reply.bytes + HEADERS <= room);
            assert_eq!(found.verdict, Verdict::No);
            let end = format!("packets of 1500 bytes do not arrive there, {room} do");
            assert!(found.what.ends_with(&end), "{}", found.what);
        }
    }

    #[test]
    fn what_is_not_quite_in_order_is_noted() {
        let advice = |change: fn(&Echo, &mut Echo) -> bool| {
            let found = examined(change);
            assert_eq!(found.verdict, Verdict::Note);
            found.advice.unwrap()
        };
        let told = advice(|request, _| request.sequence != 5);
        assert_eq!(told, "1 of 20 echoes had no answer: is the network in order?");
        let told = advice(|_, reply| {
            reply.mtu = 9000;
            true
        });
        assert_eq!(told, "the MTU is 1500 here and 9000 there: a group takes the least");
        let told = advice(|_, reply| {
            reply.heard = false;
            true
        });
        assert_eq!(told, "groups of more than two hosts send each result once to each host");
    }

    #[test]
    fn answers_to_others_are_not_listened_to() {
        for forge in [
            |reply: &mut Echo| reply.nonce += 1,
            |reply: &mut Echo| reply.sequence += 1,
            |reply: &mut Echo| reply.kind = EchoKind::Request,
        ] {
            let found = examined(move |request, reply| {
                if request.sequence > 1 {
                    forge(reply);
                }
                true
            });
            let what = format!("{}, which has answered once, and then no more", release());
            assert_eq!((found.verdict, found.what), (Verdict::No, what));
        }
    }
}
