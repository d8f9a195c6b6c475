//! The work of the programs for a group, done in user space: on the same cells, by the same C.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::bindings as b;
use crate::wire::cells::Memory;
use crate::wire::table::TableMemory;
use crate::wire::{Identity, native};

/// Sends frames to other members, without the programs. Losing one is no error.
pub trait Datagrams {
    /// Sends `frame` and `payload` to `member`.
    fn send(&self, member: u8, frame: &b::fb_frame, payload: &[u8]);

    /// Has what came for this process taken in, now, if nobody else does.
    fn take_in(&self) {}

    /// Frames that are sent, or their answers, are lost: for some time, every means is right.
    fn by_all_means(&self) {}
}

/// Stands in for the programs of one host, for one group.
///
/// The programs may be at work at the same time, and nobody has to know. Any work under a cell's lock is right
/// for both, and a frame that comes twice says nothing new.
pub struct UserspaceHook<M, D> {
    group: native::Group,
    memory: M,
    /// The group's table of pairs, from when it has one.
    table: OnceLock<Box<dyn TableMemory>>,
    out: D,
    counters: Mutex<b::fb_counters>,
}

impl<M: Memory, D: Datagrams> UserspaceHook<M, D> {
    /// A hook that works the cells in `memory`.
    pub fn new(identity: &Identity, memory: M, out: D) -> Self {
        let group = native::Group::new(identity, memory.window());
        Self { group, memory, table: OnceLock::new(), out, counters: Mutex::default() }
    }

    /// Has pairs folded in a table, from now on. A group has one table at most: a second one is not taken.
    pub fn set_table(&self, table: Box<dyn TableMemory>) {
        let _first = self.table.set(table);
    }

    fn lock(&self) -> MutexGuard<'_, b::fb_counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The work so far, as the programs count it.
    pub fn counters(&self) -> b::fb_counters {
        *self.lock()
    }

    /// Nothing has come for long, though this member has asked.
    pub fn by_all_means(&self) {
        self.out.by_all_means();
    }

    /// The way to the other members.
    pub fn out(&self) -> &D {
        &self.out
    }

    /// Has what came for this process taken in, now.
    pub fn poll(&self) {
        self.out.take_in();
    }

    /// A frame has come from the member that it names, in a datagram of as many bytes as both have.
    pub fn take_in(&self, frame: &b::fb_frame, payload: &[u8]) {
        if self.group.admits(frame, size_of::<b::fb_frame>() + payload.len()) {
            self.lock().frames_in += 1;
            self.enter(frame, payload);
        } else {
            self.lock().drop_malformed += 1;
        }
    }

    /// A HELLO has come, in a datagram with nothing behind it. Whether the member that it names sent it.
    pub fn admits_hello(&self, hello: &b::fb_frame, payload: &[u8]) -> bool {
        let seal = &self.group.identity().seal;
        let is_theirs = seal.holds(hello, payload);
        if !is_theirs {
            *seal.counter(&mut self.lock()) += 1;
        }
        is_theirs && payload.is_empty()
    }

    /// This host's leader sends a frame. See `fb_let_out()` in `bpf/tc.bpf.h`.
    pub fn let_out(&self, member: u8, frame: &b::fb_frame, payload: &[u8]) {
        let direct = u32::from(frame.flags) == b::FB_FLAG_DIRECT;
        match u32::from(frame.kind) {
            b::FB_KIND_CONTRIBUTION if direct => {
                self.enter(frame, payload);
                self.fan_out(frame, payload);
            }
            b::FB_KIND_CONTRIBUTION if frame.target == self.group.identity().me => {
                self.enter(frame, payload);
            }
            b::FB_KIND_BROADCAST => self.fan_out(frame, payload),
            _ => self.send(member, frame, payload),
        }
    }

    fn enter(&self, frame: &b::fb_frame, payload: &[u8]) {
        let mut counters = self.lock();
        let reply = if !native::is_tabled(frame) {
            native::enter(&self.memory, &self.group, &mut counters, frame, payload, true)
        } else if let Some(table) = self.table.get() {
            native::enter_table(&**table, &self.group, &mut counters, frame, payload)
        } else {
            counters.drop_window += 1;
            return;
        };
        drop(counters);
        for member in
            self.group.identity().others().filter(|member| reply.mask() >> member & 1 == 1)
        {
            self.send(member, reply.frame(), reply.payload());
        }
    }

    fn fan_out(&self, frame: &b::fb_frame, payload: &[u8]) {
        let others = self.group.identity().others();
        for member in others.filter(|member| native::goes_to(frame, *member)) {
            self.send(member, frame, payload);
        }
    }

    fn send(&self, member: u8, frame: &b::fb_frame, payload: &[u8]) {
        self.lock().frames_out += 1;
        self.out.send(member, frame, payload);
    }
}
