//! The slots of groups in the kernel, and the cells that lie in them.
//!
//! Putting a map of cells into a slot, or taking it out, takes a grace period of RCU. That is 5 to 20 ms on an
//! idle machine, far more on a busy one. A program that has looked up a group may still be about to look up its
//! cells, so a slot must also have had one between two groups. Hence many slots are turned over at a time, with
//! one wait. Slots that were given back lose their cells, and clean ones get new cells, in stock for groups to
//! come. If possible, that is done when nobody waits for the agent.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use crate::agent::error::{Error, ErrorKind, Result};
use crate::agent::programs::{CellMap, Programs};

/// Most slots in stock, and given back before they are turned over without need.
const MOST_STOCK: usize = 8;
const MOST_DIRTY: usize = 16;

struct Stocked {
    slot: u32,
    window: u32,
    cells: CellMap,
}

/// All slots that no group has.
pub(crate) struct Slots {
    /// Without cells, and nobody remembers the group that had it. The one that has been so for
    /// longest goes first.
    clean: VecDeque<u32>,
    /// Given back, cells and all.
    dirty: Vec<u32>,
    /// Slots whose cells are made already.
    stock: Vec<Stocked>,
    /// The window of the group that was made last: the next one's will be like it.
    window: Option<u32>,
    /// The number to have in stock: more while groups come faster than the stock is filled.
    wanted: usize,
    /// A map with next to nothing in it, for slots without cells.
    empty: CellMap,
}

impl Slots {
    pub(crate) fn new(count: u32, programs: &Programs) -> Result<Self> {
        Ok(Self {
            clean: (0..count).collect(),
            dirty: Vec::new(),
            stock: Vec::new(),
            window: None,
            wanted: 1,
            empty: programs.create_cells(0)?,
        })
    }

    /// A slot with cells that nobody has seen; `None`: all are taken.
    pub(crate) fn take(
        &mut self,
        window: u32,
        programs: &Programs,
    ) -> Result<Option<(u32, CellMap)>> {
        self.prepare(window, programs)?;
        if self.stock.is_empty() && !self.clean.is_empty() {
            // They were given back a moment ago.
            self.turn_over(1, window, programs)?;
        }
        let found = self.stock.iter().position(|stocked| stocked.window == window);
        Ok(found.map(|index| {
            let Stocked { slot, cells, .. } = self.stock.swap_remove(index);
            (slot, cells)
        }))
    }

    /// Has a slot in stock for a group that is to come, if one is left.
    pub(crate) fn prepare(&mut self, window: u32, programs: &Programs) -> Result<()> {
        if !self.stock.iter().any(|stocked| stocked.window == window) {
            if !self.dirty.is_empty() {
                self.wanted = (self.wanted * 2).min(MOST_STOCK);
            }
            self.turn_over(self.wanted, window, programs)?;
        }
        self.window = Some(window);
        Ok(())
    }

    /// Takes a slot back. Its group must be gone from the programs' map.
    pub(crate) fn give_back(&mut self, slot: u32, programs: &Programs) {
        self.dirty.push(slot);
        if self.dirty.len() >= MOST_DIRTY {
            self.clear(programs);
        }
    }

    /// Frees the cells of all slots that were given back.
    pub(crate) fn clear(&mut self, programs: &Programs) {
        if !self.dirty.is_empty()
            && let Err(error) = self.turn_over(0, 0, programs)
        {
            log::warn!("cells of groups that are gone stay: {error}");
        }
    }

    /// Frees the cells in stock too.
    pub(crate) fn clear_all(&mut self, programs: &Programs) {
        self.dirty.extend(self.stock.drain(..).map(|stocked| stocked.slot));
        (self.window, self.wanted) = (None, 1);
        self.clear(programs);
    }

    /// Does work ahead for the next group: frees the cells of slots that were given back, and fills the stock.
    pub(crate) fn tend(&mut self, programs: &Programs) {
        let Some(window) = self.window else { return self.clear(programs) };
        let lacking = self.wanted.saturating_sub(self.stock.len());
        if let Err(error) = self.turn_over(lacking, window, programs) {
            log::debug!("the stock of slots is not filled: {error}");
        }
    }

    /// Takes the cells out of dirty slots, and puts `count` into stock, or as many as there are clean
    /// slots. Stock for another window makes room.
    fn turn_over(&mut self, count: usize, window: u32, programs: &Programs) -> Result<()> {
        if count > 0 {
            let others = self.stock.extract_if(.., |stocked| stocked.window != window);
            self.dirty.extend(others.map(|stocked| stocked.slot));
        }
        let count = count.min(self.clean.len());
        let mut fresh = Vec::new();
        for slot in self.clean.iter().take(count) {
            match programs.create_cells(window) {
                Ok(cells) => fresh.push(Stocked { slot: *slot, window, cells }),
                Err(error) if fresh.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        let emptied = self.dirty.iter().map(|slot| (*slot, self.empty.as_fd()));
        let filled = fresh.iter().map(|stocked| (stocked.slot, stocked.cells.as_fd()));
        let all: Vec<(u32, BorrowedFd<'_>)> = emptied.chain(filled).collect();
        if all.is_empty() {
            return Ok(());
        }
        programs.put_cells(&all).map_err(|error| {
            Error::new(ErrorKind::Kernel, format!("turning slots over: {error}"))
        })?;
        self.clean.drain(..fresh.len());
        self.clean.extend(self.dirty.drain(..));
        self.stock.extend(fresh);
        Ok(())
    }
}
