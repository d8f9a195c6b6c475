//! Which hook of an interface takes frames in. Facts in, decision out: nothing here touches the
//! kernel.
//!
//! The TC programs are always attached: egress is where a member's own frames enter. XDP is put in
//! front of TC ingress where it is faster: on a physical NIC, whose driver then need not build a
//! socket buffer for a frame that is folded. On a veth it is slower than TC ingress, since it
//! copies every buffer into a page (2.6 against 2.1 us for a 4-byte all-reduce of two hosts).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::agent::error::{Error, ErrorKind, Result};

/// What the user asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookChoice {
    /// The fastest that works.
    Auto,
    /// TC on both ways.
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

/// What was found out about the kernel and one interface.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Name of the interface, for messages.
    pub interface: String,
    /// Frames begin with an Ethernet header.
    pub ethernet: bool,
    /// There is hardware behind the interface.
    pub physical: bool,
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
pub struct Plan {
    /// How TC programs are attached.
    pub tc: Tc,
    /// XDP hooks to try in this order; empty: none.
    pub xdp: Vec<Hook>,
    /// Without XDP, fail.
    pub xdp_required: bool,
}

/// Decides what to attach to an interface.
pub fn decide(choice: HookChoice, force_clsact: bool, facts: &Facts) -> Result<Plan> {
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
        HookChoice::Tc => Ok(Plan { tc, xdp: Vec::new(), xdp_required: false }),
        HookChoice::Auto => {
            let native = facts.physical && facts.xdp_load_bytes && !facts.foreign_xdp;
            let xdp = if native { vec![Hook::XdpNative] } else { Vec::new() };
            Ok(Plan { tc, xdp, xdp_required: false })
        }
        HookChoice::Xdp if !facts.xdp_load_bytes => {
            refuse("XDP needs Linux 5.18 (bpf_xdp_load_bytes); use FOLDBACK_HOOK=tc")
        }
        HookChoice::Xdp if facts.foreign_xdp => {
            refuse("another XDP program is attached and is left alone; use FOLDBACK_HOOK=tc")
        }
        HookChoice::Xdp => {
            Ok(Plan { tc, xdp: vec![Hook::XdpNative, Hook::XdpGeneric], xdp_required: true })
        }
    }
}

impl FromStr for HookChoice {
    type Err = &'static str;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "tc" => Ok(Self::Tc),
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
            physical: true,
            foreign_xdp: false,
            ingress_qdisc: false,
            tcx: true,
            xdp_load_bytes: true,
        }
    }

    fn hooks(choice: HookChoice, facts: &Facts) -> Option<(Tc, Vec<Hook>)> {
        decide(choice, false, facts).ok().map(|plan| (plan.tc, plan.xdp))
    }

    const NATIVE: &[Hook] = &[Hook::XdpNative];
    const ANY_XDP: &[Hook] = &[Hook::XdpNative, Hook::XdpGeneric];

    fn expect(
        facts: &Facts,
        auto: Option<(Tc, &[Hook])>,
        tc: Option<Tc>,
        xdp: Option<(Tc, &[Hook])>,
    ) {
        let owned = |want: Option<(Tc, &[Hook])>| want.map(|(tc, xdp)| (tc, xdp.to_vec()));
        assert_eq!(hooks(HookChoice::Auto, facts), owned(auto), "auto {facts:?}");
        assert_eq!(hooks(HookChoice::Tc, facts), tc.map(|tc| (tc, Vec::new())), "tc {facts:?}");
        assert_eq!(hooks(HookChoice::Xdp, facts), owned(xdp), "xdp {facts:?}");
    }

    #[test]
    fn a_nic_of_a_new_kernel_gets_everything() {
        let all = Some((Tc::Tcx, NATIVE));
        expect(&best(), all, Some(Tc::Tcx), Some((Tc::Tcx, ANY_XDP)));
    }

    #[test]
    fn each_capability_removed_costs_what_depends_on_it_alone() {
        let none: &[Hook] = &[];
        let virtual_ = Facts { physical: false, ..best() };
        expect(&virtual_, Some((Tc::Tcx, none)), Some(Tc::Tcx), Some((Tc::Tcx, ANY_XDP)));
        let foreign = Facts { foreign_xdp: true, ..best() };
        expect(&foreign, Some((Tc::Tcx, none)), Some(Tc::Tcx), None);
        let old_xdp = Facts { xdp_load_bytes: false, ..best() };
        expect(&old_xdp, Some((Tc::Tcx, none)), Some(Tc::Tcx), None);
        let no_tcx = Facts { tcx: false, ..best() };
        expect(&no_tcx, Some((Tc::Clsact, NATIVE)), Some(Tc::Clsact), Some((Tc::Clsact, ANY_XDP)));
        let ingress = Facts { ingress_qdisc: true, ..best() };
        expect(&ingress, Some((Tc::Tcx, NATIVE)), Some(Tc::Tcx), Some((Tc::Tcx, ANY_XDP)));
        expect(&Facts { tcx: false, ..ingress }, None, None, None);
        expect(&Facts { ethernet: false, ..best() }, None, None, None);
    }

    #[test]
    fn only_an_explicit_xdp_is_required() {
        for (choice, required) in
            [(HookChoice::Auto, false), (HookChoice::Tc, false), (HookChoice::Xdp, true)]
        {
            assert_eq!(decide(choice, false, &best()).unwrap().xdp_required, required);
        }
    }

    #[test]
    fn clsact_can_be_forced() {
        assert_eq!(decide(HookChoice::Auto, true, &best()).unwrap().tc, Tc::Clsact);
    }
}
