//! Exact sums of blocking calls (`FOLDBACK_SUM=exact`). Long ones go in pieces. If a sum is left to the MPI, it only
//! gathers everyone's numbers, which are summed here. So a program has exact sums also before there is a group, and
//! without one.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Passed, attempt, quantizes};
use crate::call::{Call, Form, Message};
use crate::codec::{SUCCESS, sum_exactly};
use crate::collectives::judge;
use crate::config::Sum;
use crate::gate::eligibility::{By, who};
use crate::gate::{Ends, Left, Reason, Share};
use crate::leaf::arithmetic::{Operator, Real};
use crate::mpi::Mpi;
use crate::mpi::types::{Op, Shape};
use crate::plan::MOST_IMAGE;
use crate::process::Process;
use crate::stats::Way;

/// Most bytes that a rank holds of everyone's numbers, of a sum that is left to the MPI.
const HELD: usize = 1 << 20;

/// A sum, to its end, unless it is to be quantized; `None` if the call is none, or the MPI's to refuse.
///
/// # Safety
/// *Arguments* and *buffers* of the [program](crate::mpi).
#[cold]
pub(super) unsafe fn sum(
    process: &'static Process,
    form: Form,
    call: &Call,
    seen: &mut Message,
) -> Option<(c_int, Way)> {
    if form != Form::Blocking {
        return None;
    }
    let (real, shape) = what(process, call)?;
    let mpi = &process.mpi;
    let communicator = process.communicator(mpi.abi.handle(call.comm))?;
    let place = (communicator.rank, communicator.size);
    if call.collective.is_quantized() && quantizes(process, call) {
        // SAFETY: the program's arguments and buffers.
        match unsafe { attempt(process, form, call, std::ptr::null_mut(), seen, quantizes) } {
            Ok(ended) => return Some(ended),
            // As all ranks do: some number is none, say. Else it is quantized, or exact as a whole.
            Err(Passed::Left(Left::All(_))) => {}
            Err(_) => return None,
        }
    }
    let (mut way, mut bytes) = (Way::Folded, 0);
    for piece in pieces(call, shape, place.1)? {
        let part = &part_of(call, mpi, &piece, shape);
        // SAFETY: part of the program's buffers, or all.
        let code =
            match unsafe { attempt(process, form, part, std::ptr::null_mut(), seen, |_, _| false) }
            {
                Ok((code, _)) => code,
                Err(Passed::Left(Left::All(reason))) if may_be_left(reason) => {
                    way = Way::Left(reason);
                    // SAFETY: arguments of the program's.
                    let ends = unsafe { judge(mpi, part, Some(shape), place) }.ok()?;
                    // SAFETY: they are right, and buffers of the program's.
                    unsafe { by_mpi(mpi, part, &ends, real) }
                }
                Err(_) => return None,
            };
        bytes += seen.bytes;
        if code != SUCCESS {
            return Some((code, way));
        }
    }
    seen.bytes = bytes;
    Some((SUCCESS, way))
}

/// Whether the program asks for exact sums, on all ranks.
#[inline]
pub(super) fn are_wanted(process: &Process) -> bool {
    process.config.as_ref().is_ok_and(|config| config.shared.sum == Sum::Exact)
        && process.is_running()
}

/// The numbers of a sum: what [`sum_exactly`] takes for their type, and how they lie in memory.
fn what(process: &Process, call: &Call) -> Option<(Real, Shape)> {
    let op = process.mpi.abi.op(call.op).filter(|op| *op == Op::Fold(Operator::Sum))?;
    let datatype = process.mpi.abi.datatype(call.recv.datatype)?;
    match who(Some(datatype), Some(op), false, Sum::Exact) {
        Ok(By::Exact { real, .. }) => Some((real, datatype.shape())),
        _ => None,
    }
}

/// Says once that a sum was left to the MPI which is not exact now.
#[cold]
pub(super) fn warn_of(process: &Process, call: &Call, reason: Reason) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let is_trivial = matches!(reason, Reason::OneRank | Reason::Empty);
    if is_trivial || what(process, call).is_none() || TOLD.swap(true, Ordering::Relaxed) {
        return;
    }
    let name = call.collective.name();
    let reason = reason.text();
    log::warn!(
        "FOLDBACK_SUM=exact: a sum is not exact, since it was left to MPI: {name}, {reason}"
    );
}

/// Whether a call that is not folded for this reason has a sum that can be made here, by all of its ranks. Ranks from
/// outside MPI_COMM_WORLD may ask for other sums: they answer another roll call.
fn may_be_left(reason: Reason) -> bool {
    !matches!(
        reason,
        Reason::Off
            | Reason::Empty
            | Reason::OneRank
            | Reason::Intercommunicator
            | Reason::Foreign
            | Reason::Revoked
    )
}

/// Elements that go at once, alike on all ranks. `None`: there are fewer than none.
fn pieces(call: &Call, shape: Shape, ranks: usize) -> Option<impl Iterator<Item = Range<usize>>> {
    let all = usize::try_from(call.recv.count).ok()?;
    // An image pads each host's part.
    let most = MOST_IMAGE / 8 * 7 / (shape.size * ranks.max(1));
    let step = if call.collective.can_be_cut() && most > 0 { most } else { all.max(1) };
    // One of nothing is a call all the same.
    let count = all.div_ceil(step).max(1);
    Some((0..count).map(move |piece| piece * step..all.min((piece + 1) * step)))
}

/// The call of these elements alone.
fn part_of(call: &Call, mpi: &Mpi, piece: &Range<usize>, shape: Shape) -> Call {
    let mut part = *call;
    if piece.start == 0 && piece.end as i64 == call.recv.count {
        return part;
    }
    part.recv.count = piece.len() as i64;
    for side in [&mut part.send, &mut part.recv] {
        if !side.data.is_null() && side.data as usize != mpi.abi.in_place {
            side.data = side.data.wrapping_byte_add(piece.start * shape.size);
        }
    }
    part
}

/// The sum of numbers that the MPI brings together.
///
/// # Safety
/// *Buffers* of the [program](crate::mpi), of a call whose arguments are right; all ranks do so.
unsafe fn by_mpi(mpi: &Mpi, call: &Call, ends: &Ends, real: Real) -> c_int {
    let Some(brings) = ends.brings else { return SUCCESS };
    let (width, ranks) = (brings.shape.size, ends.ranks);
    let Share { elements: own, ranks: below } = call.collective.share(ends);
    let step = (HELD / (width * ranks)).max(1);
    let mut all = vec![0; step.min(brings.count) * width * ranks];
    for start in (0..brings.count).step_by(step) {
        let end = brings.count.min(start + step);
        let bytes = (end - start) * width;
        let all = &mut all[..bytes * ranks];
        // SAFETY: elements of the program's; what is written goes where what was read for it has been sent from.
        unsafe {
            let from: *const c_void = brings.data.wrapping_byte_add(start * width);
            let code = mpi.gather_at_all(mpi.abi.handle(call.comm), from, bytes, all);
            if code != SUCCESS {
                return code;
            }
            let (first, last) = (start.max(own.start), end.min(own.end));
            let Some(gets) = ends.gets.filter(|_| first < last && below > 0) else { continue };
            let to = gets.data.wrapping_byte_add((first - own.start) * width);
            let into = std::slice::from_raw_parts_mut(to.cast(), (last - first) * width);
            let cut = (first - start) * width..(last - start) * width;
            let parts = all.chunks_exact(bytes).take(below).map(|part| &part[cut.clone()]);
            sum_exactly(into, &parts.collect::<Vec<_>>(), real);
        }
    }
    SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_ranks_may_not_sum_here_is_the_mpis() {
        assert!([Reason::NoGroup, Reason::Routed, Reason::TooLarge].into_iter().all(may_be_left));
        let apart = [Reason::Off, Reason::Foreign, Reason::Intercommunicator];
        assert!(!apart.into_iter().any(may_be_left));
    }
}
