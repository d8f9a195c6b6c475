//! Work in a floating-point environment that a program has set.
#![allow(unsafe_code)]

use super::random::Rng;

/// MXCSR as a program may have set it: any rounding, zeros for subnormals; any flags, or all traps.
pub fn any(rng: &mut Rng) -> u32 {
    let set = rng.next() as u32 & 0xe040;
    set | if rng.below(2) == 0 { 0 } else { 0x1f80 | rng.next() as u32 & 0x3f }
}

/// Does some work, and returns MXCSR behind it.
#[cfg(target_arch = "x86_64")]
pub fn within(mxcsr: u32, mut work: &mut dyn FnMut()) -> u32 {
    extern "C" fn call(work: *mut &mut dyn FnMut()) {
        // SAFETY: `within` passes its own argument.
        unsafe { (*work)() }
    }
    let (mut old, mut after) = (0_u32, 0_u32);
    // SAFETY: a call as the C ABI has it; MXCSR is another for the length of it only.
    unsafe {
        std::arch::asm!(
            "stmxcsr [r12]",
            "ldmxcsr [r13]",
            "call {call}",
            "stmxcsr [r14]",
            "ldmxcsr [r12]",
            call = sym call,
            in("r12") &raw mut old,
            in("r13") &raw const mxcsr,
            in("r14") &raw mut after,
            in("rdi") &raw mut work,
            clobber_abi("C"),
        );
    }
    after
}

/// Elsewhere there is none to be set.
#[cfg(not(target_arch = "x86_64"))]
pub fn within(mxcsr: u32, work: &mut dyn FnMut()) -> u32 {
    work();
    mxcsr
}
