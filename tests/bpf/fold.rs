//! Every op on every type, by every way in, against arithmetic that has nothing in common with it.

use foldback::bindings as b;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::host::{Chunk, Host, SUM, TC_NEXT, TC_REDIRECT, TC_TAKEN, TO_ALL, XDP_DROP, XDP_PASS};
use crate::kernel::Kernel;
use crate::namespace::{Peer, in_namespace};
use crate::random::Rng;
use crate::reference::{elements, fold_all};
use crate::star::data;

const MEMBERS: u8 = 4;
/// One element of the widest type; a block and a bit; a full chunk.
const LENGTHS: [usize; 4] = [8, 64, 72, b::FB_CHUNK_BYTES as usize];

/// Runs a fold of each kind. `run` gets the host, the chunk, and what each member contributes; the
/// result must be in the cell afterwards.
fn every_fold(run: impl Fn(&Host, Chunk, &[Vec<u8>])) {
    every_fold_on(Kernel::shared(), &LENGTHS, run);
}

/// The same, of these lengths, by these programs.
pub fn every_fold_on(
    kernel: &'static Kernel,
    lengths: &[usize],
    run: impl Fn(&Host, Chunk, &[Vec<u8>]),
) {
    let host = Host::on(kernel, MEMBERS, 0);
    let mut rng = Rng(11);
    let mut seq = 0;
    for op in 1..b::FB_OP_PLACE as u8 {
        for element in 0..b::FB_TYPE_COUNT as u8 {
            for &length in lengths {
                let inputs: Vec<_> =
                    (0..MEMBERS).map(|_| elements(&mut rng, element, length)).collect();
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

/// At an aggregator with the hooks of TC, whose own contribution is the first.
pub fn tc_folds(kernel: &'static Kernel, lengths: &'static [usize]) {
    in_namespace(move || {
        let peer = Peer::listen();
        every_fold_on(kernel, lengths, |host, chunk, inputs| {
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
fn tc_folds_every_op_on_every_type() {
    tc_folds(Kernel::shared(), &LENGTHS);
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

/// Folds go over whole blocks, by way of memory that all groups share: what the frame before left there
/// must not end up behind the end of a shorter one.
#[test]
fn a_cell_shows_nothing_of_another_groups_frames() {
    const SECRET: [u8; 64] = [0x5a; 64];
    const PLACE: u8 = b::FB_OP_PLACE as u8;
    in_namespace(|| {
        // That memory is each CPU's own.
        let mut allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let here = (0..CpuSet::count()).find(|cpu| allowed.is_set(*cpu).unwrap()).unwrap();
        allowed = CpuSet::new();
        allowed.set(here).unwrap();
        sched_setaffinity(Pid::from_raw(0), &allowed).unwrap();

        let bytes = |op| Chunk { op, element: b::FB_TYPE_U8 as u8, ..SUM };
        for hook in [Host::ingress, Host::xdp] {
            for op in (1..b::FB_OP_COUNT as u8).filter(|op| *op != PLACE) {
                let (victim, spy) = (Host::new(3, 0), Host::new(3, 0));
                for member in [1, 2] {
                    hook(&victim, &victim.contribution(member, bytes(op), &SECRET));
                }
                for member in [1, 2] {
                    hook(&spy, &spy.contribution(member, bytes(op), &[0; 4]));
                }
                assert!(spy.counted().starts_with("contributions_folded 2"));
                assert_eq!(spy.cell(1).data[4..64], [0; 60], "op {op}");
            }
            let (victim, spy) = (Host::new(3, 0), Host::new(3, 0));
            for member in [1, 2] {
                hook(&victim, &victim.contribution(member, bytes(b::FB_OP_BOR as u8), &SECRET));
            }
            let part = spy.contribution(1, bytes(PLACE), &[1]).with(|p| p.frame.detail = 8);
            hook(&spy, &part);
            assert_eq!(spy.counted(), "contributions_folded 1, frames_in 1");
            assert_eq!(spy.cell(1).data[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
        }
    });
}
