//! Whether this thread may load BPF programs and attach them.

use std::fs;

use crate::agent::trust::in_user_namespace;

const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_BPF: u32 = 39;

/// Whether an embedded agent has a chance: CAP_NET_ADMIN and CAP_BPF are effective. In a user namespace
/// they are not the host's.
pub fn capable() -> bool {
    !in_user_namespace()
        && fs::read_to_string("/proc/thread-self/status").is_ok_and(|status| suffices(&status))
}

fn suffices(status: &str) -> bool {
    let Some(effective) = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
    else {
        return false;
    };
    let has = |capability: u32| effective & (1 << capability) != 0;
    has(CAP_NET_ADMIN) && (has(CAP_BPF) || has(CAP_SYS_ADMIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_capabilities_are_needed() {
        let status =
            |bits: u64| format!("Name:\tx\nCapEff:\t{bits:016x}\nCapBnd:\tffffffffffffffff\n");
        let (net, sys, bpf) = (1 << CAP_NET_ADMIN, 1 << CAP_SYS_ADMIN, 1 << CAP_BPF);
        assert!(suffices(&status(net | bpf)) && suffices(&status(net | sys)));
        assert!(!suffices(&status(net)) && !suffices(&status(bpf | sys)) && !suffices(""));
    }
}
