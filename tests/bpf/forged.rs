//! Tries of somebody who hears a group's frames, and can send any packet, but has not the group's key. There are a
//! million of each kind, and none is believed.

use std::sync::Arc;

use foldback::bindings as b;

use crate::host::{Chunk, Host, SUM, TC_NEXT, TC_TAKEN, WINDOW, address, ints, mac, mac_word};
use crate::kernel::Hook;
use crate::namespace::in_namespace;
use crate::packet::{Key, OUTER_BYTES, Packet};
use crate::random::Rng;

const TRIES: u64 = 1_000_000;

/// A frame of member 1 to this host, member 0 of three, of a kind and a chunk that it would take.
fn frame(host: &Host, rng: &mut Rng) -> Packet {
    let seq = 1 + rng.below(u64::from(WINDOW));
    let data = ints(&[rng.next() as i32, rng.next() as i32]);
    let theirs = Chunk { seq, target: 1, ..SUM };
    match rng.below(5) {
        0 => host.contribution(1, Chunk { seq, ..SUM }, &data),
        1 => host.contribution(1, Chunk { seq, flags: b::FB_FLAG_DIRECT as u8, ..SUM }, &data),
        2 => host.broadcast(1, theirs, &data),
        3 => host.piece(1, Chunk { seq, flags: 0, ..SUM }, &data),
        _ => host.result(1, Chunk { flags: b::FB_FLAG_DIRECT as u8, ..theirs }, &data),
    }
}

/// Sends bytes to either hook in turns.
fn send(host: &Host, bytes: &[u8], turn: u64) -> i32 {
    let hook = if turn.is_multiple_of(4) { Hook::Xdp } else { Hook::Ingress };
    host.kernel.run(hook, bytes, crate::namespace::V0, 0).code
}

/// No cell has been touched, and nobody is taken to be elsewhere.
fn assert_untouched(host: &Host, tries: u64) {
    for seq in 1..=u64::from(WINDOW) {
        let cell = host.cell(seq);
        assert_eq!((cell.seq, cell.ready, cell.arrived, cell.lock), (0, 0, 0, 0), "{tries} tries");
    }
    let group = host.kernel.group(host.token);
    assert_eq!([1, 2].map(|at| group.member[at].mac), [1, 2].map(mac_word), "{tries} tries");
    let control = host.control();
    assert_eq!((control.heard, control.overheard, control.mismatched), (0, 0, 0));
}

/// Makes tries by `forge`, of which none is to be believed; then a sound one, which is.
fn try_in_vain(host: &Host, seed: u64, mut forge: impl FnMut(&mut Rng) -> Vec<u8>) -> String {
    let mut rng = Rng(seed);
    for turn in 0..TRIES {
        let bytes = forge(&mut rng);
        send(host, &bytes, turn);
        if turn.is_multiple_of(TRIES / 64) {
            assert_untouched(host, turn);
        }
    }
    assert_untouched(host, TRIES);
    let counted = host.counted();
    assert!(!counted.contains("folded") && !counted.contains("deposited"), "{counted}");
    host.ingress(&host.contribution(1, SUM, &ints(&[1])));
    assert_eq!(host.counted(), "contributions_folded 1, frames_in 1");
    counted
}

/// With the token of this group, and the key of another, whose member the enemy is.
#[test]
fn frames_with_another_groups_key_are_not_believed() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        let key = Arc::new(Key::new([host.token, host.token]));
        let counted = try_in_vain(&host, 1, |rng| {
            let key = Some(Arc::clone(&key));
            frame(&host, rng).with(|p| (p.key, p.from_mac) = (key, mac(9))).bytes()
        });
        // At XDP a frame is counted once it is done with.
        assert_eq!(counted, format!("drop_forged {TRIES}, frames_in {}", TRIES / 4 * 3));
    });
}

/// Frames that member 1 has sealed, in the name and from the address of member 2.
#[test]
fn frames_in_another_members_name_are_not_believed() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        let counted = try_in_vain(&host, 2, |rng| {
            let theirs = frame(&host, rng).sealed();
            let renamed = theirs.with(|p| (p.frame.source, p.ip.from) = (2, address(2)));
            renamed.with(|p| p.from_mac = mac(9)).bytes()
        });
        assert_eq!(counted, format!("drop_forged {TRIES}, frames_in {}", TRIES / 4 * 3));
    });
}

/// One to eight bits of frame and payload, its seal's too.
#[test]
fn frames_with_flipped_bits_are_not_believed() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        try_in_vain(&host, 3, |rng| {
            let packet = frame(&host, rng).with(|p| p.from_mac = mac(9));
            // The payload of broadcasts and pieces is the business of the process that gets it.
            let deposited = [b::FB_KIND_BROADCAST, b::FB_KIND_PIECE];
            let deposited = deposited.contains(&packet.frame.kind.into());
            let sound = packet.bytes();
            let most =
                if deposited { b::FB_FRAME_BYTES as usize } else { sound.len() - OUTER_BYTES };
            let bits = 8 * most as u64;
            loop {
                let mut bytes = sound.clone();
                for _ in 0..=rng.below(8) {
                    let bit = rng.below(bits) as usize;
                    bytes[OUTER_BYTES + bit / 8] ^= 1 << (bit % 8);
                }
                // The same bit twice is none.
                if bytes != sound {
                    return bytes;
                }
            }
        });
    });
}

/// Frames of members, sent again by somebody else: at once, and when its cell has another chunk.
#[test]
fn frames_that_are_sent_again_change_nothing() {
    in_namespace(|| {
        let host = Host::new(3, 0);
        let mut rng = Rng(4);
        let fresh = |host: &Host, rng: &mut Rng, seq| {
            let sound = frame(host, rng).with(|p| p.frame.seq = seq);
            assert_eq!(host.ingress(&sound).code, TC_TAKEN);
            sound.with(|p| p.from_mac = mac(9)).bytes()
        };
        let window = u64::from(WINDOW);
        // A result answers a contribution of this host's, which it has not made.
        let old: Vec<_> = (1..=window).map(|seq| fresh(&host, &mut rng, seq)).collect();
        host.set_consumed(window);
        let new: Vec<_> =
            (1 + window..=2 * window).map(|seq| fresh(&host, &mut rng, seq)).collect();
        host.counted();
        let state = || {
            let cells = (1..=window).map(|seq| host.cell(seq));
            let cells: Vec<_> = cells
                .map(|cell| {
                    (cell.seq, cell.ready, cell.arrived, cell.consumed, cell.data[..8].to_vec())
                })
                .collect();
            (cells, host.kernel.group(host.token).member[1].mac)
        };
        let before = state();
        for turn in 0..TRIES {
            let all = if rng.below(2) == 0 { &old } else { &new };
            let bytes = &all[rng.below(window) as usize];
            let code = send(&host, bytes, turn);
            assert!(code != TC_NEXT, "verdict {code}");
            if turn.is_multiple_of(TRIES / 64) {
                assert_eq!(state(), before);
            }
        }
        assert_eq!(state(), before);
        let counted = host.counted();
        for done in ["folded", "deposited", "frames_out", "completed", "forged"] {
            assert!(!counted.contains(done), "{counted}");
        }
    });
}
