//! The real MPI: its `PMPI_` functions, found at run time.
//!
//! One signature serves all MPIs: handles are `usize` (MPICH's are 32-bit integers, passed in the
//! low half of a register), counts and ranks `c_int`. The MPI calls the program's error handlers, ops and
//! attribute callbacks, whose exceptions may pass: hence "C-unwind".
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

/// An MPI handle (communicator, datatype, op, request) as passed in a register.
pub type Handle = usize;

/// Makes a handle of an INTEGER of Fortran's (`MPI_Type_f2c` and the like).
pub type FromFortran = unsafe extern "C-unwind" fn(c_int) -> Handle;
/// Delete callback of an attribute, MPI-4.1 section 7.7.2.
pub type DeleteFn = extern "C" fn(Handle, c_int, *mut c_void, *mut c_void) -> c_int;
/// Copy callback of an attribute.
pub type CopyFn =
    extern "C" fn(Handle, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;

macro_rules! pmpi {
    ($($(#[$doc:meta])* $field:ident = $symbol:literal ( $($arg:ty),* );)*) => {
        /// Entry points of the real MPI.
        #[allow(missing_docs)]
        pub struct Pmpi { $(pub $field: unsafe extern "C-unwind" fn($($arg),*) -> c_int,)* }

        impl Pmpi {
            /// Finds them all behind this library. Errors name the first that is missing.
            fn resolve() -> Result<Self, String> {
                Ok(Self { $($field: {
                    let address = find($symbol).ok_or_else(|| missing($symbol))?;
                    // SAFETY: the MPI standard gives the symbol this signature, up to the
                    // representation of handles, for which see the module's description.
                    unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($($arg),*) -> c_int>(
                            address,
                        )
                    }
                },)* })
            }

            /// Functions of which each panics with its name.
            #[cfg(test)]
            pub(super) fn absent() -> Self {
                Self { $($field: {
                    extern "C-unwind" fn absent($(_: $arg),*) -> c_int {
                        panic!("{:?} is not there", $symbol)
                    }
                    absent
                },)* }
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
    scan = c"PMPI_Scan"(Buf, MutBuf, c_int, Handle, Handle, Handle);
    exscan = c"PMPI_Exscan"(Buf, MutBuf, c_int, Handle, Handle, Handle);
    reduce_scatter =
        c"PMPI_Reduce_scatter"(Buf, MutBuf, *const c_int, Handle, Handle, Handle);
    reduce_scatter_block =
        c"PMPI_Reduce_scatter_block"(Buf, MutBuf, c_int, Handle, Handle, Handle);
    reduce_local = c"PMPI_Reduce_local"(Buf, MutBuf, c_int, Handle, Handle);
    op_commutative = c"PMPI_Op_commutative"(Handle, *mut c_int);
    allgather = c"PMPI_Allgather"(Buf, c_int, Handle, MutBuf, c_int, Handle, Handle);
    igather = c"PMPI_Igather"(Buf, c_int, Handle, MutBuf, c_int, Handle, c_int, Handle, Out);
    ibcast = c"PMPI_Ibcast"(MutBuf, c_int, Handle, c_int, Handle, Out);
    wait = c"PMPI_Wait"(Out, MutBuf);
    waitall = c"PMPI_Waitall"(c_int, Out, MutBuf);
    waitany = c"PMPI_Waitany"(c_int, Out, *mut c_int, MutBuf);
    waitsome = c"PMPI_Waitsome"(c_int, Out, *mut c_int, *mut c_int, MutBuf);
    test = c"PMPI_Test"(Out, *mut c_int, MutBuf);
    testall = c"PMPI_Testall"(c_int, Out, *mut c_int, MutBuf);
    testany = c"PMPI_Testany"(c_int, Out, *mut c_int, *mut c_int, MutBuf);
    testsome = c"PMPI_Testsome"(c_int, Out, *mut c_int, *mut c_int, MutBuf);
    comm_rank = c"PMPI_Comm_rank"(Handle, *mut c_int);
    comm_size = c"PMPI_Comm_size"(Handle, *mut c_int);
    comm_remote_size = c"PMPI_Comm_remote_size"(Handle, *mut c_int);
    comm_test_inter = c"PMPI_Comm_test_inter"(Handle, *mut c_int);
    comm_group = c"PMPI_Comm_group"(Handle, Out);
    topo_test = c"PMPI_Topo_test"(Handle, *mut c_int);
    cartdim_get = c"PMPI_Cartdim_get"(Handle, *mut c_int);
    cart_shift = c"PMPI_Cart_shift"(Handle, c_int, c_int, *mut c_int, *mut c_int);
    graph_neighbors_count = c"PMPI_Graph_neighbors_count"(Handle, c_int, *mut c_int);
    graph_neighbors = c"PMPI_Graph_neighbors"(Handle, c_int, c_int, *mut c_int);
    dist_graph_neighbors_count =
        c"PMPI_Dist_graph_neighbors_count"(Handle, *mut c_int, *mut c_int, *mut c_int);
    dist_graph_neighbors = c"PMPI_Dist_graph_neighbors"(
        Handle, c_int, *mut c_int, *mut c_int, c_int, *mut c_int, *mut c_int
    );
    group_translate_ranks =
        c"PMPI_Group_translate_ranks"(Handle, c_int, *const c_int, Handle, *mut c_int);
    group_free = c"PMPI_Group_free"(Out);
    comm_dup = c"PMPI_Comm_dup"(Handle, Out);
    comm_idup = c"PMPI_Comm_idup"(Handle, Out, Out);
    comm_split = c"PMPI_Comm_split"(Handle, c_int, c_int, Out);
    comm_free = c"PMPI_Comm_free"(Out);
    comm_set_info = c"PMPI_Comm_set_info"(Handle, Handle);
    comm_dup_with_info = c"PMPI_Comm_dup_with_info"(Handle, Handle, Out);
    comm_set_errhandler = c"PMPI_Comm_set_errhandler"(Handle, Handle);
    comm_call_errhandler = c"PMPI_Comm_call_errhandler"(Handle, c_int);
    comm_create_keyval = c"PMPI_Comm_create_keyval"(CopyFn, DeleteFn, *mut c_int, *mut c_void);
    comm_set_attr = c"PMPI_Comm_set_attr"(Handle, c_int, *mut c_void);
    type_dup = c"PMPI_Type_dup"(Handle, Out);
    type_free = c"PMPI_Type_free"(Out);
    type_get_extent = c"PMPI_Type_get_extent"(Handle, *mut isize, *mut isize);
    type_get_true_extent = c"PMPI_Type_get_true_extent"(Handle, *mut isize, *mut isize);
    isend = c"PMPI_Isend"(MutBuf, c_int, Handle, c_int, c_int, Handle, Out);
    irecv = c"PMPI_Irecv"(MutBuf, c_int, Handle, c_int, c_int, Handle, Out);
    recv_init = c"PMPI_Recv_init"(MutBuf, c_int, Handle, c_int, c_int, Handle, Out);
    sendrecv = c"PMPI_Sendrecv"(
        Buf, c_int, Handle, c_int, c_int, MutBuf, c_int, Handle, c_int, c_int, Handle, MutBuf
    );
    send = c"PMPI_Send"(Buf, c_int, Handle, c_int, c_int, Handle);
    start = c"PMPI_Start"(Out);
    startall = c"PMPI_Startall"(c_int, Out);
    request_free = c"PMPI_Request_free"(Out);
    request_get_status = c"PMPI_Request_get_status"(Handle, *mut c_int, *mut c_void);
    initialized = c"PMPI_Initialized"(*mut c_int);
    query_thread = c"PMPI_Query_thread"(*mut c_int);
    pack = c"PMPI_Pack"(Buf, c_int, Handle, MutBuf, c_int, *mut c_int, Handle);
    unpack = c"PMPI_Unpack"(Buf, c_int, *mut c_int, MutBuf, c_int, Handle, Handle);
    get_library_version = c"PMPI_Get_library_version"(*mut c_char, *mut c_int);
}

fn missing(symbol: &CStr) -> String {
    format!("no {} behind libfoldback.so: is this an MPI program?", symbol.to_string_lossy())
}

/// The library of the real MPI, found once: a process may have two mapped.
struct Library {
    /// For `dlsym`; `RTLD_NEXT` if the MPI comes after this library in the default scope.
    handle: *mut c_void,
}

// SAFETY: a handle is used with dlsym only, from any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| Library {
        handle: match look_up(libc::RTLD_NEXT, c"PMPI_Init") {
            Some(_) => libc::RTLD_NEXT,
            // Python's mpi4py loads its MPI with RTLD_LOCAL: it is in no scope that we are in.
            None => mapped_mpi().unwrap_or(libc::RTLD_NEXT),
        },
    })
}

fn look_up(handle: *mut c_void, symbol: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is a C string; the handle is a constant of dlsym's or came from dlopen.
    let address = unsafe { libc::dlsym(handle, symbol.as_ptr()) };
    (!address.is_null()).then_some(address)
}

/// The first object in this process that has an MPI in it or in what it needs.
fn mapped_mpi() -> Option<*mut c_void> {
    mapped_with(c"PMPI_Init")
}

/// The first object in this process that has a symbol, in it or in what it needs.
fn mapped_with(symbol: &CStr) -> Option<*mut c_void> {
    extern "C" fn collect(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        names: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a live description; `names` is the vector below.
        unsafe {
            let (name, names) = ((*info).dlpi_name, &mut *names.cast::<Vec<CString>>());
            if !name.is_null() && *name != 0 {
                names.push(CStr::from_ptr(name).to_owned());
            }
        }
        0
    }
    let mut names: Vec<CString> = Vec::new();
    // SAFETY: the callback is as dl_iterate_phdr wants it, and does not outlive the vector.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut names).cast()) };
    names.iter().find_map(|name| {
        // SAFETY: with RTLD_NOLOAD nothing is loaded or run.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        // Not this library, which has functions of the same name.
        let found = if handle.is_null() { None } else { look_up(handle, symbol) };
        found.filter(|address| !is_own(*address)).map(|_| handle)
    })
}

/// The object that has what a program gets by the name of a function of ours; `None`: it gets ours.
pub fn before_us(symbol: &CStr) -> Option<String> {
    // In the symbols of the loader: declared elsewhere.
    const UNDEFINED: u16 = 0;
    const WITH_SYMBOL: c_int = 1;
    let address = look_up(libc::RTLD_DEFAULT, symbol).filter(|address| !is_own(*address))?;
    // SAFETY: all zeroes is a valid Dl_info, which dladdr1 fills in, as the symbol that it points to; both live as
    // long as the object, as its name does.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let mut found: *const libc::Elf64_Sym = std::ptr::null();
        let found_it = dladdr1(address, &raw mut info, (&raw mut found).cast(), WITH_SYMBOL) != 0;
        if !found_it || info.dli_fname.is_null() {
            return None;
        }
        // An executable that takes the address of a function has a jump by that name, to whoever is first.
        if found.as_ref().is_some_and(|found| found.st_shndx == UNDEFINED) {
            return None;
        }
        Some(CStr::from_ptr(info.dli_fname).to_string_lossy().into_owned())
    }
}

unsafe extern "C" {
    /// dladdr1(3), of glibc.
    fn dladdr1(
        address: *const c_void,
        info: *mut libc::Dl_info,
        extra: *mut *mut c_void,
        flags: c_int,
    ) -> c_int;
}

/// Whether an address is in this library.
fn is_own(address: *mut c_void) -> bool {
    let base = |address: *const c_void| {
        // SAFETY: all zeroes is a valid Dl_info, which dladdr fills in.
        unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            (libc::dladdr(address, &raw mut info) != 0).then_some(info.dli_fbase as usize)
        }
    };
    base(address) == base(is_own as *const c_void)
}

/// The address of a function of the real MPI.
fn find(symbol: &CStr) -> Option<*mut c_void> {
    look_up(library().handle, symbol)
}

/// Address of a global variable of the MPI.
///
/// The executable may hold a copy of it (copy relocations, the default for Open MPI's handles), and
/// then the copy's address is the handle: the default scope tells. If the MPI is not in that, there
/// are no copies.
pub fn variable(symbol: &CStr) -> Option<usize> {
    look_up(libc::RTLD_DEFAULT, symbol).or_else(|| find(symbol)).map(|address| address as usize)
}

/// A function that not every MPI has, looked up when first asked for. `F` is its type, an
/// `unsafe extern` function.
pub struct Optional<F> {
    symbol: &'static CStr,
    /// A second name, of before the standard had it.
    other: Option<&'static CStr>,
    /// In the MPI's Fortran library.
    fortran: bool,
    found: OnceLock<Option<F>>,
}

impl<F: Copy> Optional<F> {
    /// The function of that name.
    ///
    /// # Safety
    /// `F` is the type that the MPI standard gives it, handles as the module's description says.
    pub const unsafe fn new(symbol: &'static CStr) -> Self {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        Self { symbol, other: None, fortran: false, found: OnceLock::new() }
    }

    /// The function of either name, the first if the MPI has both; the second may be empty.
    ///
    /// # Safety
    /// As [`Optional::new`].
    pub const unsafe fn either(symbol: &'static CStr, other: &'static CStr) -> Self {
        Self { symbol, other: Some(other), fortran: false, found: OnceLock::new() }
    }

    /// A function of the MPI's Fortran library.
    ///
    /// # Safety
    /// As [`Optional::new`].
    pub const unsafe fn fortran(symbol: &'static CStr) -> Self {
        Self { symbol, other: None, fortran: true, found: OnceLock::new() }
    }

    /// The function, if this MPI has it.
    #[inline]
    pub fn get(&self) -> Option<F> {
        *self.found.get_or_init(|| {
            let found = if self.fortran {
                // Behind us; or loaded by something that keeps it to itself.
                look_up(libc::RTLD_NEXT, self.symbol)
                    .or_else(|| look_up(mapped_with(self.symbol)?, self.symbol))
            } else {
                find(self.symbol).or_else(|| find(self.other?))
            };
            // SAFETY: a function of type `F`, by the promise made to `new`.
            found.map(|address| unsafe { std::mem::transmute_copy(&address) })
        })
    }
}

impl Pmpi {
    /// The real MPI of this process.
    ///
    /// # Errors
    /// One line that names what is missing.
    pub fn load() -> Result<Self, String> {
        Self::resolve()
    }

    /// Whether the MPI has the standard ABI (MPI-5.0 section 20.1). Libraries that have the function
    /// and another ABI say version -1.
    pub fn has_standard_abi(&self) -> bool {
        type GetVersion = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
        // SAFETY: the type that the standard gives it.
        let get_version: Optional<GetVersion> = unsafe { Optional::new(c"PMPI_Abi_get_version") };
        let (mut major, mut minor): (c_int, c_int) = (-1, -1);
        let Some(get_version) = get_version.get() else { return false };
        // SAFETY: two ints are written; it may be called at any time.
        unsafe { get_version(&raw mut major, &raw mut minor) };
        major > 0
    }

    /// The MPI's own name and version, on one line.
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
