//! Reductions by the real MPI in this process alone: whether it would take them, and their steps.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU8, Ordering};

use super::pmpi::Handle;
use super::types::{Op, Shape, TYPES};
use super::{FAILED, Mpi};

/// The known answers for predefined ops on predefined types, by the numbers of both.
pub struct Accepted([[AtomicU8; Op::NUMBERS]; TYPES.len()]);

const UNKNOWN: u8 = 0;
const TAKEN: u8 = 1;
const REFUSED: u8 = 2;

impl Default for Accepted {
    fn default() -> Self {
        Self([const { [const { AtomicU8::new(UNKNOWN) }; Op::NUMBERS] }; TYPES.len()])
    }
}

/// The alignment of elements here, at least as good as in any program.
const ALIGNMENT: usize = 64;

/// Memory for some elements of a datatype, wherever its displacements want them to lie.
pub struct Elements {
    _memory: Vec<u8>,
    /// Their address, as MPI takes it.
    data: *mut c_void,
    count: usize,
    datatype: Handle,
    shape: Shape,
}

impl Mpi {
    /// Whether the MPI takes a reduction by `op` on `datatype`. It is asked, by a reduction of this process alone, in
    /// which the op is not called. Of predefined ones it is asked once and for all, while the handle of the program's
    /// own may mean something else by the next call.
    pub fn accepts(&self, (datatype, shape): (Handle, Shape), op: Handle) -> bool {
        let known = self.abi.datatype(datatype).zip(self.abi.op(op));
        let known = known.map(|(t, op)| &self.accepted.0[usize::from(t.row)][op.number()]);
        match known.map_or(UNKNOWN, |known| known.load(Ordering::Relaxed)) {
            UNKNOWN if !self.is_asked() => true,
            UNKNOWN => {
                let taken = self.is_taken((datatype, shape), op);
                if let Some(known) = known {
                    known.store(if taken { TAKEN } else { REFUSED }, Ordering::Relaxed);
                }
                taken
            }
            known => known == TAKEN,
        }
    }

    #[cold]
    fn is_taken(&self, of: (Handle, Shape), op: Handle) -> bool {
        self.code_of(of, op) == Some(0)
    }

    /// The code by which the MPI refuses a reduction that it does not [accept](Self::accepts).
    #[cold]
    pub fn refusal(&self, of: (Handle, Shape), op: Handle) -> c_int {
        self.code_of(of, op).filter(|code| *code != 0).unwrap_or(FAILED)
    }

    /// The MPI's code for a reduction of this process alone; `None`: it could not be asked.
    fn code_of(&self, (datatype, shape): (Handle, Shape), op: Handle) -> Option<c_int> {
        let (one, comm) = (self.elements(datatype, shape, 1)?, self.private_self()?);
        let in_place = self.abi.in_place as *const c_void;
        let _alone = self.alone();
        // SAFETY: an element of that type, of our own; on a communicator that returns errors.
        Some(unsafe { (self.pmpi.allreduce)(in_place, one.data, 1, datatype, op, comm) })
    }

    /// Memory for `count` elements.
    pub fn elements(&self, datatype: Handle, shape: Shape, count: usize) -> Option<Elements> {
        let (mut lower, mut extent) = (0isize, shape.extent);
        if self.abi.datatype(datatype).is_none() {
            // SAFETY: a datatype that the MPI has said the shape of; two MPI_Aint are written.
            let code = unsafe {
                (self.pmpi.type_get_true_extent)(datatype, &raw mut lower, &raw mut extent)
            };
            if code != 0 {
                return None;
            }
        }
        // From the lowest byte of any element to the highest: extents may be negative.
        let last = isize::try_from(count.checked_sub(1)?).ok()?.checked_mul(shape.extent)?;
        let lowest = lower.checked_add(last.min(0))?;
        let bytes = usize::try_from(extent.checked_add(last.checked_abs()?)?).ok()?;
        let mut memory = vec![0u8; bytes.checked_add(2 * ALIGNMENT)?];
        // The elements' address is a multiple of the alignment, so that what a program has aligned in
        // its own memory is aligned here, though displacements may be absolute (MPI_BOTTOM).
        let memory_at = memory.as_mut_ptr();
        let start = memory_at.align_offset(ALIGNMENT);
        let within = lowest.rem_euclid(ALIGNMENT as isize);
        let data = memory_at.wrapping_add(start).wrapping_offset(within.wrapping_sub(lowest));
        Some(Elements { _memory: memory, data: data.cast(), count, datatype, shape })
    }

    /// `right` becomes `left` op `right`, in this order.
    ///
    /// # Safety
    /// The op is one that the MPI takes on the elements' type.
    pub unsafe fn reduce(&self, left: &Elements, right: &mut Elements, op: Handle) -> c_int {
        let Ok(count) = c_int::try_from(right.count) else { return FAILED };
        // SAFETY: as many elements of one type in both, which the MPI takes the op on.
        unsafe { (self.pmpi.reduce_local)(left.data, right.data, count, right.datatype, op) }
    }
}

impl Elements {
    /// Takes elements over that are packed. Panics if they are not as many.
    pub fn load(&mut self, mpi: &Mpi, packed: &[u8]) -> c_int {
        assert_eq!(packed.len(), self.count * self.shape.size);
        // SAFETY: memory for these elements.
        unsafe {
            if !self.shape.contiguous {
                return mpi.unpack(packed, self.data, self.count, self.datatype);
            }
            let to = self.data.cast::<u8>();
            std::ptr::copy_nonoverlapping(packed.as_ptr(), to, packed.len());
        }
        0
    }

    /// Packs the elements. Panics if the room is not for as many. Returns what MPI does.
    pub fn save(&self, mpi: &Mpi, packed: &mut [u8]) -> c_int {
        assert_eq!(packed.len(), self.count * self.shape.size);
        // SAFETY: these elements.
        unsafe {
            if self.shape.contiguous {
                let from = self.data.cast::<u8>();
                std::ptr::copy_nonoverlapping(from, packed.as_mut_ptr(), packed.len());
                return 0;
            }
            match mpi.pack(self.data, self.count, self.datatype, packed.len()) {
                Ok(bytes) => packed.copy_from_slice(&bytes),
                Err(code) => return code,
            }
        }
        0
    }

    /// Writes the elements, and nothing between them, to a buffer of the program's.
    ///
    /// # Safety
    /// *Buffers* of the [program](super): `to` is for as many elements of the type.
    pub unsafe fn store(&self, mpi: &Mpi, to: *mut c_void) -> c_int {
        let bytes = self.count * self.shape.size;
        // SAFETY: these elements, and a buffer of the program's for as many.
        unsafe {
            if self.shape.contiguous {
                std::ptr::copy_nonoverlapping(self.data.cast::<u8>(), to.cast(), bytes);
                return 0;
            }
            match mpi.pack(self.data, self.count, self.datatype, bytes) {
                Ok(packed) => mpi.unpack(&packed, to, self.count, self.datatype),
                Err(code) => code,
            }
        }
    }
}
