//! The agent's state of one host: programs, interfaces, groups. Knows nothing of sockets.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::agent::accounts::{Account, Accounts};
use crate::agent::answers::Answers;
use crate::agent::attach::{Attachment, attach};
use crate::agent::error::{Error, ErrorKind, Result};
use crate::agent::hook::Hook;
use crate::agent::interface::{self, Interface};
use crate::agent::ledger::{Kind, Ledger};
use crate::agent::multicast::Membership;
use crate::agent::options::Options;
use crate::agent::owner::Owner;
use crate::agent::port::HeldPort;
use crate::agent::programs::{CellMap, Constants, Programs};
use crate::agent::protocol::{
    GROUPS_PER_PAGE, GroupReply, GroupStatus, GroupsReply, InterfaceReply, InterfaceStatus, Status,
    USERS_PER_PAGE, UserStatus, UsersReply,
};
use crate::agent::slots::Slots;
use crate::agent::socket::Peer;
use crate::agent::spec::{Chunks, GroupSpec, check_window};
use crate::agent::sweep::sweep;
use crate::agent::sys;
use crate::bindings::{FB_EVERYONE, FB_MAX_GROUPS, fb_counters, fb_group, fb_member};
use crate::wire::table::TABLE_BYTES;
use crate::wire::{Seal, window_for};

pub(crate) type ConnectionId = u64;

struct GroupRecord {
    connection: ConnectionId,
    peer: Peer,
    job: Option<String>,
    spec: GroupSpec,
    interface: u32,
    interface_name: String,
    hook: Hook,
    map: u32,
    /// Its cells, if their leader's work is told.
    cells: Option<CellMap>,
    /// The number of the map of its table, if it has one.
    table: Option<u32>,
    since: Instant,
    /// While this exists, the interface takes in frames that are sent to all members.
    _membership: Option<Membership>,
}

/// Programs on an interface.
struct Attached {
    attachment: Attachment,
    /// No group uses them, and they go then.
    until: Option<Instant>,
}

/// For so long programs stay at least that a rank has asked for, until it has a group.
const PREPARED: Duration = Duration::from_secs(60);

/// Rest after a group has come or gone: who makes one may want another at once.
const REST: Duration = Duration::from_millis(10);

/// Everything the agent has in the kernel. Dropping it takes it all away.
pub(crate) struct Host {
    options: Options,
    groups: BTreeMap<u32, GroupRecord>,
    slots: Slots,
    ledger: Ledger,
    /// Groups that have ended.
    accounts: Accounts<ConnectionId>,
    began: Instant,
    /// By the interface's index.
    attachments: BTreeMap<u32, Attached>,
    /// Groups have come or gone, and there is something to [tend](Self::tend) when that has been so long ago.
    to_tend: Option<Instant>,
    programs: Programs,
    owner: Owner,
    /// None if this process may not have it.
    port: Option<HeldPort>,
    answers: Answers,
    ending: bool,
}

impl Host {
    /// Clears away what a killed agent left, and loads the programs.
    pub(crate) fn new(options: Options) -> Result<Self> {
        sweep();
        let port = HeldPort::new(options.port, options.echo)?;
        let (programs, slots) = load(&options, interface::chunks()?)?;
        Ok(Self {
            slots,
            programs,
            owner: Owner::new()?,
            port,
            answers: Answers::new(Instant::now()),
            groups: BTreeMap::new(),
            ledger: Ledger::default(),
            accounts: Accounts::default(),
            began: Instant::now(),
            attachments: BTreeMap::new(),
            to_tend: None,
            options,
            ending: false,
        })
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// The number of groups.
    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// The socket that echoes come to, while they may be looked at.
    pub(crate) fn echoes(&self, now: Instant) -> Option<BorrowedFd<'_>> {
        self.port.as_ref().filter(|_| self.answers.may_work(now)).map(HeldPort::as_fd)
    }

    /// Answers the echoes that have come.
    pub(crate) fn answer_echoes(&mut self) {
        if let Some(port) = &self.port {
            self.answers.work(port);
        }
    }

    /// No group is made any more.
    pub(crate) fn set_ending(&mut self) {
        self.ending = true;
    }

    fn check_not_ending(&self) -> Result<()> {
        if self.ending {
            return Err(Error::new(ErrorKind::Ending, "the agent is ending, and makes no groups"));
        }
        Ok(())
    }

    /// Makes a group; the descriptor is its cells'.
    pub(crate) fn create_group(
        &mut self,
        connection: ConnectionId,
        peer: Peer,
        job: Option<&str>,
        spec: GroupSpec,
    ) -> Result<(GroupReply, OwnedFd)> {
        self.check_not_ending()?;
        spec.check()?;
        let address = spec
            .own_address()
            .ok_or_else(|| Error::new(ErrorKind::Invalid, "the group has no member here"))?;
        let interface = interface::with_address(address)?;
        let room = self.programs.chunks().most_bytes_at(interface.mtu);
        if spec.chunk_bytes > room {
            let (name, mtu) = (&interface.name, interface.mtu);
            let message = format!(
                "a chunk of {} bytes does not fit a frame of {name}: its MTU {mtu} leaves {room}",
                spec.chunk_bytes
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let bytes = self.programs.window_bytes(spec.window);
        let limits = &self.options.limits;
        if self.ledger.admit(peer.uid, bytes, limits, sys::map_exists).is_err() {
            // Cells of groups that are gone count for as long as they are there.
            self.slots.clear(&self.programs);
            self.ledger.admit(peer.uid, bytes, limits, sys::map_exists)?;
        }
        let hook = self.attach(&interface)?;
        let membership = spec.multicast_address().and_then(|all| {
            let joined = Membership::new(all, address);
            joined
                .inspect_err(|error| log::info!("no multicast on {}: {error}", interface.name))
                .ok()
        });
        let (slot, cells, descriptor) = self
            .place(&spec, peer.uid, membership.as_ref())
            .inspect_err(|_| self.release(interface.index, self.options.linger))?;
        let map = cells.id;
        self.ledger.add(peer.uid, map, bytes, Kind::Cells);
        let reply = GroupReply {
            slot,
            hook,
            interface: interface.name.clone(),
            port: self.options.port,
            cell_bytes: self.programs.cell_bytes(),
            fold: self.programs.fold(),
        };
        log::debug!("group {slot} for user {} (process {})", peer.uid, peer.pid);
        let record = GroupRecord {
            connection,
            peer,
            job: job.map(str::to_owned),
            spec,
            interface: interface.index,
            interface_name: interface.name,
            hook,
            map,
            cells: self.options.tells_work.then_some(cells),
            table: None,
            since: Instant::now(),
            _membership: membership,
        };
        self.groups.insert(slot, record);
        self.to_tend = Some(Instant::now() + REST);
        Ok((reply, descriptor))
    }

    /// Puts a group into a slot. Returns that, its cells and a descriptor of them.
    fn place(
        &mut self,
        spec: &GroupSpec,
        uid: u32,
        membership: Option<&Membership>,
    ) -> Result<(u32, CellMap, OwnedFd)> {
        let taken = self.slots.take(spec.window, &self.programs)?;
        let (slot, cells) =
            taken.ok_or_else(|| Error::new(ErrorKind::Kernel, "no slot is left for a group"))?;
        let group = kernel_group(spec, slot, uid, membership);
        let added = cells.descriptor().and_then(|descriptor| {
            self.programs.add_group(spec.token, &Seal::new(spec.secret), &group, &cells)?;
            Ok(descriptor)
        });
        let added = added.map(|descriptor| (slot, cells, descriptor));
        added.inspect_err(|_| self.slots.give_back(slot, &self.programs))
    }

    /// Makes the table of a group of a connection; the descriptor is the table's.
    pub(crate) fn create_table(&mut self, connection: ConnectionId, slot: u32) -> Result<OwnedFd> {
        let group = self.groups.get_mut(&slot).filter(|group| group.connection == connection);
        let group = group.ok_or_else(|| no_group(slot))?;
        if group.table.is_some() {
            return Err(Error::new(ErrorKind::Invalid, format!("group {slot} has a table")));
        }
        let (uid, bytes) = (group.peer.uid, TABLE_BYTES as u64);
        self.ledger.admit_bytes(uid, bytes, &self.options.limits, sys::map_exists)?;
        let table = self.programs.create_table(group.spec.token)?;
        let descriptor = table.descriptor()?;
        self.programs.put_table(slot, &table)?;
        self.ledger.add(uid, table.id, bytes, Kind::Table);
        group.table = Some(table.id);
        Ok(descriptor)
    }

    /// Destroys a group of a connection.
    pub(crate) fn destroy_group(&mut self, connection: ConnectionId, slot: u32) -> Result<()> {
        match self.groups.get(&slot) {
            Some(group) if group.connection == connection => {
                self.remove(slot);
                Ok(())
            }
            _ => Err(no_group(slot)),
        }
    }

    /// Destroys all groups of a connection that ended. Returns the account of all that it had, if any.
    pub(crate) fn disconnected(&mut self, connection: ConnectionId) -> Option<Account> {
        let mine = |group: &GroupRecord| group.connection == connection;
        let slots: Vec<u32> =
            self.groups.iter().filter(|(_, group)| mine(group)).map(|(slot, _)| *slot).collect();
        for slot in slots {
            self.remove(slot);
        }
        self.accounts.left(&connection)
    }

    /// When to [tend](Self::tend) next, if at all.
    pub(crate) fn due(&self) -> Option<Instant> {
        let ends = self.attachments.values().filter_map(|attached| attached.until);
        ends.chain(self.to_tend).chain(self.answers.due(Instant::now())).min()
    }

    /// Does what is due and takes the kernel long, while nobody waits for the agent.
    pub(crate) fn tend(&mut self, now: Instant) {
        self.answers.tend(now);
        self.attachments.retain(|_, Attached { attachment, until }| {
            let is_over = until.is_some_and(|until| until <= now);
            if is_over {
                log::info!("detaching from {}", attachment.interface);
            }
            !is_over
        });
        if self.attachments.is_empty() {
            self.slots.clear_all(&self.programs);
            self.to_tend = None;
        } else if self.to_tend.is_some_and(|at| at <= now) {
            self.slots.tend(&self.programs);
            self.to_tend = None;
        }
    }

    /// Counters of a group that a user may see. Others' groups do not exist for him.
    pub(crate) fn counters(&self, uid: u32, slot: u32) -> Result<fb_counters> {
        match self.groups.get(&slot) {
            Some(group) if sees(uid, group) => self.programs.counters(slot),
            _ => Err(no_group(slot)),
        }
    }

    /// Loads the other set of programs, if that is what the links call for by now and no group is there.
    fn renew_programs(&mut self) -> Result<()> {
        if !self.groups.is_empty() {
            return Ok(());
        }
        let chunks = interface::chunks()?;
        if chunks != self.programs.chunks() {
            self.attachments.clear();
            (self.programs, self.slots) = load(&self.options, chunks)?;
            log::info!("links have changed: programs for chunks of {} bytes", chunks.most_bytes());
        }
        Ok(())
    }

    /// The chunks that an address's interface can carry, for a group to be made. All that takes long is done now, since
    /// the rank need not wait for this answer.
    pub(crate) fn interface(&mut self, address: Ipv4Addr, window: u32) -> Result<InterfaceReply> {
        self.check_not_ending()?;
        check_window(window)?;
        self.renew_programs()?;
        let interface = interface::with_address(address)?;
        self.attach(&interface)?;
        self.release(interface.index, self.options.linger.max(PREPARED));
        let Interface { name, mtu, .. } = interface;
        let max_chunk_bytes = self.programs.chunks().most_bytes_at(mtu);
        self.slots.prepare(window_for(window, max_chunk_bytes), &self.programs)?;
        Ok(InterfaceReply { name, mtu, max_chunk_bytes })
    }

    pub(crate) fn status(&self) -> Result<Status> {
        let users = |index: u32| self.groups.values().filter(|g| g.interface == index).count();
        let interfaces =
            self.attachments.iter().map(|(index, Attached { attachment, .. })| InterfaceStatus {
                name: attachment.interface.clone(),
                index: *index,
                hook: attachment.hook,
                tc: attachment.tc,
                groups: users(*index),
            });
        let mut all = self.accounts.all;
        for slot in self.groups.keys() {
            all.add(&self.programs.counters(*slot)?);
        }
        Ok(Status {
            interfaces: interfaces.collect(),
            fold: self.programs.fold(),
            programs: self.programs.runs()?,
            groups: self.groups.len(),
            groups_made: all.groups,
            age_seconds: self.began.elapsed().as_secs(),
            counters: all.counters,
            host_counters: self.programs.host_counters()?,
        })
    }

    /// A page of the groups that a user may see.
    pub(crate) fn list(&self, uid: u32, from: u32) -> Result<GroupsReply> {
        let mut visible = self.groups.range(from..).filter(|(_, group)| sees(uid, group));
        let mut groups = Vec::new();
        for (slot, group) in visible.by_ref().take(GROUPS_PER_PAGE) {
            groups.push(GroupStatus {
                slot: *slot,
                uid: group.peer.uid,
                pid: group.peer.pid,
                job: group.job.clone(),
                age_seconds: group.since.elapsed().as_secs(),
                interface: group.interface_name.clone(),
                hook: group.hook,
                self_index: group.spec.self_index,
                members: group.spec.members.clone(),
                window: group.spec.window,
                chunk_bytes: group.spec.chunk_bytes,
                work: group.cells.as_ref().and_then(CellMap::work),
                counters: self.programs.counters(*slot)?,
            });
        }
        Ok(GroupsReply { groups, next: visible.next().map(|(slot, _)| *slot) })
    }

    /// A page of what groups have counted, of the users whom a user may see.
    pub(crate) fn users(&self, uid: u32, from: u32) -> Result<UsersReply> {
        let sees = |other: u32| other >= from && (uid == 0 || uid == other);
        let ended = self.accounts.users.iter().filter(|(uid, _)| sees(**uid));
        let mut users: BTreeMap<u32, (usize, Account)> =
            ended.map(|(uid, account)| (*uid, (0, *account))).collect();
        for (slot, group) in self.groups.iter().filter(|(_, group)| sees(group.peer.uid)) {
            let (groups, account) = users.entry(group.peer.uid).or_default();
            *groups += 1;
            account.add(&self.programs.counters(*slot)?);
        }
        let mut users = users.into_iter().map(|(uid, (groups, account))| UserStatus {
            uid,
            groups,
            groups_made: account.groups,
            counters: account.counters,
        });
        let page = users.by_ref().take(USERS_PER_PAGE).collect();
        Ok(UsersReply { users: page, next: users.next().map(|user| user.uid) })
    }

    fn remove(&mut self, slot: u32) {
        let Some(group) = self.groups.remove(&slot) else { return };
        self.programs.remove_group(group.spec.token, slot);
        match self.programs.counters(slot) {
            Ok(counters) => self.accounts.ended(group.connection, group.peer.uid, &counters),
            Err(error) => log::warn!("the counts of group {slot} are lost: {error}"),
        }
        if let Some(table) = group.table {
            self.programs.remove_table(slot);
            self.ledger.retire(table, sys::map_exists);
        }
        self.slots.give_back(slot, &self.programs);
        drop(group.cells);
        self.ledger.retire(group.map, sys::map_exists);
        self.release(group.interface, self.options.linger);
        log::debug!("group {slot} of user {} is gone", group.peer.uid);
    }

    fn attach(&mut self, interface: &Interface) -> Result<Hook> {
        if let Some(Attached { attachment, until }) = self.attachments.get_mut(&interface.index) {
            let is_whole = attachment.is_whole();
            if !is_whole {
                log::info!(
                    "somebody has detached programs from {}: attaching anew",
                    interface.name
                );
            }
            if attachment.has_tc() {
                if !is_whole {
                    attachment.renew_xdp(interface, &self.options, &mut self.programs)?;
                }
                *until = None;
                return Ok(attachment.hook);
            }
            // The rest of it goes first.
            self.attachments.remove(&interface.index);
        }
        let now = interface::by_index(interface.index)?;
        let attachment = attach(&now, &self.options, &self.owner, &mut self.programs)?;
        let hook = attachment.hook;
        self.attachments.insert(interface.index, Attached { attachment, until: None });
        Ok(hook)
    }

    /// A group has ended, or is not made yet. If its interface has no other, the programs stay there for so long.
    fn release(&mut self, interface: u32, linger: Duration) {
        let now = Instant::now();
        let is_used = self.groups.values().any(|group| group.interface == interface);
        if let Some(attached) = self.attachments.get_mut(&interface).filter(|_| !is_used) {
            attached.until = Some(now + linger);
        }
        self.to_tend = Some(now + REST);
    }
}

fn load(options: &Options, chunks: Chunks) -> Result<(Programs, Slots)> {
    let programs = Programs::load(Constants::of(options), chunks)?;
    let slots = Slots::new(options.limits.groups.min(FB_MAX_GROUPS), &programs)?;
    Ok((programs, slots))
}

fn sees(uid: u32, group: &GroupRecord) -> bool {
    uid == 0 || uid == group.peer.uid
}

fn no_group(slot: u32) -> Error {
    Error::new(ErrorKind::NotFound, format!("you have no group {slot}"))
}

fn kernel_group(
    spec: &GroupSpec,
    slot: u32,
    uid: u32,
    membership: Option<&Membership>,
) -> fb_group {
    let mut group = fb_group {
        slot,
        uid,
        window: spec.window,
        chunk_bytes: spec.chunk_bytes,
        members: spec.members.len() as u8,
        self_: spec.self_index,
        ..Default::default()
    };
    for (member, address) in group.member.iter_mut().zip(&spec.members) {
        *member = fb_member { address: u32::from_ne_bytes(address.octets()), ..Default::default() };
    }
    if let Some(membership) = membership {
        group.member[FB_EVERYONE as usize] = membership.member();
    }
    group
}
