//! The calls that may be folded, as far as can be said without a group.

use super::eligibility::{FoldedBy, Reduction, checked_size, classify, size};
use super::{Facts, Left, Reason, Refused};
use crate::call::{Call, Form, Message, Side};
use crate::config::{Policy, Shared};
use crate::leaf::quantize::Number;
use crate::mpi::types::{Class, Shape, TypeInfo};

/// A call that may be folded, as far as can be said without a group: alike on all ranks.
#[derive(Clone, Copy)]
pub struct Admitted {
    /// Bytes of the message; of gathers, of the part of one rank.
    pub bytes: usize,
    /// Most bytes in all that may be folded.
    pub max_bytes: usize,
    /// Whether the ways are compared (`crate::choice`).
    pub measured: bool,
    /// Whether the call blocks.
    pub blocks: bool,
    /// How a reduction folds.
    pub fold: Option<Reduction>,
    /// It is to be quantized, if it is long enough and all its numbers are finite: what is added up.
    pub quantized: Option<Number>,
}

impl Admitted {
    /// How a reduction's elements lie in memory.
    #[inline]
    pub fn shape(&self) -> Option<Shape> {
        self.fold.map(|fold| fold.shape)
    }
}

/// The longest messages for which the ways are compared, of collectives that go by shards; others, up to
/// so many times their limit.
const MOST_MEASURED: usize = 16 << 20;
const TIMES_MEASURED: usize = 4;

/// The facts about a collective that matter here.
#[derive(Clone, Copy)]
pub struct Terms {
    /// Its ways are compared.
    pub is_measured: bool,
    /// Its long messages may go by shards.
    pub has_shards: bool,
    /// Its sums may be quantized.
    pub may_be_quantized: bool,
}

/// A call that is looked at without its group. Its collective says which of the functions applies.
pub struct Candidate<'a, F, Q> {
    pub call: &'a Call,
    mpi: &'a F,
    shared: &'a Shared,
    form: Form,
    terms: Terms,
    /// Whether the ways of this call are compared.
    measured: bool,
    /// Whether sums on its communicator are quantized.
    quantizes: Q,
    /// The known facts about its message, also if the call is the real MPI's.
    seen: &'a mut Message,
}

impl<'a, F: Facts, Q: Fn() -> bool> Candidate<'a, F, Q> {
    /// # Errors
    /// All calls are the real MPI's.
    #[inline]
    pub fn new(
        (mpi, shared, quantizes): (&'a F, &'a Shared, Q),
        (form, call): (Form, &'a Call),
        terms: Terms,
        seen: &'a mut Message,
    ) -> Result<Self, Reason> {
        if shared.policy == Policy::Mpi {
            return Err(Reason::Routed);
        }
        let may_measure = form == Form::Blocking && shared.policy == Policy::Auto;
        let measured = may_measure && terms.is_measured;
        Ok(Self { call, mpi, shared, form, terms, measured, quantizes, seen })
    }

    /// No data.
    ///
    /// # Errors
    /// The limit is nothing.
    pub fn admit_empty(&self) -> Result<Admitted, Left> {
        match self.max_bytes(self.measured) {
            0 => Err(Reason::TooLarge.into()),
            max_bytes => Ok(self.admit_bytes(0, max_bytes)),
        }
    }

    /// Data of each pair of ranks, whose amount no rank knows. `side` and `other` are the sides of the call; the second
    /// matters where the first is in place. `has_root`: one rank is at one end of all pairs.
    ///
    /// # Errors
    /// The limit is nothing.
    pub fn admit_pairs(
        &mut self,
        (side, other): (&Side, &Side),
        has_root: bool,
    ) -> Result<Admitted, Left> {
        let is_there = side.data as usize != self.mpi.in_place();
        let side = if is_there { side } else { other };
        if side.types.is_none() {
            self.seen.datatype = datatype_number(self.mpi.datatype(side.datatype));
        }
        // A larger limit takes more of the sequence from all calls. Those with a root are so short that this costs more
        // than it brings. Calls that do not block have it, too: a message of the MPI below foldback's own request costs
        // more than a parcel of four chunks.
        match self.max_bytes(self.shared.policy == Policy::Auto && !has_root) {
            0 => Err(Reason::TooLarge.into()),
            max_bytes => Ok(self.admit_bytes(0, max_bytes)),
        }
    }

    /// Data that is moved, of the size that `side` has.
    ///
    /// # Errors
    /// They are too many, none, or fewer than none.
    pub fn admit_moved(&mut self, side: &Side) -> Result<Admitted, Left> {
        let bytes = size(side.count, self.size_of(side)?)?;
        self.seen.bytes = bytes as u64;
        let max_bytes = self.max_bytes(self.measured);
        Ok(self.admit_bytes(checked_size(bytes, max_bytes)?, max_bytes))
    }

    /// The same of `side`, or, at the root, where that may be in place, of the root's side.
    ///
    /// # Errors
    /// As of [`Self::admit_moved`]; or `side` is in place elsewhere.
    pub fn admit_moved_or_at_root(
        &mut self,
        side: &Side,
        at_root: &Side,
    ) -> Result<Admitted, Left> {
        if side.data as usize != self.mpi.in_place() {
            self.admit_moved(side)
        } else if self.is_root() {
            self.admit_moved(at_root)
        } else {
            Err(Refused.into())
        }
    }

    /// Data that is moved, of which an element's size is known, and the number of elements not yet.
    ///
    /// # Errors
    /// There is no datatype.
    pub fn admit_element(&mut self, side: &Side) -> Result<Admitted, Left> {
        let bytes = self.size_of(side)?;
        self.seen.bytes = bytes as u64;
        Ok(self.admit_bytes(bytes, self.max_bytes(self.measured)))
    }

    /// A reduction of `count` elements that is folded on the way, if it can be.
    ///
    /// # Errors
    /// It is the real MPI's.
    pub fn admit_folded(&mut self, count: i64) -> Result<Admitted, Left> {
        self.admit_reduction(count, false)
    }

    /// A reduction of `count` elements of which the contributions are brought together in any case.
    ///
    /// # Errors
    /// It is the real MPI's.
    pub fn admit_deposited(&mut self, count: i64) -> Result<Admitted, Left> {
        self.admit_reduction(count, true)
    }

    fn admit_bytes(&self, bytes: usize, max_bytes: usize) -> Admitted {
        let (measured, blocks) = (self.measured, self.form == Form::Blocking);
        Admitted { bytes, max_bytes, measured, blocks, fold: None, quantized: None }
    }

    /// Bytes of an element of a side.
    fn size_of(&mut self, side: &Side) -> Result<usize, Refused> {
        let known = self.mpi.datatype(side.datatype);
        self.seen.datatype = datatype_number(known);
        self.mpi.shape_of(known, side.datatype).map(|shape| shape.size).ok_or(Refused)
    }

    #[cold]
    fn is_root(&self) -> bool {
        usize::try_from(self.call.root) == Ok(self.mpi.rank(self.call.comm))
    }

    /// The longest message that may be folded.
    fn max_bytes(&self, measured: bool) -> usize {
        let limit = self.shared.max_bytes[self.call.collective as usize];
        if !measured || self.shared.limited {
            limit
        } else if self.terms.has_shards {
            MOST_MEASURED
        } else {
            limit.saturating_mul(TIMES_MEASURED)
        }
    }

    fn max_bytes_of_fold(&self, by: FoldedBy, measured: bool) -> usize {
        match by {
            FoldedBy::Exact { always: true, .. } | FoldedBy::Quantized(_) => {
                self.shared.max_bytes_asked(self.call.collective)
            }
            _ => self.max_bytes(measured),
        }
    }

    /// The numbers of a sum that is to be quantized.
    fn quantized(&self, by: FoldedBy) -> Option<Number> {
        let may_be = self.terms.may_be_quantized && may_be_quantized(self.form, by);
        by.reals().filter(|_| may_be && (self.quantizes)())
    }

    fn admit_reduction(&mut self, count: i64, deposited: bool) -> Result<Admitted, Left> {
        if count <= 0 {
            return Err(if count < 0 { Refused.into() } else { Reason::Empty.into() });
        }
        let (mpi, call) = (self.mpi, self.call);
        let (handle, op) = (call.recv.datatype, mpi.op(call.op));
        let datatype = mpi.datatype(handle);
        self.seen.datatype = datatype_number(datatype);
        self.seen.op = op.map_or(Message::OWN, |op| op.number() as u8);
        let element = datatype.map_or(0, |datatype| datatype.size.into());
        self.seen.bytes = u64::try_from(count).unwrap_or(0).saturating_mul(element);
        let shape = mpi.shape_of(datatype, handle).ok_or(Refused)?;
        let accepted = || if mpi.accepts((handle, shape), call.op) { Ok(()) } else { Err(Refused) };
        let by = classify(datatype, op, deposited, self.shared.sum)
            .map_err(|reason| left_or_refused(accepted(), reason))?;
        // By the MPI only in the program's own calls that block: no other thread may call it, and the program may free
        // its ops and types before other calls end.
        if by == FoldedBy::Mpi && self.form != Form::Blocking {
            return Err(left_or_refused(
                accepted(),
                if op.is_none() { Reason::Op } else { Reason::Datatype },
            ));
        }
        let bytes = size(count, by.bytes(shape))?;
        self.seen.bytes = bytes as u64;
        let quantized = self.quantized(by);
        let measured = self.measured && by.is_as_exact_as_mpi();
        let max_bytes = self.max_bytes_of_fold(by, measured);
        let allowed = checked_size(bytes, if quantized.is_some() { usize::MAX } else { max_bytes });
        // Every MPI takes all ops that the standard has for these.
        let integer =
            |class| matches!(class, Class::CInteger | Class::Integer | Class::Byte | Class::Pair);
        let certain = op.is_some() && datatype.is_some_and(|datatype| integer(datatype.class));
        // What this rank's MPI refuses it refuses at any length, and the others know nothing of it.
        if !certain {
            accepted()?;
        }
        let bytes = allowed?;
        if quantized.is_none() && matches!(by, FoldedBy::Quantized(_)) {
            return Err(Reason::Datatype.into());
        }
        let (fold, blocks) = (Reduction { by, bytes, shape }, self.form == Form::Blocking);
        Ok(Admitted { bytes, max_bytes, measured, blocks, fold: Some(fold), quantized })
    }
}

/// Whether a sum may be quantized. A call that does not block stays in its group, also with numbers that are not
/// finite. No process of foldback sums numbers of 16 bits.
fn may_be_quantized(form: Form, by: FoldedBy) -> bool {
    form == Form::Blocking || !matches!(by, FoldedBy::Quantized(_))
}

/// Left for a reason that all ranks share, unless the MPI refuses what this one has passed.
fn left_or_refused(accepted: Result<(), Refused>, reason: Reason) -> Left {
    accepted.map_or_else(Left::from, |()| reason.into())
}

fn datatype_number(known: Option<TypeInfo>) -> u8 {
    known.map_or(Message::OWN, |known| known.row + 1)
}
