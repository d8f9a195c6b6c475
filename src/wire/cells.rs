//! A group's cells, as its leader process sees them: shared memory written by the BPF programs.
//!
//! The layout and the states of a cell are in `bpf/intf.h`.
#![allow(unsafe_code)]

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

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

    fn control(&self) -> *mut fb_control {
        self.memory.base()
    }

    fn cell(&self, seq: u64) -> *mut fb_cell {
        self.memory.cell(seq)
    }

    /// Tells the programs that this host has released every chunk up to `seq`.
    pub fn set_consumed(&self, seq: u64) {
        // SAFETY: the field is in the memory, aligned, and shared with programs that read it whole.
        let consumed = unsafe { AtomicU64::from_ptr(&raw mut (*self.control()).consumed) };
        consumed.store(seq, Ordering::Release);
    }

    /// Members whose HELLO has arrived, one bit each.
    pub fn heard(&self) -> u64 {
        // SAFETY: as in `set_consumed`.
        let heard = unsafe { AtomicU64::from_ptr(&raw mut (*self.control()).heard) };
        heard.load(Ordering::Acquire)
    }

    /// Members whose HELLO to everyone has arrived, one bit each.
    pub fn overheard(&self) -> u64 {
        // SAFETY: as in `set_consumed`.
        let overheard = unsafe { AtomicU64::from_ptr(&raw mut (*self.control()).overheard) };
        overheard.load(Ordering::Acquire)
    }

    /// Tells the programs that all members hear what goes to all at once.
    pub fn set_multicast(&self) {
        // SAFETY: as in `set_consumed`.
        let multicast = unsafe { AtomicU32::from_ptr(&raw mut (*self.control()).multicast) };
        multicast.store(1, Ordering::Release);
    }

    /// Whether this host does not hear what goes to all at once, though it was thought to.
    pub fn is_deaf(&self) -> bool {
        // SAFETY: as in `set_consumed`.
        let missed = unsafe { AtomicU32::from_ptr(&raw mut (*self.control()).missed) };
        missed.load(Ordering::Relaxed) > FB_DEAF_FROM
    }

    /// The number of frames that said what was known already.
    pub fn repeated(&self) -> u64 {
        // SAFETY: as in `set_consumed`.
        let repeated = unsafe { AtomicU64::from_ptr(&raw mut (*self.control()).repeated) };
        repeated.load(Ordering::Relaxed)
    }

    /// Whether chunk `seq` is there: its result, or its broadcast.
    #[inline]
    pub fn is_ready(&self, seq: u64) -> bool {
        // SAFETY: the field is in the memory, aligned, and changed by atomic exchange only.
        let ready = unsafe { AtomicU64::from_ptr(&raw mut (*self.cell(seq)).ready) };
        ready.load(Ordering::Acquire) == seq
    }

    /// Of a ready chunk: the data, and up to which chunk every host is done (results only).
    pub fn result(&self, seq: u64, length: usize) -> (&[u8], u64) {
        debug_assert!(self.is_ready(seq) && length <= self.memory.most_bytes().into());
        let cell = self.cell(seq);
        // SAFETY: a ready cell is not written again until this host says that it has released the chunk
        // (window rule, docs/contributing/protocol.md), which takes `set_consumed`, after the borrow.
        unsafe {
            let data = std::slice::from_raw_parts((&raw const (*cell).data).cast::<u8>(), length);
            (data, (*cell).consumed)
        }
    }

    /// Of a ready chunk: the kind of frame it came in (a result counts as a contribution), and its
    /// message, see `struct fb_frame`.
    #[inline]
    pub fn terms(&self, seq: u64) -> (fb_kind, u64) {
        debug_assert!(self.is_ready(seq));
        let cell = self.cell(seq);
        // SAFETY: as in `result`.
        unsafe { (fb_kind::from((*cell).kind), (*cell).message) }
    }

    /// Of a ready broadcast or piece, and of this from `source`: its frame, as far as the seal of its payload takes that, and
    /// its payload. `None`: it is another kind of chunk.
    pub fn deposit(&self, seq: u64, source: Option<u8>) -> Option<(fb_frame, &[u8])> {
        debug_assert!(self.is_ready(seq));
        let cell = self.cell(seq);
        // SAFETY: as in `result`.
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
                detail: (*cell).arrived,
                ..Default::default()
            };
            let data = (&raw const (*cell).data).cast::<u8>();
            Some((frame, std::slice::from_raw_parts(data, length.into())))
        }
    }

    /// Has a ready chunk be as if it had not come.
    pub fn discard(&self, seq: u64) {
        let cell = self.cell(seq);
        // SAFETY: as in `post`.
        unsafe {
            let lock = self.lock(cell);
            // No chunk that the cell takes is between this number and the chunk's own.
            AtomicU64::from_ptr(&raw mut (*cell).seq).store(seq - 1, Ordering::Release);
            AtomicU64::from_ptr(&raw mut (*cell).ready).store(0, Ordering::Release);
            lock.store(0, Ordering::Release);
        }
    }

    /// Takes the cell's lock, which keeps the programs out. They hold it for microseconds, and never wait with it taken.
    ///
    /// # Safety
    /// The cell is of this memory.
    unsafe fn lock(&self, cell: *mut fb_cell) -> &AtomicU32 {
        // SAFETY: an aligned field of the memory.
        let lock = unsafe { AtomicU32::from_ptr(&raw mut (*cell).lock) };
        while lock.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            std::hint::spin_loop();
        }
        lock
    }

    /// Whether frames have come here that cannot be of the collectives that they were taken for.
    pub fn out_of_step(&self) -> bool {
        // SAFETY: as in `set_consumed`.
        let mismatched = unsafe { AtomicU64::from_ptr(&raw mut (*self.control()).mismatched) };
        mismatched.load(Ordering::Relaxed) != 0
    }

    /// Members whose contribution to chunk `seq` has been folded here, one bit each.
    pub fn arrived(&self, seq: u64) -> u64 {
        let cell = self.cell(seq);
        // SAFETY: aligned fields of the memory, written whole by the programs.
        let (holds, arrived) = unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*cell).seq).load(Ordering::Acquire),
                AtomicU64::from_ptr(&raw mut (*cell).arrived).load(Ordering::Acquire),
            )
        };
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

    /// The payload of a frame of this host that has been posted.
    pub fn posted(&self, frame: &fb_frame) -> &[u8] {
        let cell = self.cell(frame.seq);
        // SAFETY: as in `result`; a posted cell is written again only when all have released it.
        unsafe {
            let data = (&raw const (*cell).data).cast::<u8>();
            std::slice::from_raw_parts(data, usize::from(frame.length))
        }
    }

    fn post(&self, frame: &fb_frame, payload: &[u8], kind: u8) -> &[u8] {
        assert!(payload.len() <= self.memory.most_bytes().into());
        let cell = self.cell(frame.seq);
        // SAFETY: aligned fields of the memory. The lock keeps the programs out while the cell
        // changes hands.
        unsafe {
            let lock = self.lock(cell);
            // Of a broadcast the seal of its payload, which a program or deputy sends on.
            (*cell).arrived = if kind == FB_KIND_BROADCAST as u8 { frame.detail } else { 0 };
            (*cell).consumed = frame.consumed;
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
            AtomicU64::from_ptr(&raw mut (*cell).seq).store(frame.seq, Ordering::Release);
            if kind == FB_KIND_BROADCAST as u8 {
                AtomicU64::from_ptr(&raw mut (*cell).ready).store(frame.seq, Ordering::Release);
            }
            lock.store(0, Ordering::Release);
            std::slice::from_raw_parts(data, payload.len())
        }
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
