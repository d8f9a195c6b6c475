//! A group's table of pairs, as its leader process sees it: shared memory in which the programs combine pairs.
//!
//! The layout is in `bpf/intf.h`.
#![allow(unsafe_code)]

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::cells::same_places;
use super::lock::lock;
use crate::bindings::{
    FB_BUCKET_SLOTS, FB_MAX_MEMBERS, FB_PARTS, FB_SPILL, fb_pair, fb_part, fb_table,
};

/// The number of parts.
pub const PARTS: usize = FB_PARTS as usize;
/// Bytes of a table.
pub const TABLE_BYTES: usize = (1 + PARTS) * size_of::<fb_part>();
const MEMBERS: usize = FB_MAX_MEMBERS as usize;

/// The memory of a table: a mapped BPF map, or memory of this process.
///
/// # Safety
/// `base` points to `1 + FB_PARTS` elements of `sizeof(struct fb_part)` bytes each, aligned to 8 bytes. These stay where
/// they are for as long as the value lives, and are zeroed or written by foldback only.
pub unsafe trait TableMemory: Send + Sync {
    /// First element.
    fn base(&self) -> *mut fb_table;
}

/// `struct fb_table`, as this process and the programs share it.
#[repr(C)]
struct Control {
    token: AtomicU64,
    epoch: AtomicU64,
    answered: [AtomicU64; MEMBERS],
}

/// The first fields of `struct fb_part`, as this process and the programs share them. The others are of whoever holds
/// the lock.
#[repr(C)]
struct Head {
    lock: AtomicU32,
    pairs: AtomicU32,
    spilt: AtomicU32,
    reserved: [u32; 13],
    held: [AtomicU64; MEMBERS],
    known: [AtomicU64; MEMBERS],
}

same_places!(Control, fb_table, token, epoch, answered);
same_places!(Head, fb_part, lock, pairs, spilt, reserved, held, known);
const _: () = assert!(size_of::<Control>() == size_of::<fb_table>());
const _: () = assert!(size_of::<Head>() == offset_of!(fb_part, taken));

/// The table of a group on one host.
pub struct Table<M> {
    memory: M,
}

impl<M: TableMemory> Table<M> {
    /// Takes the memory over.
    pub fn new(memory: M) -> Self {
        Self { memory }
    }

    fn control(&self) -> &Control {
        // SAFETY: the first element, for as long as the memory lives (contract of `TableMemory`). Its fields lie as in
        // the view, which has atomics only.
        unsafe { &*self.memory.base().cast() }
    }

    fn part(&self, part: usize) -> *mut fb_part {
        assert!(part < PARTS);
        // SAFETY: an element of the memory (contract of `TableMemory`).
        unsafe { self.memory.base().cast::<fb_part>().add(1 + part) }
    }

    fn head(&self, part: usize) -> &Head {
        // SAFETY: an element of the memory for as long as that lives. Its first fields lie as in the view, of which
        // nobody has any but atomics.
        unsafe { &*self.part(part).cast() }
    }

    /// The number that frames have to bear to be taken.
    pub fn epoch(&self) -> u64 {
        self.control().epoch.load(Ordering::Relaxed)
    }

    /// From now on frames of another number are taken.
    pub fn set_epoch(&self, epoch: u64) {
        self.control().epoch.store(epoch, Ordering::Release);
    }

    /// The last question of this host's that a member has answered.
    pub(super) fn answered(&self, member: u8) -> u64 {
        self.control().answered[usize::from(member)].load(Ordering::Acquire)
    }

    /// The last frame of this host's for a part that a member holds, as it has answered.
    pub(super) fn known(&self, part: u8, member: u8) -> u64 {
        self.head(part.into()).known[usize::from(member)].load(Ordering::Acquire)
    }

    /// The number of frames of a member's that are folded here.
    pub(super) fn held(&self, member: u8) -> u64 {
        let of = |part| self.head(part).held[usize::from(member)].load(Ordering::Acquire);
        (0..PARTS).map(of).sum()
    }

    /// Takes the pairs out of parts that would refuse frames soon, or of `all`. Appends keys and values by turns.
    pub fn take(&self, all: bool, into: &mut Vec<u64>) {
        for part in 0..PARTS {
            let head = self.head(part);
            let (pairs, spilt) =
                (head.pairs.load(Ordering::Relaxed), head.spilt.load(Ordering::Relaxed));
            if spilt > FB_SPILL / 4 || (all && (pairs > 0 || spilt > 0)) {
                self.take_part(part, into);
            }
        }
    }

    fn take_part(&self, part: usize, into: &mut Vec<u64>) {
        let (head, part) = (self.head(part), self.part(part));
        let _locked = lock(&head.lock);
        // SAFETY: the part's lock is taken, which keeps the programs out of these fields.
        let (taken, slots, spill) =
            unsafe { (&mut (*part).taken, &raw const (*part).slot, &raw const (*part).spill) };
        let mut push = |pair: *const fb_pair| {
            // SAFETY: a pair of the part, as above.
            let fb_pair { key, value } = unsafe { pair.read() };
            into.extend([key, value]);
        };
        for (bucket, taken) in taken.iter_mut().enumerate() {
            let mut bits = std::mem::take(taken);
            while bits != 0 {
                let slot = bucket * FB_BUCKET_SLOTS as usize + bits.trailing_zeros() as usize;
                push(slots.cast::<fb_pair>().wrapping_add(slot));
                bits &= bits - 1;
            }
        }
        let spilt = head.spilt.load(Ordering::Relaxed).min(FB_SPILL) as usize;
        (0..spilt).for_each(|at| push(spill.cast::<fb_pair>().wrapping_add(at)));
        head.pairs.store(0, Ordering::Relaxed);
        head.spilt.store(0, Ordering::Relaxed);
    }
}

/// Words as bytes.
pub(super) fn bytes(words: &[u64]) -> &[u8] {
    // SAFETY: all bytes of words are bytes.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

/// A table in a mapped BPF map, or in memory of this process, which stays mapped as long as a clone lives.
#[derive(Clone)]
pub struct MappedTable {
    base: *mut fb_table,
    _map: Arc<memmap2::MmapMut>,
}

// SAFETY: whoever has the table changes it by the rules of `Table` and of the programs, which run on any CPU.
unsafe impl Send for MappedTable {}
// SAFETY: as above.
unsafe impl Sync for MappedTable {}

impl MappedTable {
    /// A table that no program knows.
    ///
    /// # Errors
    /// There is no memory.
    pub fn own() -> std::io::Result<Self> {
        Ok(Self::of(memmap2::MmapMut::map_anon(TABLE_BYTES)?))
    }

    /// Maps the table that the agent handed over.
    ///
    /// # Errors
    /// What `mmap` says.
    pub fn new(table: &std::os::fd::OwnedFd) -> std::io::Result<Self> {
        // SAFETY: the file is a BPF array made for this group alone; it cannot shrink.
        let map = unsafe { memmap2::MmapOptions::new().len(TABLE_BYTES).map_mut(table)? };
        Ok(Self::of(map))
    }

    fn of(mut map: memmap2::MmapMut) -> Self {
        Self { base: map.as_mut_ptr().cast(), _map: Arc::new(map) }
    }
}

// SAFETY: the map has as many elements, page-aligned, for as long as it lives.
unsafe impl TableMemory for MappedTable {
    fn base(&self) -> *mut fb_table {
        self.base
    }
}
