//! Long loops by the widest vectors of this CPU, rounding as every process begins with.
#![allow(unsafe_code)]

/// Work for the widest vectors that serve.
pub trait Work {
    /// To be inlined.
    fn work(self);
}

/// Does it by the widest vectors that serve.
#[inline(never)]
pub fn vectorized<W: Work>(work: W) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        #[target_feature(enable = "avx2")]
        fn with_avx2<W: Work>(work: W) {
            work.work();
        }
        // SAFETY: this CPU has it.
        unsafe { with_avx2(work) };
        return;
    }
    work.work();
}

/// The same, in the floating-point environment that every process begins with: rounding to nearest, subnormals kept.
/// The program's own settings and flags are restored afterwards.
#[inline(never)]
pub fn in_the_usual_environment<W: Work>(work: W) {
    #[cfg(target_arch = "x86_64")]
    {
        let (usual, mut set): (u32, u32) = (0x1f80, 0);
        // SAFETY: a word of this function's is written, or read; what is set here is what Rust's own arithmetic
        // relies on.
        unsafe {
            std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut set, options(nostack));
            std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const usual, options(nostack));
        }
        vectorized(work);
        // SAFETY: as above; it was set before.
        unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const set, options(nostack)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    vectorized(work);
}
