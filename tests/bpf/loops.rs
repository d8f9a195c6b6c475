//! The loops over blocks of payload, instruction by instruction. A compiler that does not unroll them, or branches in
//! them, makes frames slow and nothing wrong.

use foldback::bindings as b;
use libbpf_rs::libbpf_sys as sys;

use crate::kernel::{Hook, Instruction, Kernel};

const BLOCK: u32 = b::FB_FOLD_BLOCK;
/// The stack's register: what the compiler keeps there is not payload.
const FRAME_POINTER: u8 = 10;

/// Instructions for a block, by clang 14: of each loop of `fb_fold`, the shortest first. docs/benchmarks.md says which
/// op takes which.
const FOLDS: [usize; 16] = [42, 42, 42, 42, 42, 74, 74, 92, 101, 130, 136, 138, 167, 204, 266, 270];
const COPY: usize = 24;
const CODE: usize = 103;
const CHECKSUM: usize = 37;

/// Bytes that an instruction loads from memory other than the stack, and that it stores there.
fn moved(instruction: Instruction) -> (u32, u32) {
    let opcode = u32::from(instruction.opcode);
    if opcode & 0xe0 != sys::BPF_MEM {
        return (0, 0);
    }
    let bytes = match opcode & 0x18 {
        sys::BPF_B => 1,
        sys::BPF_H => 2,
        sys::BPF_W => 4,
        _ => 8,
    };
    match opcode & 7 {
        sys::BPF_LDX if instruction.from != FRAME_POINTER => (bytes, 0),
        sys::BPF_STX if instruction.to != FRAME_POINTER => (0, bytes),
        _ => (0, 0),
    }
}

fn jumps(instruction: Instruction) -> bool {
    let opcode = u32::from(instruction.opcode);
    matches!(opcode & 7, sys::BPF_JMP | sys::BPF_JMP32)
        && !matches!(opcode & 0xf0, sys::BPF_CALL | sys::BPF_EXIT)
}

/// Instructions, bytes loaded and bytes stored of a turn of each loop that has no other in it.
fn innermost_loops(code: &[Instruction]) -> Vec<(usize, u32, u32)> {
    let back = |(end, instruction): (usize, &Instruction)| {
        let backward = jumps(*instruction) && instruction.offset < 0;
        backward.then(|| (end + 1 - usize::from(instruction.offset.unsigned_abs()), end))
    };
    let loops: Vec<(usize, usize)> = code.iter().enumerate().filter_map(back).collect();
    let innermost = loops.iter().filter(|(start, end)| {
        !loops.iter().any(|other| other != &(*start, *end) && other.0 >= *start && other.1 <= *end)
    });
    let turn = |&(start, end): &(usize, usize)| {
        let turn = &code[start..=end];
        let moved = turn.iter().map(|instruction| moved(*instruction));
        let (loaded, stored) = moved.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        (turn.len(), loaded, stored)
    };
    innermost.map(turn).collect()
}

/// Instructions of the loops that load and store so many bytes at a turn, the shortest first.
fn lengths(loops: &[(usize, u32, u32)], [load, store]: [u32; 2]) -> Vec<usize> {
    let fitting = loops.iter().filter(|(_, loaded, stored)| (*loaded, *stored) == (load, store));
    let mut lengths: Vec<usize> = fitting.map(|(length, ..)| *length).collect();
    lengths.sort_unstable();
    lengths
}

fn assert_kept(what: &str, lengths: &[usize], kept: &[usize]) {
    println!("{what}: {lengths:?}");
    assert_eq!(lengths.len(), kept.len(), "{what}: {lengths:?}");
    for (length, kept) in lengths.iter().zip(kept) {
        assert!(*length <= kept + kept / 10, "{what}: {lengths:?} instructions for a block");
    }
}

#[test]
fn a_turn_of_a_loop_is_a_block_in_few_instructions() {
    for kernel in [Kernel::shared(), Kernel::jumbo()] {
        let loops = innermost_loops(&kernel.code(Hook::Ingress));
        assert_kept("folds", &lengths(&loops, [2 * BLOCK, BLOCK]), &FOLDS);
        assert_kept("code", &lengths(&loops, [2 * BLOCK, 0]), &[CODE]);
        assert_kept("checksum", &lengths(&loops, [BLOCK, 0]), &[CHECKSUM]);
        // The compiler may repeat `fb_copy` where it is called.
        let copies = lengths(&loops, [BLOCK, BLOCK]);
        assert!(!copies.is_empty());
        assert_kept("copies", &copies, &vec![COPY; copies.len()]);
    }
}
