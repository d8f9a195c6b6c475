//! The MPI of this process, and the meaning of its handles.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

use super::pmpi::{Handle, Pmpi, variable};
use super::types::{Class, NONE, OPS, Op, Row, TYPES, TypeInfo};

/// Families of MPI with one binary interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Open MPI: handles are pointers to objects.
    OpenMpi,
    /// MPICH and its derivatives, Intel MPI among them: handles are 32-bit integers.
    Mpich,
    /// The standard ABI, MPI-5.0 chapter 20: handles are as wide as pointers, and predefined
    /// objects have small numbers.
    Standard,
}

impl Family {
    /// Recognises the family of the MPI behind `pmpi`, with this name and version.
    ///
    /// Not by the name of its library: Debian's MPICH calls itself `libmpich.so`, others `libmpi.so`.
    /// The standard ABI first: a library may offer it on top of an MPI whose own handles are visible too.
    pub fn of(pmpi: &Pmpi, version: &str) -> Option<Self> {
        if pmpi.has_standard_abi() {
            Some(Self::Standard)
        } else if variable(c"ompi_mpi_comm_world").is_some() {
            Some(Self::OpenMpi)
        } else if version.starts_with("MPICH") || version.starts_with("Intel(R) MPI") {
            Some(Self::Mpich)
        } else {
            None
        }
    }

    /// `MPI_IN_PLACE`, as an address.
    pub fn in_place(self) -> usize {
        match self {
            Self::OpenMpi | Self::Standard => 1,
            Self::Mpich => usize::MAX,
        }
    }

    /// `MPI_ROOT`.
    pub fn root(self) -> c_int {
        match self {
            Self::OpenMpi | Self::Standard => -4,
            Self::Mpich => -3,
        }
    }

    /// The number of a class of errors.
    pub fn class(self, error: Error) -> c_int {
        match (self, error) {
            (Self::OpenMpi | Self::Standard, Error::Root) => 8,
            (Self::OpenMpi | Self::Standard, Error::Op) => 10,
            (Self::OpenMpi | Self::Standard, Error::Argument) => 13,
            (Self::OpenMpi | Self::Standard, Error::Other) => 16,
            (Self::OpenMpi | Self::Standard, Error::Memory) => 39,
            (Self::Mpich, Error::Root) => 7,
            (Self::Mpich, Error::Op) => 9,
            (Self::Mpich, Error::Argument) => 12,
            (Self::Mpich, Error::Other) => 15,
            (Self::Mpich, Error::Memory) => 34,
        }
    }

    /// The kind of topology that `MPI_Topo_test` means; `None`: there is none.
    pub fn topology(self, status: c_int) -> Option<Topology> {
        // MPI_CART, MPI_GRAPH and MPI_DIST_GRAPH.
        let values = match self {
            Self::OpenMpi => [1, 2, 3],
            Self::Mpich => [2, 1, 3],
            Self::Standard => [211, 212, 213],
        };
        let kinds = [Topology::Grid, Topology::Graph, Topology::DistributedGraph];
        Some(kinds[values.iter().position(|value| *value == status)?])
    }
}

/// Classes of errors that do not have the same number in every MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// MPI_ERR_ROOT.
    Root,
    /// MPI_ERR_OP.
    Op,
    /// MPI_ERR_ARG.
    Argument,
    /// MPI_ERR_OTHER.
    Other,
    /// MPI_ERR_NO_MEM.
    Memory,
}

/// Kinds of topologies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    Grid,
    Graph,
    DistributedGraph,
}

/// Facts about an MPI that are needed to read its callers' arguments.
pub struct Abi {
    pub family: Family,
    /// Its own name and version.
    pub version: String,
    /// `MPI_COMM_WORLD`.
    pub comm_world: Handle,
    /// `MPI_COMM_SELF`.
    pub comm_self: Handle,
    /// `MPI_COMM_NULL`.
    pub comm_null: Handle,
    /// `MPI_ERRORS_RETURN`.
    pub errors_return: Handle,
    /// `MPI_BYTE`.
    pub byte: Handle,
    /// `MPI_UINT64_T`.
    pub word: Handle,
    /// `MPI_BAND`.
    pub band: Handle,
    /// `MPI_SUM`.
    pub sum: Handle,
    /// `MPI_DATATYPE_NULL`.
    pub datatype_null: Handle,
    /// `MPI_INFO_NULL`.
    pub info_null: Handle,
    /// `MPI_REQUEST_NULL`.
    pub request_null: Handle,
    /// `MPI_IN_PLACE`.
    pub in_place: usize,
    pub thread_serialized: c_int,
    /// `MPI_STATUS_IGNORE` and `MPI_STATUSES_IGNORE`.
    pub status_ignore: usize,
    /// Bytes of an `MPI_Status`.
    pub status_size: usize,
    /// The place of its `MPI_ERROR`, an int.
    pub status_error: usize,
    /// `MPI_ANY_SOURCE`.
    /// Bits of a handle that mean something.
    handle_mask: usize,
    /// Filled by [`Abi::learn_types`].
    types: OnceLock<HandleMap<TypeInfo>>,
    ops: HandleMap<Op>,
}

impl Abi {
    /// Recognises the MPI behind `pmpi`.
    ///
    /// # Errors
    /// One line that says why this MPI is left alone.
    pub fn detect(pmpi: &Pmpi) -> Result<Self, String> {
        let version = pmpi.library_version();
        match Family::of(pmpi, &version) {
            Some(Family::Standard) => Ok(Self::standard(version)),
            Some(Family::OpenMpi) => Self::open_mpi(version),
            Some(Family::Mpich) => Ok(Self::mpich(version)),
            None => Err(format!("unknown MPI \"{version}\"")),
        }
    }

    fn open_mpi(version: String) -> Result<Self, String> {
        let object = |symbol: &CStr| {
            variable(symbol).ok_or_else(|| format!("Open MPI without {}", symbol.to_string_lossy()))
        };
        let ops = OPS.iter().filter_map(|op| Some((variable(op.3)?, op.0)));
        Ok(Self {
            family: Family::OpenMpi,
            comm_world: object(c"ompi_mpi_comm_world")?,
            comm_self: object(c"ompi_mpi_comm_self")?,
            comm_null: object(c"ompi_mpi_comm_null")?,
            errors_return: object(c"ompi_mpi_errors_return")?,
            byte: object(c"ompi_mpi_byte")?,
            word: object(c"ompi_mpi_uint64_t")?,
            band: object(c"ompi_mpi_op_band")?,
            sum: object(c"ompi_mpi_op_sum")?,
            datatype_null: object(c"ompi_mpi_datatype_null")?,
            info_null: object(c"ompi_mpi_info_null")?,
            request_null: object(c"ompi_request_null")?,
            in_place: Family::OpenMpi.in_place(),
            thread_serialized: 2,
            status_ignore: 0,
            status_size: 24,
            status_error: 8,
            handle_mask: usize::MAX,
            types: OnceLock::new(),
            ops: HandleMap::new(ops),
            version,
        })
    }

    fn mpich(version: String) -> Self {
        let ops = OPS.iter().map(|op| (op.1 as usize, op.0));
        Self {
            family: Family::Mpich,
            comm_world: 0x4400_0000,
            comm_self: 0x4400_0001,
            comm_null: 0x0400_0000,
            errors_return: 0x5400_0001,
            byte: 0x4c00_010d,
            word: 0x4c00_083e,
            band: 0x5800_0006,
            sum: 0x5800_0003,
            datatype_null: 0x0c00_0000,
            info_null: 0x1c00_0000,
            request_null: 0x2c00_0000,
            in_place: Family::Mpich.in_place(),
            thread_serialized: 2,
            status_ignore: 1,
            status_size: 20,
            status_error: 16,
            handle_mask: u32::MAX as usize,
            types: OnceLock::new(),
            ops: HandleMap::new(ops),
            version,
        }
    }

    /// The standard ABI, of an MPI with this name and version.
    pub(super) fn standard(version: String) -> Self {
        let ops = OPS.iter().map(|op| (usize::from(op.2), op.0));
        Self {
            family: Family::Standard,
            comm_world: 0x101,
            comm_self: 0x102,
            comm_null: 0x100,
            errors_return: 0x143,
            byte: 0x247,
            word: 0x259,
            band: 0x28,
            sum: 0x21,
            datatype_null: 0x200,
            info_null: 0x130,
            request_null: 0x180,
            in_place: Family::Standard.in_place(),
            thread_serialized: 2048,
            status_ignore: 0,
            status_size: 32,
            status_error: 8,
            handle_mask: usize::MAX,
            types: OnceLock::new(),
            ops: HandleMap::new(ops),
            version,
        }
    }

    /// Looks the datatypes up; to be called once MPI is initialised, since some sizes are the MPI's
    /// to tell. Types that it was built without (a size of 0, or an error) are left out.
    pub fn learn_types(&self) {
        let known = |(number, row): (usize, &Row)| {
            let (handle, (class, written, signed, ..)) = (self.handle_of(row)?, *row);
            // Open MPI has an object of no size for each type that its Fortran compiler lacked. Others
            // are not asked without need: Intel's ends the job for a type that it does not have.
            let size = if written == 0 || self.family == Family::OpenMpi {
                u8::try_from(super::type_size(handle).filter(|size| *size > 0)?).ok()?
            } else {
                written
            };
            let known = match class {
                Class::Pair => matches!(size, 6 | 8),
                Class::CInteger | Class::Integer | Class::Byte => matches!(size, 1 | 2 | 4 | 8),
                _ => written == 0 || size == written,
            };
            let row = u8::try_from(number).ok()?;
            known.then_some((handle, TypeInfo { class, size, signed, row }))
        };
        let _ = self.types.set(HandleMap::new(TYPES.iter().enumerate().filter_map(known)));
    }

    /// The handle of a datatype; `None`: this MPI has no such object.
    fn handle_of(&self, row: &Row) -> Option<Handle> {
        match self.family {
            Family::OpenMpi => variable(row.5),
            Family::Mpich => Some(row.3 as usize),
            Family::Standard => Some(usize::from(row.4)).filter(|_| row.4 != NONE),
        }
    }

    /// The C integer with a sign of so many bytes.
    pub fn signed(&self, bytes: usize) -> Option<Handle> {
        let is_it = |row: &&Row| row.0 == Class::CInteger && usize::from(row.1) == bytes && row.2;
        self.handle_of(TYPES.iter().find(is_it)?)
    }

    /// A handle without what a caller may have left in the unused half of the register.
    #[inline]
    pub fn handle(&self, raw: usize) -> Handle {
        raw & self.handle_mask
    }

    /// A handle of the program's: they are 4 bytes wide in MPICH's ABI, else 8.
    ///
    /// # Safety
    /// There is one.
    pub unsafe fn handle_at(&self, handle: *const c_void) -> Handle {
        // SAFETY: of the width of this MPI's handles.
        unsafe { self.request_at(handle, 0) as Handle }
    }

    /// Request `index` of an array of the program's.
    ///
    /// # Safety
    /// The array has an element `index`.
    pub unsafe fn request_at(&self, requests: *const c_void, index: usize) -> u64 {
        // SAFETY: an element of the array, of the width of this MPI's handles.
        unsafe {
            match self.family {
                Family::Mpich => u64::from(*requests.cast::<u32>().add(index)),
                _ => *requests.cast::<u64>().add(index),
            }
        }
    }

    /// Address of request `index` of an array.
    pub fn request_address(&self, requests: *mut c_void, index: usize) -> *mut c_void {
        let width = if self.family == Family::Mpich { 4 } else { 8 };
        requests.wrapping_byte_add(index * width)
    }

    /// The datatype, if it is a named one that foldback knows.
    #[inline]
    pub fn datatype(&self, raw: usize) -> Option<TypeInfo> {
        self.types.get()?.get(self.handle(raw))
    }

    /// The op, if it is a predefined one that foldback knows.
    #[inline]
    pub fn op(&self, raw: usize) -> Option<Op> {
        self.ops.get(self.handle(raw))
    }
}

/// A small map from handles, read at every call: open addressing, at most half full.
struct HandleMap<V> {
    slots: Vec<Option<(Handle, V)>>,
}

impl<V: Copy> HandleMap<V> {
    fn new(entries: impl Iterator<Item = (Handle, V)>) -> Self {
        let entries: Vec<_> = entries.collect();
        let mut map = Self { slots: vec![None; (entries.len() * 2).next_power_of_two().max(8)] };
        for (handle, value) in entries {
            let mut at = map.home(handle);
            while map.slots[at].is_some_and(|(other, _)| other != handle) {
                at = (at + 1) % map.slots.len();
            }
            // Aliases of one handle (MPI_LONG_LONG, …) mean the same.
            map.slots[at] = Some((handle, value));
        }
        map
    }

    fn home(&self, handle: Handle) -> usize {
        // Fibonacci hashing, Knuth vol. 3, 6.4.
        let hash = (handle as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        hash as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn get(&self, handle: Handle) -> Option<V> {
        let mut at = self.home(handle);
        while let Some((other, value)) = self.slots[at] {
            if other == handle {
                return Some(value);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::HandleMap;

    #[test]
    fn finds_what_was_put_in_and_nothing_else() {
        let map = HandleMap::new((0..40).map(|i| (0x7f00_0000_1000 + i * 512, i)));
        for i in 0..40 {
            assert_eq!(map.get(0x7f00_0000_1000 + i * 512), Some(i));
            assert_eq!(map.get(0x7f00_0000_1001 + i * 512), None);
        }
    }
}
