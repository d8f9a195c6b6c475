//! Super-frames: many frames in one packet that the kernel has not cut up.

use foldback::bindings as b;

use crate::host::{Chunk, Host, TC_NEXT, TC_TAKEN, WINDOW};
use crate::kernel::Hook::{Egress, Ingress};
use crate::namespace::{Peer, in_namespace};
use crate::packet::Packet;
use crate::star::data;

/// From member 2, to all.
const BROADCAST: Chunk = Chunk { seq: 1, op: 0, element: 0, target: 2, flags: 0, consumed: 0 };
const BYTES: u32 = 96;

fn payload(seq: u64) -> Vec<u8> {
    vec![seq as u8; if seq == 3 { 40 } else { BYTES as usize }]
}

/// Frames 1 to 3, the last of which is short.
fn frames(host: &Host) -> [Packet; 3] {
    [1, 2, 3].map(|seq| host.broadcast(2, Chunk { seq, ..BROADCAST }, &payload(seq)))
}

fn whole([first, rest @ ..]: [Packet; 3]) -> Packet {
    first.and(&rest)
}

fn deposited(host: &Host) -> Vec<u64> {
    let is_there = |seq: &u64| {
        let cell = host.cell(*seq);
        cell.ready == *seq && data(&cell, payload(*seq).len()) == payload(*seq)
    };
    (1..u64::from(WINDOW)).filter(is_there).collect()
}

#[test]
fn each_frame_is_put_into_its_cell() {
    in_namespace(|| {
        let host = Host::new(4, 1);
        let packet = whole(frames(&host));
        assert_eq!(host.segmented(Ingress, &packet, 3, BYTES).code, TC_TAKEN);
        assert_eq!(deposited(&host), [1, 2, 3]);
        assert_eq!(host.counted(), "deposited 3, frames_in 3");
        host.segmented(Ingress, &packet, 3, BYTES);
        assert_eq!(host.counted(), "duplicates 3, frames_in 3");

        let pieces =
            [4, 5].map(|seq| host.piece(3, Chunk { seq, target: 1, ..BROADCAST }, &payload(seq)));
        let [first, second] = pieces;
        host.segmented(Ingress, &first.and(&[second]), 2, BYTES);
        assert_eq!(deposited(&host), [1, 2, 3, 4, 5]);
        assert_eq!(host.counted(), "deposited 2, frames_in 2");
    });
}

/// A frame spoiled in any way is not taken in, and takes no other with it.
#[test]
fn each_frame_is_judged_by_itself() {
    type Spoil = fn(&mut b::fb_frame);
    let ways: &'static [(&str, Spoil)] = &[
        ("drop_malformed", |f| f.magic ^= 1),
        ("drop_malformed", |f| f.version += 1),
        ("drop_malformed", |f| f.kind = b::FB_KIND_PIECE as u8),
        ("drop_malformed", |f| f.kind = b::FB_KIND_CONTRIBUTION as u8),
        ("drop_malformed", |f| f.token ^= 1 << 40),
        ("drop_malformed", |f| f.source = 3),
        ("drop_malformed", |f| f.target = 1),
        ("drop_malformed", |f| f.target = 200),
        ("drop_malformed", |f| f.seq = 0),
        ("drop_malformed", |f| f.op = b::FB_OP_COUNT as u8),
        ("drop_malformed", |f| f.type_ = b::FB_TYPE_COUNT as u8),
        ("drop_malformed", |f| f.flags = 4),
        ("drop_malformed", |f| f.offset = 8),
        ("drop_malformed", |f| f.length = BYTES as u16 + 8),
        ("drop_malformed", |f| f.length = u16::MAX),
        ("drop_window", |f| f.seq = 1 << 60),
    ];
    in_namespace(move || {
        for (counter, spoil) in ways {
            for at in [1, 2] {
                let host = Host::new(4, 1);
                let mut all = frames(&host);
                spoil(&mut all[at].frame);
                assert_eq!(host.segmented(Ingress, &whole(all), 3, BYTES).code, TC_TAKEN);
                let rest: Vec<u64> = (1..=3).filter(|seq| *seq != at as u64 + 1).collect();
                assert_eq!(deposited(&host), rest, "{counter}");
                let counted = host.counted();
                assert!(counted.contains(&format!("{counter} 1")), "{counted}, not {counter}");
            }
        }
    });
}

#[test]
fn a_packet_that_is_none_is_dropped() {
    in_namespace(|| {
        let host = Host::new(4, 1);
        let refused = |packet: Packet, bytes: u32| {
            assert_eq!(host.segmented(Ingress, &packet, 3, bytes).code, TC_TAKEN);
            assert_eq!(host.counted(), "drop_malformed 1");
        };
        refused(whole(frames(&host)), BYTES - 8);
        refused(whole(frames(&host)), BYTES + 8);
        refused(whole(frames(&host)).with(|p| p.udp.length -= 1), BYTES);
        refused(whole(frames(&host)).with(|p| p.ip.total_length += 1), BYTES);
        refused(whole(frames(&host)).with(|p| p.frame.version += 1), BYTES);
        let sums = frames(&host).map(|p| p.with(|p| p.frame.kind = b::FB_KIND_CONTRIBUTION as u8));
        refused(whole(sums), BYTES);
        let results = frames(&host).map(|p| p.with(|p| p.frame.kind = b::FB_KIND_RESULT as u8));
        refused(whole(results), BYTES);
        // From nobody's address.
        let packet = whole(frames(&host)).with(|p| p.ip.from = [10, 77, 0, 99]);
        host.segmented(Ingress, &packet, 3, BYTES);
        assert_eq!((host.counted().as_str(), deposited(&host)), ("drop_stranger 1", vec![]));
        // Cut off in the last frame: what is whole is good.
        let mut cut = whole(frames(&host));
        cut.payload.truncate(cut.payload.len() - 41);
        host.segmented(Ingress, &cut.and(&[]), 3, BYTES);
        assert_eq!(deposited(&host), [1, 2]);
    });
}

#[test]
fn a_broadcast_of_many_goes_out_to_all_others_in_one_packet_each() {
    in_namespace(|| {
        // Of a test run's packet the kernel does not know how to segment it, and drops the clones: those
        // are for tests in namespaces. Here, the last.
        let host = Host::new(4, 2);
        let last = host.segmented(Egress, &whole(frames(&host)), 3, BYTES);
        let sent = |to: u8| {
            let [first, rest @ ..] = frames(&host);
            let alone = host.sent(to, b::FB_KIND_BROADCAST, BROADCAST, &payload(1));
            // The outer headers are a single frame's, but for lengths and checksums.
            let mut packet = first.and(&rest).with(|p| {
                (p.ip.tos, p.ip.id, p.ip.ttl) = (0, 0, 64);
                (p.from_mac, p.to_mac) = (crate::host::mac(2), crate::host::mac(to));
                p.ip.to = crate::host::address(to);
                p.udp.from = b::FB_UDP_PORT as u16;
            });
            packet.udp.checksum = pseudo_sum(&packet);
            let bytes = packet.bytes();
            assert_eq!(bytes[..14], alone[..14]);
            bytes
        };
        assert_eq!((last.code, last.mark), (TC_NEXT, b::FB_MARK));
        assert!(last.packet == sent(3));
        assert_eq!(host.counted(), "drop_kernel 2, fan_outs 3, frames_out 9");
    });
}

/// The sum that the NIC begins with when it fills in the checksum: RFC 768.
fn pseudo_sum(packet: &Packet) -> u16 {
    let words = [packet.ip.from, packet.ip.to].concat();
    let words = words.as_chunks::<2>().0.iter().map(|pair| u32::from(u16::from_be_bytes(*pair)));
    let sum = words.sum::<u32>() + 17 + u32::from(packet.udp.length);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

#[test]
fn nobody_hides_a_frame_of_another_group_in_one() {
    type Spoil = fn(&mut b::fb_frame);
    let ways: &'static [Spoil] = &[
        |f| f.magic ^= 1,
        |f| f.token ^= 1 << 40,
        |f| f.source = 3,
        |f| f.target = 3,
        |f| f.kind = b::FB_KIND_PULL as u8,
    ];
    in_namespace(move || {
        let (host, peer) = (Host::new(4, 2), Peer::listen());
        for spoil in ways {
            let mut all = frames(&host);
            spoil(&mut all[2].frame);
            assert_eq!(host.segmented(Egress, &whole(all), 3, BYTES).code, TC_TAKEN);
            assert_eq!(host.counted(), "drop_malformed 1");
        }
        assert!(peer.frames(0).is_empty());
    });
}
