//! Questions for what is missing, answered from the cells.

use foldback::bindings as b;

use crate::host::{Chunk, Host, SUM, TC_REDIRECT, TC_TAKEN, ints};
use crate::namespace::{Peer, in_namespace};

/// Member 1 aggregates.
const THEIRS: Chunk = Chunk { target: 1, ..SUM };

/// The host takes the question and says nothing.
fn silent(host: &Host, asker: u8, chunk: Chunk) {
    assert_eq!(host.ingress(&host.pull(asker, chunk)).code, TC_TAKEN);
    assert_eq!(host.counted(), "frames_in 1");
}

#[test]
fn a_posted_contribution_is_sent_again_to_the_aggregator() {
    in_namespace(|| {
        let (host, peer) = (Host::new(3, 0), Peer::listen());
        let posted = Chunk { consumed: 6, ..THEIRS };
        let payload: Vec<u8> = (0..b::FB_CHUNK_BYTES).map(|i| (i * 7) as u8).collect();
        host.post(posted, &payload);
        let verdict = host.ingress(&host.pull(1, THEIRS));
        assert_eq!((verdict.code, verdict.mark), (TC_REDIRECT, b::FB_MARK));
        assert!(verdict.packet == host.sent(1, b::FB_KIND_CONTRIBUTION, posted, &payload));
        assert_eq!(host.counted(), "frames_in 1, frames_out 1, retransmissions 1");
        silent(&host, 2, THEIRS);
        assert!(peer.frames(0).is_empty());
    });
}

#[test]
fn a_result_is_sent_again_to_who_asks() {
    in_namespace(|| {
        let (host, peer) = (Host::new(4, 1), Peer::listen());
        let at = |consumed| Chunk { consumed, ..THEIRS };
        for (member, seen) in [(0, 8), (2, 9), (3, 7)] {
            host.ingress(&host.contribution(member, at(seen), &ints(&[1])));
        }
        host.egress(&host.contribution(1, at(9), &ints(&[1])));
        peer.frames(2);
        host.counted();
        let verdict = host.ingress(&host.pull(2, THEIRS));
        assert_eq!(verdict.code, TC_REDIRECT);
        assert_eq!(verdict.packet, host.sent(2, b::FB_KIND_RESULT, at(7), &ints(&[4])));
        assert_eq!(host.counted(), "frames_in 1, frames_out 1, retransmissions 1");
        assert!(peer.frames(0).is_empty());
    });
}

#[test]
fn an_aggregator_that_has_nothing_asks_back() {
    in_namespace(|| {
        let host = Host::new(3, 1);
        let verdict = host.ingress(&host.pull(2, THEIRS));
        assert_eq!(verdict.code, TC_REDIRECT);
        assert_eq!(verdict.packet, host.sent_pull(2, THEIRS));
        assert_eq!(host.counted(), "frames_in 1, frames_out 1, pulls_sent 1");
        assert_eq!(host.cell(1).seq, 0, "a question claims no cell");
    });
}

#[test]
fn a_member_that_has_nothing_does_not_ask_back() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        silent(&host, 1, THEIRS);
        silent(&host, 2, THEIRS);
    });
}

#[test]
fn an_aggregator_asks_all_who_are_missing() {
    in_namespace(|| {
        let (host, peer) = (Host::new(5, 1), Peer::listen());
        host.ingress(&host.contribution(2, THEIRS, &ints(&[1])));
        host.egress(&host.contribution(1, THEIRS, &ints(&[1])));
        host.counted();

        let verdict = host.ingress(&host.pull(2, THEIRS));
        assert_eq!((verdict.code, verdict.packet), (TC_REDIRECT, host.sent_pull(4, THEIRS)));
        assert_eq!(peer.frames(2), [host.sent_pull(0, THEIRS), host.sent_pull(3, THEIRS)]);
        assert_eq!(host.counted(), "frames_in 1, frames_out 3, pulls_sent 1");

        assert_eq!(host.cell(1).arrived, 0b110);
    });
}

/// They ask at about the same time, for the same.
#[test]
fn an_aggregator_asks_once_for_all_who_wait_until_one_of_them_asks_again() {
    in_namespace(|| {
        let (host, _peer) = (Host::new(3, 1), Peer::listen());
        host.egress(&host.contribution(1, THEIRS, &ints(&[1])));
        host.counted();
        let asks = |source| {
            host.ingress(&host.pull(source, THEIRS));
            host.counted().contains("pulls_sent")
        };
        let asked = [2, 0, 0, 2, 2].map(asks);
        assert_eq!(asked, [true, false, true, false, true]);
    });
}

#[test]
fn only_the_aggregator_tells_a_result() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        host.post(THEIRS, &ints(&[1]));
        host.ingress(&host.result(1, THEIRS, &ints(&[3])));
        host.counted();
        silent(&host, 2, THEIRS);
        silent(&host, 1, THEIRS);
    });
}

#[test]
fn a_broadcast_is_sent_again_by_its_root_alone() {
    in_namespace(|| {
        let chunk = Chunk { op: 0, element: 0, flags: 0, consumed: 0, ..THEIRS };
        let (root, peer) = (Host::new(4, 1), Peer::listen());
        root.post_broadcast(chunk, b"to whom it concerns");
        let verdict = root.ingress(&root.pull(3, chunk));
        let sent = root.sent(3, b::FB_KIND_BROADCAST, chunk, b"to whom it concerns");
        assert_eq!((verdict.code, verdict.packet), (TC_REDIRECT, sent));
        assert_eq!(root.counted(), "frames_in 1, frames_out 1, retransmissions 1");

        let receiver = Host::new(4, 0);
        receiver.ingress(&receiver.broadcast(1, chunk, b"to whom it concerns"));
        receiver.counted();
        silent(&receiver, 3, chunk);
        assert!(peer.frames(0).is_empty());
    });
}

#[test]
fn a_question_with_a_payload_is_answered_without_it() {
    in_namespace(|| {
        let host = Host::new(3, 1);
        let odd = host.contribution(2, THEIRS, &ints(&[1; 100]));
        let odd = odd.with(|p| p.frame.kind = b::FB_KIND_PULL as u8);
        assert_eq!(host.ingress(&odd).packet, host.sent_pull(2, THEIRS));
    });
}
