//! A gather: every member's part is put to its place in the chunk.

use foldback::bindings as b;

use crate::host::{Chunk, Host, SUM, TC_REDIRECT, TC_TAKEN, XDP_DROP, XDP_PASS};
use crate::namespace::{Peer, in_namespace};
use crate::packet::Packet;
use crate::star::data;

const EXTENT: u16 = 32;
const GATHER: Chunk = Chunk { op: b::FB_OP_PLACE as u8, element: 0, ..SUM };

/// The contribution of a member of three: 4 bytes at 0, 9 at 8, 7 at 24.
fn part(host: &Host, member: u8) -> Packet {
    let (offset, payload): (u16, &[u8]) = match member {
        0 => (0, b"aaaa"),
        1 => (8, b"bbbbbbbbb"),
        _ => (24, b"ccccccc"),
    };
    placed(host, member, offset, EXTENT, payload)
}

fn placed(host: &Host, member: u8, offset: u16, extent: u16, payload: &[u8]) -> Packet {
    host.contribution(member, GATHER, payload)
        .with(|p| (p.frame.offset, p.frame.detail) = (offset, extent.into()))
}

/// Checks the bytes of the parts; between them may be anything.
fn assert_gathered(cell: &b::fb_cell) {
    let all = data(cell, EXTENT.into());
    assert_eq!((cell.ready, cell.length), (1, EXTENT));
    assert_eq!(
        (&all[..4], &all[8..17], &all[24..31]),
        (&b"aaaa"[..], &b"bbbbbbbbb"[..], &b"ccccccc"[..])
    );
}

#[test]
fn parts_come_to_lie_side_by_side_and_go_to_all() {
    in_namespace(|| {
        let (host, peer) = (Host::new(3, 0), Peer::listen());
        assert_eq!(host.ingress(&part(&host, 2)).code, TC_TAKEN);
        assert_eq!(host.egress(&part(&host, 0)).code, TC_TAKEN);
        let last = host.ingress(&part(&host, 1));
        assert_eq!(last.code, TC_REDIRECT);
        let cell = host.cell(1);
        assert_gathered(&cell);
        let result = data(&cell, EXTENT.into());
        let sent = |to| host.sent(to, b::FB_KIND_RESULT, GATHER, &result);
        assert!(last.packet == sent(2) && peer.frames(1) == [sent(1)]);
    });
}

#[test]
fn xdp_places_parts_too() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        host.egress(&part(&host, 0));
        assert_eq!(host.xdp(&part(&host, 2)).code, XDP_DROP);
        assert_eq!(host.xdp(&part(&host, 1)).code, XDP_PASS);
        assert_gathered(&host.cell(1));
    });
}

#[test]
fn a_part_may_be_of_no_bytes_or_of_the_whole_chunk() {
    in_namespace(|| {
        let whole = b::FB_CHUNK_BYTES as u16;
        let (host, payload) = (Host::new(2, 0), vec![7; usize::from(whole)]);
        host.egress(&placed(&host, 0, 0, whole, &payload));
        host.ingress(&placed(&host, 1, whole, whole, b""));
        assert_eq!((host.cell(1).ready, data(&host.cell(1), whole.into())), (1, payload));
    });
}

#[test]
fn a_lost_part_is_sent_again_to_its_place() {
    in_namespace(|| {
        let host = Host::new(3, 1);
        host.post(GATHER, b"bbbbbbbbb");
        host.change_cell(1, |cell| (cell.length, cell.part, cell.offset) = (EXTENT, 9, 8));
        let again = host.ingress(&host.pull(0, GATHER));
        assert_eq!(again.code, TC_REDIRECT);
        let frame = &again.packet[42..][..64];
        let u16_at = |at: usize| u16::from_ne_bytes([frame[at], frame[at + 1]]);
        assert_eq!((u16_at(34), u16_at(38), u16_at(40)), (9, 8, EXTENT));
        assert_eq!(&again.packet[42 + 64..], b"bbbbbbbbb");
    });
}

#[test]
fn what_does_not_fit_is_refused_by_whatever_hook() {
    in_namespace(|| {
        let host = Host::new(2, 0);
        let whole = b::FB_CHUNK_BYTES as u16;
        for (offset, extent, payload) in [
            (4, EXTENT, &b"abcd"[..]),
            (EXTENT, EXTENT, b"a"),
            (24, EXTENT, b"ninebytes"),
            (0, whole + 8, b"abcd"),
            (u16::MAX - 7, EXTENT, b"abcd"),
            (8, 0, b"abcd"),
        ] {
            let packet = placed(&host, 1, offset, extent, payload);
            host.ingress(&packet);
            assert_eq!(host.counted(), "drop_malformed 1", "{offset} of {extent}");
            host.xdp(&packet);
            assert_eq!(host.counted(), "drop_malformed 1", "{offset} of {extent}, XDP");
        }
        // Folds have neither.
        host.ingress(&host.contribution(1, SUM, &[0; 8]).with(|p| p.frame.detail = 8));
        assert_eq!(host.counted(), "drop_malformed 1");
        assert_eq!(host.cell(1).seq, 0);
    });
}

#[test]
fn members_must_agree_on_the_extent() {
    in_namespace(|| {
        let host = Host::new(2, 0);
        assert_eq!(host.egress(&placed(&host, 0, 0, 16, b"a")).code, TC_TAKEN);
        host.counted();
        host.ingress(&placed(&host, 1, 8, 24, b"b"));
        let counted = host.counted();
        assert!(counted.contains("drop_mismatch 1"), "{counted}");
        assert_eq!(host.cell(1).message, b::FB_MISMATCHED);
    });
}
