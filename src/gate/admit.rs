//! The calls that may be folded, as far as can be said without a group.

use super::eligibility::{By, Reduction, bounded, size, who};
use super::{Facts, Left, Reason, Refused};
use crate::call::{Call, Collective, Form, Message, Side};
use crate::choice::is_measured;
use crate::config::{Config, Policy, Sum};
use crate::mpi::types::{Class, Shape, TypeInfo};

/// A call that may be folded, as far as can be said without a group: alike on all ranks.
pub struct Admitted {
    /// Bytes of the message; of gathers, of the part of one rank.
    pub bytes: usize,
    /// Most bytes in all that may be folded.
    pub most: usize,
    /// Whether the ways are compared, see [`crate::choice`].
    pub measured: bool,
    /// How a reduction folds.
    pub fold: Option<Reduction>,
    /// It is to be quantized, if it is long enough and all its numbers are finite: what is added up.
    pub quantized: Option<u8>,
}

impl Admitted {
    /// How a reduction's elements lie in memory.
    #[inline]
    pub fn shape(&self) -> Option<Shape> {
        self.fold.map(|fold| fold.shape)
    }
}

/// Looks at a call without its group; `quantizes` says whether sums on its communicator are quantized. `seen` gets what
/// is known of its message, also if the call is the real MPI's.
///
/// # Errors
/// It is the real MPI's.
pub fn admit(
    mpi: &impl Facts,
    config: &Config,
    quantizes: impl Fn() -> bool,
    form: Form,
    call: &Call,
    seen: &mut Message,
) -> Result<Admitted, Left> {
    if config.shared.policy == Policy::Mpi {
        return Err(Reason::Routed.into());
    }
    let may_measure = form == Form::Blocking && config.shared.policy == Policy::Auto;
    let measured = may_measure && is_measured(call.collective);
    let most = config.shared.most_bytes(call.collective, measured);
    let folded = |count, seen: &mut Message| -> Result<Admitted, Left> {
        let most_of = |by, measured| match by {
            By::Exact { always: true, .. } | By::Quantized { .. } => {
                config.shared.most_bytes_asked(call.collective)
            }
            _ => config.shared.most_bytes(call.collective, measured),
        };
        let quantized = |by: By| {
            let may_be =
                call.collective.is_quantized() && may_be_quantized(form, by, config.shared.sum);
            by.reals().filter(|_| may_be && quantizes())
        };
        let most = |by: By| match quantized(by) {
            Some(_) => usize::MAX,
            None => most_of(by, measured),
        };
        let fold = reduction(mpi, form, call, count, (config.shared.sum, &most), seen)?;
        let quantized = quantized(fold.by);
        if quantized.is_none() && matches!(fold.by, By::Quantized { .. }) {
            return Err(Reason::Datatype.into());
        }
        let measured = measured && fold.by.is_as_exact_as_mpi();
        let most = most_of(fold.by, measured);
        let bytes = bounded(fold.bytes, if quantized.is_some() { usize::MAX } else { most })?;
        Ok(Admitted { bytes, most, measured, fold: Some(fold), quantized })
    };
    let in_place = |side: &Side| side.data as usize == mpi.in_place();
    let element = |side: &Side, seen: &mut Message| {
        let known = mpi.datatype(side.datatype);
        seen.datatype = datatype_number(known);
        mpi.shape_of(known, side.datatype).map(|shape| shape.size).ok_or(Refused)
    };
    let moved = |side: &Side, seen: &mut Message| -> Result<Admitted, Left> {
        let bytes = size(side.count, element(side, seen)?)?;
        seen.bytes = bytes as u64;
        let bytes = bounded(bytes, most)?;
        Ok(Admitted { bytes, most, measured, fold: None, quantized: None })
    };
    match call.collective {
        Collective::Barrier if most == 0 => Err(Reason::TooLarge.into()),
        Collective::Barrier => {
            Ok(Admitted { bytes: 0, most, measured, fold: None, quantized: None })
        }
        Collective::Allreduce
        | Collective::Reduce
        | Collective::Reduce_scatter_block
        | Collective::Scan
        | Collective::Exscan => folded(call.recv.count, seen),
        // How many elements there are takes the group's size to say; one will do.
        Collective::Reduce_scatter => folded(1, seen),
        Collective::Bcast | Collective::Allgather | Collective::Alltoall => moved(&call.recv, seen),
        // One side is significant at the root alone; the other not there, if it is in place.
        Collective::Gather if !in_place(&call.send) => moved(&call.send, seen),
        Collective::Scatter if !in_place(&call.recv) => moved(&call.recv, seen),
        Collective::Gather | Collective::Scatter if !is_root(mpi, call) => Err(Refused.into()),
        Collective::Gather => moved(&call.recv, seen),
        Collective::Scatter => moved(&call.send, seen),
        Collective::Allgatherv => {
            let bytes = element(&call.recv, seen)?;
            seen.bytes = bytes as u64;
            Ok(Admitted { bytes, most, measured, fold: None, quantized: None })
        }
    }
}

/// Whether a sum may be quantized. A call that does not block stays in its group, also with numbers that are not finite. No
/// process of foldback sums numbers of 16 bits, nor long numbers exactly.
fn may_be_quantized(form: Form, by: By, sum: Sum) -> bool {
    form == Form::Blocking || (!matches!(by, By::Quantized { .. }) && sum != Sum::Exact)
}

#[cold]
fn is_root(mpi: &impl Facts, call: &Call) -> bool {
    usize::try_from(call.root) == Ok(mpi.rank(call.comm))
}

/// The reduction of `count` elements, if it is one that is folded.
///
/// By the MPI only in the program's own calls that block: no other thread may call it, and the program
/// may free its ops and types before other calls end.
fn reduction(
    mpi: &impl Facts,
    form: Form,
    call: &Call,
    count: i64,
    (sum, most): (Sum, &impl Fn(By) -> usize),
    seen: &mut Message,
) -> Result<Reduction, Left> {
    if count <= 0 {
        return Err(if count < 0 { Refused.into() } else { Reason::Empty.into() });
    }
    let (handle, op) = (call.recv.datatype, mpi.op(call.op));
    let datatype = mpi.datatype(handle);
    seen.datatype = datatype_number(datatype);
    seen.op = op.map_or(Message::OWN, |op| op.number() as u8);
    let element = datatype.map_or(0, |datatype| datatype.size.into());
    seen.bytes = u64::try_from(count).unwrap_or(0).saturating_mul(element);
    let deposited = matches!(call.collective, Collective::Scan | Collective::Exscan);
    let shape = mpi.shape_of(datatype, handle).ok_or(Refused)?;
    let accepted = || if mpi.accepts((handle, shape), call.op) { Ok(()) } else { Err(Refused) };
    let by = who(datatype, op, deposited, sum).map_err(|reason| left(accepted(), reason))?;
    if by == By::Mpi && form != Form::Blocking {
        return Err(left(accepted(), if op.is_none() { Reason::Op } else { Reason::Datatype }));
    }
    let bytes = size(count, by.bytes(shape))?;
    seen.bytes = bytes as u64;
    let bounded = bounded(bytes, most(by));
    // Every MPI takes all ops that the standard has for these.
    let integer =
        |class| matches!(class, Class::CInteger | Class::Integer | Class::Byte | Class::Pair);
    let certain = op.is_some() && datatype.is_some_and(|datatype| integer(datatype.class));
    // What this rank's MPI refuses it refuses at any length, and the others know nothing of it.
    if !certain {
        accepted()?;
    }
    Ok(Reduction { by, bytes: bounded?, shape })
}

/// Left for a reason that all ranks share, unless the MPI refuses what this one has passed.
fn left(accepted: Result<(), Refused>, reason: Reason) -> Left {
    accepted.map_or_else(Left::from, |()| reason.into())
}

fn datatype_number(known: Option<TypeInfo>) -> u8 {
    known.map_or(Message::OWN, |known| known.row + 1)
}
