//! The output of `lab status`.

use std::fmt::Write;
use std::os::unix::fs::MetadataExt;

use anyhow::Result;
use serde::Serialize;

use super::registry::Lab;
use super::{faults, processes};
use crate::bindings::lf_counters;

/// The present state of a lab.
#[derive(Serialize)]
pub struct Status {
    #[serde(flatten)]
    lab: Lab,
    host: Vec<Host>,
}

#[derive(Serialize)]
struct Host {
    name: String,
    address: String,
    processes: usize,
    /// The faults so far of the frames to this host. None: the lab injects no faults.
    faults: Option<lf_counters>,
}

/// Looks at a lab.
pub fn of(lab: Lab) -> Result<Status> {
    let mut counters = faults::counters(&lab)?.unwrap_or_default().into_iter();
    let host = (0..lab.hosts).map(|index| {
        let name = Lab::host(index);
        let processes = match std::fs::metadata(lab.host_pin(&name)) {
            Ok(data) => processes::in_namespaces(&[(data.dev(), data.ino())])?.len(),
            Err(_) => 0,
        };
        Ok(Host { name, address: Lab::address(0, index), processes, faults: counters.next() })
    });
    let host = host.collect::<Result<_>>()?;
    Ok(Status { lab, host })
}

impl Status {
    pub fn to_text(&self) -> String {
        let lab = &self.lab;
        let state = match (&lab.owner, lab.ready) {
            (Some(owner), _) if !owner.alive() => "left behind by a dead process".to_owned(),
            (_, false) => "being made".to_owned(),
            (Some(owner), true) => format!("of process {}", owner.pid),
            (None, true) => "up".to_owned(),
        };
        let mut text =
            format!("lab {}: {state}, {} hosts, {}\n", lab.name, lab.hosts, lab.settings);
        let _ = write!(text, "{:6}{:13}{:>5}", "host", "address", "procs");
        if lab.fault_maps.is_some() {
            let names = ["frames to", "lost", "duplicated", "reordered", "corrupted", "failed"];
            for name in names {
                let _ = write!(text, "{name:>12}");
            }
            text.push_str("  faults");
        }
        text.push('\n');
        for (host, faults) in self.host.iter().zip(&lab.faults) {
            let _ = write!(text, "{:6}{:13}{:>5}", host.name, host.address, host.processes);
            if let Some(c) = &host.faults {
                let values = [c.frames, c.lost, c.duplicated, c.reordered, c.corrupted, c.failed];
                for value in values {
                    let _ = write!(text, "{value:>12}");
                }
                let _ = write!(text, "  {faults}");
            }
            text.push('\n');
        }
        text
    }
}
