//! The calls that may be folded: pure, and alike on all ranks.
//!
//! MPI guarantees that a reduction's op, element type and count are equal on all ranks. Of moved data it guarantees
//! only the amount (MPI-4.1 section 6.1). The choice of the route looks at nothing else.

use super::{Reason, Refused};
use crate::bindings as b;
use crate::config::Sum;
use crate::leaf::fold;
use crate::leaf::quantize::{BF16, F16};
use crate::mpi::types::{Class, Op, Shape, TypeInfo};

/// The fold of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduction {
    /// Its place, and its arithmetic.
    pub by: By,
    /// Bytes of the message that is sent.
    pub bytes: usize,
    /// How its elements lie in memory.
    pub shape: Shape,
}

/// The place where a reduction is folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The kernels fold it.
    Kernel {
        /// `enum fb_op`.
        op: u8,
        /// `enum fb_type`.
        element: u8,
        /// The elements are folded as keys.
        keys: Option<Keys>,
    },
    /// Each process for itself, from what all ranks bring, in the order of ranks.
    Own {
        /// `enum fb_op`.
        op: u8,
        /// As [`fold::fold`] has it.
        element: u8,
    },
    /// Each process for itself: the exact sum, rounded once, which depends on no order.
    Exact {
        /// As [`fold::fold`] has it.
        element: u8,
        /// At any cost; or else in the order of ranks where the exact sum costs more.
        always: bool,
    },
    /// Integers in place of the numbers, if sums are to be quantized; or else it is the real MPI's.
    Quantized {
        /// As the [quantizer](crate::leaf::quantize) has it.
        element: u8,
    },
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
        /// As [`fold::fold`] has it.
        element: u8,
        /// MPI_MAX.
        most: bool,
    },
}

/// How pairs are folded as keys, the least of which wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Bytes of the value.
    pub value: u8,
    /// MPI_MAXLOC.
    pub most: bool,
}

/// Finds the place of a fold of `op` on `datatype`. An op that is not known may be one of the program's own, for which
/// any type will do. `deposited`: contributions are brought together in any case (Scan). `sum`: the kind of
/// floating-point sums.
///
/// # Errors
/// MPI does not define it, as far as is known here.
pub fn who(
    datatype: Option<TypeInfo>,
    op: Option<Op>,
    deposited: bool,
    sum: Sum,
) -> Result<By, Reason> {
    let Some(op) = op else { return Ok(By::Mpi) };
    let datatype = datatype.ok_or(Reason::Datatype)?;
    if !datatype.allows(op) {
        let never = datatype.class == Class::Opaque;
        return Err(if never { Reason::Datatype } else { Reason::Op });
    }
    match datatype.class {
        Class::Half => return Ok(By::Quantized { element: F16 }),
        Class::Brain => return Ok(By::Quantized { element: BF16 }),
        _ => {}
    }
    let component = match (datatype.class, datatype.size) {
        (Class::Real, 4) | (Class::Complex, 8) => Some(fold::F32),
        (Class::Real, 8) | (Class::Complex, 16) => Some(fold::F64),
        _ => None,
    };
    let sums = op == Op::Fold(b::FB_OP_SUM as u8);
    if let Some(element) = component.filter(|_| sums && sum != Sum::RankOrder) {
        return Ok(By::Exact { element, always: sum == Sum::Exact });
    }
    Ok(match (datatype.class, op, component) {
        (Class::CInteger | Class::Integer | Class::Byte | Class::Truth, Op::Fold(op), _) => {
            let element = datatype.element();
            if deposited { By::Own { op, element } } else { By::Kernel { op, element, keys: None } }
        }
        (Class::Pair, ..) if !deposited => {
            let keys = Keys::Pairs(Pair { value: datatype.size - 4, most: op == Op::Most });
            let (op, element) = (b::FB_OP_MIN as u8, b::FB_TYPE_U64 as u8);
            By::Kernel { op, element, keys: Some(keys) }
        }
        (Class::Real, Op::Fold(op), Some(element)) => match u32::from(op) {
            b::FB_OP_MIN | b::FB_OP_MAX if !deposited => {
                let most = u32::from(op) == b::FB_OP_MAX;
                let keys = Some(Keys::Reals { element, most });
                let of_keys = if element == fold::F32 { b::FB_TYPE_I32 } else { b::FB_TYPE_I64 };
                By::Kernel { op, element: of_keys as u8, keys }
            }
            _ => By::Own { op, element },
        },
        // Sums of complex numbers are sums of their parts.
        (Class::Complex, Op::Fold(op), Some(element)) if sums => By::Own { op, element },
        _ => By::Mpi,
    })
}

impl By {
    /// Whether the real MPI comes to the same bits by any algorithm, so that a call may go either way. It does not for
    /// floating point, nor where some MPI is wrong (docs/decisions/15-exact-integers.md).
    pub fn is_as_exact_as_mpi(self) -> bool {
        let (op, element) = match self {
            Self::Kernel { keys: Some(keys), .. } => return matches!(keys, Keys::Pairs(_)),
            Self::Kernel { op, element, .. } | Self::Own { op, element } => (op, element),
            Self::Exact { .. } | Self::Quantized { .. } | Self::Mpi => return false,
        };
        if u32::from(element) >= b::FB_TYPE_COUNT {
            return false;
        }
        let (size, unsigned) = (element >> 1, element & 1 == 1);
        match u32::from(op) {
            b::FB_OP_SUM | b::FB_OP_PROD => size > 1,
            b::FB_OP_MIN | b::FB_OP_MAX => !unsigned && size < 3,
            _ => true,
        }
    }

    /// The numbers that a sum of floating point adds up, as [`fold::fold`] has them.
    pub fn reals(self) -> Option<u8> {
        match self {
            Self::Exact { element, .. } | Self::Quantized { element } => Some(element),
            Self::Own { op, element } if u32::from(op) == b::FB_OP_SUM => {
                Some(element).filter(|element| u32::from(*element) >= b::FB_TYPE_COUNT)
            }
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
pub fn bounded(bytes: usize, max_bytes: usize) -> Result<usize, Reason> {
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

    fn fold(op: u32) -> Op {
        Op::Fold(op as u8)
    }

    #[test]
    fn sizes_are_bounded() {
        assert_eq!(size(2, 4), Ok(8));
        assert_eq!(size(-1, 4), Err(Refused));
        assert_eq!(size(i64::MAX, 4), Err(Refused));
        assert_eq!(size(i32::MAX.into(), 4), Ok(8_589_934_588));
        assert_eq!(bounded(8, 8), Ok(8));
        assert_eq!(bounded(9, 8), Err(Reason::TooLarge));
        assert_eq!(bounded(0, 8), Err(Reason::Empty));
    }

    #[test]
    fn what_mpi_does_not_define_is_left_to_it() {
        let refused = |class, size, op, reason| {
            for deposited in [false, true] {
                assert_eq!(
                    who(Some(datatype(class, size)), Some(op), deposited, Sum::RankOrder),
                    Err(reason)
                );
            }
        };
        refused(Class::Byte, 1, fold(b::FB_OP_MAX), Reason::Op);
        refused(Class::Integer, 8, fold(b::FB_OP_LAND), Reason::Op);
        refused(Class::Integer, 8, Op::Least, Reason::Op);
        refused(Class::Real, 8, fold(b::FB_OP_BAND), Reason::Op);
        refused(Class::Real, 4, fold(b::FB_OP_LXOR), Reason::Op);
        refused(Class::Real, 8, Op::Most, Reason::Op);
        refused(Class::Complex, 8, fold(b::FB_OP_MIN), Reason::Op);
        refused(Class::Truth, 1, fold(b::FB_OP_SUM), Reason::Op);
        refused(Class::Logical, 4, fold(b::FB_OP_MAX), Reason::Op);
        refused(Class::Pair, 6, fold(b::FB_OP_SUM), Reason::Op);
        refused(Class::WidePair, 12, fold(b::FB_OP_MIN), Reason::Op);
        refused(Class::Opaque, 1, fold(b::FB_OP_SUM), Reason::Datatype);
        assert_eq!(
            who(None, Some(fold(b::FB_OP_SUM)), false, Sum::RankOrder),
            Err(Reason::Datatype)
        );
    }

    #[test]
    fn the_kernel_folds_what_it_can_and_mpi_what_nobody_else_can() {
        let by = |class, size, op| {
            who(Some(datatype(class, size)), Some(op), false, Sum::RankOrder).unwrap()
        };
        let (sum, product) = (fold(b::FB_OP_SUM), fold(b::FB_OP_PROD));
        let (op, i32) = (b::FB_OP_SUM as u8, b::FB_TYPE_I32 as u8);
        assert_eq!(by(Class::CInteger, 4, sum), By::Kernel { op, element: i32, keys: None });
        let scanned = who(Some(datatype(Class::CInteger, 4)), Some(sum), true, Sum::RankOrder);
        assert_eq!(scanned, Ok(By::Own { op, element: i32 }));
        assert!(matches!(by(Class::Byte, 1, fold(b::FB_OP_BXOR)), By::Kernel { .. }));
        assert!(matches!(by(Class::Truth, 1, fold(b::FB_OP_LOR)), By::Kernel { .. }));
        assert_eq!(by(Class::Real, 4, sum), By::Own { op, element: fold::F32 });
        assert_eq!(by(Class::Real, 16, sum), By::Mpi);
        assert_eq!(by(Class::Complex, 16, sum), By::Own { op, element: fold::F64 });
        assert_eq!(by(Class::Complex, 16, product), By::Mpi);
        assert_eq!(by(Class::Complex, 32, sum), By::Mpi);
        assert_eq!(by(Class::Logical, 4, fold(b::FB_OP_LAND)), By::Mpi);
        assert_eq!(by(Class::WidePair, 12, Op::Least), By::Mpi);
        assert_eq!(who(Some(datatype(Class::Real, 8)), None, false, Sum::RankOrder), Ok(By::Mpi));
        assert_eq!(who(None, None, true, Sum::RankOrder), Ok(By::Mpi));
    }

    #[test]
    fn sums_of_halves_are_quantized_or_the_mpis() {
        for (class, element) in [(Class::Half, F16), (Class::Brain, BF16)] {
            let by = |op, sum| who(Some(datatype(class, 2)), Some(op), false, sum);
            for sum in [Sum::Auto, Sum::RankOrder, Sum::Exact] {
                let quantized = By::Quantized { element };
                assert_eq!(by(fold(b::FB_OP_SUM), sum), Ok(quantized));
                assert_eq!(
                    (quantized.reals(), quantized.is_as_exact_as_mpi()),
                    (Some(element), false)
                );
            }
            assert_eq!(by(fold(b::FB_OP_PROD), Sum::Auto), Err(Reason::Op));
        }
    }

    #[test]
    fn minima_and_maxima_of_floating_point_are_those_of_integers() {
        let most = fold(b::FB_OP_MAX);
        let by = |size, scan| who(Some(datatype(Class::Real, size)), Some(most), scan, Sum::Auto);
        let (op, element) = (b::FB_OP_MAX as u8, b::FB_TYPE_I64 as u8);
        let keys = Some(Keys::Reals { element: fold::F64, most: true });
        assert_eq!(by(8, false), Ok(By::Kernel { op, element, keys }));
        assert_eq!(by(8, true), Ok(By::Own { op, element: fold::F64 }));
        assert_eq!(by(16, false), Ok(By::Mpi));
    }

    #[test]
    fn keys_are_sent_with_the_holes_of_their_pairs() {
        let short = datatype(Class::Pair, 6);
        let folded = who(Some(short), Some(Op::Most), false, Sum::RankOrder).unwrap();
        assert_eq!(folded.bytes(short.shape()), 8);
        let scanned = who(Some(short), Some(Op::Most), true, Sum::RankOrder).unwrap();
        assert_eq!((scanned, scanned.bytes(short.shape())), (By::Mpi, 6));
    }

    #[test]
    fn sums_of_floating_point_are_exact_where_that_is_asked_for() {
        let by = |class, size, op| who(Some(datatype(class, size)), Some(op), false, Sum::Exact);
        let sum = fold(b::FB_OP_SUM);
        assert_eq!(by(Class::Real, 8, sum), Ok(By::Exact { element: fold::F64, always: true }));
        assert_eq!(by(Class::Complex, 8, sum), Ok(By::Exact { element: fold::F32, always: true }));
        assert_eq!(by(Class::Real, 16, sum), Ok(By::Mpi));
        assert!(matches!(by(Class::Real, 8, fold(b::FB_OP_PROD)), Ok(By::Own { .. })));
        assert!(matches!(by(Class::CInteger, 8, sum), Ok(By::Kernel { .. })));
    }
}
