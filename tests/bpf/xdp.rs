//! XDP in front of TC ingress: each packet that it lets pass is seen by TC too.

use foldback::bindings as b;

use crate::host::{
    Chunk, Host, SUM, TC_REDIRECT, TC_TAKEN, XDP_DROP, XDP_PASS, counted_for_none, ints, mac_word,
};
use crate::kernel::Kernel;
use crate::namespace::{Peer, in_namespace};
use crate::packet::Packet;
use crate::star::data;

/// XDP lets the packet pass unchanged, and counts nothing.
fn passes(host: &Host, packet: &Packet) {
    let verdict = host.xdp(packet);
    assert_eq!(verdict.code, XDP_PASS);
    assert_eq!(verdict.packet, packet.bytes());
}

#[test]
fn the_last_contribution_goes_on_to_tc_which_sends_the_result_once() {
    in_namespace(|| {
        let (host, peer) = (Host::new(3, 0), Peer::listen());
        host.egress(&host.contribution(0, SUM, &ints(&[1])));
        assert_eq!(host.xdp(&host.contribution(1, SUM, &ints(&[2]))).code, XDP_DROP);
        assert_eq!(host.counted(), "contributions_folded 2, frames_in 1");

        let last = host.contribution(2, SUM, &ints(&[4]));
        passes(&host, &last);
        assert_eq!(host.counted(), "chunks_completed 1, contributions_folded 1");
        let cell = host.cell(1);
        assert_eq!((cell.ready, cell.fanned_out, cell.lock), (1, 0, 0), "ready for the leader");
        assert_eq!(data(&cell, 4), ints(&[7]));

        let verdict = host.ingress(&last);
        let result = |to| host.sent(to, b::FB_KIND_RESULT, SUM, &ints(&[7]));
        assert_eq!((verdict.code, verdict.packet), (TC_REDIRECT, result(2)));
        assert_eq!(peer.frames(1), [result(1)]);
        assert_eq!(host.counted(), "fan_outs 1, frames_in 1, frames_out 2");

        let verdict = host.ingress(&last);
        assert_eq!((verdict.code, verdict.packet), (TC_REDIRECT, result(2)));
        assert!(peer.frames(0).is_empty(), "the second time it goes to the sender alone");
        assert_eq!(host.counted(), "duplicates 1, frames_in 1, frames_out 1, retransmissions 1");
    });
}

#[test]
fn a_result_that_tc_never_got_to_send_goes_out_when_asked_for() {
    in_namespace(|| {
        let (host, peer) = (Host::new(3, 0), Peer::listen());
        host.egress(&host.contribution(0, SUM, &ints(&[1])));
        host.xdp(&host.contribution(1, SUM, &ints(&[2])));
        passes(&host, &host.contribution(2, SUM, &ints(&[4])));
        host.counted();
        let verdict = host.ingress(&host.pull(1, SUM));
        let result = |to| host.sent(to, b::FB_KIND_RESULT, SUM, &ints(&[7]));
        assert_eq!((verdict.code, verdict.packet), (TC_REDIRECT, result(2)));
        assert_eq!(peer.frames(1), [result(1)]);
        assert_eq!(host.counted(), "fan_outs 1, frames_in 1, frames_out 2");
    });
}

#[test]
fn a_fold_that_is_sent_to_nobody_ends_in_xdp() {
    in_namespace(|| {
        let host = Host::new(2, 0);
        let reduce = Chunk { flags: 0, ..SUM };
        host.egress(&host.contribution(0, reduce, &ints(&[1])));
        assert_eq!(host.xdp(&host.contribution(1, reduce, &ints(&[2]))).code, XDP_DROP);
        assert_eq!((host.cell(1).ready, data(&host.cell(1), 4)), (1, ints(&[3])));
        assert_eq!(host.counted(), "chunks_completed 1, contributions_folded 2, frames_in 1");
    });
}

#[test]
fn results_and_broadcasts_are_deposited() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        let theirs = |seq| Chunk { seq, target: 1, ..SUM };
        host.post(theirs(1), &ints(&[1]));
        let result = host.result(1, theirs(1), &ints(&[5]));
        let broadcast = host.broadcast(1, theirs(2), &[3; b::FB_CHUNK_BYTES as usize]);
        for (packet, payload) in [(&result, ints(&[5])), (&broadcast, broadcast.payload.clone())] {
            assert_eq!(host.xdp(packet).code, XDP_DROP);
            assert_eq!(host.counted(), "deposited 1, frames_in 1");
            let cell = host.cell(packet.frame.seq);
            assert_eq!(cell.ready, packet.frame.seq);
            assert_eq!(data(&cell, payload.len()), payload);
            assert_eq!(host.xdp(packet).code, XDP_DROP);
            assert_eq!(host.counted(), "duplicates 1, frames_in 1");
        }
    });
}

#[test]
fn a_duplicate_before_the_last_is_dropped() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        let packet = host.contribution(1, SUM, &ints(&[1]));
        host.xdp(&packet);
        host.counted();
        assert_eq!(host.xdp(&packet).code, XDP_DROP);
        assert_eq!(host.counted(), "duplicates 1, frames_in 1");
    });
}

#[test]
fn stale_early_and_unlike_frames_are_dropped() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        let at = |seq| Chunk { seq, ..SUM };
        host.set_consumed(8);
        host.xdp(&host.contribution(1, at(9), &ints(&[1])));
        host.counted();
        for (packet, counted) in [
            (host.contribution(2, at(1), &ints(&[1])), "drop_stale 1, frames_in 1"),
            (host.contribution(2, at(17), &ints(&[1])), "drop_window 1, frames_in 1"),
            (
                host.contribution(2, Chunk { flags: 0, ..at(9) }, &ints(&[1])),
                "drop_mismatch 1, frames_in 1",
            ),
        ] {
            assert_eq!(host.xdp(&packet).code, XDP_DROP);
            assert_eq!(host.counted(), counted);
        }
    });
}

#[test]
fn questions_and_hellos_are_left_to_tc() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        host.change_group(|group| group.member[1].mac = 0);
        for packet in [host.pull(1, SUM), host.hello(1)] {
            passes(&host, &packet);
        }
        assert_eq!((host.counted(), host.control().heard), (String::new(), 0));
        assert_eq!(host.ingress(&host.hello(1)).code, TC_TAKEN);
        assert_eq!(host.kernel.group(host.token).member[1].mac, mac_word(1));
    });
}

#[test]
fn without_cells_the_frame_is_left_to_tc() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        host.kernel.remove_cells(host.slot);
        passes(&host, &host.contribution(1, SUM, &ints(&[1])));
        assert_eq!(host.counted(), "");
    });
}

/// XDP's part and, if XDP lets the packet pass, TC's part.
fn both(host: &Host, packet: &Packet) {
    if host.xdp(packet).code == XDP_PASS {
        host.ingress(packet);
    }
}

#[test]
fn a_duplicate_that_tc_answers_is_counted_once() {
    in_namespace(|| {
        let host = Host::new(2, 0);
        host.egress(&host.contribution(0, SUM, &ints(&[1])));
        let last = host.contribution(1, SUM, &ints(&[2]));
        both(&host, &last);
        host.counted();
        both(&host, &last);
        assert_eq!(host.counted(), "duplicates 1, frames_in 1, frames_out 1, retransmissions 1");
    });
}

#[test]
fn a_frame_of_an_unknown_group_is_counted_once_by_both() {
    in_namespace(|| {
        let kernel: &'static Kernel = Box::leak(Box::new(Kernel::load()));
        let host = Host::on(kernel, 3, 0);
        both(&host, &host.contribution(1, SUM, &ints(&[1])).with(|p| p.frame.token ^= 1 << 63));
        assert_eq!(counted_for_none(kernel), "no_group 1");
    });
}
