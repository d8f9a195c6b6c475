//! The form in which a call goes through the group, and the group's work for it: pure, and the same on all ranks but
//! for whose buffers they are. Each collective has a file, and a line in the table.

#[cfg(test)]
mod agreement;
mod allgather;
mod allreduce;
mod alltoall;
mod barrier;
mod bcast;
mod finish;
mod fitting;
mod gather;
mod moving;
mod reduce;
mod reduce_scatter;
mod reducing;
mod scan;
mod scatter;

use std::ffi::c_void;

use crate::call::{Call, Collective, Elements};
use crate::engine::Pattern;
use crate::gate::eligibility::Keys;
use crate::gate::{Admitted, Ends, Reason};
use crate::topology::Place;

pub use finish::{Deposits, Finish, Piece};
pub use fitting::{Fit, MOST_IMAGE};
pub use reduce_scatter::mine;
pub use reducing::instead_of_shards;

/// A call whose arguments are right.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    pub call: &'a Call,
    /// The facts that all ranks know of it.
    pub admitted: &'a Admitted,
    /// The data that this rank brings and gets.
    pub ends: &'a Ends,
}

/// The group's work for a call.
pub struct Plan {
    /// The ranks that bring data, and the ranks that get some.
    pub pattern: Pattern,
    /// The op of a fold, as the frames have it.
    pub op: u8,
    /// The type of its elements, as the frames have it.
    pub element: u8,
    /// Bytes of the message; of a gather, of this rank's part.
    pub bytes: usize,
    /// The source of these bytes.
    pub source: Source,
    /// The target of the result.
    pub sink: Sink,
}

/// The source of a contribution.
pub enum Source {
    Nothing,
    /// Elements, as they are sent.
    Elements(Elements),
    /// Elements, as keys.
    Keys(*const c_void, Keys),
}

/// The target of a result.
pub enum Sink {
    Nothing,
    /// To the program's buffer.
    Straight(*mut c_void),
    /// Over the keys that were sent, and from there on.
    OverKeys(Finish),
    /// Nothing comes: what was sent goes on from where it is.
    Own(Finish),
    /// To so many bytes of memory of our own, and from there on.
    Staged(usize, Finish),
}

/// The table: which file has the functions of a collective.
macro_rules! of_collective {
    ($collective:expr, $function:ident($($argument:expr),*)) => {
        match $collective {
            Collective::Allreduce => allreduce::$function($($argument),*),
            Collective::Reduce => reduce::$function($($argument),*),
            Collective::Bcast => bcast::$function($($argument),*),
            Collective::Barrier => barrier::$function($($argument),*),
            Collective::Allgather => allgather::$function($($argument),*),
            Collective::Allgatherv => allgather::each::$function($($argument),*),
            Collective::Gather => gather::$function($($argument),*),
            Collective::Scatter => scatter::$function($($argument),*),
            Collective::Reduce_scatter | Collective::Reduce_scatter_block => {
                reduce_scatter::$function($($argument),*)
            }
            Collective::Scan => scan::$function($($argument),*),
            Collective::Exscan => scan::without_own::$function($($argument),*),
            Collective::Alltoall => alltoall::$function($($argument),*),
        }
    };
}

/// Finds the form in which a call goes through the group.
///
/// # Errors
/// It is too much, or nothing: the same on all ranks.
#[inline]
pub fn fit(case: Case<'_>, place: &mut Place) -> Result<Fit, Reason> {
    let most = place.most_bytes;
    let fit = of_collective!(case.call.collective, fit(case, place))?;
    if fit.bytes() > most { Err(Reason::TooLarge) } else { Ok(fit) }
}

/// The plan of a call that fits. Panics if `fit` is another call's.
#[inline]
pub fn plan(case: Case<'_>, fit: Fit) -> Plan {
    of_collective!(case.call.collective, plan(case, fit))
}
