//! Setting a group up: all ranks of a communicator, inside a collective call that all of them make.
//!
//! There are four stages, each of which ends with one exchange and hands its result to the next:
//!
//! 1. [`Roster`]: everyone says who it is. All draw the same conclusions: which hosts, who leads, which addresses.
//!
//! 2. [`Terms`]: leaders find their agent, and say what their interface can do.
//!
//! 3. [`Membership`]: leaders make the group; ranks of a host meet in shared memory. Everyone says whether it worked.
//!
//! 4. [`Proven`]: leaders send HELLOs, and let every aggregator fold once. Everyone says whether it worked.
//!
//! All ranks begin again with shorter chunks if long ones do not come through.
//!
//! No HELLO, which bears the group's token, leaves before the programs of every host know the group. Until then a frame
//! goes up to the process that has bound the port, and anybody's frames with the token go out.
//!
//! If anything goes wrong anywhere, all ranks hear of it in the next exchange, and all leave the communicator to MPI. A
//! rank without foldback cannot tell: it does not take part. So the ranks compare themselves before, when they meet
//! ([`compare()`]): behind their first common call (`src/process/meet.rs`) or in MPI_Init. If a rank does not answer,
//! the job ends, with a message.

pub mod agent;
pub mod exchange;
mod hello;
pub mod hosts;
mod learnt;
mod meet;
mod member;
mod offer;
mod outcome;
mod roll_call;
mod terms;
mod trial;
mod trouble;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::config::{Config, TransportChoice};
use crate::group::Group;
use crate::keeper::Keepers;
use crate::mpi::Mpi;
use crate::mpi::pmpi::Handle;
use crate::wire::socket::SocketPool;
use agent::{AgentAccess, Haste};
use exchange::exchange;
use hello::Roster;
use learnt::Learnt;
use member::Membership;
use terms::Terms;
use trial::Proven;

pub use roll_call::{compare, note_user, roll_call};
pub use trouble::NoGroup;

/// The parts of a process that all its groups share.
#[derive(Default)]
pub struct Facilities {
    pub agent: AgentAccess,
    sockets: SocketPool,
    keepers: Keepers,
    learnt: Learnt,
}

/// The parts of a process that set-up needs.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The real MPI.
    pub mpi: &'a Mpi,
    pub config: &'a Result<Config, String>,
    pub facilities: &'a Facilities,
}

impl Context<'_> {
    /// The transport of a new group's frames.
    pub fn transport(&self) -> TransportChoice {
        self.config.as_ref().map_or(TransportChoice::Auto, |config| config.shared.transport)
    }
}

/// A group that is asked for.
struct Request<'a> {
    context: &'a Context<'a>,
    comm: Handle,
    transport: TransportChoice,
    haste: Haste,
}

impl<'a> Request<'a> {
    fn config(&self) -> &'a Config {
        Config::or_default(self.context.config)
    }

    /// The rank of this process in the communicator.
    fn rank(&self) -> usize {
        self.context.mpi.rank(self.comm)
    }

    /// Gathers what all ranks have to say. Waits as long as it takes: all ranks have foldback, but they need not come
    /// to a communicator at one time.
    fn tell<T: Serialize + DeserializeOwned>(
        &self,
        own: &T,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<Vec<T>, NoGroup> {
        let said = exchange(self.context.mpi, self.comm, own, None, meanwhile);
        said.map_err(NoGroup::Untold)
    }
}

/// Sets a group up for `comm`, whose frames are carried by `transport`. Collective.
///
/// # Errors
/// Why `comm` is left to MPI, the same on all ranks.
pub fn set_up(
    context: &Context<'_>,
    comm: Handle,
    transport: TransportChoice,
    haste: Haste,
) -> Result<Group, NoGroup> {
    let request = Request { context, comm, transport, haste };
    loop {
        let roster = Roster::call(&request)?;
        let (terms, resources) = Terms::settle(&request, &roster)?;
        let membership = Membership::begin(&request, roster, terms, resources)?;
        if let Some(proven) = Proven::by_trial(&request, membership)? {
            return proven.into_group(&request.config().shared);
        }
    }
}
