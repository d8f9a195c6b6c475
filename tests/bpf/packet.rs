//! Packets as bytes, made field by field, so that a test can spoil any of them.
//!
//! The layout is written out here a second time on purpose: it is what the protocol promises.

use std::sync::Arc;

use foldback::bindings as b;

/// Bytes in front of a frame: Ethernet, IPv4, UDP.
pub const OUTER_BYTES: usize = 14 + 20 + 8;

/// An Ethernet frame with a datagram in it. Every field goes out as it stands, but for the IPv4
/// checksum, which is made to fit, and a frame's seal, if it is 0.
#[derive(Clone, Debug)]
pub struct Packet {
    pub to_mac: [u8; 6],
    pub from_mac: [u8; 6],
    pub ether_type: u16,
    pub ip: Ip,
    pub udp: Udp,
    pub frame: b::fb_frame,
    /// Its group's; `None`: its frames bear a checksum.
    pub key: Option<Arc<Key>>,
    pub payload: Vec<u8>,
    /// A bit that is flipped, counted from the frame's first.
    pub flipped: Option<usize>,
}

/// An IPv4 header.
#[derive(Clone, Debug)]
pub struct Ip {
    pub version: u8,
    pub tos: u8,
    pub total_length: u16,
    pub id: u16,
    /// Flags and offset.
    pub fragment: u16,
    pub ttl: u8,
    pub protocol: u8,
    pub from: [u8; 4],
    pub to: [u8; 4],
    /// A multiple of four.
    pub options: Vec<u8>,
}

/// A UDP header.
#[derive(Clone, Debug)]
pub struct Udp {
    pub from: u16,
    pub to: u16,
    pub length: u16,
    pub checksum: u16,
}

impl Packet {
    /// A sound packet around `frame`, whose length becomes the payload's. Its IP header has little
    /// things in it that no reply may keep.
    pub fn new(frame: b::fb_frame, payload: &[u8]) -> Self {
        let length = payload.len() as u16;
        let udp_bytes = 8 + b::FB_FRAME_BYTES as u16 + length;
        Self {
            to_mac: [0; 6],
            from_mac: [0; 6],
            ether_type: 0x0800,
            ip: Ip {
                version: 4,
                tos: 0x10,
                total_length: 20 + udp_bytes,
                id: 0x1234,
                fragment: 0x4000,
                ttl: 63,
                protocol: 17,
                from: [0; 4],
                to: [0; 4],
                options: Vec::new(),
            },
            udp: Udp {
                from: b::FB_UDP_PORT as u16,
                to: b::FB_UDP_PORT as u16,
                length: udp_bytes,
                checksum: 0,
            },
            frame: b::fb_frame { length, ..frame },
            key: None,
            payload: payload.to_vec(),
            flipped: None,
        }
    }

    /// The same, changed.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The same, with its seal fixed: what is changed from now on shows.
    pub fn sealed(mut self) -> Self {
        let bytes = self.frame_bytes();
        self.frame.seal = word(&bytes, b::FB_FRAME_BYTES as usize - 8);
        self
    }

    /// The same, as the egress program lets it out: from the port of frames.
    pub fn let_out(self) -> Self {
        self.with(|p| p.udp.from = b::FB_UDP_PORT as u16)
    }

    /// The same, with a bit of frame and payload flipped on the way.
    pub fn flipped(mut self, bit: usize) -> Self {
        self.flipped = Some(bit);
        self
    }

    /// A super-frame: this packet's frame, and behind it the frames of others.
    pub fn and(mut self, more: &[Self]) -> Self {
        for other in more {
            self.payload.extend(other.frame_bytes());
            self.payload.extend(&other.payload);
        }
        self.udp.length = (8 + b::FB_FRAME_BYTES as usize + self.payload.len()) as u16;
        self.ip.total_length = 20 + self.udp.length;
        self
    }

    /// The bytes on the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(OUTER_BYTES + 64 + self.payload.len());
        bytes.extend(self.to_mac);
        bytes.extend(self.from_mac);
        bytes.extend(self.ether_type.to_be_bytes());
        bytes.extend(self.ip.bytes());
        for field in [self.udp.from, self.udp.to, self.udp.length, self.udp.checksum] {
            bytes.extend(field.to_be_bytes());
        }
        bytes.extend(self.frame_bytes());
        bytes.extend(&self.payload);
        if let Some(bit) = self.flipped {
            bytes[OUTER_BYTES + bit / 8] ^= 1 << (bit % 8);
        }
        bytes
    }

    /// The frame's bytes in memory; `payload` beyond its length is another's.
    fn frame_bytes(&self) -> Vec<u8> {
        let frame = &self.frame;
        let mut bytes = frame.magic.to_ne_bytes().to_vec();
        bytes.extend([frame.version, frame.kind, frame.op, frame.type_]);
        for field in [frame.token, frame.seq, frame.consumed] {
            bytes.extend(field.to_ne_bytes());
        }
        bytes.extend([frame.source, frame.target]);
        bytes.extend(frame.length.to_ne_bytes());
        bytes.extend([frame.flags, frame.reserved]);
        bytes.extend(frame.offset.to_ne_bytes());
        bytes.extend(frame.detail.to_ne_bytes());
        bytes.extend(frame.message.to_ne_bytes());
        // The payload of broadcasts and pieces is the business of the process that gets it.
        let deposited = [b::FB_KIND_BROADCAST, b::FB_KIND_PIECE].contains(&frame.kind.into());
        let length = if deposited { 0 } else { frame.length.into() };
        let own = &self.payload[..self.payload.len().min(length)];
        let seal = match (frame.seal, &self.key) {
            (0, Some(key)) => key.code(&bytes, own),
            (0, None) => frame_checksum(&bytes, own),
            (fixed, _) => fixed,
        };
        bytes.extend(seal.to_ne_bytes());
        assert_eq!(bytes.len(), b::FB_FRAME_BYTES as usize);
        bytes
    }
}

impl Ip {
    fn bytes(&self) -> Vec<u8> {
        let words = 5 + self.options.len() / 4;
        let mut bytes = vec![self.version << 4 | words as u8, self.tos];
        for field in [self.total_length, self.id, self.fragment] {
            bytes.extend(field.to_be_bytes());
        }
        bytes.extend([self.ttl, self.protocol, 0, 0]);
        bytes.extend(self.from);
        bytes.extend(self.to);
        bytes.extend(&self.options);
        let checksum = internet_checksum(&bytes);
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }
}

/// RFC 1071, the plain way.
fn internet_checksum(bytes: &[u8]) -> u16 {
    let sum: u32 =
        bytes.as_chunks::<2>().0.iter().map(|pair| u32::from(u16::from_be_bytes(*pair))).sum();
    let mut sum = sum;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}

/// The checksum of a frame without its seal, and of its payload, with words of zero behind each that fill up pairs.
fn frame_checksum(frame: &[u8], payload: &[u8]) -> u64 {
    let mut bytes = [frame, &[0; 8], payload].concat();
    bytes.resize(bytes.len().next_multiple_of(16), 0);
    let lane = |first: usize| {
        let (mut sum, mut sum_of_sums) = (0u64, 0u64);
        for at in (first..bytes.len()).step_by(16) {
            sum = sum.wrapping_add(word(&bytes, at));
            sum_of_sums = sum_of_sums.wrapping_add(sum);
        }
        sum ^ sum_of_sums.rotate_right(32)
    };
    let mix = |word: u64| word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mix(lane(8).wrapping_add(mix(lane(0)).rotate_right(32)))
}

/// The key of a group.
#[derive(Debug)]
pub struct Key {
    finish: [u64; 2],
    /// NH's, in halves of words.
    halves: Vec<u32>,
}

#[expect(deprecated, reason = "it is the SipHash-2-4 that is not the library's")]
fn siphash([first, second]: [u64; 2], words: &[u64]) -> u64 {
    let mut sip = std::hash::SipHasher::new_with_keys(first, second);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    std::hash::Hasher::write(&mut sip, &bytes);
    std::hash::Hasher::finish(&sip)
}

impl Key {
    /// The key that is made of a secret.
    pub fn new(secret: [u64; 2]) -> Self {
        let word = |at| siphash(secret, &[at]);
        let halves = (2..2 + u64::from(b::FB_KEY_WORDS)).map(word);
        let halves = halves.flat_map(|word| [word as u32, (word >> 32) as u32]);
        Self { finish: [word(0), word(1)], halves: halves.collect() }
    }

    /// The code of a frame without its seal, and of its payload.
    fn code(&self, frame: &[u8], payload: &[u8]) -> u64 {
        let mut bytes = [frame, payload].concat();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let words = (0..bytes.len() / 8).map(|at| word(&bytes, 8 * at));
        let halves: Vec<u32> = words.flat_map(|word| [word as u32, (word >> 32) as u32]).collect();
        let nh = |key: &[u32]| {
            let pairs = halves.as_chunks::<2>().0.iter().zip(key.as_chunks::<2>().0);
            let term = |([a, b], [k, l]): (&[u32; 2], &[u32; 2])| {
                u64::from(a.wrapping_add(*k)) * u64::from(b.wrapping_add(*l))
            };
            pairs.map(term).fold(0, u64::wrapping_add)
        };
        let numbered = word(frame, 16) ^ u64::from(frame[5]) << 56;
        let [first, second] = [nh(&self.halves), nh(&self.halves[2..])];
        siphash(self.finish, &[first, second, numbered, word(frame, 32)])
    }
}
