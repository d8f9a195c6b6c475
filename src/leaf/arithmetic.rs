//! The arithmetic of folds: the ops and the elements that there are. They have the numbers that frames and programs
//! know them by.

use crate::bindings as b;

/// The arithmetic of a fold. Floating point has the first four ops only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic {
    /// Its op.
    pub op: Operator,
    /// The type of its elements.
    pub element: Element,
}

/// An op that folds, as `enum fb_op` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operator {
    /// MPI_SUM.
    Sum = b::FB_OP_SUM as u8,
    /// MPI_PROD.
    Prod = b::FB_OP_PROD as u8,
    /// MPI_MIN.
    Min = b::FB_OP_MIN as u8,
    /// MPI_MAX.
    Max = b::FB_OP_MAX as u8,
    /// MPI_BAND.
    Band = b::FB_OP_BAND as u8,
    /// MPI_BOR.
    Bor = b::FB_OP_BOR as u8,
    /// MPI_BXOR.
    Bxor = b::FB_OP_BXOR as u8,
    /// MPI_LAND.
    Land = b::FB_OP_LAND as u8,
    /// MPI_LOR.
    Lor = b::FB_OP_LOR as u8,
    /// MPI_LXOR.
    Lxor = b::FB_OP_LXOR as u8,
}

impl Operator {
    /// All of them, by their numbers.
    pub const ALL: [Self; 10] = [
        Self::Sum,
        Self::Prod,
        Self::Min,
        Self::Max,
        Self::Band,
        Self::Bor,
        Self::Bxor,
        Self::Land,
        Self::Lor,
        Self::Lxor,
    ];
}

/// A type of elements: an integer as `enum fb_type` has it, or floating point, which no program folds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Element {
    /// Two's complement, of 8 bits.
    I8 = b::FB_TYPE_I8 as u8,
    /// Unsigned, of 8 bits.
    U8 = b::FB_TYPE_U8 as u8,
    /// Two's complement, of 16 bits.
    I16 = b::FB_TYPE_I16 as u8,
    /// Unsigned, of 16 bits.
    U16 = b::FB_TYPE_U16 as u8,
    /// Two's complement, of 32 bits.
    I32 = b::FB_TYPE_I32 as u8,
    /// Unsigned, of 32 bits.
    U32 = b::FB_TYPE_U32 as u8,
    /// Two's complement, of 64 bits.
    I64 = b::FB_TYPE_I64 as u8,
    /// Unsigned, of 64 bits.
    U64 = b::FB_TYPE_U64 as u8,
    /// IEEE 754's binary32.
    F32 = 0x80,
    /// IEEE 754's binary64.
    F64 = 0x81,
}

impl Element {
    /// All integers, by their numbers.
    pub const INTEGERS: [Self; b::FB_TYPE_COUNT as usize] =
        [Self::I8, Self::U8, Self::I16, Self::U16, Self::I32, Self::U32, Self::I64, Self::U64];

    /// The format of floating point, if it is any.
    #[inline]
    pub fn real(self) -> Option<Real> {
        match self {
            Self::F32 => Some(Real::F32),
            Self::F64 => Some(Real::F64),
            _ => None,
        }
    }
}

/// A format of floating point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Real {
    /// IEEE 754's binary32.
    F32,
    /// IEEE 754's binary64.
    F64,
}

impl Real {
    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }
}

impl From<Real> for Element {
    fn from(real: Real) -> Self {
        match real {
            Real::F32 => Self::F32,
            Real::F64 => Self::F64,
        }
    }
}

const _: () = {
    assert!(Operator::ALL.len() == (b::FB_OP_PLACE - b::FB_OP_SUM) as usize);
    let mut at = 0;
    while at < Operator::ALL.len() {
        assert!(Operator::ALL[at] as usize == b::FB_OP_SUM as usize + at);
        at += 1;
    }
    at = 0;
    while at < Element::INTEGERS.len() {
        assert!(Element::INTEGERS[at] as usize == at);
        at += 1;
    }
    assert!(size_of::<Option<Arithmetic>>() == 2);
};
