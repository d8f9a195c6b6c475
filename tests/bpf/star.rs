//! A star fold: contributions in, the result out, and what else may come.

use std::mem::offset_of;

use foldback::bindings as b;

use crate::host::{Chunk, Host, SUM, TC_NEXT, TC_REDIRECT, TC_TAKEN, WINDOW, XDP_DROP, ints};
use crate::kernel::Verdict;
use crate::namespace::{Peer, in_namespace};
use crate::packet::{OUTER_BYTES, Packet};

/// Payload bytes of a cell.
pub fn data(cell: &b::fb_cell, length: usize) -> Vec<u8> {
    cell.data[..length].to_vec()
}

fn taken(verdict: &Verdict) {
    assert_eq!(verdict.code, TC_TAKEN);
}

#[test]
fn the_last_contribution_makes_the_result_go_out_to_all_others() {
    in_namespace(|| {
        let (host, peer) = (Host::new(4, 0), Peer::listen());
        let at = |consumed| Chunk { consumed, ..SUM };
        taken(&host.ingress(&host.contribution(1, at(5), &ints(&[1, -1, 7]))));
        taken(&host.egress(&host.contribution(0, at(3), &ints(&[10, 20, 30]))));
        taken(&host.ingress(&host.contribution(3, at(4), &ints(&[100, i32::MAX, 300]))));
        assert_eq!(
            host.counted(),
            "contributions_folded 3, frames_in 2",
            "nothing goes out before the last"
        );
        let cell = host.cell(1);
        assert_eq!((cell.seq, cell.ready, cell.arrived, cell.consumed), (1, 0, 0b1011, 3));

        let last = host.ingress(&host.contribution(2, at(9), &ints(&[0, 1, 2])));
        let sum = ints(&[111, (19 + i64::from(i32::MAX) + 1) as i32, 339]);
        let result = |to| host.sent(to, b::FB_KIND_RESULT, at(3), &sum);
        assert_eq!(last.code, TC_REDIRECT);
        assert_eq!(last.mark, b::FB_MARK, "so that egress lets it out");
        assert_eq!(last.packet, result(3));
        assert_eq!(peer.frames(2), [result(1), result(2)]);
        let cell = host.cell(1);
        assert_eq!((cell.seq, cell.ready, cell.arrived, cell.lock), (1, 1, 0b1111, 0));
        assert_eq!((cell.consumed, cell.fanned_out), (3, 1));
        assert_eq!(data(&cell, 12), sum);
        assert_eq!(
            host.counted(),
            "chunks_completed 1, contributions_folded 1, fan_outs 1, frames_in 1, frames_out 3"
        );
    });
}

#[test]
fn the_leaders_own_contribution_may_be_the_last() {
    in_namespace(|| {
        let (host, peer) = (Host::new(3, 1), Peer::listen());
        let chunk = Chunk { target: 1, ..SUM };
        taken(&host.ingress(&host.contribution(0, chunk, &ints(&[1]))));
        taken(&host.ingress(&host.contribution(2, chunk, &ints(&[2]))));
        let last = host.egress(&host.contribution(1, chunk, &ints(&[4])));
        let result = |to| host.sent(to, b::FB_KIND_RESULT, chunk, &ints(&[7]));
        assert_eq!((last.code, last.mark), (TC_NEXT, b::FB_MARK), "it is on its way out");
        assert_eq!(last.packet, result(2));
        assert_eq!(peer.frames(1), [result(0)]);
    });
}

#[test]
fn a_group_may_have_the_greatest_number_of_members() {
    in_namespace(|| {
        let (host, peer) = (Host::new(64, 63), Peer::listen());
        let chunk = Chunk { target: 63, ..SUM };
        for member in 0..63 {
            let packet = host.contribution(member, chunk, &ints(&[1, i32::from(member)]));
            taken(&host.ingress(&packet));
        }
        let last = host.egress(&host.contribution(63, chunk, &ints(&[1, 63])));
        let sum = ints(&[64, 63 * 64 / 2]);
        let result = |to| host.sent(to, b::FB_KIND_RESULT, chunk, &sum);
        assert_eq!(last.packet, result(62));
        assert_eq!(peer.frames(62), (0..62).map(result).collect::<Vec<_>>());
        assert_eq!(host.cell(1).arrived, u64::MAX);
    });
}

#[test]
fn a_barrier_is_a_fold_of_nothing() {
    in_namespace(|| {
        let (host, peer) = (Host::new(3, 0), Peer::listen());
        let barrier = Chunk { op: 0, element: 0, ..SUM };
        taken(&host.ingress(&host.contribution(1, barrier, &[])));
        taken(&host.egress(&host.contribution(0, barrier, &[])));
        let last = host.ingress(&host.contribution(2, barrier, &[]));
        assert_eq!(last.packet, host.sent(2, b::FB_KIND_RESULT, barrier, &[]));
        assert_eq!(peer.frames(1), [host.sent(1, b::FB_KIND_RESULT, barrier, &[])]);
    });
}

#[test]
fn a_result_for_the_root_alone_goes_to_nobody() {
    in_namespace(|| {
        let (host, peer) = (Host::new(2, 0), Peer::listen());
        let reduce = Chunk { flags: 0, ..SUM };
        taken(&host.egress(&host.contribution(0, reduce, &ints(&[1]))));
        taken(&host.ingress(&host.contribution(1, reduce, &ints(&[2]))));
        assert_eq!((host.cell(1).ready, data(&host.cell(1), 4)), (1, ints(&[3])));
        assert_eq!(
            host.counted(),
            "chunks_completed 1, contributions_folded 2, frames_in 1",
            "no fan-out"
        );
        taken(&host.ingress(&host.pull(1, reduce)));
        assert!(peer.frames(0).is_empty());
    });
}

#[test]
fn bytes_behind_the_datagram_are_not_sent_on() {
    in_namespace(|| {
        let (host, _peer) = (Host::new(2, 0), Peer::listen());
        taken(&host.egress(&host.contribution(0, SUM, &ints(&[1]))));
        let trailing = host.contribution(1, SUM, &ints(&[2])).with(|p| p.payload.extend([9; 18]));
        let last = host.ingress(&trailing);
        assert_eq!(last.packet, host.sent(1, b::FB_KIND_RESULT, SUM, &ints(&[3])));
    });
}

#[test]
fn a_contribution_counts_once() {
    in_namespace(|| {
        let (host, peer) = (Host::new(3, 0), Peer::listen());
        for _ in 0..3 {
            taken(&host.ingress(&host.contribution(1, SUM, &ints(&[1]))));
        }
        assert_eq!(host.counted(), "contributions_folded 1, duplicates 2, frames_in 3");
        taken(&host.egress(&host.contribution(0, SUM, &ints(&[2]))));
        taken(&host.egress(&host.contribution(0, SUM, &ints(&[2]))));
        assert_eq!(host.counted(), "contributions_folded 1, duplicates 1");
        host.ingress(&host.contribution(2, SUM, &ints(&[4])));
        peer.frames(1);
        assert_eq!(data(&host.cell(1), 4), ints(&[7]));
    });
}

#[test]
fn one_who_contributes_to_a_complete_chunk_gets_its_result_again() {
    in_namespace(|| {
        let (host, peer) = (Host::new(3, 0), Peer::listen());
        complete(&host, SUM);
        peer.frames(1);
        host.counted();
        let again = host.ingress(&host.contribution(1, SUM, &ints(&[2])));
        assert_eq!(again.code, TC_REDIRECT);
        assert_eq!(again.packet, host.sent(1, b::FB_KIND_RESULT, SUM, &ints(&[7])));
        assert_eq!(host.counted(), "duplicates 1, frames_in 1, frames_out 1, retransmissions 1");
        taken(&host.egress(&host.contribution(0, SUM, &ints(&[1]))));
        assert!(peer.frames(0).is_empty(), "its own leader sees the cell");
    });
}

/// All three members contribute 1, 2 and 4 to a chunk that this host aggregates; its clone goes
/// to member 1.
fn complete(host: &Host, chunk: Chunk) {
    host.egress(&host.contribution(0, chunk, &ints(&[1])));
    host.ingress(&host.contribution(1, chunk, &ints(&[2])));
    host.ingress(&host.contribution(2, chunk, &ints(&[4])));
    assert_eq!(host.cell(chunk.seq).ready, chunk.seq);
}

#[test]
fn a_cell_is_taken_over_by_the_chunk_a_window_later() {
    in_namespace(|| {
        let (host, peer) = (Host::new(3, 0), Peer::listen());
        complete(&host, SUM);
        peer.frames(1);
        host.set_consumed(1);
        let next = Chunk { seq: 1 + u64::from(WINDOW), op: b::FB_OP_MAX as u8, ..SUM };
        complete(&host, next);
        peer.frames(1);
        assert_eq!(data(&host.cell(next.seq), 4), ints(&[4]));
        host.counted();

        for stale in [
            host.contribution(1, SUM, &ints(&[2])),
            host.result(1, Chunk { target: 1, ..SUM }, &ints(&[2])),
            host.broadcast(1, Chunk { target: 1, ..SUM }, &ints(&[2])),
            host.pull(1, SUM),
        ] {
            taken(&host.ingress(&stale));
            assert_eq!(host.counted(), "drop_stale 1, frames_in 1", "{stale:?}");
        }
        assert_eq!(host.cell(next.seq).seq, next.seq);
    });
}

#[test]
fn a_frame_beyond_the_window_is_dropped_and_its_cell_left_alone() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        host.set_consumed(10);
        let window = u64::from(WINDOW);
        let at = |seq| Chunk { seq, ..SUM };
        taken(&host.ingress(&host.contribution(1, at(10 + window), &ints(&[1]))));
        assert_eq!(host.counted(), "contributions_folded 1, frames_in 1", "the last one inside");

        let beyond = Chunk { target: 1, ..at(11 + window) };
        for packet in [
            host.contribution(1, at(11 + window), &ints(&[1])),
            host.contribution(1, at(u64::MAX), &ints(&[1])),
            host.broadcast(1, beyond, &ints(&[1])),
            host.result(1, beyond, &ints(&[1])),
        ] {
            taken(&host.ingress(&packet));
            assert_eq!(host.counted(), "drop_window 1, frames_in 1", "{packet:?}");
            assert_eq!(host.cell(packet.frame.seq).seq % (11 + window), 0);
        }
    });
}

/// Makes a packet for a host.
type Spoilt = fn(&Host) -> Packet;

#[test]
fn a_contribution_unlike_the_others_is_not_folded_and_all_are_told() {
    in_namespace(|| {
        let of = |packet: Packet, message| packet.with(|p| p.frame.message = message);
        let spoiled: [(&str, Spoilt, u64); 5] = [
            ("op", |h| h.contribution(2, Chunk { op: b::FB_OP_MIN as u8, ..SUM }, &[1; 8]), 8),
            ("type", |h| h.contribution(2, Chunk { element: 5, ..SUM }, &[1; 8]), 8),
            ("length", |h| h.contribution(2, SUM, &[1; 4]), 4),
            ("more in all", |h| h.contribution(2, SUM, &[1; 8]), 800),
            ("nothing", |h| h.contribution(2, SUM, &[]), 0),
        ];
        for (what, packet, message) in spoiled {
            let host = Host::new(3, 0);
            taken(&host.ingress(&of(host.contribution(1, SUM, &ints(&[1, 2])), 8)));
            host.counted();
            taken(&host.ingress(&of(packet(&host), message)));
            let counted = "contributions_folded 1, drop_mismatch 1, frames_in 1";
            assert_eq!(host.counted(), counted, "{what}");
            let cell = host.cell(1);
            assert_eq!((cell.arrived, data(&cell, 8)), (0b110, ints(&[1, 2])), "{what}");
            let all = message.max(8) | b::FB_MISMATCHED;
            assert_eq!((cell.message, host.control().mismatched), (all, 0), "{what}");
            let own = of(host.contribution(0, SUM, &ints(&[1, 2])), 8);
            let (peer, last) = (Peer::listen(), host.egress(&own));
            for packet in peer.frames(1).iter().chain([&last.packet]) {
                let at = OUTER_BYTES + offset_of!(b::fb_frame, message);
                assert_eq!(packet[at..at + 8], all.to_ne_bytes(), "{what}");
            }
            assert_eq!(host.cell(1).ready, 1, "{what}");
        }
    });
}

/// Then the program's ranks are in different collectives.
#[test]
fn what_cannot_be_of_the_same_collective_is_noted() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        taken(&host.ingress(&host.contribution(1, SUM, &ints(&[1, 2]))));
        host.counted();
        taken(&host.ingress(&host.contribution(2, Chunk { flags: 0, ..SUM }, &ints(&[1, 2]))));
        assert_eq!(host.counted(), "drop_mismatch 1, frames_in 1");
        let cell = host.cell(1);
        assert_eq!((cell.arrived, data(&cell, 8)), (0b10, ints(&[1, 2])));
        assert_eq!((cell.message, host.control().mismatched), (0, 1));
    });
}

#[test]
fn data_without_an_op_is_not_folded() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        let none = Chunk { op: 0, ..SUM };
        taken(&host.ingress(&host.contribution(1, none, &ints(&[1]))));
        host.counted();
        taken(&host.ingress(&host.contribution(2, none, &ints(&[1]))));
        assert_eq!(host.counted(), "drop_malformed 1, frames_in 1");
        assert_eq!((host.cell(1).arrived, host.cell(1).lock), (0b10, 0));
    });
}

#[test]
fn a_result_is_deposited_where_the_contribution_was_posted() {
    in_namespace(|| {
        let host = Host::new(3, 2);
        host.post(SUM, &ints(&[4, 4]));
        let result = Chunk { consumed: 17, ..SUM };
        taken(&host.ingress(&host.result(0, result, &ints(&[7, 9]))));
        let cell = host.cell(1);
        assert_eq!((cell.ready, cell.consumed, cell.lock), (1, 17, 0));
        assert_eq!(data(&cell, 8), ints(&[7, 9]));
        assert_eq!(host.counted(), "deposited 1, frames_in 1");

        taken(&host.ingress(&host.result(0, result, &ints(&[0, 0]))));
        assert_eq!(host.counted(), "duplicates 1, frames_in 1");
        assert_eq!(data(&host.cell(1), 8), ints(&[7, 9]), "the first one stays");
    });
}

/// Of contributions that differ.
#[test]
fn a_result_that_says_so_is_taken_whatever_was_posted() {
    in_namespace(|| {
        let host = Host::new(3, 2);
        host.post(SUM, &ints(&[4]));
        let told = 8 | b::FB_MISMATCHED;
        let result = host.result(0, SUM, &ints(&[1, 2])).with(|p| p.frame.message = told);
        taken(&host.ingress(&result));
        assert_eq!(host.counted(), "deposited 1, frames_in 1");
        assert_eq!((host.cell(1).ready, host.cell(1).message), (1, told));
    });
}

#[test]
fn a_result_that_does_not_fit_what_was_posted_is_dropped() {
    in_namespace(|| {
        let host = Host::new(3, 2);
        taken(&host.ingress(&host.result(0, SUM, &ints(&[7]))));
        assert_eq!(host.counted(), "drop_window 1, frames_in 1", "this host is in every result");
        host.post(SUM, &ints(&[4]));
        for packet in [
            host.result(0, Chunk { op: b::FB_OP_MAX as u8, ..SUM }, &ints(&[7])),
            host.result(0, Chunk { element: 5, ..SUM }, &ints(&[7])),
            host.result(0, SUM, &ints(&[7, 8])),
            host.result(0, Chunk { flags: 0, ..SUM }, &ints(&[7])),
            host.result(1, Chunk { target: 1, ..SUM }, &ints(&[7])),
            host.broadcast(0, SUM, &ints(&[7])),
        ] {
            taken(&host.ingress(&packet));
            assert_eq!(host.counted(), "drop_mismatch 1, frames_in 1", "{packet:?}");
        }
        for packet in [
            host.result(1, SUM, &ints(&[7])),
            host.result(1, Chunk { target: 2, ..SUM }, &ints(&[7])),
        ] {
            taken(&host.ingress(&packet));
            assert_eq!(host.counted(), "drop_malformed 1, frames_in 1", "not its aggregator's");
        }
        assert_eq!((host.cell(1).ready, data(&host.cell(1), 4)), (0, ints(&[4])));
    });
}

#[test]
fn a_cell_that_stays_locked_costs_the_frame() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        host.change_cell(1, |cell| cell.lock = 1);
        let contribution = host.contribution(1, SUM, &ints(&[1]));
        taken(&host.ingress(&contribution));
        assert_eq!(host.counted(), "drop_lock 1, frames_in 1");
        taken(&host.egress(&host.contribution(0, SUM, &ints(&[1]))));
        taken(&host.ingress(&host.pull(1, SUM)));
        assert_eq!(host.counted(), "drop_lock 2, frames_in 1");
        assert_eq!(host.xdp(&contribution).code, XDP_DROP);
        assert_eq!(host.counted(), "drop_lock 1");
        assert_eq!((host.cell(1).seq, host.cell(1).lock), (0, 1));

        taken(&host.ingress(&host.contribution(1, Chunk { seq: 2, ..SUM }, &ints(&[1]))));
        assert_eq!(host.counted(), "contributions_folded 1, frames_in 1", "no other cell is held");
    });
}

#[test]
fn a_group_without_cells_takes_no_frames() {
    in_namespace(|| {
        let host = Host::new(2, 0);
        host.kernel.remove_cells(host.slot);
        taken(&host.ingress(&host.contribution(1, SUM, &ints(&[1]))));
        assert_eq!(host.counted(), "drop_kernel 1, frames_in 1");
    });
}
