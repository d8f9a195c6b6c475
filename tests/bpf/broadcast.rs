//! Broadcasts: out at the root's egress, into the cells of all others.

use foldback::bindings as b;

use crate::host::{Chunk, Host, SUM, TC_NEXT, TC_REDIRECT, TC_TAKEN, WINDOW, ints};
use crate::namespace::{Peer, in_namespace};
use crate::star::data;

/// From member 2. The window of whoever has not begun yet begins at 0.
const BROADCAST: Chunk = Chunk { seq: 4, op: 0, element: 0, target: 2, flags: 0, consumed: 3 };

#[test]
fn the_roots_frame_goes_out_to_all_others() {
    in_namespace(|| {
        let (host, peer) = (Host::new(4, 2), Peer::listen());
        let payload: Vec<u8> = (0..b::FB_CHUNK_BYTES).map(|i| i as u8).collect();
        let last = host.egress(&host.broadcast(2, BROADCAST, &payload));
        let sent = |to| host.sent(to, b::FB_KIND_BROADCAST, BROADCAST, &payload);
        assert_eq!((last.code, last.mark), (TC_NEXT, b::FB_MARK));
        assert!(last.packet == sent(3));
        assert!(peer.frames(2) == [sent(0), sent(1)]);
        assert_eq!(host.counted(), "fan_outs 1, frames_out 3");
    });
}

#[test]
fn a_member_never_heard_of_is_sent_nothing() {
    in_namespace(|| {
        let (host, peer) = (Host::new(4, 2), Peer::listen());
        host.change_group(|group| (group.member[1].mac, group.member[3].mac) = (0, 0));
        let last = host.egress(&host.broadcast(2, BROADCAST, &[1]));
        assert!(last.packet == host.sent(0, b::FB_KIND_BROADCAST, BROADCAST, &[1]));
        assert!(peer.frames(0).is_empty());
        assert_eq!(host.counted(), "drop_no_mac 2, fan_outs 1, frames_out 1");
    });
}

#[test]
fn nobody_broadcasts_in_anothers_name() {
    in_namespace(|| {
        let (host, peer) = (Host::new(4, 1), Peer::listen());
        assert_eq!(host.egress(&host.broadcast(1, BROADCAST, &[1])).code, TC_TAKEN);
        assert_eq!(host.counted(), "drop_malformed 1");
        assert!(peer.frames(0).is_empty());

        let not_the_root = host.broadcast(0, BROADCAST, &[1]);
        assert_eq!(host.ingress(&not_the_root).code, TC_TAKEN);
        assert_eq!(host.counted(), "drop_malformed 1, frames_in 1");
        // Any member may tell the result of a direct fold; a broadcast is its root's all the same.
        let direct = Chunk { flags: b::FB_FLAG_DIRECT as u8, ..BROADCAST };
        assert_eq!(host.ingress(&host.broadcast(0, direct, &[1])).code, TC_TAKEN);
        assert_eq!(host.counted(), "drop_malformed 1, frames_in 1");
        let from_this_host = host.broadcast(2, Chunk { target: 1, ..BROADCAST }, &[1]);
        assert_eq!(host.ingress(&from_this_host).code, TC_TAKEN);
        assert_eq!(host.counted(), "drop_malformed 1, frames_in 1");
        assert_eq!(host.cell(4).seq, 0);
    });
}

#[test]
fn it_is_there_before_the_receiver_is() {
    in_namespace(|| {
        let host = Host::new(4, 1);
        assert_eq!(host.ingress(&host.broadcast(2, BROADCAST, b"first!")).code, TC_TAKEN);
        let cell = host.cell(4);
        assert_eq!((cell.seq, cell.ready, cell.consumed, cell.lock), (4, 4, 3, 0));
        assert_eq!((u32::from(cell.kind), cell.target), (b::FB_KIND_BROADCAST, 2));
        assert_eq!((cell.length, data(&cell, 6)), (6, b"first!".to_vec()));
        assert_eq!(host.counted(), "deposited 1, frames_in 1");

        host.ingress(&host.broadcast(2, BROADCAST, b"second"));
        assert_eq!(host.counted(), "duplicates 1, frames_in 1");
        assert_eq!(data(&host.cell(4), 6), b"first!");

        let last = Chunk { seq: u64::from(WINDOW), ..BROADCAST };
        host.ingress(&host.broadcast(2, last, b"inside"));
        assert_eq!(host.counted(), "deposited 1, frames_in 1");
        let beyond = Chunk { seq: 1 + u64::from(WINDOW), ..BROADCAST };
        host.ingress(&host.broadcast(2, beyond, b"beyond"));
        assert_eq!(host.counted(), "drop_window 1, frames_in 1");
    });
}

#[test]
fn an_empty_one_is_one_too() {
    in_namespace(|| {
        let host = Host::new(4, 1);
        host.ingress(&host.broadcast(2, BROADCAST, &[]));
        assert_eq!((host.cell(4).ready, host.cell(4).length), (4, 0));
    });
}

#[test]
fn it_does_not_replace_a_contribution_to_the_same_chunk() {
    in_namespace(|| {
        let host = Host::new(4, 2);
        let folded = Chunk { target: 2, ..SUM };
        host.ingress(&host.contribution(1, folded, &ints(&[5])));
        host.counted();
        let broadcast = host.broadcast(0, Chunk { target: 0, ..SUM }, &ints(&[6]));
        host.ingress(&broadcast);
        assert_eq!(host.counted(), "drop_mismatch 1, frames_in 1");
        assert_eq!(data(&host.cell(1), 4), ints(&[5]));
    });
}

/// A vector of member 2's, for members 0 and 3.
const TO_SOME: Chunk = Chunk { flags: b::FB_FLAG_SOME as u8, consumed: 0b1001, ..BROADCAST };

#[test]
fn one_for_some_goes_to_these_alone() {
    in_namespace(|| {
        let (host, peer) = (Host::new(4, 2), Peer::listen());
        let last = host.egress(&host.broadcast(2, TO_SOME, b"vector"));
        let sent = |to| host.sent(to, b::FB_KIND_BROADCAST, TO_SOME, b"vector");
        assert_eq!((last.code, last.mark), (TC_NEXT, b::FB_MARK));
        assert!(last.packet == sent(3));
        assert!(peer.frames(1) == [sent(0)]);
        assert_eq!(host.counted(), "fan_outs 1, frames_out 2");
        // A host is no receiver of its own frames, and there is no member 5.
        for (mask, counted) in [(0, "fan_outs 1"), (0b10_0100, "fan_outs 1")] {
            let to_nobody = Chunk { consumed: mask, ..TO_SOME };
            assert_eq!(host.egress(&host.broadcast(2, to_nobody, b"vector")).code, TC_TAKEN);
            assert_eq!(host.counted(), counted);
        }
        assert!(peer.frames(0).is_empty());
    });
}

#[test]
fn one_for_some_is_deposited_and_asked_for_as_any() {
    in_namespace(|| {
        let host = Host::new(4, 3);
        assert_eq!(host.ingress(&host.broadcast(2, TO_SOME, b"vector")).code, TC_TAKEN);
        assert_eq!((host.cell(4).ready, data(&host.cell(4), 6)), (4, b"vector".to_vec()));
        assert_eq!(host.counted(), "deposited 1, frames_in 1");
        let other = Chunk { seq: 5, target: 1, ..TO_SOME };
        assert_eq!(host.ingress(&host.broadcast(2, other, b"forged")).code, TC_TAKEN);
        assert_eq!((host.counted(), host.cell(5).seq), ("drop_malformed 1, frames_in 1".into(), 0));
        // No other kind of frame is for some.
        for odd in [host.contribution(2, TO_SOME, b""), host.piece(2, TO_SOME, b"vector")] {
            assert_eq!(host.ingress(&odd).code, TC_TAKEN);
            assert_eq!(host.counted(), "drop_malformed 1", "{odd:?}");
        }
    });
    in_namespace(|| {
        let host = Host::new(4, 2);
        host.post_broadcast(TO_SOME, b"vector");
        let question = host.pull(3, Chunk { flags: 0, target: 3, ..TO_SOME });
        let answer = host.ingress(&question);
        assert_eq!(answer.code, TC_REDIRECT);
        assert!(answer.packet == host.sent(3, b::FB_KIND_BROADCAST, TO_SOME, b"vector"));
        assert_eq!(host.counted(), "frames_in 1, frames_out 1, retransmissions 1");
    });
}
