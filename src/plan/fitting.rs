//! The forms in which calls go through a group.

use std::sync::Arc;

use crate::gate::Reason;
use crate::gate::eligibility::{Keys, checked_size};
use crate::leaf::arithmetic::Arithmetic;
use crate::leaf::segment;
use crate::topology::Image;

/// Most bytes of an image: on hosts with several ranks it has to fit into a block of theirs.
pub const MOST_IMAGE: usize = segment::BLOCK - 4096;

/// The arithmetic of a fold, by the kernel or by shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    pub arithmetic: Arithmetic,
    /// The elements are folded as keys.
    pub keys: Option<Keys>,
}

/// The form in which a call goes through the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// One message of so many bytes.
    Whole(usize),
    /// One, folded.
    Folded(usize, Kernel),
    Parts(Arc<Image>),
    /// Parts of more than a chunk, which can be brought to all, and not to a root alone.
    LongParts(Arc<Image>),
    /// Pairs of ranks, each with data of its own. Pairs of up to so many bytes go through the group.
    Pairs(usize),
    /// The same, of which all are of so many bytes at most, and go through the group.
    ShortPairs(usize),
}

impl Fit {
    /// Bytes in all.
    #[inline]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Whole(bytes)
            | Self::Folded(bytes, _)
            | Self::Pairs(bytes)
            | Self::ShortPairs(bytes) => *bytes,
            Self::Parts(image) | Self::LongParts(image) => image.bytes(),
        }
    }

    /// The message of a broadcast. Panics if it is none.
    pub fn whole(self) -> usize {
        let Self::Whole(bytes) = self else { unreachable!("of another call: {self:?}") };
        bytes
    }

    /// Every rank's part. Panics if there are none.
    pub fn parts(self) -> Arc<Image> {
        let (Self::Parts(image) | Self::LongParts(image)) = self else {
            unreachable!("of another call: {self:?}")
        };
        image
    }
}

/// The bytes of `count` parts of `part` bytes.
///
/// # Errors
/// They are none, or more than `max_bytes`.
pub fn all(part: usize, count: usize, max_bytes: usize) -> Result<usize, Reason> {
    checked_size(part.checked_mul(count).ok_or(Reason::TooLarge)?, max_bytes)
}

/// Every rank's part, if the image has no more than `max_bytes` bytes.
///
/// # Errors
/// It has more, or none.
pub fn parts(image: Arc<Image>, max_bytes: usize) -> Result<Fit, Reason> {
    checked_size(image.bytes(), max_bytes.min(MOST_IMAGE))?;
    Ok(Fit::Parts(image))
}
