//! Elements in a buffer of the program's.

use std::ffi::c_void;

use crate::mpi::pmpi::Handle;
use crate::mpi::types::Shape;

/// Elements in a buffer of the program's.
#[derive(Clone, Copy)]
pub struct Elements {
    /// The first, unless there is none; null also of MPI_BOTTOM, for which types of the program's may be made.
    pub data: *mut c_void,
    pub count: usize,
    /// Their type, unchanged from the call.
    pub datatype: Handle,
    pub shape: Shape,
}

impl Elements {
    /// `count` of them, or of those behind them, from element `at` on.
    pub fn part(&self, at: isize, count: usize) -> Self {
        let data = self.data.wrapping_byte_offset(at.wrapping_mul(self.shape.extent));
        Self { data, count, ..*self }
    }

    /// Bytes of their data.
    pub fn bytes(&self) -> usize {
        self.count.saturating_mul(self.shape.size)
    }
}
