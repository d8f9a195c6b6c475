//! Blocking collectives: which way they go, and to their end.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Instant;

use super::stopwatch::{Stopwatch, took};
use super::{After, Judged, Passed, quantized, usual_algorithm};
use crate::bindings::FB_OP_SUM;
use crate::call::Collective;
use crate::codec::{SUCCESS, prepare};
use crate::comm::{Folding, complete, fold_words};
use crate::plan::{fit, instead_of_shards, plan};
use crate::route::{ClassId, Reason, Step, Way, router};
use crate::stats;
use crate::wire::Algorithm;

/// # Safety
/// *Arguments* and *buffers* of the [program](crate::mpi).
pub(super) unsafe fn run(judged: Judged<'_>) -> Result<(c_int, stats::Way), Passed> {
    let Judged { process, config, call, admitted, communicator, .. } = &judged;
    let (mpi, context) = (&process.mpi, process.context());
    let comm = mpi.abi.handle(call.comm);
    judged.unless_revoked()?;
    let get = |when| process.communicators.group_for(&context, comm, communicator, when);
    let mut guard = communicator.folding_or(config.shared.setup_calls, get)?;
    let folding = guard.as_mut().ok_or(Reason::NoGroup)?;
    if folding.is_lost(&context) {
        drop(guard);
        let communicator = process.communicators.renew(&context, comm, communicator);
        // SAFETY: as demanded of this function.
        return unsafe { run(Judged { communicator, ..judged }) };
    }
    if admitted.quantized.is_some() {
        // SAFETY: buffers of the program's.
        match unsafe { quantized::sum(&judged, &context, guard) } {
            Ok(code) => return Ok((code, stats::Way::Quantized)),
            Err(held) => guard = held,
        }
        if admitted.bytes > admitted.most {
            return Err(Reason::TooLarge.into());
        }
    }
    let folding = guard.as_mut().ok_or(Reason::NoGroup)?;
    let case = judged.case();
    let mut fit = fit(case, &mut folding.group.engine.place)?;
    let (mut route, mut algorithm) = (None, None);
    if admitted.measured {
        let ranks = folding.group.engine.place.layout.ranks();
        let bytes = router::bytes_in_all(call.collective, admitted.bytes, ranks);
        let (id, step) = choose(&judged, folding, call.collective, bytes);
        let begin = step.timed.then(Instant::now);
        match step.way {
            Way::Mpi => {
                let stopwatch = Stopwatch::start(Arc::clone(communicator), id, begin, call);
                return Err(Passed::Timed(Box::new(After::Stop(stopwatch))));
            }
            Way::Fold(chosen) => (route, algorithm) = (Some((id, chosen, begin)), Some(chosen)),
        }
    }
    if algorithm == Some(Algorithm::Shards)
        && let Some(swapped) = instead_of_shards(&fit, &mut folding.group.engine.place)
    {
        (fit, algorithm) = (swapped, None);
    }
    let plan = plan(case, fit);
    // SAFETY: the program's buffers stay until this returns.
    let code = unsafe {
        let (job, prepared) = prepare(mpi, plan);
        let group = &mut folding.group;
        let algorithm = algorithm.unwrap_or_else(|| usual_algorithm(config, group, &job));
        let outcome = complete(&context, group, job, algorithm);
        // An op of the program's may be called, and what that calls is its own affair.
        drop(guard);
        prepared.end(mpi, outcome)
    };
    if let Some((id, chosen, Some(begin))) = route {
        took(communicator, id, Way::Fold(chosen), begin);
    }
    if code != SUCCESS {
        mpi.handle_error(comm, code);
    }
    Ok((code, stats::Way::Folded))
}

/// Which way a collective of so many bytes goes that fits and whose ways are compared; if it is time to, the ranks add
/// up first what they have measured.
pub(super) fn choose(
    judged: &Judged<'_>,
    folding: &mut Folding,
    collective: Collective,
    bytes: usize,
) -> (ClassId, Step) {
    let Judged { process, config, communicator, .. } = judged;
    let Folding { group, router, .. } = folding;
    let id = ClassId::new(collective, bytes);
    if let Some(mut sums) = router.known(id).and_then(|class| class.due()) {
        fold_words(&process.context(), group, FB_OP_SUM, &mut sums);
        if let Some(change) = router.agreed(id, sums)
            && communicator.rank == 0
        {
            log::debug!("{change}");
        }
    }
    let usual = if bytes > config.shared.max_bytes[collective as usize] {
        Way::Mpi
    } else {
        Way::Fold(group.engine.usual_fold(bytes))
    };
    (id, router.class(id, usual).next())
}
