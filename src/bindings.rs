//! Generated code, and nothing else: Rust of `bpf/intf.h` and `bpf/wire.h`, and BPF objects.
#![allow(missing_docs, unsafe_code, non_camel_case_types, non_snake_case, non_upper_case_globals)]
#![allow(clippy::all, clippy::undocumented_unsafe_blocks, unreachable_pub, dead_code)]

include!(concat!(env!("OUT_DIR"), "/intf.rs"));

/// The programs of `bpf/foldback.bpf.c`, for chunks that fit the usual MTU.
pub static PROGRAMS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/foldback.bpf.o"));
/// The same programs for jumbo frames.
pub static JUMBO_PROGRAMS: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/foldback_jumbo.bpf.o"));
/// The programs for the usual MTU that fold by the kernel module foldback_simd.
pub static SIMD_PROGRAMS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/foldback_simd.bpf.o"));
/// The same programs for jumbo frames.
pub static JUMBO_SIMD_PROGRAMS: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/foldback_jumbo_simd.bpf.o"));

/// The program of `bpf/lab_faults.bpf.c`.
pub mod lab_faults {
    include!(concat!(env!("OUT_DIR"), "/lab_faults.skel.rs"));
}
