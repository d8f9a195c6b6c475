//! Sums as the library's safe function does not make them: under a floating-point environment that the
//! program has set, and into one of the parts.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::asm;
use std::ffi::c_void;

use foldback::bindings as b;
use foldback::leaf::exact::fastest;

use super::Batch;
#[cfg(target_arch = "x86_64")]
use super::random::Rng;

/// MXCSR as a program may have set it: rounding, zeros for subnormals, any flags; traps that are on.
#[cfg(target_arch = "x86_64")]
pub fn any(rng: &mut Rng) -> u32 {
    const DEFINED: u32 = 0xffff;
    match rng.below(4) {
        0 => 0x1f80,
        // Rounding up, and both ways of taking subnormals for zero.
        1 => 0x1f80 | 0x4000 | 0x8000 | 0x40,
        // A flag of a trap that is on makes the next operation trap.
        2 => rng.next() as u32 & DEFINED & !0x3f,
        _ => 0x1f80 | rng.next() as u32 & DEFINED,
    }
}

/// The sums, and MXCSR behind them.
#[cfg(target_arch = "x86_64")]
pub fn sum_under(mxcsr: u32, batch: &Batch, by: u32) -> (Vec<u64>, u32) {
    let (parts, width) = (batch.parts(), batch.format.width());
    let pointers: Vec<*const c_void> = parts.iter().map(|part| part[1..].as_ptr().cast()).collect();
    let mut into = vec![0x5a_u8; batch.columns.len() * width];
    let (mut old, mut after) = (0u32, 0u32);
    // SAFETY: a call as the C ABI has it, of memory that is large enough; MXCSR is another for the length
    // of it only, out of the compiler's sight.
    unsafe {
        asm!(
            "stmxcsr [r12]",
            "ldmxcsr [r13]",
            "call {sum}",
            "stmxcsr [r14]",
            "ldmxcsr [r12]",
            sum = sym b::fb_exact_sum,
            in("r12") &raw mut old,
            in("r13") &raw const mxcsr,
            in("r14") &raw mut after,
            in("rdi") into.as_mut_ptr(),
            in("rsi") pointers.as_ptr(),
            in("rdx") pointers.len(),
            in("rcx") batch.columns.len(),
            in("r8") width,
            in("r9") by.min(fastest()),
            clobber_abi("C"),
        );
    }
    (batch.bits(&into), after)
}

/// The sums, where part `place` was.
pub fn sum_in_place(batch: &Batch, place: usize, by: u32) -> Vec<u64> {
    let (mut parts, width) = (batch.parts(), batch.format.width());
    let pointers: Vec<*mut u8> =
        parts.iter_mut().map(|part| part[1..].as_mut_ptr().cast()).collect();
    // SAFETY: every part has the elements, unaligned, and the CPU has what the sum is made by.
    unsafe {
        b::fb_exact_sum(
            pointers[place].cast(),
            pointers.as_ptr().cast(),
            pointers.len() as u64,
            batch.columns.len() as u64,
            width as u64,
            by.min(fastest()),
        );
    }
    batch.bits(&parts[place][1..])
}
