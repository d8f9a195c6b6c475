//! Frames to all members at once, which all hear.

use foldback::bindings as b;

use crate::host::{
    ALL_MAC, Chunk, Host, SUM, TC_NEXT, TC_REDIRECT, TC_TAKEN, XDP_DROP, address, ints, mac, to_all,
};
use crate::namespace::{Peer, in_namespace};

const CAST: Chunk = Chunk { op: 0, element: 0, flags: 0, ..SUM };
const DIRECT: Chunk = Chunk { flags: b::FB_FLAG_DIRECT as u8, ..SUM };

/// Member `me` of four, who all hear what goes to all.
fn host(me: u8) -> Host {
    let host = Host::new(4, me);
    host.multicast();
    host
}

/// Of member 0: a sum of its own numbers and three others'.
fn fold(host: &Host, seq: u64) -> crate::kernel::Verdict {
    let chunk = Chunk { seq, ..SUM };
    for member in [1, 2] {
        host.ingress(&host.contribution(member, chunk, &ints(&[1])));
    }
    host.egress(&host.contribution(0, chunk, &ints(&[1])));
    host.ingress(&host.contribution(3, chunk, &ints(&[1])))
}

#[test]
fn a_result_goes_out_once() {
    in_namespace(|| {
        let (host, peer) = (host(0), Peer::listen());
        let last = fold(&host, 1);
        let result = host.sent_to_all(b::FB_KIND_RESULT, SUM, &ints(&[4]));
        assert_eq!((last.code, last.mark), (TC_REDIRECT, b::FB_MARK));
        assert_eq!(last.packet, result);
        assert!(peer.frames(0).is_empty());
        let counted = host.counted();
        assert!(
            counted.contains("fan_outs 1, frames_in 3, frames_out 1, multicasts 1"),
            "{counted}"
        );
        // A member that asks for it gets it alone.
        let again = host.ingress(&host.pull(2, SUM));
        assert_eq!(again.packet, host.sent(2, b::FB_KIND_RESULT, SUM, &ints(&[4])));
    });
}

#[test]
fn what_a_leader_sends_to_all_goes_out_once() {
    in_namespace(|| {
        let (host, peer) = (host(0), Peer::listen());
        let cast = host.egress(&host.broadcast(0, CAST, b"to whom it concerns"));
        assert_eq!(cast.code, TC_NEXT);
        assert_eq!(
            cast.packet,
            host.sent_to_all(b::FB_KIND_BROADCAST, CAST, b"to whom it concerns")
        );
        let direct = host.egress(&host.contribution(0, DIRECT, &ints(&[1])));
        assert_eq!(direct.packet, host.sent_to_all(b::FB_KIND_CONTRIBUTION, DIRECT, &ints(&[1])));
        assert!(peer.frames(0).is_empty());
    });
}

#[test]
fn what_nobody_answers_is_taken_from_the_address_of_all() {
    in_namespace(|| {
        for xdp in [false, true] {
            let host = host(1);
            let take = |packet| {
                let packet = to_all(packet);
                let (verdict, taken) = match xdp {
                    true => (host.xdp(&packet), XDP_DROP),
                    false => (host.ingress(&packet), TC_TAKEN),
                };
                assert_eq!(verdict.code, taken);
                host.counted()
            };
            let cast = Chunk { target: 3, ..CAST };
            let theirs = Chunk { seq: 2, ..SUM };
            host.post(theirs, &ints(&[1]));
            let direct = Chunk { seq: 3, target: 0, ..DIRECT };
            for sound in [
                host.broadcast(3, cast, b"to whom it concerns"),
                host.result(0, theirs, &ints(&[4])),
                host.contribution(2, direct, &ints(&[5])),
            ] {
                let counted = take(sound);
                assert!(counted.contains("frames_in 1") && !counted.contains("drop"), "{counted}");
            }
            let mine = Chunk { seq: 4, target: 1, ..SUM };
            for odd in [host.contribution(2, mine, &ints(&[1])), host.piece(2, mine, &ints(&[1]))] {
                assert_eq!(take(odd), "drop_stranger 1");
            }
        }
    });
}

/// Its answer would leave from the address of all.
#[test]
fn questions_to_all_are_not_answered() {
    in_namespace(|| {
        let host = host(0);
        fold(&host, 1);
        host.counted();
        for flags in [0, b::FB_FLAG_DIRECT as u8] {
            let pull = host.pull(2, SUM).with(|p| p.frame.flags = flags);
            assert_eq!(host.ingress(&to_all(pull)).code, TC_TAKEN);
            assert_eq!(host.counted(), "drop_stranger 1");
        }
    });
}

#[test]
fn addresses_that_do_not_belong_together_are_a_strangers() {
    in_namespace(|| {
        let cast = Chunk { target: 3, ..CAST };
        let host = host(1);
        let frame = || host.broadcast(3, cast, b"to whom it concerns");
        for odd in [
            frame().with(|p| p.to_mac = ALL_MAC),
            to_all(frame()).with(|p| p.to_mac = mac(1)),
            to_all(frame()).with(|p| p.ip.to = address(2)),
            to_all(frame()).with(|p| p.ip.to = [239, 192, 0, 1]),
        ] {
            assert_eq!(host.ingress(&odd).code, TC_TAKEN);
            assert_eq!(host.counted(), "drop_stranger 1");
        }
        let without = Host::new(4, 1);
        let packet = to_all(without.broadcast(3, cast, b"to whom it concerns"));
        without.ingress(&packet.with(|p| p.ip.to = [0; 4]));
        without.ingress(&to_all(without.broadcast(3, cast, b"to whom it concerns")));
        assert_eq!(without.counted(), "drop_stranger 2");
    });
}

#[test]
fn a_hello_to_everyone_says_that_it_is_heard_and_nothing_else() {
    in_namespace(|| {
        let host = host(1);
        let everyone = |source| host.hello(source).with(|p| p.frame.flags = DIRECT.flags);
        let out = host.egress(&everyone(1));
        assert_eq!(out.code, TC_NEXT);
        let hello = Chunk { op: 0, element: 0, consumed: 0, ..DIRECT };
        assert_eq!(out.packet, host.sent_to_all(b::FB_KIND_HELLO, hello, &[]));
        host.change_group(|group| group.member[..4].iter_mut().for_each(|member| member.mac = 0));
        assert_eq!(host.ingress(&to_all(everyone(2))).code, TC_TAKEN);
        assert_eq!((host.control().overheard, host.control().heard), (0b100, 0));
        assert_eq!(host.kernel.group(host.token).member[2].mac, 0);
        host.counted();

        let without = Host::new(4, 1);
        let hello = without.hello(1).with(|p| p.frame.flags = DIRECT.flags);
        assert_eq!(without.egress(&hello).code, TC_TAKEN);
        assert_eq!(without.counted(), "drop_no_mac 1");
    });
}

/// A switch may forget who wants to hear it.
#[test]
fn who_misses_much_is_deaf() {
    in_namespace(|| {
        let host = host(1);
        let missed = |seq: u64, packet: fn(crate::packet::Packet) -> crate::packet::Packet| {
            let cast = Chunk { seq, target: 3, ..CAST };
            host.ingress(&packet(host.broadcast(3, cast, b"to whom it concerns")));
            assert!(host.counted().contains("deposited 1"));
            host.control().missed
        };
        assert_eq!(missed(1, to_all), 0);
        assert_eq!(missed(2, |alone| alone), b::FB_MISS);
        assert_eq!(missed(3, to_all), b::FB_MISS - 1);
        // Frames that come again since somebody was impatient are no miss, nor are frames for this host
        // alone.
        let again = Chunk { seq: 3, target: 3, ..CAST };
        host.ingress(&host.broadcast(3, again, b"to whom it concerns"));
        host.ingress(&host.piece(3, Chunk { seq: 4, target: 1, ..CAST }, b"yours"));
        assert_eq!(host.control().missed, b::FB_MISS - 1);
        host.counted();
        host.set_consumed(1000);
        let last = (5..100).fold(0, |_, seq| missed(seq, |alone| alone));
        assert!((b::FB_DEAF_FROM + 1..=b::FB_DEAF_FROM + b::FB_MISS).contains(&last), "{last}");
    });
}

#[test]
fn where_somebody_is_deaf_it_goes_to_each_again() {
    in_namespace(|| {
        let (host, peer) = (host(0), Peer::listen());
        fold(&host, 1);
        host.ingress(&host.pull(2, SUM));
        assert_eq!(host.control().multicast, 1);
        let deaf = host.pull(2, SUM).with(|p| p.frame.flags = b::FB_FLAG_DEAF as u8);
        let again = host.ingress(&deaf);
        assert_eq!(again.packet, host.sent(2, b::FB_KIND_RESULT, SUM, &ints(&[4])));
        assert_eq!(host.control().multicast, 0);
        host.counted();
        fold(&host, 2);
        assert!(host.counted().contains("frames_out 3"));
        assert_eq!(peer.frames(2).len(), 2);
        // Of any other kind the flag says nothing.
        let odd = host.contribution(1, Chunk { seq: 3, ..SUM }, &ints(&[1]));
        host.ingress(&odd.with(|p| p.frame.flags |= b::FB_FLAG_DEAF as u8));
        assert_eq!(host.counted(), "drop_malformed 1");
    });
}
