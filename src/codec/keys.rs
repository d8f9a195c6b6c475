//! Elements as keys, integers that the kernel folds: pairs of MPI_MINLOC and MPI_MAXLOC, and floating point for its
//! minimum and maximum.

use crate::gate::eligibility::{Keys, Pair};
use crate::leaf::order;

/// Keys of elements as they lie in memory, as many bytes.
pub fn keys(elements: &[u8], how: Keys) -> Vec<u8> {
    match how {
        Keys::Pairs(pair) => keys_of_pairs(elements, pair),
        Keys::Reals { format, max } => order::keys(elements, format, max),
    }
}

/// The reverse of [`keys`]. Holes stay as they are.
pub fn unkey(keys: &[u8], elements: &mut [u8], how: Keys) {
    match how {
        Keys::Pairs(pair) => pairs_of_keys(keys, elements, pair),
        Keys::Reals { format, .. } => order::unkey(keys, elements, format),
    }
}

/// Key of a pair: the lesser key wins as MPI_MINLOC and MPI_MAXLOC say (MPI-4.1 section 6.9.4).
/// Values count first; among equals the lesser index wins.
fn key(value: i32, index: i32, pair: Pair) -> u64 {
    let flip = |x: i32| x as u32 ^ 1 << 31;
    let value = if pair.max { !flip(value) } else { flip(value) };
    u64::from(value) << 32 | u64::from(flip(index))
}

/// Of 8 bytes each, value first, index in the last 4.
fn keys_of_pairs(pairs: &[u8], pair: Pair) -> Vec<u8> {
    let key_of = |bytes: &[u8; 8]| {
        let [a, b, c, d, index @ ..] = *bytes;
        let value = match pair.value {
            2 => i32::from(i16::from_ne_bytes([a, b])),
            _ => i32::from_ne_bytes([a, b, c, d]),
        };
        key(value, i32::from_ne_bytes(index), pair).to_ne_bytes()
    };
    pairs.as_chunks::<8>().0.iter().flat_map(key_of).collect()
}

fn pairs_of_keys(keys: &[u8], pairs: &mut [u8], pair: Pair) {
    let flip = |x: u32| (x ^ 1 << 31) as i32;
    for (key, bytes) in keys.as_chunks::<8>().0.iter().zip(pairs.as_chunks_mut::<8>().0) {
        let key = u64::from_ne_bytes(*key);
        let value = (key >> 32) as u32;
        let value = flip(if pair.max { !value } else { value });
        match pair.value {
            2 => bytes[..2].copy_from_slice(&(value as i16).to_ne_bytes()),
            _ => bytes[..4].copy_from_slice(&value.to_ne_bytes()),
        }
        bytes[4..].copy_from_slice(&flip(key as u32).to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(list: &[(i32, i32)]) -> Vec<u8> {
        let bytes = |&(v, i): &(i32, i32)| [v.to_ne_bytes(), i.to_ne_bytes()].concat();
        list.iter().flat_map(bytes).collect()
    }

    #[test]
    fn the_least_key_is_the_pair_that_wins() {
        let key = |value, index, max| key(value, index, Pair { value: 4, max });
        assert!(key(-1, 7, false) < key(0, 0, false));
        assert!(key(3, -2, false) < key(3, 1, false));
        assert!(key(i32::MAX, 9, true) < key(i32::MIN, 0, true));
        assert!(key(3, 1, true) < key(3, 2, true));
    }

    #[test]
    fn keys_go_back_to_pairs_and_leave_holes_alone() {
        for max in [false, true] {
            let whole = pairs(&[(i32::MIN, 0), (5, i32::MAX), (-5, -1)]);
            let mut back = vec![0; whole.len()];
            let pair = Keys::Pairs(Pair { value: 4, max });
            unkey(&keys(&whole, pair), &mut back, pair);
            assert_eq!(back, whole);
            let short = [0xfe, 0xff, 0x11, 0x22, 3, 0, 0, 0];
            let mut back = [0x77; 8];
            let pair = Keys::Pairs(Pair { value: 2, max });
            unkey(&keys(&short, pair), &mut back, pair);
            assert_eq!(back, [0xfe, 0xff, 0x77, 0x77, 3, 0, 0, 0]);
        }
    }
}
