//! A group's knowledge of its programs and its host, by a [pair] of hosts in one process.
#![allow(unsafe_code)]

use std::thread;
use std::time::{Duration, Instant};

use super::pair::pair;
use super::*;
use crate::engine::{Job, Pattern};
use crate::leaf::arithmetic::{Arithmetic, Element, Operator};
use crate::topology::{Layout, Place};

/// For hangs alone.
const MOST: Duration = Duration::from_secs(120);

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
    let mut groups = pair(true);
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
    let mut groups = pair(false);
    fold(&mut groups, 4 * WORTH_A_NEW_GROUP as usize);
    assert_eq!(groups.each_mut().map(Group::has_lost_programs), [false; 2]);
    for (me, group) in groups.iter().enumerate() {
        let line = group.report().expect("a leader");
        assert_eq!((line.host, line.interface), (format!("host {me}"), "lo".into()));
        assert_eq!((line.hook.as_str(), line.fold.as_str()), ("none", "processes"));
        assert_eq!((line.groups, line.rescued), (1, 0));
        assert!(line.kernel["frames_out"].as_u64() > Some(0), "{:?}", line.kernel);
    }
}

#[test]
fn a_rank_that_does_not_lead_reports_nothing() {
    let place = Place::new(Layout::new(["one", "one", "two"]), 1, 1408, false).unwrap();
    let mut group = Group::new(Engine::new(place, None, None), None, true);
    assert!(!group.has_lost_programs() && group.report().is_none());
}
