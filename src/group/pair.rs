//! A group of two hosts in one process, on loopback addresses, for tests. Programs are there by name only: nobody takes
//! in the frames that are sent to them.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::bindings::FB_CHUNK_BYTES;
use crate::keeper::{Contact, Keepers};
use crate::topology::{Layout, Place};
use crate::wire::cells::Cells;
use crate::wire::socket::SocketPool;
use crate::wire::{Identity, Seal, exchanges};

const HOSTS: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 0, 7, 1), Ipv4Addr::new(127, 0, 7, 2)];
/// Nobody has it.
const PORT: u16 = 1;

/// The two sides of a new group, with programs that do nothing, or without any.
pub(crate) fn pair(has_programs: bool) -> [Group; 2] {
    static TOKENS: AtomicU64 = AtomicU64::new(1);
    let token = TOKENS.fetch_add(1, Ordering::Relaxed);
    let keepers = Keepers::default();
    let keepers = HOSTS.map(|address| keepers.at(address, &[]).expect("a keeper"));
    [0, 1].map(|me: usize| {
        let chunk_bytes = FB_CHUNK_BYTES as u16;
        let seal = Seal::new(None);
        let identity =
            Identity { token, seal, members: 2, me: me as u8, chunk_bytes, multicast: false };
        let peers = [0, 1].map(|member: usize| {
            let at = SocketAddrV4::new(HOSTS[member], keepers[member].port());
            (member != me).then(|| Contact { at, elsewhere: vec![] })
        });
        let memory = Mapped::own(256, chunk_bytes).expect("memory");
        let hook = keepers[me].add_group(&identity, peers.to_vec(), memory.clone());
        let transports = match has_programs {
            false => Transports::without_programs(hook),
            true => {
                let sockets = SocketPool::default().sockets(&HOSTS, me, PORT).expect("sockets");
                let mut transports = Transports::new(sockets);
                transports.add(hook);
                transports
            }
        };
        let wire = Wire::new(Cells::new(memory), transports, identity);
        let place =
            Place::new(Layout::new(["one", "two"]), me, chunk_bytes, true).expect("a place");
        let place = place.with_parcels(exchanges(2, 256));
        let (interface, host) = ("lo".into(), format!("host {me}"));
        let member = Member { served: None, interface, host };
        Group::new(Engine::new(place, Some(wire), None), Some(member), true)
    })
}
