//! The third stage: leaders make the group, and the ranks of a host meet in shared memory.

use std::sync::Arc;

use super::hello::Roster;
use super::offer::LocalResources;
use super::outcome::{Outcome, troubles};
use super::terms::Terms;
use super::trouble::{NoGroup, Trouble};
use super::{Facilities, Request, hosts, meet};
use crate::agent::{Client, GroupSpec};
use crate::group::{GroupWire, Member, Served};
use crate::keeper::Keeper;
use crate::keeper::transports::Transports;
use crate::leaf::Leaf;
use crate::wire::Wire;
use crate::wire::cells::{Cells, Mapped};

/// This rank in a group that is made, and not tried yet.
pub struct Membership {
    pub roster: Roster,
    pub terms: Terms,
    /// Its host as a member, if it leads.
    pub member: Option<(GroupWire, Member)>,
    /// The memory that the ranks of its host share, if there are several.
    pub leaf: Option<Leaf>,
    pub resources: LocalResources,
}

impl Membership {
    /// Makes this host a member, if this rank leads, and meets the ranks of this host. Collective: one exchange.
    ///
    /// # Errors
    /// Why there is no group, the same on all ranks.
    pub fn begin(
        request: &Request<'_>,
        roster: Roster,
        terms: Terms,
        mut resources: LocalResources,
    ) -> Result<Self, NoGroup> {
        let leaf = meet(&roster, &terms, &mut resources);
        let member = roster.leads().then(|| resources.join(request, &roster, &terms)).transpose();
        // All hear of one trouble: the ranks of a host that cannot meet have no use for a member.
        let trouble = match (&leaf, &member) {
            (Err(trouble), _) | (Ok(_), Err(trouble)) => Some(trouble.clone()),
            (Ok(_), Ok(_)) => None,
        };
        let outcomes = request.tell(&Outcome { trouble, overheard: false }, &mut || ())?;
        troubles(&roster.layout, outcomes.iter().map(|outcome| &outcome.trouble))?;
        let (member, leaf) = (member.ok().flatten(), leaf.ok().flatten());
        Ok(Self { roster, terms, member, leaf, resources })
    }
}

/// The memory that the ranks of this host share, if there are several.
fn meet(
    roster: &Roster,
    terms: &Terms,
    resources: &mut LocalResources,
) -> Result<Option<Leaf>, Trouble> {
    let locals = roster.locals();
    let leaf = match (&mut resources.meeting, &terms.meeting) {
        (Some(host), _) => host.receive(locals).map(Some),
        (None, Some(address)) => meet::join(address, roster.place, locals).map(Some),
        (None, None) => Ok(None),
    };
    leaf.map_err(|error| Trouble::SharedMemory(error.to_string()))
}

impl LocalResources {
    /// Makes this host a member of the group.
    fn join(
        &self,
        request: &Request<'_>,
        roster: &Roster,
        terms: &Terms,
    ) -> Result<(GroupWire, Member), Trouble> {
        match (&self.client, &self.keeper) {
            (Some(client), _) => by_agent(request.context.facilities, client, roster, terms),
            (None, Some(keeper)) => by_keeper(keeper, roster, terms),
            (None, None) => Err(Trouble::Group("neither programs nor sockets".into())),
        }
    }
}

/// Has the agent make this host a member of the group.
fn by_agent(
    facilities: &Facilities,
    client: &Arc<Client>,
    Roster { members, .. }: &Roster,
    Terms { identity, window, .. }: &Terms,
) -> Result<(GroupWire, Member), Trouble> {
    let spec = GroupSpec {
        token: identity.token,
        secret: identity.seal.secret(),
        self_index: identity.me,
        members: members.clone(),
        window: *window,
        chunk_bytes: identity.chunk_bytes,
        multicast: identity.multicast,
    };
    let group = client.create_group(&spec).map_err(Trouble::of_agent)?;
    let made = || -> std::io::Result<_> {
        let memory = Mapped::new(&group.cells, *window, group.cell_bytes)?;
        let sockets = facilities.sockets.sockets(members, usize::from(identity.me), group.port)?;
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
            fold: group.fold,
            ends: false,
        }),
        interface: group.interface,
        host: hosts::host_name(),
    };
    Ok((Wire::new(Cells::new(memory), Transports::new(sockets), identity.clone()), member))
}

/// Makes this host a member without programs.
fn by_keeper(
    keeper: &Arc<Keeper>,
    Roster { members, .. }: &Roster,
    Terms { identity, window, peers, .. }: &Terms,
) -> Result<(GroupWire, Member), Trouble> {
    let memory = Mapped::own(*window, identity.chunk_bytes)
        .map_err(|error| Trouble::Group(error.to_string()))?;
    let hook = keeper.add_group(identity, peers.clone(), memory.clone());
    let own = members[usize::from(identity.me)];
    let interface = hosts::interface_at(own).unwrap_or_else(|| own.to_string());
    let member = Member { served: None, interface, host: hosts::host_name() };
    Ok((
        Wire::new(Cells::new(memory), Transports::without_programs(hook), identity.clone()),
        member,
    ))
}
