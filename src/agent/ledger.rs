//! The groups and the cell memory of each user. Pure but for asking whether a map is gone.
//!
//! Cells stay in memory as long as somebody holds or maps them, also after their group is gone. So
//! a destroyed group's cells count until the kernel says that the map is no more. Otherwise a user
//! could take any amount of memory by making and destroying groups.

use crate::agent::error::{Error, ErrorKind, Result};
use crate::agent::options::Limits;
use crate::bindings::FB_MAX_GROUPS;

/// Destroyed maps that are remembered before they are checked without need.
const RETIRED_MANY: usize = 1024;

struct Entry {
    uid: u32,
    map: u32,
    bytes: u64,
    kind: Kind,
    /// The group is gone, the map perhaps not.
    retired: bool,
}

/// The use of a map.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The cells of a group.
    Cells,
    /// A table of pairs, beside them.
    Table,
}

/// The groups of each user, and their memory.
#[derive(Default)]
pub(crate) struct Ledger {
    entries: Vec<Entry>,
}

impl Ledger {
    /// Whether a user may have another group. `map_exists` is asked only at the limit.
    pub(crate) fn admit(
        &mut self,
        uid: u32,
        bytes: u64,
        limits: &Limits,
        map_exists: impl Fn(u32) -> bool,
    ) -> Result<()> {
        let is_group = |entry: &&Entry| !entry.retired && entry.kind == Kind::Cells;
        let groups = || self.entries.iter().filter(is_group);
        let (own, all) = (groups().filter(|entry| entry.uid == uid).count(), groups().count());
        let most = limits.groups.min(FB_MAX_GROUPS) as usize;
        if own >= limits.groups_per_user || !Limits::leaves_a_share(own, all, most) {
            let message =
                format!("user {uid} has {own} groups of this host's {all}, which is the limit");
            return Err(Error::new(ErrorKind::Limit, message));
        }
        self.admit_bytes(uid, bytes, limits, map_exists)
    }

    /// Whether a user may have so many bytes more. `map_exists` is asked only at the limit.
    pub(crate) fn admit_bytes(
        &mut self,
        uid: u32,
        bytes: u64,
        limits: &Limits,
        map_exists: impl Fn(u32) -> bool,
    ) -> Result<()> {
        if self.bytes(uid) + bytes > limits.cell_bytes_per_user {
            self.forget_gone(&map_exists);
        }
        let held = self.bytes(uid);
        if held + bytes > limits.cell_bytes_per_user {
            let message = format!(
                "user {uid} holds {held} bytes of cells and tables and may not have {bytes} more (limit {})",
                limits.cell_bytes_per_user
            );
            return Err(Error::new(ErrorKind::Limit, message));
        }
        Ok(())
    }

    /// Cells or a table were made.
    pub(crate) fn add(&mut self, uid: u32, map: u32, bytes: u64, kind: Kind) {
        self.entries.push(Entry { uid, map, bytes, kind, retired: false });
    }

    /// Their group was destroyed.
    pub(crate) fn retire(&mut self, map: u32, map_exists: impl Fn(u32) -> bool) {
        for entry in self.entries.iter_mut().filter(|entry| entry.map == map) {
            entry.retired = true;
        }
        if self.entries.iter().filter(|entry| entry.retired).count() > RETIRED_MANY {
            self.forget_gone(&map_exists);
        }
    }

    fn forget_gone(&mut self, map_exists: &impl Fn(u32) -> bool) {
        self.entries.retain(|entry| !entry.retired || map_exists(entry.map));
    }

    fn bytes(&self, uid: u32) -> u64 {
        self.entries.iter().filter(|entry| entry.uid == uid).map(|entry| entry.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits { groups_per_user: 2, cell_bytes_per_user: 100, ..Limits::default() }
    }

    #[test]
    fn each_user_has_limits_of_his_own() {
        let mut ledger = Ledger::default();
        for map in [1, 2] {
            ledger.admit(7, 10, &limits(), |_| true).unwrap();
            ledger.add(7, map, 10, Kind::Cells);
        }
        assert_eq!(ledger.admit(7, 10, &limits(), |_| true).unwrap_err().kind(), ErrorKind::Limit);
        assert!(ledger.admit(8, 100, &limits(), |_| true).is_ok());
        assert!(ledger.admit(8, 101, &limits(), |_| true).is_err());
        ledger.retire(1, |_| true);
        assert!(ledger.admit(7, 10, &limits(), |_| true).is_ok());
    }

    #[test]
    fn tables_count_as_memory_and_as_no_groups() {
        let mut ledger = Ledger::default();
        for map in 1..=3 {
            ledger.admit_bytes(7, 20, &limits(), |_| true).unwrap();
            ledger.add(7, map, 20, Kind::Table);
        }
        assert!(ledger.admit(7, 40, &limits(), |_| true).is_ok());
        assert!(ledger.admit_bytes(7, 41, &limits(), |_| true).is_err());
        ledger.retire(1, |_| true);
        assert!(ledger.admit_bytes(7, 41, &limits(), |_| false).is_ok());
    }

    #[test]
    fn destroyed_cells_count_while_somebody_holds_them() {
        let mut ledger = Ledger::default();
        ledger.add(7, 1, 90, Kind::Cells);
        ledger.retire(1, |_| true);
        assert!(ledger.admit(7, 20, &limits(), |_| true).is_err());
        assert!(ledger.admit(7, 20, &limits(), |_| false).is_ok());
    }

    #[test]
    fn the_books_do_not_grow_for_ever() {
        let mut ledger = Ledger::default();
        for map in 0..10_000 {
            ledger.add(7, map, 0, Kind::Cells);
            ledger.retire(map, |_| false);
        }
        assert!(ledger.entries.len() <= RETIRED_MANY + 1);
    }
}
