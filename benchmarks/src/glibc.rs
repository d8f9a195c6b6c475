//! Functions of the C library in place of newer ones, so that the command runs on glibc 2.34 (RHEL 9).
#![allow(unsafe_code)]

/// glibc 2.35 has a version of its own, which charts would need. The square of a `float` cannot overflow
/// as a `double`.
// SAFETY: the name, type and meaning that C gives it (C11 7.12.7.3).
#[unsafe(no_mangle)]
extern "C" fn hypotf(x: f32, y: f32) -> f32 {
    let (x, y) = (f64::from(x), f64::from(y));
    (x * x + y * y).sqrt() as f32
}
