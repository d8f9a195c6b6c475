//! The words of the third and the fourth exchange, and the verdict on a trial that all ranks draw from them.

use serde::{Deserialize, Serialize};

use super::trouble::{NoGroup, Trouble};
use crate::bindings::FB_CHUNK_BYTES;
use crate::topology::Layout;

/// A rank's words: whether its part succeeded.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    pub trouble: Option<Trouble>,
    /// This host has heard what all others sent to everyone.
    pub overheard: bool,
}

/// The result of a trial, on all ranks alike.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The group works.
    Works {
        /// All hosts hear what is sent to all at once.
        everyone_hears: bool,
    },
    /// Hosts hear each other, but not in chunks of this length, which is more than the usual one.
    TooLong,
    /// There is no group.
    Fails(NoGroup),
}

impl Verdict {
    /// The verdict on a trial of chunks of so many bytes.
    pub fn of(layout: &Layout, chunk_bytes: u16, outcomes: &[Outcome]) -> Self {
        let no_fold = |outcome: &Outcome| outcome.trouble.as_ref().is_some_and(Trouble::is_no_fold);
        if u32::from(chunk_bytes) > FB_CHUNK_BYTES && outcomes.iter().any(no_fold) {
            return Self::TooLong;
        }
        match troubles(layout, outcomes.iter().map(|outcome| &outcome.trouble)) {
            Ok(()) => {
                let overheard = |ranks: &Vec<usize>| outcomes[ranks[0]].overheard;
                Self::Works { everyone_hears: layout.hosts.iter().all(overheard) }
            }
            Err(why) => Self::Fails(why),
        }
    }
}

/// The first trouble that any rank has, with its rank.
pub fn troubles<'a>(
    layout: &Layout,
    all: impl Iterator<Item = &'a Option<Trouble>>,
) -> Result<(), NoGroup> {
    for (rank, trouble) in all.enumerate() {
        if let Some(trouble) = trouble.clone() {
            let host = layout.place(rank).map_or(0, |(member, _)| member);
            return Err(NoGroup::Rank { rank, host, trouble });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::trouble::Missing;

    const LONG: u16 = 8192;
    const USUAL: u16 = FB_CHUNK_BYTES as u16;

    fn overheard(overheard: [bool; 4]) -> [Outcome; 4] {
        overheard.map(|overheard| Outcome { trouble: None, overheard })
    }

    fn silence(missing: Missing) -> Trouble {
        let (hook, interface) = ("tc-ingress".into(), "eth0".into());
        Trouble::Silence { missing, seconds: 5, hook, interface, port: 7 }
    }

    fn verdict(chunk_bytes: u16, outcomes: &[Outcome]) -> Verdict {
        Verdict::of(&Layout::new(["one", "one", "two", "two"]), chunk_bytes, outcomes)
    }

    #[test]
    fn everyone_hears_if_all_leaders_do() {
        let all = overheard([true, false, true, false]);
        assert_eq!(verdict(LONG, &all), Verdict::Works { everyone_hears: true });
        let one = overheard([true, true, false, true]);
        assert_eq!(verdict(USUAL, &one), Verdict::Works { everyone_hears: false });
    }

    #[test]
    fn chunks_are_too_long_if_any_host_misses_the_fold() {
        let mut outcomes = overheard([false; 4]);
        outcomes[0].trouble = Some(Trouble::WrongFold);
        outcomes[2].trouble = Some(silence(Missing::Fold));
        assert_eq!(verdict(LONG, &outcomes), Verdict::TooLong);
        let why = NoGroup::Rank { rank: 0, host: 0, trouble: Trouble::WrongFold };
        assert_eq!(verdict(USUAL, &outcomes), Verdict::Fails(why));
    }

    #[test]
    fn the_first_rank_in_trouble_says_why_there_is_no_group() {
        let mut outcomes = overheard([false; 4]);
        outcomes[2].trouble = Some(silence(Missing::Hello));
        outcomes[3].trouble = Some(Trouble::SharedMemory("no room".into()));
        let why = NoGroup::Rank { rank: 2, host: 1, trouble: silence(Missing::Hello) };
        assert_eq!(verdict(LONG, &outcomes), Verdict::Fails(why));
    }
}
