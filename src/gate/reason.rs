//! Why a call is left to the real MPI: for a reason that all ranks share, or because of what this one alone has
//! passed.

/// The arguments are the real MPI's to refuse, on this rank: negative counts, null or aliased buffers, bad
/// roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// Why a call is left to the real MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// All ranks leave it.
    All(Reason),
    /// This rank alone leaves it, for MPI to refuse. The others know nothing of it.
    RefusedHere(Refused),
}

impl From<Reason> for Left {
    fn from(reason: Reason) -> Self {
        Self::All(reason)
    }
}

impl From<Refused> for Left {
    fn from(refused: Refused) -> Self {
        Self::RefusedHere(refused)
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why all ranks leave a call to the real MPI.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Reason { $($(#[$doc])* $name,)* }

        impl Reason {
            /// All reasons, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// As it stands in the statistics.
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

reasons! {
    /// `FOLDBACK=off`, an unknown MPI, a call before MPI_Init, or ranks that are not set alike.
    Off = "foldback is off",
    /// The group's set-up failed, or cannot be had here. The log says why.
    NoGroup = "no group",
    /// The communicator has not seen enough calls yet.
    NotYet = "group not set up yet",
    /// It does not block, and a library before foldback takes MPI_Wait or the like.
    Waits = "waits that foldback does not see",
    /// The communicator has had all the persistent collectives that are folded.
    Persistent = "too many persistent collectives",
    /// Each pair of ranks has data of its own, of a size that no other rank knows.
    Pairs = "pairs that the group does not serve",
    /// There is nobody to fold with.
    OneRank = "one rank",
    /// Two groups of processes.
    Intercommunicator = "intercommunicator",
    /// With ranks that another job, or MPI_Comm_spawn, has started.
    Foreign = "ranks from outside MPI_COMM_WORLD",
    /// MPIX_Comm_revoke was called on it.
    Revoked = "revoked communicator",
    /// A type on which MPI defines no op, as far as is known here; or one that MPI has to fold, in a
    /// call that does not block.
    Datatype = "datatype",
    /// An op that MPI does not define on this type, though it takes it; or one of the program's own, in a
    /// call that does not block.
    Op = "op",
    /// Longer than the limit of this collective.
    TooLarge = "too large",
    /// Measured: the real MPI is the faster one. Or tried, to see whether it is.
    Faster = "faster by MPI",
    /// `FOLDBACK_ROUTE=mpi`.
    Routed = "routed to MPI",
    Empty = "empty",
}
