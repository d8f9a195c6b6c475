//! The fourth stage: leaders send HELLOs, and let every aggregator fold once. A group works after that.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Request;
use super::member::Membership;
use super::outcome::{Outcome, Verdict};
use super::trouble::{Missing, NoGroup, Trouble};
use crate::config::Shared;
use crate::engine::{Engine, Raw};
use crate::group::{Group, GroupWire, Member};
use crate::keeper::{Contact, Keeper};
use crate::leaf::arithmetic::{Arithmetic, Element, Operator};
use crate::mpi::Mpi;
use crate::topology::Place;
use crate::wait::Waiter;
use crate::wire::{Algorithm, Kind, Transfer, exchanges};

/// A group that has passed its trial.
pub struct Proven {
    membership: Membership,
    /// All hosts hear what is sent to all at once.
    everyone_hears: bool,
}

impl Proven {
    /// Tries a new group out; `None`: its chunks are too long, and the next group will have shorter ones. This process
    /// learns from what fails. Collective: one exchange.
    ///
    /// # Errors
    /// Why there is no group, the same on all ranks.
    pub fn by_trial(
        request: &Request<'_>,
        mut membership: Membership,
    ) -> Result<Option<Self>, NoGroup> {
        let (mpi, learnt) = (request.context.mpi, &request.context.facilities.learnt);
        let Membership { roster, terms, member, .. } = &mut membership;
        let patience = request.config().probe_timeout;
        let trouble =
            member.as_mut().and_then(|member| try_out(mpi, member, terms.port, patience).err());
        let listens = member.as_mut().filter(|_| terms.identity.multicast && trouble.is_none());
        let overheard = listens.map(|(wire, _)| listen(mpi, wire));
        if overheard == Some(false) {
            log::info!("not all hear what is sent to all at once: it is sent to each");
            learnt.set_deaf();
        }
        let outcome = Outcome { trouble, overheard: overheard.unwrap_or(false) };
        // A peer may have missed our HELLO; it cannot go on without.
        let mut greeting = Greeting::default();
        let outcomes = request.tell(&outcome, &mut || {
            if let Some((wire, _)) = member {
                greeting.again(wire);
            }
        })?;
        let chunk_bytes = terms.identity.chunk_bytes;
        match Verdict::of(&roster.layout, chunk_bytes, &outcomes) {
            Verdict::Works { everyone_hears } => Ok(Some(Self { membership, everyone_hears })),
            Verdict::TooLong => {
                log::info!(
                    "chunks of {chunk_bytes} bytes do not come through, though all links have room for them: \
                     trying shorter ones"
                );
                learnt.set_no_jumbo();
                Ok(None)
            }
            Verdict::Fails(why) => {
                if terms.by_sockets {
                    learnt.set_no_sockets();
                }
                Err(why)
            }
        }
    }

    /// The group, put to work.
    ///
    /// # Errors
    /// This rank is on no host.
    pub fn into_group(self, shared: &Shared) -> Result<Group, NoGroup> {
        let Membership { roster, terms, mut member, leaf, resources } = self.membership;
        if let Some((wire, _)) = member.as_ref().filter(|_| self.everyone_hears) {
            wire.cells.set_multicast();
        }
        // Only now: what the trial found must be the programs' own work.
        if let (Some((wire, _)), Some(keeper)) = (&mut member, &resources.keeper) {
            go_to_work(wire, keeper, terms.peers);
        }
        let (members, window) = (roster.members.len(), terms.window.into());
        let has_shards = Algorithm::has_shards(members, window);
        let (layout, chunk_bytes) = (roster.layout, terms.identity.chunk_bytes);
        let mut place =
            Place::new(layout, roster.rank, chunk_bytes, has_shards).ok_or(NoGroup::Nowhere)?;
        place = place.with_parcels(exchanges(members, window));
        // An algorithm that is named is taken.
        place.swaps &= shared.algorithm.is_none();
        if terms.by_sockets {
            place = place.at_most(shared.most_bytes_by_sockets());
        }
        let (wire, member) = member.unzip();
        let mut group = Group::new(Engine::new(place, wire, leaf), member, roster.counted);
        group.no_programs = terms.no_programs;
        Ok(group)
    }
}

/// Puts a wire to work whose trial has succeeded; with programs, it gets its second way.
fn go_to_work(wire: &mut GroupWire, keeper: &Arc<Keeper>, peers: Vec<Option<Contact>>) {
    if wire.transport.has_programs() {
        let memory = wire.cells.memory().clone();
        wire.transport.add(keeper.add_group(wire.identity(), peers, memory));
    }
    wire.transport.go_to_work();
}

/// HELLOs, which are for programs to learn from: again and again, for one may be lost.
#[derive(Default)]
struct Greeting {
    last: Option<Instant>,
}

impl Greeting {
    const EVERY: Duration = Duration::from_millis(5);

    /// Says HELLO, if it is time to.
    fn again(&mut self, wire: &mut GroupWire) {
        let now = Instant::now();
        let is_due = self.last.is_none_or(|last| now - last >= Self::EVERY);
        if is_due && wire.transport.has_programs() {
            wire.hello();
            self.last = Some(now);
        }
    }
}

/// Whether this host hears what all others send to all at once. On a network that carries it, that has mostly come by
/// now; who hears nobody does not wait for long.
fn listen(mpi: &Mpi, wire: &mut GroupWire) -> bool {
    const FOR_ANY: Duration = Duration::from_millis(20);
    const FOR_ALL: Duration = Duration::from_secs(1);
    let begin = Instant::now();
    let mut waiter = Waiter::new(mpi);
    let mut greeting = Greeting::default();
    while !wire.overheard_all() {
        let patience = if wire.cells.overheard() == 0 { FOR_ANY } else { FOR_ALL };
        if begin.elapsed() > patience {
            return false;
        }
        greeting.again(wire);
        waiter.wait_a_turn();
    }
    true
}

/// Folds by which set-up measures the round trip.
const ROUND_TRIPS: usize = 3;

/// Sends HELLOs until everyone's have come, if there are programs, then folds once at every aggregator, and measures
/// the round trip.
fn try_out(
    mpi: &Mpi,
    (wire, member): &mut (GroupWire, Member),
    port: u16,
    patience: Duration,
) -> Result<(), Trouble> {
    let begin = Instant::now();
    let late = |missing| {
        Err(Trouble::Silence {
            missing,
            seconds: patience.as_secs(),
            hook: member.hook(),
            interface: member.interface.clone(),
            port,
        })
    };
    let mut waiter = Waiter::new(mpi);
    let mut greeting = Greeting::default();
    while wire.transport.has_programs() && !wire.heard_all() {
        if begin.elapsed() > patience {
            return late(Missing::Hello);
        }
        greeting.again(wire);
        waiter.wait_a_turn();
    }
    // One chunk for each aggregator.
    let identity = wire.identity().clone();
    let bytes = usize::from(identity.members) * usize::from(identity.chunk_bytes);
    let fold = Kind::FoldToAll(Arithmetic { op: Operator::Bor, element: Element::U8 });
    let mut marks = vec![identity.me; bytes];
    let (send, recv) = (marks.as_ptr(), marks.as_mut_ptr());
    let transfer = Transfer::new(fold, bytes).by(Algorithm::best(usize::from(identity.members)));
    // SAFETY: the marks are read when the transfer is over. If it never is, nobody polls this wire any more.
    wire.submit(transfer, unsafe { Raw::new(send, recv) });
    while wire.take_over().is_none() {
        wire.poll(|| waiter.now());
        if begin.elapsed() > patience {
            return late(Missing::Fold);
        }
        greeting.again(wire);
        waiter.wait_a_turn();
    }
    let want = (0..identity.members).fold(0, |all, member| all | member);
    if marks.iter().any(|byte| *byte != want) {
        return Err(Trouble::WrongFold);
    }
    // By now all members are at it, so that the fastest tells how long the way is.
    let mut round_trip = Duration::MAX;
    for _ in 0..ROUND_TRIPS {
        let started = Instant::now();
        wire.submit(Transfer::new(fold, 0), Raw::nothing());
        while wire.take_over().is_none() {
            wire.poll(|| waiter.now());
            if begin.elapsed() > patience {
                return late(Missing::Fold);
            }
            waiter.wait_a_turn();
        }
        round_trip = round_trip.min(started.elapsed());
    }
    wire.expect(round_trip);
    Ok(())
}
