//! A direct fold: everyone sends to everyone, and every host folds for itself.

use foldback::bindings as b;

use crate::host::{Chunk, Host, SUM, TC_NEXT, TC_REDIRECT, TC_TAKEN, XDP_DROP, ints};
use crate::namespace::{Peer, in_namespace};
use crate::star::data;

const DIRECT: Chunk = Chunk { flags: b::FB_FLAG_DIRECT as u8, ..SUM };

/// The question for a direct chunk says that it is one.
fn pull(host: &Host, asker: u8) -> crate::packet::Packet {
    host.pull(asker, DIRECT).with(|p| p.frame.flags = DIRECT.flags)
}

#[test]
fn the_own_contribution_is_folded_here_and_goes_to_all_others() {
    in_namespace(|| {
        let (host, peer) = (Host::new(4, 1), Peer::listen());
        let chunk = Chunk { consumed: 5, ..DIRECT };
        let out = host.egress(&host.contribution(1, chunk, &ints(&[1, 2])));
        let sent = |to| host.sent(to, b::FB_KIND_CONTRIBUTION, chunk, &ints(&[1, 2]));
        assert_eq!((out.code, out.mark), (TC_NEXT, b::FB_MARK));
        assert_eq!(out.packet, sent(3));
        assert_eq!(peer.frames(2), [sent(0), sent(2)]);
        let cell = host.cell(1);
        assert_eq!((cell.seq, cell.ready, cell.arrived, cell.consumed), (1, 0, 0b10, 5));
        assert_eq!(host.counted(), "contributions_folded 1, fan_outs 1, frames_out 3");
    });
}

#[test]
fn the_last_contribution_completes_the_cell_and_nothing_goes_out() {
    in_namespace(|| {
        let (host, peer) = (Host::new(3, 1), Peer::listen());
        let at = |consumed| Chunk { consumed, ..DIRECT };
        host.egress(&host.contribution(1, at(7), &ints(&[1])));
        peer.frames(1);
        for (member, consumed) in [(2, 6), (0, 8)] {
            let packet = host.contribution(member, at(consumed), &ints(&[10]));
            assert_eq!(host.ingress(&packet).code, TC_TAKEN);
        }
        let cell = host.cell(1);
        assert_eq!((cell.ready, cell.consumed, data(&cell, 4)), (1, 6, ints(&[21])));
        assert!(peer.frames(0).is_empty());
        assert_eq!(
            host.counted(),
            "chunks_completed 1, contributions_folded 3, fan_outs 1, frames_in 2, frames_out 2"
        );
    });
}

#[test]
fn the_own_contribution_goes_out_as_it_is_though_it_completes_the_cell() {
    in_namespace(|| {
        let host = Host::new(2, 0);
        host.ingress(&host.contribution(1, DIRECT, &ints(&[10])));
        let out = host.egress(&host.contribution(0, DIRECT, &ints(&[1])));
        assert_eq!(out.packet, host.sent(1, b::FB_KIND_CONTRIBUTION, DIRECT, &ints(&[1])));
        assert_eq!((host.cell(1).ready, data(&host.cell(1), 4)), (1, ints(&[11])));
        // Sent again, since the other may have lost it: it is not folded again.
        let again = host.egress(&host.contribution(0, DIRECT, &ints(&[1])));
        assert_eq!((again.code, again.packet), (out.code, out.packet));
        assert_eq!(data(&host.cell(1), 4), ints(&[11]));
    });
}

#[test]
fn xdp_completes_a_cell_alone() {
    in_namespace(|| {
        let host = Host::new(2, 1);
        host.egress(&host.contribution(1, DIRECT, &ints(&[1])));
        assert_eq!(host.xdp(&host.contribution(0, DIRECT, &ints(&[10]))).code, XDP_DROP);
        assert_eq!((host.cell(1).ready, data(&host.cell(1), 4)), (1, ints(&[11])));
    });
}

#[test]
fn whoever_has_the_result_tells_it_and_nobody_else_answers() {
    in_namespace(|| {
        let (host, peer) = (Host::new(3, 2), Peer::listen());
        let silent = || assert_eq!(host.ingress(&pull(&host, 1)).code, TC_TAKEN);
        silent();
        host.egress(&host.contribution(2, DIRECT, &ints(&[1])));
        host.ingress(&host.contribution(0, DIRECT, &ints(&[10])));
        peer.frames(1);
        silent();
        host.ingress(&host.contribution(1, DIRECT, &ints(&[100])));
        host.counted();
        let told = host.ingress(&pull(&host, 1));
        assert_eq!(told.code, TC_REDIRECT);
        assert_eq!(told.packet, host.sent(1, b::FB_KIND_RESULT, DIRECT, &ints(&[111])));
        assert_eq!(host.counted(), "frames_in 1, frames_out 1, retransmissions 1");
        assert!(peer.frames(0).is_empty());
    });
}

#[test]
fn a_result_ends_the_fold_here_and_what_comes_late_is_not_folded() {
    in_namespace(|| {
        let (host, peer) = (Host::new(3, 0), Peer::listen());
        host.egress(&host.contribution(0, DIRECT, &ints(&[1])));
        peer.frames(1);
        let at = Chunk { consumed: 3, ..DIRECT };
        assert_eq!(host.ingress(&host.result(2, at, &ints(&[111]))).code, TC_TAKEN);
        let ended = || {
            let cell = host.cell(1);
            assert_eq!((cell.ready, cell.consumed, data(&cell, 4)), (1, 3, ints(&[111])));
        };
        ended();
        host.counted();
        for member in [1, 2] {
            assert_eq!(
                host.ingress(&host.contribution(member, DIRECT, &ints(&[5]))).code,
                TC_TAKEN
            );
            assert_eq!(host.xdp(&host.contribution(member, DIRECT, &ints(&[5]))).code, XDP_DROP);
        }
        ended();
        assert_eq!(host.counted(), "duplicates 4, frames_in 4");
    });
}

#[test]
fn a_star_is_not_folded_into_a_direct_chunk() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        host.ingress(&host.contribution(1, DIRECT, &ints(&[1])));
        host.counted();
        assert_eq!(host.ingress(&host.contribution(2, SUM, &ints(&[1]))).code, TC_TAKEN);
        assert_eq!(host.counted(), "drop_mismatch 1, frames_in 1");
    });
}
