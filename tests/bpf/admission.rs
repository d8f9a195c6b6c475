//! The packets that programs take, drop, or leave to others.

use foldback::bindings as b;

use crate::host::{
    Chunk, Host, SUM, TC_NEXT, TC_TAKEN, WINDOW, XDP_DROP, XDP_PASS, address, counted_for_none,
    ints, mac, mac_word,
};
use crate::kernel::{Hook, Kernel};
use crate::namespace::{V0, in_namespace};
use crate::packet::Packet;

const HOOKS: [Hook; 3] = [Hook::Ingress, Hook::Egress, Hook::Xdp];

/// A change of a packet, and what to call it.
type Spoiled = (&'static str, fn(&mut Packet));

#[test]
fn frames_of_each_kind_come_in() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        let theirs = |seq| Chunk { seq, target: 1, ..SUM };
        host.post(theirs(2), &ints(&[1]));
        for (packet, counted) in [
            (host.contribution(1, SUM, &ints(&[1])), "contributions_folded 1, frames_in 1"),
            (host.result(1, theirs(2), &ints(&[1])), "deposited 1, frames_in 1"),
            (host.broadcast(1, theirs(3), &ints(&[1])), "deposited 1, frames_in 1"),
            (host.pull(1, theirs(4)), "frames_in 1"),
            (host.hello(1), "frames_in 1"),
        ] {
            assert_eq!(host.ingress(&packet).code, TC_TAKEN);
            assert_eq!(host.counted(), counted, "{packet:?}");
        }
    });
}

/// Spoiled frames that are dropped on their way in or out.
const MALFORMED: [Spoiled; 21] = [
    ("older version", |p| p.frame.version = 0),
    ("newer version", |p| p.frame.version = b::FB_WIRE_VERSION as u8 + 1),
    ("no kind", |p| p.frame.kind = 0),
    ("kind too great", |p| p.frame.kind = b::FB_KIND_HELD as u8 + 1),
    ("op too great", |p| p.frame.op = b::FB_OP_COUNT as u8),
    ("greatest op", |p| p.frame.op = u8::MAX),
    ("type too great", |p| p.frame.type_ = b::FB_TYPE_COUNT as u8),
    ("no member's target", |p| p.frame.target = 3),
    ("greatest target", |p| p.frame.target = u8::MAX),
    ("no sequence number", |p| p.frame.seq = 0),
    ("flags that exclude each other", |p| p.frame.flags |= 2),
    ("unknown flag", |p| p.frame.flags |= 4),
    ("top flag", |p| p.frame.flags |= 0x80),
    ("something behind the flags", |p| p.frame.reserved = 1),
    ("a detail that its kind has not", |p| p.frame.detail = 1 << 31),
    ("less length than the datagram", |p| p.frame.length -= 4),
    ("more length than the datagram", |p| p.frame.length += 4),
    ("UDP too short", |p| p.udp.length -= 4),
    ("UDP too long", |p| p.udp.length += 4),
    ("IP too short", |p| p.ip.total_length -= 4),
    ("IP too long", |p| p.ip.total_length += 4),
];

/// Such frames cannot come from the wire.
const MALFORMED_IN: [Spoiled; 4] = [
    ("no member's source", |p| p.frame.source = 3),
    ("source beyond any group's", |p| p.frame.source = 64),
    ("greatest source", |p| p.frame.source = u8::MAX),
    ("a contribution to another", |p| p.frame.target = 1),
];

#[test]
fn a_malformed_frame_is_dropped_by_whatever_hook() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        let sound = |source| host.contribution(source, SUM, &ints(&[1, 2]));
        for (what, spoil) in MALFORMED.iter().chain(&MALFORMED_IN) {
            let packet = sound(1).with(spoil);
            assert_eq!(host.ingress(&packet).code, TC_TAKEN, "{what}");
            assert_eq!(host.counted(), "drop_malformed 1", "{what}");
            assert_eq!(host.xdp(&packet).code, XDP_DROP, "{what}");
            assert_eq!(host.counted(), "drop_malformed 1", "{what}, XDP");
        }
        for (what, spoil) in MALFORMED {
            assert_eq!(host.egress(&sound(0).with(spoil)).code, TC_TAKEN, "{what}");
            assert_eq!(host.counted(), "drop_malformed 1", "{what}, egress");
        }
        assert_eq!(host.cell(1).seq, 0);
    });
}

/// Of every kind, at every hook; the answer to a PULL is as if nothing had been asked.
#[test]
fn a_frame_that_is_not_as_it_was_sent_is_dropped() {
    in_namespace(|| drops_what_is_spoilt(&Host::new(3, 0), "drop_forged"));
}

#[test]
fn so_is_one_of_a_group_without_a_key_by_its_checksum() {
    in_namespace(|| drops_what_is_spoilt(&Host::without_key(3, 0), "drop_corrupt"));
}

fn drops_what_is_spoilt(host: &Host, counter: &str) {
    {
        let theirs = Chunk { target: 1, ..SUM };
        let pieces = Chunk { op: 0, element: 0, flags: 0, ..SUM };
        let direct = Chunk { flags: b::FB_FLAG_DIRECT as u8, ..SUM };
        let data = ints(&[1, 2, 3]);
        let spoiled = |packet: Packet| packet.sealed().with(|p| p.frame.consumed ^= 1 << 40);
        for packet in [
            host.contribution(1, SUM, &data),
            host.contribution(1, direct, &data),
            host.broadcast(1, theirs, &data),
            host.piece(1, pieces, &data),
            host.pull(1, SUM),
        ] {
            let dropped = format!("{counter} 1, frames_in 1");
            assert_eq!(host.ingress(&spoiled(packet.clone())).code, TC_TAKEN);
            assert_eq!(host.counted(), dropped, "{packet:?}");
            let payload_only = packet.sealed().with(|p| p.payload.iter_mut().for_each(|b| *b ^= 4));
            let kind = u32::from(payload_only.frame.kind);
            // Others' payloads are the business of the process that gets them.
            if kind == b::FB_KIND_CONTRIBUTION {
                assert_eq!(host.ingress(&payload_only).code, TC_TAKEN);
                assert_eq!(host.counted(), dropped, "{payload_only:?}");
                assert_eq!(host.xdp(&payload_only).code, XDP_DROP);
                assert_eq!(host.counted(), format!("{counter} 1"), "{payload_only:?}, XDP");
            }
        }
        host.change_group(|group| group.member[1].mac = 0);
        host.ingress(&spoiled(host.hello(1)));
        assert_eq!(host.counted(), format!("{counter} 1, frames_in 1"));
        assert_eq!((host.control().heard, host.kernel.group(host.token).member[1].mac), (0, 0));
        // Of a super-frame, the spoilt frame alone.
        host.change_group(|group| group.member[1].mac = group.member[2].mac);
        let [first, second] =
            [1, 2].map(|seq| host.broadcast(1, Chunk { seq, ..theirs }, &ints(&[7])));
        host.segmented(Hook::Ingress, &spoiled(first).and(&[second]), 2, 4);
        assert_eq!(host.counted(), format!("deposited 1, {counter} 1, frames_in 2"));
        assert_eq!((host.cell(1).seq, host.cell(2).ready), (0, 2));
    }
}

/// The meaning of the bit does not matter.
#[test]
fn a_flipped_bit_of_a_frame_changes_nothing() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        let sound = host.contribution(1, SUM, &ints(&[1, 2])).sealed();
        let payload = sound.payload.len();
        for bit in 0..8 * (b::FB_FRAME_BYTES as usize + payload) {
            let flipped = sound.clone().flipped(bit);
            let code = host.ingress(&flipped).code;
            assert!([TC_TAKEN, TC_NEXT].contains(&code), "bit {bit}: verdict {code}");
            assert!((1..=u64::from(WINDOW)).all(|seq| host.cell(seq).seq == 0), "bit {bit}");
        }
        host.ingress(&sound);
        assert_eq!(host.cell(1).arrived, 0b10);
    });
}

#[test]
fn a_payload_is_of_whole_elements_and_no_longer_than_a_chunk() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        let most = b::FB_CHUNK_BYTES as usize;
        for element in 0..b::FB_TYPE_COUNT as u8 {
            let size = 1 << (element >> 1);
            let chunk = Chunk { element, ..SUM };
            let mut bad = vec![most + size];
            if size > 1 {
                bad.extend([1, size - 1, size + 1]);
            }
            for length in bad {
                let packet = host.contribution(1, chunk, &vec![1; length]);
                assert_eq!(host.ingress(&packet).code, TC_TAKEN);
                assert_eq!(host.counted(), "drop_malformed 1", "{length} bytes, type {element}");
            }
        }
        let longest = host.contribution(1, SUM, &vec![1; most]);
        host.ingress(&longest);
        assert_eq!(host.counted(), "contributions_folded 1, frames_in 1");
    });
}

#[test]
fn a_frame_must_come_from_the_member_it_names_to_this_host() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        let strangers: [Spoiled; 9] = [
            ("another member's address", |p| p.ip.from = address(2)),
            ("nobody's address", |p| p.ip.from = [10, 77, 9, 9]),
            ("this host's address", |p| p.ip.from = address(0)),
            ("another port", |p| p.udp.from += 1),
            ("anybody's port", |p| p.udp.from = 40_000),
            ("to another member", |p| p.ip.to = address(1)),
            ("to all hosts", |p| p.ip.to = [255; 4]),
            ("this host's name", |p| p.frame.source = 0),
            ("this host's name and address", |p| {
                (p.frame.source, p.ip.from) = (0, address(0));
            }),
        ];
        let theirs = Chunk { target: 1, ..SUM };
        let frames = [
            (true, host.contribution(1, SUM, &ints(&[1]))),
            (true, host.result(1, theirs, &ints(&[1]))),
            (true, host.broadcast(1, theirs, &ints(&[1]))),
            (false, host.pull(1, SUM)),
            (false, host.hello(1)),
        ];
        for (what, spoil) in strangers {
            for (xdp, sound) in &frames {
                let packet = sound.clone().with(spoil);
                assert_eq!(host.ingress(&packet).code, TC_TAKEN);
                assert_eq!(host.counted(), "drop_stranger 1", "{what}: {packet:?}");
                if *xdp {
                    assert_eq!(host.xdp(&packet).code, XDP_DROP);
                    assert_eq!(host.counted(), "drop_stranger 1", "{what}, XDP: {packet:?}");
                }
            }
        }
        assert_eq!((host.cell(1).seq, host.control().heard), (0, 0));
    });
}

#[test]
fn a_hello_tells_where_its_sender_is() {
    in_namespace(|| {
        let host = Host::new(3, 1);
        host.change_group(|group| group.member.iter_mut().for_each(|member| member.mac = 0));
        assert_eq!(host.ingress(&host.hello(2)).code, TC_TAKEN);
        let member = |index: usize| host.kernel.group(host.token).member[index].mac;
        assert_eq!([member(0), member(1), member(2)], [0, 0, mac_word(2)]);
        assert_eq!(host.control().heard, 0b100);

        host.ingress(&host.hello(0));
        let moved = host.hello(2).with(|p| p.from_mac = mac(40));
        host.ingress(&moved);
        assert_eq!([member(0), member(2)], [mac_word(0), mac_word(2)], "the first one counts");
        assert_eq!(host.control().heard, 0b101);
        assert_eq!(host.counted(), "frames_in 3");
    });
}

/// A bond fails over, a virtual machine moves: the next sound frame tells, of whatever kind and at
/// either hook, and what it calls for goes there.
#[test]
fn a_member_is_where_its_latest_frame_came_from() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        let mac_of = |index: usize| host.kernel.group(host.token).member[index].mac;
        let theirs = |seq| Chunk { seq, target: 1, ..SUM };
        host.post(theirs(6), &ints(&[1]));
        let frames = [
            host.contribution(1, Chunk { seq: 2, ..SUM }, &ints(&[1])),
            host.broadcast(1, theirs(3), &ints(&[1])),
            host.piece(1, Chunk { seq: 4, flags: 0, ..SUM }, &ints(&[1])),
            host.result(1, theirs(6), &ints(&[1])),
        ];
        for (at, packet) in (40..).zip(&frames) {
            let moved = packet.clone().with(|p| p.from_mac = mac(at));
            assert_eq!(host.ingress(&moved).code, TC_TAKEN);
            assert_eq!(mac_of(1), mac_word(at), "{packet:?}");
            // A frame that anybody has heard, and sends again, tells nothing.
            host.ingress(packet);
            host.xdp(packet);
            assert_eq!(mac_of(1), mac_word(at), "{packet:?}, again");
        }
        let next = [
            host.contribution(1, Chunk { seq: 10, ..SUM }, &ints(&[1])),
            host.broadcast(1, theirs(11), &ints(&[1])),
        ];
        host.set_consumed(8);
        for packet in next {
            host.change_group(|group| group.member[1].mac = mac_word(40));
            assert_eq!(host.xdp(&packet).code, XDP_DROP);
            assert_eq!(mac_of(1), mac_word(1), "{packet:?}, XDP");
        }
        for packet in &frames {
            for spoil in [
                |p: &mut Packet| p.frame.consumed ^= 1,
                |p: &mut Packet| p.ip.from = address(2),
                |p: &mut Packet| p.frame.token ^= 1,
                |p: &mut Packet| p.frame.reserved = 1,
                |p: &mut Packet| p.from_mac = [0; 6],
            ] {
                let forged = packet.clone().sealed().with(|p| p.from_mac = mac(50)).with(spoil);
                host.ingress(&forged);
                host.xdp(&forged);
                assert_eq!(mac_of(1), mac_word(1), "{forged:?}");
            }
        }

        host.post(theirs(7), &ints(&[1]));
        let asked = host.pull(1, theirs(7)).with(|p| p.from_mac = mac(60));
        let answer = host.ingress(&asked).packet;
        assert_eq!((&answer[..6], mac_of(1)), (&mac(60)[..], mac_word(60)));
    });
}

#[test]
fn a_member_that_has_not_said_hello_has_nothing_else_to_say() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        host.change_group(|group| group.member[1].mac = 0);
        let theirs = Chunk { target: 1, ..SUM };
        let direct = Chunk { flags: b::FB_FLAG_DIRECT as u8, ..SUM };
        host.post(theirs, &ints(&[1]));
        let early = [
            host.contribution(1, Chunk { seq: 2, ..SUM }, &ints(&[1])),
            host.contribution(1, Chunk { seq: 3, ..direct }, &ints(&[1])),
            host.result(1, theirs, &ints(&[1])),
            host.broadcast(1, Chunk { seq: 4, ..theirs }, &ints(&[1])),
            host.piece(1, Chunk { seq: 5, flags: 0, ..SUM }, &ints(&[1])),
        ];
        for packet in &early {
            assert_eq!(host.xdp(packet).code, XDP_DROP, "{packet:?}");
            assert_eq!(host.counted(), "drop_stranger 1", "{packet:?}, XDP");
        }
        for packet in early.iter().chain([&host.pull(1, SUM)]) {
            assert_eq!(host.ingress(packet).code, TC_TAKEN, "{packet:?}");
            assert_eq!(host.counted(), "drop_stranger 1", "{packet:?}");
        }
        assert_eq!([1, 2, 3, 4, 5].map(|seq| host.cell(seq).ready), [0; 5]);
        assert_eq!([2, 3, 4, 5].map(|seq| host.cell(seq).seq), [0; 4]);
        host.ingress(&host.hello(1));
        host.ingress(&early[0]);
        assert_eq!(host.cell(2).arrived, 0b10);
    });
}

/// A program that has looked up a group may find another one in its memory.
#[test]
fn a_frame_of_a_group_whose_memory_is_anothers_touches_nothing() {
    in_namespace(|| {
        let (gone, next) = (Host::new(3, 0), Host::new(3, 0));
        gone.change_group(|group| *group = next.kernel.group(next.token));
        let theirs = Chunk { target: 1, ..SUM };
        for packet in [
            gone.contribution(1, SUM, &ints(&[1])),
            gone.broadcast(1, theirs, &ints(&[1])),
            gone.pull(1, SUM),
        ] {
            assert_eq!(gone.ingress(&packet).code, TC_TAKEN, "{packet:?}");
            assert_eq!(next.counted(), "drop_kernel 1, frames_in 1", "{packet:?}");
        }
        assert_eq!(gone.xdp(&gone.contribution(1, SUM, &ints(&[1]))).code, XDP_PASS);
        let first = gone.broadcast(1, theirs, &ints(&[1]));
        let second = gone.broadcast(1, Chunk { seq: 2, ..theirs }, &ints(&[2]));
        gone.segmented(Hook::Ingress, &first.and(&[second]), 2, 4);
        assert_eq!(next.counted(), "drop_kernel 2, frames_in 2");
        next.change_group(|group| group.member.iter_mut().for_each(|member| member.mac = 0));
        gone.change_group(|group| group.member.iter_mut().for_each(|member| member.mac = 0));
        gone.ingress(&gone.hello(2));
        assert_eq!(gone.kernel.group(gone.token).member[2].mac, 0);
        assert_eq!((next.cell(1).seq, next.cell(2).seq, next.control().heard), (0, 0, 0));
    });
}

#[test]
fn a_frame_of_an_unknown_group_passes_untouched_and_is_counted_for_the_host() {
    in_namespace(|| {
        let kernel: &'static Kernel = Box::leak(Box::new(Kernel::load()));
        let host = Host::on(kernel, 3, 0);
        let unknown = |packet: Packet| packet.with(|p| p.frame.token ^= 1 << 63);
        for (index, packet) in [
            unknown(host.contribution(1, SUM, &ints(&[1]))),
            unknown(host.hello(1)),
            // Of another version, perhaps: nobody here can tell.
            unknown(host.pull(1, SUM)).with(|p| p.frame.version = 9),
        ]
        .into_iter()
        .enumerate()
        {
            for hook in [Hook::Ingress, Hook::Egress] {
                let verdict = kernel.run(hook, &packet.bytes(), V0, 0);
                assert_eq!((verdict.code, verdict.packet), (TC_NEXT, packet.bytes()));
            }
            let seen = 2 * (index + 1);
            assert_eq!(counted_for_none(kernel), format!("no_group {seen}"));
        }
        let packet = unknown(host.contribution(1, SUM, &ints(&[1]))).bytes();
        let verdict = kernel.run(Hook::Xdp, &packet, V0, 0);
        assert_eq!((verdict.code, verdict.packet), (XDP_PASS, packet));
        assert_eq!(host.counted(), "");
    });
}

#[test]
fn other_traffic_passes_untouched_and_uncounted() {
    in_namespace(|| {
        let kernel: &'static Kernel = Box::leak(Box::new(Kernel::load()));
        let host = Host::on(kernel, 3, 0);
        let frame = host.contribution(1, SUM, &ints(&[1, 2, 3]));
        let spoiled: [Spoiled; 12] = [
            ("ARP", |p| p.ether_type = 0x0806),
            ("IPv6", |p| (p.ether_type, p.ip.version) = (0x86dd, 6)),
            ("a VLAN", |p| p.ether_type = 0x8100),
            ("no kind of IPv4", |p| p.ip.version = 5),
            ("TCP", |p| p.ip.protocol = 6),
            ("UDP of another port", |p| p.udp.to += 1),
            ("UDP from our port", |p| p.udp.to = 40_000),
            ("no magic", |p| p.frame.magic ^= 1),
            ("first fragment", |p| p.ip.fragment = 0x2000),
            ("last fragment", |p| p.ip.fragment = 0x0010),
            ("an IP option", |p| p.ip.options = vec![1, 1, 1, 0]),
            ("many IP options", |p| p.ip.options = vec![1; 40]),
        ];
        let mut packets: Vec<(String, Vec<u8>)> = spoiled
            .into_iter()
            .map(|(what, spoil)| (what.to_string(), frame.clone().with(spoil).bytes()))
            .collect();
        let arp = frame.clone().with(|p| p.ether_type = 0x0806).bytes();
        packets.push(("a short one".into(), arp[..20].to_vec()));
        // Cut behind the IP header, behind the UDP header, inside the frame.
        for length in [34, 42, 60, 105] {
            packets.push((format!("{length} bytes"), frame.bytes()[..length].to_vec()));
        }
        packets.push(("text for our port".into(), {
            let mut bytes = frame.bytes();
            bytes[42..].fill(b'x');
            bytes
        }));
        for (what, packet) in packets {
            for hook in HOOKS {
                let mark = if hook == Hook::Xdp { 0 } else { 7 };
                let verdict = kernel.run(hook, &packet, V0, mark);
                let pass = if hook == Hook::Xdp { XDP_PASS } else { TC_NEXT };
                assert_eq!((verdict.code, verdict.mark), (pass, mark), "{what}, {hook:?}");
                assert!(verdict.packet == packet, "{what}, {hook:?}: it was changed");
            }
        }
        assert_eq!((host.counted(), counted_for_none(kernel)), (String::new(), String::new()));
        assert_eq!(host.ingress(&frame).code, TC_TAKEN, "the frame itself is sound");
        assert_eq!(host.counted(), "contributions_folded 1, frames_in 1");
    });
}
