//! Puts the programs onto an interface and takes them off again.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;

use crate::agent::clsact;
use crate::agent::error::{Context, Error, ErrorKind, Result};
use crate::agent::hook::{AttachPlan, Facts, Hook, Tc, decide};
use crate::agent::interface::Interface;
use crate::agent::options::Options;
use crate::agent::owner::Owner;
use crate::agent::programs::{Programs, has_xdp_load_bytes};
use crate::agent::sys::{self, LinkPoint};

/// Programs on an interface; detached when dropped.
pub(crate) struct Attachment {
    pub(crate) interface: String,
    pub(crate) hook: Hook,
    pub(crate) tc: Tc,
    /// In the order of detaching: frames stop coming in before they stop going out.
    xdp: Option<Link>,
    tcx: Option<(Link, Link)>,
    clsact: Option<clsact::Attached>,
}

impl Attachment {
    /// Whether all programs are still in their place: any process that may attach may detach, too.
    pub(crate) fn is_whole(&self) -> bool {
        self.has_tc() && self.xdp.iter().all(Link::is_on_interface)
    }

    /// Whether the TC programs are in their place.
    pub(crate) fn has_tc(&self) -> bool {
        let links = self.tcx.iter().flat_map(|(ingress, egress)| [ingress, egress]);
        links.into_iter().all(Link::is_on_interface)
            && self.clsact.as_ref().is_none_or(clsact::Attached::is_whole)
    }

    /// Puts the XDP program back onto its interface, if it can be. The TC programs stay in any case: they serve the
    /// groups that there are.
    pub(crate) fn renew_xdp(
        &mut self,
        interface: &Interface,
        options: &Options,
        programs: &mut Programs,
    ) -> Result<()> {
        (self.hook, self.xdp) = attach_xdp(interface, &plan(interface, options)?, programs)?;
        Ok(())
    }
}

/// A BPF link. The kernel detaches it with its last descriptor, so a killed agent leaves none.
struct Link(OwnedFd);

impl Link {
    fn new(program: std::os::fd::BorrowedFd<'_>, on: u32, point: LinkPoint) -> nix::Result<Self> {
        sys::create_link(program, on, point).map(Self)
    }

    fn is_on_interface(&self) -> bool {
        sys::is_on_interface(self.0.as_fd())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Not left to closing: a child that the MPI program forked has the descriptor too.
        match sys::detach_link(self.0.as_fd()) {
            Ok(()) | Err(Errno::ENOLINK) => {}
            Err(error) => log::debug!("a link was not detached: {}", error.desc()),
        }
    }
}

/// Attaches to an interface.
pub(crate) fn attach(
    interface: &Interface,
    options: &Options,
    owner: &Owner,
    programs: &mut Programs,
) -> Result<Attachment> {
    let plan = plan(interface, options)?;
    let on = interface.index;
    let tcx = match plan.tc {
        Tc::Tcx => Some(attach_tcx(interface, programs)?),
        Tc::Clsact => None,
    };
    let clsact = match plan.tc {
        Tc::Tcx => None,
        Tc::Clsact => Some(
            clsact::Attached::new(on, owner, programs.tc_ingress(), programs.tc_egress()).map_err(
                |error| Error::new(error.kind(), format!("{}: {error}", interface.name)),
            )?,
        ),
    };
    let (hook, xdp) = attach_xdp(interface, &plan, programs)?;
    log::info!("attached to {} ({hook}, {})", interface.name, plan.tc);
    Ok(Attachment { interface: interface.name.clone(), hook, tc: plan.tc, xdp, tcx, clsact })
}

fn plan(interface: &Interface, options: &Options) -> Result<AttachPlan> {
    let facts = probe(interface)?;
    let plan = decide(options.hook, options.force_clsact, &facts)?;
    log::debug!("{facts:?}: {plan:?}");
    Ok(plan)
}

fn probe(interface: &Interface) -> Result<Facts> {
    let qdiscs = clsact::qdiscs().context(ErrorKind::Hook, || "listing qdiscs".into())?;
    Ok(Facts {
        interface: interface.name.clone(),
        ethernet: interface.ethernet,
        foreign_xdp: interface.xdp,
        ingress_qdisc: qdiscs
            .iter()
            .any(|qdisc| qdisc.interface == interface.index && qdisc.kind == "ingress"),
        tcx: sys::has_tcx(interface.index),
        xdp_load_bytes: has_xdp_load_bytes(),
    })
}

fn attach_tcx(interface: &Interface, programs: &Programs) -> Result<(Link, Link)> {
    let on = interface.index;
    let doing = || format!("{}: attaching to tcx", interface.name);
    let ingress = Link::new(programs.tc_ingress(), on, LinkPoint::TcxIngress)
        .context(ErrorKind::Hook, doing)?;
    let egress = Link::new(programs.tc_egress(), on, LinkPoint::TcxEgress)
        .context(ErrorKind::Hook, doing)?;
    Ok((ingress, egress))
}

/// Tries the XDP hooks of the plan in turn; without any, TC ingress alone remains.
fn attach_xdp(
    interface: &Interface,
    plan: &AttachPlan,
    programs: &mut Programs,
) -> Result<(Hook, Option<Link>)> {
    let mut failure = None;
    for hook in &plan.xdp {
        let point = match hook {
            Hook::XdpNative => LinkPoint::XdpNative,
            Hook::XdpGeneric => LinkPoint::XdpGeneric,
            Hook::TcIngress => continue,
        };
        let attached = programs.xdp_ingress().and_then(|program| {
            Link::new(program, interface.index, point).map_err(|error| xdp_error(interface, error))
        });
        match attached {
            Ok(link) => return Ok((*hook, Some(link))),
            Err(error) => {
                log::info!("{hook} does not work: {error}");
                failure.get_or_insert(error);
            }
        }
    }
    match failure {
        Some(error) => Err(error),
        None => Ok((Hook::TcIngress, None)),
    }
}

fn xdp_error(interface: &Interface, error: Errno) -> Error {
    let why = match error {
        Errno::EBUSY | Errno::EEXIST => "another XDP program is attached and is left alone",
        Errno::ERANGE | Errno::EINVAL if interface.mtu > 3000 => {
            "the driver takes no XDP program at this MTU; lower it, or use FOLDBACK_HOOK=tc"
        }
        Errno::EOPNOTSUPP => "the driver has no XDP",
        other => other.desc(),
    };
    Error::new(ErrorKind::Hook, format!("{}: attaching XDP: {why}", interface.name))
}
