//! The second exchange: each host's leader says what the host has for the group.

use std::net::{Ipv4Addr, SocketAddrV4};

use serde::{Deserialize, Serialize};

use super::agent::{Haste, Later, NoAnswer};
use super::member::Means;
use super::trouble::{NoGroup, Trouble};
use super::{Context, hosts, meet};
use crate::agent::SocketAddress;
use crate::config::{Config, Network, Transport};
use crate::keeper::Contact;
use crate::topology::Layout;

/// Most hosts that do without programs unless they are told to: on more MPI was faster
/// (docs/benchmarks.md, Without programs).
const MOST_WITHOUT_PROGRAMS: usize = 4;

/// A leader's words in the second exchange: its host's resources for the group.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Offer {
    pub trouble: Option<Trouble>,
    pub chunk_bytes: u16,
    pub port: u16,
    /// The port of its keeper, if it has one.
    pub keeper: Option<u16>,
    /// Other addresses at which that takes connections.
    elsewhere: Vec<SocketAddrV4>,
    /// It may hear what is sent to all at once.
    pub multicast: bool,
    /// Why it has no programs, if it can do without.
    no_programs: Option<String>,
    /// It will have programs, when calls have shown that they are worth it, and when they are loaded and attached.
    pub later: Option<Later>,
    /// The address of the agent that this rank embeds.
    pub embedded: Option<SocketAddress>,
    /// The address at which the ranks of this host meet.
    pub meeting: Option<SocketAddress>,
}

impl Offer {
    /// The offer of this host, at `address` and `elsewhere` and with so many ranks.
    pub fn of(
        context: &Context<'_>,
        transport: Transport,
        (address, elsewhere): (Ipv4Addr, &[Network]),
        locals: usize,
        haste: Haste,
    ) -> (Self, Means) {
        let (mut offer, mut means) = <(Self, Means)>::default();
        let window = Config::or_default(context.config).shared.window;
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
            match context.agent.interface(haste, (address, window)) {
                Ok((client, interface)) => {
                    offer.chunk_bytes = context.chunk_bytes(interface.max_chunk_bytes & !7);
                    offer.port = client.welcome().port;
                    offer.embedded = context.agent.embedded_address();
                    offer.multicast = context.multicast();
                    means.client = Some(client);
                }
                Err(NoAnswer::Yet(later)) => offer.later = Some(later),
                Err(NoAnswer::Ever(why))
                    if transport == Transport::Auto
                        && offer.keeper.is_some()
                        && context.keepers.may_do_without_programs() =>
                {
                    offer.no_programs = Some(Trouble::of_agent(why).to_string());
                }
                Err(NoAnswer::Ever(why)) => offer.trouble = Some(Trouble::of_agent(why)),
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
    /// The addresses of its keeper, at `address` and in networks of this host's.
    pub fn contact(&self, address: Ipv4Addr, own: &[Network]) -> Option<Contact> {
        let pairs = |at: &SocketAddrV4| {
            let (at, other) = (*at, *at.ip());
            hosts::shared(own, other).map(move |network| (network.address, at))
        };
        let elsewhere = self.elsewhere.iter().flat_map(pairs).collect();
        Some(Contact { at: SocketAddrV4::new(address, self.keeper?), elsewhere })
    }
}

/// Why the group is to do without programs, if it is: some host has none.
///
/// # Errors
/// Another host cannot do without, or there are too many.
pub fn no_programs(layout: &Layout, offers: &[Offer]) -> Result<Option<String>, NoGroup> {
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
