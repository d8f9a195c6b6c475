//! Tags of the messages that complete requests.
//!
//! A tag is one request's as long as that is under way, or as long as it lives if it is persistent. Programs
//! may have any number of requests, so there are as many communicators as these take.

use std::ffi::c_int;
use std::ops::Range;

use crate::mpi::pmpi::Handle;

/// Tags of one communicator: all below 32767, which every MPI has (MPI-4.1 section 9.1.2).
pub const OF_ONE: c_int = 32_767;

/// The message that completes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// A communicator of this process alone.
    pub comm: Handle,
    pub tag: c_int,
}

/// All tags of a process.
pub struct Tags {
    /// Given back.
    free: Vec<Tag>,
    /// The communicator that was made last, and its tags that nobody has had.
    fresh: Option<(Handle, Range<c_int>)>,
    of_one: c_int,
}

impl Tags {
    /// With so many tags of each communicator.
    pub fn new(of_one: c_int) -> Self {
        Self { free: Vec::new(), fresh: None, of_one }
    }

    /// A tag that no other request has. `make` is for another communicator, and is told whether it is the first.
    ///
    /// # Errors
    /// `None`: there is no communicator to be had.
    pub fn take(&mut self, make: impl FnOnce(bool) -> Option<Handle>) -> Option<Tag> {
        if let Some(tag) = self.free.pop() {
            return Some(tag);
        }
        if self.fresh.as_ref().is_none_or(|(_, tags)| tags.is_empty()) {
            let comm = make(self.fresh.is_none())?;
            self.fresh = Some((comm, 0..self.of_one));
        }
        let (comm, tags) = self.fresh.as_mut()?;
        tags.next().map(|tag| Tag { comm: *comm, tag })
    }

    /// The request is complete, or freed.
    pub fn give_back(&mut self, tag: Tag) {
        self.free.push(tag);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_requests_have_one_tag() {
        let (mut tags, mut comms) = (Tags::new(4), 0);
        let mut take = |tags: &mut Tags| {
            let tag = tags.take(|first| {
                assert_eq!(first, comms == 0);
                comms += 1;
                Some(comms)
            });
            tag.expect("a communicator")
        };
        let mut held: HashSet<Tag> = HashSet::new();
        for round in 1..=20 {
            for _ in 0..3 {
                assert!(held.insert(take(&mut tags)), "the tag of another request");
            }
            let back = *held.iter().nth(round % held.len()).expect("a tag");
            held.remove(&back);
            tags.give_back(back);
        }
        assert!(held.iter().all(|tag| (0..4).contains(&tag.tag)));
        // No more communicators than the most at one time take: 40 after the last round, and two beside them.
        assert_eq!(comms, 11);
    }

    #[test]
    fn without_a_communicator_there_is_none_and_later_there_may_be() {
        let mut tags = Tags::new(1);
        assert_eq!(tags.take(|_| None), None);
        let first = tags.take(|_| Some(7)).expect("a communicator");
        assert_eq!(tags.take(|_| None), None);
        tags.give_back(first);
        assert_eq!(tags.take(|_| None), Some(first));
    }
}
