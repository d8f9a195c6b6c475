//! Setting a group up: all ranks of a communicator, inside a collective call that all of them make.
//!
//! 1. Everyone says who it is; all draw the same conclusions: which hosts, who leads, which
//!    addresses.
//! 2. Leaders find their agent, and say what their interface can do.
//! 3. Leaders make the group; ranks of a host meet in shared memory. Everyone says whether it worked.
//! 4. Leaders send HELLOs, and let every aggregator fold once. Everyone says whether it worked.
//!
//! No HELLO, which bears the group's token, leaves before the programs of every host know the group:
//! until then a frame goes up to whoever has bound the port, and anybody's frames with the token go out.
//!
//! Whatever goes wrong anywhere, all ranks hear of it in the next exchange, and all leave the
//! communicator to MPI. The one failure that cannot be told is a rank that does not take part:
//! foldback is not loaded there. So there is a roll call first, once, when MPI starts: if a rank does not
//! answer, the job ends, with a message.

pub mod agent;
pub mod exchange;
pub mod hosts;
mod meet;
mod member;
mod trouble;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::agent::{SocketAddress, Versions};
use crate::bindings::{FB_CHUNK_BYTES, FB_MAX_MEMBERS};
use crate::config::{Config, Network, Shared, Transport};
use crate::engine::Engine;
use crate::group::Group;
use crate::keeper::{Contact, Keepers};
use crate::mpi::Mpi;
use crate::mpi::pmpi::Handle;
use crate::topology::{Layout, Place};
use crate::wire::socket::SocketPool;
use crate::wire::{Algorithm, Identity};
use agent::AgentAccess;
use exchange::{Failure, exchange};
use member::{Means, go_to_work, greet, listen, try_out};

pub use trouble::NoGroup;
use trouble::Trouble;

/// This process has not heard what is sent to all at once: one trial is enough.
static DEAF: AtomicBool = AtomicBool::new(false);

/// Most hosts that do without programs unless they are told to: on more MPI was faster
/// (docs/benchmarks.md, Without programs).
const MOST_WITHOUT_PROGRAMS: usize = 4;

/// What set-up needs of the context.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The real MPI.
    pub mpi: &'a Mpi,
    pub config: &'a Result<Config, String>,
    pub agent: &'a AgentAccess,
    pub sockets: &'a SocketPool,
    pub keepers: &'a Keepers,
    /// A communicator without messages.
    pub nothing: Handle,
}

impl Context<'_> {
    /// What is to carry the frames of a new group.
    pub fn transport(&self) -> Transport {
        self.config.as_ref().map_or(Transport::Auto, |config| config.shared.transport)
    }

    /// Whether what goes to all members may go at once, as far as this process knows.
    fn multicast(&self) -> bool {
        let wanted = self.config.as_ref().is_ok_and(|config| config.shared.multicast);
        wanted && !DEAF.load(Ordering::Relaxed)
    }
}

/// What a rank says in the first exchange: who and where it is, and how it is set.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Hello {
    release: String,
    versions: Versions,
    little_endian: bool,
    shared: Option<Shared>,
    /// Why this rank cannot take part.
    trouble: Option<Trouble>,
    host: String,
    addresses: Vec<Network>,
    uid: u32,
    /// The first rank's becomes the group's.
    token: u64,
    /// This rank is to write down what the programs counted.
    counts: bool,
}

/// What a leader says in the second exchange: what its host has for the group.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Offer {
    trouble: Option<Trouble>,
    chunk_bytes: u16,
    port: u16,
    /// The port of its keeper, if it has one.
    keeper: Option<u16>,
    /// Where else that takes connections.
    elsewhere: Vec<SocketAddrV4>,
    /// It may hear what is sent to all at once.
    multicast: bool,
    /// Why it has no programs, if it can do without.
    no_programs: Option<String>,
    /// The address of the agent that this rank embeds.
    embedded: Option<SocketAddress>,
    /// Where the ranks of this host meet.
    meeting: Option<SocketAddress>,
}

/// What a rank says in the third and fourth exchange: whether its part succeeded.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Outcome {
    trouble: Option<Trouble>,
    /// This host has heard what all others sent to everyone.
    overheard: bool,
}

/// Makes sure that every rank of `comm` has foldback; ends the job if some do not answer in time.
///
/// # Errors
/// What MPI says.
pub fn roll_call(mpi: &Mpi, comm: Handle, patience: Duration) -> Result<(), NoGroup> {
    match exchange(mpi, comm, &(), Some(patience), &mut || ()) {
        Ok(_) => Ok(()),
        Err(Failure::Silence) => {
            log::error!(
                "some ranks did not answer within {} s. Is LD_PRELOAD exported to every host? \
                 (mpirun -x LD_PRELOAD, mpiexec -genv, or `foldback run`)",
                patience.as_secs()
            );
            mpi.abort(comm)
        }
        Err(failure) => Err(NoGroup::Untold(failure)),
    }
}

/// Sets a group up for `comm`, whose frames are carried by `transport`. Collective.
///
/// # Errors
/// Why `comm` is left to MPI, the same on all ranks.
pub fn set_up(context: &Context<'_>, comm: Handle, transport: Transport) -> Result<Group, NoGroup> {
    let (mpi, rank) = (context.mpi, context.mpi.rank(comm));
    let defaults = Config::default();
    let config = context.config.as_ref().unwrap_or(&defaults);

    let hellos = tell(mpi, comm, &hello(context.config), &mut || ())?;
    let layout = Layout::new(hellos.iter().map(|hello| hello.host.as_str()));
    let members = agree(&hellos, &layout)?;
    let (me, place) = layout.place(rank).ok_or(NoGroup::Nowhere)?;
    let leads = place == 0;
    let locals = layout.hosts[me].len();

    let elsewhere = elsewhere(&hellos, &layout, rank, members[me]);
    let (offer, mut means) = match leads {
        true => Offer::of(context, transport, (members[me], &elsewhere), locals),
        false => Default::default(),
    };
    let offers = tell(mpi, comm, &offer, &mut || ())?;
    troubles(&layout, offers.iter().map(|offer| &offer.trouble))?;
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

    let identity = Identity {
        token: hellos[0].token,
        members: members.len() as u8,
        me: me as u8,
        chunk_bytes,
    };
    let multicast = !by_sockets && members.len() > 2 && leaders().all(|offer| offer.multicast);
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
    if leads {
        let join =
            means.join(context, &identity, &members, &peers, (config.shared.window, multicast));
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
        .and_then(|joined| try_out(context, joined, (port, multicast), config.probe_timeout).err());
    let listens = joined.as_mut().filter(|_| multicast && trouble.is_none());
    let overheard = listens.map(|(wire, _)| listen(context, wire));
    if overheard == Some(false) {
        log::info!("not all hear what is sent to all at once: it is sent to each");
        DEAF.store(true, Ordering::Relaxed);
    }
    let overheard = overheard.unwrap_or(false);
    // A peer may have missed our HELLO; it cannot go on without.
    let mut next_hello = Instant::now();
    let outcomes = tell(mpi, comm, &Outcome { trouble, overheard }, &mut || {
        if let Some((wire, _)) = joined.as_mut().filter(|_| Instant::now() >= next_hello) {
            greet(wire, multicast);
            next_hello = Instant::now() + Duration::from_millis(10);
        }
    })?;
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
    let has_shards = Algorithm::has_shards(members.len(), config.shared.window.into());
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

impl Offer {
    /// What this host, at `address` and `elsewhere` and with so many ranks, has for a group.
    fn of(
        context: &Context<'_>,
        transport: Transport,
        (address, elsewhere): (Ipv4Addr, &[Network]),
        locals: usize,
    ) -> (Self, Means) {
        let (mut offer, mut means) = <(Self, Means)>::default();
        let elsewhere: Vec<_> = elsewhere.iter().map(|network| network.address).collect();
        match context.keepers.at(address, &elsewhere) {
            Ok(keeper) => {
                offer.keeper = Some(keeper.port());
                offer.elsewhere = keeper.elsewhere();
                means.keeper = Some(keeper);
            }
            Err(error) if transport == Transport::Sockets => {
                offer.trouble = Some(Trouble::Group(format!("no socket, or no thread: {error}")));
            }
            // Without one the job is as safe as its programs.
            Err(error) => {
                log::warn!("no second transport, so calls wait if an agent ends: {error}");
            }
        }
        if transport != Transport::Sockets {
            match context.agent.ask(|client| client.interface(address)) {
                Ok((client, interface)) => {
                    offer.chunk_bytes = interface.max_chunk_bytes & !7;
                    offer.port = client.welcome().port;
                    offer.embedded = context.agent.embedded_address();
                    offer.multicast = context.multicast();
                    means.client = Some(client);
                }
                Err(why)
                    if transport == Transport::Auto
                        && offer.keeper.is_some()
                        && context.keepers.may_do_without_programs() =>
                {
                    offer.no_programs = Some(why);
                }
                Err(why) => offer.trouble = Some(Trouble::Agent(why)),
            }
        }
        if locals > 1 {
            match meet::Host::open(locals) {
                Ok(host) => {
                    offer.meeting = Some(host.address());
                    means.meeting = Some(host);
                }
                Err(error) => offer.trouble = Some(Trouble::SharedMemory(error.to_string())),
            }
        }
        (offer, means)
    }
}

impl Offer {
    /// Where its keeper is, at `address` and in networks of this host's.
    fn contact(&self, address: Ipv4Addr, own: &[Network]) -> Option<Contact> {
        let pairs = |at: &SocketAddrV4| {
            let (at, other) = (*at, *at.ip());
            hosts::shared(own, other).map(move |network| (network.address, at))
        };
        let elsewhere = self.elsewhere.iter().flat_map(pairs).collect();
        Some(Contact { at: SocketAddrV4::new(address, self.keeper?), elsewhere })
    }
}

/// The addresses of this rank's host, beside its `address` in the group, that lead to another host, too.
fn elsewhere(hellos: &[Hello], layout: &Layout, rank: usize, address: Ipv4Addr) -> Vec<Network> {
    let own = &hellos[rank];
    let leaders = layout.hosts.iter().map(|ranks| &hellos[ranks[0]]);
    let others = leaders.filter(|leader| leader.host != own.host);
    let others: Vec<_> = others.flat_map(|leader| &leader.addresses).collect();
    let mut networks = own.addresses.clone();
    networks.retain(|network| {
        let leads_to =
            |other: &&Network| hosts::shared(&[*network], other.address).next().is_some();
        network.address != address && others.iter().any(leads_to)
    });
    networks
}

fn hello(config: &Result<Config, String>) -> Hello {
    let mut token = [0; 8];
    let random = std::fs::File::open("/dev/urandom")
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut token));
    let wanted = config.as_ref().map_or(&[][..], |config| &config.networks);
    Hello {
        release: env!("CARGO_PKG_VERSION").into(),
        versions: Versions::CURRENT,
        little_endian: cfg!(target_endian = "little"),
        shared: config.as_ref().ok().map(|config| config.shared.clone()),
        trouble: config
            .as_ref()
            .err()
            .map(|why| Trouble::Settings(why.clone()))
            .or(random.err().map(|error| Trouble::Random(error.to_string()))),
        host: hosts::host_id(),
        addresses: hosts::addresses(wanted),
        uid: nix::unistd::geteuid().as_raw(),
        token: u64::from_ne_bytes(token),
        counts: config.as_ref().is_ok_and(Config::counts),
    }
}

/// What all ranks conclude from all hellos: the members' addresses, or why there is no group.
fn agree(hellos: &[Hello], layout: &Layout) -> Result<Vec<Ipv4Addr>, NoGroup> {
    troubles(layout, hellos.iter().map(|hello| &hello.trouble))?;
    let first = &hellos[0];
    for (rank, hello) in hellos.iter().enumerate() {
        let differs = |what| Err(NoGroup::Differs { rank, what });
        if hello.release != first.release || hello.versions != first.versions {
            return differs("version of foldback");
        }
        if hello.little_endian != first.little_endian {
            return differs("byte order");
        }
        if hello.shared != first.shared {
            return differs(
                "foldback configuration (FOLDBACK_MAX_BYTES, FOLDBACK_SETUP_CALLS, FOLDBACK_WINDOW, \
                 FOLDBACK_ALGORITHM, FOLDBACK_ROUTE, FOLDBACK_SUM, FOLDBACK_MULTICAST, or FOLDBACK_HOOK=none)",
            );
        }
    }
    if layout.hosts.len() < 2 {
        return Err(NoGroup::OneHost);
    }
    if layout.hosts.len() > FB_MAX_MEMBERS as usize {
        return Err(NoGroup::TooManyHosts(layout.hosts.len()));
    }
    for ranks in &layout.hosts {
        if ranks.iter().any(|rank| hellos[*rank].uid != hellos[ranks[0]].uid) {
            return Err(NoGroup::Users);
        }
    }
    let candidates: Vec<&[Network]> =
        layout.hosts.iter().map(|ranks| hellos[ranks[0]].addresses.as_slice()).collect();
    hosts::choose(&candidates).ok_or(NoGroup::NoAddress)
}

/// Why the group is to do without programs, if it is: some host has none.
///
/// # Errors
/// Another host cannot do without, or there are too many.
fn no_programs(layout: &Layout, offers: &[Offer]) -> Result<Option<String>, NoGroup> {
    let leaders = || layout.hosts.iter().map(|ranks| ranks[0]).enumerate();
    let lacks =
        |(host, rank): (usize, usize)| Some((host, rank, offers[rank].no_programs.as_ref()?));
    let Some((host, rank, why)) = leaders().find_map(lacks) else { return Ok(None) };
    let no_group = NoGroup::Rank { rank, host, trouble: Trouble::Agent(why.clone()) };
    let all_can = leaders().all(|(_, rank)| offers[rank].keeper.is_some());
    if !all_can || layout.hosts.len() > MOST_WITHOUT_PROGRAMS {
        return Err(no_group);
    }
    Ok(Some(no_group.to_string()))
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
