//! A group's cells, as its leader process sees them: shared memory written by the BPF programs.
//!
//! The layout and the states of a cell are in `bpf/intf.h`.
#![allow(unsafe_code)]

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::lock::{Locked, lock};
use crate::bindings::{
    FB_DEAF_FROM, FB_FOLD_BLOCK, FB_JUMBO_BYTES, FB_KIND_BROADCAST, FB_KIND_CONTRIBUTION,
    FB_KIND_PIECE, FB_OP_PLACE, FB_WIRE_MAGIC, FB_WIRE_VERSION, fb_cell, fb_control, fb_frame,
    fb_kind,
};

/// Bytes from one cell to the next, of chunks of up to `chunk` bytes: folds take whole blocks.
pub const fn cell_bytes(chunk: u32) -> u32 {
    offset_of!(fb_cell, data) as u32 + chunk.next_multiple_of(FB_FOLD_BLOCK)
}

/// Bytes of the chunk that a frame is a part of, if its payload is placed; else 0.
pub fn extent_of(frame: &fb_frame) -> u64 {
    let is_placed =
        u32::from(frame.kind) == FB_KIND_CONTRIBUTION && u32::from(frame.op) == FB_OP_PLACE;
    if is_placed { frame.detail } else { 0 }
}

/// The memory of the cells: a mapped BPF map, or plain memory in tests.
///
/// # Safety
/// `base` points to `1 + window` elements of `cell_bytes` bytes each, aligned to 8 bytes. These stay where they
/// are for as long as the value lives, and are zeroed or written by foldback only. Each but the first begins with
/// `struct fb_cell`, whose data go to the end of the element: a whole number of blocks, and no more than
/// `FB_JUMBO_BYTES`.
pub unsafe trait Memory {
    /// First element (`struct fb_control`).
    fn base(&self) -> *mut fb_control;
    /// Number of cells after it, a power of two.
    fn window(&self) -> u32;
    /// From one element to the next.
    fn cell_bytes(&self) -> usize;

    /// The cell of a chunk.
    #[inline]
    fn cell(&self, seq: u64) -> *mut fb_cell {
        let index = 1 + (seq & u64::from(self.window() - 1)) as usize;
        // SAFETY: the index is at most `window`, within the memory.
        unsafe { self.base().byte_add(index * self.cell_bytes()).cast() }
    }

    /// Bytes that a chunk may have.
    #[inline]
    fn most_bytes(&self) -> u16 {
        (self.cell_bytes() - offset_of!(fb_cell, data)) as u16
    }
}

/// `struct fb_control`, as this process and the programs share it.
#[repr(C)]
struct Control {
    consumed: AtomicU64,
    heard: AtomicU64,
    _token: AtomicU64,
    mismatched: AtomicU64,
    overheard: AtomicU64,
    multicast: AtomicU32,
    missed: AtomicU32,
    repeated: AtomicU64,
    calls: AtomicU64,
    left: AtomicU64,
    asked: AtomicU64,
    rescued: AtomicU64,
}

/// The first fields of `struct fb_cell`, as this process and the programs share them. The others are of whoever holds
/// the lock, or of nobody while the chunk is ready.
#[repr(C)]
struct Head {
    seq: AtomicU64,
    ready: AtomicU64,
    arrived: AtomicU64,
    consumed: AtomicU64,
    lock: AtomicU32,
    _kind: AtomicU32,
}

/// Asserts that the fields of a view are where the programs have them.
macro_rules! same_places {
    ($view:ty, $bound:ty, $($field:ident),*) => {
        const _: () = {
            assert!(align_of::<$view>() == align_of::<$bound>());
            $(assert!(offset_of!($view, $field) == offset_of!($bound, $field));)*
        };
    };
}
pub(super) use same_places;

same_places!(
    Control, fb_control, consumed, heard, mismatched, overheard, multicast, missed, repeated,
    calls, left, asked, rescued
);
same_places!(Head, fb_cell, seq, ready, arrived, consumed, lock);
const _: () = assert!(size_of::<Control>() == size_of::<fb_control>());
const _: () = assert!(size_of::<Head>() == offset_of!(fb_cell, length));

impl Head {
    fn lock(&self) -> Locked<'_> {
        lock(&self.lock)
    }
}

/// Cells of one group on one host.
pub struct Cells<M> {
    memory: M,
}

impl<M: Memory> Cells<M> {
    /// Takes the memory over.
    pub fn new(memory: M) -> Self {
        Self { memory }
    }

    /// The memory that they are in.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Cells in the window.
    pub fn window(&self) -> u64 {
        self.memory.window().into()
    }

    fn control(&self) -> &Control {
        // SAFETY: the first element, for as long as the memory lives (contract of `Memory`). Its fields lie as in the
        // view, which has atomics only.
        unsafe { &*self.memory.base().cast() }
    }

    fn cell(&self, seq: u64) -> *mut fb_cell {
        self.memory.cell(seq)
    }

    #[inline]
    fn head(&self, seq: u64) -> &Head {
        // SAFETY: the cell is in the memory for as long as that lives (contract of `Memory`). Its first fields lie as
        // in the view, which has atomics only.
        unsafe { &*self.cell(seq).cast() }
    }

    /// Tells the programs that this host has released every chunk up to `seq`.
    pub fn set_consumed(&self, seq: u64) {
        self.control().consumed.store(seq, Ordering::Release);
    }

    /// Members whose HELLO has arrived, one bit each.
    pub fn heard(&self) -> u64 {
        self.control().heard.load(Ordering::Acquire)
    }

    /// Members whose HELLO to everyone has arrived, one bit each.
    pub fn overheard(&self) -> u64 {
        self.control().overheard.load(Ordering::Acquire)
    }

    /// Tells the programs that all members hear what goes to all at once.
    pub fn set_multicast(&self) {
        self.control().multicast.store(1, Ordering::Release);
    }

    /// Whether this host does not hear what goes to all at once, though it was thought to.
    pub fn is_deaf(&self) -> bool {
        self.control().missed.load(Ordering::Relaxed) > FB_DEAF_FROM
    }

    /// The number of frames that said what was known already.
    pub fn repeated(&self) -> u64 {
        self.control().repeated.load(Ordering::Relaxed)
    }

    /// Tells the agent of operations begun, and of questions.
    #[inline]
    pub fn tell_calls(&self, calls: u64, asked: u64) {
        self.control().calls.store(calls, Ordering::Relaxed);
        self.control().asked.store(asked, Ordering::Relaxed);
    }

    /// Tells the agent of another call that is left to MPI.
    #[inline]
    pub fn tell_left(&self) {
        // Nobody else writes it.
        let left = self.control().left.load(Ordering::Relaxed);
        self.control().left.store(left + 1, Ordering::Relaxed);
    }

    /// Tells the agent of chunks that the second transport has ended.
    pub fn tell_rescued(&self, rescued: u64) {
        self.control().rescued.store(rescued, Ordering::Relaxed);
    }

    /// Whether frames have come here that cannot be of the collectives that they were taken for.
    pub fn out_of_step(&self) -> bool {
        self.control().mismatched.load(Ordering::Relaxed) != 0
    }

    /// Whether chunk `seq` is there: its result, or its broadcast.
    #[inline]
    pub fn is_ready(&self, seq: u64) -> bool {
        self.head(seq).ready.load(Ordering::Acquire) == seq
    }

    /// Of a ready chunk: the data, and up to which chunk every host is done (results only).
    pub fn result(&self, seq: u64, length: usize) -> (&[u8], u64) {
        debug_assert!(self.is_ready(seq) && length <= self.memory.most_bytes().into());
        let consumed = self.head(seq).consumed.load(Ordering::Relaxed);
        // SAFETY: a ready cell is not written again until this host says that it has released the chunk
        // (window rule, docs/contributing/protocol.md), which takes `set_consumed`, after the borrow.
        (unsafe { self.data(seq, length) }, consumed)
    }

    /// # Safety
    /// The cell has so many bytes, and nobody writes them as long as they are borrowed.
    unsafe fn data(&self, seq: u64, length: usize) -> &[u8] {
        let cell = self.cell(seq);
        // SAFETY: as demanded of this function.
        unsafe { std::slice::from_raw_parts((&raw const (*cell).data).cast::<u8>(), length) }
    }

    /// Of a ready chunk: the kind of frame it came in (a result counts as a contribution), and its
    /// message, see `struct fb_frame`.
    #[inline]
    pub fn terms(&self, seq: u64) -> (fb_kind, u64) {
        debug_assert!(self.is_ready(seq));
        let cell = self.cell(seq);
        // SAFETY: nobody writes to a ready cell, as in `result`.
        unsafe { (fb_kind::from((*cell).kind), (*cell).message) }
    }

    /// Of a ready broadcast or piece, and of this from `source`: its frame, as far as the seal of its payload takes
    /// that, and its payload. `None`: it is another kind of chunk.
    pub fn deposit(&self, seq: u64, source: Option<u8>) -> Option<(fb_frame, &[u8])> {
        debug_assert!(self.is_ready(seq));
        let cell = self.cell(seq);
        // SAFETY: nobody writes to a ready cell, as in `result`.
        unsafe {
            let kind = (*cell).kind;
            if ![FB_KIND_BROADCAST, FB_KIND_PIECE].contains(&fb_kind::from(kind)) {
                return None;
            }
            let length = (*cell).length.min(self.memory.most_bytes());
            let frame = fb_frame {
                magic: FB_WIRE_MAGIC,
                version: FB_WIRE_VERSION as u8,
                kind,
                op: (*cell).op,
                type_: (*cell).type_,
                seq,
                // A broadcast comes from its root.
                source: source.unwrap_or((*cell).target),
                target: (*cell).target,
                length,
                flags: (*cell).flags,
                detail: self.head(seq).arrived.load(Ordering::Relaxed),
                ..Default::default()
            };
            Some((frame, self.data(seq, length.into())))
        }
    }

    /// Has a ready chunk be as if it had not come.
    pub fn discard(&self, seq: u64) {
        let head = self.head(seq);
        let _locked = head.lock();
        // No chunk that the cell takes is between this number and the chunk's own.
        head.seq.store(seq - 1, Ordering::Release);
        head.ready.store(0, Ordering::Release);
    }

    /// Members whose contribution to chunk `seq` has been folded here, one bit each.
    pub fn arrived(&self, seq: u64) -> u64 {
        let head = self.head(seq);
        let (holds, arrived) =
            (head.seq.load(Ordering::Acquire), head.arrived.load(Ordering::Acquire));
        if holds == seq { arrived } else { 0 }
    }

    /// Puts this host's contribution to a chunk that another host aggregates into its cell, from
    /// where the kernel sends it again if asked. Returns the copy, to be sent from.
    pub fn post_contribution(&self, frame: &fb_frame, payload: &[u8]) -> &[u8] {
        self.post(frame, payload, FB_KIND_CONTRIBUTION as u8)
    }

    /// Puts a broadcast of this host into its cell, in the same way.
    pub fn post_broadcast(&self, frame: &fb_frame, payload: &[u8]) -> &[u8] {
        self.post(frame, payload, FB_KIND_BROADCAST as u8)
    }

    /// Puts a piece of this host's parcel to another into its cell, in the same way.
    pub fn post_piece(&self, frame: &fb_frame, payload: &[u8]) -> &[u8] {
        self.post(frame, payload, FB_KIND_PIECE as u8)
    }

    /// The payload of a frame of this host that has been posted.
    pub fn posted(&self, frame: &fb_frame) -> &[u8] {
        // SAFETY: a posted cell, of as many bytes, is written again only when all members have released the chunk, as
        // in `result`.
        unsafe { self.data(frame.seq, frame.length.into()) }
    }

    fn post(&self, frame: &fb_frame, payload: &[u8], kind: u8) -> &[u8] {
        assert!(payload.len() <= self.memory.most_bytes().into());
        let (head, cell) = (self.head(frame.seq), self.cell(frame.seq));
        let is_complete = kind != FB_KIND_CONTRIBUTION as u8;
        let locked = head.lock();
        // Of a broadcast or a piece the seal of its payload, which a program or user-space hook sends on.
        let arrived = if is_complete { frame.detail } else { 0 };
        head.arrived.store(arrived, Ordering::Relaxed);
        head.consumed.store(frame.consumed, Ordering::Relaxed);
        // SAFETY: a cell of the memory, which has room for the payload. Its lock is taken, which keeps the programs
        // out.
        unsafe {
            (*cell).kind = kind;
            (*cell).op = frame.op;
            (*cell).type_ = frame.type_;
            (*cell).target = frame.target;
            (*cell).length = match extent_of(frame) {
                0 => frame.length,
                extent => extent as u16,
            };
            (*cell).part = frame.length;
            (*cell).offset = frame.offset;
            (*cell).flags = frame.flags;
            (*cell).message = frame.message;
            (*cell).fanned_out = 1;
            let data = (&raw mut (*cell).data).cast::<u8>();
            std::ptr::copy_nonoverlapping(payload.as_ptr(), data, payload.len());
        }
        head.seq.store(frame.seq, Ordering::Release);
        if is_complete {
            head.ready.store(frame.seq, Ordering::Release);
        }
        drop(locked);
        // SAFETY: just written; it is written again only when all members have released the chunk, as in `result`.
        unsafe { self.data(frame.seq, payload.len()) }
    }
}

/// Cells in a mapped BPF map, or in memory of this process, which stays mapped as long as a clone lives.
#[derive(Clone)]
pub struct Mapped {
    base: *mut fb_control,
    window: u32,
    cell_bytes: u32,
    _map: Arc<memmap2::MmapMut>,
}

// SAFETY: whoever has the cells changes them by the rules of `Cells` and of the programs, which run on any CPU.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Cells that no program knows, for chunks of up to `chunk` bytes.
    ///
    /// # Errors
    /// There is no memory.
    pub fn own(window: u32, chunk: u16) -> std::io::Result<Self> {
        let cell_bytes = cell_bytes(chunk.into());
        let bytes = (1 + window as usize) * cell_bytes as usize;
        Ok(Self::of(memmap2::MmapMut::map_anon(bytes)?, window, cell_bytes))
    }

    /// Maps the cells that the agent handed over, with so many bytes from one to the next.
    ///
    /// # Errors
    /// What `mmap` says.
    pub fn new(
        cells: &std::os::fd::OwnedFd,
        window: u32,
        cell_bytes: u32,
    ) -> std::io::Result<Self> {
        let bytes = (1 + window as usize) * cell_bytes as usize;
        // SAFETY: the file is a BPF array made for this group alone; it cannot shrink.
        let map = unsafe { memmap2::MmapOptions::new().len(bytes).map_mut(cells)? };
        Ok(Self::of(map, window, cell_bytes))
    }

    fn of(mut map: memmap2::MmapMut, window: u32, cell_bytes: u32) -> Self {
        let data = cell_bytes - self::cell_bytes(0);
        assert!(
            data.is_multiple_of(FB_FOLD_BLOCK) && (FB_FOLD_BLOCK..=FB_JUMBO_BYTES).contains(&data)
        );
        Self { base: map.as_mut_ptr().cast(), window, cell_bytes, _map: Arc::new(map) }
    }
}

// SAFETY: the map has 1 + window elements, page-aligned, for as long as it lives.
unsafe impl Memory for Mapped {
    fn base(&self) -> *mut fb_control {
        self.base
    }

    fn window(&self) -> u32 {
        self.window
    }

    fn cell_bytes(&self) -> usize {
        self.cell_bytes as usize
    }
}
