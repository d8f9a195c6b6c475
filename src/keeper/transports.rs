//! The transports of a leader's frames: by the programs; while those are in doubt, by the second transport as well;
//! or by it alone, where there are no programs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::userspace_hook::{Datagrams, UserspaceHook};
use crate::bindings::{self as b, fb_frame};
use crate::wire::Transport;
use crate::wire::cells::Memory;
use crate::wire::table::TableMemory;

/// Times that a leader asks in vain, by the programs alone, before it takes both ways: 2, 4 and 8 ms.
const IN_VAIN: u32 = 3;
/// Times that it asks in vain by both ways before it takes every means there is: 0.6 seconds.
const IN_VAIN_BY_BOTH: u32 = 10;
/// Chunks rescued in one time of doubt after which a warning is due. A network that loses a frame now and
/// then needs no warning for one rescue.
const WORTH_A_WARNING: u64 = 16;
/// Steps forward that were the programs' own, one after the other, until these are trusted again.
const TRUSTED_AFTER: u32 = 64;

/// A process says it once, whatever the number of its groups.
static WARNED: AtomicBool = AtomicBool::new(false);

/// The ways out of one member: `A` by the programs, the user-space hook without them.
pub struct Transports<A, M, D> {
    /// `None`: there are no programs.
    first: Option<A>,
    second: Option<Arc<UserspaceHook<M, D>>>,
    /// Frames take the second way.
    use_both: bool,
    /// Times asked in vain, one after the other.
    in_vain: u32,
    /// The group is at work, and its ways have worked before: if they fail now, all means are right.
    at_work: bool,
    /// Chunks that the hook had rescued when the doubt began, and at the last look; and looks since.
    before: u64,
    rescued: u64,
    clean: u32,
}

impl<A, M: Memory, D: Datagrams> Transports<A, M, D> {
    fn over(first: Option<A>, second: Option<Arc<UserspaceHook<M, D>>>) -> Self {
        let use_both = first.is_none();
        let (in_vain, at_work) = (0, false);
        Self { first, second, use_both, in_vain, at_work, before: 0, rescued: 0, clean: 0 }
    }

    /// Ways out, by the programs alone so far.
    pub fn new(first: A) -> Self {
        Self::over(Some(first), None)
    }

    /// The second way alone.
    pub fn without_programs(second: Arc<UserspaceHook<M, D>>) -> Self {
        Self::over(None, Some(second))
    }

    /// Whether there are programs, well or not.
    pub fn has_programs(&self) -> bool {
        self.first.is_some()
    }

    /// Adds the second way, when the programs are known to work, or nobody would notice that they do not.
    pub fn add(&mut self, second: Arc<UserspaceHook<M, D>>) {
        self.second = Some(second);
    }

    /// Frames of pairs work on a table.
    pub fn set_table(&self, table: Box<dyn TableMemory>) {
        if let Some(second) = &self.second {
            second.set_table(table);
        }
    }

    /// The ways have been found to work.
    pub fn go_to_work(&mut self) {
        self.at_work = true;
    }

    /// Chunks that came to their end here by the second way, though there are programs.
    pub fn rescued(&self) -> u64 {
        let second = self.second.as_ref().filter(|_| self.first.is_some());
        second.map_or(0, |hook| rescued(&hook.counters()))
    }

    /// The work of the user-space hook in place of the programs, as they count it.
    pub fn counters(&self) -> b::fb_counters {
        self.second.as_ref().map(|hook| hook.counters()).unwrap_or_default()
    }

    /// Away from the way of frames that programs bring.
    #[inline(never)]
    fn receive(&self) {
        if let Some(hook) = &self.second {
            hook.poll();
        }
    }

    #[inline(never)]
    fn send_second(&self, member: u8, frame: &fb_frame, payload: &[u8]) {
        if let Some(hook) = &self.second {
            hook.let_out(member, frame, payload);
        }
    }

    #[cold]
    fn look(&mut self) {
        if self.first.is_none() {
            return;
        }
        let rescued = self.rescued();
        if rescued == self.rescued {
            self.clean += 1;
            // A slow member, without a lost frame, is no reason for doubt.
            self.use_both = self.rescued > 0 && self.clean < TRUSTED_AFTER;
            return;
        }
        (self.rescued, self.clean) = (rescued, 0);
        if rescued - self.before >= WORTH_A_WARNING && !WARNED.swap(true, Ordering::Relaxed) {
            log::warn!(
                "frames do not come through by the kernel's programs any more: going on by ordinary sockets, \
                 which is slower. Is `foldback agent` running on every host, and its UDP port open?"
            );
        }
    }
}

/// A chunk is there when its result, a broadcast or a piece is deposited, or its last contribution folded.
fn rescued(counters: &b::fb_counters) -> u64 {
    counters.deposited + counters.chunks_completed
}

impl<A: Transport, M: Memory, D: Datagrams> Transport for Transports<A, M, D> {
    #[inline]
    fn send(&mut self, member: u8, frame: &fb_frame, payload: &[u8]) {
        if let Some(first) = &mut self.first {
            first.send(member, frame, payload);
        }
        if self.use_both {
            self.send_second(member, frame, payload);
        }
    }

    fn send_many(&mut self, member: u8, frames: &[(fb_frame, &[u8])]) {
        if let Some(first) = &mut self.first {
            first.send_many(member, frames);
        }
        if self.use_both {
            frames.iter().for_each(|(frame, payload)| self.send_second(member, frame, payload));
        }
    }

    fn is_queued(&self) -> bool {
        self.first.as_ref().is_some_and(Transport::is_queued)
    }

    fn came_twice(&self) -> u64 {
        let second = self.second.as_ref().filter(|_| self.first.is_some());
        second.map_or(0, |hook| hook.counters().duplicates)
    }

    /// With programs the keeper is enough: it is there for when they fail.
    #[inline]
    fn take_in(&mut self) {
        if self.first.is_none() {
            self.receive();
        }
    }

    fn asked_in_vain(&mut self) {
        self.in_vain += 1;
        if self.in_vain >= IN_VAIN && self.second.is_some() {
            if !std::mem::replace(&mut self.use_both, true) {
                self.before = self.rescued;
            }
            self.clean = 0;
        }
        if let Some(second) = self.second.as_ref().filter(|_| self.at_work)
            && self.in_vain >= IN_VAIN_BY_BOTH
        {
            second.by_all_means();
        }
    }

    #[inline]
    fn made_progress(&mut self) {
        self.in_vain = 0;
        if self.use_both {
            self.look();
        }
    }
}
