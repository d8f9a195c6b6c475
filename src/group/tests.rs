//! Groups of two hosts in one process, on loopback addresses. Programs are there by name only: nobody takes in the
//! frames that are sent to them.
#![allow(unsafe_code)]

use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::bindings::FB_CHUNK_BYTES;
use crate::engine::{Job, Pattern};
use crate::keeper::{Contact, Keepers};
use crate::leaf::arithmetic::{Arithmetic, Element, Operator};
use crate::topology::{Layout, Place};
use crate::wire::cells::Cells;
use crate::wire::socket::SocketPool;
use crate::wire::{Identity, Seal};

const HOSTS: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 0, 7, 1), Ipv4Addr::new(127, 0, 7, 2)];
/// Nobody has it.
const PORT: u16 = 1;
/// For hangs alone.
const MOST: Duration = Duration::from_secs(120);

/// The two sides of a group, with programs that do nothing, or without any.
fn groups(token: u64, has_programs: bool) -> [Group; 2] {
    let keepers = Keepers::default();
    let keepers = HOSTS.map(|address| keepers.at(address, &[]).unwrap());
    [0, 1].map(|me: usize| {
        let chunk_bytes = FB_CHUNK_BYTES as u16;
        let seal = Seal::new(None);
        let identity =
            Identity { token, seal, members: 2, me: me as u8, chunk_bytes, multicast: false };
        let peers = [0, 1].map(|member: usize| {
            let at = SocketAddrV4::new(HOSTS[member], keepers[member].port());
            (member != me).then(|| Contact { at, elsewhere: vec![] })
        });
        let memory = Mapped::own(256, chunk_bytes).unwrap();
        let hook = keepers[me].add_group(&identity, peers.to_vec(), memory.clone());
        let transports = match has_programs {
            false => Transports::without_programs(hook),
            true => {
                let mut transports =
                    Transports::new(SocketPool::default().sockets(&HOSTS, me, PORT).unwrap());
                transports.add(hook);
                transports
            }
        };
        let wire = Wire::new(Cells::new(memory), transports, identity);
        let place = Place::new(Layout::new(["one", "two"]), me, chunk_bytes, false).unwrap();
        let (interface, host) = ("lo".into(), format!("host {me}"));
        let member = Member { served: None, interface, host };
        Group::new(Engine::new(place, Some(wire), None), Some(member), true)
    })
}

/// Sums a word of both hosts, so many times.
fn fold(groups: &mut [Group; 2], times: usize) {
    let begin = Instant::now();
    for _ in 0..times {
        let mut words = [3_u64, 4];
        let mut tickets = Vec::new();
        for (group, word) in groups.iter_mut().zip(&mut words) {
            let data = std::ptr::from_mut(word).cast::<u8>();
            let arithmetic = Arithmetic { op: Operator::Sum, element: Element::U64 };
            let (pattern, bytes) = (Pattern::FoldToAll(arithmetic), size_of::<u64>());
            let job = Job { pattern, bytes, send: data, recv: data };
            let by = group.engine.usual_fold(bytes);
            // SAFETY: the word stays as long as the loop below, at whose end the job is over.
            tickets.push(unsafe { group.engine.start(job, by, None) });
        }
        while groups.iter().zip(&tickets).any(|(group, ticket)| !group.engine.is_over(*ticket)) {
            assert!(begin.elapsed() < MOST, "stuck");
            for group in groups.iter_mut() {
                group.engine.poll(Instant::now);
            }
            thread::yield_now();
        }
        for (group, ticket) in groups.iter_mut().zip(tickets) {
            assert_eq!(group.engine.outcome(ticket), Ok(()));
        }
        assert_eq!(words, [7, 7]);
    }
}

#[test]
fn a_group_whose_chunks_come_by_the_second_transport_has_lost_its_programs() {
    let mut groups = groups(1, true);
    let look = |groups: &mut [Group; 2]| groups.each_mut().map(Group::has_lost_programs);
    assert_eq!(look(&mut groups), [false; 2], "before any chunk");
    fold(&mut groups, 4 * WORTH_A_NEW_GROUP as usize);
    assert_eq!(look(&mut groups), [true; 2]);
    assert_eq!(look(&mut groups), [false; 2], "since the last look");
    fold(&mut groups, 4);
    assert_eq!(look(&mut groups), [false; 2], "too few to be worth it");
    assert!(groups.iter().all(|group| group.report().is_some_and(|line| line.rescued > 0)));
}

#[test]
fn a_group_without_programs_has_none_to_lose_and_reports_its_own_counters() {
    let mut groups = groups(2, false);
    fold(&mut groups, 4 * WORTH_A_NEW_GROUP as usize);
    assert_eq!(groups.each_mut().map(Group::has_lost_programs), [false; 2]);
    for (me, group) in groups.iter().enumerate() {
        let line = group.report().expect("a leader");
        assert_eq!((line.host, line.interface), (format!("host {me}"), "lo".into()));
        assert_eq!((line.hook, line.groups, line.rescued), ("none".into(), 1, 0));
        assert!(line.kernel["frames_out"].as_u64() > Some(0), "{:?}", line.kernel);
    }
}

#[test]
fn a_rank_that_does_not_lead_reports_nothing() {
    let place = Place::new(Layout::new(["one", "one", "two"]), 1, 1408, false).unwrap();
    let mut group = Group::new(Engine::new(place, None, None), None, true);
    assert!(!group.has_lost_programs() && group.report().is_none());
}
