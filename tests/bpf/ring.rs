//! A fold along a ring: every member adds its own to what the one before it passes on.

use foldback::bindings as b;

use crate::host::{Chunk, Host, SUM, TC_NEXT, TC_REDIRECT, TC_TAKEN, XDP_DROP, XDP_PASS, ints};
use crate::namespace::{Peer, in_namespace};
use crate::packet::Packet;
use crate::star::data;

/// It ends at member 0, so it begins at member 1.
const RING: Chunk = Chunk { flags: b::FB_FLAG_RING as u8, ..SUM };
const MISSES_RESULT: u8 = (b::FB_FLAG_RING | b::FB_FLAG_RESULT_TO_ALL) as u8;

/// The leader has added its own to an empty cell.
fn add_own(host: &Host, chunk: Chunk, values: &[i32]) {
    host.post(chunk, &ints(values));
    host.change_cell(chunk.seq, |cell| {
        (cell.arrived, cell.fanned_out, cell.part) = (1 << host.me, 0, 0);
    });
}

fn pull(host: &Host, asker: u8, flags: u8) -> Packet {
    host.pull(asker, RING).with(|p| p.frame.flags = flags)
}

fn sent_pull(host: &Host, to: u8, flags: u8) -> Vec<u8> {
    host.sent(to, b::FB_KIND_PULL, Chunk { op: 0, element: 0, flags, consumed: 0, ..RING }, &[])
}

#[test]
fn what_the_one_before_passes_on_is_added_and_goes_on() {
    in_namespace(|| {
        let (host, peer) = (Host::new(4, 2), Peer::listen());
        let at = |consumed| Chunk { consumed, ..RING };
        add_own(&host, at(5), &[1, 2]);
        let verdict = host.ingress(&host.contribution(1, at(7), &ints(&[10, 20])));
        assert_eq!((verdict.code, verdict.mark), (TC_REDIRECT, b::FB_MARK));
        assert_eq!(verdict.packet, host.sent(3, b::FB_KIND_CONTRIBUTION, at(5), &ints(&[11, 22])));
        let cell = host.cell(1);
        assert_eq!((cell.ready, cell.arrived, cell.fanned_out), (0, 0b110, 1));
        assert_eq!(
            host.counted(),
            "contributions_folded 1, frames_in 1, frames_out 1, passed_on 1"
        );
        // Once.
        let again = host.ingress(&host.contribution(1, at(7), &ints(&[10, 20])));
        assert_eq!((again.code, data(&host.cell(1), 8)), (TC_TAKEN, ints(&[11, 22])));
        assert_eq!(host.counted(), "duplicates 1, frames_in 1");
        assert!(peer.frames(0).is_empty());
    });
}

#[test]
fn what_comes_before_the_own_contribution_waits() {
    in_namespace(|| {
        let host = Host::new(4, 2);
        assert_eq!(host.ingress(&host.contribution(1, RING, &ints(&[10]))).code, TC_TAKEN);
        let cell = host.cell(1);
        assert_eq!((cell.ready, cell.arrived, cell.fanned_out), (0, 0b10, 0));
        assert_eq!(data(&cell, 4), ints(&[10]));
        assert_eq!(host.counted(), "contributions_folded 1, frames_in 1");
    });
}

#[test]
fn the_fold_ends_at_the_target_and_the_result_goes_the_same_way() {
    in_namespace(|| {
        let (host, peer) = (Host::new(4, 0), Peer::listen());
        add_own(&host, RING, &[1]);
        let verdict = host.ingress(&host.contribution(3, RING, &ints(&[30])));
        assert_eq!(verdict.code, TC_REDIRECT);
        assert_eq!(verdict.packet, host.sent(1, b::FB_KIND_RESULT, RING, &ints(&[31])));
        assert_eq!((host.cell(1).ready, data(&host.cell(1), 4)), (1, ints(&[31])));
        assert_eq!(
            host.counted(),
            "chunks_completed 1, contributions_folded 1, frames_in 1, frames_out 1, passed_on 1"
        );
        // The answer to a question that was late.
        assert_eq!(host.ingress(&host.result(3, RING, &ints(&[31]))).code, TC_TAKEN);
        assert_eq!(host.counted(), "duplicates 1, frames_in 1");
        assert!(peer.frames(0).is_empty());
    });
}

#[test]
fn a_result_goes_on_until_all_have_it() {
    in_namespace(|| {
        let at = Chunk { consumed: 3, ..RING };
        for (me, next) in [(1, Some(2)), (2, Some(3)), (3, None)] {
            let host = Host::new(4, me);
            add_own(&host, RING, &[1]);
            host.counted();
            let verdict = host.ingress(&host.result(me - 1, at, &ints(&[31])));
            match next {
                Some(next) => {
                    let sent = host.sent(next, b::FB_KIND_RESULT, at, &ints(&[31]));
                    assert_eq!((verdict.code, verdict.packet), (TC_REDIRECT, sent));
                }
                None => assert_eq!(verdict.code, TC_TAKEN),
            }
            assert_eq!((host.cell(1).ready, data(&host.cell(1), 4)), (1, ints(&[31])));
            let again = host.ingress(&host.result(me - 1, at, &ints(&[31])));
            assert_eq!(again.code, TC_TAKEN);
            assert!(host.counted().contains("deposited 1, duplicates 1"));
        }
    });
}

#[test]
fn only_the_one_before_passes_anything_on() {
    in_namespace(|| {
        let host = Host::new(4, 2);
        add_own(&host, RING, &[1]);
        for source in [0, 3] {
            host.ingress(&host.contribution(source, RING, &ints(&[10])));
            host.ingress(&host.result(source, RING, &ints(&[10])));
        }
        assert_eq!(host.counted(), "drop_malformed 4, frames_in 2");
        // Nor is a star's contribution added.
        host.ingress(&host.contribution(1, Chunk { target: 2, ..SUM }, &ints(&[10])));
        assert_eq!(host.counted(), "drop_mismatch 1, frames_in 1");
    });
}

#[test]
fn the_one_behind_gets_again_what_it_misses() {
    in_namespace(|| {
        let (host, peer) = (Host::new(4, 2), Peer::listen());
        let silent = |packet: &Packet| {
            assert_eq!(host.ingress(packet).code, TC_TAKEN);
            assert_eq!(host.counted(), "frames_in 1");
        };
        // Nothing is known of the chunk yet; and all but the one behind are none of its business.
        silent(&pull(&host, 3, RING.flags));
        add_own(&host, RING, &[1]);
        silent(&pull(&host, 1, RING.flags));
        // The leader asks for what is missing; if it does not, asked once more, the programs do.
        silent(&pull(&host, 3, RING.flags));
        let asked = host.ingress(&pull(&host, 3, RING.flags));
        assert_eq!((asked.code, asked.packet), (TC_REDIRECT, sent_pull(&host, 1, RING.flags)));
        host.ingress(&host.contribution(1, RING, &ints(&[10])));
        host.counted();
        let again = host.ingress(&pull(&host, 3, RING.flags));
        let partial = host.sent(3, b::FB_KIND_CONTRIBUTION, RING, &ints(&[11]));
        assert_eq!((again.code, again.packet), (TC_REDIRECT, partial));
        assert_eq!(host.counted(), "frames_in 1, frames_out 1, retransmissions 1");
        // It has that, and misses the result, as this host does.
        let asked = host.ingress(&pull(&host, 3, MISSES_RESULT));
        assert_eq!((asked.code, asked.packet), (TC_REDIRECT, sent_pull(&host, 1, MISSES_RESULT)));
        host.ingress(&host.result(1, RING, &ints(&[31])));
        let result = host.sent(3, b::FB_KIND_RESULT, RING, &ints(&[31]));
        for flags in [RING.flags, MISSES_RESULT] {
            assert_eq!(host.ingress(&pull(&host, 3, flags)).packet, result);
        }
        assert!(peer.frames(0).is_empty());
    });
}

#[test]
fn what_xdp_completes_tc_passes_on_once() {
    in_namespace(|| {
        let (host, peer) = (Host::new(4, 2), Peer::listen());
        let partial = host.contribution(1, RING, &ints(&[10]));
        let early = Chunk { seq: 2, ..RING };
        assert_eq!(host.xdp(&host.contribution(1, early, &ints(&[10]))).code, XDP_DROP);
        add_own(&host, RING, &[1]);
        assert_eq!(host.xdp(&partial).code, XDP_PASS);
        let verdict = host.ingress(&partial);
        let sent = host.sent(3, b::FB_KIND_CONTRIBUTION, RING, &ints(&[11]));
        assert_eq!((verdict.code, verdict.packet), (TC_REDIRECT, sent));
        let result = host.result(1, RING, &ints(&[31]));
        assert_eq!(host.xdp(&result).code, XDP_PASS);
        assert_eq!(host.cell(1).ready, 1);
        let verdict = host.ingress(&result);
        let sent = host.sent(3, b::FB_KIND_RESULT, RING, &ints(&[31]));
        assert_eq!((verdict.code, verdict.packet), (TC_REDIRECT, sent));
        assert_eq!(host.xdp(&result).code, XDP_DROP);
        assert_eq!(host.ingress(&result).code, TC_TAKEN);
        assert!(peer.frames(0).is_empty());
        assert_eq!(
            host.counted(),
            "contributions_folded 2, deposited 1, duplicates 2, frames_in 5, frames_out 2, passed_on 2"
        );
    });
}

#[test]
fn what_the_leader_completes_goes_out_as_it_is() {
    in_namespace(|| {
        let host = Host::new(4, 0);
        for packet in [
            host.contribution(0, Chunk { target: 3, ..RING }, &ints(&[1])),
            host.result(0, RING, &ints(&[31])),
        ] {
            let out = host.egress(&packet);
            assert_eq!((out.code, out.packet), (TC_NEXT, packet.let_out().bytes()));
            assert_eq!(host.counted(), "frames_out 1");
        }
        assert_eq!(host.egress(&host.result(0, SUM, &ints(&[31]))).code, TC_TAKEN);
        assert_eq!(host.counted(), "drop_malformed 1");
    });
}
