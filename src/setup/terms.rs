//! The second stage: leaders find their agent and say what their hosts have for the group. All ranks draw the terms of
//! the group from that.

use super::hello::Roster;
use super::offer::{HostOffer, LocalResources};
use super::outcome::troubles;
use super::trouble::{NoGroup, Trouble};
use super::{Request, agent::Later};
use crate::agent::{SocketAddress, can_share_address};
use crate::bindings::FB_CHUNK_BYTES;
use crate::config::{Shared, TransportChoice};
use crate::keeper::Contact;
use crate::wire::{Identity, Seal, window_for};

/// Most hosts that do without programs unless they are told to: on more MPI was faster
/// (docs/benchmarks.md, Without programs).
const MOST_WITHOUT_PROGRAMS: usize = 4;

/// The terms of a group. Alike on all ranks but for this host's place, its ports and where its ranks meet.
pub struct Terms {
    /// The group does without programs.
    pub by_sockets: bool,
    /// Why it does so, if that was not asked for.
    pub no_programs: Option<String>,
    /// This host among the members, and what all have in common.
    pub identity: Identity,
    /// The number of its cells.
    pub window: u32,
    /// The port at which this host's frames are to be let through.
    pub port: u16,
    /// The keepers of the other members.
    pub peers: Vec<Option<Contact>>,
    /// The address at which the ranks of this host meet, if there are several.
    pub meeting: Option<SocketAddress>,
}

impl Terms {
    /// Makes this host's offer, if this rank leads, and hears all others. Returns the resources behind the offer, too.
    /// Collective: one exchange.
    ///
    /// # Errors
    /// Why there is no group, the same on all ranks.
    pub fn settle(
        request: &Request<'_>,
        roster: &Roster,
    ) -> Result<(Self, LocalResources), NoGroup> {
        let (offer, mut resources) = match roster.leads() {
            true => HostOffer::of(request, roster),
            false => Default::default(),
        };
        let offers = request.tell(&offer, &mut || ())?;
        troubles(&roster.layout, offers.iter().map(|offer| &offer.trouble))?;
        if let Some(later) = latest(&offers) {
            return Err(NoGroup::Later(later));
        }
        if let Some(address) = &roster.of_leader(&offers).embedded {
            request.context.facilities.agent.set_neighbour(address.clone());
        }
        let terms = Self::of(roster, &offers, request.transport, &request.config().shared)?;
        if terms.by_sockets {
            resources.client = None;
        }
        Ok((terms, resources))
    }

    fn of(
        roster: &Roster,
        offers: &[HostOffer],
        transport: TransportChoice,
        shared: &Shared,
    ) -> Result<Self, NoGroup> {
        let leader = roster.of_leader(offers);
        let leaders = || roster.of_leaders(offers);
        let no_programs = no_programs(roster, offers)?;
        let by_sockets = transport == TransportChoice::Sockets || no_programs.is_some();
        if !by_sockets && leaders().any(|offer| offer.port != leader.port) {
            return Err(NoGroup::Ports);
        }
        let chunk_bytes = match by_sockets {
            // A datagram that some link on the way cannot carry goes in fragments.
            true => FB_CHUNK_BYTES as u16,
            false => leaders().map(|offer| offer.chunk_bytes).min().unwrap_or(0),
        };
        let members = roster.members.len();
        let all_may_hear = !by_sockets && leaders().all(|offer| offer.multicast);
        let contact = |(member, offer): (usize, &HostOffer)| {
            let other = member != roster.me;
            offer.contact(roster.members[member], &roster.elsewhere).filter(|_| other)
        };
        Ok(Self {
            by_sockets,
            no_programs,
            identity: Identity {
                token: roster.token,
                seal: Seal::new(roster.secret),
                members: members as u8,
                me: roster.me as u8,
                chunk_bytes,
                multicast: all_may_hear && can_share_address(members),
            },
            window: window_for(shared.window_among(members), chunk_bytes),
            port: leader.keeper.filter(|_| by_sockets).unwrap_or(leader.port),
            peers: leaders().enumerate().map(contact).collect(),
            meeting: leader.meeting.clone(),
        })
    }
}

/// When ranks may try again, if some host has yet to answer.
fn latest(offers: &[HostOffer]) -> Option<Later> {
    offers.iter().filter_map(|offer| offer.later).max()
}

/// Why the group is to do without programs, if it is: some host has none.
///
/// # Errors
/// Another host cannot do without, or there are too many.
fn no_programs(roster: &Roster, offers: &[HostOffer]) -> Result<Option<String>, NoGroup> {
    let hosts = &roster.layout.hosts;
    let leaders = || hosts.iter().map(|ranks| ranks[0]).enumerate();
    let lacks =
        |(host, rank): (usize, usize)| Some((host, rank, offers[rank].no_programs.as_ref()?));
    let Some((host, rank, why)) = leaders().find_map(lacks) else { return Ok(None) };
    let no_group = NoGroup::Rank { rank, host, trouble: Trouble::Agent(why.clone()) };
    let all_can = roster.of_leaders(offers).all(|offer| offer.keeper.is_some());
    if !all_can || hosts.len() > MOST_WITHOUT_PROGRAMS {
        return Err(no_group);
    }
    Ok(Some(no_group.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::setup::hello::tests::roster;

    const LONG: u16 = 8192;
    const USUAL: u16 = FB_CHUNK_BYTES as u16;

    /// The offers of two ranks on each of so many hosts, all of which have programs.
    fn offers(hosts: u8) -> Vec<HostOffer> {
        let of_leader = |host: u8| HostOffer {
            chunk_bytes: LONG,
            port: 7,
            keeper: Some(100 + u16::from(host)),
            multicast: true,
            ..HostOffer::default()
        };
        (0..hosts).flat_map(|host| [of_leader(host), HostOffer::default()]).collect()
    }

    fn terms(offers: &[HostOffer], transport: TransportChoice) -> Result<Terms, NoGroup> {
        let roster = roster((offers.len() / 2) as u8, 3);
        Terms::of(&roster, offers, transport, &Config::default().shared)
    }

    fn why(offers: &[HostOffer]) -> Option<NoGroup> {
        terms(offers, TransportChoice::Auto).err()
    }

    #[test]
    fn a_group_has_the_shortest_chunks_and_what_all_hosts_have() {
        let mut offers = offers(3);
        let of = |offers: &[HostOffer]| {
            let terms = terms(offers, TransportChoice::Auto).unwrap_or_else(|why| panic!("{why}"));
            assert!(!terms.by_sockets && terms.no_programs.is_none());
            (terms.identity.chunk_bytes, terms.window, terms.identity.multicast, terms.port)
        };
        assert_eq!(of(&offers), (LONG, 256, true, 7));
        offers[4].multicast = false;
        assert_eq!(of(&offers), (LONG, 256, false, 7));
        offers[2].chunk_bytes = USUAL;
        assert_eq!(of(&offers), (USUAL, 1024, false, 7));
    }

    #[test]
    fn groups_of_more_hosts_have_more_cells() {
        let of = |hosts, window| {
            let config = Config::default();
            let shared = Shared { window, ..config.shared };
            let terms =
                Terms::of(&roster(hosts, 3), &offers(hosts), TransportChoice::Auto, &shared);
            terms.unwrap_or_else(|why| panic!("{why}")).window
        };
        assert_eq!([2, 4, 5, 8].map(|hosts| of(hosts, None)), [256, 256, 512, 512]);
        assert_eq!([2, 8].map(|hosts| of(hosts, Some(4096))), [1024, 1024]);
    }

    #[test]
    fn peers_are_the_keepers_of_other_hosts() {
        let mut offers = offers(3);
        offers[4].keeper = None;
        let terms = terms(&offers, TransportChoice::Auto).unwrap_or_else(|why| panic!("{why}"));
        let at = |contact: &Option<Contact>| contact.as_ref().map(|contact| contact.at);
        let first = Some("10.0.0.1:100".parse().unwrap());
        assert_eq!(terms.peers.iter().map(at).collect::<Vec<_>>(), [first, None, None]);
        assert_eq!((terms.identity.me, terms.identity.members), (1, 3));
    }

    #[test]
    fn frames_of_a_group_by_sockets_are_short_and_come_to_the_keeper() {
        let mut offers = offers(2);
        offers[0].port = 8;
        let terms = terms(&offers, TransportChoice::Sockets).unwrap_or_else(|why| panic!("{why}"));
        assert!(terms.by_sockets && terms.no_programs.is_none() && !terms.identity.multicast);
        assert_eq!((terms.identity.chunk_bytes, terms.port), (USUAL, 101));
    }

    #[test]
    fn programs_take_one_port_on_all_hosts() {
        let mut offers = offers(2);
        offers[0].port = 8;
        assert_eq!(why(&offers), Some(NoGroup::Ports));
    }

    #[test]
    fn a_host_without_programs_has_few_hosts_do_without_them() {
        let without = |hosts| {
            let mut offers = offers(hosts);
            offers[2].no_programs = Some("no agent".into());
            offers
        };
        let no_agent =
            NoGroup::Rank { rank: 2, host: 1, trouble: Trouble::Agent("no agent".into()) };
        let few = terms(&without(4), TransportChoice::Auto).unwrap_or_else(|why| panic!("{why}"));
        assert!(few.by_sockets);
        assert_eq!(few.no_programs, Some(no_agent.to_string()));
        assert_eq!(why(&without(5)), Some(no_agent.clone()));
        let mut one_cannot = without(2);
        one_cannot[0].keeper = None;
        assert_eq!(why(&one_cannot), Some(no_agent));
    }

    #[test]
    fn ranks_wait_for_the_host_that_takes_longest() {
        let mut offers = offers(2);
        assert_eq!(latest(&offers), None);
        offers[0].later = Some(Later::WorthIt);
        offers[2].later = Some(Later::Answered);
        assert_eq!(latest(&offers), Some(Later::WorthIt));
    }
}
