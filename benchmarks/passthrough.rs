//! The cost of a call that foldback passes on: the real MPI's function against the hook before it.
//!
//! One process, MPICH or Open MPI as installed, on communicators where the real call does next to
//! nothing; the difference is the hook's. Target: below 50 ns (`cargo bench --bench passthrough`).
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;

use criterion::Criterion;

type Allreduce =
    unsafe extern "C" fn(*const c_void, *mut c_void, c_int, usize, usize, usize) -> c_int;

unsafe extern "C" {
    // The hooks of the library, which is linked into this program.
    fn MPI_Init(argc: *mut c_int, argv: *mut c_void) -> c_int;
    fn MPI_Allreduce(
        send: *const c_void,
        recv: *mut c_void,
        count: c_int,
        datatype: usize,
        op: usize,
        comm: usize,
    ) -> c_int;
}

/// MPICH's handles (it is the MPI whose calls cost least, so the one where a hook shows most).
const DOUBLE: usize = 0x4c00_080b;
const INT: usize = 0x4c00_0405;
const SUM: usize = 0x5800_0003;
const WORLD: usize = 0x4400_0000;

fn symbol(library: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: a handle of dlopen and a C string.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!address.is_null(), "no {name:?}");
    address
}

fn main() {
    // Keeps the crate, and with it the hooks, in the program.
    let _ = foldback::capi::foldback_version();
    // SAFETY: loading MPICH runs its constructors, which are made for that.
    let mpich =
        unsafe { libc::dlopen(c"libmpich.so.12".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    assert!(!mpich.is_null(), "libmpich.so.12 is not installed: run `make setup`");
    // SAFETY: the signature is MPI's.
    let real: Allreduce = unsafe { std::mem::transmute(symbol(mpich, c"PMPI_Allreduce")) };
    // SAFETY: MPI allows null arguments here.
    assert_eq!(unsafe { MPI_Init(null_mut(), null_mut()) }, 0);

    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("pass-through");
    let (x, mut y) = ([1u64; 64], [0u64; 64]);
    let (send, recv) = (x.as_ptr().cast(), y.as_mut_ptr().cast());
    for (name, datatype, count) in
        [("double, no group", DOUBLE, 1), ("int, no group", INT, 1), ("nothing to send", INT, 0)]
    {
        group.bench_function(format!("{name}: real MPI"), |b| {
            // SAFETY: valid arguments of an MPI call, buffers long enough.
            b.iter(|| unsafe { real(send, recv, count, datatype, SUM, WORLD) });
        });
        group.bench_function(format!("{name}: through foldback"), |b| {
            // SAFETY: as above.
            b.iter(|| unsafe { MPI_Allreduce(send, recv, count, datatype, SUM, WORLD) });
        });
    }
    group.finish();
    criterion.final_summary();
    // MPI_Finalize would be the real one's; a process alone may just end.
}
