//! The places of an exchange's pieces in a group's sequence. Pure.

use crate::bindings as b;

/// The ends of an exchange's parcels among `R`, as far as all of these know them: the members of a group, or the ranks
/// of a communicator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parties<R> {
    /// Any two may have parcels for each other.
    #[default]
    Any,
    /// All parcels go to this one, or all come from it.
    Hub(R),
    /// Each one's parcels, to whomever they go, are the same: a vector. It leaves a host in one frame for all.
    Vectors,
}

impl<R> Parties<R> {
    /// The same among others.
    pub fn map<S>(self, hub: impl Fn(R) -> S) -> Parties<S> {
        match self {
            Self::Any => Parties::Any,
            Self::Hub(of) => Parties::Hub(hub(of)),
            Self::Vectors => Parties::Vectors,
        }
    }

    /// The one at an end of all parcels.
    pub fn hub(self) -> Option<R> {
        match self {
            Self::Hub(hub) => Some(hub),
            Self::Any | Self::Vectors => None,
        }
    }
}

/// The numbers of an exchange: a row of each parcel for each sum of two members, by direction.
///
/// The sum of a pair, modulo the number of members, tells each of the two the other. So under one number no host is in
/// two pairs: it has one outgoing piece, or one incoming piece, or none. With a hub, the other member tells the pair.
/// Of vectors the sender alone tells: under its number everybody else has the one incoming piece, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pairs {
    /// Its first number in the sequence.
    pub(super) base: u64,
    /// Chunks that a parcel may have.
    pub(super) rows: usize,
    pub(super) members: u8,
    pub(super) parties: Parties<u8>,
}

impl Pairs {
    /// How much of the sequence it takes.
    pub(super) fn numbers(&self) -> u64 {
        let directions = if self.parties == Parties::Any { 2 } else { 1 };
        (directions * usize::from(self.members) * self.rows) as u64
    }

    /// The number of a piece from one member to another.
    pub(super) fn piece(&self, from: u8, to: u8, row: usize) -> u64 {
        let [i, j] = [from, to].map(usize::from);
        let matching = match self.parties {
            Parties::Hub(hub) if hub == from => j,
            Parties::Hub(_) | Parties::Vectors => i,
            Parties::Any => 2 * ((i + j) % usize::from(self.members)) + usize::from(i > j),
        };
        self.base + (matching * self.rows + row) as u64
    }
}

/// Most chunks of a parcel, in groups of so many members. An exchange takes a quarter of the window at most, and a
/// parcel is a super-frame at most. 0: the window is too small for any.
pub(super) fn most_rows(members: usize, window: u64) -> usize {
    (window as usize / (8 * members)).min(b::FB_MOST_FRAMES as usize)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Every piece has a number of its own at both of its ends, within the exchange.
    #[test]
    fn a_number_names_one_piece_of_a_host() {
        for (members, rows) in [(2, 1), (2, 44), (3, 5), (5, 1), (8, 16), (63, 2), (64, 2)] {
            let pairs = Pairs { base: 7, rows, members, parties: Parties::Any };
            for host in 0..members {
                let mut seen = BTreeSet::new();
                for other in (0..members).filter(|other| *other != host) {
                    for row in 0..rows {
                        for number in [pairs.piece(host, other, row), pairs.piece(other, host, row)]
                        {
                            assert!(seen.insert(number), "{pairs:?}: {host} {other} {row}");
                            assert!((7..7 + pairs.numbers()).contains(&number));
                        }
                    }
                }
            }
        }
    }

    /// All others have numbers of their own, whichever way their parcels go.
    #[test]
    fn a_number_names_one_piece_of_a_hub() {
        for (members, rows) in [(2, 44), (3, 5), (8, 16), (64, 2)] {
            let pairs = Pairs { base: 7, rows, members, parties: Parties::Hub(members / 2) };
            let hub = members / 2;
            let others = (0..members).filter(|other| *other != hub);
            let numbers = others.flat_map(|other| (0..rows).map(move |row| (other, row)));
            let seen: BTreeSet<_> = numbers
                .map(|(other, row)| {
                    let number = pairs.piece(hub, other, row);
                    assert_eq!(pairs.piece(other, hub, row), number);
                    assert!((7..7 + pairs.numbers()).contains(&number));
                    number
                })
                .collect();
            assert_eq!(seen.len(), (usize::from(members) - 1) * rows);
        }
    }

    /// A vector has the same numbers for all, and no other one has them.
    #[test]
    fn a_number_names_one_vector() {
        for (members, rows) in [(2, 44), (3, 5), (8, 16), (64, 2)] {
            let pairs = Pairs { base: 7, rows, members, parties: Parties::Vectors };
            let mut seen = BTreeSet::new();
            for from in 0..members {
                for row in 0..rows {
                    let number = pairs.piece(from, (from + 1) % members, row);
                    assert!(seen.insert(number));
                    assert!((0..members).all(|to| pairs.piece(from, to, row) == number));
                }
            }
            assert_eq!(seen, (7..7 + pairs.numbers()).collect());
        }
    }

    /// The rows of a parcel follow each other.
    #[test]
    fn a_parcel_is_of_a_run_of_numbers() {
        let pairs = Pairs { base: 100, rows: 4, members: 5, parties: Parties::Any };
        for row in 0..4 {
            assert_eq!(pairs.piece(3, 1, row), pairs.piece(3, 1, 0) + row as u64);
        }
        assert_eq!(pairs.piece(3, 1, 0), 100 + (2 * 4 + 1) * 4);
        assert_eq!(pairs.piece(1, 3, 0), 100 + 2 * 4 * 4);
    }

    #[test]
    fn an_exchange_takes_a_quarter_of_the_window_at_most() {
        for members in 2..=64u8 {
            for window in [8, 16, 64, 256, 1024, 4096] {
                let rows = most_rows(members.into(), window);
                let numbers =
                    |rows| Pairs { base: 1, rows, members, parties: Parties::Any }.numbers();
                assert!(numbers(rows) <= window / 4);
                assert!(rows == 44 || numbers(rows + 1) > window / 4);
            }
        }
        assert_eq!([(64, 1024), (64, 256), (2, 1024)].map(|(n, w)| most_rows(n, w)), [2, 0, 44]);
    }
}
