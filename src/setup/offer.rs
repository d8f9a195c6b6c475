//! The words of the second exchange: each host's leader says what the host has for the group.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::agent::{Later, NoAnswer};
use super::hello::Roster;
use super::trouble::Trouble;
use super::{Facilities, Request, hosts, meet};
use crate::agent::{Client, SocketAddress};
use crate::config::{Network, TransportChoice};
use crate::keeper::{Contact, Keeper};

/// A leader's resources for a group, beside its offer to the others.
#[derive(Default)]
pub struct LocalResources {
    /// This host's agent, if there is one.
    pub client: Option<Arc<Client>>,
    /// This process's own.
    pub keeper: Option<Arc<Keeper>>,
    /// The meeting of the ranks of this host.
    pub meeting: Option<meet::Host>,
}

/// A leader's words in the second exchange: its host's resources for the group.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HostOffer {
    pub trouble: Option<Trouble>,
    pub chunk_bytes: u16,
    pub port: u16,
    /// The port of its keeper, if it has one.
    pub keeper: Option<u16>,
    /// Other addresses at which that takes connections.
    pub elsewhere: Vec<SocketAddrV4>,
    /// It may hear what is sent to all at once.
    pub multicast: bool,
    /// Why it has no programs, if it can do without.
    pub no_programs: Option<String>,
    /// It will have programs, when calls have shown that they are worth it, and when they are loaded and attached.
    pub later: Option<Later>,
    /// The address of the agent that this rank embeds.
    pub embedded: Option<SocketAddress>,
    /// The address at which the ranks of this host meet.
    pub meeting: Option<SocketAddress>,
}

impl HostOffer {
    /// The offer of this host, whose leader this rank is, and the resources behind it.
    pub fn of(request: &Request<'_>, roster: &Roster) -> (Self, LocalResources) {
        let (mut offer, mut resources) = <(Self, LocalResources)>::default();
        let Facilities { agent, keepers, learnt, .. } = request.context.facilities;
        let (transport, shared) = (request.transport, &request.config().shared);
        let address = roster.members[roster.me];
        let elsewhere: Vec<_> = roster.elsewhere.iter().map(|network| network.address).collect();
        match keepers.at(address, &elsewhere) {
            Ok(keeper) => {
                offer.keeper = Some(keeper.port());
                offer.elsewhere = keeper.elsewhere();
                resources.keeper = Some(keeper);
            }
            Err(error) if transport == TransportChoice::Sockets => {
                offer.trouble = Some(Trouble::Group(format!("no socket, or no thread: {error}")));
            }
            // Without one the job is as safe as its programs.
            Err(error) => {
                log::warn!("no second transport, so calls wait if an agent ends: {error}");
            }
        }
        if transport != TransportChoice::Sockets {
            let window = shared.window_among(roster.members.len());
            match agent.interface(request.haste, (address, window)) {
                Ok((client, interface)) => {
                    offer.chunk_bytes = learnt.chunk_bytes(interface.max_chunk_bytes & !7);
                    offer.port = client.welcome().port;
                    offer.embedded = agent.embedded_address();
                    offer.multicast = shared.multicast && learnt.may_hear();
                    resources.client = Some(client);
                }
                Err(NoAnswer::Yet(later)) => offer.later = Some(later),
                Err(NoAnswer::Ever(why))
                    if transport == TransportChoice::Auto
                        && offer.keeper.is_some()
                        && learnt.may_do_without_programs() =>
                {
                    offer.no_programs = Some(Trouble::of_agent(why).to_string());
                }
                Err(NoAnswer::Ever(why)) => offer.trouble = Some(Trouble::of_agent(why)),
            }
        }
        if roster.locals() > 1 {
            match meet::Host::open(roster.locals()) {
                Ok(host) => {
                    offer.meeting = Some(host.address());
                    resources.meeting = Some(host);
                }
                Err(error) => offer.trouble = Some(Trouble::SharedMemory(error.to_string())),
            }
        }
        (offer, resources)
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
