//! This host's identity and addresses, and the network that all hosts share.

use std::net::Ipv4Addr;

use nix::net::if_::InterfaceFlags;

use crate::config::Network;

/// Addresses that one rank tells the others, at most.
const MOST_ADDRESSES: usize = 6;
/// Networks inside a host, which look alike on all hosts and lead nowhere.
const INTERNAL: [&str; 5] = ["docker", "virbr", "br-", "cni", "lxc"];

/// Identity of this host: a network stack of a running kernel.
pub fn host_id() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let stack = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    format!("{} {}", boot.trim(), stack.display())
}

/// Name of this host, for people.
pub fn host_name() -> String {
    nix::unistd::gethostname().map_or_else(|_| "?".into(), |n| n.to_string_lossy().into_owned())
}

/// IPv4 addresses by which other hosts may reach this one, likeliest first; if there are networks that are
/// `wanted`, in these, in their order.
pub fn addresses(wanted: &[Network]) -> Vec<Network> {
    let default = default_interface();
    let mut found: Vec<((Option<usize>, bool), Network)> = Vec::new();
    for interface in nix::ifaddrs::getifaddrs().into_iter().flatten() {
        let up = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
        let name = interface.interface_name.as_str();
        if !interface.flags.contains(up)
            || interface.flags.contains(InterfaceFlags::IFF_LOOPBACK)
            || INTERNAL.iter().any(|prefix| name.starts_with(prefix))
        {
            continue;
        }
        let ipv4 = |a: Option<nix::sys::socket::SockaddrStorage>| Some(a?.as_sockaddr_in()?.ip());
        let (Some(address), Some(mask)) = (ipv4(interface.address), ipv4(interface.netmask)) else {
            continue;
        };
        let network = Network { address, prefix: u32::from(mask).count_ones() as u8 };
        let place = wanted.iter().position(|wanted| wanted.contains(address));
        if wanted.is_empty() || place.is_some() {
            found.push(((place, default.as_deref() != Some(name)), network));
        }
    }
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, network)| network).take(MOST_ADDRESSES).collect()
}

/// Name of the interface that has an address.
pub fn interface_at(address: Ipv4Addr) -> Option<String> {
    let has = |a: nix::sys::socket::SockaddrStorage| Some(a.as_sockaddr_in()?.ip() == address);
    let mut all = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let found = all.find(|interface| interface.address.and_then(has) == Some(true));
    found.map(|interface| interface.interface_name)
}

/// Interface of the default route.
fn default_interface() -> Option<String> {
    let routes = std::fs::read_to_string("/proc/net/route").ok()?;
    routes.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace();
        let (interface, destination) = (fields.next()?, fields.next()?);
        (destination == "00000000").then(|| interface.to_owned())
    })
}

/// Chooses an address for each host: in the first network of the first host that all are in; else
/// each host's first. `None` if some host has none.
pub fn choose(candidates: &[&[Network]]) -> Option<Vec<Ipv4Addr>> {
    let in_network = |network: &Network, host: &&[Network]| {
        let same = |c: &&Network| c.prefix == network.prefix && network.contains(c.address);
        host.iter().find(same).map(|c| c.address)
    };
    let common = candidates.first()?.iter().find_map(|network| {
        candidates.iter().map(|host| in_network(network, host)).collect::<Option<Vec<_>>>()
    });
    common.or_else(|| candidates.iter().map(|host| host.first().map(|c| c.address)).collect())
}

/// The networks of a host's `own` that lead to another host's address, by what both say.
pub fn shared(own: &[Network], other: Ipv4Addr) -> impl Iterator<Item = &Network> {
    own.iter().filter(move |own| own.contains(other) && own.address != other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(list: &[&str]) -> Vec<Network> {
        list.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn hosts_talk_over_the_network_they_share() {
        let one = networks(&["192.168.1.5/24", "10.0.0.1/16"]);
        let two = networks(&["172.20.0.1/16", "10.0.3.7/16"]);
        let chosen = choose(&[&one, &two]).unwrap();
        assert_eq!(chosen, ["10.0.0.1", "10.0.3.7"].map(|a| a.parse::<Ipv4Addr>().unwrap()));
    }

    #[test]
    fn routed_hosts_use_their_first_address_and_a_host_without_one_is_a_no() {
        let (one, two) = (networks(&["192.168.1.5/24"]), networks(&["192.168.2.5/24"]));
        assert!(choose(&[&one, &two]).is_some());
        assert!(choose(&[&one, &[]]).is_none());
    }

    #[test]
    fn a_network_that_looks_alike_on_all_hosts_leads_nowhere() {
        let own = networks(&["192.168.1.5/24", "10.0.0.1/16", "172.17.0.1/16"]);
        let to = |other: &str| shared(&own, other.parse().unwrap()).copied().collect::<Vec<_>>();
        assert_eq!(to("10.0.3.7"), networks(&["10.0.0.1/16"]));
        assert_eq!((to("172.17.0.1"), to("192.168.2.5")), (vec![], vec![]));
    }
}
