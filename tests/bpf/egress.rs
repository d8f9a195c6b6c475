//! The frames that this host may send.

use foldback::bindings as b;

use crate::host::{Chunk, Host, SUM, TC_NEXT, TC_TAKEN, ints};
use crate::kernel::Hook;
use crate::namespace::{Peer, V0, in_namespace};

/// Member 1 aggregates; the tests' host is member 0.
const THEIRS: Chunk = Chunk { target: 1, ..SUM };

#[test]
fn what_the_programs_made_themselves_passes_and_keeps_its_mark_for_other_agents() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        let result = host.sent(1, b::FB_KIND_RESULT, SUM, &ints(&[1]));
        let verdict = host.kernel.run(Hook::Egress, &result, V0, b::FB_MARK);
        assert_eq!((verdict.code, verdict.mark), (TC_NEXT, b::FB_MARK));
        assert_eq!((verdict.packet, host.counted()), (result, String::new()));
    });
}

#[test]
fn a_mark_admits_nothing_from_the_wire() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        let packet = host.contribution(1, SUM, &ints(&[1])).with(|p| p.ip.from = [10, 77, 9, 9]);
        let verdict = host.kernel.run(Hook::Ingress, &packet.bytes(), V0, b::FB_MARK);
        assert_eq!((verdict.code, host.counted()), (TC_TAKEN, "drop_stranger 1".into()));
    });
}

#[test]
fn only_the_groups_owner_sends_for_it() {
    in_namespace(|| {
        let (host, peer) = (Host::new(3, 0), Peer::listen());
        host.change_group(|group| group.uid = 4711);
        for packet in [
            host.contribution(0, SUM, &ints(&[1])),
            host.contribution(0, THEIRS, &ints(&[1])),
            host.broadcast(0, SUM, &ints(&[1])),
            host.pull(0, THEIRS),
            host.hello(0),
        ] {
            assert_eq!(host.egress(&packet).code, TC_TAKEN);
            assert_eq!(host.counted(), "drop_uid 1", "{packet:?}");
        }
        assert_eq!(host.cell(1).seq, 0);
        assert!(peer.frames(0).is_empty());
    });
}

#[test]
fn frames_for_another_member_go_out_as_they_are_from_the_port_of_frames() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        for (packet, counted) in [
            (host.contribution(0, THEIRS, &ints(&[1, 2])), "frames_out 1"),
            (host.pull(0, THEIRS), "frames_out 1, pulls_sent 1"),
            (host.pull(0, SUM), "frames_out 1, pulls_sent 1"),
            (host.hello(0), "frames_out 1"),
        ] {
            let verdict = host.egress(&packet);
            assert_eq!((verdict.code, verdict.mark), (TC_NEXT, 0));
            assert_eq!(verdict.packet, packet.clone().let_out().bytes());
            assert_eq!(host.counted(), counted, "{packet:?}");
        }
        assert_eq!(host.cell(1).seq, 0, "what is posted is the leader's business");
    });
}

#[test]
fn a_leader_sends_in_its_own_name_alone() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        for source in [1, 2, 3, 64, 255] {
            for packet in [
                host.contribution(0, SUM, &ints(&[1])),
                host.broadcast(0, SUM, &ints(&[1])),
                host.pull(0, THEIRS),
                host.hello(0),
            ] {
                let verdict = host.egress(&packet.with(|p| p.frame.source = source));
                assert_eq!(verdict.code, TC_TAKEN);
                assert_eq!(host.counted(), "drop_malformed 1", "as member {source}");
            }
        }
        assert_eq!(host.cell(1).seq, 0);
    });
}

#[test]
fn results_are_the_kernels_word_and_no_leaders() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        for target in [0, 1] {
            let packet = host.result(0, Chunk { target, ..SUM }, &ints(&[1]));
            assert_eq!(host.egress(&packet).code, TC_TAKEN);
            assert_eq!(host.counted(), "drop_malformed 1");
        }
    });
}
