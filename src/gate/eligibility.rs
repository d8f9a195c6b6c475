//! The calls that may be folded: pure, and alike on all ranks.
//!
//! MPI guarantees that a reduction's op, element type and count are equal on all ranks. Of moved data it guarantees
//! only the amount (MPI-4.1 section 6.1). The choice of the route looks at nothing else.

use super::{Reason, Refused};
use crate::config::Sum;
use crate::leaf::arithmetic::{Arithmetic, Element, Operator, Real};
use crate::leaf::quantize::Number;
use crate::mpi::types::{Class, Op, Shape, TypeInfo};

/// The fold of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduction {
    /// The one that folds it, and the arithmetic.
    pub by: FoldedBy,
    /// Bytes of the message that is sent.
    pub bytes: usize,
    /// How its elements lie in memory.
    pub shape: Shape,
}

/// The one that folds a reduction: the kernels, each process, or MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoldedBy {
    /// The kernels fold it.
    Kernel {
        arithmetic: Arithmetic,
        /// The elements are folded as keys.
        keys: Option<Keys>,
    },
    /// Each process for itself, from what all ranks bring, in the order of ranks.
    Own(Arithmetic),
    /// Each process for itself: the exact sum, rounded once, which depends on no order.
    Exact {
        real: Real,
        /// At any cost; or else in the order of ranks where the exact sum costs more.
        always: bool,
    },
    /// Integers in place of the numbers, if sums are to be quantized; or else it is the real MPI's.
    Quantized(Number),
    /// Each process for itself, by the MPI: MPI_Reduce_local.
    Mpi,
}

/// Integers that the kernel folds in place of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Of 64 bits each.
    Pairs(Pair),
    /// Of floating point, as [`crate::leaf::order`] has them.
    Reals {
        format: Real,
        /// MPI_MAX.
        max: bool,
    },
}

/// How pairs are folded as keys, the least of which wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Bytes of the value.
    pub value: u8,
    /// MPI_MAXLOC.
    pub max: bool,
}

/// Classifies a fold of `op` on `datatype`: who can do it. An op that is not known may be one of the program's own, for
/// which any type will do. `deposited`: contributions are brought together in any case (Scan). `sum`: the kind of
/// floating-point sums.
///
/// # Errors
/// MPI does not define it, as far as is known here.
pub fn classify(
    datatype: Option<TypeInfo>,
    op: Option<Op>,
    deposited: bool,
    sum: Sum,
) -> Result<FoldedBy, Reason> {
    let Some(op) = op else { return Ok(FoldedBy::Mpi) };
    let datatype = datatype.ok_or(Reason::Datatype)?;
    if !datatype.allows(op) {
        let never = datatype.class == Class::Opaque;
        return Err(if never { Reason::Datatype } else { Reason::Op });
    }
    match datatype.class {
        Class::Half => return Ok(FoldedBy::Quantized(Number::F16)),
        Class::Brain => return Ok(FoldedBy::Quantized(Number::BF16)),
        _ => {}
    }
    let component = match (datatype.class, datatype.size) {
        (Class::Real, 4) | (Class::Complex, 8) => Some(Real::F32),
        (Class::Real, 8) | (Class::Complex, 16) => Some(Real::F64),
        _ => None,
    };
    let sums = op == Op::Fold(Operator::Sum);
    if let Some(real) = component.filter(|_| sums && sum != Sum::RankOrder) {
        return Ok(FoldedBy::Exact { real, always: sum == Sum::Exact });
    }
    Ok(match (datatype.class, op, component) {
        (Class::CInteger | Class::Integer | Class::Byte | Class::Truth, Op::Fold(op), _) => {
            let Some(element) = datatype.integer() else { return Ok(FoldedBy::Mpi) };
            let arithmetic = Arithmetic { op, element };
            if deposited {
                FoldedBy::Own(arithmetic)
            } else {
                FoldedBy::Kernel { arithmetic, keys: None }
            }
        }
        (Class::Pair, ..) if !deposited => {
            let keys = Keys::Pairs(Pair { value: datatype.size - 4, max: op == Op::MaxLoc });
            let arithmetic = Arithmetic { op: Operator::Min, element: Element::U64 };
            FoldedBy::Kernel { arithmetic, keys: Some(keys) }
        }
        (Class::Real, Op::Fold(op @ (Operator::Min | Operator::Max)), Some(format))
            if !deposited =>
        {
            let keys = Some(Keys::Reals { format, max: op == Operator::Max });
            let element = match format {
                Real::F32 => Element::I32,
                Real::F64 => Element::I64,
            };
            FoldedBy::Kernel { arithmetic: Arithmetic { op, element }, keys }
        }
        // Sums of complex numbers are sums of their parts.
        (class, Op::Fold(op), Some(real)) if class == Class::Real || sums => {
            FoldedBy::Own(Arithmetic { op, element: real.into() })
        }
        _ => FoldedBy::Mpi,
    })
}

impl FoldedBy {
    /// Whether the real MPI comes to the same bits by any algorithm, so that a call may go either way. It does not for
    /// floating point, nor where some MPI is wrong (docs/decisions/15-exact-integers.md).
    pub fn is_as_exact_as_mpi(self) -> bool {
        use Element::{F32, F64, I8, I16, I32, U8, U16};
        let Arithmetic { op, element } = match self {
            Self::Kernel { keys: Some(keys), .. } => return matches!(keys, Keys::Pairs(_)),
            Self::Kernel { arithmetic, .. } | Self::Own(arithmetic) => arithmetic,
            Self::Exact { .. } | Self::Quantized(_) | Self::Mpi => return false,
        };
        match op {
            _ if matches!(element, F32 | F64) => false,
            Operator::Sum | Operator::Prod => !matches!(element, I8 | U8 | I16 | U16),
            Operator::Min | Operator::Max => matches!(element, I8 | I16 | I32),
            _ => true,
        }
    }

    /// The numbers that a sum of floating point adds up.
    pub fn reals(self) -> Option<Number> {
        match self {
            Self::Exact { real, .. } => Some(real.into()),
            Self::Quantized(number) => Some(number),
            Self::Own(Arithmetic { op: Operator::Sum, element }) => element.real().map(Into::into),
            _ => None,
        }
    }

    /// Bytes of an element that is sent. Keys take the place of pairs, with their holes.
    pub fn bytes(self, shape: Shape) -> usize {
        match self {
            Self::Kernel { keys: Some(Keys::Pairs(_)), .. } => shape.extent.unsigned_abs(),
            _ => shape.size,
        }
    }
}

/// Bytes of `count` elements.
///
/// # Errors
/// There are fewer than none, or more than there is memory.
pub fn size(count: i64, element: usize) -> Result<usize, Refused> {
    let count = usize::try_from(count).map_err(|_| Refused)?;
    count.checked_mul(element).ok_or(Refused)
}

/// Whether a message of `bytes` may be moved.
///
/// # Errors
/// Why not.
pub fn checked_size(bytes: usize, max_bytes: usize) -> Result<usize, Reason> {
    match bytes {
        0 => Err(Reason::Empty),
        _ if bytes > max_bytes => Err(Reason::TooLarge),
        _ => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datatype(class: Class, size: u8) -> TypeInfo {
        TypeInfo { class, size, signed: true, row: 0 }
    }

    #[test]
    fn sizes_are_bounded() {
        assert_eq!(size(2, 4), Ok(8));
        assert_eq!(size(-1, 4), Err(Refused));
        assert_eq!(size(i64::MAX, 4), Err(Refused));
        assert_eq!(size(i32::MAX.into(), 4), Ok(8_589_934_588));
        assert_eq!(checked_size(8, 8), Ok(8));
        assert_eq!(checked_size(9, 8), Err(Reason::TooLarge));
        assert_eq!(checked_size(0, 8), Err(Reason::Empty));
    }

    #[test]
    fn what_mpi_does_not_define_is_left_to_it() {
        let refused = |class, size, op, reason| {
            for deposited in [false, true] {
                assert_eq!(
                    classify(Some(datatype(class, size)), Some(op), deposited, Sum::RankOrder),
                    Err(reason)
                );
            }
        };
        refused(Class::Byte, 1, Op::Fold(Operator::Max), Reason::Op);
        refused(Class::Integer, 8, Op::Fold(Operator::Land), Reason::Op);
        refused(Class::Integer, 8, Op::MinLoc, Reason::Op);
        refused(Class::Real, 8, Op::Fold(Operator::Band), Reason::Op);
        refused(Class::Real, 4, Op::Fold(Operator::Lxor), Reason::Op);
        refused(Class::Real, 8, Op::MaxLoc, Reason::Op);
        refused(Class::Complex, 8, Op::Fold(Operator::Min), Reason::Op);
        refused(Class::Truth, 1, Op::Fold(Operator::Sum), Reason::Op);
        refused(Class::Logical, 4, Op::Fold(Operator::Max), Reason::Op);
        refused(Class::Pair, 6, Op::Fold(Operator::Sum), Reason::Op);
        refused(Class::WidePair, 12, Op::Fold(Operator::Min), Reason::Op);
        refused(Class::Opaque, 1, Op::Fold(Operator::Sum), Reason::Datatype);
        assert_eq!(
            classify(None, Some(Op::Fold(Operator::Sum)), false, Sum::RankOrder),
            Err(Reason::Datatype)
        );
    }

    #[test]
    fn the_kernel_folds_what_it_can_and_mpi_what_nobody_else_can() {
        let by = |class, size, op| {
            classify(Some(datatype(class, size)), Some(op), false, Sum::RankOrder).unwrap()
        };
        let (sum, product) = (Op::Fold(Operator::Sum), Op::Fold(Operator::Prod));
        let of = |element| Arithmetic { op: Operator::Sum, element };
        let of_ints = of(Element::I32);
        assert_eq!(
            by(Class::CInteger, 4, sum),
            FoldedBy::Kernel { arithmetic: of_ints, keys: None }
        );
        let scanned = classify(Some(datatype(Class::CInteger, 4)), Some(sum), true, Sum::RankOrder);
        assert_eq!(scanned, Ok(FoldedBy::Own(of_ints)));
        assert!(matches!(by(Class::Byte, 1, Op::Fold(Operator::Bxor)), FoldedBy::Kernel { .. }));
        assert!(matches!(by(Class::Truth, 1, Op::Fold(Operator::Lor)), FoldedBy::Kernel { .. }));
        assert_eq!(by(Class::Real, 4, sum), FoldedBy::Own(of(Element::F32)));
        assert_eq!(by(Class::Real, 16, sum), FoldedBy::Mpi);
        assert_eq!(by(Class::Complex, 16, sum), FoldedBy::Own(of(Element::F64)));
        assert_eq!(by(Class::Complex, 16, product), FoldedBy::Mpi);
        assert_eq!(by(Class::Complex, 32, sum), FoldedBy::Mpi);
        assert_eq!(by(Class::Logical, 4, Op::Fold(Operator::Land)), FoldedBy::Mpi);
        assert_eq!(by(Class::WidePair, 12, Op::MinLoc), FoldedBy::Mpi);
        assert_eq!(
            classify(Some(datatype(Class::Real, 8)), None, false, Sum::RankOrder),
            Ok(FoldedBy::Mpi)
        );
        assert_eq!(classify(None, None, true, Sum::RankOrder), Ok(FoldedBy::Mpi));
    }

    #[test]
    fn sums_of_halves_are_quantized_or_the_mpis() {
        for (class, number) in [(Class::Half, Number::F16), (Class::Brain, Number::BF16)] {
            let by = |op, sum| classify(Some(datatype(class, 2)), Some(op), false, sum);
            for sum in [Sum::Auto, Sum::RankOrder, Sum::Exact] {
                let quantized = FoldedBy::Quantized(number);
                assert_eq!(by(Op::Fold(Operator::Sum), sum), Ok(quantized));
                assert_eq!(
                    (quantized.reals(), quantized.is_as_exact_as_mpi()),
                    (Some(number), false)
                );
            }
            assert_eq!(by(Op::Fold(Operator::Prod), Sum::Auto), Err(Reason::Op));
        }
    }

    #[test]
    fn minima_and_maxima_of_floating_point_are_those_of_integers() {
        let max = Op::Fold(Operator::Max);
        let by =
            |size, scan| classify(Some(datatype(Class::Real, size)), Some(max), scan, Sum::Auto);
        let of = |element| Arithmetic { op: Operator::Max, element };
        let keys = Some(Keys::Reals { format: Real::F64, max: true });
        assert_eq!(by(8, false), Ok(FoldedBy::Kernel { arithmetic: of(Element::I64), keys }));
        assert_eq!(by(8, true), Ok(FoldedBy::Own(of(Element::F64))));
        assert_eq!(by(16, false), Ok(FoldedBy::Mpi));
    }

    #[test]
    fn keys_are_sent_with_the_holes_of_their_pairs() {
        let short = datatype(Class::Pair, 6);
        let folded = classify(Some(short), Some(Op::MaxLoc), false, Sum::RankOrder).unwrap();
        assert_eq!(folded.bytes(short.shape()), 8);
        let scanned = classify(Some(short), Some(Op::MaxLoc), true, Sum::RankOrder).unwrap();
        assert_eq!((scanned, scanned.bytes(short.shape())), (FoldedBy::Mpi, 6));
    }

    #[test]
    fn sums_of_floating_point_are_exact_where_that_is_asked_for() {
        let by =
            |class, size, op| classify(Some(datatype(class, size)), Some(op), false, Sum::Exact);
        let sum = Op::Fold(Operator::Sum);
        assert_eq!(by(Class::Real, 8, sum), Ok(FoldedBy::Exact { real: Real::F64, always: true }));
        assert_eq!(
            by(Class::Complex, 8, sum),
            Ok(FoldedBy::Exact { real: Real::F32, always: true })
        );
        assert_eq!(by(Class::Real, 16, sum), Ok(FoldedBy::Mpi));
        assert!(matches!(by(Class::Real, 8, Op::Fold(Operator::Prod)), Ok(FoldedBy::Own { .. })));
        assert!(matches!(by(Class::CInteger, 8, sum), Ok(FoldedBy::Kernel { .. })));
    }
}
