//! The work of a host's kernel for its groups.

use serde::{Deserialize, Serialize};

use crate::bindings::fb_counters;

/// The counts of one host's programs for this job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostLine {
    /// The host's name.
    pub host: String,
    /// Interface and hook of its first group.
    pub interface: String,
    /// The hook that takes frames in there.
    pub hook: String,
    /// The instructions by which it folds long chunks there.
    #[serde(default)]
    pub fold: String,
    /// Groups that this host was in.
    pub groups: u64,
    /// Times that a leader of this host asked for something again.
    pub asked_again: u64,
    /// Chunks that came to their end on this host by ordinary sockets, since the programs did not bring them.
    #[serde(default)]
    pub rescued: u64,
    /// Counters of the programs: names as in `bpf/intf.h`.
    pub kernel: serde_json::Map<String, serde_json::Value>,
}

impl HostLine {
    /// Adds what another leader of the same host, or another group, counted.
    pub fn add(&mut self, other: &Self) {
        self.groups += other.groups;
        self.asked_again += other.asked_again;
        self.rescued += other.rescued;
        for (name, value) in &other.kernel {
            let sum = value.as_u64().unwrap_or(0)
                + self.kernel.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
            self.kernel.insert(name.clone(), sum.into());
        }
    }
}

/// The kernel's counters, by their names in `bpf/intf.h`.
pub fn named(counters: &fb_counters) -> serde_json::Map<String, serde_json::Value> {
    match serde_json::to_value(counters) {
        Ok(serde_json::Value::Object(map)) => map,
        _ => serde_json::Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_host_add_up() {
        let line = |groups, frames_out| HostLine {
            host: "one".into(),
            interface: "eth0".into(),
            hook: "tc-ingress".into(),
            fold: "SWAR in BPF".into(),
            groups,
            asked_again: 1,
            rescued: 2,
            kernel: named(&fb_counters { frames_out, ..fb_counters::default() }),
        };
        let mut sum = line(1, 5);
        sum.add(&line(2, 7));
        assert_eq!((sum.groups, sum.asked_again, sum.rescued), (3, 2, 4));
        assert_eq!(sum.kernel["frames_out"], 12);
        // Without an answer of the agent there are no counters.
        sum.add(&HostLine { kernel: serde_json::Map::new(), ..line(1, 0) });
        assert_eq!((sum.groups, &sum.kernel["frames_out"]), (4, &12.into()));
    }
}
