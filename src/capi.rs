//! The C interface of the library itself: `include/foldback.h` is made of this file by cbindgen.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::{ptr, slice};

use crate::codec::SUCCESS;
use crate::own::keys::{Names, Pairs};
use crate::own::neighbors::{self, Arguments, Changed, Request};
use crate::stats::CachedLine;
use crate::{guard, process};

/// A communicator's handle, of whichever MPI.
#[allow(non_camel_case_types)]
pub type MPI_Comm = usize;

/// Release of foldback, such as "0.1.0". Static; not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn foldback_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Whether collectives on MPI_COMM_WORLD are folded in the kernel: 1 or 0.
///
/// It is 0 before MPI_Init, before enough calls have made a group (FOLDBACK_SETUP_CALLS), after MPI_Finalize, and with
/// FOLDBACK=off. It is also 0 where the set-up found a reason to leave the job to MPI (which it logged). The answer is
/// the same on all ranks after the same collective call.
#[unsafe(no_mangle)]
pub extern "C" fn foldback_is_active() -> c_int {
    guard::shielded(0, || c_int::from(process::get().is_some_and(process::Process::world_folds)))
}

/// Has sums of floating point on a communicator quantized from now on: `how` is what FOLDBACK_QUANTIZE may
/// be, such as "int16,block=64", or "off"; NULL: as the environment says.
///
/// Collective over `comm`. The remainder of earlier sums (`,error_feedback`) is forgotten. MPI_Comm_set_info and
/// MPI_Comm_dup_with_info do the same by the key "foldback_quantize".
///
/// Returns 0; or, on all ranks alike, 1 if nothing has changed: `how` is nonsense, or not the same on all
/// ranks (a line in the log says so), or `comm` is left to MPI.
///
/// # Safety
/// `comm` is a communicator of the program's MPI, `how` a string or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foldback_comm_set_quantize(comm: MPI_Comm, how: *const c_char) -> c_int {
    // SAFETY: a string, as demanded of this function.
    let how = (!how.is_null()).then(|| unsafe { CStr::from_ptr(how) }.to_string_lossy());
    let Some(process) = process::get() else { return 1 };
    guard::shielded_or_abort(|| c_int::from(!process.set_quantize(comm, how.as_deref())))
}

/// Forgets, on this rank, what sums on a communicator have left out so far (`,error_feedback`), as where a
/// model is loaded anew.
#[unsafe(no_mangle)]
pub extern "C" fn foldback_comm_clear_error_feedback(comm: MPI_Comm) {
    if let Some(process) = process::get() {
        guard::shielded((), || process.clear_error_feedback(comm));
    }
}

/// A datatype's handle, of whichever MPI.
#[allow(non_camel_case_types)]
pub type MPI_Datatype = usize;

/// An op's handle, of whichever MPI.
#[allow(non_camel_case_types)]
pub type MPI_Op = usize;

/// A reduction over neighbours under way: `foldback_wait` or `foldback_test` completes it. It is no MPI_Request.
#[allow(non_camel_case_types)]
pub struct foldback_request(neighbors::Request);

/// The vectors of neighbours as they were last, and their reduction.
#[allow(non_camel_case_types)]
pub struct foldback_neighbor_cache(neighbors::Cache);

/// Calls of a cache on this rank, and the bytes that it has saved.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct foldback_neighbor_counts {
    /// Calls.
    pub reductions: u64,
    /// Calls in which no in-neighbour's vector had changed.
    pub reused: u64,
    /// Bytes of the vectors, to all out-neighbours.
    pub bytes: u64,
    /// Bytes that went to them instead.
    pub bytes_sent: u64,
}

/// In place of a number of changed blocks: foldback compares the vector with the one before.
pub const FOLDBACK_COMPARE: c_int = -1;

/// Reduces the vectors of this rank's in-neighbours: `recvbuf` gets `v1 op v2 op ...` in the order in which
/// MPI_Neighbor_allgather has them.
///
/// Each rank has one vector, `sendbuf`, for all its out-neighbours. Each of several edges from one rank counts, and
/// MPI_PROC_NULL does not. Without in-neighbours `recvbuf` is left alone. `op` and `datatype` may be any that
/// MPI_Reduce takes. Sums of float, double and complex numbers of these are exact, and rounded once. `recvbuf` may be
/// `sendbuf`; neither may be MPI_IN_PLACE.
///
/// Collective over `comm`, which has a topology (MPI-4.1 section 8.6). Returns a code of MPI's, after the error handler
/// of `comm` has seen it.
///
/// # Safety
/// Arguments and buffers as MPI wants them.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn foldback_neighbor_reduce(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: c_int,
    datatype: MPI_Datatype,
    op: MPI_Op,
    comm: MPI_Comm,
) -> c_int {
    let arguments = Arguments { send: sendbuf, recv: recvbuf, count, datatype, op, comm };
    // SAFETY: as demanded of this function.
    guard::shielded_or_abort(|| unsafe { neighbors::reduce(arguments) })
}

/// The same without blocking. The buffers are foldback's until `*request` is complete.
///
/// # Safety
/// Arguments and buffers as MPI wants them; room for a request.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn foldback_ineighbor_reduce(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: c_int,
    datatype: MPI_Datatype,
    op: MPI_Op,
    comm: MPI_Comm,
    request: *mut *mut foldback_request,
) -> c_int {
    let arguments = Arguments { send: sendbuf, recv: recvbuf, count, datatype, op, comm };
    // SAFETY: as demanded of this function.
    guard::shielded_or_abort(|| unsafe { hand_out(Request::reduce(arguments), request) })
}

/// Makes a cache for reductions of vectors of `count` elements that change little from one call to the next.
///
/// A vector has blocks of `block` elements, the last one perhaps fewer; 0: foldback chooses. A block that has not
/// changed is not sent. If no vector has changed that comes to a rank, it gets the reduction that it has kept. For sums
/// and exclusive ors of integers a rank keeps two vectors, for all else also one of each in-neighbour. The results are
/// the same as of `foldback_neighbor_reduce`, to the bit.
///
/// Collective over `comm`, which is duplicated. All ranks give the same arguments.
///
/// # Safety
/// Arguments as MPI wants them; room for a cache.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn foldback_neighbor_cache_create(
    count: c_int,
    datatype: MPI_Datatype,
    op: MPI_Op,
    block: c_int,
    comm: MPI_Comm,
    cache: *mut *mut foldback_neighbor_cache,
) -> c_int {
    let (send, recv) = (ptr::null(), ptr::null_mut());
    let arguments = Arguments { send, recv, count, datatype, op, comm };
    // SAFETY: as demanded of this function.
    guard::shielded_or_abort(|| unsafe {
        match neighbors::Cache::new(arguments, block) {
            Ok(made) => {
                *cache = Box::into_raw(Box::new(foldback_neighbor_cache(made)));
                SUCCESS
            }
            Err(code) => code,
        }
    })
}

/// Reduces as `foldback_neighbor_reduce` does, by a cache.
///
/// The `nchanged` blocks with the numbers in `changed`, from 0, may have changed since the call before; FOLDBACK_COMPARE
/// has foldback compare the vector instead. A block that has changed and is not named keeps its old value for the
/// neighbours. In the first call all blocks are compared with zeros.
///
/// Collective over the cache's communicator. After an error the cache takes no more calls.
///
/// # Safety
/// Buffers for the cache's elements; as many block numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn foldback_neighbor_cache_reduce(
    cache: *mut foldback_neighbor_cache,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    nchanged: c_int,
    changed: *const c_int,
) -> c_int {
    // SAFETY: as demanded of this function.
    guard::shielded_or_abort(|| unsafe {
        (*cache).0.reduce(sendbuf, recvbuf, blocks(nchanged, changed))
    })
}

/// The same without blocking. The buffers are foldback's until `*request` is complete; so is the cache.
///
/// # Safety
/// Buffers for the cache's elements; as many block numbers; room for a request.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn foldback_neighbor_cache_ireduce(
    cache: *mut foldback_neighbor_cache,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    nchanged: c_int,
    changed: *const c_int,
    request: *mut *mut foldback_request,
) -> c_int {
    // SAFETY: as demanded of this function.
    guard::shielded_or_abort(|| unsafe {
        let changed = blocks(nchanged, changed);
        hand_out(Request::cached(&(*cache).0, sendbuf, recvbuf, changed), request)
    })
}

/// Gets the calls of a cache on this rank so far, and the bytes that it has saved.
///
/// # Safety
/// A cache; room for the counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foldback_neighbor_cache_counts(
    cache: *const foldback_neighbor_cache,
    counts: *mut foldback_neighbor_counts,
) {
    // SAFETY: as demanded of this function.
    unsafe {
        let CachedLine { reductions, reused, bytes, bytes_sent, .. } = (*cache).0.counts();
        *counts = foldback_neighbor_counts { reductions, reused, bytes, bytes_sent };
    }
}

/// Frees a cache, which becomes NULL. Collective, as MPI_Comm_free. An error if a request is under way.
///
/// # Safety
/// A cache.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn foldback_neighbor_cache_free(
    cache: *mut *mut foldback_neighbor_cache,
) -> c_int {
    // SAFETY: as demanded of this function.
    guard::shielded_or_abort(|| unsafe {
        let foldback_neighbor_cache(owned) = *Box::from_raw(*cache);
        *cache = ptr::null_mut();
        match owned.free() {
            Ok(()) => SUCCESS,
            Err((owned, code)) => {
                *cache = Box::into_raw(Box::new(foldback_neighbor_cache(owned)));
                code
            }
        }
    })
}

/// Waits until a request is complete, which becomes NULL. NULL is complete. Returns what the blocking function would.
///
/// # Safety
/// A request or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn foldback_wait(request: *mut *mut foldback_request) -> c_int {
    // SAFETY: as demanded of this function.
    guard::shielded_or_abort(|| unsafe { advance(request, true) }).1
}

/// Lets a request go on. If it is complete, `*flag` is 1 and the request becomes NULL, else `*flag` is 0.
///
/// # Safety
/// A request or NULL; room for an int.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn foldback_test(
    request: *mut *mut foldback_request,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: as demanded of this function.
    guard::shielded_or_abort(|| unsafe {
        let (is_over, code) = advance(request, false);
        *flag = c_int::from(is_over);
        code
    })
}

/// Pairs of keys and values, spread over the ranks of a communicator.
#[allow(non_camel_case_types)]
pub struct foldback_pairs(Pairs);

/// As root of `foldback_pairs_gather`: all ranks get the pairs.
pub const FOLDBACK_EVERY_RANK: c_int = -1;

/// The least key first; of strings as memcmp has them, a prefix first.
pub const FOLDBACK_BY_KEY: c_int = 0;

/// The greatest value first, a NaN before all others; then by key.
pub const FOLDBACK_BY_VALUE: c_int = 1;

/// Reduces pairs by key: values of equal keys on all ranks become one, `v1 op v2 op ...`. Each rank gets the pairs whose
/// keys foldback has it own. It is create, add and flush in one.
///
/// `op` and `datatype` may be any that MPI_Reduce takes, if `op` is commutative. They live as long as the pairs. Sums of
/// float, double and complex numbers of these are exact, and rounded once.
///
/// Collective over `comm`; each rank brings `count` pairs of its own, or none. Returns a code of MPI's, after the error
/// handler of `comm` has seen it. On an error all ranks get one, and `*pairs` is NULL.
///
/// # Safety
/// Arguments and buffers as MPI wants them; room for the pairs' address.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn foldback_reduce_by_key(
    keys: *const u64,
    values: *const c_void,
    count: i64,
    datatype: MPI_Datatype,
    op: MPI_Op,
    comm: MPI_Comm,
    pairs: *mut *mut foldback_pairs,
) -> c_int {
    // SAFETY: as demanded of this function.
    guard::shielded_or_abort(|| unsafe {
        hand_out_pairs(Pairs::reduce(Names::Keys(keys), values, count, datatype, op, comm), pairs)
    })
}

/// The same with strings as keys. `strings[i]` has `lengths[i]` bytes, of any value, none too. If `lengths` is NULL, each
/// string ends with a zero.
///
/// # Safety
/// Arguments and buffers as MPI wants them; strings as said; room for the pairs' address.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn foldback_reduce_by_string(
    strings: *const *const c_char,
    lengths: *const usize,
    values: *const c_void,
    count: i64,
    datatype: MPI_Datatype,
    op: MPI_Op,
    comm: MPI_Comm,
    pairs: *mut *mut foldback_pairs,
) -> c_int {
    let names = Names::Strings(strings, lengths);
    // SAFETY: as demanded of this function.
    guard::shielded_or_abort(|| unsafe {
        hand_out_pairs(Pairs::reduce(names, values, count, datatype, op, comm), pairs)
    })
}

/// Makes an object without pairs. Collective over `comm`, which is duplicated. All ranks give the same arguments.
///
/// # Safety
/// Arguments as MPI wants them; room for the pairs' address.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn foldback_pairs_create(
    datatype: MPI_Datatype,
    op: MPI_Op,
    comm: MPI_Comm,
    pairs: *mut *mut foldback_pairs,
) -> c_int {
    // SAFETY: as demanded of this function.
    guard::shielded_or_abort(|| unsafe { hand_out_pairs(Pairs::new(datatype, op, comm), pairs) })
}

/// Adds pairs on this rank. They are in no share until the next flush. An object takes keys or strings, not both.
///
/// If they have no room (FOLDBACK_PAIRS_MEMORY), none of them is taken, and the code is of class MPI_ERR_NO_MEM.
///
/// # Safety
/// Pairs; buffers for as many keys and values.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn foldback_pairs_add(
    pairs: *mut foldback_pairs,
    keys: *const u64,
    values: *const c_void,
    count: i64,
) -> c_int {
    // SAFETY: as demanded of this function.
    guard::shielded_or_abort(|| unsafe { (*pairs).0.add(Names::Keys(keys), values, count) })
}

/// The same with strings as keys, as `foldback_reduce_by_string` has them.
///
/// # Safety
/// Pairs; strings as said; a buffer for as many values.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn foldback_pairs_add_strings(
    pairs: *mut foldback_pairs,
    strings: *const *const c_char,
    lengths: *const usize,
    values: *const c_void,
    count: i64,
) -> c_int {
    let names = Names::Strings(strings, lengths);
    // SAFETY: as demanded of this function.
    guard::shielded_or_abort(|| unsafe { (*pairs).0.add(names, values, count) })
}

/// Brings all that was added to its owners. Collective.
///
/// If an owner has no room, all ranks get a code of class MPI_ERR_NO_MEM. No pair is lost: what has moved is in its
/// owner's share, and the next flush tries again with all else.
///
/// # Safety
/// Pairs.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn foldback_pairs_flush(pairs: *mut foldback_pairs) -> c_int {
    // SAFETY: as demanded of this function.
    guard::shielded_or_abort(|| unsafe { (*pairs).0.flush() })
}

/// Gets the number of keys of this rank's share, or of what was gathered here.
///
/// # Safety
/// Pairs; room for the count.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn foldback_pairs_count(
    pairs: *const foldback_pairs,
    count: *mut i64,
) -> c_int {
    // SAFETY: as demanded of this function.
    unsafe { *count = (*pairs).0.count() };
    SUCCESS
}

/// Gets the keys and the values of this rank's share, in any order; or of what was gathered here, in its order.
/// Either pointer may be NULL. A key that stands for a string is a number that foldback gives the string on all ranks.
///
/// # Safety
/// Pairs; buffers for as many as `foldback_pairs_count` says.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn foldback_pairs_get(
    pairs: *const foldback_pairs,
    keys: *mut u64,
    values: *mut c_void,
) -> c_int {
    // SAFETY: as demanded of this function.
    guard::shielded_or_abort(|| unsafe { (*pairs).0.get(keys, values) })
}

/// Gets the strings and their lengths in the same order; a zero is behind each. Either pointer may be NULL. The strings
/// belong to `pairs`, until the next call that changes or frees it.
///
/// # Safety
/// Pairs; room for as many as `foldback_pairs_count` says.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn foldback_pairs_get_strings(
    pairs: *const foldback_pairs,
    strings: *mut *const c_char,
    lengths: *mut usize,
) -> c_int {
    // SAFETY: as demanded of this function.
    guard::shielded_or_abort(|| unsafe { (*pairs).0.get_strings(strings, lengths) })
}

/// Gathers the `most` first pairs of all shares in an order, FOLDBACK_BY_KEY or FOLDBACK_BY_VALUE, at `root` or at
/// FOLDBACK_EVERY_RANK; -1: all pairs. Elsewhere `*gathered` is an object without pairs.
///
/// A gathered object takes count, get, get_strings and free only. Only integers and real numbers are sorted by value.
/// Collective; all ranks give the same arguments.
///
/// # Safety
/// Pairs; room for the address of those gathered.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn foldback_pairs_gather(
    pairs: *mut foldback_pairs,
    most: i64,
    order: c_int,
    root: c_int,
    gathered: *mut *mut foldback_pairs,
) -> c_int {
    // SAFETY: as demanded of this function.
    guard::shielded_or_abort(|| unsafe {
        hand_out_pairs((*pairs).0.gather(most, order, root), gathered)
    })
}

/// Frees pairs, which become NULL. Collective, as MPI_Comm_free; of a gathered object local.
///
/// # Safety
/// Pairs.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn foldback_pairs_free(pairs: *mut *mut foldback_pairs) -> c_int {
    // SAFETY: as demanded of this function.
    guard::shielded_or_abort(|| unsafe {
        let code = (**pairs).0.free();
        if code == SUCCESS {
            drop(Box::from_raw(*pairs));
            *pairs = ptr::null_mut();
        }
        code
    })
}

/// Gives the program pairs that have been made, or NULL. Returns the code.
///
/// # Safety
/// Room for the pairs' address.
unsafe fn hand_out_pairs(made: Result<Pairs, c_int>, to: *mut *mut foldback_pairs) -> c_int {
    let (pairs, code) = match made {
        Ok(made) => (Box::into_raw(Box::new(foldback_pairs(made))), SUCCESS),
        Err(code) => (ptr::null_mut(), code),
    };
    // SAFETY: as demanded of this function.
    unsafe { *to = pairs };
    code
}

/// Gives the program a request that has been started, or NULL. Returns the code.
///
/// # Safety
/// Room for a request.
unsafe fn hand_out(started: Result<Request, c_int>, to: *mut *mut foldback_request) -> c_int {
    let (request, code) = match started {
        Ok(started) => (Box::into_raw(Box::new(foldback_request(started))), SUCCESS),
        Err(code) => (ptr::null_mut(), code),
    };
    // SAFETY: as demanded of this function.
    unsafe { *to = request };
    code
}

/// Lets a request go on, and frees it if it is over. Returns whether it is, and the code.
///
/// # Safety
/// A request or NULL, and its buffers.
unsafe fn advance(request: *mut *mut foldback_request, waits: bool) -> (bool, c_int) {
    // SAFETY: as demanded of this function.
    unsafe {
        let Some(under_way) = (*request).as_mut() else { return (true, SUCCESS) };
        let code = match under_way.0.advance(waits) {
            Ok(false) => return (false, SUCCESS),
            Ok(true) => SUCCESS,
            Err(code) => code,
        };
        drop(Box::from_raw(*request));
        *request = ptr::null_mut();
        (true, code)
    }
}

/// The blocks that the program says have changed.
///
/// # Safety
/// As many numbers.
unsafe fn blocks<'a>(count: c_int, changed: *const c_int) -> Changed<'a> {
    match usize::try_from(count) {
        Ok(0) => Changed::Blocks(&[]),
        // SAFETY: as demanded of this function.
        Ok(count) => Changed::Blocks(unsafe { slice::from_raw_parts(changed, count) }),
        Err(_) => Changed::Compare,
    }
}
