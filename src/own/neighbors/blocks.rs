//! The blocks of a vector that have changed, as ranks tell each other: pure.
//!
//! A [`Notice`] of fixed length says their number. Both ends of a pair then know the bytes of the text behind it: which
//! blocks these are, and their contents. If all have changed, nothing says which.

use std::ops::Range;

/// How a vector is cut into blocks, of which the last one may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Bytes of the vector, and of a block.
    pub(super) bytes: usize,
    pub(super) block: usize,
}

/// The words that a rank tells its neighbours of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Notice {
    /// The number of the call, from 1. All ranks are in the same one, or they are out of step.
    pub(super) call: u64,
    /// Blocks that have changed.
    pub(super) blocks: u64,
    /// Bytes that follow.
    pub(super) bytes: u64,
}

impl Notice {
    pub(super) const WORDS: usize = 3;

    pub(super) fn words(self) -> [u64; Self::WORDS] {
        [self.call, self.blocks, self.bytes]
    }

    /// Of as many words.
    pub(super) fn of(words: &[u64]) -> Self {
        Self { call: words[0], blocks: words[1], bytes: words[2] }
    }
}

impl Cut {
    /// The number of blocks.
    pub(super) fn blocks(self) -> usize {
        self.bytes.div_ceil(self.block)
    }

    /// The bytes of a block in the vector.
    pub(super) fn range(self, block: usize) -> Range<usize> {
        let start = block * self.block;
        start..self.bytes.min(start + self.block)
    }

    /// Bytes that say which blocks have changed, if so many have.
    fn names(self, changed: usize) -> usize {
        match changed {
            all if all == self.blocks() => 0,
            some => self.bits().min(some * size_of::<u32>()),
        }
    }

    /// Bytes with a bit for each block.
    fn bits(self) -> usize {
        self.blocks().div_ceil(8)
    }

    /// Most bytes that follow a notice.
    pub(super) fn most(self) -> usize {
        self.bits() + self.bytes
    }

    /// The text behind a notice, for changed blocks in rising order; `contents` has all blocks.
    pub(super) fn encode(self, changed: &[u32], contents: &[u8]) -> Vec<u8> {
        let names = self.names(changed.len());
        // Not empty, for which see `room`.
        let mut text = Vec::with_capacity((names + changed.len() * self.block).max(1));
        if names == size_of_val(changed) {
            text.extend(changed.iter().flat_map(|block| block.to_ne_bytes()));
        } else if names > 0 {
            text.resize(names, 0);
            changed.iter().for_each(|block| text[*block as usize / 8] |= 1 << (block % 8));
        }
        for block in changed {
            text.extend_from_slice(&contents[self.range(*block as usize)]);
        }
        text
    }

    /// The blocks that have changed, each with its contents; `None`: this is not what such a rank sends.
    pub(super) fn decode(self, blocks: u64, text: &[u8]) -> Option<Vec<(usize, &[u8])>> {
        let changed = usize::try_from(blocks).ok().filter(|changed| *changed <= self.blocks())?;
        let (names, mut contents) = text.split_at_checked(self.names(changed))?;
        let named: Vec<usize> = if changed == self.blocks() {
            (0..changed).collect()
        } else if names.len() == changed * size_of::<u32>() {
            let word = |bytes: &[u8; 4]| u32::from_ne_bytes(*bytes) as usize;
            names.as_chunks().0.iter().map(word).collect()
        } else {
            (0..self.blocks()).filter(|block| names[block / 8] & 1 << (block % 8) != 0).collect()
        };
        let is_rising = named.is_sorted_by(|one, next| one < next);
        if named.len() != changed || !is_rising || named.last().is_some_and(|b| *b >= self.blocks())
        {
            return None;
        }
        let mut decoded = Vec::with_capacity(changed);
        for block in named {
            let (data, rest) = contents.split_at_checked(self.range(block).len())?;
            decoded.push((block, data));
            contents = rest;
        }
        contents.is_empty().then_some(decoded)
    }

    /// The blocks in which two vectors differ.
    pub(super) fn compare(self, one: &[u8], other: &[u8]) -> Vec<u32> {
        let differs = |block: &u32| {
            let range = self.range(*block as usize);
            one[range.clone()] != other[range]
        };
        (0..self.blocks() as u32).filter(differs).collect()
    }

    /// The blocks that the program names, in rising order and once each; `None`: there is no such block.
    pub(super) fn named(self, blocks: &[i32]) -> Option<Vec<u32>> {
        let there_is = |block: &u32| (*block as usize) < self.blocks();
        let known = |block: &i32| u32::try_from(*block).ok().filter(there_is);
        let mut named = blocks.iter().map(known).collect::<Option<Vec<_>>>()?;
        named.sort_unstable();
        named.dedup();
        Some(named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;

    #[test]
    fn what_is_encoded_is_decoded() {
        let mut random = Rng(3);
        for (bytes, block) in [(1, 1), (8, 8), (9, 8), (1000, 8), (4096, 64), (4100, 64), (7, 64)] {
            let cut = Cut { bytes, block };
            let contents: Vec<u8> = (0..bytes).map(|_| random.next() as u8).collect();
            for share in [0, 1, 5, 50, 99, 100] {
                let is_in = |_: &u32| random.below(100) < share;
                let changed: Vec<u32> = (0..cut.blocks() as u32).filter(is_in).collect();
                let text = cut.encode(&changed, &contents);
                assert!(text.len() <= cut.most());
                let decoded = cut.decode(changed.len() as u64, &text).expect("just encoded");
                let expected = changed
                    .iter()
                    .map(|block| (*block as usize, &contents[cut.range(*block as usize)]));
                assert!(decoded.into_iter().eq(expected), "{cut:?}, {changed:?}");
            }
        }
    }

    #[test]
    fn nothing_follows_where_nothing_has_changed() {
        let cut = Cut { bytes: 1 << 20, block: 64 };
        assert!(cut.encode(&[], &[0; 1 << 20]).is_empty());
        assert_eq!(cut.decode(0, &[]), Some(Vec::new()));
    }

    /// Each block that is decoded is within the vector, and comes once, whatever the text is.
    #[test]
    fn nonsense_is_not_decoded() {
        let cut = Cut { bytes: 100, block: 8 };
        let text = cut.encode(&[1, 3], &[7; 100]);
        assert_eq!(cut.decode(2, &text[..text.len() - 1]), None);
        for blocks in [1, 3, 14, u64::MAX] {
            assert_eq!(cut.decode(blocks, &text), None);
        }
        let wide = Cut { bytes: 800, block: 8 };
        let text = wide.encode(&[1, 3], &[7; 800]);
        assert!(wide.decode(2, &text).is_some());
        for names in [[3u32, 1], [1, 1], [1, 100]] {
            let mut text = text.clone();
            text[..8].copy_from_slice(&names.map(u32::to_ne_bytes).concat());
            assert_eq!(wide.decode(2, &text), None, "{names:?}");
        }
        let mut random = Rng(5);
        for _ in 0..10_000 {
            let text: Vec<u8> = (0..random.below(120)).map(|_| random.next() as u8).collect();
            for (block, data) in cut.decode(random.below(15), &text).unwrap_or_default() {
                assert_eq!(cut.range(block).len(), data.len());
            }
        }
    }

    #[test]
    fn the_program_may_name_blocks_in_any_order_and_twice() {
        let cut = Cut { bytes: 100, block: 8 };
        assert_eq!(cut.named(&[5, 1, 12, 5]), Some(vec![1, 5, 12]));
        assert_eq!(cut.named(&[]), Some(vec![]));
        assert_eq!(cut.named(&[13]), None);
        assert_eq!(cut.named(&[-1]), None);
    }
}
