//! The work for a call that does not block, in its group.

use crate::engine::Script;
use crate::leaf::quantize::Lender;
use crate::plan::Fit;
use crate::script::{ByShards, Exact, Numbers, Quantized};
use crate::stats::CallOutcome;

/// The work for a call. A persistent one has it at each start.
#[derive(Clone)]
pub enum Work {
    /// The call goes through the group in this form.
    Planned(Fit),
    /// The numbers are quantized, or summed otherwise if some are not finite.
    Quantized(Numbers, Unquantized),
    /// The sum is exact, and too long to be brought together at once.
    Exact(Exact),
}

/// The sum of numbers that cannot be quantized.
#[derive(Clone)]
pub enum Unquantized {
    ByShards(ByShards),
    Exact(Exact),
}

impl Work {
    /// For the statistics.
    pub fn outcome(&self) -> CallOutcome {
        match self {
            Self::Planned(_) | Self::Exact(_) => CallOutcome::Folded,
            Self::Quantized(..) => CallOutcome::Quantized,
        }
    }

    /// Whether it needs a communicator for messages beside the group's.
    pub fn is_exchange(&self) -> bool {
        matches!(self, Self::Planned(Fit::Pairs(_)))
    }

    /// The script, which borrows memory of a lender if it quantizes.
    ///
    /// # Errors
    /// There is none: the form of the call.
    pub fn script(self, memory: impl FnOnce() -> Lender) -> Result<Box<dyn Script>, Fit> {
        match self {
            Self::Planned(fit) => Err(fit),
            Self::Quantized(numbers, otherwise) => {
                let otherwise: Box<dyn Script> = match otherwise {
                    Unquantized::ByShards(script) => Box::new(script),
                    Unquantized::Exact(script) => Box::new(script),
                };
                Ok(Box::new(Quantized::new(numbers, Some(otherwise), memory())))
            }
            Self::Exact(script) => Ok(Box::new(script)),
        }
    }
}
