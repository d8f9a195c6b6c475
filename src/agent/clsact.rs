//! Filters on a clsact qdisc: how programs get onto TC before Linux 6.6.
//!
//! Uses netlink directly, not libbpf. The filter's name carries the owner's mark, and other
//! people's qdiscs and filters have to be seen to be left alone.

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

use crate::agent::error::{Context, Error, ErrorKind, Result};
use crate::agent::netlink::{Netlink, attribute, push_attribute, read_u32, text};
use crate::agent::owner::{Mark, Owner};

const HANDLE: u32 = 0xffff_0000;
const PARENT_QDISC: u32 = 0xffff_fff1;
const ETH_P_ALL: u16 = 3;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
const TCA_BPF_DIRECT_ACTION: u32 = 1;
const ATTACH_TRIES: u32 = 16;
/// Priority of our filters, if no other filter has a lower one. Tools have fixed priorities, most of them 1, and a
/// priority takes filters of one kind and one protocol alone.
const PRIORITY: u16 = 7;
/// Handle of our filters. A tool that replaces the filter of handle 1 at its priority leaves ours alone.
const OUR_HANDLE: u32 = 0xfb;

/// The two sides of a clsact qdisc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Ingress,
    Egress,
}

/// A clsact or ingress qdisc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Qdisc {
    pub(crate) interface: u32,
    pub(crate) kind: String,
}

/// A filter on a qdisc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) interface: u32,
    pub(crate) side: Side,
    pub(crate) handle: u32,
    /// Priority and, below it, protocol.
    info: u32,
    /// Of a BPF filter.
    pub(crate) name: Option<String>,
}

impl Side {
    const BOTH: [Self; 2] = [Self::Ingress, Self::Egress];

    fn parent(self) -> u32 {
        match self {
            Self::Ingress => HANDLE | 0xfff2,
            Self::Egress => HANDLE | 0xfff3,
        }
    }
}

impl Filter {
    fn priority(&self) -> u16 {
        (self.info >> 16) as u16
    }

    /// Whether it may keep frames from a filter of ours at that priority: another agent's does not.
    fn may_keep_from(&self, priority: u16) -> bool {
        let is_ours = self.name.as_deref().and_then(Mark::parse).is_some();
        // A chain of filters is listed, too, and says nothing of its members.
        self.handle != 0 && self.priority() < priority && !is_ours
    }
}

/// The clsact and ingress qdiscs of all interfaces.
pub(crate) fn qdiscs() -> nix::Result<Vec<Qdisc>> {
    let messages = Netlink::open()?.dump(libc::RTM_GETQDISC, &tcmsg(0, 0, 0, 0))?;
    Ok(messages.iter().filter_map(|body| parse_qdisc(body)).collect())
}

/// The filters of an interface. A chain of filters is listed before its members, with handle 0.
pub(crate) fn filters(interface: u32) -> nix::Result<Vec<Filter>> {
    let mut netlink = Netlink::open()?;
    let mut filters = Vec::new();
    for side in Side::BOTH {
        let body = tcmsg(interface, 0, side.parent(), 0);
        let messages = netlink.dump(libc::RTM_GETTFILTER, &body)?;
        filters.extend(messages.iter().filter_map(|body| parse_filter(body, side)));
    }
    Ok(filters)
}

/// Makes a clsact qdisc; `false`: there is one.
pub(crate) fn create_qdisc(interface: u32) -> nix::Result<bool> {
    let mut body = tcmsg(interface, HANDLE, PARENT_QDISC, 0);
    push_attribute(&mut body, libc::TCA_KIND, b"clsact\0");
    let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    match Netlink::open()?.change(libc::RTM_NEWQDISC, flags, &body) {
        Ok(()) => Ok(true),
        Err(Errno::EEXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes a clsact qdisc if nobody has a filter on it; `false`: somebody has.
pub(crate) fn remove_empty_qdisc(interface: u32) -> nix::Result<bool> {
    if !filters(interface)?.is_empty() {
        return Ok(false);
    }
    let mut body = tcmsg(interface, HANDLE, PARENT_QDISC, 0);
    push_attribute(&mut body, libc::TCA_KIND, b"clsact\0");
    Netlink::open()?.change(libc::RTM_DELQDISC, 0, &body)?;
    Ok(true)
}

pub(crate) fn remove_filter(filter: &Filter) -> nix::Result<()> {
    let mut body = tcmsg(filter.interface, filter.handle, filter.side.parent(), filter.info);
    push_attribute(&mut body, libc::TCA_KIND, b"bpf\0");
    Netlink::open()?.change(libc::RTM_DELTFILTER, 0, &body)
}

/// Filters of this process on an interface; removed when dropped.
pub(crate) struct Attached {
    interface: u32,
    names: Vec<String>,
    made_qdisc: bool,
}

impl Attached {
    /// Puts both programs onto an interface, in front of other people's filters if a priority is
    /// free there.
    pub(crate) fn new(
        interface: u32,
        owner: &Owner,
        ingress: BorrowedFd<'_>,
        egress: BorrowedFd<'_>,
    ) -> Result<Self> {
        let doing = || "making a clsact qdisc".to_string();
        let made_qdisc = create_qdisc(interface).context(ErrorKind::Hook, doing)?
            || made_by_one_of_us(interface).context(ErrorKind::Hook, doing)?;
        let mut attached = Self { interface, names: Vec::new(), made_qdisc };
        for (side, name, program) in
            [(Side::Ingress, "fb_tc_ingress", ingress), (Side::Egress, "fb_tc_egress", egress)]
        {
            let name = owner.mark(made_qdisc).name(name);
            attached.names.push(name.clone());
            add_filter(interface, side, &name, program)?;
        }
        Ok(attached)
    }

    /// Whether all filters are there.
    pub(crate) fn is_whole(&self) -> bool {
        let there = filters(self.interface).unwrap_or_default();
        let is_there =
            |name: &String| there.iter().any(|filter| filter.name.as_ref() == Some(name));
        self.names.iter().all(is_there)
    }

    fn remove(&self) -> nix::Result<()> {
        for filter in filters(self.interface)? {
            if filter.name.as_ref().is_some_and(|name| self.names.contains(name)) {
                remove_filter(&filter)?;
            }
        }
        if self.made_qdisc && !remove_empty_qdisc(self.interface)? {
            log::info!("the clsact qdisc of interface {} stays: in use", self.interface);
        }
        Ok(())
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        match self.remove() {
            // The interface went first.
            Ok(()) | Err(Errno::ENODEV | Errno::EINVAL) => {}
            Err(error) => {
                log::warn!("filters of interface {} stay: {}", self.interface, error.desc());
            }
        }
    }
}

/// Whether another agent made the qdisc. Then each of us may be the last one on it.
fn made_by_one_of_us(interface: u32) -> nix::Result<bool> {
    let marks = filters(interface)?.into_iter().filter_map(|filter| filter.name);
    Ok(marks.filter_map(|name| Mark::parse(&name)).any(|mark| mark.made_qdisc))
}

fn add_filter(interface: u32, side: Side, name: &str, program: BorrowedFd<'_>) -> Result<()> {
    let doing = || format!("attaching {name}");
    for _ in 0..ATTACH_TRIES {
        let others = filters(interface).context(ErrorKind::Hook, doing)?;
        let priority = free_priority(&others, side).ok_or_else(|| {
            Error::new(ErrorKind::Hook, format!("{}: no priority is free", doing()))
        })?;
        if others.iter().any(|other| other.side == side && other.may_keep_from(priority)) {
            log::warn!("another TC filter comes before {name} and may keep frames from it");
        }
        let info = u32::from(priority) << 16 | u32::from(ETH_P_ALL.to_be());
        let mut options = Vec::new();
        push_attribute(&mut options, TCA_BPF_FD, &program.as_raw_fd().to_ne_bytes());
        push_attribute(&mut options, TCA_BPF_NAME, format!("{name}\0").as_bytes());
        push_attribute(&mut options, TCA_BPF_FLAGS, &TCA_BPF_DIRECT_ACTION.to_ne_bytes());
        let mut body = tcmsg(interface, OUR_HANDLE, side.parent(), info);
        push_attribute(&mut body, libc::TCA_KIND, b"bpf\0");
        push_attribute(&mut body, libc::TCA_OPTIONS, &options);
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let added = Netlink::open()
            .and_then(|mut netlink| netlink.change(libc::RTM_NEWTFILTER, flags, &body));
        match added {
            Err(Errno::EEXIST) => {} // somebody took the priority meanwhile
            other => return other.context(ErrorKind::Hook, doing),
        }
    }
    Err(Error::new(ErrorKind::Hook, format!("{}: other filters keep coming", doing())))
}

/// A priority that no filter of this side has: before all of them, if there is one, but no lower than need be. Lower
/// ones come first.
fn free_priority(filters: &[Filter], side: Side) -> Option<u16> {
    let taken: BTreeSet<u16> =
        filters.iter().filter(|filter| filter.side == side).map(Filter::priority).collect();
    match taken.first() {
        None => Some(PRIORITY),
        Some(1) => (2..=u16::MAX).find(|priority| !taken.contains(priority)),
        Some(first) => Some(PRIORITY.min(first - 1)),
    }
}

fn parse_qdisc(body: &[u8]) -> Option<Qdisc> {
    let (interface, _, _) = parse_tcmsg(body)?;
    let kind = text(attribute(body.get(20..)?, libc::TCA_KIND)?);
    ["clsact", "ingress"].contains(&kind.as_str()).then_some(Qdisc { interface, kind })
}

fn parse_filter(body: &[u8], side: Side) -> Option<Filter> {
    let (interface, handle, info) = parse_tcmsg(body)?;
    let rest = body.get(20..)?;
    let bpf = attribute(rest, libc::TCA_KIND).is_some_and(|kind| text(kind) == "bpf");
    let options = if bpf { attribute(rest, libc::TCA_OPTIONS) } else { None };
    let name = options.and_then(|options| attribute(options, TCA_BPF_NAME)).map(text);
    Some(Filter { interface, side, handle, info, name })
}

/// struct tcmsg: family, pad, interface, handle, parent, info.
fn tcmsg(interface: u32, handle: u32, parent: u32, info: u32) -> Vec<u8> {
    [0, interface, handle, parent, info].iter().flat_map(|word: &u32| word.to_ne_bytes()).collect()
}

fn parse_tcmsg(body: &[u8]) -> Option<(u32, u32, u32)> {
    Some((read_u32(body, 4)?, read_u32(body, 8)?, read_u32(body, 16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(side: Side, priority: u32) -> Filter {
        Filter { interface: 1, side, handle: 1, info: priority << 16, name: None }
    }

    #[test]
    fn ours_comes_first_and_leaves_priorities_free_before_it() {
        let free = |taken: &[u32]| {
            let mut filters: Vec<_> =
                taken.iter().map(|priority| filter(Side::Ingress, *priority)).collect();
            filters.push(filter(Side::Egress, 3));
            free_priority(&filters, Side::Ingress)
        };
        assert_eq!(free(&[]), Some(PRIORITY));
        assert_eq!(free(&[49152, 50]), Some(PRIORITY));
        assert_eq!(free(&[u32::from(PRIORITY)]), Some(PRIORITY - 1), "another agent is there");
        assert_eq!([free(&[5, 9]), free(&[2])], [Some(4), Some(1)]);
        assert_eq!(free(&[49152, 1, 2]), Some(3), "none is free before them");
        let all: Vec<u32> = (1..=u16::MAX.into()).collect();
        assert_eq!(free(&all), None);
    }

    #[test]
    fn filters_of_others_may_keep_frames_from_ours() {
        let other = filter(Side::Ingress, 1);
        assert!(other.may_keep_from(2) && !other.may_keep_from(1));
        let name = Some("fb_tc_ingress/0/0123456789abcdef".into());
        assert!(!Filter { name, ..other }.may_keep_from(2), "another agent's");
    }

    #[test]
    fn a_filter_is_read_with_its_name() {
        let mut body = tcmsg(7, 1, Side::Egress.parent(), 0x1_0300);
        let mut options = Vec::new();
        push_attribute(&mut options, TCA_BPF_NAME, b"fb_tc_egress/0/1\0");
        push_attribute(&mut body, libc::TCA_KIND, b"bpf\0");
        push_attribute(&mut body, libc::TCA_OPTIONS, &options);
        let parsed = parse_filter(&body, Side::Egress).unwrap();
        assert_eq!((parsed.interface, parsed.handle, parsed.priority()), (7, 1, 1));
        assert_eq!(parsed.name.as_deref(), Some("fb_tc_egress/0/1"));
    }
}
