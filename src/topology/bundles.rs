//! The parcels of an exchange where hosts have several ranks, as they lie in memory that ranks share and on the wire.
//! Pure.
//!
//! ```text
//!   slip (a rank to its leader):   2 counts (4 bytes each), entries to others, entries from others, parcels to others
//!   bundle (a host to another):    entries, parcels
//!   delivery (a leader to a rank): a word (8 bytes), parcels
//! ```
//!
//! Both ends of a pair know its bytes, so both leaders know the entries of a bundle.

use super::{Layout, Place};
use crate::leaf::segment;

/// Most bytes of a slip, and of a delivery: of the memory that a rank shares with its host.
const MOST_SLIP: usize = segment::BLOCK;
const COUNTS: usize = 8;
const ENTRY: usize = 8;
/// The words of deliveries: whole, or of parcels that are not as their receiver expects.
const WHOLE: [u8; DELIVERY] = *b"whole   ";
const ODD: [u8; DELIVERY] = *b"odd     ";
const DELIVERY: usize = 8;
/// Parcels of fewer bytes are not worth their entries.
const LEAST: usize = 64;

/// The limits of the exchanges of a group, alike on all its ranks.
pub(super) struct Limits {
    /// Most bytes from one host to another.
    most: usize,
    /// Most pairs of ranks between two hosts; and if one rank is at one end of all pairs.
    pairs: usize,
    pairs_of_root: usize,
    /// All ranks.
    ranks: usize,
    /// The host of each rank, if some host has several ranks; else its number is the rank's.
    hosts: Vec<u8>,
}

impl Limits {
    pub(super) fn new(layout: &Layout, most: usize) -> Self {
        let mut counts: Vec<_> = layout.hosts.iter().map(Vec::len).collect();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let largest = |place: usize| counts.get(place).copied().unwrap_or(1);
        let (pairs, pairs_of_root, ranks) = (largest(0) * largest(1), largest(0), layout.ranks());
        let mut hosts = Vec::new();
        if pairs_of_root > 1 {
            hosts.resize(ranks, 0);
            for (host, of) in (0..).zip(&layout.hosts) {
                of.iter().for_each(|rank| hosts[*rank] = host);
            }
        }
        Self { most, pairs, pairs_of_root, ranks, hosts }
    }

    fn pairs(&self, has_root: bool) -> usize {
        if has_root { self.pairs_of_root } else { self.pairs }
    }

    /// Whether there are bundles, and not parcels alone.
    pub(super) fn has_bundles(&self) -> bool {
        !self.hosts.is_empty()
    }

    /// Most bytes of a parcel; `None`: there are no exchanges.
    pub(super) fn parcel(&self, has_root: bool) -> Option<usize> {
        if !self.has_bundles() {
            return (self.most > 0).then_some(self.most);
        }
        let of_bundle = (self.most / self.pairs(has_root)).checked_sub(ENTRY)?;
        let of_slip = ((MOST_SLIP - COUNTS) / (self.ranks - 1)).checked_sub(2 * ENTRY)?;
        Some(of_bundle.min(of_slip)).filter(|most| *most >= LEAST)
    }

    /// Most bytes of a bundle, of parcels of up to `parcel` bytes.
    pub(super) fn bundle(&self, parcel: usize, has_root: bool) -> usize {
        if self.has_bundles() { self.pairs(has_root) * (parcel + ENTRY) } else { parcel }
    }

    /// The host of a rank, where there are bundles.
    fn host(&self, rank: usize) -> usize {
        self.hosts[rank].into()
    }
}

/// The parcel of a pair: its ends, and its bytes. On all hosts in one byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    from: u16,
    to: u16,
    bytes: u32,
}

impl Entry {
    fn new(from: usize, to: usize, bytes: usize) -> Self {
        Self { from: from as u16, to: to as u16, bytes: bytes as u32 }
    }

    fn to_bytes(self) -> [u8; ENTRY] {
        let ends = u32::from(self.from) << 16 | u32::from(self.to);
        (u64::from(ends) << 32 | u64::from(self.bytes)).to_be_bytes()
    }

    fn from_bytes(bytes: [u8; ENTRY]) -> Self {
        let word = u64::from_be_bytes(bytes);
        Self { from: (word >> 48) as u16, to: (word >> 32) as u16, bytes: word as u32 }
    }

    fn bytes(&self) -> usize {
        self.bytes as usize
    }
}

/// The slip of a rank that has these parcels for others, and gets so many bytes from others; both by rank, and none
/// of them empty.
pub fn slip<'a>(
    rank: usize,
    to: impl Iterator<Item = (usize, &'a [u8])> + Clone,
    from: impl Iterator<Item = (usize, usize)> + Clone,
) -> Vec<u8> {
    let counts = [to.clone().count(), from.clone().count()];
    let parcels: usize = to.clone().map(|(_, parcel)| parcel.len()).sum();
    let mut slip = Vec::with_capacity(COUNTS + ENTRY * (counts[0] + counts[1]) + parcels);
    counts.iter().for_each(|count| slip.extend((*count as u32).to_ne_bytes()));
    let outgoing = to.clone().map(|(other, parcel)| Entry::new(rank, other, parcel.len()));
    let incoming = from.map(|(other, bytes)| Entry::new(other, rank, bytes));
    outgoing.chain(incoming).for_each(|entry| slip.extend(entry.to_bytes()));
    to.for_each(|(_, parcel)| slip.extend(parcel));
    slip
}

/// Takes a delivery apart: parcels of these bytes, in the order of the slip. `None`: it is none; an empty list: what
/// came is not what was expected.
pub fn parcels(delivery: &[u8], bytes: impl Iterator<Item = usize>) -> Option<Vec<&[u8]>> {
    let (word, mut rest) = delivery.split_first_chunk()?;
    match *word {
        ODD => Some(Vec::new()),
        WHOLE => bytes
            .map(|bytes| {
                let (parcel, after) = rest.split_at_checked(bytes)?;
                rest = after;
                Some(parcel)
            })
            .collect(),
        _ => None,
    }
}

/// An exchange as the leader of a host sees it.
pub struct Bundles {
    /// Most bytes of a parcel.
    most: usize,
    /// The rank at one end of all pairs.
    root: Option<usize>,
    /// To and from each host, this one too.
    hosts: Vec<Bundle>,
}

#[derive(Default)]
struct Bundle {
    /// For there: entries, and in the end the parcels behind them.
    outgoing: Vec<u8>,
    parcels: Vec<u8>,
    /// Of each parcel that is to come from there: its entry, and its place in the delivery of its receiver.
    expected: Vec<(Entry, usize)>,
    incoming: Vec<u8>,
}

impl Bundles {
    /// One with parcels of up to so many bytes, to which no rank has added any.
    pub fn new(place: &Place, most: usize, root: Option<usize>) -> Self {
        let hosts = place.layout.hosts.iter().map(|_| Bundle::default()).collect();
        Self { most, root, hosts }
    }

    /// Adds the parcels of a slip of a rank of this host; ranks come in order. False: it is none. Bundles stay
    /// within their limits all the same.
    #[must_use]
    pub fn add(&mut self, place: &Place, rank: usize, slip: &[u8]) -> bool {
        self.try_add(place, rank, slip).is_some()
    }

    fn try_add(&mut self, place: &Place, rank: usize, slip: &[u8]) -> Option<()> {
        let limits = &place.limits;
        let (counts, rest) = slip.split_at_checked(COUNTS)?;
        // Copies: others can write what they share while it is looked at.
        let counts: Vec<_> = counts.as_chunks().0.iter().map(|c| u32::from_ne_bytes(*c)).collect();
        let [to, from] = counts[..] else { return None };
        let table = usize::try_from(u64::from(to) + u64::from(from)).ok()?;
        let (table, mut rest) = rest.split_at_checked(table.checked_mul(ENTRY)?)?;
        let table: Vec<_> = table.as_chunks().0.iter().map(|e| Entry::from_bytes(*e)).collect();
        let (to, from) = table.split_at(to as usize);
        let is_right = |entry: &Entry| {
            let ends = [entry.from.into(), entry.to.into()];
            let other = if ends[0] == rank { ends[1] } else { ends[0] };
            other < limits.ranks
                && other != rank
                && (1..=self.most).contains(&entry.bytes())
                && self.root.is_none_or(|root| ends.contains(&root))
        };
        let is_sorted = |entries: &[Entry]| {
            entries.is_sorted_by(|one, next| (one.from, one.to) < (next.from, next.to))
        };
        let starts_here = |entry: &Entry| usize::from(entry.from) == rank;
        let ends_here = |entry: &Entry| usize::from(entry.to) == rank;
        if !(table.iter().all(is_right)
            && is_sorted(to)
            && is_sorted(from)
            && to.iter().all(starts_here)
            && from.iter().all(ends_here))
        {
            return None;
        }
        rest = rest.get(..to.iter().map(Entry::bytes).sum())?;
        for entry in to {
            let (parcel, after) = rest.split_at(entry.bytes());
            let bundle = &mut self.hosts[limits.host(entry.to.into())];
            bundle.outgoing.extend(entry.to_bytes());
            bundle.parcels.extend(parcel);
            rest = after;
        }
        let mut at = DELIVERY;
        for entry in from {
            self.hosts[limits.host(entry.from.into())].expected.push((*entry, at));
            at += entry.bytes();
        }
        Some(())
    }

    /// All ranks of this host have added theirs. `own` is this host: what its ranks have for each other has come.
    pub fn close(&mut self, own: usize) {
        for bundle in &mut self.hosts {
            bundle.outgoing.append(&mut bundle.parcels);
            // By sender and receiver, as the other host has them.
            bundle.expected.sort_unstable();
            let bytes = bundle.expected.iter().map(|(entry, _)| ENTRY + entry.bytes()).sum();
            bundle.incoming = vec![0; bytes];
        }
        let bundle = &mut self.hosts[own];
        if bundle.outgoing.len() == bundle.incoming.len() {
            bundle.incoming = std::mem::take(&mut bundle.outgoing);
        }
        bundle.outgoing.clear();
    }

    /// The bundle for each host, and the memory for the one from it; both stay where they are.
    pub fn memory(&mut self) -> impl Iterator<Item = (&mut [u8], &mut [u8])> {
        self.hosts.iter_mut().map(|bundle| (&mut bundle.outgoing[..], &mut bundle.incoming[..]))
    }

    /// Everything has come. Hands `put` the pieces of deliveries: receiver, place and bytes.
    pub fn deliver(&self, mut put: impl FnMut(usize, usize, &[u8])) {
        // A receiver's word is odd if any of its parcels is.
        for is_whole in [true, false] {
            for bundle in &self.hosts {
                if bundle.is_as_expected() == is_whole {
                    bundle.deliver(is_whole, &mut put);
                }
            }
        }
    }
}

impl Bundle {
    /// Whether what has come has the entries of what was to come. A bundle of another length is none: its memory has
    /// been left alone, and no entry is zero.
    fn is_as_expected(&self) -> bool {
        let (table, _) = self.incoming.as_chunks();
        let expected = self.expected.iter().map(|(entry, _)| entry);
        let mut came = table.iter().map(|entry| Entry::from_bytes(*entry));
        expected.zip(&mut came).all(|(expected, came)| *expected == came)
    }

    fn deliver(&self, is_whole: bool, mut put: impl FnMut(usize, usize, &[u8])) {
        let mut rest = self.incoming.get(ENTRY * self.expected.len()..).unwrap_or_default();
        for (entry, at) in &self.expected {
            let (parcel, after) = rest.split_at(entry.bytes().min(rest.len()));
            rest = after;
            put(entry.to.into(), 0, if is_whole { &WHOLE } else { &ODD });
            if is_whole {
                put(entry.to.into(), *at, parcel);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u16 = 1408;

    /// Ranks of this many hosts, dealt out by `of`; a host may have `chunks` chunks for another.
    fn places(of: &[&str], chunks: usize) -> Vec<Place> {
        let layout = Layout::new(of.iter().copied());
        let place = |rank| Place::new(layout.clone(), rank, CHUNK, true).expect("a rank");
        (0..of.len()).map(|rank| place(rank).with_parcels(chunks)).collect()
    }

    const HOSTS: [&str; 6] = ["a", "b", "a", "c", "b", "a"];

    /// The bytes of a rank's parcel for another; half of them have none.
    fn parcel(from: usize, to: usize) -> Vec<u8> {
        let some = from != to && (from + 2 * to) % 4 < 2;
        vec![(16 * from + to) as u8; if some { 1 + (7 * from + 3 * to) % 90 } else { 0 }]
    }

    fn slip_of(rank: usize, ranks: usize, parcel: impl Fn(usize, usize) -> Vec<u8>) -> Vec<u8> {
        let of = |others: &dyn Fn(usize) -> Vec<u8>| {
            let all = (0..ranks).map(|other| (other, others(other)));
            all.filter(|(_, parcel)| !parcel.is_empty()).collect::<Vec<_>>()
        };
        let (to, from) = (of(&|other| parcel(rank, other)), of(&|other| parcel(other, rank)));
        let to = to.iter().map(|(other, parcel)| (*other, &parcel[..]));
        slip(rank, to, from.iter().map(|(other, parcel)| (*other, parcel.len())))
    }

    /// Brings the bundles of all hosts to where they belong. `sent` and `expected` are parcels as their two ends see
    /// them. Returns the deliveries, by rank.
    fn exchange(
        places: &[Place],
        sent: impl Fn(usize, usize) -> Vec<u8>,
        expected: impl Fn(usize, usize) -> Vec<u8>,
    ) -> Vec<Vec<u8>> {
        let ranks = places.len();
        let mut hosts = Vec::new();
        for (host, of) in places[0].layout.hosts.iter().enumerate() {
            let place = &places[of[0]];
            let mut bundles = Bundles::new(place, 200, None);
            for &rank in of {
                let seen =
                    |from, to| if from == rank { sent(from, to) } else { expected(from, to) };
                assert!(bundles.add(place, rank, &slip_of(rank, ranks, seen)));
            }
            bundles.close(host);
            hosts.push(bundles);
        }
        for (from, to) in (0..hosts.len()).flat_map(|from| (0..3).map(move |to| (from, to))) {
            let outgoing = hosts[from].hosts[to].outgoing.clone();
            assert!(outgoing.len() <= places[0].bundle_bytes(200, false) || from == to);
            let incoming = &mut hosts[to].hosts[from].incoming;
            // As on the wire: what is of another length does not come.
            if from != to && incoming.len() == outgoing.len() {
                *incoming = outgoing;
            }
        }
        let mut deliveries = vec![vec![0xee; 4096]; ranks];
        for bundles in &hosts {
            bundles.deliver(|rank, at, data| {
                deliveries[rank][at..at + data.len()].copy_from_slice(data);
            });
        }
        deliveries
    }

    fn taken(delivery: &[u8], rank: usize) -> Option<Vec<&[u8]>> {
        let bytes = (0..HOSTS.len()).map(|from| parcel(from, rank).len());
        parcels(delivery, bytes.filter(|bytes| *bytes > 0))
    }

    #[test]
    fn parcels_come_to_their_receivers_in_the_order_of_ranks() {
        let places = places(&HOSTS, 4);
        let deliveries = exchange(&places, parcel, parcel);
        for (rank, delivery) in deliveries.iter().enumerate() {
            let all = (0..HOSTS.len()).map(|from| parcel(from, rank));
            let want: Vec<_> = all.filter(|parcel| !parcel.is_empty()).collect();
            assert!(!want.is_empty());
            assert_eq!(taken(delivery, rank).expect("a delivery"), want, "rank {rank}");
        }
    }

    /// Rank 1, of b, and rank 0, of a, do not agree; a has rank 2, too, which gets something of b.
    #[test]
    fn a_bundle_that_is_not_as_expected_costs_its_receivers_their_result() {
        let places = places(&HOSTS, 4);
        let base = |from: usize, to: usize| match (from, to) {
            (1, 0) => vec![1; 24],
            (4, 2) => vec![4; 8],
            (1 | 4, 0 | 2 | 5) => vec![],
            _ => parcel(from, to),
        };
        let other = |pair: (usize, usize), bytes: usize| {
            move |from, to| if (from, to) == pair { vec![9; bytes] } else { base(from, to) }
        };
        let swapped = |from, to| match (from, to) {
            (1, 0) => vec![1; 8],
            (4, 2) => vec![4; 24],
            _ => base(from, to),
        };
        let moved = |from, to| match (from, to) {
            (1, 0) => vec![],
            (1, 2) => vec![1; 24],
            _ => base(from, to),
        };
        let sent: [&dyn Fn(usize, usize) -> Vec<u8>; 5] =
            [&other((1, 0), 16), &other((1, 0), 25), &other((1, 5), 8), &swapped, &moved];
        for (number, sent) in sent.into_iter().enumerate() {
            let deliveries = exchange(&places, sent, base);
            for (rank, delivery) in deliveries.iter().enumerate() {
                let bytes = (0..HOSTS.len()).map(|from| base(from, rank).len());
                let came = parcels(delivery, bytes.filter(|bytes| *bytes > 0)).expect("one");
                assert_eq!(came.is_empty(), [0, 2].contains(&rank), "{number}: rank {rank}");
            }
        }
    }

    /// Ranks that share memory may write anything into it.
    #[test]
    fn a_slip_that_is_none_is_refused_or_stays_within_the_limits() {
        let places = places(&HOSTS, 4);
        let place = &places[0];
        let right = slip_of(2, HOSTS.len(), parcel);
        let is_taken = |slip: &[u8], root| {
            let mut bundles = Bundles::new(place, 200, root);
            let is_taken = bundles.add(place, 2, slip);
            bundles.close(place.member);
            let bytes = |bundle: &Bundle| bundle.outgoing.len();
            assert!(bundles.hosts.iter().all(|b| bytes(b) <= place.bundle_bytes(200, false)));
            is_taken
        };
        assert!(is_taken(&right, None));
        assert!(!is_taken(&right, Some(0)), "pairs without the root");
        for bytes in 0..right.len() {
            assert!(!is_taken(&right[..bytes], None), "{bytes} bytes of it");
        }
        let (mut refused, mut taken) = (0, 0);
        for at in 0..COUNTS + 8 * ENTRY {
            for value in [0, 1, 2, 5, 6, 0x7f, 0xff] {
                let mut slip = right.clone();
                slip[at] = value;
                // Longer by what an entry may say, as the memory is.
                slip.resize(4096, 0);
                *(if is_taken(&slip, None) { &mut taken } else { &mut refused }) += 1;
            }
        }
        assert!(refused > taken && taken > 0, "{refused}, {taken}");
    }

    #[test]
    fn limits_leave_room_for_all_pairs_of_two_hosts() {
        let limits = |of: &[usize], chunks: usize| {
            let names = of.iter().enumerate();
            let names: Vec<_> =
                names.flat_map(|(host, ranks)| vec![host.to_string(); *ranks]).collect();
            let layout = Layout::new(names.iter().map(String::as_str));
            Limits::new(&layout, chunks * usize::from(CHUNK))
        };
        // One rank on each host: parcels alone.
        let alone = limits(&[1, 1, 1], 4);
        assert_eq!((alone.parcel(false), alone.bundle(100, false)), (Some(4 * 1408), 100));
        assert_eq!(limits(&[1, 1], 0).parcel(true), None);
        // 6 pairs between the two largest hosts, or 3 with one rank at one end.
        let uneven = limits(&[3, 1, 2], 4);
        assert_eq!([false, true].map(|root| uneven.parcel(root)), [Some(930), Some(1869)]);
        // As the record has it, of 1,024 cells.
        let most = |of: &[usize], chunks| limits(of, chunks).parcel(false);
        assert_eq!(most(&[2; 4], 32), Some(9345));
        assert_eq!((most(&[4; 2], 44), most(&[8; 8], 32)), (Some(3864), Some(696)));
        // The slip is the limit.
        assert_eq!(limits(&[4, 4], 44).parcel(true), Some(65528 / 7 - 16));
        // 64 bytes are the least.
        assert_eq!([13, 12].map(|ranks| limits(&[ranks, 2], 1).parcel(false)), [None; 2]);
        assert_eq!(limits(&[9, 2], 1).parcel(false), Some(70));
        for (of, chunks) in [(&[3, 1, 2][..], 4), (&[2; 8], 16), (&[8, 8], 44), (&[5, 1, 1], 2)] {
            let limits = limits(of, chunks);
            for root in [false, true] {
                let most = limits.parcel(root).expect("some");
                assert!(limits.bundle(most, root) <= chunks * 1408);
                let others = limits.ranks - 1;
                assert!(COUNTS + others * (2 * ENTRY + most) <= MOST_SLIP);
                assert!(DELIVERY + others * most <= MOST_SLIP);
            }
        }
    }
}
