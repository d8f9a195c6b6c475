//! Echoes: datagrams at the port of frames, by which `foldback doctor --peers` asks the agents of other hosts. They are
//! made after ICMP's (RFC 792), and go the way of frames, which ICMP's do not.
//!
//! ```text
//!  0      4    5    6    7 8       16        20      24     28     32       64
//!  +------+----+----+-----+--------+---------+-------+------+------+--------+
//!  |magic |kind|tell|heard|nonce   |sequence |bytes  |mtu   |wire  |release | padding
//!  +------+----+----+-----+--------+---------+-------+------+------+--------+
//! ```
//!
//! Numbers are in network byte order. A reply is no longer than its request, so nobody gains by a request with the address
//! of another host. A reply is never answered.

use std::net::Ipv4Addr;

use crate::bindings::FB_WIRE_VERSION;

/// Bytes of an echo without its padding.
pub const ECHO_BYTES: usize = 64;

/// The first word, "FBE1". A change of the layout changes it.
pub(crate) const ECHO_MAGIC: u32 = 0x4642_4531;

/// The address of announcements, in the scope that is an organization's own (RFC 2365), as groups' addresses are.
pub const ECHO_GROUP: Ipv4Addr = Ipv4Addr::new(239, 192, 1, 81);

/// The kinds of echoes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EchoKind {
    /// To be answered.
    Request = 1,
    /// The answer.
    Reply = 2,
    /// To all hosts, and not answered: a later reply says whether it was heard.
    Announcement = 3,
}

/// An echo. The fields from `heard` on are a reply's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Echo {
    /// A request, its answer, or neither.
    pub kind: EchoKind,
    /// The reply is to tell the MTU, and the host to listen for announcements. Both take a while.
    pub tell: bool,
    /// The number of the asking process, drawn by chance.
    pub nonce: u64,
    /// The number of the request.
    pub sequence: u32,
    /// An announcement with this nonce was heard.
    pub heard: bool,
    /// Bytes of the request, as they arrived.
    pub bytes: u32,
    /// The MTU of the interface at which the request arrived, if it was to be told; else 0.
    pub mtu: u32,
    /// `FB_WIRE_VERSION` of the agent.
    pub wire: u32,
    /// The agent's release.
    pub release: String,
}

impl Echo {
    /// A request, or an announcement.
    pub fn new(kind: EchoKind, nonce: u64, sequence: u32) -> Self {
        Self {
            kind,
            tell: false,
            nonce,
            sequence,
            heard: false,
            bytes: 0,
            mtu: 0,
            wire: FB_WIRE_VERSION,
            release: env!("CARGO_PKG_VERSION").into(),
        }
    }

    /// Its bytes, without padding.
    pub fn encode(&self) -> [u8; ECHO_BYTES] {
        let mut bytes = [0; ECHO_BYTES];
        bytes[..4].copy_from_slice(&ECHO_MAGIC.to_be_bytes());
        bytes[4..7].copy_from_slice(&[self.kind as u8, self.tell.into(), self.heard.into()]);
        bytes[8..16].copy_from_slice(&self.nonce.to_be_bytes());
        for (at, number) in (16..).step_by(4).zip([self.sequence, self.bytes, self.mtu, self.wire])
        {
            bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
        }
        for (byte, of_release) in bytes[32..].iter_mut().zip(self.release.bytes()) {
            *byte = of_release;
        }
        bytes
    }

    /// The echo at the start of a datagram, if it is one.
    pub fn decode(datagram: &[u8]) -> Option<Self> {
        let bytes: &[u8; ECHO_BYTES] = datagram.first_chunk()?;
        let number = |at: usize| bytes[at..].first_chunk().map(|four| u32::from_be_bytes(*four));
        let kinds = [EchoKind::Request, EchoKind::Reply, EchoKind::Announcement];
        let kind = *kinds.iter().find(|kind| **kind as u8 == bytes[4])?;
        // Of an agent that anybody may claim to be, so not more than a terminal should see.
        let release =
            bytes[32..].iter().map_while(|byte| byte.is_ascii_graphic().then_some(*byte as char));
        (number(0)? == ECHO_MAGIC).then_some(Self {
            kind,
            tell: bytes[5] != 0,
            heard: bytes[6] != 0,
            nonce: u64::from_be_bytes(*bytes[8..].first_chunk()?),
            sequence: number(16)?,
            bytes: number(20)?,
            mtu: number(24)?,
            wire: number(28)?,
            release: release.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;

    #[test]
    fn an_echo_is_read_as_it_was_written() {
        let reply = Echo {
            kind: EchoKind::Reply,
            tell: true,
            nonce: 0x0102_0304_0506_0708,
            sequence: u32::MAX,
            heard: true,
            bytes: 9000,
            mtu: 1500,
            wire: 14,
            release: "0.2.0".into(),
        };
        let bytes = reply.encode();
        assert_eq!(Echo::decode(&bytes), Some(reply.clone()));
        assert_eq!(Echo::decode(&[bytes.as_slice(), &[7; 100]].concat()), Some(reply.clone()));
        assert_eq!(Echo::decode(&bytes[..ECHO_BYTES - 1]), None);
        let long = Echo { release: "x".repeat(40), ..reply };
        assert_eq!(Echo::decode(&long.encode()).unwrap().release, "x".repeat(32));
        assert!(bytes.starts_with(b"FBE1"));
    }

    #[test]
    fn nonsense_is_no_echo() {
        let mut random = Rng(3);
        let mut bytes = Echo::new(EchoKind::Request, 7, 1).encode();
        bytes[4] = 0;
        assert_eq!(Echo::decode(&bytes), None);
        for _ in 0..10_000 {
            let mut bytes = Echo::new(EchoKind::Request, random.next(), 1).encode();
            for _ in 0..random.below(8) {
                bytes[random.below(ECHO_BYTES as u64) as usize] = random.next() as u8;
            }
            let Some(echo) = Echo::decode(&bytes) else { continue };
            assert!(echo.release.chars().all(|c| c.is_ascii_graphic()), "{echo:?}");
        }
    }
}
