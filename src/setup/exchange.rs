//! Telling each other, at set-up: every rank of a communicator says something to all others.

use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::mpi::Mpi;
use crate::mpi::pmpi::Handle;

/// Bytes of the first message of every rank: all must send the same amount. It begins with the length of
/// what the rank has to say.
const FIRST: usize = 2048;

/// Length of a length, in the byte order of the network.
const LENGTH: usize = size_of::<u32>();

/// More than any rank has to say.
const LONGEST_MESSAGE: usize = 64 << 20;

/// Why an exchange failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Some rank did not take part within the bound.
    Silence,
    /// The message is no JSON of ours: another version of foldback.
    Gibberish,
    /// The MPI reported an error.
    Mpi,
}

/// Gathers what all ranks of `comm` have to say, in rank order. `meanwhile` is called over and over
/// while this rank waits; it also bounds the load of waiting. Without `patience` it waits for ever.
///
/// Words that do not fit the first message are sent in a second, as long as the longest.
///
/// # Errors
/// See [`Failure`]. All but [`Failure::Silence`] and [`Failure::Mpi`] are alike on all ranks.
pub fn exchange<T: Serialize + DeserializeOwned>(
    mpi: &Mpi,
    comm: Handle,
    own: &T,
    patience: Option<Duration>,
    meanwhile: &mut dyn FnMut(),
) -> Result<Vec<T>, Failure> {
    // An absurd length says that there is nothing to say, so that the others do not wait.
    let words = serde_json::to_vec(own).unwrap_or_else(|_| vec![0; LONGEST_MESSAGE + 1]);
    let first = gather(mpi, comm, first_message(&words), patience, meanwhile)?;
    match read_first_messages(&first)? {
        Heard::All(said) => said.into_iter().map(parse).collect(),
        Heard::Cut { longest } => {
            let mut whole = words;
            whole.resize(longest, b' ');
            let whole = gather(mpi, comm, whole, patience, meanwhile)?;
            whole.iter().map(|words| parse(words)).collect()
        }
    }
}

/// Gathers a few words of every rank of `comm`, in rank order: as [`exchange`], and cheaper.
///
/// # Errors
/// [`Failure::Silence`] or [`Failure::Mpi`].
pub fn words<const N: usize>(
    mpi: &Mpi,
    comm: Handle,
    own: [u64; N],
    patience: Option<Duration>,
) -> Result<Vec<[u64; N]>, Failure> {
    let own: Vec<u8> = own.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let all = gather(mpi, comm, own, patience, &mut || ())?;
    let read = |bytes: Vec<u8>| {
        let (words, _) = bytes.as_chunks();
        std::array::from_fn(|at| words.get(at).copied().map_or(0, u64::from_ne_bytes))
    };
    Ok(all.into_iter().map(read).collect())
}

/// The content of all ranks' first messages.
#[derive(Debug, PartialEq, Eq)]
enum Heard<'a> {
    /// Everything that each rank says.
    All(Vec<&'a [u8]>),
    /// Somebody had more to say, at most so many bytes.
    Cut { longest: usize },
}

fn first_message(words: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(FIRST);
    message.extend(u32::try_from(words.len()).unwrap_or(u32::MAX).to_be_bytes());
    message.extend(words.iter().take(FIRST - LENGTH));
    message.resize(FIRST, b' ');
    message
}

fn read_first_messages(messages: &[Vec<u8>]) -> Result<Heard<'_>, Failure> {
    let mut said = Vec::with_capacity(messages.len());
    let mut longest = 0;
    for message in messages {
        let (length, words) = message.split_first_chunk().ok_or(Failure::Gibberish)?;
        let length = u32::from_be_bytes(*length) as usize;
        if length > LONGEST_MESSAGE {
            return Err(Failure::Gibberish);
        }
        longest = longest.max(length);
        said.push(words.get(..length).unwrap_or(words));
    }
    Ok(if longest > FIRST - LENGTH { Heard::Cut { longest } } else { Heard::All(said) })
}

fn parse<T: DeserializeOwned>(words: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(words).map_err(|_| Failure::Gibberish)
}

fn gather(
    mpi: &Mpi,
    comm: Handle,
    own: Vec<u8>,
    patience: Option<Duration>,
    meanwhile: &mut dyn FnMut(),
) -> Result<Vec<Vec<u8>>, Failure> {
    let begin = Instant::now();
    let mut gather = mpi.start_gather(comm, own);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_the_first_message_takes_no_second() {
        let longest = vec![b'7'; FIRST - LENGTH];
        let messages = [first_message(b"{}"), first_message(&longest)];
        assert!(messages.iter().all(|message| message.len() == FIRST));
        assert_eq!(
            read_first_messages(&messages),
            Ok(Heard::All(vec![b"{}".as_slice(), &longest]))
        );
    }

    #[test]
    fn one_long_rank_has_all_ranks_send_a_second() {
        let messages = [first_message(b"{}"), first_message(&[b'7'; FIRST])];
        assert_eq!(read_first_messages(&messages), Ok(Heard::Cut { longest: FIRST }));
    }

    #[test]
    fn what_is_not_ours_is_told_by_its_length() {
        let mut older = br#"{"release":"0.1.0"}"#.to_vec();
        older.resize(FIRST, b' ');
        assert_eq!(read_first_messages(&[first_message(b"{}"), older]), Err(Failure::Gibberish));
        assert_eq!(
            read_first_messages(&[first_message(&vec![0; LONGEST_MESSAGE + 1])]),
            Err(Failure::Gibberish)
        );
        assert_eq!(read_first_messages(&[vec![0]]), Err(Failure::Gibberish));
    }
}
