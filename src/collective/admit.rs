//! Which calls may be folded, as far as can be said without a group.

use crate::collective::eligibility::{Reduction, bounded, size};
use crate::collective::reductions::reduction;
use crate::collective::{Call, Collective, Form, Side};
use crate::config::Config;
use crate::mpi::Mpi;
use crate::mpi::types::{Shape, TypeInfo};
use crate::router::{self, Policy};
use crate::stats::{Message, Reason};

/// A call that may be folded, as far as can be said without a group: alike on all ranks.
pub struct Admitted {
    /// Bytes of the message; of gathers, of the part of one rank.
    pub bytes: usize,
    /// Most bytes in all that may be folded.
    pub most: usize,
    /// Whether the ways are compared, see [`crate::router`].
    pub measured: bool,
    /// Of reductions.
    pub(super) fold: Option<Reduction>,
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
    let measured = may_measure && router::is_measured(call.collective);
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
        mpi.shape_of(known, side.datatype).map(|shape| shape.size)
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

pub(super) fn datatype_number(known: Option<TypeInfo>) -> u8 {
    known.map_or(Message::OWN, |known| known.row + 1)
}
