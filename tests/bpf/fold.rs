//! Every op on every type, by every way in, against arithmetic that has nothing in common with it.

use foldback::bindings as b;

use crate::host::{Chunk, Host, TC_NEXT, TC_REDIRECT, TC_TAKEN, TO_ALL, XDP_DROP, XDP_PASS};
use crate::namespace::{Peer, in_namespace};
use crate::reference::{Rng, fold_all};
use crate::star::data;

const MEMBERS: u8 = 4;
/// One element of the widest type; a block and a bit; a full chunk.
const LENGTHS: [usize; 4] = [8, 64, 72, b::FB_CHUNK_BYTES as usize];

/// Runs a fold of each kind. `run` gets the host, the chunk, and what each member contributes; the
/// result must be in the cell afterwards.
fn every_fold(run: impl Fn(&Host, Chunk, &[Vec<u8>])) {
    let host = Host::new(MEMBERS, 0);
    let mut rng = Rng(11);
    let mut seq = 0;
    for op in 1..b::FB_OP_PLACE as u8 {
        for element in 0..b::FB_TYPE_COUNT as u8 {
            for length in LENGTHS {
                let inputs: Vec<_> = (0..MEMBERS).map(|_| rng.elements(element, length)).collect();
                host.set_consumed(seq);
                seq += 1;
                let chunk = Chunk { seq, op, element, target: 0, flags: TO_ALL, consumed: seq - 1 };
                run(&host, chunk, &inputs);
                let cell = host.cell(seq);
                assert_eq!(cell.ready, seq);
                assert!(
                    data(&cell, length) == fold_all(&inputs, op, element),
                    "op {op}, type {element}, {length} bytes"
                );
            }
        }
    }
}

#[test]
fn tc_folds_every_op_on_every_type() {
    in_namespace(|| {
        let peer = Peer::listen();
        every_fold(|host, chunk, inputs| {
            assert_eq!(host.egress(&host.contribution(0, chunk, &inputs[0])).code, TC_TAKEN);
            for member in [2, 3] {
                let packet = host.contribution(member, chunk, &inputs[usize::from(member)]);
                assert_eq!(host.ingress(&packet).code, TC_TAKEN);
            }
            let last = host.ingress(&host.contribution(1, chunk, &inputs[1]));
            assert_eq!(last.code, TC_REDIRECT);
            let result = fold_all(inputs, chunk.op, chunk.element);
            let sent = |to| host.sent(to, b::FB_KIND_RESULT, chunk, &result);
            assert!(last.packet == sent(3) && peer.frames(2) == [sent(1), sent(2)]);
        });
    });
}

#[test]
fn egress_folds_the_last_contribution_of_every_op_and_type() {
    in_namespace(|| {
        let peer = Peer::listen();
        every_fold(|host, chunk, inputs| {
            for member in [3, 1, 2] {
                let packet = host.contribution(member, chunk, &inputs[usize::from(member)]);
                assert_eq!(host.ingress(&packet).code, TC_TAKEN);
            }
            let last = host.egress(&host.contribution(0, chunk, &inputs[0]));
            assert_eq!(last.code, TC_NEXT);
            peer.frames(2);
        });
    });
}

#[test]
fn xdp_folds_every_op_on_every_type() {
    in_namespace(|| {
        every_fold(|host, chunk, inputs| {
            assert_eq!(host.egress(&host.contribution(0, chunk, &inputs[0])).code, TC_TAKEN);
            for (member, verdict) in [(1, XDP_DROP), (3, XDP_DROP), (2, XDP_PASS)] {
                let packet = host.contribution(member, chunk, &inputs[usize::from(member)]);
                assert_eq!(host.xdp(&packet).code, verdict);
            }
        });
    });
}
