//! How sums on a communicator are quantized, as the program says: by a hint of MPI's, or by foldback's own function.

use std::ffi::CStr;

use serde::Serialize;

use super::Process;
use crate::comm::{Communicator, QuantizeChoice};
use crate::config::Quantize;
use crate::mpi::abi::Family;
use crate::mpi::pmpi::Handle;

/// The key of the hint; its value is what `FOLDBACK_QUANTIZE` has.
const KEY: &CStr = c"foldback_quantize";

/// A rank's wish.
#[derive(Serialize)]
pub(super) enum Wish<'a> {
    /// To leave things as they are.
    Nothing,
    /// To do as the environment says.
    Usual,
    This(Option<Quantize>),
    /// Nobody knows what.
    Nonsense(&'a str),
}

impl<'a> Wish<'a> {
    fn of(text: &'a str) -> Self {
        Quantize::read(text).map_or(Self::Nonsense(text), Self::This)
    }

    /// The wish of a hint.
    pub(super) fn of_hint(text: Option<&'a str>) -> Self {
        text.map_or(Self::Nothing, Self::of)
    }

    /// A word that is the bits that all ranks have in common of theirs just where all ask for the same: a hash, and its
    /// complement. (FNV-1a, 32 bits.)
    pub(super) fn word(&self) -> u64 {
        let text = serde_json::to_vec(self).unwrap_or_default();
        let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        let hash = text.iter().fold(0x811c_9dc5, step);
        u64::from(hash) << 32 | u64::from(!hash)
    }
}

impl Process {
    /// MPI has given `comm` these hints. Collective, as giving them is.
    pub fn take_hints(&self, comm: Handle, info: Handle) {
        if !self.is_running() {
            return;
        }
        let text = self.mpi.info(info, KEY);
        let known = self.communicator(self.mpi.abi.handle(comm));
        let Some(communicator) = known.filter(|known| known.unless_declined().is_ok()) else {
            return;
        };
        if self.alike(&communicator).is_none() {
            // Ranks without foldback would not answer. The others agree when they meet.
            if text.is_some() {
                communicator.quantization().asked = text;
            }
            return;
        }
        self.tell(comm, self.agree(comm, &communicator, &Wish::of_hint(text.as_deref())));
    }

    /// The program is about to have the MPI duplicate `comm` without blocking.
    pub fn hold(&self, comm: Handle) {
        let comm = self.mpi.abi.handle(comm);
        // One that is known is forgotten with its end, and so is this.
        if self.mpi.abi.family == Family::OpenMpi
            && self.is_running()
            && self.communicator(comm).is_some()
        {
            self.communicators.hold(comm);
        }
    }

    /// How sums on `comm` are quantized; `None`: they are not.
    #[inline]
    pub fn quantize(&self, comm: Handle) -> Option<Quantize> {
        let usual = self.config.as_ref().ok()?.shared.quantize;
        self.communicators.quantize(comm, usual)
    }

    /// Has sums on `comm` quantized as `how` says, or as the environment does. Collective. Returns whether all ranks
    /// ask for that.
    pub fn set_quantize(&self, comm: Handle, how: Option<&str>) -> bool {
        let known =
            self.is_running().then(|| self.communicator(self.mpi.abi.handle(comm))).flatten();
        // On those that are MPI's there is nothing to quantize, and nobody to agree with.
        let Some(communicator) = known.filter(|known| known.unless_declined().is_ok()) else {
            return false;
        };
        if self.alike(&communicator).is_none() {
            self.meet_within(self.mpi.abi.handle(comm), &communicator, None);
        }
        if communicator.unless_declined().is_err() {
            return false;
        }
        self.tell(comm, self.agree(comm, &communicator, &how.map_or(Wish::Usual, Wish::of)))
    }

    /// Forgets what quantized sums on `comm` have left out, on this rank.
    pub fn clear_error_feedback(&self, comm: Handle) {
        if let Some(communicator) = self.communicators.get(self.mpi.abi.handle(comm)) {
            communicator.quantization().memory.forget();
        }
    }

    /// Does what all ranks ask for. Collective.
    ///
    /// # Errors
    /// Why nothing is done, alike on all ranks, to be said behind the key; nothing, if there is nothing to tell.
    fn agree(
        &self,
        comm: Handle,
        communicator: &Communicator,
        wish: &Wish<'_>,
    ) -> Result<(), Option<String>> {
        let common = self.mpi.bits_of_all(self.mpi.abi.handle(comm), wish.word()).ok_or(None)?;
        self.agree_on(communicator, wish, common)
    }

    /// The same, where all ranks have `common` bits in the words of what they ask for.
    pub(super) fn agree_on(
        &self,
        communicator: &Communicator,
        wish: &Wish<'_>,
        common: u64,
    ) -> Result<(), Option<String>> {
        let choice = match wish {
            _ if common != wish.word() => {
                return Err(Some(": ranks do not ask for the same, so nothing changes".into()));
            }
            Wish::Nothing => return Ok(()),
            Wish::Nonsense(text) => return Err(Some(format!("={text}: {}", Quantize::FORM))),
            Wish::Usual => QuantizeChoice::Usual,
            Wish::This(quantize) => QuantizeChoice::Own(*quantize),
        };
        self.communicators.set_quantize(communicator, choice);
        Ok(())
    }

    /// Tells of an error once, for all ranks of `comm`. Returns whether there is none.
    pub(super) fn tell(&self, comm: Handle, outcome: Result<(), Option<String>>) -> bool {
        if let Err(Some(why)) = &outcome
            && self.mpi.rank(comm) == 0
        {
            log::warn!("{}{why}", KEY.to_string_lossy());
        }
        outcome.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_agree_just_where_they_ask_for_the_same() {
        let wishes = [
            Wish::Nothing,
            Wish::Usual,
            Wish::of("off"),
            Wish::of("int8"),
            Wish::of("int16"),
            Wish::of("int16,block=64"),
            Wish::of("int4"),
            Wish::of("int5"),
        ];
        for (at, one) in wishes.iter().enumerate() {
            for (other_at, other) in wishes.iter().enumerate() {
                let agreed = one.word() & other.word();
                assert_eq!(agreed == one.word(), at == other_at);
                assert_eq!(agreed == other.word(), at == other_at);
            }
        }
        assert_eq!(Wish::of("int16").word(), Wish::of("int16,block=256").word());
    }
}
