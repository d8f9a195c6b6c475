//! Pairs of keys and values, reduced by key over the ranks of a communicator.
//!
//! ```text
//!  add ─▶ Store by owner ── flush: rounds of MPI_Alltoallv ─▶ Store of the share ─▶ Table ─▶ get, gather
//!           ▲                                                                        │
//!  add ─▶ Numbers of strings ── flush: the owner of a string gives its key ─▶ Registry ┘
//! ```
//!
//! A record is a key and some words. It may be combined with others of its key anywhere on its way: by the kernel of its
//! owner, too (`combined`), in place of MPI_Alltoallv.
#![allow(unsafe_code)]

mod buckets;
mod combined;
mod forecast;
mod hash;
mod index;
mod memory;
mod parts;
mod pile;
mod shuffle;
mod spread;
mod store;
mod strings;
mod sums;
mod table;
mod values;
mod word;
mod words;
mod zeroed;

use std::ffi::{c_char, c_int, c_void};
use std::slice;
use std::sync::Arc;

use super::reduction::{By, Elements, Reduction};
use super::{ERR_BUFFER, ERR_COUNT, ERR_TYPE, mpi, refuse, shape_of};
use crate::codec::SUCCESS;
use crate::mpi::Mpi;
use crate::mpi::abi::Error;
use crate::mpi::pmpi::Handle;
use crate::preload::own;
use crate::process;
use crate::stats::PairsLine;
use shuffle::{Ranks, Stop};
use spread::Spread;
use table::{Order, Table};
use values::Values;

/// MPI_ERR_COMM, in every MPI.
const ERR_COMM: c_int = 5;
/// Pairs that are packed at once, and their bytes, at most.
const AT_ONCE: usize = 16_384;
const BYTES_AT_ONCE: usize = 64 << 20;

/// `foldback_pairs`.
pub struct Pairs {
    mpi: &'static Mpi,
    reduction: Arc<Reduction>,
    values: Values,
    held: Held,
}

enum Held {
    /// Spread over the ranks of a communicator, each of which has a share.
    Spread(Box<Spread>),
    /// Here, in their order.
    Gathered(Table),
}

/// The keys of pairs, as the program passes them.
#[derive(Clone, Copy)]
pub enum Names {
    /// Numbers.
    Keys(*const u64),
    /// Strings and their lengths; null: they end with a zero.
    Strings(*const *const c_char, *const usize),
}

/// The kinds of keys, of which the pairs of an object have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Keys,
    Strings,
}

impl Pairs {
    /// No pairs yet. Collective.
    ///
    /// # Errors
    /// An argument is wrong, which the program's error handler has been told.
    ///
    /// # Safety
    /// *Arguments* of the [program](crate::mpi).
    pub unsafe fn new(datatype: Handle, op: Handle, comm: Handle) -> Result<Self, c_int> {
        let Some(mpi) = mpi() else { return Err(ERR_BUFFER) };
        let refused = |code| refuse(mpi, comm, code);
        if mpi.is_intercomm(mpi.abi.handle(comm)) {
            return Err(refused(ERR_COMM));
        }
        let shape = shape_of(mpi, datatype).ok_or(ERR_TYPE).map_err(refused)?;
        let reduction = Arc::new(Reduction::new(mpi, datatype, shape, op).map_err(refused)?);
        let mut is_commutative: c_int = 0;
        // SAFETY: an op that the MPI has just taken; an int is written.
        let code =
            unsafe { (mpi.pmpi.op_commutative)(mpi.abi.handle(op), &raw mut is_commutative) };
        if code != SUCCESS || is_commutative == 0 {
            log::error!("pairs are reduced in any order, so their op has to be commutative");
            return Err(refused(mpi.abi.family.class(Error::Op)));
        }
        let values = values_of(&reduction);
        let mut duplicate: u64 = 0;
        // SAFETY: the program's communicator; one handle is written.
        match unsafe { (mpi.pmpi.comm_dup)(mpi.abi.handle(comm), &raw mut duplicate) } {
            SUCCESS => {}
            code => return Err(code),
        }
        let comm = duplicate as Handle;
        let ranks = Ranks { mpi, comm, count: mpi.size(comm) };
        let spread = Spread::new(ranks, &values).map_err(|stop| told(mpi, comm, stop))?;
        Ok(Self { mpi, reduction, values, held: Held::Spread(Box::new(spread)) })
    }

    /// Pairs, created, added and flushed. Collective.
    ///
    /// # Errors
    /// Something is wrong on some rank, which the program's error handler has been told. All ranks know.
    ///
    /// # Safety
    /// *Arguments* and *buffers* of the [program](crate::mpi).
    pub unsafe fn reduce(
        names: Names,
        from: *const c_void,
        count: i64,
        datatype: Handle,
        op: Handle,
        comm: Handle,
    ) -> Result<Self, c_int> {
        // SAFETY: as demanded of this function.
        unsafe {
            let mut pairs = Self::new(datatype, op, comm)?;
            let added = pairs.try_add(names, from, count);
            // Also a rank whose pairs are not taken: others wait for it.
            match pairs.flush_after(added) {
                SUCCESS => Ok(pairs),
                code => {
                    pairs.free();
                    Err(code)
                }
            }
        }
    }

    /// Takes pairs, or none if there is no room. Returns a code of MPI's.
    ///
    /// # Safety
    /// *Buffers* of the [program](crate::mpi), for so many pairs.
    pub unsafe fn add(&mut self, names: Names, from: *const c_void, count: i64) -> c_int {
        // SAFETY: as demanded of this function.
        let added = unsafe { self.try_add(names, from, count) };
        self.answer(added)
    }

    /// # Safety
    /// As [`Pairs::add`].
    unsafe fn try_add(
        &mut self,
        names: Names,
        from: *const c_void,
        count: i64,
    ) -> Result<(), c_int> {
        let wrong = self.mpi.abi.family.class(Error::Argument);
        let Self { reduction, values, held: Held::Spread(spread), .. } = self else {
            log::error!("gathered pairs take no others");
            return Err(wrong);
        };
        let count = usize::try_from(count).map_err(|_| ERR_COUNT)?;
        let kind = match names {
            Names::Keys(_) => Kind::Keys,
            Names::Strings(..) => Kind::Strings,
        };
        if count == 0 {
            return Ok(());
        }
        let at_once = AT_ONCE.min(BYTES_AT_ONCE / values.size().max(1)).max(1);
        let mut addition = spread.begin(values, kind)?;
        let numbers: Vec<u64>;
        // SAFETY: keys or strings of the program's, as many.
        let keys = unsafe {
            match names {
                Names::Keys(all) => slice::from_raw_parts(all, count),
                Names::Strings(all, lengths) => {
                    let numbered =
                        (0..count).map(|at| addition.number(string(*all.add(at), lengths, at)));
                    numbers = numbered.collect::<Result<_, _>>()?;
                    &numbers
                }
            }
        };
        addition.expect(count)?;
        for first in (0..count).step_by(at_once) {
            let some = at_once.min(count - first);
            let offset = reduction.extent().wrapping_mul(first as isize);
            let from = from.wrapping_byte_offset(offset);
            // SAFETY: elements of the program's buffers, `some` from `first` on.
            unsafe {
                let packed = reduction.pack(from, some)?;
                let packed = match &packed {
                    Some(packed) => packed.as_slice(),
                    None if values.size() == 0 => &[],
                    None => slice::from_raw_parts(from.cast(), some * values.size()),
                };
                addition.add(&keys[first..first + some], packed)?;
            }
        }
        addition.finish()?;
        count_pairs(&PairsLine { added: count as u64, ..PairsLine::default() });
        Ok(())
    }

    /// Brings all that was added to its owners. Collective. Returns a code of MPI's.
    pub fn flush(&mut self) -> c_int {
        self.flush_after(Ok(()))
    }

    /// The same, on a rank that has something to say first.
    fn flush_after(&mut self, before: Result<(), c_int>) -> c_int {
        let Self { values, held: Held::Spread(spread), .. } = self else {
            log::error!("gathered pairs are not flushed");
            return self.answer(Err(self.mpi.abi.family.class(Error::Argument)));
        };
        let flushed = spread.flush(values, before);
        let sent = spread.take_sent();
        count_pairs(&PairsLine { flushes: 1, sent, ..PairsLine::default() });
        match flushed {
            Ok(()) => SUCCESS,
            Err(stop) => self.stopped(stop, before),
        }
    }

    /// The code for an exchange that has stopped. `own`: what this rank had to say.
    fn stopped(&self, stop: Stop, own: Result<(), c_int>) -> c_int {
        match (stop, own) {
            (Stop::Trouble(_), Err(code)) => self.answer(Err(code)),
            (stop, _) => told(self.mpi, self.comm(), stop),
        }
    }

    /// Keys of this rank's share, or of what was gathered.
    pub fn count(&self) -> i64 {
        match &self.held {
            Held::Spread(spread) => spread.count() as i64,
            Held::Gathered(table) => table.keys.len() as i64,
        }
    }

    /// Writes the keys and the values, each unless its pointer is null. Returns a code of MPI's.
    ///
    /// # Safety
    /// *Buffers* of the [program](crate::mpi), for [as many](Self::count) pairs.
    pub unsafe fn get(&self, keys: *mut u64, to: *mut c_void) -> c_int {
        let size = self.values.size();
        let to = if size == 0 { std::ptr::null_mut() } else { to };
        // SAFETY: as demanded of this function.
        let written = unsafe {
            match &self.held {
                Held::Spread(spread) => self.write_share(spread, keys, to),
                Held::Gathered(table) => {
                    if !keys.is_null() {
                        keys.copy_from_nonoverlapping(table.keys.as_ptr(), table.keys.len());
                    }
                    if to.is_null() { Ok(()) } else { self.unpack(&table.values, to, 0) }
                }
            }
        };
        self.answer(written)
    }

    /// # Safety
    /// As [`Pairs::get`].
    unsafe fn write_share(
        &self,
        spread: &Spread,
        keys: *mut u64,
        to: *mut c_void,
    ) -> Result<(), c_int> {
        let most = self.at_once() * self.values.size();
        let (mut packed, mut first, mut count) = (Vec::with_capacity(most), 0, 0);
        let mut written = Ok(());
        spread.each_key(|records| {
            if !keys.is_null() {
                // SAFETY: room for as many as there are keys.
                unsafe { *keys.add(count) = records[0] };
            }
            count += 1;
            if to.is_null() {
                return;
            }
            self.values.finish(records, &mut packed);
            if packed.len() >= most {
                // SAFETY: elements of the program's buffer, from the first one on that is not written yet.
                written = written.and(unsafe { self.unpack(&packed, to, first) });
                first = count;
                packed.clear();
            }
        });
        // SAFETY: as above; the last ones.
        written.and(unsafe { self.unpack(&packed, to, first) })
    }

    /// Pairs that are packed or unpacked at once.
    fn at_once(&self) -> usize {
        AT_ONCE.min(BYTES_AT_ONCE / self.values.size().max(1)).max(1)
    }

    /// Writes packed values, from the program's element `first` on.
    ///
    /// # Safety
    /// A *buffer* of the [program](crate::mpi), with room for them, or no values.
    unsafe fn unpack(&self, packed: &[u8], to: *mut c_void, first: usize) -> Result<(), c_int> {
        let size = self.values.size();
        let at_once = self.at_once();
        let mut unpacked = Ok(());
        for (number, values) in packed.chunks(at_once * size.max(1)).enumerate() {
            let first = (first + number * at_once) as isize;
            let data = to.wrapping_byte_offset(self.reduction.extent().wrapping_mul(first));
            let to = Elements { data, count: values.len() / size };
            // SAFETY: elements of the program's buffer for the values.
            match unsafe { self.reduction.unpack(values, to) } {
                SUCCESS => {}
                code => unpacked = Err(code),
            }
        }
        unpacked
    }

    /// Writes the addresses of strings and their lengths, each unless its pointer is null. Returns a code of MPI's.
    ///
    /// # Safety
    /// Room for [as many](Self::count).
    pub unsafe fn get_strings(&self, to: *mut *const c_char, lengths: *mut usize) -> c_int {
        let (mut count, mut are_strings) = (0, true);
        let mut write = |string: Option<&[u8]>| {
            let Some(string) = string else {
                are_strings = false;
                return;
            };
            // SAFETY: room for as many.
            unsafe {
                if !to.is_null() {
                    *to.add(count) = string.as_ptr().cast();
                }
                if !lengths.is_null() {
                    *lengths.add(count) = string.len();
                }
            }
            count += 1;
        };
        match &self.held {
            Held::Spread(spread) => spread.each_key(|records| write(spread.string(records[0]))),
            Held::Gathered(Table { keys, strings, .. }) => match strings {
                Some(strings) => strings.iter().for_each(|string| write(Some(string))),
                None => keys.iter().for_each(|_| write(None)),
            },
        }
        if are_strings {
            return SUCCESS;
        }
        log::error!("the keys of these pairs are no strings");
        self.answer(Err(self.mpi.abi.family.class(Error::Argument)))
    }

    /// The first pairs in an order, at `root` or, if it is -1, at every rank. Collective.
    ///
    /// # Errors
    /// An argument is wrong, or some rank has no room, which the program's error handler has been told.
    pub fn gather(&self, most: i64, order: c_int, root: c_int) -> Result<Self, c_int> {
        let class = |error| self.mpi.abi.family.class(error);
        let refused = |code| self.answer(Err(code));
        let Held::Spread(spread) = &self.held else {
            log::error!("these pairs have been gathered already");
            return Err(refused(class(Error::Argument)));
        };
        let order = match order {
            0 => Order::Key,
            1 if self.values.is_ordered() => Order::Value,
            1 => return Err(refused(ERR_TYPE)),
            _ => return Err(refused(class(Error::Argument))),
        };
        let most = match most {
            -1 => usize::MAX,
            some => usize::try_from(some).map_err(|_| refused(ERR_COUNT))?,
        };
        let root = match usize::try_from(root) {
            Ok(rank) if rank < spread.ranks.count => Some(root),
            Err(_) if root == -1 => None,
            _ => return Err(refused(class(Error::Root))),
        };
        let table = spread.gather(&self.values, order, most, root);
        let table = table.map_err(|stop| self.stopped(stop, Ok(())))?;
        let reduction = Arc::clone(&self.reduction);
        let values = values_of(&reduction);
        Ok(Self { mpi: self.mpi, reduction, values, held: Held::Gathered(table) })
    }

    /// Frees their communicator, after which they take no call. Collective, unless they have been gathered. Returns a
    /// code of MPI's.
    pub fn free(&mut self) -> c_int {
        let Held::Spread(spread) = &self.held else { return SUCCESS };
        let mut comm = spread.ranks.comm as u64;
        // SAFETY: made by `new`, and used by no call.
        unsafe { own::MPI_Comm_free((&raw mut comm).cast()) }
    }

    /// The communicator whose error handler hears of errors.
    fn comm(&self) -> Handle {
        match &self.held {
            Held::Spread(spread) => spread.ranks.comm,
            Held::Gathered(_) => self.mpi.abi.comm_self,
        }
    }

    /// The code of a result. An error is told to the program's error handler.
    fn answer(&self, result: Result<(), c_int>) -> c_int {
        result.map_or_else(|code| refuse(self.mpi, self.comm(), code), |()| SUCCESS)
    }
}

/// Adds to the statistics.
fn count_pairs(line: &PairsLine) {
    if let Some(process) = process::get() {
        process.pairs.add(line);
    }
}

/// How the values of a reduction are combined.
fn values_of(reduction: &Arc<Reduction>) -> Values {
    let size = reduction.size();
    let word = match reduction.by() {
        By::Arithmetic(arithmetic) => word::Word::of(arithmetic),
        By::Exact(_) | By::Mpi => None,
    };
    match (reduction.by(), word) {
        (_, Some(word)) => Values::Word(word),
        (By::Exact(real), _) => Values::Exact { real, complex: size > real.bytes() },
        _ => {
            let reduction = Arc::clone(reduction);
            let combine = move |vectors: &[&[u8]], into: &mut [u8]| reduction.reduce(vectors, into);
            Values::Other { size, combine: Box::new(combine) }
        }
    }
}

/// The code for an exchange that has stopped, which the program is told unless it has been.
fn told(mpi: &Mpi, comm: Handle, stop: Stop) -> c_int {
    use shuffle::bits::{ARGUMENT, MEMORY};
    let error = match stop {
        Stop::Told(code) => return code,
        Stop::Trouble(bits) if bits & ARGUMENT != 0 => {
            log::error!("ranks have added pairs by numbers and by strings to one object");
            Error::Argument
        }
        Stop::Trouble(bits) if bits & MEMORY != 0 => Error::Memory,
        Stop::Trouble(_) => Error::Other,
    };
    refuse(mpi, comm, mpi.abi.family.class(error))
}

/// A string of the program's.
///
/// # Safety
/// As long as `lengths` says at `at`, or ends with a zero.
unsafe fn string<'a>(start: *const c_char, lengths: *const usize, at: usize) -> &'a [u8] {
    // SAFETY: as demanded of this function.
    unsafe {
        if lengths.is_null() {
            return std::ffi::CStr::from_ptr(start).to_bytes();
        }
        match *lengths.add(at) {
            0 => &[],
            length => slice::from_raw_parts(start.cast(), length),
        }
    }
}
