//! An interface as a member of an IP multicast group: it takes in frames to all hosts of a group of foldback's.
//! Switches that look out for members (IGMP snooping, RFC 4541) send the frames there.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

use nix::sys::socket::{
    AddressFamily, IpMembershipRequest, SockFlag, SockType, setsockopt, socket,
    sockopt::IpAddMembership,
};

use crate::bindings::fb_member;

/// A membership, which ends with the value.
pub(crate) struct Membership {
    group: Ipv4Addr,
    /// Bound to no port, so it receives nothing.
    _socket: OwnedFd,
}

impl Membership {
    /// Joins `group` on the interface that has the address `here`.
    ///
    /// # Errors
    /// A system error: too many memberships, no such address.
    pub(crate) fn new(group: Ipv4Addr, here: Ipv4Addr) -> nix::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Inet, SockType::Datagram, flags, None)?;
        setsockopt(&socket, IpAddMembership, &IpMembershipRequest::new(group, Some(here)))?;
        Ok(Self { group, _socket: socket })
    }

    /// The entry for all members in the maps: the address, and the MAC address that belongs to it (RFC 1112,
    /// section 6.4).
    pub(crate) fn member(&self) -> fb_member {
        let [_, a, b, c] = self.group.octets();
        fb_member {
            address: u32::from_ne_bytes(self.group.octets()),
            mac: u64::from_ne_bytes([1, 0, 0x5e, a & 0x7f, b, c, 0, 0]),
            ..Default::default()
        }
    }
}
