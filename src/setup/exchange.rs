//! Telling each other, at set-up: every rank of a communicator says something to all others.

use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::mpi::Mpi;
use crate::mpi::pmpi::Handle;

/// Bytes of one rank's words, padded: all ranks must send the same amount.
const WORDS: usize = 2048;

/// Why an exchange failed.
#[derive(Debug)]
pub enum Failure {
    /// Some rank did not take part within the bound.
    Silence,
    /// What came is no JSON of ours: another version of foldback.
    Gibberish,
    /// The MPI reported an error.
    Mpi,
}

/// Gathers what all ranks of `comm` have to say, in rank order. `meanwhile` is called over and over
/// while this rank waits; it also bounds the load of waiting.
///
/// # Errors
/// See [`Failure`].
pub fn exchange<T: Serialize + DeserializeOwned>(
    mpi: &Mpi,
    comm: Handle,
    mine: &T,
    patience: Duration,
    meanwhile: &mut dyn FnMut(),
) -> Result<Vec<T>, Failure> {
    let words = serde_json::to_vec(mine).map_err(|_| Failure::Gibberish)?;
    if words.len() > WORDS {
        return Err(Failure::Gibberish);
    }
    let all = gather(mpi, comm, padded(words, WORDS), Some(patience), meanwhile)?;
    all.iter().map(|words| parse(words)).collect()
}

/// The same for words of any length, and without a bound on the time: for the end of the job.
///
/// # Errors
/// See [`Failure`].
pub fn exchange_long<T: Serialize + DeserializeOwned>(
    mpi: &Mpi,
    comm: Handle,
    mine: &T,
    meanwhile: &mut dyn FnMut(),
) -> Result<Vec<T>, Failure> {
    let words = serde_json::to_vec(mine).map_err(|_| Failure::Gibberish)?;
    let lengths = gather(mpi, comm, words.len().to_ne_bytes().to_vec(), None, meanwhile)?;
    let length = |bytes: &Vec<u8>| bytes.as_slice().try_into().map_or(0, usize::from_ne_bytes);
    let longest = lengths.iter().map(length).max().unwrap_or(0);
    let all = gather(mpi, comm, padded(words, longest), None, meanwhile)?;
    all.iter().map(|words| parse(words)).collect()
}

fn padded(mut words: Vec<u8>, length: usize) -> Vec<u8> {
    words.resize(length, b' ');
    words
}

fn parse<T: DeserializeOwned>(words: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(words).map_err(|_| Failure::Gibberish)
}

fn gather(
    mpi: &Mpi,
    comm: Handle,
    mine: Vec<u8>,
    patience: Option<Duration>,
    meanwhile: &mut dyn FnMut(),
) -> Result<Vec<Vec<u8>>, Failure> {
    let begin = Instant::now();
    let mut gather = mpi.start_gather(comm, mine);
    while !gather.is_over() {
        if patience.is_some_and(|patience| begin.elapsed() > patience) {
            return Err(Failure::Silence);
        }
        meanwhile();
        // At first eager, then sparing: others may take long, and need the CPU for it.
        if begin.elapsed() < Duration::from_millis(2) {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    gather.finish().ok_or(Failure::Mpi)
}
