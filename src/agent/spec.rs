//! The description of a group, and its bounds. Pure.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::agent::error::{Error, ErrorKind, Result};
use crate::bindings::{
    FB_CHUNK_BYTES, FB_EVERYONE, FB_FRAME_BYTES, FB_JUMBO_BYTES, FB_MAX_MEMBERS, FB_MAX_WINDOW,
};

use crate::wire::Secret;

/// IPv4 header, UDP header and frame header, in front of a chunk.
const FRAME_OVERHEAD: u32 = 20 + 8 + FB_FRAME_BYTES;

/// The least MTU of a link that has chunks longer than usual. On a link with hardly more than the usual MTU their
/// savings do not pay for their memory.
const JUMBO_MTU: u32 = 4096;

/// The chunks that a host's programs have room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunks {
    /// Chunks that fit the usual MTU, 1500.
    Usual,
    /// Chunks of jumbo frames, of up to 9000 bytes.
    Jumbo,
}

impl Chunks {
    /// The chunks for a host whose Ethernet links have these MTUs.
    pub fn of_links(mtus: impl IntoIterator<Item = u32>) -> Self {
        let is_jumbo = mtus.into_iter().any(|mtu| mtu >= JUMBO_MTU);
        if is_jumbo { Self::Jumbo } else { Self::Usual }
    }

    /// Most bytes of a chunk.
    pub fn most_bytes(self) -> u32 {
        match self {
            Self::Usual => FB_CHUNK_BYTES,
            Self::Jumbo => FB_JUMBO_BYTES,
        }
    }

    /// Most payload that fits into frames of an interface.
    pub fn most_bytes_at(self, mtu: u32) -> u16 {
        let room = mtu.saturating_sub(FRAME_OVERHEAD);
        let most = if mtu < JUMBO_MTU { FB_CHUNK_BYTES } else { self.most_bytes() };
        room.min(most) as u16
    }
}

/// A group to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupSpec {
    /// Random, the same at all members: names the group in frames.
    pub token: u64,
    /// The source of the key of its frames; without one they bear a checksum.
    pub secret: Option<Secret>,
    /// This host's index among the members.
    pub self_index: u8,
    /// Addresses of all members' hosts.
    pub members: Vec<Ipv4Addr>,
    /// Cells, a power of two.
    pub window: u32,
    /// Most payload of a frame.
    pub chunk_bytes: u16,
    /// Whether the members are to have an address in common, for frames to all of them.
    pub multicast: bool,
}

/// Whether so many members can have an address in common: for two it would be of no use, and it takes a member's place.
pub fn can_share_address(members: usize) -> bool {
    members > 2 && members < FB_EVERYONE as usize
}

/// Refuses a window that no group can have.
pub(crate) fn check_window(window: u32) -> Result<()> {
    if !window.is_power_of_two() || window > FB_MAX_WINDOW {
        let message = format!("a window is a power of two up to {FB_MAX_WINDOW}, not {window}");
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    Ok(())
}

impl GroupSpec {
    /// Whether a group can be like this at all.
    pub fn check(&self) -> Result<()> {
        let invalid = |why: String| Err(Error::new(ErrorKind::Invalid, why));
        if self.token == 0 {
            return invalid("the token of a group is random, not 0".into());
        }
        if self.members.is_empty() || self.members.len() > FB_MAX_MEMBERS as usize {
            return invalid(format!(
                "a group has 1 to {FB_MAX_MEMBERS} members, not {}",
                self.members.len()
            ));
        }
        if usize::from(self.self_index) >= self.members.len() {
            return invalid(format!(
                "member {} of {} does not exist",
                self.self_index,
                self.members.len()
            ));
        }
        for (index, address) in self.members.iter().enumerate() {
            if address.is_unspecified()
                || address.is_loopback()
                || address.is_multicast()
                || address.is_broadcast()
            {
                return invalid(format!("{address} is not an address that another host can reach"));
            }
            if self.members.iter().take(index).any(|other| other == address) {
                return invalid(format!("{address} is a member twice"));
            }
        }
        check_window(self.window)?;
        if self.chunk_bytes == 0 || u32::from(self.chunk_bytes) > FB_JUMBO_BYTES {
            return invalid(format!(
                "a chunk has 1 to {FB_JUMBO_BYTES} bytes, not {}",
                self.chunk_bytes
            ));
        }
        Ok(())
    }

    /// The address that the members have in common, if they are to: by their token, in the scope that is an
    /// organization's own (239.192.0.0/14, RFC 2365).
    pub fn multicast_address(&self) -> Option<Ipv4Addr> {
        let shared = self.multicast && can_share_address(self.members.len());
        shared.then(|| Ipv4Addr::from(0xefc0_0000 | self.token as u32 & 0x3_ffff))
    }

    /// Address of this host's member.
    pub fn own_address(&self) -> Option<Ipv4Addr> {
        self.members.get(usize::from(self.self_index)).copied()
    }
}

/// Of two hosts, for tests.
#[cfg(test)]
pub fn of_two() -> GroupSpec {
    GroupSpec {
        token: u64::MAX,
        secret: None,
        self_index: 1,
        members: vec![Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)],
        window: 64,
        chunk_bytes: 1408,
        multicast: true,
    }
}

#[cfg(test)]
mod tests {
    use super::of_two as spec;
    use super::*;

    #[test]
    fn members_have_an_address_in_common_if_there_are_more_than_two() {
        let of = |count: u8, multicast| {
            let members = (1..=count).map(|host| Ipv4Addr::new(10, 0, 0, host)).collect();
            GroupSpec { members, multicast, ..spec() }.multicast_address()
        };
        assert_eq!(of(3, true), Some(Ipv4Addr::new(239, 195, 255, 255)));
        assert_eq!([of(3, false), of(2, true), of(63, true)], [None; 3]);
        assert!(of(62, true).is_some());
    }

    #[test]
    fn impossible_groups_are_refused() {
        assert!(spec().check().is_ok());
        let twice = vec![Ipv4Addr::new(10, 0, 0, 1); 2];
        let many = (0..65).map(|i| Ipv4Addr::new(10, 0, 1, i)).collect();
        for bad in [
            GroupSpec { token: 0, ..spec() },
            GroupSpec { self_index: 2, ..spec() },
            GroupSpec { members: vec![], self_index: 0, ..spec() },
            GroupSpec { members: twice, ..spec() },
            GroupSpec { members: many, ..spec() },
            GroupSpec { members: vec![Ipv4Addr::LOCALHOST], self_index: 0, ..spec() },
            GroupSpec { members: vec![Ipv4Addr::UNSPECIFIED], self_index: 0, ..spec() },
            GroupSpec { members: vec![Ipv4Addr::new(224, 0, 0, 1)], self_index: 0, ..spec() },
            GroupSpec { window: 0, ..spec() },
            GroupSpec { window: 48, ..spec() },
            GroupSpec { window: 8192, ..spec() },
            GroupSpec { chunk_bytes: 0, ..spec() },
            GroupSpec { chunk_bytes: 8897, ..spec() },
        ] {
            assert_eq!(bad.check().unwrap_err().kind(), ErrorKind::Invalid, "{bad:?}");
        }
    }

    #[test]
    fn chunks_fit_the_mtu() {
        let of = |mtu| [Chunks::Usual, Chunks::Jumbo].map(|chunks| chunks.most_bytes_at(mtu));
        assert_eq!(of(68), [0, 0]);
        assert_eq!(of(1400), [1308, 1308]);
        assert_eq!(of(1500), [1408, 1408]);
        assert_eq!(of(4095), [1408, 1408]);
        assert_eq!(of(4096), [1408, 4004]);
        assert_eq!(of(9000), [1408, 8896]);
        assert_eq!(of(65535), [1408, 8896]);
    }

    #[test]
    fn one_jumbo_link_is_enough() {
        assert_eq!(Chunks::of_links([]), Chunks::Usual);
        assert_eq!(Chunks::of_links([1500, 4095]), Chunks::Usual);
        assert_eq!(Chunks::of_links([1500, 9000]), Chunks::Jumbo);
    }
}
