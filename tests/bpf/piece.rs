//! Pieces: a member's part of a message, for one other alone.

use foldback::bindings as b;

use crate::host::{Chunk, Host, TC_NEXT, TC_TAKEN, WINDOW, XDP_DROP};
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
