//! The roll call: every rank says which foldback it has, and how that is set. Ranks that are not set alike leave
//! everything to the real MPI.
//!
//! The ranks of a communicator [compare] themselves when all have just made the same call on it, and none could
//! complete that before all had begun it. So all ranks with foldback come at one time, and silence tells that some have
//! none.

use std::sync::OnceLock;
use std::time::Duration;

use nix::unistd::{Uid, geteuid};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::exchange::{Failure, exchange, words};
use super::hosts;
use super::trouble::NoGroup;
use crate::agent::Versions;
use crate::config::{Config, Given, settings, site};
use crate::mpi::Mpi;
use crate::mpi::pmpi::Handle;

/// The user of this process when MPI started: its agent and its groups are of this user.
static USER: OnceLock<Uid> = OnceLock::new();

/// The user of this process when MPI started, if it is another now.
pub fn former_user() -> Option<Uid> {
    USER.get().copied().filter(|user| *user != geteuid())
}

/// A rank's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Answer<T> {
    release: String,
    versions: Versions,
    little_endian: bool,
    /// The settings that must be alike, as far as it has any; or the one that makes no sense.
    settings: Result<Given, String>,
    /// More that the ranks want to know of each other.
    more: T,
}

impl<T> Answer<T> {
    fn new(config: &Result<Config, String>, more: T) -> Self {
        Self {
            release: env!("CARGO_PKG_VERSION").into(),
            versions: Versions::CURRENT,
            little_endian: cfg!(target_endian = "little"),
            settings: config.as_ref().map(|config| config.given.clone()).map_err(String::clone),
            more,
        }
    }

    /// Without the lines of files: values may be alike in files that are not.
    fn without_places(mut self) -> Self {
        let values = self.settings.iter_mut().flat_map(|given| given.values_mut());
        values.for_each(|value| value.place = None);
        self
    }
}

/// MPI has started.
pub fn note_user() {
    USER.get_or_init(geteuid);
}

/// The result of a comparison: the same on all ranks.
pub struct Compared {
    /// All would answer the roll call alike.
    pub alike: bool,
    /// Why there is no group of ranks that are on these hosts, if that is so.
    pub no_group: Option<NoGroup>,
    /// The other words of each rank.
    pub words: Vec<[u64; 2]>,
}

/// Makes sure that every rank of `comm` has foldback, as [`roll_call`] does, in a few words.
///
/// # Errors
/// What MPI says.
pub fn compare<T: Serialize>(
    mpi: &Mpi,
    comm: Handle,
    config: &Result<Config, String>,
    more: T,
    [one, other]: [u64; 2],
    patience: Option<Duration>,
) -> Result<Compared, NoGroup> {
    let (answer, host) =
        (hash(&Answer::new(config, more).without_places()), hash(&hosts::host_id()));
    let all = words(mpi, comm, [answer, host, one, other], patience);
    let all = heard(mpi, comm, patience, all)?;
    let names: Vec<_> = all.iter().map(|[_, host, ..]| host.to_string()).collect();
    Ok(Compared {
        alike: all.iter().all(|[its, ..]| *its == answer),
        no_group: NoGroup::of_hosts(&names),
        words: all.into_iter().map(|[_, _, one, other]| [one, other]).collect(),
    })
}

/// FNV-1a, 64 bits, of what is told.
fn hash(answer: &impl Serialize) -> u64 {
    let text = serde_json::to_vec(answer).unwrap_or_default();
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    text.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Makes sure that every rank of `comm` has foldback; ends the job if some do not answer within `patience`. Returns
/// what each rank says besides.
///
/// # Errors
/// Why nothing may be folded: what MPI says, or, the same on all ranks, in what they differ.
pub fn roll_call<T: Serialize + DeserializeOwned>(
    mpi: &Mpi,
    comm: Handle,
    config: &Result<Config, String>,
    more: T,
    patience: Option<Duration>,
) -> Result<Vec<T>, NoGroup> {
    let answer = Answer::new(config, more);
    let answers = exchange(mpi, comm, &answer, patience, &mut || ());
    let answers = heard(mpi, comm, patience, answers)?;
    agree(&answers)?;
    Ok(answers.into_iter().map(|answer| answer.more).collect())
}

/// The answers of all ranks; ends the job if some do not answer.
fn heard<T>(
    mpi: &Mpi,
    comm: Handle,
    patience: Option<Duration>,
    answers: Result<T, Failure>,
) -> Result<T, NoGroup> {
    if answers.as_ref().is_err_and(|failure| *failure == Failure::Silence) {
        log::error!(
            "some ranks did not answer within {} s. Is LD_PRELOAD exported to every host? \
             (mpirun -x LD_PRELOAD, mpiexec -genv, or `foldback run`) Or is FOLDBACK=off, FOLDBACK_SETUP_CALLS=0 or \
             FOLDBACK_SUM=exact on some ranks only, by their environment or their hosts' {}? \
             Or does a firewall stop the MPI's own messages?",
            patience.unwrap_or_default().as_secs(),
            site::DEFAULT_PATH
        );
        mpi.abort(comm)
    }
    answers.map_err(NoGroup::Untold)
}

/// All ranks conclude the same from all answers: they may fold, or why not.
fn agree<T>(answers: &[Answer<T>]) -> Result<(), NoGroup> {
    for (rank, answer) in answers.iter().enumerate() {
        let first = &answers[0];
        let differs = |what| Err(NoGroup::Differs { rank, what });
        if answer.release != first.release || answer.versions != first.versions {
            return differs("version of foldback");
        }
        if answer.little_endian != first.little_endian {
            return differs("byte order");
        }
        let why = match (&answer.settings, &first.settings) {
            (Err(why), _) => Some(format!("rank {rank}: {why}")),
            (Ok(its), Ok(first)) => settings::difference(rank, its, first),
            // Rank 0 was looked at first.
            (Ok(_), Err(_)) => None,
        };
        why.map_or(Ok(()), |why| Err(NoGroup::Settings(why)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Value;

    fn answer(name: &'static str, value: &'static str) -> Answer<()> {
        let read = settings::read(|asked| (asked == name).then(|| value.into()));
        let told = serde_json::to_string(&Answer::new(&read, ())).unwrap();
        serde_json::from_str(&told).unwrap()
    }

    fn why(answers: &[Answer<()>]) -> String {
        agree(answers).map_or_else(|why| why.to_string(), |()| "alike".into())
    }

    #[test]
    fn ranks_that_are_set_alike_may_fold() {
        assert_eq!(why(&[answer("", ""), answer("FOLDBACK_SUM", "auto")]), "alike");
        let each = answer("FOLDBACK_NET", "10.0.0.0/8");
        assert_eq!(why(&[each, answer("FOLDBACK_STATS", "-")]), "alike");
    }

    #[test]
    fn values_of_files_compare_as_values_of_the_environment() {
        let of_file = |text: &str, place: &str| {
            let value = Value { text: text.into(), place: Some(place.into()) };
            let read = settings::read(|asked| (asked == "FOLDBACK_SUM").then(|| value.clone()));
            Answer::new(&read, ())
        };
        let hash = |answer: &Answer<()>| hash(&answer.clone().without_places());
        let (environment, file) = (answer("FOLDBACK_SUM", "exact"), of_file("exact", "conf:1"));
        assert_eq!(hash(&environment), hash(&file));
        assert_ne!(hash(&of_file("rank-order", "conf:1")), hash(&file));
        assert_eq!(why(&[environment, file.clone(), of_file("exact", "conf:2")]), "alike");
        let told = why(&[of_file("rank-order", "conf:3"), file]);
        let line = "FOLDBACK_SUM is exact (conf:1) on rank 1 and rank-order (conf:3) on rank 0: ";
        assert!(told.starts_with(line), "{told}");
    }

    #[test]
    fn one_that_is_set_otherwise_is_told_wherever_it_is() {
        let (plain, exact) = (answer("", ""), answer("FOLDBACK_SUM", "exact"));
        let told = why(&[plain.clone(), plain.clone(), exact.clone()]);
        assert!(
            told.starts_with("FOLDBACK_SUM is exact on rank 2 and not set on rank 0: "),
            "{told}"
        );
        let told = why(&[exact, plain]);
        assert!(
            told.starts_with("FOLDBACK_SUM is not set on rank 1 and exact on rank 0: "),
            "{told}"
        );
    }

    #[test]
    fn a_value_that_makes_no_sense_is_told_wherever_it_is() {
        let (plain, wrong) = (answer("", ""), answer("FOLDBACK_WINDOW", "7"));
        let form = "FOLDBACK_WINDOW=7: a power of two from 256 to 4096";
        assert_eq!(why(&[plain.clone(), wrong.clone()]), format!("rank 1: {form}"));
        assert_eq!(why(&[wrong.clone(), plain]), format!("rank 0: {form}"));
        assert_eq!(why(&[wrong.clone(), wrong]), format!("rank 0: {form}"));
    }

    #[test]
    fn another_version_is_told_before_its_settings() {
        let (one, mut other) = (answer("", ""), answer("FOLDBACK_SUM", "exact"));
        other.release = "0.0.1".into();
        assert_eq!(why(&[one, other]), "rank 1 has another version of foldback than rank 0");
    }
}
