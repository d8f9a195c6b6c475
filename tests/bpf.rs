//! The real programs, packet by packet: verdicts, cells, counters, and what is sent, to the last
//! byte. They run by BPF_PROG_TEST_RUN, on maps of the test's own, attached to nothing. Needs root.

#[path = "bpf/host.rs"]
mod host;
#[path = "bpf/kernel.rs"]
mod kernel;
#[path = "bpf/namespace.rs"]
mod namespace;
#[path = "bpf/packet.rs"]
mod packet;
#[path = "common/random.rs"]
mod random;
#[path = "bpf/reference.rs"]
mod reference;

#[path = "bpf/admission.rs"]
mod admission;
#[path = "bpf/broadcast.rs"]
mod broadcast;
#[path = "bpf/cost.rs"]
mod cost;
#[path = "bpf/direct.rs"]
mod direct;
#[path = "bpf/egress.rs"]
mod egress;
#[path = "bpf/fold.rs"]
mod fold;
#[path = "bpf/forged.rs"]
mod forged;
#[path = "bpf/jumbo.rs"]
mod jumbo;
#[path = "bpf/loops.rs"]
mod loops;
#[path = "bpf/multicast.rs"]
mod multicast;
#[path = "bpf/pairs.rs"]
mod pairs;
#[path = "bpf/piece.rs"]
mod piece;
#[path = "bpf/place.rs"]
mod place;
#[path = "bpf/pull.rs"]
mod pull;
#[path = "bpf/ring.rs"]
mod ring;
#[cfg(target_arch = "x86_64")]
#[path = "bpf/simd.rs"]
mod simd;
#[path = "bpf/star.rs"]
mod star;
#[path = "bpf/super_frame.rs"]
mod super_frame;
#[path = "bpf/truncated.rs"]
mod truncated;
#[path = "bpf/verifier.rs"]
mod verifier;
#[path = "bpf/xdp.rs"]
mod xdp;
