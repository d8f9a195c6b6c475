//! The time that a frame takes in the programs. A measurement, whose figures are in docs/benchmarks.md:
//! `cargo test --release --test bpf -- --ignored --nocapture cost`.

use foldback::bindings as b;

use crate::host::{Chunk, Host, TC_TAKEN, TO_ALL};
use crate::namespace::{Peer, in_namespace};
use crate::random::Rng;
use crate::reference::elements;

const CHUNKS: u64 = 200;
const BYTES: usize = b::FB_CHUNK_BYTES as usize;

fn median(mut times: Vec<u32>) -> u32 {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Medians of nanoseconds: of a contribution that is copied, as the first of its chunk, and of one that is folded.
fn cost(host: &Host, seq: &mut u64, op: u8, element: u8, bytes: usize) -> [u32; 2] {
    let mut rng = Rng(u64::from(op) << 8 | u64::from(element));
    let (mut copied, mut folded) = (Vec::new(), Vec::new());
    for _ in 0..CHUNKS {
        host.set_consumed(*seq);
        *seq += 1;
        let (seq, consumed) = (*seq, *seq - 1);
        let chunk = Chunk { seq, op, element, target: 0, flags: TO_ALL, consumed };
        for member in 1..4 {
            let times = if member == 1 { &mut copied } else { &mut folded };
            let payload = elements(&mut rng, element, bytes);
            let verdict = host.ingress(&host.contribution(member, chunk, &payload));
            assert_eq!(verdict.code, TC_TAKEN);
            times.push(verdict.ns);
        }
    }
    [median(copied), median(folded)]
}

#[test]
#[ignore = "a measurement: it has nothing to assert about times"]
fn cost_of_a_contribution() {
    in_namespace(|| {
        let _peer = Peer::listen();
        for (kind, host) in [("code", Host::new(5, 0)), ("checksum", Host::without_key(5, 0))] {
            let mut seq = 0;
            let mut tell = |element, op, bytes| {
                let [copied, folded] = cost(&host, &mut seq, op, element, bytes);
                println!(
                    "{kind}, type {element}, op {op}, {bytes} B: copied {copied} ns, folded {folded} ns"
                );
            };
            tell(b::FB_TYPE_I32 as u8, b::FB_OP_SUM as u8, 8);
            for element in 0..b::FB_TYPE_COUNT as u8 {
                (1..b::FB_OP_PLACE as u8).for_each(|op| tell(element, op, BYTES));
            }
        }
    });
}
