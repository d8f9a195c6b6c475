//! The order of a group's collectives while scripts are under way.
//!
//! All ranks must start the collectives of a group in one order. The steps of a script come one after the other, at
//! other times on each rank. So a collective that the program starts behind a script waits here until the script is
//! over. Then the order on each rank is the order of the program's calls.
#![allow(unsafe_code)]

use std::collections::VecDeque;

use super::{Engine, Job, Outcome, Script, Step, Ticket};
use crate::wire::cells::Memory;
use crate::wire::{Algorithm, Transport};

/// Scripts under way, and the collectives behind them, oldest first. The first one is a script.
#[derive(Default)]
pub(super) struct Turns(VecDeque<Turn>);

enum Turn {
    Job { job: Job, algorithm: Algorithm, over: Outcome },
    Script(Running),
}

/// A script under way.
struct Running {
    script: Box<dyn Script>,
    /// The algorithm of jobs that kernels can fold, if there is but one to be used.
    only: Option<Algorithm>,
    /// The job of the step before. `None`: the script has not begun.
    job: Option<Ticket>,
    over: Outcome,
}

impl<M: Memory, F: Transport> Engine<M, F> {
    /// Whether scripts are under way, so that a collective has to wait for its turn.
    #[inline]
    pub fn has_scripts(&self) -> bool {
        !self.turns.0.is_empty()
    }

    /// Starts a collective, now or when the scripts before it are over. `over` is set when it has ended on this rank.
    ///
    /// # Safety
    /// What [`Job`] says of its pointers.
    pub unsafe fn start_in_turn(&mut self, job: Job, algorithm: Algorithm, over: Outcome) {
        if self.has_scripts() {
            self.turns.0.push_back(Turn::Job { job, algorithm, over });
        } else {
            // SAFETY: as demanded of this function.
            unsafe { self.start(job, algorithm, Some(over)) };
        }
    }

    /// Runs a script to its end, from now on or when the scripts before it are over. `over` is set then. `only` is the
    /// algorithm of jobs that kernels can fold, if there is but one to be used.
    ///
    /// # Safety
    /// *Buffers* of the [program](crate::mpi), which the script works with, until it is over.
    pub unsafe fn run(&mut self, script: Box<dyn Script>, only: Option<Algorithm>, over: Outcome) {
        self.turns.0.push_back(Turn::Script(Running { script, only, job: None, over }));
        if self.turns.0.len() == 1 {
            self.take_turns();
        }
    }

    /// Takes the steps that are due. Says whether there were any.
    #[cold]
    pub(super) fn take_turns(&mut self) -> bool {
        let mut moved = false;
        while let Some(turn) = self.turns.0.pop_front() {
            match turn {
                Turn::Job { job, algorithm, over } => {
                    // SAFETY: the job's pointers, promised to `start_in_turn`.
                    unsafe { self.start(job, algorithm, Some(over)) };
                }
                Turn::Script(running) => match self.step(running) {
                    Stepped::Over => {}
                    Stepped::Goes(running) => {
                        self.turns.0.push_front(Turn::Script(running));
                        return true;
                    }
                    Stepped::Waits(running) => {
                        self.turns.0.push_front(Turn::Script(running));
                        return moved;
                    }
                },
            }
            moved = true;
        }
        moved
    }

    /// Takes the next step of a script, if its job is over.
    fn step(&mut self, mut running: Running) -> Stepped {
        let outcome = match running.job {
            None => Ok(()),
            Some(ticket) if self.is_over(ticket) => self.outcome(ticket),
            Some(_) => return Stepped::Waits(running),
        };
        // SAFETY: the job is over; the program's buffers, promised to `run`.
        match unsafe { running.script.next(outcome) } {
            Step::Job(job, _) => {
                let algorithm = self.algorithm(&job, running.only);
                // SAFETY: the job's pointers, which the script keeps.
                running.job = Some(unsafe { self.start(job, algorithm, None) });
                Stepped::Goes(running)
            }
            Step::Over(outcome) => {
                let Running { script, over, .. } = running;
                // A thread that sees that it is over may begin the next one, which wants its memory.
                drop(script);
                let _ = over.set(outcome);
                Stepped::Over
            }
            Step::Otherwise => unreachable!("a call that does not block stays in its group"),
        }
    }
}

/// A script after a step, or before one that is not due.
enum Stepped {
    Goes(Running),
    Waits(Running),
    Over,
}
