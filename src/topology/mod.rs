//! The ranks of each host, and a rank's place among them. No input or output; alike on all ranks but
//! for each one's place.

pub mod bundles;
pub mod image;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use bundles::Limits;
pub use image::Image;

/// The ranks of a communicator, by host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// For each host (member), its ranks in order; the first leads.
    pub hosts: Vec<Vec<usize>>,
}

impl Layout {
    /// Groups ranks by the identity of their hosts, hosts in the order of their first rank.
    pub fn new<'a>(hosts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut seen: Vec<(&str, Vec<usize>)> = Vec::new();
        for (rank, host) in hosts.into_iter().enumerate() {
            match seen.iter_mut().find(|(other, _)| *other == host) {
                Some((_, ranks)) => ranks.push(rank),
                None => seen.push((host, vec![rank])),
            }
        }
        Self { hosts: seen.into_iter().map(|(_, ranks)| ranks).collect() }
    }

    /// Number of ranks on all hosts.
    pub fn ranks(&self) -> usize {
        self.hosts.iter().map(Vec::len).sum()
    }

    /// Member and place on its host, of a rank.
    pub fn place(&self, rank: usize) -> Option<(usize, usize)> {
        self.hosts.iter().enumerate().find_map(|(member, ranks)| {
            ranks.iter().position(|other| *other == rank).map(|place| (member, place))
        })
    }
}

/// This rank's place in its group.
pub struct Place {
    /// The ranks of each host.
    pub layout: Layout,
    /// Rank of this process in the communicator.
    pub rank: usize,
    /// Number of this host among the members of the group.
    pub member: usize,
    /// Most payload of a frame, on all hosts; in bytes.
    pub chunk_bytes: u16,
    /// Whether long messages can go by shards here.
    pub has_shards: bool,
    /// Whether two ranks swap their contributions, and each folds them, where a fold by shards would be short.
    pub swaps: bool,
    /// Longest message that is folded here, in bytes, whatever else allows more.
    pub max_bytes: usize,
    /// The last image of equal parts, and their length: most programs stay with one.
    image: Option<(usize, Arc<Image>)>,
    /// Of exchanges by pairs of ranks.
    limits: Limits,
}

impl Place {
    /// The place of `rank`; `None` if it is on none of the hosts.
    pub fn new(layout: Layout, rank: usize, chunk_bytes: u16, has_shards: bool) -> Option<Self> {
        let (member, _) = layout.place(rank)?;
        let (swaps, max_bytes) = (has_shards && layout.ranks() == 2, usize::MAX);
        let (limits, image) = (Limits::new(&layout, 0), None);
        Some(Self {
            layout,
            rank,
            member,
            chunk_bytes,
            has_shards,
            swaps,
            max_bytes,
            image,
            limits,
        })
    }

    /// The same, where a host may have up to so many chunks for another in an exchange.
    pub fn with_parcels(self, chunks: usize) -> Self {
        let limits = Limits::new(&self.layout, chunks * usize::from(self.chunk_bytes));
        Self { limits, ..self }
    }

    /// The same, where no message longer than so many bytes is folded.
    pub fn at_most(self, max_bytes: usize) -> Self {
        Self { max_bytes, ..self }
    }

    /// Most bytes of a parcel, which a rank has for another in an exchange; `has_root`: if one rank is at one end of all
    /// pairs. `None`: there are no exchanges.
    pub fn parcel_bytes(&self, has_root: bool) -> Option<usize> {
        self.limits.parcel(has_root)
    }

    /// Most bytes that one host has for another, of parcels of up to `parcel` bytes.
    pub fn bundle_bytes(&self, parcel: usize, has_root: bool) -> usize {
        self.limits.bundle(parcel, has_root)
    }

    /// Whether some host has several ranks, so that hosts exchange [bundles].
    pub fn has_bundles(&self) -> bool {
        self.limits.has_bundles()
    }

    /// The image of parts of `bytes` bytes of every rank.
    pub fn even_image(&mut self, bytes: usize) -> Arc<Image> {
        if let Some((of, image)) = &self.image
            && *of == bytes
        {
            return Arc::clone(image);
        }
        let image = Arc::new(Image::new(&self.layout, |_| bytes));
        self.image = Some((bytes, Arc::clone(&image)));
        image
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_meet_by_host_and_the_first_leads() {
        let layout = Layout::new(["b", "a", "b", "c", "a"]);
        assert_eq!(layout.hosts, vec![vec![0, 2], vec![1, 4], vec![3]]);
        assert_eq!(layout.place(4), Some((1, 1)));
        assert_eq!(layout.place(5), None);
    }
}
