//! The work of a group for a call: one job, or a script.

use super::Judged;
use crate::collectives::fit;
use crate::config::Sum;
use crate::gate::Reason;
use crate::gate::eligibility::FoldedBy;
use crate::group::Group;
use crate::leaf::arithmetic::Real;
use crate::plan::{Case, MOST_IMAGE};
use crate::requests::work::{Unquantized, Work};
use crate::script::{Addends, ByShards, Exact, Numbers, Request};
use crate::topology::{Image, Place};

impl Judged<'_> {
    #[inline]
    pub(super) fn case(&self) -> Case<'_> {
        Case { call: self.call, admitted: self.admitted, ends: self.ends }
    }

    /// The numbers of a sum that is to be quantized within the group. `None`: the sum is exact, or is not folded. The
    /// answer is the same on all ranks.
    pub(super) fn numbers(&self, group: &Group) -> Option<Numbers> {
        let Self { process, config, call, admitted, ends, comm, .. } = self;
        Numbers::of(&Request {
            ends,
            share: call.collective.share(ends),
            element: admitted.quantized?,
            quantize: process.quantize(*comm)?,
            max_bytes_asked: config.shared.max_bytes_asked(call.collective),
            max_bytes: group.engine.place.max_bytes,
        })
    }

    /// The work for a call that does not block, in its group.
    ///
    /// # Errors
    /// The call is the real MPI's, on all ranks alike.
    pub(super) fn work(&self, group: &mut Group) -> Result<Work, Reason> {
        if let Some(numbers) = self.numbers(group)
            && let Some(sum) = self.unquantized(&mut group.engine.place)
        {
            return Ok(Work::Quantized(numbers, sum));
        }
        self.unless_too_large()?;
        let place = &mut group.engine.place;
        match fit(self.case(), place) {
            Ok(fit) => Ok(Work::Planned(fit)),
            Err(reason) => self.exact(place).map(Work::Exact).ok_or(reason),
        }
    }

    /// The sum of numbers that are asked to be quantized, where some are not finite, within the group.
    fn unquantized(&self, place: &mut Place) -> Option<Unquantized> {
        if let Some(exact) = self.exact(place) {
            return Some(Unquantized::Exact(exact));
        }
        let real = self.admitted.quantized?.real().filter(|_| place.has_shards)?;
        let is_exact = self.config.shared.sum == Sum::Exact;
        let addends = self.addends(real).filter(|_| !is_exact)?;
        Some(Unquantized::ByShards(ByShards::new(addends, real)))
    }

    /// The numbers of a sum, of a format.
    fn addends(&self, real: Real) -> Option<Addends> {
        let Self { call, ends, .. } = self;
        Addends::of(ends, &call.collective.share(ends), real.bytes())
    }

    /// Refuses a call that was admitted to be quantized alone, and is not.
    pub(super) fn unless_too_large(&self) -> Result<(), Reason> {
        let is_too_large =
            self.admitted.quantized.is_some() && self.admitted.bytes > self.admitted.max_bytes;
        if is_too_large { Err(Reason::TooLarge) } else { Ok(()) }
    }

    /// The script of an exact sum. `None`: the call is no exact sum, or is beyond a limit that the program has set, or
    /// the group is slow with long messages. The answer is the same on all ranks.
    pub(super) fn exact(&self, place: &mut Place) -> Option<Exact> {
        let Self { admitted, ends, .. } = self;
        let FoldedBy::Exact { real, always: true } = admitted.fold?.by else { return None };
        let bytes = ends.brings?.bytes();
        let is_allowed = bytes.saturating_mul(ends.ranks) <= admitted.max_bytes;
        if !is_allowed || place.max_bytes < MOST_IMAGE {
            return None;
        }
        let gaps = Image::most_gaps(place.layout.hosts.len());
        let step = (MOST_IMAGE - gaps) / (real.bytes() * ends.ranks);
        Exact::new(self.addends(real)?, real, step, |bytes| place.even_image(bytes))
    }
}
