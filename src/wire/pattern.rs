//! The pattern of a collective: who brings data, who gets some, and how contributions become a result.

use crate::leaf::arithmetic::Arithmetic;

/// The pattern of a collective among `R`: the members of a group, or the ranks of a communicator. `P` says where each
/// one's part of a gather lies, `X` which parcels an exchange has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern<R, P, X> {
    /// Everyone waits for everyone; there are no data.
    Barrier,
    /// Everyone contributes, everyone gets the result (Allreduce).
    FoldToAll(Arithmetic),
    /// Everyone contributes, the root gets the result (Reduce).
    FoldToRoot(R, Arithmetic),
    /// The root's data goes to everyone (Bcast).
    Broadcast(R),
    /// Everyone's part to everyone (Allgather).
    GatherToAll(P),
    /// Everyone's part to the root (Gather).
    GatherToRoot(R, P),
    /// Each one's parcels to others, of any sizes, also none (Alltoallv).
    Exchange(X),
}

impl<R: Copy + PartialEq, P, X> Pattern<R, P, X> {
    /// Whether this one contributes: data, or to a barrier that it is there.
    pub fn brings(&self, this: R) -> bool {
        !matches!(self, Self::Broadcast(root) if *root != this)
    }

    /// Whether this one waits for a result.
    pub fn gets(&self, this: R) -> bool {
        match self {
            Self::Barrier | Self::FoldToAll(_) | Self::GatherToAll(_) | Self::Exchange(_) => true,
            Self::FoldToRoot(root, _) | Self::GatherToRoot(root, _) => *root == this,
            Self::Broadcast(root) => *root != this,
        }
    }

    /// Whether everyone waits for everyone. In an exchange nobody waits for those who have nothing for it.
    pub fn is_to_all(&self) -> bool {
        matches!(self, Self::Barrier | Self::FoldToAll(_) | Self::GatherToAll(_))
    }

    /// The arithmetic of a fold.
    pub fn arithmetic(&self) -> Option<Arithmetic> {
        match self {
            Self::FoldToAll(arithmetic) | Self::FoldToRoot(_, arithmetic) => Some(*arithmetic),
            _ => None,
        }
    }

    /// The parts of a gather.
    pub fn parts(&self) -> Option<&P> {
        match self {
            Self::GatherToAll(parts) | Self::GatherToRoot(_, parts) => Some(parts),
            _ => None,
        }
    }

    /// The same among others.
    pub fn map<S, Q, Y>(
        &self,
        root: impl Fn(R) -> S,
        parts: impl Fn(&P) -> Q,
        parcels: impl Fn(&X) -> Y,
    ) -> Pattern<S, Q, Y> {
        match self {
            Self::Barrier => Pattern::Barrier,
            Self::FoldToAll(arithmetic) => Pattern::FoldToAll(*arithmetic),
            Self::FoldToRoot(at, arithmetic) => Pattern::FoldToRoot(root(*at), *arithmetic),
            Self::Broadcast(at) => Pattern::Broadcast(root(*at)),
            Self::GatherToAll(of) => Pattern::GatherToAll(parts(of)),
            Self::GatherToRoot(at, of) => Pattern::GatherToRoot(root(*at), parts(of)),
            Self::Exchange(of) => Pattern::Exchange(parcels(of)),
        }
    }
}
