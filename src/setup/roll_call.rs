//! The roll call, when MPI starts: every rank says which foldback it has, and how that is set. A rank goes by its settings
//! before it asks the others. So ranks that are not set alike leave everything to the real MPI.

use std::sync::OnceLock;

use nix::unistd::{Uid, geteuid};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::exchange::{Failure, exchange};
use super::trouble::NoGroup;
use crate::agent::Versions;
use crate::config::{Config, Given, settings};
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
}

/// Makes sure that every rank of `comm` has foldback; ends the job if some do not answer in time. Returns what each rank
/// says besides.
///
/// # Errors
/// Why nothing may be folded: what MPI says, or, the same on all ranks, in what they differ.
pub fn roll_call<T: Serialize + DeserializeOwned>(
    mpi: &Mpi,
    comm: Handle,
    config: &Result<Config, String>,
    more: T,
) -> Result<Vec<T>, NoGroup> {
    USER.get_or_init(geteuid);
    let patience = Config::or_default(config).setup_timeout;
    match exchange(mpi, comm, &Answer::new(config, more), Some(patience), &mut || ()) {
        Ok(answers) => {
            agree(&answers)?;
            Ok(answers.into_iter().map(|answer| answer.more).collect())
        }
        Err(Failure::Silence) => {
            log::error!(
                "some ranks did not answer within {} s. Is LD_PRELOAD exported to every host? \
                 (mpirun -x LD_PRELOAD, mpiexec -genv, or `foldback run`) Or is FOLDBACK=off on some ranks only?",
                patience.as_secs()
            );
            mpi.abort(comm)
        }
        Err(failure) => Err(NoGroup::Untold(failure)),
    }
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

    fn answer(name: &'static str, value: &'static str) -> Answer<()> {
        let read = settings::read(|asked| (asked == name).then(|| value.to_owned()));
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
