//! Structures of the C header as bytes and numbers. The only casts of this kind.
#![allow(unsafe_code)]

use std::mem::{offset_of, size_of};

use serde::{Deserialize, Serialize};

use crate::bindings::{fb_control, fb_counters, fb_group, fb_part, fb_table};

/// The work of the leader of a group on this host, by its own word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    /// Operations begun.
    pub calls: u64,
    /// Calls left to MPI, which was measured to be faster.
    pub left: u64,
    /// Times that it asked for something again.
    pub asked: u64,
    /// Chunks ended by the second transport, as of the last look at it.
    pub rescued: u64,
}

/// The number of counters.
pub(crate) const COUNTERS: usize = size_of::<fb_counters>() / size_of::<u64>();

/// A group as the map holds it.
pub(crate) fn group_bytes(group: &fb_group) -> &[u8] {
    // SAFETY: the header lays the structure out without holes (bindgen asserts its size and the
    // offset of every field), so each of its bytes is initialized; the slice borrows it.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(group).cast(), size_of::<fb_group>()) }
}

/// The first element of the cells of a group, as the map holds it: `struct fb_control` in a cell's place.
pub(crate) fn control_element(token: u64, cell_bytes: u32) -> Vec<u8> {
    let mut bytes = vec![0; cell_bytes as usize];
    let at = offset_of!(fb_control, token);
    bytes[at..at + size_of::<u64>()].copy_from_slice(&token.to_ne_bytes());
    bytes
}

/// The leader's work, as it has put it into the first element of the cells of its group.
pub(crate) fn work(element: &[u8]) -> Option<Work> {
    let word = |at: usize| Some(u64::from_ne_bytes(*element.get(at..)?.first_chunk()?));
    Some(Work {
        calls: word(offset_of!(fb_control, calls))?,
        left: word(offset_of!(fb_control, left))?,
        asked: word(offset_of!(fb_control, asked))?,
        rescued: word(offset_of!(fb_control, rescued))?,
    })
}

/// The first element of the table of a group, as the map holds it: `struct fb_table` in a part's place.
pub(crate) fn table_element(token: u64) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<fb_part>()];
    let at = offset_of!(fb_table, token);
    bytes[at..at + size_of::<u64>()].copy_from_slice(&token.to_ne_bytes());
    bytes
}

/// Counters in the order of the header.
pub(crate) fn counters_to_words(counters: &fb_counters) -> Vec<u64> {
    let first = std::ptr::from_ref(counters).cast::<u64>();
    // SAFETY: fb_counters is repr(C) and made of u64 alone, so it is an array of COUNTERS of them.
    unsafe { std::slice::from_raw_parts(first, COUNTERS) }.to_vec()
}

/// The reverse; `None` if there are not as many as the header has.
pub(crate) fn counters_from_words(words: &[u64]) -> Option<fb_counters> {
    let words: &[u64; COUNTERS] = words.try_into().ok()?;
    // SAFETY: fb_counters is an array of COUNTERS u64, which `words` has, and any number is a u64.
    Some(unsafe { std::ptr::from_ref(words).cast::<fb_counters>().read() })
}

/// The counts of two groups together.
pub(crate) fn sum(one: &fb_counters, other: &fb_counters) -> fb_counters {
    let pairs = counters_to_words(one).into_iter().zip(counters_to_words(other));
    let words: Vec<u64> = pairs.map(|(one, other)| one.wrapping_add(other)).collect();
    counters_from_words(&words).unwrap_or_default()
}

/// Adds up one counter value a CPU, as the kernel hands them out.
pub(crate) fn sum_counters(per_cpu: &[Vec<u8>]) -> Option<fb_counters> {
    let mut sums = [0_u64; COUNTERS];
    for value in per_cpu {
        for (sum, word) in sums.iter_mut().zip(value.as_chunks::<8>().0) {
            *sum = sum.wrapping_add(u64::from_ne_bytes(*word));
        }
    }
    counters_from_words(&sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_counters_are_the_same_thing() {
        let words: Vec<u64> = (0..COUNTERS as u64).collect();
        let counters = counters_from_words(&words).unwrap();
        assert_eq!((counters.frames_in, counters.frames_out), (0, 1));
        assert_eq!(counters_to_words(&counters), words);
        assert!(counters_from_words(&words[1..]).is_none());
    }

    #[test]
    fn counters_add_up_over_cpus() {
        let cpu: Vec<u8> = (0..COUNTERS as u64).flat_map(u64::to_ne_bytes).collect();
        let sum = sum_counters(&[cpu.clone(), cpu]).unwrap();
        assert_eq!(sum.frames_out, 2);
        assert_eq!(sum.no_group, 2 * (COUNTERS as u64 - 1));
    }

    #[test]
    fn a_group_is_as_long_as_the_map_wants() {
        assert_eq!(group_bytes(&fb_group::default()).len(), size_of::<fb_group>());
    }
}
