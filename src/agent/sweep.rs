//! Removes what a killed agent left behind: TC filters whose owner is dead, and the qdisc under
//! them if that owner made it and nobody else uses it. Links, maps and programs go with the process
//! that held them.

use std::collections::BTreeSet;

use nix::errno::Errno;

use crate::agent::clsact::{filters, qdiscs, remove_empty_qdisc, remove_filter};
use crate::agent::owner::Mark;

/// Sweeps all interfaces of this network namespace. Returns the number of removed filters.
pub(crate) fn sweep() -> usize {
    let interfaces: BTreeSet<u32> = match qdiscs() {
        Ok(qdiscs) => qdiscs.iter().map(|qdisc| qdisc.interface).collect(),
        Err(error) => {
            log::warn!("not looking for leftovers: {}", error.desc());
            return 0;
        }
    };
    let mut removed = 0;
    for interface in interfaces {
        match sweep_interface(interface) {
            Ok(count) => removed += count,
            Err(Errno::ENODEV) => {}
            Err(error) => log::warn!("leftovers of interface {interface}: {}", error.desc()),
        }
    }
    if removed > 0 {
        log::info!("removed {removed} TC filters of an agent that is gone");
    }
    removed
}

fn sweep_interface(interface: u32) -> nix::Result<usize> {
    let mut removed = 0;
    let mut made_qdisc = false;
    for filter in filters(interface)? {
        let Some(mark) = filter.name.as_deref().and_then(Mark::parse) else { continue };
        if mark.owner_lives() {
            continue;
        }
        match remove_filter(&filter) {
            Ok(()) => removed += 1,
            Err(Errno::ENOENT) => {} // another agent that starts was faster
            Err(error) => return Err(error),
        }
        made_qdisc |= mark.made_qdisc;
    }
    if made_qdisc {
        match remove_empty_qdisc(interface) {
            Ok(_) | Err(Errno::ENOENT | Errno::EINVAL) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(removed)
}
