//! The choice of the hook that takes frames in. Facts in, decision out: nothing here touches the
//! kernel.
//!
//! The TC programs are always attached: egress is where a member's own frames enter. XDP is put in
//! front of TC ingress for users who ask, since it costs all other traffic of the interface: many drivers
//! turn offloads off for it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::agent::error::{Error, ErrorKind, Result};

/// The user's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookChoice {
    /// TC on both ways: the default.
    Tc,
    /// XDP in front, or an error.
    Xdp,
}

/// The hook that takes a group's frames in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hook {
    /// TC ingress alone.
    TcIngress,
    /// XDP in the driver.
    XdpNative,
    /// XDP on socket buffers, for drivers without it. Not faster than TC; for tests.
    XdpGeneric,
}

/// How programs get onto TC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tc {
    /// A BPF link at the head of the chain; gone when its owner is (Linux 6.6).
    Tcx,
    /// A filter on a clsact qdisc.
    Clsact,
}

/// Facts about the kernel and one interface.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Name of the interface, for messages.
    pub interface: String,
    /// Frames begin with an Ethernet header.
    pub ethernet: bool,
    /// Somebody's XDP program is there.
    pub foreign_xdp: bool,
    /// A qdisc of kind `ingress` sits where clsact would go.
    pub ingress_qdisc: bool,
    /// The kernel has tcx.
    pub tcx: bool,
    /// XDP programs may read a frame with `bpf_xdp_load_bytes` (Linux 5.18).
    pub xdp_load_bytes: bool,
}

/// The programs that an agent attaches to an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachPlan {
    /// How TC programs are attached.
    pub tc: Tc,
    /// XDP hooks to try in this order, one of which must work; empty: none.
    pub xdp: Vec<Hook>,
}

/// Decides what to attach to an interface.
pub fn decide(choice: HookChoice, force_clsact: bool, facts: &Facts) -> Result<AttachPlan> {
    let refuse =
        |why: &str| Err(Error::new(ErrorKind::Hook, format!("{}: {why}", facts.interface)));
    if !facts.ethernet {
        return refuse("not an Ethernet interface, which is all that foldback speaks");
    }
    let tc = if facts.tcx && !force_clsact { Tc::Tcx } else { Tc::Clsact };
    if tc == Tc::Clsact && facts.ingress_qdisc {
        return refuse(
            "a qdisc of kind \"ingress\" keeps programs off egress; replace it by clsact, which does the same and more",
        );
    }
    match choice {
        HookChoice::Tc => Ok(AttachPlan { tc, xdp: Vec::new() }),
        HookChoice::Xdp if !facts.xdp_load_bytes => {
            refuse("XDP needs Linux 5.18 (bpf_xdp_load_bytes); use FOLDBACK_HOOK=tc")
        }
        HookChoice::Xdp if facts.foreign_xdp => {
            refuse("another XDP program is attached and is left alone; use FOLDBACK_HOOK=tc")
        }
        HookChoice::Xdp => Ok(AttachPlan { tc, xdp: vec![Hook::XdpNative, Hook::XdpGeneric] }),
    }
}

impl FromStr for HookChoice {
    type Err = &'static str;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        match text {
            "auto" | "tc" => Ok(Self::Tc),
            "xdp" => Ok(Self::Xdp),
            _ => Err("say auto, tc or xdp"),
        }
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TcIngress => "tc-ingress",
            Self::XdpNative => "xdp-native",
            Self::XdpGeneric => "xdp-generic",
        })
    }
}

impl fmt::Display for Tc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best() -> Facts {
        Facts {
            interface: "nic".into(),
            ethernet: true,
            foreign_xdp: false,
            ingress_qdisc: false,
            tcx: true,
            xdp_load_bytes: true,
        }
    }

    fn hooks(choice: HookChoice, facts: &Facts) -> Option<(Tc, Vec<Hook>)> {
        decide(choice, false, facts).ok().map(|plan| (plan.tc, plan.xdp))
    }

    const ANY_XDP: &[Hook] = &[Hook::XdpNative, Hook::XdpGeneric];

    /// How each choice attaches to TC, if at all, and by which XDP hooks.
    fn expect(facts: &Facts, tc: Option<Tc>, xdp: Option<Tc>) {
        assert_eq!(hooks(HookChoice::Tc, facts), tc.map(|tc| (tc, Vec::new())), "tc {facts:?}");
        let xdp = xdp.map(|tc| (tc, ANY_XDP.to_vec()));
        assert_eq!(hooks(HookChoice::Xdp, facts), xdp, "xdp {facts:?}");
    }

    #[test]
    fn xdp_is_for_users_who_ask() {
        expect(&best(), Some(Tc::Tcx), Some(Tc::Tcx));
        assert_eq!(["auto", "tc"].map(str::parse), [Ok(HookChoice::Tc); 2]);
        assert_eq!("xdp".parse(), Ok(HookChoice::Xdp));
    }

    #[test]
    fn each_capability_removed_costs_what_depends_on_it_alone() {
        expect(&Facts { foreign_xdp: true, ..best() }, Some(Tc::Tcx), None);
        expect(&Facts { xdp_load_bytes: false, ..best() }, Some(Tc::Tcx), None);
        expect(&Facts { tcx: false, ..best() }, Some(Tc::Clsact), Some(Tc::Clsact));
        let ingress = Facts { ingress_qdisc: true, ..best() };
        expect(&ingress, Some(Tc::Tcx), Some(Tc::Tcx));
        expect(&Facts { tcx: false, ..ingress }, None, None);
        expect(&Facts { ethernet: false, ..best() }, None, None);
    }

    #[test]
    fn clsact_can_be_forced() {
        assert_eq!(decide(HookChoice::Tc, true, &best()).unwrap().tc, Tc::Clsact);
    }
}
