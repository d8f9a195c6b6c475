//! Which calls may be folded, as far as can be said without a group.

use super::Reason;
use super::eligibility::{By, Reduction, bounded, size, who};
use super::router::is_measured;
use crate::call::{Call, Collective, Form, Message, Side};
use crate::config::{Config, Policy};
use crate::mpi::Mpi;
use crate::mpi::types::{Class, Shape, TypeInfo};

/// A call that may be folded, as far as can be said without a group: alike on all ranks.
pub struct Admitted {
    /// Bytes of the message; of gathers, of the part of one rank.
    pub bytes: usize,
    /// Most bytes in all that may be folded.
    pub most: usize,
    /// Whether the ways are compared, see [`super::router`].
    pub measured: bool,
    /// Of reductions.
    pub fold: Option<Reduction>,
}

impl Admitted {
    /// How a reduction's elements lie in memory.
    #[inline]
    pub fn shape(&self) -> Option<Shape> {
        self.fold.map(|fold| fold.shape)
    }
}

/// Looks at a call without its group. What is seen of it goes to `seen`, also if it is the real MPI's.
///
/// # Errors
/// Why it is the real MPI's; the same on all ranks, or nobody's but the MPI's to judge.
pub fn admit(
    mpi: &Mpi,
    config: &Config,
    form: Form,
    call: &Call,
    seen: &mut Message,
) -> Result<Admitted, Reason> {
    if config.shared.policy == Policy::Mpi {
        return Err(Reason::Routed);
    }
    let may_measure = form == Form::Blocking && config.shared.policy == Policy::Auto;
    let measured = may_measure && is_measured(call.collective);
    let most = config.shared.most_bytes(call.collective, measured);
    let folded = |count, seen: &mut Message| {
        let fold = reduction(mpi, form, call, count, most, seen)?;
        let measured = measured && fold.by.is_as_exact_as_mpi();
        let most = config.shared.most_bytes(call.collective, measured);
        Ok(Admitted { bytes: bounded(fold.bytes, most)?, most, measured, fold: Some(fold) })
    };
    let in_place = |side: &Side| side.data as usize == mpi.abi.in_place;
    let element = |side: &Side, seen: &mut Message| {
        let known = mpi.abi.datatype(side.datatype);
        seen.datatype = datatype_number(known);
        mpi.shape_of(known, side.datatype).map(|shape| shape.size).ok_or(Reason::Argument)
    };
    let moved = |side: &Side, seen: &mut Message| {
        let bytes = size(side.count, element(side, seen)?)?;
        seen.bytes = bytes as u64;
        Ok(Admitted { bytes: bounded(bytes, most)?, most, measured, fold: None })
    };
    match call.collective {
        Collective::Barrier if most == 0 => Err(Reason::TooLarge),
        Collective::Barrier => Ok(Admitted { bytes: 0, most, measured, fold: None }),
        Collective::Allreduce
        | Collective::Reduce
        | Collective::Reduce_scatter_block
        | Collective::Scan
        | Collective::Exscan => folded(call.recv.count, seen),
        // How many elements there are takes the group's size to say; one will do.
        Collective::Reduce_scatter => folded(1, seen),
        Collective::Bcast | Collective::Allgather | Collective::Alltoall => moved(&call.recv, seen),
        // One side is significant at the root alone, and there not if it is in place.
        Collective::Gather => {
            moved(if in_place(&call.send) { &call.recv } else { &call.send }, seen)
        }
        Collective::Scatter => {
            moved(if in_place(&call.recv) { &call.send } else { &call.recv }, seen)
        }
        Collective::Allgatherv => {
            let bytes = element(&call.recv, seen)?;
            seen.bytes = bytes as u64;
            Ok(Admitted { bytes, most, measured, fold: None })
        }
    }
}

/// The reduction of `count` elements, if it is one that is folded.
///
/// By the MPI only in the program's own calls that block: no other thread may call it, and the program
/// may free its ops and types before other calls end.
fn reduction(
    mpi: &Mpi,
    form: Form,
    call: &Call,
    count: i64,
    most: usize,
    seen: &mut Message,
) -> Result<Reduction, Reason> {
    if count == 0 {
        return Err(Reason::Empty);
    }
    let (handle, op) = (call.recv.datatype, mpi.abi.op(call.op));
    let datatype = mpi.abi.datatype(handle);
    seen.datatype = datatype_number(datatype);
    seen.op = op.map_or(Message::OWN, |op| op.number() as u8);
    let element = datatype.map_or(0, |datatype| datatype.size.into());
    seen.bytes = u64::try_from(count).unwrap_or(0).saturating_mul(element);
    let deposited = matches!(call.collective, Collective::Scan | Collective::Exscan);
    let by = who(datatype, op, deposited)?;
    if by == By::Mpi && form != Form::Blocking {
        return Err(if op.is_none() { Reason::Op } else { Reason::Datatype });
    }
    let shape = mpi.shape_of(datatype, handle).ok_or(Reason::Argument)?;
    let bytes = size(count, by.bytes(shape))?;
    seen.bytes = bytes as u64;
    let bytes = bounded(bytes, most)?;
    // Every MPI takes all ops that the standard has for these.
    let integer =
        |class| matches!(class, Class::CInteger | Class::Integer | Class::Byte | Class::Pair);
    let certain = op.is_some() && datatype.is_some_and(|datatype| integer(datatype.class));
    if !certain && !mpi.accepts((handle, shape), call.op) {
        return Err(Reason::Op);
    }
    Ok(Reduction { by, bytes, shape })
}

fn datatype_number(known: Option<TypeInfo>) -> u8 {
    known.map_or(Message::OWN, |known| known.row + 1)
}
