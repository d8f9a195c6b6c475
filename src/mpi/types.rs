//! Datatypes and ops that foldback knows, and how each MPI spells them.

use crate::leaf::arithmetic::{Element, Operator};

/// The ops that MPI allows on a type (MPI-4.1 section 6.9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// C integer: every op but MPI_MINLOC and MPI_MAXLOC.
    CInteger,
    /// Fortran integer, and the types of both languages (MPI_AINT, …): the same except logical ops.
    Integer,
    /// MPI_BYTE: bitwise ops.
    Byte,
    /// Truth value of C or C++, a byte that is 0 or 1: logical ops.
    Truth,
    /// Truth value of Fortran, whose representation is the compiler's: logical ops.
    Logical,
    /// Floating point: sums, products, minima, maxima.
    Real,
    /// IEEE 754's binary16, which some MPIs have beside the standard: sums, as far as foldback goes.
    Half,
    /// bfloat16, the upper half of a float: sums as well.
    Brain,
    /// Two numbers of floating point: sums and products.
    Complex,
    /// An integer and an int, for MPI_MINLOC and MPI_MAXLOC, that fit into 64 bits together.
    Pair,
    /// A pair for these ops of any other kind.
    WidePair,
    /// No op but the program's own.
    Opaque,
}

/// A datatype as foldback sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeInfo {
    /// The ops that it allows.
    pub class: Class,
    /// Size in bytes.
    pub size: u8,
    pub signed: bool,
    /// Its row of [`TYPES`].
    pub row: u8,
}

impl TypeInfo {
    /// Bytes from one element in memory to the next. Some pairs have holes.
    pub fn extent(self) -> usize {
        let size = usize::from(self.size);
        match self.class {
            Class::Pair | Class::WidePair => size.next_power_of_two(),
            _ => size,
        }
    }

    /// Whether elements in memory are nothing but their data.
    pub fn is_contiguous(self) -> bool {
        self.extent() == usize::from(self.size)
    }

    /// How elements lie in memory.
    pub fn shape(self) -> Shape {
        let (extent, contiguous) = (self.extent() as isize, self.is_contiguous());
        Shape { size: usize::from(self.size), extent, contiguous }
    }

    /// The elements of an integer type.
    pub fn integer(self) -> Option<Element> {
        match (self.size, self.signed) {
            (1, true) => Some(Element::I8),
            (1, false) => Some(Element::U8),
            (2, true) => Some(Element::I16),
            (2, false) => Some(Element::U16),
            (4, true) => Some(Element::I32),
            (4, false) => Some(Element::U32),
            (8, true) => Some(Element::I64),
            (8, false) => Some(Element::U64),
            _ => None,
        }
    }

    /// Whether MPI defines `op` on the type.
    pub fn allows(self, op: Op) -> bool {
        let Op::Fold(op) = op else { return matches!(self.class, Class::Pair | Class::WidePair) };
        let sum = matches!(op, Operator::Sum | Operator::Prod);
        let bitwise = matches!(op, Operator::Band | Operator::Bor | Operator::Bxor);
        let logical = matches!(op, Operator::Land | Operator::Lor | Operator::Lxor);
        match self.class {
            Class::CInteger => true,
            Class::Integer => !logical,
            Class::Byte => bitwise,
            Class::Truth | Class::Logical => logical,
            Class::Real => !bitwise && !logical,
            Class::Half | Class::Brain => op == Operator::Sum,
            Class::Complex => sum,
            Class::Pair | Class::WidePair | Class::Opaque => false,
        }
    }
}

/// How elements of any type lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of data of an element.
    pub size: usize,
    /// Bytes from one element to the next.
    pub extent: isize,
    /// Elements lie in memory as they are sent; else MPI has to pack them.
    pub contiguous: bool,
}

/// A predefined op as foldback sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// One that is in the arithmetic of folds.
    Fold(Operator),
    /// MPI_MINLOC.
    MinLoc,
    /// MPI_MAXLOC.
    MaxLoc,
}

impl Op {
    /// Below this are all of [`Op::number`].
    pub const NUMBERS: usize = Operator::Lxor as usize + 3;

    /// Its place in [`OPS`].
    pub fn number(self) -> usize {
        match self {
            Self::Fold(op) => op as usize,
            Self::MinLoc => Operator::Lxor as usize + 1,
            Self::MaxLoc => Operator::Lxor as usize + 2,
        }
    }
}

/// MPI's name of a datatype or an op, from the name of Open MPI's object.
pub fn name(object: &std::ffi::CStr) -> String {
    let object = object.to_string_lossy();
    let short = object.trim_start_matches("ompi_mpi_").trim_start_matches("op_");
    let long = short
        .replace("cxx_cplex", "cxx_float_complex")
        .replace("ldblcplex", "long_double_complex")
        .replace("dblcplex", "double_complex")
        .replace("cplex", "complex")
        .replace("dblprec", "double_precision")
        .replace("longdbl", "long_double");
    match long.as_str() {
        "short_float" => "MPIX_C_FLOAT16".into(),
        "bfloat16" => "MPIX_BFLOAT16".into(),
        _ => format!("MPI_{}", long.to_uppercase()),
    }
}

/// A row of [`TYPES`].
pub type Row = (Class, u8, bool, u32, u16, &'static std::ffi::CStr);

/// In place of a handle: the standard ABI has no such type.
pub const NONE: u16 = 0;

/// How the types are written: class, size (0: ask the MPI), signed, MPICH handle, handle of the standard
/// ABI (MPI-5.0 section 20), Open MPI object.
#[rustfmt::skip]
pub const TYPES: &[Row] = {
    use Class::{Brain, Byte, CInteger, Complex, Half, Integer, Logical, Opaque, Pair, Real, Truth, WidePair};
    &[
        (CInteger, 1, true,  0x4c00_0118, 0x244, c"ompi_mpi_signed_char"),
        (CInteger, 1, false, 0x4c00_0102, 0x245, c"ompi_mpi_unsigned_char"),
        (CInteger, 2, true,  0x4c00_0203, 0x208, c"ompi_mpi_short"),
        (CInteger, 2, false, 0x4c00_0204, 0x20c, c"ompi_mpi_unsigned_short"),
        (CInteger, 4, true,  0x4c00_0405, 0x209, c"ompi_mpi_int"),
        (CInteger, 4, false, 0x4c00_0406, 0x20d, c"ompi_mpi_unsigned"),
        (CInteger, 8, true,  0x4c00_0807, 0x20a, c"ompi_mpi_long"),
        (CInteger, 8, false, 0x4c00_0808, 0x20e, c"ompi_mpi_unsigned_long"),
        (CInteger, 8, true,  0x4c00_0809, 0x20b, c"ompi_mpi_long_long_int"),
        (CInteger, 8, false, 0x4c00_0819, 0x20f, c"ompi_mpi_unsigned_long_long"),
        (CInteger, 1, true,  0x4c00_0137, 0x240, c"ompi_mpi_int8_t"),
        (CInteger, 2, true,  0x4c00_0238, 0x248, c"ompi_mpi_int16_t"),
        (CInteger, 4, true,  0x4c00_0439, 0x250, c"ompi_mpi_int32_t"),
        (CInteger, 8, true,  0x4c00_083a, 0x258, c"ompi_mpi_int64_t"),
        (CInteger, 1, false, 0x4c00_013b, 0x241, c"ompi_mpi_uint8_t"),
        (CInteger, 2, false, 0x4c00_023c, 0x249, c"ompi_mpi_uint16_t"),
        (CInteger, 4, false, 0x4c00_043d, 0x251, c"ompi_mpi_uint32_t"),
        (CInteger, 8, false, 0x4c00_083e, 0x259, c"ompi_mpi_uint64_t"),
        (Integer,  8, true,  0x4c00_0843, 0x201, c"ompi_mpi_aint"),
        (Integer,  8, true,  0x4c00_0844, 0x203, c"ompi_mpi_offset"),
        (Integer,  8, true,  0x4c00_0845, 0x202, c"ompi_mpi_count"),
        // An MPI may be built for 8-byte default INTEGERs.
        (Integer,  0, true,  0x4c00_041b, 0x219, c"ompi_mpi_integer"),
        (Integer,  1, true,  0x4c00_012d, 0x2c1, c"ompi_mpi_integer1"),
        (Integer,  2, true,  0x4c00_022f, 0x2c9, c"ompi_mpi_integer2"),
        (Integer,  4, true,  0x4c00_0430, 0x2d1, c"ompi_mpi_integer4"),
        (Integer,  8, true,  0x4c00_0831, 0x2d9, c"ompi_mpi_integer8"),
        (Byte,     1, false, 0x4c00_010d, 0x247, c"ompi_mpi_byte"),
        (Truth,    1, false, 0x4c00_013f, 0x238, c"ompi_mpi_c_bool"),
        (Truth,    1, false, 0x4c00_0133, 0x239, c"ompi_mpi_cxx_bool"),
        (Logical,  0, false, 0x4c00_041d, 0x218, c"ompi_mpi_logical"),
        (Real,     4, true,  0x4c00_040a, 0x210, c"ompi_mpi_float"),
        (Real,     8, true,  0x4c00_080b, 0x214, c"ompi_mpi_double"),
        (Real,    16, true,  0x4c00_100c, 0x220, c"ompi_mpi_long_double"),
        (Real,     0, true,  0x4c00_041c, 0x21a, c"ompi_mpi_real"),
        (Real,     0, true,  0x4c00_081f, 0x21c, c"ompi_mpi_dblprec"),
        (Real,     4, true,  0x4c00_0427, 0x2d2, c"ompi_mpi_real4"),
        (Real,     8, true,  0x4c00_0829, 0x2da, c"ompi_mpi_real8"),
        (Complex,  8, true,  0x4c00_0840, 0x212, c"ompi_mpi_c_float_complex"),
        (Complex, 16, true,  0x4c00_1041, 0x216, c"ompi_mpi_c_double_complex"),
        (Complex, 32, true,  0x4c00_2042, 0x224, c"ompi_mpi_c_long_double_complex"),
        (Complex,  8, true,  0x4c00_0834, 0x213, c"ompi_mpi_cxx_cplex"),
        (Complex, 16, true,  0x4c00_1035, 0x217, c"ompi_mpi_cxx_dblcplex"),
        (Complex, 32, true,  0x4c00_2036, 0x225, c"ompi_mpi_cxx_ldblcplex"),
        (Complex,  0, true,  0x4c00_081e, 0x21b, c"ompi_mpi_cplex"),
        (Complex,  0, true,  0x4c00_1022, 0x21d, c"ompi_mpi_dblcplex"),
        (Complex,  8, true,  0x4c00_0828, 0x2db, c"ompi_mpi_complex8"),
        (Complex, 16, true,  0x4c00_102a, 0x2e3, c"ompi_mpi_complex16"),
        (Opaque,   1, false, 0x4c00_0101, 0x243, c"ompi_mpi_char"),
        (Opaque,   1, false, 0x4c00_010f, 0x207, c"ompi_mpi_packed"),
        (Opaque,   1, false, 0x4c00_011a, 0x21e, c"ompi_mpi_character"),
        (Opaque,   4, false, 0x4c00_040e, 0x23c, c"ompi_mpi_wchar"),
        (Pair,     8, true,  0x4c00_0816, 0x22b, c"ompi_mpi_2int"),
        (Pair,     6, true,  0x8c00_0003, 0x22c, c"ompi_mpi_short_int"),
        (Pair,     0, true,  0x4c00_0820, 0x232, c"ompi_mpi_2integer"),
        (WidePair, 8, true,  0x8c00_0000, 0x228, c"ompi_mpi_float_int"),
        (WidePair, 12, true, 0x8c00_0001, 0x229, c"ompi_mpi_double_int"),
        (WidePair, 12, true, 0x8c00_0002, 0x22a, c"ompi_mpi_long_int"),
        (WidePair, 20, true, 0x8c00_0004, 0x22d, c"ompi_mpi_longdbl_int"),
        (WidePair, 0, true,  0x4c00_0821, 0x230, c"ompi_mpi_2real"),
        (WidePair, 0, true,  0x4c00_1023, 0x231, c"ompi_mpi_2dblprec"),
        (Half,     2, true,  0x4c00_0246, NONE,  c"ompi_mpi_short_float"),
        // Open MPI has none; the name is as it would be.
        (Brain,    2, true,  0x4c00_024c, NONE,  c"ompi_mpi_bfloat16"),
    ]
};

/// The ops: ours, MPICH handle, handle of the standard ABI, Open MPI object.
pub const OPS: &[(Op, u32, u16, &std::ffi::CStr)] = &[
    (Op::Fold(Operator::Sum), 0x5800_0003, 0x21, c"ompi_mpi_op_sum"),
    (Op::Fold(Operator::Prod), 0x5800_0004, 0x24, c"ompi_mpi_op_prod"),
    (Op::Fold(Operator::Min), 0x5800_0002, 0x22, c"ompi_mpi_op_min"),
    (Op::Fold(Operator::Max), 0x5800_0001, 0x23, c"ompi_mpi_op_max"),
    (Op::Fold(Operator::Band), 0x5800_0006, 0x28, c"ompi_mpi_op_band"),
    (Op::Fold(Operator::Bor), 0x5800_0008, 0x29, c"ompi_mpi_op_bor"),
    (Op::Fold(Operator::Bxor), 0x5800_000a, 0x2a, c"ompi_mpi_op_bxor"),
    (Op::Fold(Operator::Land), 0x5800_0005, 0x30, c"ompi_mpi_op_land"),
    (Op::Fold(Operator::Lor), 0x5800_0007, 0x31, c"ompi_mpi_op_lor"),
    (Op::Fold(Operator::Lxor), 0x5800_0009, 0x32, c"ompi_mpi_op_lxor"),
    (Op::MinLoc, 0x5800_000b, 0x38, c"ompi_mpi_op_minloc"),
    (Op::MaxLoc, 0x5800_000c, 0x39, c"ompi_mpi_op_maxloc"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_standard() {
        for (object, want) in [
            (c"ompi_mpi_int", "MPI_INT"),
            (c"ompi_mpi_long_long_int", "MPI_LONG_LONG_INT"),
            (c"ompi_mpi_dblprec", "MPI_DOUBLE_PRECISION"),
            (c"ompi_mpi_2dblprec", "MPI_2DOUBLE_PRECISION"),
            (c"ompi_mpi_dblcplex", "MPI_DOUBLE_COMPLEX"),
            (c"ompi_mpi_cxx_cplex", "MPI_CXX_FLOAT_COMPLEX"),
            (c"ompi_mpi_cxx_ldblcplex", "MPI_CXX_LONG_DOUBLE_COMPLEX"),
            (c"ompi_mpi_c_double_complex", "MPI_C_DOUBLE_COMPLEX"),
            (c"ompi_mpi_longdbl_int", "MPI_LONG_DOUBLE_INT"),
            (c"ompi_mpi_op_maxloc", "MPI_MAXLOC"),
        ] {
            assert_eq!(name(object), want);
        }
    }
}
