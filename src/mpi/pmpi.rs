//! The real MPI: its `PMPI_` functions, found at run time.
//!
//! One signature serves all MPIs: handles are `usize` (MPICH's are 32-bit integers, passed in the
//! low half of a register), counts and ranks `c_int`.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};

/// An MPI handle (communicator, datatype, op, request) as passed in a register.
pub type Handle = usize;

/// Delete callback of an attribute, MPI-4.1 section 7.7.2.
pub type DeleteFn = extern "C" fn(Handle, c_int, *mut c_void, *mut c_void) -> c_int;
/// Copy callback of an attribute.
pub type CopyFn =
    extern "C" fn(Handle, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;

macro_rules! pmpi {
    ($($(#[$doc:meta])* $field:ident = $symbol:literal ( $($arg:ty),* );)*) => {
        /// Entry points of the real MPI.
        #[allow(missing_docs)]
        pub struct Pmpi { $(pub $field: unsafe extern "C" fn($($arg),*) -> c_int,)* }

        impl Pmpi {
            /// Finds them all behind this library. Errors name the first that is missing.
            fn resolve() -> Result<Self, String> {
                Ok(Self { $($field: {
                    let address = find($symbol).ok_or_else(|| missing($symbol))?;
                    // SAFETY: the MPI standard gives the symbol this signature, up to the
                    // representation of handles, for which see the module's description.
                    unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> c_int>(
                            address,
                        )
                    }
                },)* })
            }
        }
    };
}

type Buf = *const c_void;
type MutBuf = *mut c_void;
type Out = *mut u64;

pmpi! {
    init = c"PMPI_Init"(*mut c_int, *mut *mut *mut c_char);
    init_thread = c"PMPI_Init_thread"(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int);
    abort = c"PMPI_Abort"(Handle, c_int);
    allreduce = c"PMPI_Allreduce"(Buf, MutBuf, c_int, Handle, Handle, Handle);
    reduce = c"PMPI_Reduce"(Buf, MutBuf, c_int, Handle, Handle, c_int, Handle);
    bcast = c"PMPI_Bcast"(MutBuf, c_int, Handle, c_int, Handle);
    barrier = c"PMPI_Barrier"(Handle);
    igather = c"PMPI_Igather"(Buf, c_int, Handle, MutBuf, c_int, Handle, c_int, Handle, Out);
    ibcast = c"PMPI_Ibcast"(MutBuf, c_int, Handle, c_int, Handle, Out);
    test = c"PMPI_Test"(Out, *mut c_int, *mut c_void);
    iprobe = c"PMPI_Iprobe"(c_int, c_int, Handle, *mut c_int, *mut c_void);
    comm_rank = c"PMPI_Comm_rank"(Handle, *mut c_int);
    comm_size = c"PMPI_Comm_size"(Handle, *mut c_int);
    comm_test_inter = c"PMPI_Comm_test_inter"(Handle, *mut c_int);
    comm_dup = c"PMPI_Comm_dup"(Handle, Out);
    comm_set_errhandler = c"PMPI_Comm_set_errhandler"(Handle, Handle);
    comm_create_keyval = c"PMPI_Comm_create_keyval"(CopyFn, DeleteFn, *mut c_int, *mut c_void);
    comm_set_attr = c"PMPI_Comm_set_attr"(Handle, c_int, *mut c_void);
    type_size = c"PMPI_Type_size"(Handle, *mut c_int);
    pack = c"PMPI_Pack"(Buf, c_int, Handle, MutBuf, c_int, *mut c_int, Handle);
    unpack = c"PMPI_Unpack"(Buf, c_int, *mut c_int, MutBuf, c_int, Handle, Handle);
    get_library_version = c"PMPI_Get_library_version"(*mut c_char, *mut c_int);
}

fn missing(symbol: &CStr) -> String {
    format!("no {} behind libfoldback.so: is this an MPI program?", symbol.to_string_lossy())
}

/// Looks a symbol up in the objects loaded after this one.
fn find(symbol: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is a C string; dlsym has no other demand.
    let address = unsafe { libc::dlsym(libc::RTLD_NEXT, symbol.as_ptr()) };
    (!address.is_null()).then_some(address)
}

/// Address of a global variable of the MPI.
///
/// The executable may hold a copy of it (copy relocations, the default for Open MPI's handles), and
/// then the copy's address is the handle: only the default scope tells.
pub fn variable(symbol: &CStr) -> Option<usize> {
    // SAFETY: as in `find`.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()) };
    if address.is_null() { find(symbol).map(|a| a as usize) } else { Some(address as usize) }
}

impl Pmpi {
    /// The real MPI of this process.
    ///
    /// # Errors
    /// One line that names what is missing.
    pub fn load() -> Result<Self, String> {
        Self::resolve()
    }

    /// What the MPI calls itself, on one line.
    pub fn library_version(&self) -> String {
        // The longest of any MPI (MPICH's MPI_MAX_LIBRARY_VERSION_STRING).
        let mut text = vec![0u8; 8192];
        let mut length: c_int = 0;
        // SAFETY: the buffer is as long as the standard constant of any supported MPI.
        unsafe { (self.get_library_version)(text.as_mut_ptr().cast(), &raw mut length) };
        let text = CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy();
        let mut line = text.lines().next().unwrap_or_default().to_owned();
        line.truncate(line.find(", package").unwrap_or(line.len()));
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}
