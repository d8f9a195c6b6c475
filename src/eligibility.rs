//! Which calls may be folded: pure, and alike on all ranks.
//!
//! MPI guarantees that a collective's op, element type and count are equal on all ranks (MPI-4.1
//! section 6.1; of Bcast only the amount of data), and nothing else is looked at to choose the route.
//! Arguments that one rank alone may have wrong are judged too, where the real MPI is known to
//! refuse them before it communicates: such a call is its to refuse.

use crate::mpi::types::TypeInfo;
use crate::stats::Reason;

/// Bytes of a reduction, if the kernel folds it.
///
/// # Errors
/// Why not.
pub fn reduction(
    count: i32,
    datatype: Option<TypeInfo>,
    op: Option<u8>,
    max_bytes: usize,
) -> Result<usize, Reason> {
    let datatype = datatype.ok_or(Reason::Datatype)?;
    let op = op.ok_or(Reason::Op)?;
    if datatype.class == crate::mpi::types::Class::Opaque {
        return Err(Reason::Datatype);
    }
    if !datatype.allows(op) {
        return Err(Reason::Op);
    }
    let count = usize::try_from(count).map_err(|_| Reason::Argument)?;
    bounded(count * usize::from(datatype.size), max_bytes)
}

/// Whether a broadcast of `bytes` may be folded.
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
    use crate::bindings as b;
    use crate::mpi::types::Class;

    const INT: TypeInfo = TypeInfo { class: Class::CInteger, size: 4, signed: true };

    #[test]
    fn integers_fold_up_to_the_limit() {
        let sum = Some(b::FB_OP_SUM as u8);
        assert_eq!(reduction(2, Some(INT), sum, 8), Ok(8));
        assert_eq!(reduction(3, Some(INT), sum, 8), Err(Reason::TooLarge));
        assert_eq!(reduction(0, Some(INT), sum, 8), Err(Reason::Empty));
        assert_eq!(reduction(-1, Some(INT), sum, 8), Err(Reason::Argument));
        assert_eq!(reduction(i32::MAX, Some(INT), sum, usize::MAX), Ok(8_589_934_588));
    }

    #[test]
    fn what_mpi_does_not_define_is_left_to_it() {
        let byte = TypeInfo { class: Class::Byte, size: 1, signed: false };
        let aint = TypeInfo { class: Class::Integer, size: 8, signed: true };
        let real = TypeInfo { class: Class::Opaque, size: 8, signed: false };
        let try_out = |datatype, op: u32| reduction(1, datatype, Some(op as u8), 64);
        assert_eq!(try_out(Some(byte), b::FB_OP_MAX), Err(Reason::Op));
        assert_eq!(try_out(Some(byte), b::FB_OP_BXOR), Ok(1));
        assert_eq!(try_out(Some(aint), b::FB_OP_LAND), Err(Reason::Op));
        assert_eq!(try_out(Some(aint), b::FB_OP_BAND), Ok(8));
        assert_eq!(try_out(Some(real), b::FB_OP_SUM), Err(Reason::Datatype));
        assert_eq!(try_out(None, b::FB_OP_SUM), Err(Reason::Datatype));
        assert_eq!(reduction(1, Some(INT), None, 64), Err(Reason::Op));
    }
}
