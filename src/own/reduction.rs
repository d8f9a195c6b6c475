//! How vectors are reduced on one rank, in the order of its neighbours.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::slice;

use crate::codec::SUCCESS;
use crate::config::Sum;
use crate::gate::eligibility::{FoldedBy, classify};
use crate::leaf::arithmetic::{Arithmetic, Element, Operator, Real};
use crate::leaf::exact;
use crate::leaf::fold::fold;
use crate::mpi::Mpi;
use crate::mpi::pmpi::Handle;
use crate::mpi::types::Shape;

/// Elements in a buffer of the program's.
#[derive(Clone, Copy)]
pub(super) struct Elements {
    pub(super) data: *mut c_void,
    pub(super) count: usize,
}

/// A reduction by one op of elements of one type. Vectors are packed.
pub(super) struct Reduction {
    mpi: &'static Mpi,
    datatype: Handle,
    shape: Shape,
    op: Handle,
    by: By,
}

/// The one that reduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Arithmetic(Arithmetic),
    /// The exact sum, rounded once: the same bits in any order of neighbours.
    Exact(Real),
    /// MPI_Reduce_local.
    Mpi,
}

/// An op that can be undone: what a change of one vector does to a reduction is known without the other vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Invertible(Arithmetic);

impl Reduction {
    /// # Errors
    /// The MPI refuses the op on that type.
    pub(super) fn new(
        mpi: &'static Mpi,
        datatype: Handle,
        shape: Shape,
        op: Handle,
    ) -> Result<Self, c_int> {
        let (handle, op) = (mpi.abi.handle(datatype), mpi.abi.handle(op));
        if !mpi.accepts((handle, shape), op) {
            return Err(mpi.refusal((handle, shape), op));
        }
        let known = classify(mpi.abi.datatype(datatype), mpi.abi.op(op), true, Sum::Exact);
        let by = match known {
            Ok(FoldedBy::Own(arithmetic)) => By::Arithmetic(arithmetic),
            Ok(FoldedBy::Exact { real, .. }) => By::Exact(real),
            _ => By::Mpi,
        };
        Ok(Self { mpi, datatype: handle, shape, op, by })
    }

    /// The one that reduces.
    pub(super) fn by(&self) -> By {
        self.by
    }

    /// Bytes from one element of the program's to the next.
    pub(super) fn extent(&self) -> isize {
        self.shape.extent
    }

    /// Bytes of an element.
    pub(super) fn size(&self) -> usize {
        self.shape.size
    }

    pub(super) fn invertible(&self) -> Option<Invertible> {
        match self.by {
            By::Arithmetic(arithmetic) => Invertible::of(arithmetic),
            By::Exact(_) | By::Mpi => None,
        }
    }

    /// A vector of the program's, packed; `None`: it lies in memory so.
    ///
    /// # Errors
    /// What the MPI says.
    ///
    /// # Safety
    /// *Buffers* of the [program](crate::mpi): as many elements.
    pub(super) unsafe fn pack(
        &self,
        send: *const c_void,
        count: usize,
    ) -> Result<Option<Vec<u8>>, c_int> {
        if self.shape.contiguous || count == 0 || self.shape.size == 0 {
            return Ok(None);
        }
        // SAFETY: as demanded of this function.
        unsafe { self.mpi.pack(send, count, self.datatype, count * self.shape.size) }.map(Some)
    }

    /// Writes a vector to a buffer of the program's. Returns what MPI does.
    ///
    /// # Safety
    /// *Buffers* of the [program](crate::mpi): as many elements.
    pub(super) unsafe fn unpack(&self, vector: &[u8], to: Elements) -> c_int {
        // SAFETY: as demanded of this function.
        unsafe {
            if !self.shape.contiguous {
                return self.mpi.unpack(vector, to.data, to.count, self.datatype);
            }
            slice::from_raw_parts_mut(to.data.cast::<u8>(), vector.len()).copy_from_slice(vector);
        }
        SUCCESS
    }

    /// Reduces vectors, of which there are some, to a buffer of the program's. Returns what MPI does.
    ///
    /// # Safety
    /// *Buffers* of the [program](crate::mpi): room for a vector, which is none of `vectors`.
    pub(super) unsafe fn to_buffer(&self, vectors: &[&[u8]], to: Elements) -> c_int {
        let bytes = vectors[0].len();
        if self.shape.contiguous {
            // SAFETY: as demanded of this function.
            let into = unsafe { slice::from_raw_parts_mut(to.data.cast::<u8>(), bytes) };
            return self.reduce(vectors, into);
        }
        let mut into = vec![0; bytes];
        match self.reduce(vectors, &mut into) {
            // SAFETY: as demanded of this function.
            SUCCESS => unsafe { self.unpack(&into, to) },
            code => code,
        }
    }

    /// Reduces vectors, of which there are some, all as long as `into`. Returns what MPI does.
    pub(super) fn reduce(&self, vectors: &[&[u8]], into: &mut [u8]) -> c_int {
        let (first, others) = vectors.split_first().expect("some vectors");
        match self.by {
            By::Arithmetic(arithmetic) => {
                into.copy_from_slice(first);
                others.iter().for_each(|vector| fold(into, vector, arithmetic));
                SUCCESS
            }
            By::Exact(real) => {
                exact::sum(into, vectors, real);
                SUCCESS
            }
            By::Mpi => self.reduce_by_mpi(vectors, into),
        }
    }

    /// From the last vector on, since MPI_Reduce_local puts its left operand before what is there.
    fn reduce_by_mpi(&self, vectors: &[&[u8]], into: &mut [u8]) -> c_int {
        let Self { mpi, datatype, shape, op, .. } = *self;
        let count = into.len().checked_div(shape.size).unwrap_or(0);
        let memory = || mpi.elements(datatype, shape, count);
        let (Some(mut left), Some(mut right)) = (memory(), memory()) else { return SUCCESS };
        let (last, others) = vectors.split_last().expect("some vectors");
        let mut code = right.load(mpi, last);
        for vector in others.iter().rev() {
            if code == SUCCESS {
                code = left.load(mpi, vector);
            }
            if code == SUCCESS {
                // SAFETY: the MPI takes the op on the type, as it has said.
                code = unsafe { mpi.reduce(&left, &mut right, op) };
            }
        }
        if code == SUCCESS { right.save(mpi, into) } else { code }
    }
}

impl Invertible {
    /// Sums of integers, whose overflow wraps, and exclusive ors.
    pub(super) fn of(arithmetic: Arithmetic) -> Option<Self> {
        let is_integer = !matches!(arithmetic.element, Element::F32 | Element::F64);
        let has_inverse = matches!(arithmetic.op, Operator::Sum | Operator::Bxor);
        (is_integer && has_inverse).then_some(Self(arithmetic))
    }

    /// Makes `old` the difference that leads from it to `new`.
    pub(super) fn difference(self, new: &[u8], old: &mut [u8]) {
        let Self(Arithmetic { op, element }) = self;
        match (op, element) {
            (Operator::Bxor, _) => old.iter_mut().zip(new).for_each(|(old, new)| *old ^= new),
            (_, Element::I8 | Element::U8) => subtract(new, old, |a, b| {
                u8::from_ne_bytes(a).wrapping_sub(u8::from_ne_bytes(b)).to_ne_bytes()
            }),
            (_, Element::I16 | Element::U16) => subtract(new, old, |a, b| {
                u16::from_ne_bytes(a).wrapping_sub(u16::from_ne_bytes(b)).to_ne_bytes()
            }),
            (_, Element::I32 | Element::U32) => subtract(new, old, |a, b| {
                u32::from_ne_bytes(a).wrapping_sub(u32::from_ne_bytes(b)).to_ne_bytes()
            }),
            _ => subtract(new, old, |a, b| {
                u64::from_ne_bytes(a).wrapping_sub(u64::from_ne_bytes(b)).to_ne_bytes()
            }),
        }
    }

    /// Changes a reduction by a difference of one vector.
    pub(super) fn add(self, reduction: &mut [u8], difference: &[u8]) {
        fold(reduction, difference, self.0);
    }
}

fn subtract<const N: usize>(new: &[u8], old: &mut [u8], by: impl Fn([u8; N], [u8; N]) -> [u8; N]) {
    for (old, new) in old.as_chunks_mut::<N>().0.iter_mut().zip(new.as_chunks::<N>().0) {
        *old = by(*new, *old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;

    /// Differences lead to the right reduction, in whatever order vectors change.
    #[test]
    fn differences_lead_to_the_reduction_of_the_vectors() {
        let mut random = Rng(7);
        for element in Element::INTEGERS {
            for op in [Operator::Sum, Operator::Bxor] {
                let arithmetic = Arithmetic { op, element };
                let by = Invertible::of(arithmetic).expect("it can be undone");
                let mut vectors = vec![vec![0u8; 48]; 3];
                let mut followed = vec![0u8; 48];
                for _ in 0..50 {
                    let which = random.below(3) as usize;
                    let new: Vec<u8> = (0..48).map(|_| random.next() as u8).collect();
                    let mut difference = vectors[which].clone();
                    by.difference(&new, &mut difference);
                    by.add(&mut followed, &difference);
                    vectors[which] = new;
                    let mut whole = vectors[0].clone();
                    vectors[1..].iter().for_each(|vector| fold(&mut whole, vector, arithmetic));
                    assert_eq!(followed, whole, "{arithmetic:?}");
                }
            }
        }
    }

    #[test]
    fn only_sums_and_exclusive_ors_of_integers_can_be_undone() {
        for op in Operator::ALL {
            let of = |element| Invertible::of(Arithmetic { op, element }).is_some();
            assert_eq!(of(Element::I32), matches!(op, Operator::Sum | Operator::Bxor), "{op:?}");
            assert!(!of(Element::F64), "{op:?}");
        }
    }
}
