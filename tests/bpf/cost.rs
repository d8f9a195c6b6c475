//! The time that a frame takes in the programs. A measurement, whose figures are in docs/benchmarks.md:
//! `cargo test --release --test bpf -- --ignored --nocapture cost`.

use foldback::bindings as b;

use crate::host::{Chunk, Host, SUM, TC_NEXT, TC_TAKEN, TO_ALL};
use crate::kernel::Kernel;
use crate::namespace::{Peer, in_namespace};
use crate::random::Rng;
use crate::reference::elements;

const CHUNKS: u64 = 200;
const BYTES: usize = b::FB_CHUNK_BYTES as usize;
const OPS: [(&str, b::fb_op); 10] = [
    ("SUM", b::FB_OP_SUM),
    ("PROD", b::FB_OP_PROD),
    ("MIN", b::FB_OP_MIN),
    ("MAX", b::FB_OP_MAX),
    ("BAND", b::FB_OP_BAND),
    ("BOR", b::FB_OP_BOR),
    ("BXOR", b::FB_OP_BXOR),
    ("LAND", b::FB_OP_LAND),
    ("LOR", b::FB_OP_LOR),
    ("LXOR", b::FB_OP_LXOR),
];
/// Unsigned ones take the same loops.
const TYPES: [b::fb_type; 4] = [b::FB_TYPE_I8, b::FB_TYPE_I16, b::FB_TYPE_I32, b::FB_TYPE_I64];

fn median(mut times: Vec<u32>) -> u32 {
    times.sort_unstable();
    times[times.len() / 2]
}

/// A group, and the times of its contributions that were copied, each as the first of its chunk.
struct Costs {
    host: Host,
    seq: u64,
    copied: Vec<u32>,
}

impl Costs {
    fn of(host: Host) -> Self {
        Self { host, seq: 0, copied: Vec::new() }
    }

    /// The median time of a contribution that is folded.
    fn folded(&mut self, op: b::fb_op, element: b::fb_type, bytes: usize) -> u32 {
        let mut rng = Rng(u64::from(op) << 8 | u64::from(element));
        let mut folded = Vec::new();
        for _ in 0..CHUNKS {
            let consumed = self.seq;
            self.host.set_consumed(consumed);
            self.seq += 1;
            let (seq, op, element) = (self.seq, op as u8, element as u8);
            let chunk = Chunk { seq, op, element, target: 0, flags: TO_ALL, consumed };
            for member in 1..4 {
                let times = if member == 1 { &mut self.copied } else { &mut folded };
                let payload = elements(&mut rng, element, bytes);
                let verdict = self.host.ingress(&self.host.contribution(member, chunk, &payload));
                assert_eq!(verdict.code, TC_TAKEN);
                times.push(verdict.ns);
            }
        }
        median(folded)
    }

    /// The median time of a packet that is not ours, which is nearly all the measurement's own.
    fn passed_on(&self) -> u32 {
        let packet = self.host.contribution(1, SUM, &[0; BYTES]);
        let packet = packet.with(|p| p.udp.to += 1);
        let times = (0..CHUNKS).map(|_| {
            let verdict = self.host.ingress(&packet);
            assert_eq!(verdict.code, TC_NEXT);
            verdict.ns
        });
        median(times.collect())
    }
}

#[test]
#[ignore = "a measurement: it has nothing to assert about times"]
fn cost_of_a_contribution() {
    in_namespace(|| {
        let _peer = Peer::listen();
        for (seal, host) in [("code", Host::new(5, 0)), ("checksum", Host::without_key(5, 0))] {
            let mut costs = Costs::of(host);
            let passed_on = costs.passed_on();
            let short = costs.folded(b::FB_OP_SUM, b::FB_TYPE_I32, 8);
            costs.copied.clear();
            let rows = OPS.map(|(name, op)| {
                let times = TYPES.map(|element| costs.folded(op, element, BYTES));
                format!("{name:8}{:>6}{:>6}{:>6}{:>6}", times[0], times[1], times[2], times[3])
            });
            println!("Nanoseconds of a frame, sealed by a {seal}:");
            println!("  a packet that is not ours {passed_on}, folded 8 B {short}");
            println!(
                "  {BYTES} B: copied {}, folded, by bits of an element:",
                median(costs.copied)
            );
            println!("          {:>6}{:>6}{:>6}{:>6}", 8, 16, 32, 64);
            rows.iter().for_each(|row| println!("  {row}"));
        }
    });
}

/// The programs with and without `FOLDBACK_CPU_TIME`, in turns.
#[test]
#[ignore = "a measurement: it has nothing to assert about times"]
fn cost_of_counting_cpu_time() {
    in_namespace(|| {
        let _peer = Peer::listen();
        let mut ways =
            [Kernel::shared(), Kernel::timed()].map(|kernel| Costs::of(Host::on(kernel, 5, 0)));
        println!("Nanoseconds of a folded frame, without CPU time and with it, each round:");
        for bytes in [8, BYTES] {
            for _ in 0..12 {
                let [without, with] =
                    ways.each_mut().map(|way| way.folded(b::FB_OP_SUM, b::FB_TYPE_I32, bytes));
                println!("  {bytes:>5} B {without:>6}{with:>6}");
            }
        }
        let counted = ways.map(|way| way.host.counted().contains("nanoseconds"));
        assert_eq!(counted, [false, true]);
    });
}
