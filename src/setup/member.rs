//! This host as a member of a group: made by the agent, tried out, given its second way.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::trouble::{Missing, Trouble};
use super::{Context, hosts};
use crate::agent::{Client, GroupSpec};
use crate::bindings::{FB_OP_BOR, FB_TYPE_U8};
use crate::engine::Raw;
use crate::group::{GroupWire, Member, Served};
use crate::keeper::ways::Ways;
use crate::keeper::{Contact, Keeper};
use crate::wait::Waiter;
use crate::wire::cells::{Cells, Mapped};
use crate::wire::{Algorithm, Identity, Kind, Transfer, Wire};

/// A leader's resources for a group, beside its offer to the others.
#[derive(Default)]
pub struct Means {
    /// This host's agent, if there is one.
    pub client: Option<Arc<Client>>,
    /// This process's own.
    pub keeper: Option<Arc<Keeper>>,
    /// The meeting of the ranks of this host.
    pub meeting: Option<super::meet::Host>,
}

impl Means {
    /// Makes this host a member of the group, whose other members have their keepers at `peers`.
    pub fn join(
        &self,
        context: &Context<'_>,
        identity: &Identity,
        members: &[Ipv4Addr],
        peers: &[Option<Contact>],
        window: u32,
    ) -> Result<(GroupWire, Member), Trouble> {
        match (&self.client, &self.keeper) {
            (Some(client), _) => by_agent(context, client, identity, members, window),
            (None, Some(keeper)) => by_keeper(keeper, identity, members, peers, window),
            (None, None) => Err(Trouble::Group("neither programs nor sockets".into())),
        }
    }
}

/// Has the agent make this host a member of the group.
fn by_agent(
    context: &Context<'_>,
    client: &Arc<Client>,
    identity: &Identity,
    members: &[Ipv4Addr],
    window: u32,
) -> Result<(GroupWire, Member), Trouble> {
    let spec = GroupSpec {
        token: identity.token,
        secret: identity.seal.secret(),
        self_index: identity.me,
        members: members.to_vec(),
        window,
        chunk_bytes: identity.chunk_bytes,
        multicast: identity.multicast,
    };
    let group = client.create_group(&spec).map_err(Trouble::of_agent)?;
    let made = || -> std::io::Result<_> {
        let memory = Mapped::new(&group.cells, window, group.cell_bytes)?;
        let sockets = context.sockets.sockets(members, usize::from(identity.me), group.port)?;
        Ok((memory, sockets))
    };
    let (memory, sockets) = made().map_err(|error| {
        let _ = client.destroy_group(group.slot);
        Trouble::Group(error.to_string())
    })?;
    let member = Member {
        served: Some(Served {
            client: Arc::clone(client),
            slot: group.slot,
            hook: group.hook,
            ends: false,
        }),
        interface: group.interface,
        host: hosts::host_name(),
    };
    Ok((Wire::new(Cells::new(memory), Ways::new(sockets), identity.clone()), member))
}

/// Makes this host a member without programs.
fn by_keeper(
    keeper: &Arc<Keeper>,
    identity: &Identity,
    members: &[Ipv4Addr],
    peers: &[Option<Contact>],
    window: u32,
) -> Result<(GroupWire, Member), Trouble> {
    let memory = Mapped::own(window, identity.chunk_bytes)
        .map_err(|error| Trouble::Group(error.to_string()))?;
    let seat = keeper.seat(identity, peers.to_vec(), memory.clone());
    let own = members[usize::from(identity.me)];
    let interface = hosts::interface_at(own).unwrap_or_else(|| own.to_string());
    let member = Member { served: None, interface, host: hosts::host_name() };
    Ok((Wire::new(Cells::new(memory), Ways::without_programs(seat), identity.clone()), member))
}

/// Puts a wire to work whose trial has succeeded; with programs, it gets its second way.
pub fn go_to_work(wire: &mut GroupWire, keeper: &Arc<Keeper>, peers: Vec<Option<Contact>>) {
    if wire.fabric.has_programs() {
        let memory = wire.cells.memory().clone();
        wire.fabric.add(keeper.seat(wire.identity(), peers, memory));
    }
    wire.fabric.go_to_work();
}

/// HELLOs, which are for programs to learn from: again and again, for one may be lost.
#[derive(Default)]
pub struct Greeting {
    last: Option<Instant>,
}

impl Greeting {
    const EVERY: Duration = Duration::from_millis(5);

    /// Says HELLO, if it is time to.
    pub fn again(&mut self, wire: &mut GroupWire) {
        let now = Instant::now();
        let is_due = self.last.is_none_or(|last| now - last >= Self::EVERY);
        if is_due && wire.fabric.has_programs() {
            wire.hello();
            self.last = Some(now);
        }
    }
}

/// Whether this host hears what all others send to all at once. On a network that carries it, that has mostly come by
/// now; who hears nobody does not wait for long.
pub fn listen(context: &Context<'_>, wire: &mut GroupWire) -> bool {
    const FOR_ANY: Duration = Duration::from_millis(20);
    const FOR_ALL: Duration = Duration::from_secs(1);
    let begin = Instant::now();
    let mut waiter = Waiter::new(context.mpi);
    let mut greeting = Greeting::default();
    while !wire.overheard_all() {
        let patience = if wire.cells.overheard() == 0 { FOR_ANY } else { FOR_ALL };
        if begin.elapsed() > patience {
            return false;
        }
        greeting.again(wire);
        waiter.turn();
    }
    true
}

/// Folds by which set-up measures the round trip.
const ROUND_TRIPS: usize = 3;

/// Sends HELLOs until everyone's have come, if there are programs, then folds once at every aggregator, and measures the
/// round trip.
pub fn try_out(
    context: &Context<'_>,
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
    let mut waiter = Waiter::new(context.mpi);
    let mut greeting = Greeting::default();
    while wire.fabric.has_programs() && !wire.heard_all() {
        if begin.elapsed() > patience {
            return late(Missing::Hello);
        }
        greeting.again(wire);
        waiter.turn();
    }
    // One chunk for each aggregator.
    let identity = wire.identity().clone();
    let bytes = usize::from(identity.members) * usize::from(identity.chunk_bytes);
    let (op, element) = (FB_OP_BOR as u8, FB_TYPE_U8 as u8);
    let mut marks = vec![identity.me; bytes];
    let (send, recv) = (marks.as_ptr(), marks.as_mut_ptr());
    let transfer = Transfer::new(Kind::FoldToAll, op, element, bytes)
        .by(Algorithm::best(usize::from(identity.members)));
    wire.submit(transfer, Raw::new(send, recv));
    while wire.take_over().is_none() {
        wire.poll(|| waiter.now());
        if begin.elapsed() > patience {
            return late(Missing::Fold);
        }
        greeting.again(wire);
        waiter.turn();
    }
    let want = (0..identity.members).fold(0, |all, member| all | member);
    if marks.iter().any(|byte| *byte != want) {
        return Err(Trouble::WrongFold);
    }
    // By now all members are at it, so that the fastest tells how long the way is.
    let mut round_trip = Duration::MAX;
    for _ in 0..ROUND_TRIPS {
        let started = Instant::now();
        wire.submit(Transfer::new(Kind::FoldToAll, op, element, 0), Raw::new(send, recv));
        while wire.take_over().is_none() {
            wire.poll(|| waiter.now());
            if begin.elapsed() > patience {
                return late(Missing::Fold);
            }
            waiter.turn();
        }
        round_trip = round_trip.min(started.elapsed());
    }
    wire.expect(round_trip);
    Ok(())
}
