//! The places of all ranks' parts in a gather's data.

use std::ops::Range;

use super::Layout;

/// The wire wants a member's parts to begin at a multiple of so many bytes.
const WORD: usize = 8;

/// Parts side by side: member by member, in each the parts of its ranks without gaps. A member's parts
/// begin at a multiple of [`WORD`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The place of each rank's part.
    parts: Vec<Range<usize>>,
    /// The place of each member's parts.
    members: Vec<Range<usize>>,
    bytes: usize,
    message: usize,
}

impl Image {
    /// The image of parts of these lengths in bytes, by rank.
    pub fn new(layout: &Layout, length: impl Fn(usize) -> usize) -> Self {
        let mut parts = vec![0..0; layout.ranks()];
        let mut members = Vec::with_capacity(layout.hosts.len());
        let mut at = 0usize;
        for ranks in &layout.hosts {
            let start = at.next_multiple_of(WORD);
            at = start;
            for &rank in ranks {
                parts[rank] = at..at + length(rank);
                at = parts[rank].end;
            }
            members.push(start..at);
        }
        let message = parts.iter().map(Range::len).sum();
        Self { parts, members, bytes: at.next_multiple_of(WORD), message }
    }

    /// The most bytes between the parts of so many members.
    pub fn most_gaps(members: usize) -> usize {
        (WORD - 1) * members
    }

    /// The image of as many bytes of each rank, without gaps, as MPI_Allgather places them. No group brings it
    /// together.
    pub fn side_by_side(ranks: usize, bytes: usize) -> Self {
        let parts: Vec<_> = (0..ranks).map(|rank| rank * bytes..(rank + 1) * bytes).collect();
        let all = ranks * bytes;
        Self { members: parts.clone(), parts, bytes: all, message: all }
    }

    /// Length in bytes, gaps included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of all parts, without the gaps between members.
    pub fn message(&self) -> usize {
        self.message
    }

    /// The place of a rank's part.
    pub fn part(&self, rank: usize) -> Range<usize> {
        self.parts[rank].clone()
    }

    /// The place of a member's parts.
    pub fn member(&self, member: usize) -> Range<usize> {
        self.members[member].clone()
    }

    /// The members that have parts: all of the group.
    pub fn members(&self) -> usize {
        self.members.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_by_host_and_hosts_at_whole_words() {
        let layout = Layout::new(["a", "b", "a"]);
        let image = Image::new(&layout, |rank| rank + 1);
        assert_eq!((image.part(0), image.part(2), image.part(1)), (0..1, 1..4, 8..10));
        assert_eq!((image.member(0), image.member(1), image.bytes()), (0..4, 8..10, 16));
        assert_eq!(image.message(), 6);
    }

    #[test]
    fn gaps_are_no_longer_than_the_most() {
        let hosts: Vec<_> = (0..64).map(|host| format!("host {host}")).collect();
        let layout = Layout::new(hosts.iter().map(String::as_str));
        for bytes in 1..=17 {
            let image = Image::new(&layout, |_| bytes);
            let most = image.message() + Image::most_gaps(64);
            assert!(image.bytes() <= most, "{bytes}: {} > {most}", image.bytes());
            assert!(bytes != 1 || image.bytes() == most);
        }
    }
}
