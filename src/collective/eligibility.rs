//! Which calls may be folded: pure, and alike on all ranks.
//!
//! MPI guarantees that a reduction's op, element type and count are equal on all ranks, and of what is
//! moved only the amount (MPI-4.1 section 6.1); nothing else is looked at to choose the route.
//! Arguments that one rank alone may have wrong are judged too, where the real MPI is known to
//! refuse them before it communicates: such a call is its to refuse.

use crate::bindings as b;
use crate::mpi::types::{Class, Op, TypeInfo};
use crate::stats::Reason;

/// What a reduction folds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduction {
    /// `enum fb_op`.
    pub op: u8,
    /// `enum fb_type`.
    pub element: u8,
    /// Bytes of the message.
    pub bytes: usize,
    /// The elements are pairs, folded as keys.
    pub pair: Option<Pair>,
}

/// How pairs are folded as keys of 64 bits, the least of which wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Bytes of the value.
    pub value: u8,
    /// MPI_MAXLOC.
    pub most: bool,
}

/// The reduction of `count` elements, if the kernel folds it.
///
/// # Errors
/// Why not.
pub fn reduction(
    count: i64,
    datatype: Option<TypeInfo>,
    op: Option<Op>,
    max_bytes: usize,
) -> Result<Reduction, Reason> {
    let datatype = datatype.ok_or(Reason::Datatype)?;
    let op = op.ok_or(Reason::Op)?;
    let (op, element, pair) = match (datatype.class, op) {
        (Class::Opaque, _) => return Err(Reason::Datatype),
        (Class::Pair, Op::Least | Op::Most) => {
            let pair = Pair { value: datatype.size - 4, most: op == Op::Most };
            (b::FB_OP_MIN as u8, b::FB_TYPE_U64 as u8, Some(pair))
        }
        (Class::CInteger | Class::Integer | Class::Byte, Op::Fold(op)) if datatype.allows(op) => {
            (op, datatype.element(), None)
        }
        _ => return Err(Reason::Op),
    };
    let bytes = bounded(size(count, datatype.extent())?, max_bytes)?;
    Ok(Reduction { op, element, bytes, pair })
}

/// Bytes of `count` elements.
///
/// # Errors
/// There are fewer than none, or more than there is memory.
pub fn size(count: i64, element: usize) -> Result<usize, Reason> {
    let count = usize::try_from(count).map_err(|_| Reason::Argument)?;
    count.checked_mul(element).ok_or(Reason::Argument)
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

    const INT: TypeInfo = TypeInfo { class: Class::CInteger, size: 4, signed: true };

    fn bytes(count: i64, op: Option<Op>, max_bytes: usize) -> Result<usize, Reason> {
        reduction(count, Some(INT), op, max_bytes).map(|fold| fold.bytes)
    }

    #[test]
    fn integers_fold_up_to_the_limit() {
        let sum = Some(Op::Fold(b::FB_OP_SUM as u8));
        assert_eq!(bytes(2, sum, 8), Ok(8));
        assert_eq!(bytes(3, sum, 8), Err(Reason::TooLarge));
        assert_eq!(bytes(0, sum, 8), Err(Reason::Empty));
        assert_eq!(bytes(-1, sum, 8), Err(Reason::Argument));
        assert_eq!(bytes(i64::MAX, sum, usize::MAX), Err(Reason::Argument));
        assert_eq!(bytes(i32::MAX.into(), sum, usize::MAX), Ok(8_589_934_588));
    }

    #[test]
    fn what_mpi_does_not_define_is_left_to_it() {
        let byte = TypeInfo { class: Class::Byte, size: 1, signed: false };
        let aint = TypeInfo { class: Class::Integer, size: 8, signed: true };
        let real = TypeInfo { class: Class::Opaque, size: 8, signed: false };
        let pair = TypeInfo { class: Class::Pair, size: 6, signed: true };
        let try_out = |datatype, op| reduction(1, datatype, Some(op), 64).map(|fold| fold.bytes);
        let fold = |op: u32| Op::Fold(op as u8);
        assert_eq!(try_out(Some(byte), fold(b::FB_OP_MAX)), Err(Reason::Op));
        assert_eq!(try_out(Some(byte), fold(b::FB_OP_BXOR)), Ok(1));
        assert_eq!(try_out(Some(aint), fold(b::FB_OP_LAND)), Err(Reason::Op));
        assert_eq!(try_out(Some(aint), fold(b::FB_OP_BAND)), Ok(8));
        assert_eq!(try_out(Some(aint), Op::Least), Err(Reason::Op));
        assert_eq!(try_out(Some(real), fold(b::FB_OP_SUM)), Err(Reason::Datatype));
        assert_eq!(try_out(Some(pair), fold(b::FB_OP_SUM)), Err(Reason::Op));
        assert_eq!(try_out(Some(pair), Op::Most), Ok(8));
        assert_eq!(try_out(None, fold(b::FB_OP_SUM)), Err(Reason::Datatype));
        assert_eq!(bytes(1, None, 64), Err(Reason::Op));
    }
}
