//! The first exchange: every rank says who and where it is, and all draw the same conclusions. The roll call has
//! found before that they are of one version, and set alike.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::trouble::{NoGroup, Trouble};
use super::{hosts, troubles};
use crate::config::{Config, Network};
use crate::topology::Layout;
use crate::wire::Secret;

/// A rank's words in the first exchange: its host, its addresses, and the numbers that it draws.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Why this rank cannot take part.
    trouble: Option<Trouble>,
    pub host: String,
    addresses: Vec<Network>,
    uid: u32,
    /// The first rank's becomes the group's.
    pub token: u64,
    /// So does its secret, if frames are to bear a code.
    pub secret: Option<Secret>,
    /// This rank is to write down what the programs counted.
    pub counts: bool,
}

impl Hello {
    /// This rank's words.
    pub fn new(config: &Config, addresses: Vec<Network>) -> Self {
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

/// The conclusion of all ranks from all hellos: the members' addresses, or why there is no group.
pub fn agree(hellos: &[Hello], layout: &Layout) -> Result<Vec<Ipv4Addr>, NoGroup> {
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
pub fn elsewhere(
    hellos: &[Hello],
    layout: &Layout,
    rank: usize,
    address: Ipv4Addr,
) -> Vec<Network> {
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
