//! The first stage: every rank says who and where it is, and all draw the same conclusions. The roll call has
//! found before that they are of one version, and set alike.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::outcome::troubles;
use super::trouble::{NoGroup, Trouble};
use super::{Request, hosts};
use crate::config::{Config, Network};
use crate::topology::Layout;
use crate::wire::Secret;

/// A rank's words in the first exchange: its host, its addresses, and the numbers that it draws.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Hello {
    /// Why this rank cannot take part.
    trouble: Option<Trouble>,
    host: String,
    addresses: Vec<Network>,
    uid: u32,
    /// The first rank's becomes the group's.
    token: u64,
    /// So does its secret, if frames are to bear a code.
    secret: Option<Secret>,
    /// This rank is to write down what the programs counted.
    counts: bool,
}

impl Hello {
    /// This rank's words.
    fn new(config: &Config, addresses: Vec<Network>) -> Self {
        let mut random = [0; 24];
        let drawn = std::fs::File::open("/dev/urandom")
            .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut random));
        let (words, _) = random.as_chunks();
        let [token, first, second] = [0, 1, 2].map(|at| u64::from_ne_bytes(words[at]));
        Self {
            trouble: drawn.err().map(|error| Trouble::Random(error.to_string())),
            host: hosts::host_id(),
            addresses,
            uid: nix::unistd::geteuid().as_raw(),
            token,
            secret: config.shared.auth.then(|| Secret::new([first, second])),
            counts: config.counts(),
        }
    }
}

/// The members of a group to be made, and this rank's place among them. Alike on all ranks but for that place.
pub struct Roster {
    pub layout: Layout,
    /// The address of each host.
    pub members: Vec<Ipv4Addr>,
    /// The rank of this process in the communicator.
    pub rank: usize,
    /// The number of its host among the members.
    pub me: usize,
    /// Its place among the ranks of its host; the first leads.
    pub place: usize,
    /// Other addresses of its host that lead to another host, too.
    pub elsewhere: Vec<Network>,
    /// The group's token.
    pub token: u64,
    /// The group's secret, if frames are to bear a code.
    pub secret: Option<Secret>,
    /// Some rank is to write down what the programs counted.
    pub counted: bool,
}

impl Roster {
    /// Tells the others about this rank, and hears about them. Collective: one exchange.
    ///
    /// # Errors
    /// Why there is no group, the same on all ranks.
    pub fn call(request: &Request<'_>) -> Result<Self, NoGroup> {
        let config = request.config();
        let addresses = request.context.facilities.agent.addresses(&config.networks);
        let hellos = request.tell(&Hello::new(config, addresses), &mut || ())?;
        Self::of(&hellos, request.rank())
    }

    fn of(hellos: &[Hello], rank: usize) -> Result<Self, NoGroup> {
        let layout = Layout::new(hellos.iter().map(|hello| hello.host.as_str()));
        let members = agree(hellos, &layout)?;
        let (me, place) = layout.place(rank).ok_or(NoGroup::Nowhere)?;
        let elsewhere = elsewhere(hellos, &layout, rank, members[me]);
        let (token, secret) = (hellos[0].token, hellos[0].secret);
        let counted = hellos.iter().any(|hello| hello.counts);
        Ok(Self { layout, members, rank, me, place, elsewhere, token, secret, counted })
    }

    /// Whether this rank leads its host.
    pub fn leads(&self) -> bool {
        self.place == 0
    }

    /// The number of ranks of this host.
    pub fn locals(&self) -> usize {
        self.layout.hosts[self.me].len()
    }

    /// The words of each host's leader, of the words of all ranks.
    pub fn of_leaders<'a, T>(&'a self, words: &'a [T]) -> impl Iterator<Item = &'a T> + Clone {
        self.layout.hosts.iter().map(|ranks| &words[ranks[0]])
    }

    /// The words of this host's leader.
    pub fn of_leader<'a, T>(&self, words: &'a [T]) -> &'a T {
        &words[self.layout.hosts[self.me][0]]
    }
}

/// The conclusion of all ranks from all hellos: the members' addresses, or why there is no group.
fn agree(hellos: &[Hello], layout: &Layout) -> Result<Vec<Ipv4Addr>, NoGroup> {
    troubles(layout, hellos.iter().map(|hello| &hello.trouble))?;
    if let Some(why) = NoGroup::of_layout(layout) {
        return Err(why);
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn networks(list: &[&str]) -> Vec<Network> {
        list.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn hello(host: &str, addresses: &[&str]) -> Hello {
        let host = host.into();
        let (token, secret) = (addresses.len() as u64, None);
        let addresses = networks(addresses);
        Hello { trouble: None, host, addresses, uid: 7, token, secret, counts: false }
    }

    /// The roster of a rank, where two ranks are on each of so many hosts.
    pub fn roster(hosts: u8, rank: usize) -> Roster {
        let of = |host| hello(&format!("host {host}"), &[&format!("10.0.0.{}/24", host + 1)]);
        let hellos: Vec<_> = (0..hosts).flat_map(|host| [of(host), of(host)]).collect();
        Roster::of(&hellos, rank).unwrap_or_else(|why| panic!("{why}"))
    }

    fn why(hellos: &[Hello]) -> Option<NoGroup> {
        Roster::of(hellos, 0).err()
    }

    #[test]
    fn all_ranks_agree_on_the_roster_but_for_their_places() {
        let rosters = [0, 1, 2, 3].map(|rank| roster(2, rank));
        for one in &rosters {
            assert_eq!(one.layout.hosts, [[0, 1], [2, 3]]);
            assert_eq!(
                one.members,
                ["10.0.0.1", "10.0.0.2"].map(|at| at.parse::<Ipv4Addr>().unwrap())
            );
            assert_eq!((one.token, one.counted, one.locals()), (1, false, 2));
            assert!(one.of_leaders(&["a", "b", "c", "d"]).eq(&["a", "c"]));
        }
        let places = rosters.each_ref().map(|one| (one.me, one.place, one.leads()));
        assert_eq!(places, [(0, 0, true), (0, 1, false), (1, 0, true), (1, 1, false)]);
        assert_eq!(rosters.map(|one| *one.of_leader(&[10, 11, 12, 13])), [10, 10, 12, 12]);
    }

    #[test]
    fn one_rank_that_is_otherwise_keeps_all_from_a_group() {
        let (one, two) = (hello("one", &["10.0.0.1/24"]), hello("two", &["10.0.0.2/24"]));
        assert_eq!(why(&[one.clone(), one.clone()]), Some(NoGroup::OneHost));
        let other = Hello { uid: 8, ..one.clone() };
        assert_eq!(why(&[one.clone(), two.clone(), other]), Some(NoGroup::Users));
        let nowhere = Hello { addresses: vec![], ..two.clone() };
        assert_eq!(why(&[one.clone(), nowhere]), Some(NoGroup::NoAddress));
        let trouble = Trouble::Random("no such device".into());
        let dumb = Hello { trouble: Some(trouble.clone()), ..two.clone() };
        assert_eq!(why(&[one.clone(), dumb]), Some(NoGroup::Rank { rank: 1, host: 1, trouble }));
        let counts = Hello { counts: true, ..two };
        assert!(Roster::of(&[one, counts], 0).is_ok_and(|roster| roster.counted));
    }

    #[test]
    fn other_addresses_are_those_that_lead_to_another_host() {
        let one = hello("one", &["10.0.0.1/24", "192.168.1.1/24", "172.16.0.1/24"]);
        let two = hello("two", &["10.0.0.2/24", "192.168.1.2/24"]);
        let roster = Roster::of(&[one, two], 0).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(roster.elsewhere, networks(&["192.168.1.1/24"]));
    }
}
