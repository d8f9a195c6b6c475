//! Packets as bytes, made field by field, so that a test can spoil any of them.
//!
//! The layout is written out here a second time on purpose: it is what the protocol promises.

use foldback::bindings as b;

/// Bytes in front of a frame: Ethernet, IPv4, UDP.
pub const OUTER_BYTES: usize = 14 + 20 + 8;

/// An Ethernet frame with a datagram in it. Every field goes out as it stands, but for the IPv4
/// checksum, which is made to fit, and a frame's own, if it is 0.
#[derive(Clone, Debug)]
pub struct Packet {
    pub to_mac: [u8; 6],
    pub from_mac: [u8; 6],
    pub ether_type: u16,
    pub ip: Ip,
    pub udp: Udp,
    pub frame: b::fb_frame,
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
    /// A sound packet around `frame`, whose length becomes that of the payload. Its IP header has
    /// little things in it that no reply may keep.
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
            udp: Udp { from: 40_000, to: b::FB_UDP_PORT as u16, length: udp_bytes, checksum: 0 },
            frame: b::fb_frame { length, ..frame },
            payload: payload.to_vec(),
            flipped: None,
        }
    }

    /// The same, changed.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The same, with its checksum fixed: what is changed from now on shows.
    pub fn sealed(mut self) -> Self {
        let bytes = frame_bytes(&self.frame, &self.payload);
        self.frame.check = u32::from_ne_bytes([bytes[44], bytes[45], bytes[46], bytes[47]]);
        self
    }

    /// The same, with a bit of frame and payload flipped on the way.
    pub fn flipped(mut self, bit: usize) -> Self {
        self.flipped = Some(bit);
        self
    }

    /// A super-frame: this packet's frame, and behind it those of others.
    pub fn and(mut self, more: &[Self]) -> Self {
        for other in more {
            self.payload.extend(frame_bytes(&other.frame, &other.payload));
            self.payload.extend(&other.payload);
        }
        self.udp.length = (8 + b::FB_FRAME_BYTES as usize + self.payload.len()) as u16;
        self.ip.total_length = 20 + self.udp.length;
        self
    }

    /// What goes over the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(OUTER_BYTES + 64 + self.payload.len());
        bytes.extend(self.to_mac);
        bytes.extend(self.from_mac);
        bytes.extend(self.ether_type.to_be_bytes());
        bytes.extend(self.ip.bytes());
        for field in [self.udp.from, self.udp.to, self.udp.length, self.udp.checksum] {
            bytes.extend(field.to_be_bytes());
        }
        bytes.extend(frame_bytes(&self.frame, &self.payload));
        bytes.extend(&self.payload);
        if let Some(bit) = self.flipped {
            bytes[OUTER_BYTES + bit / 8] ^= 1 << (bit % 8);
        }
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

/// The checksum of a frame with zeroes in its place, and of its payload.
fn frame_checksum(frame: &[u8], payload: &[u8]) -> u32 {
    let mut bytes = [frame, payload].concat();
    bytes.resize(bytes.len().next_multiple_of(16), 0);
    let word = |at| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    let lane = |first: usize| {
        let (mut sum, mut sum_of_sums) = (0u64, 0u64);
        for at in (first..bytes.len()).step_by(16) {
            sum = sum.wrapping_add(word(at));
            sum_of_sums = sum_of_sums.wrapping_add(sum);
        }
        sum ^ sum_of_sums.rotate_right(32)
    };
    let mix = |word: u64| word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mix(lane(8).wrapping_add(mix(lane(0)).rotate_right(32))) >> 32) as u32
}

/// A frame as it is in memory; what `payload` has beyond its length is another's.
fn frame_bytes(frame: &b::fb_frame, payload: &[u8]) -> Vec<u8> {
    let mut bytes = frame.magic.to_ne_bytes().to_vec();
    bytes.extend([frame.version, frame.kind, frame.op, frame.type_]);
    for field in [frame.token, frame.seq, frame.consumed] {
        bytes.extend(field.to_ne_bytes());
    }
    bytes.extend([frame.source, frame.target]);
    bytes.extend(frame.length.to_ne_bytes());
    bytes.extend([frame.flags, frame.reserved]);
    bytes.extend(frame.offset.to_ne_bytes());
    bytes.extend(frame.extent.to_ne_bytes());
    bytes.extend(frame.reserved_2.to_ne_bytes());
    bytes.extend(frame.check.to_ne_bytes());
    bytes.extend(frame.message.to_ne_bytes());
    bytes.extend(frame.reserved_8.to_ne_bytes());
    assert_eq!(bytes.len(), b::FB_FRAME_BYTES as usize);
    if frame.check == 0 {
        let own = &payload[..payload.len().min(frame.length.into())];
        let check = frame_checksum(&bytes, own);
        bytes[44..48].copy_from_slice(&check.to_ne_bytes());
    }
    bytes
}
