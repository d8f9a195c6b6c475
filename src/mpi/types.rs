//! Datatypes and ops that foldback knows, and how each MPI spells them.

use crate::bindings as b;

/// What MPI allows to be done with a type (MPI-4.1 section 6.9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// C integer: every op.
    CInteger,
    /// Fortran integer, and the types of both languages (MPI_AINT, …): all but logical ops.
    Integer,
    /// MPI_BYTE: bitwise ops.
    Byte,
    /// Not folded in the kernel, but contiguous: may be broadcast as it lies.
    Opaque,
}

/// A datatype as foldback sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeInfo {
    /// What may be done with it.
    pub class: Class,
    /// Size in bytes.
    pub size: u8,
    /// Signed integer.
    pub signed: bool,
}

impl TypeInfo {
    /// `enum fb_type` of an integer type.
    pub fn element(self) -> u8 {
        (self.size.trailing_zeros() as u8) << 1 | u8::from(!self.signed)
    }

    /// Whether MPI defines `op` (`enum fb_op`) on the type, and the kernel folds it.
    pub fn allows(self, op: u8) -> bool {
        let bitwise = (b::FB_OP_BAND as u8..=b::FB_OP_BXOR as u8).contains(&op);
        let logical = (b::FB_OP_LAND as u8..=b::FB_OP_LXOR as u8).contains(&op);
        match self.class {
            Class::CInteger => true,
            Class::Integer => !logical,
            Class::Byte => bitwise,
            Class::Opaque => false,
        }
    }
}

/// A row of [`TYPES`].
pub type Row = (Class, u8, bool, u32, &'static std::ffi::CStr);

/// How the types are written: class, size (0: ask the MPI), signed, MPICH handle, Open MPI object.
#[rustfmt::skip]
pub const TYPES: &[Row] = {
    use Class::{Byte, CInteger, Integer, Opaque};
    &[
        (CInteger, 1, true,  0x4c00_0118, c"ompi_mpi_signed_char"),
        (CInteger, 1, false, 0x4c00_0102, c"ompi_mpi_unsigned_char"),
        (CInteger, 2, true,  0x4c00_0203, c"ompi_mpi_short"),
        (CInteger, 2, false, 0x4c00_0204, c"ompi_mpi_unsigned_short"),
        (CInteger, 4, true,  0x4c00_0405, c"ompi_mpi_int"),
        (CInteger, 4, false, 0x4c00_0406, c"ompi_mpi_unsigned"),
        (CInteger, 8, true,  0x4c00_0807, c"ompi_mpi_long"),
        (CInteger, 8, false, 0x4c00_0808, c"ompi_mpi_unsigned_long"),
        (CInteger, 8, true,  0x4c00_0809, c"ompi_mpi_long_long_int"),
        (CInteger, 8, false, 0x4c00_0819, c"ompi_mpi_unsigned_long_long"),
        (CInteger, 1, true,  0x4c00_0137, c"ompi_mpi_int8_t"),
        (CInteger, 2, true,  0x4c00_0238, c"ompi_mpi_int16_t"),
        (CInteger, 4, true,  0x4c00_0439, c"ompi_mpi_int32_t"),
        (CInteger, 8, true,  0x4c00_083a, c"ompi_mpi_int64_t"),
        (CInteger, 1, false, 0x4c00_013b, c"ompi_mpi_uint8_t"),
        (CInteger, 2, false, 0x4c00_023c, c"ompi_mpi_uint16_t"),
        (CInteger, 4, false, 0x4c00_043d, c"ompi_mpi_uint32_t"),
        (CInteger, 8, false, 0x4c00_083e, c"ompi_mpi_uint64_t"),
        (Integer,  8, true,  0x4c00_0843, c"ompi_mpi_aint"),
        (Integer,  8, true,  0x4c00_0844, c"ompi_mpi_offset"),
        (Integer,  8, true,  0x4c00_0845, c"ompi_mpi_count"),
        // An MPI may be built for 8-byte default INTEGERs.
        (Integer,  0, true,  0x4c00_041b, c"ompi_mpi_integer"),
        (Integer,  1, true,  0x4c00_012d, c"ompi_mpi_integer1"),
        (Integer,  2, true,  0x4c00_022f, c"ompi_mpi_integer2"),
        (Integer,  4, true,  0x4c00_0430, c"ompi_mpi_integer4"),
        (Integer,  8, true,  0x4c00_0831, c"ompi_mpi_integer8"),
        (Byte,     1, false, 0x4c00_010d, c"ompi_mpi_byte"),
        (Opaque,   1, false, 0x4c00_0101, c"ompi_mpi_char"),
        (Opaque,   1, false, 0x4c00_010f, c"ompi_mpi_packed"),
        (Opaque,   4, false, 0x4c00_040a, c"ompi_mpi_float"),
        (Opaque,   8, false, 0x4c00_080b, c"ompi_mpi_double"),
        (Opaque,   8, false, 0x4c00_0840, c"ompi_mpi_c_float_complex"),
        (Opaque,  16, false, 0x4c00_1041, c"ompi_mpi_c_double_complex"),
        (Opaque,   1, false, 0x4c00_013f, c"ompi_mpi_c_bool"),
        (Opaque,   0, false, 0x4c00_041c, c"ompi_mpi_real"),
        (Opaque,   0, false, 0x4c00_081f, c"ompi_mpi_dblprec"),
        (Opaque,   0, false, 0x4c00_041d, c"ompi_mpi_logical"),
        (Opaque,   1, false, 0x4c00_011a, c"ompi_mpi_character"),
    ]
};

/// The ops: `enum fb_op`, MPICH handle, Open MPI object.
pub const OPS: &[(b::fb_op, u32, &std::ffi::CStr)] = &[
    (b::FB_OP_SUM, 0x5800_0003, c"ompi_mpi_op_sum"),
    (b::FB_OP_PROD, 0x5800_0004, c"ompi_mpi_op_prod"),
    (b::FB_OP_MIN, 0x5800_0002, c"ompi_mpi_op_min"),
    (b::FB_OP_MAX, 0x5800_0001, c"ompi_mpi_op_max"),
    (b::FB_OP_BAND, 0x5800_0006, c"ompi_mpi_op_band"),
    (b::FB_OP_BOR, 0x5800_0008, c"ompi_mpi_op_bor"),
    (b::FB_OP_BXOR, 0x5800_000a, c"ompi_mpi_op_bxor"),
    (b::FB_OP_LAND, 0x5800_0005, c"ompi_mpi_op_land"),
    (b::FB_OP_LOR, 0x5800_0007, c"ompi_mpi_op_lor"),
    (b::FB_OP_LXOR, 0x5800_0009, c"ompi_mpi_op_lxor"),
];
