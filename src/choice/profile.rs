//! The measurements of jobs, kept in a file for the next ones (`FOLDBACK_PROFILE`). A job begins with the ways that
//! were best before, and need not try them all. Its usual trials find what has changed.

use serde::{Deserialize, Serialize};

use super::RouteLine;

/// The kind of group that was measured: its result is a good guess for another of the same kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ground {
    /// The name that the MPI gives itself.
    pub mpi: String,
    pub hosts: usize,
    /// Ranks on all hosts.
    pub ranks: usize,
    /// Whether frames go by programs in the kernel, or by ordinary sockets alone.
    pub programs: bool,
}

/// The routes of groups of one kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Known {
    #[serde(flatten)]
    ground: Ground,
    routes: Vec<RouteLine>,
}

/// Routes, by the kind of group.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Profile {
    /// The release that wrote it.
    foldback: String,
    groups: Vec<Known>,
}

impl Profile {
    /// Reads the text of a file; nothing if that is empty.
    ///
    /// # Errors
    /// The text is not a profile, or another release wrote it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let profile: Self =
            serde_json::from_str(text).map_err(|error| format!("it is no profile: {error}"))?;
        match profile.foldback == env!("CARGO_PKG_VERSION") {
            true => Ok(profile),
            false => Err(format!("it is of foldback {}", profile.foldback)),
        }
    }

    /// As it stands in a file, in JSON.
    pub fn text(mut self) -> String {
        self.foldback = env!("CARGO_PKG_VERSION").into();
        serde_json::to_string_pretty(&self).expect("strings and numbers") + "\n"
    }

    /// The known routes of groups of this kind.
    pub fn routes(&self, ground: &Ground) -> &[RouteLine] {
        let known = self.groups.iter().find(|known| known.ground == *ground);
        known.map_or(&[], |known| &known.routes)
    }

    /// The part of what is known that is for one MPI.
    pub fn of_mpi(mut self, mpi: &str) -> Self {
        self.groups.retain(|known| known.ground.mpi == mpi);
        self
    }

    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Adds what a group has measured. Of two groups of a kind, the one with more calls knows best.
    pub fn add(&mut self, ground: &Ground, routes: Vec<RouteLine>) {
        self.merge(ground, routes, |old, new| new.calls > old.calls);
    }

    /// Adds what a later job has measured, which knows best.
    pub fn renew(&mut self, later: Self) {
        for known in later.groups {
            self.merge(&known.ground, known.routes, |_, _| true);
        }
    }

    fn merge(
        &mut self,
        ground: &Ground,
        routes: Vec<RouteLine>,
        is_better: impl Fn(&RouteLine, &RouteLine) -> bool,
    ) {
        let mut measured =
            routes.into_iter().filter(|route| !route.nanoseconds.is_empty()).peekable();
        if measured.peek().is_none() {
            return;
        }
        let at = self.groups.iter().position(|known| known.ground == *ground);
        let at = at.unwrap_or_else(|| {
            self.groups.push(Known { ground: ground.clone(), routes: Vec::new() });
            self.groups.len() - 1
        });
        let known = &mut self.groups[at].routes;
        for new in measured {
            let is_like = |old: &&mut RouteLine| {
                (&old.collective, old.up_to_bytes) == (&new.collective, new.up_to_bytes)
            };
            match known.iter_mut().find(is_like) {
                Some(old) if is_better(old, &new) => *old = new,
                Some(_) => {}
                None => known.push(new),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ground(hosts: usize) -> Ground {
        Ground { mpi: "Some MPI 1".into(), hosts, ranks: 8, programs: true }
    }

    fn route(collective: &str, way: &str, calls: u64) -> RouteLine {
        let nanoseconds = [(way.to_owned(), 1500)].into_iter().collect();
        let (collective, way, up_to_bytes) = (collective.to_owned(), way.to_owned(), 8);
        RouteLine { collective, up_to_bytes, way, nanoseconds, calls, trials: 1, changes: 0 }
    }

    fn ways(profile: &Profile, hosts: usize) -> Vec<String> {
        profile.routes(&ground(hosts)).iter().map(|route| route.way.clone()).collect()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut profile = Profile::default();
        profile.add(&ground(2), vec![route("Allreduce", "mpi", 10)]);
        profile.add(&ground(4), vec![route("Allreduce", "star", 10)]);
        let read = Profile::parse(&profile.text()).unwrap();
        assert_eq!((ways(&read, 2), ways(&read, 4)), (vec!["mpi".into()], vec!["star".into()]));
        assert!(ways(&read, 3).is_empty());
        assert!(!read.clone().of_mpi("Some MPI 1").is_empty());
        assert!(read.of_mpi("Some MPI 2").is_empty());
        assert!(Profile::parse("\n").unwrap().is_empty());
    }

    #[test]
    fn of_one_job_the_busiest_group_counts_and_of_two_jobs_the_later() {
        let mut job = Profile::default();
        for (way, calls) in [("star", 10), ("direct", 30), ("mpi", 20)] {
            job.add(&ground(2), vec![route("Allreduce", way, calls)]);
        }
        assert_eq!(ways(&job, 2), ["direct"]);
        let mut file = Profile::default();
        file.add(&ground(2), vec![route("Allreduce", "mpi", 1000)]);
        file.add(&ground(2), vec![route("Bcast", "mpi", 1000)]);
        file.renew(job);
        assert_eq!(ways(&file, 2), ["direct", "mpi"]);
        let unmeasured =
            RouteLine { nanoseconds: Default::default(), ..route("Allreduce", "star", 5) };
        file.add(&ground(8), vec![unmeasured]);
        assert!(ways(&file, 8).is_empty());
    }

    #[test]
    fn what_is_no_profile_of_ours_is_refused() {
        let other = Profile::default().text().replace(env!("CARGO_PKG_VERSION"), "0.0.1");
        assert_eq!(Profile::parse(&other).unwrap_err(), "it is of foldback 0.0.1");
        assert!(Profile::parse("{}").unwrap_err().starts_with("it is no profile"));
    }
}
