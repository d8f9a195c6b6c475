//! This host as a member of a group: made by the agent, tried out, given its second way.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::trouble::{Missing, Trouble};
use super::{Context, hosts};
use crate::agent::{Client, GroupSpec};
use crate::bindings::{FB_OP_BOR, FB_TYPE_U8};
use crate::engine::Raw;
use crate::group::{GroupWire, Member};
use crate::keeper::Keeper;
use crate::keeper::ways::Ways;
use crate::wait::Waiter;
use crate::wire::cells::{Cells, Mapped};
use crate::wire::{Algorithm, Identity, Kind, Transfer, Wire};

/// Has the agent make this host a member of the group.
pub fn join(
    context: &Context<'_>,
    client: Arc<Client>,
    identity: &Identity,
    members: &[Ipv4Addr],
    window: u32,
) -> Result<(GroupWire, Member), Trouble> {
    let spec = GroupSpec {
        token: identity.token,
        self_index: identity.me,
        members: members.to_vec(),
        window,
        chunk_bytes: identity.chunk_bytes,
    };
    let group = client.create_group(&spec).map_err(|error| Trouble::Agent(error.to_string()))?;
    let made = || -> std::io::Result<_> {
        let memory = Mapped::new(&group.cells, window)?;
        let sockets = context.sockets.sockets(members, usize::from(identity.me), group.port)?;
        Ok((memory, sockets))
    };
    let (memory, sockets) = made().map_err(|error| {
        let _ = client.destroy_group(group.slot);
        Trouble::Group(error.to_string())
    })?;
    let member = Member {
        client,
        slot: group.slot,
        hook: group.hook,
        interface: group.interface,
        host: hosts::host_name(),
    };
    let ways = Ways::new(sockets);
    Ok((Wire::new(Cells::new(memory), ways, *identity), member))
}

/// Gives a member its second way, to the keepers of those that have one, by their ports.
pub fn add_second_way(
    wire: &mut GroupWire,
    keeper: &Arc<Keeper>,
    members: &[Ipv4Addr],
    ports: &[Option<u16>],
) {
    let identity = *wire.identity();
    let peer = |(member, port): (usize, &Option<u16>)| {
        let port = port.filter(|_| member != usize::from(identity.me))?;
        Some(SocketAddrV4::new(members[member], port))
    };
    let peers = ports.iter().enumerate().map(peer).collect();
    wire.fabric.add(keeper.seat(&identity, peers, wire.cells.memory().clone()));
}

/// Sends HELLOs until everyone's have come, then folds once at every aggregator.
pub fn try_out(
    context: &Context<'_>,
    (wire, member): &mut (GroupWire, Member),
    patience: Duration,
) -> Result<(), Trouble> {
    let begin = Instant::now();
    let late = |missing| {
        Err(Trouble::Silence {
            missing,
            seconds: patience.as_secs(),
            hook: member.hook.to_string(),
            interface: member.interface.clone(),
            port: member.client.welcome().port,
        })
    };
    let mut waiter = Waiter::new(context.mpi, context.nothing);
    let mut next_hello = begin;
    while !wire.heard_all() {
        let now = Instant::now();
        if now - begin > patience {
            return late(Missing::Hello);
        }
        if now >= next_hello {
            wire.hello();
            next_hello = now + Duration::from_millis(5);
        }
        waiter.turn();
    }
    // One chunk for each aggregator.
    let identity = *wire.identity();
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
        if Instant::now() >= next_hello {
            wire.hello();
            next_hello = Instant::now() + Duration::from_millis(5);
        }
        waiter.turn();
    }
    let want = (0..identity.members).fold(0, |all, member| all | member);
    if marks.iter().any(|byte| *byte != want) {
        return Err(Trouble::WrongFold);
    }
    Ok(())
}
