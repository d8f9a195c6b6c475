//! How sums on a communicator are quantized, as the program says: by a hint of MPI's, or by foldback's own function.

use std::ffi::CStr;

use serde::Serialize;

use super::Process;
use crate::config::Quantize;
use crate::mpi::pmpi::Handle;

/// The key of the hint; its value is what `FOLDBACK_QUANTIZE` has.
const KEY: &CStr = c"foldback_quantize";

/// What a rank asks for.
#[derive(Serialize)]
enum Wish<'a> {
    /// To leave things as they are.
    Nothing,
    /// What the environment has.
    Usual,
    This(Option<Quantize>),
    /// Nobody knows what.
    Nonsense(&'a str),
}

impl<'a> Wish<'a> {
    fn of(text: &'a str) -> Self {
        Quantize::read(text).map_or(Self::Nonsense(text), Self::This)
    }

    /// A word that is the bits that all ranks have in common of theirs just where all ask for the same: a hash, and its
    /// complement. (FNV-1a, 32 bits.)
    fn word(&self) -> u64 {
        let text = serde_json::to_vec(self).unwrap_or_default();
        let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        let hash = text.iter().fold(0x811c_9dc5, step);
        u64::from(hash) << 32 | u64::from(!hash)
    }
}

impl Process {
    /// MPI has given `comm` these hints. Collective, as giving them is.
    pub fn hinted(&self, comm: Handle, info: Handle) {
        let text = self.mpi.info(info, KEY);
        let wish = text.as_deref().map_or(Wish::Nothing, Wish::of);
        self.tell(comm, self.agree(comm, &wish));
    }

    /// Has sums on `comm` quantized as `how` says, or as the environment does. Collective. Returns whether all ranks ask
    /// for that.
    pub fn set_quantize(&self, comm: Handle, how: Option<&str>) -> bool {
        self.tell(comm, self.agree(comm, &how.map_or(Wish::Usual, Wish::of)))
    }

    /// Forgets what quantized sums on `comm` have left out, on this rank.
    pub fn clear_error_feedback(&self, comm: Handle) {
        if let Some(communicator) = self.communicators.get(self.mpi.abi.handle(comm)) {
            communicator.quantizing().scratch.forget();
        }
    }

    /// Does what all ranks ask for.
    ///
    /// # Errors
    /// Why nothing is done, alike on all ranks, to be said behind the key; nothing, if there is nothing to tell.
    fn agree(&self, comm: Handle, wish: &Wish<'_>) -> Result<(), Option<String>> {
        self.running().ok_or(None)?;
        let comm = self.mpi.abi.handle(comm);
        let communicator = self.communicator(comm).ok_or(None)?;
        // On those that are MPI's there is nothing to quantize, and nobody to agree with.
        communicator.accepted().map_err(|_| None)?;
        let word = wish.word();
        let agreed = self.mpi.bits_of_all(comm, word).ok_or(None)?;
        let own = match wish {
            _ if agreed != word => {
                return Err(Some(": ranks do not ask for the same, so nothing changes".into()));
            }
            Wish::Nothing => return Ok(()),
            Wish::Nonsense(text) => return Err(Some(format!("={text}: {}", Quantize::FORM))),
            Wish::Usual => None,
            Wish::This(quantize) => Some(*quantize),
        };
        self.communicators.set_quantize(&communicator, own);
        Ok(())
    }

    /// Tells of an error once, for all ranks of `comm`. Returns whether there is none.
    fn tell(&self, comm: Handle, outcome: Result<(), Option<String>>) -> bool {
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
