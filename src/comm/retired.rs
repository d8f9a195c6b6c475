//! Groups of freed communicators, whose peers may still ask for something.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::GroupSlot;
use crate::choice::Profile;
use crate::group::report::HostLine;

/// Calls from one look at them to the next, as long as there are any.
const REAP_CALLS: u32 = 64;

/// All of a process.
#[derive(Default)]
pub struct Retired {
    state: Mutex<State>,
    /// Whether there are any, and calls since there are.
    any: AtomicBool,
    calls: AtomicU32,
}

#[derive(Default)]
struct State {
    groups: Vec<Arc<GroupSlot>>,
    /// Counters of the groups that are gone altogether.
    report: Option<HostLine>,
    /// Measurements on these.
    measured: Profile,
}

impl Retired {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves groups to be destroyed when all their members have taken leave of them.
    pub fn add(&self, groups: impl Iterator<Item = Arc<GroupSlot>>) {
        self.state().groups.extend(groups);
    }

    /// Destroys the groups that all members have left; at the end, all.
    pub fn reap(&self, all: bool) {
        let mut state = self.state();
        let State { groups, report, measured } = &mut *state;
        groups.retain(|slot| {
            // Somebody is at it: a wait for what was started before the communicator was freed.
            let Some(mut folding) = slot.try_folding() else { return true };
            let gone = match folding.as_mut() {
                None => return false,
                Some(_) if all => true,
                Some(folding) if !folding.group.engine.is_idle() => {
                    folding.group.engine.poll(Instant::now);
                    false
                }
                Some(folding) => folding.group.engine.farewell(Instant::now),
            };
            if gone && let Some(folding) = folding.take() {
                measured.add(&folding.ground, folding.router.lines());
                if let Some(line) = folding.group.report() {
                    match report.as_mut() {
                        Some(sum) => sum.add(&line),
                        None => *report = Some(line),
                    }
                }
                if all {
                    folding.group.leave();
                }
            }
            !gone
        });
        self.any.store(!groups.is_empty(), Ordering::Relaxed);
    }

    /// To be called with every collective. Taking leave of a group takes several looks: without these the
    /// last ones that a program frees would keep their slots in the agents until it ends.
    #[inline]
    pub fn reap_now_and_then(&self) {
        if self.any.load(Ordering::Relaxed) {
            self.count_and_reap();
        }
    }

    #[cold]
    fn count_and_reap(&self) {
        if self.calls.fetch_add(1, Ordering::Relaxed) % REAP_CALLS == REAP_CALLS - 1 {
            self.reap(false);
        }
    }

    /// Takes the measurements on the groups that are gone.
    pub fn take_measured(&self) -> Profile {
        std::mem::take(&mut self.state().measured)
    }

    /// Takes this host's kernel counters of the groups that are gone.
    pub fn take_report(&self) -> Option<HostLine> {
        self.state().report.take()
    }
}
