//! Pieces: a member's part of a message, for one other alone.

use foldback::bindings as b;

use crate::host::{Chunk, Host, TC_NEXT, TC_REDIRECT, TC_TAKEN, WINDOW, XDP_DROP, XDP_PASS};
use crate::namespace::{Peer, in_namespace};
use crate::star::data;

/// For member 1.
const PIECE: Chunk = Chunk { seq: 2, op: 0, element: 0, target: 1, flags: 0, consumed: 5 };

#[test]
fn it_is_put_into_the_cell_of_whom_it_is_for() {
    in_namespace(|| {
        let host = Host::new(4, 1);
        assert_eq!(host.ingress(&host.piece(3, PIECE, b"mine")).code, TC_TAKEN);
        let cell = host.cell(2);
        assert_eq!((cell.seq, cell.ready, cell.consumed, cell.lock), (2, 2, 5, 0));
        assert_eq!((u32::from(cell.kind), data(&cell, 4)), (b::FB_KIND_PIECE, b"mine".to_vec()));
        assert_eq!(host.counted(), "deposited 1, frames_in 1");
        host.ingress(&host.piece(3, PIECE, b"late"));
        assert_eq!((host.counted(), data(&host.cell(2), 4)).0, "duplicates 1, frames_in 1");
        assert_eq!(data(&host.cell(2), 4), b"mine");

        assert_eq!(host.xdp(&host.piece(3, Chunk { seq: 3, ..PIECE }, b"xdp!")).code, XDP_DROP);
        assert_eq!((host.cell(3).ready, data(&host.cell(3), 4)), (3, b"xdp!".to_vec()));
        assert_eq!(host.counted(), "deposited 1, frames_in 1");
    });
}

#[test]
fn none_is_taken_that_is_not_for_this_host() {
    in_namespace(|| {
        let host = Host::new(4, 1);
        for wrong in [
            Chunk { target: 2, ..PIECE },
            Chunk { target: 3, ..PIECE },
            Chunk { flags: b::FB_FLAG_DIRECT as u8, ..PIECE },
            Chunk { flags: b::FB_FLAG_RESULT_TO_ALL as u8, ..PIECE },
        ] {
            assert_eq!(host.ingress(&host.piece(3, wrong, b"oops")).code, TC_TAKEN);
            assert_eq!(host.counted(), "drop_malformed 1, frames_in 1", "{wrong:?}");
        }
        let beyond = Chunk { seq: 1 + u64::from(WINDOW), ..PIECE };
        host.ingress(&host.piece(3, beyond, b"oops"));
        assert_eq!(host.counted(), "drop_window 1, frames_in 1");
        assert_eq!(host.cell(2).seq, 0);
    });
}

/// Of member 1's parcel to member 3.
const POSTED: Chunk = Chunk { target: 3, flags: b::FB_FLAG_POSTED as u8, ..PIECE };

#[test]
fn it_leaves_as_it_is_and_is_never_sent_again() {
    in_namespace(|| {
        let (host, peer) = (Host::new(4, 1), Peer::listen());
        let piece = host.piece(1, Chunk { target: 0, ..PIECE }, b"yours");
        let sent = host.egress(&piece);
        assert!(sent.code == TC_NEXT && sent.mark == 0 && sent.packet == piece.let_out().bytes());
        assert_eq!(host.counted(), "frames_out 1");

        host.ingress(&host.piece(3, PIECE, b"mine"));
        assert_eq!(host.ingress(&host.pull(2, PIECE)).code, TC_TAKEN);
        assert_eq!(host.counted(), "deposited 1, frames_in 2");
        assert!(peer.frames(0).is_empty());
    });
}

#[test]
fn a_posted_one_is_sent_again_to_whom_it_is_for() {
    in_namespace(|| {
        let payload: Vec<u8> = (0..b::FB_CHUNK_BYTES).map(|i| (i * 7) as u8).collect();
        for host in [Host::new(4, 1), Host::without_key(4, 1)] {
            let peer = Peer::listen();
            host.post_piece(POSTED, &payload, 0x5ea1, 5000);
            let sent =
                b::fb_frame { detail: 0x5ea1, message: 5000, ..POSTED.frame(b::FB_KIND_PIECE) };
            let question = host.pull(3, POSTED);
            // XDP cannot send.
            assert_eq!(host.xdp(&question).code, XDP_PASS);
            for _ in 0..2 {
                let verdict = host.ingress(&question);
                assert_eq!((verdict.code, verdict.mark), (TC_REDIRECT, b::FB_MARK));
                assert!(verdict.packet == host.sent_frame(3, sent, &payload));
                assert_eq!(host.counted(), "frames_in 1, frames_out 1, retransmissions 1");
            }
            assert!(peer.frames(0).is_empty());
        }
    });
}

#[test]
fn a_posted_one_is_told_to_nobody_else() {
    in_namespace(|| {
        let (host, peer) = (Host::new(4, 1), Peer::listen());
        host.post_piece(POSTED, b"theirs", 1, 6);
        // Of another member; in the name of whom it is for; and of chunks before and behind it.
        for (asker, chunk) in [
            (0, Chunk { target: 0, ..POSTED }),
            (2, POSTED),
            (3, Chunk { seq: 3, ..POSTED }),
            (0, Chunk { seq: 3, target: 0, ..POSTED }),
        ] {
            assert_eq!(host.ingress(&host.pull(asker, chunk)).code, TC_TAKEN);
            assert_eq!(host.counted(), "frames_in 1", "{asker}: {chunk:?}");
        }
        let stale = Chunk { seq: 10, ..POSTED };
        host.post_piece(stale, b"later", 1, 5);
        assert_eq!(host.ingress(&host.pull(3, POSTED)).code, TC_TAKEN);
        assert_eq!(host.counted(), "drop_stale 1, frames_in 1");
        assert!(peer.frames(0).is_empty());
    });
}

/// Its receiver has it, and nobody else is to have it from there.
#[test]
fn a_posted_one_that_has_come_is_not_passed_on() {
    in_namespace(|| {
        let (host, peer) = (Host::new(4, 1), Peer::listen());
        let piece = Chunk { target: 1, ..POSTED };
        assert_eq!(host.ingress(&host.piece(3, piece, b"mine")).code, TC_TAKEN);
        assert_eq!(host.counted(), "deposited 1, frames_in 1");
        let cell = host.cell(2);
        assert_eq!((cell.ready, cell.flags), (2, b::FB_FLAG_POSTED as u8));
        // Also to its sender, which asks for nothing.
        for asker in [0, 3] {
            assert_eq!(host.ingress(&host.pull(asker, piece)).code, TC_TAKEN);
            assert_eq!(host.counted(), "frames_in 1");
        }
        // It was asked for too early: the leader is to know.
        let repeated = host.control().repeated;
        host.ingress(&host.piece(3, piece, b"mine"));
        assert_eq!(host.counted(), "duplicates 1, frames_in 1");
        assert_eq!(host.control().repeated, repeated + 1);
        assert!(peer.frames(0).is_empty());
    });
}

#[test]
fn only_a_piece_is_posted() {
    in_namespace(|| {
        let host = Host::new(4, 1);
        for kind in [b::FB_KIND_BROADCAST, b::FB_KIND_RESULT, b::FB_KIND_PULL] {
            let odd = host.piece(3, Chunk { target: 3, ..POSTED }, b"oops");
            let odd = odd.with(|p| p.frame.kind = kind as u8);
            assert_eq!(host.ingress(&odd).code, TC_TAKEN);
            assert_eq!(host.counted(), "drop_malformed 1");
        }
    });
}
