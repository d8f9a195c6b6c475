//! Setting a group up: all ranks of a communicator, inside a collective call that all of them make.
//!
//! 1. Everyone says who it is; all draw the same conclusions: which hosts, who leads, which
//!    addresses.
//! 2. Leaders find their agent, and say what their interface can do.
//! 3. Leaders make the group; ranks of a host meet in shared memory. Everyone says whether it worked.
//! 4. Leaders send HELLOs, and let every aggregator fold once. Everyone says whether it worked.
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
mod meet;
mod member;
mod offer;
mod roll_call;
mod trouble;

use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::agent::can_share_address;
use crate::bindings::FB_CHUNK_BYTES;
use crate::config::{Config, Transport};
use crate::engine::Engine;
use crate::group::Group;
use crate::keeper::Keepers;
use crate::mpi::Mpi;
use crate::mpi::pmpi::Handle;
use crate::topology::{Layout, Place};
use crate::wire::socket::SocketPool;
use crate::wire::{Algorithm, Identity, Seal, window_for};
use agent::{AgentAccess, Haste};
use exchange::exchange;
use hello::{Hello, agree, elsewhere};
use member::{Greeting, go_to_work, listen, try_out};
use offer::{Offer, no_programs};

pub use roll_call::{compare, note_user, roll_call};
pub use trouble::NoGroup;
use trouble::Trouble;

/// This process has not heard what is sent to all at once: one trial is enough.
static DEAF: AtomicBool = AtomicBool::new(false);
/// Nor have chunks longer than usual come through: a router on the way has a smaller MTU, say.
static NO_JUMBO: AtomicBool = AtomicBool::new(false);

/// The parts of a process that set-up needs.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The real MPI.
    pub mpi: &'a Mpi,
    pub config: &'a Result<Config, String>,
    pub agent: &'a AgentAccess,
    pub sockets: &'a SocketPool,
    pub keepers: &'a Keepers,
}

impl Context<'_> {
    /// The transport of a new group's frames.
    pub fn transport(&self) -> Transport {
        self.config.as_ref().map_or(Transport::Auto, |config| config.shared.transport)
    }

    /// Whether what goes to all members may go at once, as far as this process knows.
    fn multicast(&self) -> bool {
        let wanted = self.config.as_ref().is_ok_and(|config| config.shared.multicast);
        wanted && !DEAF.load(Ordering::Relaxed)
    }

    /// Most bytes of a chunk, as far as this process knows, where the link has room for `most`.
    fn chunk_bytes(&self, most: u16) -> u16 {
        if NO_JUMBO.load(Ordering::Relaxed) { most.min(FB_CHUNK_BYTES as u16) } else { most }
    }
}

/// A rank's words in the third and fourth exchange: whether its part succeeded.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Outcome {
    trouble: Option<Trouble>,
    /// This host has heard what all others sent to everyone.
    overheard: bool,
}

/// Sets a group up for `comm`, whose frames are carried by `transport`. Collective.
///
/// # Errors
/// Why `comm` is left to MPI, the same on all ranks.
pub fn set_up(
    context: &Context<'_>,
    comm: Handle,
    transport: Transport,
    haste: Haste,
) -> Result<Group, NoGroup> {
    let (mpi, rank) = (context.mpi, context.mpi.rank(comm));
    let config = Config::or_default(context.config);

    let addresses = context.agent.addresses(&config.networks);
    let hellos = tell(mpi, comm, &Hello::new(config, addresses), &mut || ())?;
    let layout = Layout::new(hellos.iter().map(|hello| hello.host.as_str()));
    let members = agree(&hellos, &layout)?;
    let (me, place) = layout.place(rank).ok_or(NoGroup::Nowhere)?;
    let leads = place == 0;
    let locals = layout.hosts[me].len();

    let elsewhere = elsewhere(&hellos, &layout, rank, members[me]);
    let (offer, mut means) = match leads {
        true => Offer::of(context, transport, (members[me], &elsewhere), locals, haste),
        false => Default::default(),
    };
    let offers = tell(mpi, comm, &offer, &mut || ())?;
    troubles(&layout, offers.iter().map(|offer| &offer.trouble))?;
    if let Some(later) = offers.iter().filter_map(|offer| offer.later).max() {
        return Err(NoGroup::Later(later));
    }
    let leader = &offers[layout.hosts[me][0]];
    if let Some(address) = &leader.embedded {
        context.agent.set_neighbour(address.clone());
    }
    let leaders = || layout.hosts.iter().map(|ranks| &offers[ranks[0]]);
    let no_programs = no_programs(&layout, &offers)?;
    let by_sockets = transport == Transport::Sockets || no_programs.is_some();
    if by_sockets {
        means.client = None;
    } else if leaders().any(|offer| offer.port != leader.port) {
        return Err(NoGroup::Ports);
    }
    let chunk_bytes = match by_sockets {
        // A datagram that some link on the way cannot carry goes in fragments.
        true => FB_CHUNK_BYTES as u16,
        false => leaders().map(|offer| offer.chunk_bytes).min().unwrap_or(0),
    };

    let all_may_hear = !by_sockets && leaders().all(|offer| offer.multicast);
    let identity = Identity {
        token: hellos[0].token,
        seal: Seal::new(hellos[0].secret),
        members: members.len() as u8,
        me: me as u8,
        chunk_bytes,
        multicast: all_may_hear && can_share_address(members.len()),
    };
    let mut trouble = None;
    let mut joined = None;
    let leaf = match (&mut means.meeting, &leader.meeting) {
        (Some(host), _) => host.receive(locals).map(Some),
        (None, Some(address)) => meet::join(address, place, locals).map(Some),
        (None, None) => Ok(None),
    };
    let contact = |(member, offer): (usize, &Offer)| {
        let other = member != me;
        offer.contact(members[member], &elsewhere).filter(|_| other)
    };
    let peers: Vec<_> = leaders().enumerate().map(contact).collect();
    let window = window_for(config.shared.window, chunk_bytes);
    if leads {
        let join = means.join(context, &identity, &members, &peers, window);
        joined = join.map_err(|error| trouble = Some(error)).ok();
    }
    let leaf = leaf.unwrap_or_else(|error| {
        trouble = Some(Trouble::SharedMemory(error.to_string()));
        None
    });

    let outcomes = tell(mpi, comm, &Outcome { trouble, overheard: false }, &mut || ())?;
    troubles(&layout, outcomes.iter().map(|outcome| &outcome.trouble))?;

    // Where its frames are to be let through.
    let port = leader.keeper.filter(|_| by_sockets).unwrap_or(leader.port);
    let trouble = joined
        .as_mut()
        .and_then(|joined| try_out(context, joined, port, config.probe_timeout).err());
    let listens = joined.as_mut().filter(|_| identity.multicast && trouble.is_none());
    let overheard = listens.map(|(wire, _)| listen(context, wire));
    if overheard == Some(false) {
        log::info!("not all hear what is sent to all at once: it is sent to each");
        DEAF.store(true, Ordering::Relaxed);
    }
    let overheard = overheard.unwrap_or(false);
    // A peer may have missed our HELLO; it cannot go on without.
    let mut greeting = Greeting::default();
    let outcomes = tell(mpi, comm, &Outcome { trouble, overheard }, &mut || {
        if let Some((wire, _)) = &mut joined {
            greeting.again(wire);
        }
    })?;
    let no_fold = |outcome: &Outcome| outcome.trouble.as_ref().is_some_and(Trouble::is_no_fold);
    if u32::from(chunk_bytes) > FB_CHUNK_BYTES && outcomes.iter().any(no_fold) {
        log::info!(
            "chunks of {chunk_bytes} bytes do not come through, though all links have room for them: \
             trying shorter ones"
        );
        NO_JUMBO.store(true, Ordering::Relaxed);
        drop((joined, leaf));
        return set_up(context, comm, transport, haste);
    }
    troubles(&layout, outcomes.iter().map(|outcome| &outcome.trouble)).inspect_err(|_| {
        if by_sockets {
            context.keepers.set_in_vain();
        }
    })?;
    let everyone_hears = layout.hosts.iter().all(|ranks| outcomes[ranks[0]].overheard);
    if let Some((wire, _)) = joined.as_ref().filter(|_| everyone_hears) {
        wire.cells.set_multicast();
    }
    // Only now: what the trial found must be the programs' own work.
    if let (Some((wire, _)), Some(keeper)) = (&mut joined, &means.keeper) {
        go_to_work(wire, keeper, peers);
    }
    let has_shards = Algorithm::has_shards(members.len(), window.into());
    let mut place = Place::new(layout, rank, chunk_bytes, has_shards).ok_or(NoGroup::Nowhere)?;
    // Who names an algorithm gets it.
    place.swaps &= config.shared.algorithm.is_none();
    if by_sockets {
        place = place.at_most(config.shared.most_bytes_by_sockets());
    }
    let (wire, member) = joined.unzip();
    let counted = hellos.iter().any(|hello| hello.counts);
    let mut group = Group::new(Engine::new(place, wire, leaf), member, counted);
    group.no_programs = no_programs;
    Ok(group)
}

/// The first trouble that any rank has, with its rank.
fn troubles<'a>(
    layout: &Layout,
    all: impl Iterator<Item = &'a Option<Trouble>>,
) -> Result<(), NoGroup> {
    for (rank, trouble) in all.enumerate() {
        if let Some(trouble) = trouble.clone() {
            let host = layout.place(rank).map_or(0, |(member, _)| member);
            return Err(NoGroup::Rank { rank, host, trouble });
        }
    }
    Ok(())
}

/// Waits as long as it takes: all ranks have foldback, but they need not come to a communicator at one time.
fn tell<T: Serialize + serde::de::DeserializeOwned>(
    mpi: &Mpi,
    comm: Handle,
    mine: &T,
    meanwhile: &mut dyn FnMut(),
) -> Result<Vec<T>, NoGroup> {
    exchange(mpi, comm, mine, None, meanwhile).map_err(NoGroup::Untold)
}
