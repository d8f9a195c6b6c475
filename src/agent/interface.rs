//! The interfaces of this network namespace: which has an address, and what it is.

use std::net::Ipv4Addr;

use crate::agent::error::{Context, Error, ErrorKind, Result};
use crate::agent::netlink::{Netlink, attribute, read_u16, read_u32, text};
use crate::agent::spec::Chunks;

const IFLA_XDP_ATTACHED: u16 = 2;

/// A network interface, as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) mtu: u32,
    /// Frames begin with an Ethernet header.
    pub(crate) ethernet: bool,
    /// It is a device on a bus, not made of software.
    pub(crate) physical: bool,
    /// It has an XDP program.
    pub(crate) xdp: bool,
    /// It is up and has a carrier.
    pub(crate) running: bool,
}

/// The interface that has an address.
pub(crate) fn with_address(address: Ipv4Addr) -> Result<Interface> {
    match addresses()?.into_iter().find(|(_, local)| *local == address) {
        Some((index, _)) => by_index(index),
        None => {
            let message = format!("{address} is on no interface of this host");
            Err(Error::new(ErrorKind::NotLocal, message))
        }
    }
}

/// Every IPv4 address of this host, with the index of its interface.
pub(crate) fn addresses() -> Result<Vec<(u32, Ipv4Addr)>> {
    let doing = || "listing the addresses of this host".to_string();
    let mut netlink = Netlink::open().context(ErrorKind::Kernel, doing)?;
    // struct ifaddrmsg: family, prefix length, flags, scope, index.
    let body = [libc::AF_INET as u8, 0, 0, 0, 0, 0, 0, 0];
    let messages = netlink.dump(libc::RTM_GETADDR, &body).context(ErrorKind::Kernel, doing)?;
    Ok(messages.iter().filter_map(|message| parse_address(message)).collect())
}

/// The interface of an index.
pub(crate) fn by_index(index: u32) -> Result<Interface> {
    let doing = || format!("asking about interface {index}");
    let mut netlink = Netlink::open().context(ErrorKind::Kernel, doing)?;
    // struct ifinfomsg: family, pad, type, index, flags, change mask.
    let mut body = vec![0; 16];
    body.splice(4..8, index.to_ne_bytes());
    let message = netlink.get(libc::RTM_GETLINK, &body).context(ErrorKind::Kernel, doing)?;
    parse_link(&message)
        .ok_or_else(|| Error::new(ErrorKind::Kernel, format!("{}: no answer", doing())))
}

/// The chunks for the links of this host that have an address.
pub(crate) fn chunks() -> Result<Chunks> {
    let mut mtus = Vec::new();
    for (index, _) in addresses()? {
        let interface = by_index(index)?;
        if interface.ethernet {
            mtus.push(interface.mtu);
        }
    }
    Ok(Chunks::of_links(mtus))
}

fn parse_address(body: &[u8]) -> Option<(u32, Ipv4Addr)> {
    let index = read_u32(body, 4)?;
    let rest = body.get(8..)?;
    // On a point-to-point link IFA_ADDRESS is the peer's.
    let value = attribute(rest, libc::IFA_LOCAL).or_else(|| attribute(rest, libc::IFA_ADDRESS))?;
    let octets: [u8; 4] = value.try_into().ok()?;
    Some((index, octets.into()))
}

fn parse_link(body: &[u8]) -> Option<Interface> {
    let hardware = read_u16(body, 2)?;
    let index = read_u32(body, 4)?;
    let flags = read_u32(body, 8)?;
    let rest = body.get(16..)?;
    let attached = attribute(rest, libc::IFLA_XDP)
        .and_then(|xdp| attribute(xdp, IFLA_XDP_ATTACHED))
        .and_then(|value| value.first());
    Some(Interface {
        index,
        name: text(attribute(rest, libc::IFLA_IFNAME)?),
        mtu: read_u32(attribute(rest, libc::IFLA_MTU)?, 0)?,
        ethernet: hardware == libc::ARPHRD_ETHER,
        // Unlike /sys/class/net/X/device, right in any network namespace (Linux 5.14).
        physical: attribute(rest, libc::IFLA_PARENT_DEV_NAME).is_some(),
        xdp: attached.is_some_and(|mode| *mode != 0),
        running: flags & libc::IFF_RUNNING as u32 != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::netlink::push_attribute;

    fn link(more: impl Fn(&mut Vec<u8>)) -> Option<Interface> {
        let mut body = vec![0; 16];
        body[2] = 1;
        body[4] = 7;
        push_attribute(&mut body, libc::IFLA_IFNAME, b"veth0\0");
        push_attribute(&mut body, libc::IFLA_MTU, &1500_u32.to_ne_bytes());
        more(&mut body);
        parse_link(&body)
    }

    #[test]
    fn a_link_tells_what_it_is() {
        let plain = link(|_| ()).unwrap();
        assert_eq!((plain.index, plain.name.as_str(), plain.mtu), (7, "veth0", 1500));
        assert!(plain.ethernet && !plain.physical && !plain.xdp);
        let nic = link(|body| push_attribute(body, libc::IFLA_PARENT_DEV_NAME, b"0000:01:00.0\0"));
        assert!(nic.unwrap().physical);
        for (mode, attached) in [(0, false), (1, true), (2, true)] {
            let mut nested = Vec::new();
            push_attribute(&mut nested, IFLA_XDP_ATTACHED, &[mode]);
            let parsed = link(|body| push_attribute(body, libc::IFLA_XDP, &nested)).unwrap();
            assert_eq!(parsed.xdp, attached);
        }
    }

    #[test]
    fn on_a_point_to_point_link_the_local_address_counts() {
        let mut body = vec![2, 32, 0, 0, 9, 0, 0, 0];
        push_attribute(&mut body, libc::IFA_ADDRESS, &[10, 0, 0, 2]);
        push_attribute(&mut body, libc::IFA_LOCAL, &[10, 0, 0, 1]);
        assert_eq!(parse_address(&body), Some((9, Ipv4Addr::new(10, 0, 0, 1))));
        assert_eq!(parse_address(&body[..8]), None);
    }
}
