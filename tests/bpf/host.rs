//! One host of one group: its maps, and the packets that it meets.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use foldback::bindings as b;
use foldback::wire::{Seal, Secret};
use libbpf_rs::MapHandle;

use crate::kernel::{Hook, Kernel, Verdict, element, set_element};
use crate::namespace::V0;
use crate::packet::{Key, Packet};

pub const TC_NEXT: i32 = -1;
pub const TC_TAKEN: i32 = 2;
pub const TC_REDIRECT: i32 = 7;
pub const XDP_DROP: i32 = 1;
pub const XDP_PASS: i32 = 2;

/// Small, so that the window's end is near.
pub const WINDOW: u32 = 8;

/// A chunk of a collective, as frames speak of it.
#[derive(Clone, Copy, Debug)]
pub struct Chunk {
    pub seq: u64,
    pub op: u8,
    pub element: u8,
    pub target: u8,
    /// `enum fb_flag`.
    pub flags: u8,
    pub consumed: u64,
}

/// The result goes to all.
pub const TO_ALL: u8 = b::FB_FLAG_RESULT_TO_ALL as u8;

/// A sum of 32-bit integers that member 0 aggregates for all.
pub const SUM: Chunk = Chunk {
    seq: 1,
    op: b::FB_OP_SUM as u8,
    element: b::FB_TYPE_I32 as u8,
    target: 0,
    flags: TO_ALL,
    consumed: 0,
};

impl Chunk {
    pub fn frame(&self, kind: b::fb_kind) -> b::fb_frame {
        b::fb_frame {
            magic: b::FB_WIRE_MAGIC,
            version: b::FB_WIRE_VERSION as u8,
            kind: kind as u8,
            op: self.op,
            type_: self.element,
            seq: self.seq,
            consumed: self.consumed,
            target: self.target,
            flags: self.flags,
            ..Default::default()
        }
    }
}

/// 32-bit integers as a payload.
pub fn ints(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// A host, member `me` of a group of its own.
pub struct Host {
    pub kernel: &'static Kernel,
    pub token: u64,
    pub slot: u32,
    pub me: u8,
    key: Option<Arc<Key>>,
    cells: MapHandle,
    counted: Cell<[u64; COUNTERS]>,
}

const COUNTERS: usize = size_of::<b::fb_counters>() / 8;

impl Host {
    /// Member `me` of `members`, all of whom it has heard of.
    pub fn new(members: u8, me: u8) -> Self {
        Self::on(Kernel::shared(), members, me)
    }

    /// The same, on some loaded programs.
    pub fn on(kernel: &'static Kernel, members: u8, me: u8) -> Self {
        Self::with(kernel, members, me, true)
    }

    /// One whose group has no key.
    pub fn without_key(members: u8, me: u8) -> Self {
        Self::with(Kernel::shared(), members, me, false)
    }

    fn with(kernel: &'static Kernel, members: u8, me: u8, keyed: bool) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let slot = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(slot < b::FB_MAX_GROUPS);
        // Far from each other: a test that flips a bit must not meet its neighbour's group.
        let token = (1 + u64::from(slot)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut group = b::fb_group {
            slot,
            // A test run's packets belong to a socket of root.
            uid: 0,
            window: WINDOW,
            chunk_bytes: kernel.chunk_bytes,
            members,
            self_: me,
            ..Default::default()
        };
        for (index, member) in (0..members).zip(&mut group.member) {
            member.address = u32::from_ne_bytes(address(index));
            member.mac = mac_word(index);
        }
        let secret = keyed.then_some([token, !token]);
        let cells = kernel.add_group(token, &Seal::new(secret.map(Secret::new)), &group);
        let key = secret.map(|secret| Arc::new(Key::new(secret)));
        Self { kernel, token, slot, me, key, cells, counted: Cell::default() }
    }

    /// Changes the group.
    pub fn change_group(&self, change: impl FnOnce(&mut b::fb_group)) {
        let mut group = self.kernel.group(self.token);
        change(&mut group);
        self.kernel.set_group(self.token, &group);
    }

    /// A frame of `source` that comes in here; or, of this host, one that its leader sends to
    /// `to`.
    fn packet(&self, source: u8, to: u8, frame: b::fb_frame, payload: &[u8]) -> Packet {
        let frame = b::fb_frame { token: self.token, source, ..frame };
        Packet::new(frame, payload).with(|p| {
            (p.from_mac, p.to_mac) = (mac(source), mac(to));
            (p.ip.from, p.ip.to) = (address(source), address(to));
            if source == self.me {
                p.udp.from = 40_000;
            }
            p.key.clone_from(&self.key);
        })
    }

    fn towards(&self, source: u8) -> u8 {
        let other = u8::from(self.me == 0);
        if source == self.me { other } else { self.me }
    }

    fn any(&self, kind: b::fb_kind, source: u8, chunk: Chunk, payload: &[u8]) -> Packet {
        self.packet(source, self.towards(source), chunk.frame(kind), payload)
    }

    pub fn contribution(&self, source: u8, chunk: Chunk, payload: &[u8]) -> Packet {
        self.any(b::FB_KIND_CONTRIBUTION, source, chunk, payload)
    }

    pub fn result(&self, source: u8, chunk: Chunk, payload: &[u8]) -> Packet {
        self.any(b::FB_KIND_RESULT, source, chunk, payload)
    }

    pub fn broadcast(&self, source: u8, chunk: Chunk, payload: &[u8]) -> Packet {
        self.any(b::FB_KIND_BROADCAST, source, chunk, payload)
    }

    pub fn piece(&self, source: u8, chunk: Chunk, payload: &[u8]) -> Packet {
        self.any(b::FB_KIND_PIECE, source, chunk, payload)
    }

    pub fn pull(&self, source: u8, chunk: Chunk) -> Packet {
        let bare = Chunk { op: 0, element: 0, flags: 0, ..chunk };
        self.any(b::FB_KIND_PULL, source, bare, &[])
    }

    /// A frame that has nothing to do with a chunk.
    pub fn other(&self, source: u8, frame: b::fb_frame, payload: &[u8]) -> Packet {
        self.packet(source, self.towards(source), frame, payload)
    }

    pub fn hello(&self, source: u8) -> Packet {
        let bare = Chunk { seq: 1, op: 0, element: 0, flags: 0, consumed: 0, target: 0 };
        self.any(b::FB_KIND_HELLO, source, bare, &[])
    }

    /// The frame that the programs of this host must send to `to`, to the last byte.
    pub fn sent(&self, to: u8, kind: b::fb_kind, chunk: Chunk, payload: &[u8]) -> Vec<u8> {
        self.sent_frame(to, chunk.frame(kind), payload)
    }

    pub fn sent_frame(&self, to: u8, frame: b::fb_frame, payload: &[u8]) -> Vec<u8> {
        let packet = self.packet(self.me, to, frame, payload).with(|p| {
            (p.ip.tos, p.ip.id, p.ip.ttl) = (0, 0, 64);
            p.udp.from = b::FB_UDP_PORT as u16;
        });
        packet.bytes()
    }

    /// The PULL that they must send.
    pub fn sent_pull(&self, to: u8, chunk: Chunk) -> Vec<u8> {
        let bare = Chunk { op: 0, element: 0, flags: 0, consumed: 0, ..chunk };
        self.sent(to, b::FB_KIND_PULL, bare, &[])
    }

    pub fn ingress(&self, packet: &Packet) -> Verdict {
        self.kernel.run(Hook::Ingress, &packet.bytes(), V0, 0)
    }

    pub fn egress(&self, packet: &Packet) -> Verdict {
        self.kernel.run(Hook::Egress, &packet.bytes(), V0, 0)
    }

    /// A super-frame of so many frames, each with `bytes` of payload but for the last.
    pub fn segmented(&self, hook: Hook, packet: &Packet, count: u32, bytes: u32) -> Verdict {
        let segments = Some((count, b::FB_FRAME_BYTES + bytes));
        self.kernel.run_segmented(hook, &packet.bytes(), V0, 0, segments)
    }

    pub fn xdp(&self, packet: &Packet) -> Verdict {
        self.kernel.run(Hook::Xdp, &packet.bytes(), V0, 0)
    }

    /// The cell of a chunk.
    pub fn cell(&self, seq: u64) -> b::fb_cell {
        element(&self.cells, cell_index(seq))
    }

    /// Changes the cell of a chunk.
    pub fn change_cell(&self, seq: u64, change: impl FnOnce(&mut b::fb_cell)) {
        let mut cell = self.cell(seq);
        change(&mut cell);
        set_element(&self.cells, cell_index(seq), &cell);
    }

    /// Puts a contribution into its cell, as the leader of a host that does not aggregate does.
    pub fn post(&self, chunk: Chunk, payload: &[u8]) {
        self.change_cell(chunk.seq, |cell| {
            *cell = b::fb_cell {
                seq: chunk.seq,
                ready: cell.ready,
                consumed: chunk.consumed,
                kind: b::FB_KIND_CONTRIBUTION as u8,
                op: chunk.op,
                type_: chunk.element,
                target: chunk.target,
                length: payload.len() as u16,
                part: payload.len() as u16,
                flags: chunk.flags,
                fanned_out: 1,
                ..*cell
            };
            cell.data[..payload.len()].copy_from_slice(payload);
        });
    }

    /// Puts a broadcast into its cell, as its root does.
    pub fn post_broadcast(&self, chunk: Chunk, payload: &[u8]) {
        self.post(chunk, payload);
        self.change_cell(chunk.seq, |cell| {
            cell.kind = b::FB_KIND_BROADCAST as u8;
            cell.ready = chunk.seq;
        });
    }

    /// Puts a piece into its cell, as the sender of a parcel does, with a seal of its payload and the bytes of the
    /// parcel.
    pub fn post_piece(&self, chunk: Chunk, payload: &[u8], seal: u64, message: u64) {
        self.post(chunk, payload);
        self.change_cell(chunk.seq, |cell| {
            cell.kind = b::FB_KIND_PIECE as u8;
            cell.ready = chunk.seq;
            (cell.arrived, cell.message) = (seal, message);
        });
    }

    pub fn control(&self) -> b::fb_control {
        element(&self.cells, 0)
    }

    /// Tells the programs how far this host is.
    pub fn set_consumed(&self, seq: u64) {
        self.change_control(|control| control.consumed = seq);
    }

    fn change_control(&self, change: impl FnOnce(&mut b::fb_control)) {
        let mut control = self.control();
        change(&mut control);
        set_element(&self.cells, 0, &control);
    }

    /// Gives the members an address in common, which all hear.
    pub fn multicast(&self) {
        self.change_group(|group| {
            let all = &mut group.member[b::FB_EVERYONE as usize];
            all.address = u32::from_ne_bytes(ALL);
            let [a, b, c, d, e, f] = ALL_MAC;
            all.mac = u64::from_ne_bytes([a, b, c, d, e, f, 0, 0]);
        });
        self.change_control(|control| control.multicast = 1);
    }

    /// The frame that the programs of this host must send to all at once, to the last byte.
    pub fn sent_to_all(&self, kind: b::fb_kind, chunk: Chunk, payload: &[u8]) -> Vec<u8> {
        let packet = self.packet(self.me, 0, chunk.frame(kind), payload).with(|p| {
            (p.ip.tos, p.ip.id, p.ip.ttl) = (0, 0, 64);
            p.udp.from = b::FB_UDP_PORT as u16;
        });
        to_all(packet).bytes()
    }

    /// The counters of the group that moved since the last time this was asked, by name.
    pub fn counted(&self) -> String {
        let (now, before) = (words(&self.kernel.counters(self.slot)), self.counted.get());
        self.counted.set(now.each_ref().map(|(_, value)| *value));
        moved(&now, &before)
    }
}

/// The counters of no group since the programs were loaded.
pub fn counted_for_none(kernel: &Kernel) -> String {
    moved(&words(&kernel.counters(b::FB_MAX_GROUPS)), &[0; COUNTERS])
}

fn words(counters: &b::fb_counters) -> [(String, u64); COUNTERS] {
    let named: Vec<_> = foldback::stats::named(counters)
        .into_iter()
        .map(|(name, value)| (name, value.as_u64().expect("a number")))
        .collect();
    named.try_into().expect("all counters have names")
}

fn moved(now: &[(String, u64); COUNTERS], before: &[u64; COUNTERS]) -> String {
    let moved: Vec<String> = now
        .iter()
        .zip(before)
        .filter(|((_, now), before)| now != *before)
        .map(|((name, now), before)| format!("{name} {}", now - before))
        .collect();
    moved.join(", ")
}

/// The same packet, to the address of all members.
pub fn to_all(packet: Packet) -> Packet {
    packet.with(|p| (p.to_mac, p.ip.to) = (ALL_MAC, ALL))
}

/// Address of all members.
pub const ALL: [u8; 4] = [239, 192, 0x81, 7];
pub const ALL_MAC: [u8; 6] = [0x01, 0x00, 0x5e, 0x40, 0x81, 7];

fn cell_index(seq: u64) -> u32 {
    1 + (seq % u64::from(WINDOW)) as u32
}

/// Address of a member.
pub fn address(member: u8) -> [u8; 4] {
    [10, 77, 0, 1 + member]
}

/// MAC address of a member.
pub fn mac(member: u8) -> [u8; 6] {
    [0x02, 0xfb, 0, 0, 0x5a, 1 + member]
}

/// The same as the map holds it.
pub fn mac_word(member: u8) -> u64 {
    let [a, b, c, d, e, f] = mac(member);
    u64::from_ne_bytes([a, b, c, d, e, f, 0, 0])
}
