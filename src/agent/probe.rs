//! The abilities of this host, found out by trying. For `foldback doctor`.

use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use memmap2::MmapOptions;
use nix::sched::{CloneFlags, unshare};

use crate::agent::clsact;
use crate::agent::error::{Context, Error, ErrorKind, Result};
use crate::agent::interface;
use crate::agent::options::Options;
use crate::agent::programs::{self, Constants, Programs};
use crate::agent::simd::Fold;
use crate::agent::sys;

/// The oldest Linux that foldback is tested on: major and minor number.
pub const OLDEST_KERNEL: [u32; 2] = [6, 1];

/// The numbers of a release such as "6.1.0-49-amd64".
pub fn kernel_version(release: &str) -> Option<[u32; 2]> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some([numbers.next()?.ok()?, numbers.next()?.ok()?])
}

/// There in every network namespace.
const LOOPBACK: u32 = 1;

/// An address of this host that a group could use.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its IPv4 address.
    pub address: Ipv4Addr,
    /// Name of its interface.
    pub interface: String,
    /// The interface's MTU.
    pub mtu: u32,
    /// Most payload of a frame there.
    pub max_chunk_bytes: u16,
    /// Whether frames begin with an Ethernet header.
    pub ethernet: bool,
    /// Whether there is hardware behind it.
    pub physical: bool,
    /// Whether it is up and connected.
    pub running: bool,
    /// Whether an XDP program is there.
    pub xdp: bool,
}

/// The programs that an agent on this host would load.
fn load(options: &Options) -> Result<Programs> {
    Programs::load(Constants::of(options), interface::chunks()?)
}

/// Loads the TC programs and lets them go again; how long that took, and by what they would have folded.
pub fn load_tc(options: &Options) -> Result<(Duration, Fold)> {
    let start = Instant::now();
    load(options).map(|programs| (start.elapsed(), programs.fold()))
}

/// Loads the XDP program too.
pub fn load_xdp(options: &Options) -> Result<()> {
    load(options)?.xdp_ingress().map(drop)
}

/// Makes a map of cells and maps it into memory, as a rank does.
pub fn map_cells(options: &Options) -> Result<()> {
    let programs = load(options)?;
    let cells = programs.create_cells(1)?;
    let length = programs.window_bytes(1) as usize;
    MmapOptions::new()
        .len(length)
        .map_raw(&cells.descriptor()?)
        .map(drop)
        .context(ErrorKind::Kernel, || "mapping cells into memory".into())
}

/// Whether programs can be attached to TC as links.
pub fn has_tcx() -> bool {
    sys::has_tcx(LOOPBACK)
}

/// Whether a clsact qdisc can be made: tried in a network namespace of its own.
pub fn has_clsact() -> Result<bool> {
    let doing = || "making a network namespace to try clsact in".to_string();
    let tried = thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).context(ErrorKind::Denied, doing)?;
        Ok(clsact::create_qdisc(LOOPBACK).is_ok())
    });
    tried.join().unwrap_or_else(|_| Err(Error::new(ErrorKind::Kernel, doing())))
}

/// Whether XDP programs have the helper that ours needs.
pub fn has_xdp_load_bytes() -> bool {
    programs::has_xdp_load_bytes()
}

/// Addresses that other hosts could reach.
pub fn candidates() -> Result<Vec<Candidate>> {
    let mut candidates = Vec::new();
    let chunks = interface::chunks()?;
    for (index, address) in interface::addresses()? {
        if address.is_loopback() {
            continue;
        }
        let interface = interface::by_index(index)?;
        candidates.push(Candidate {
            address,
            max_chunk_bytes: chunks.most_bytes_at(interface.mtu),
            interface: interface.name,
            mtu: interface.mtu,
            ethernet: interface.ethernet,
            physical: interface.physical,
            running: interface.running,
            xdp: interface.xdp,
        });
    }
    Ok(candidates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_their_numbers() {
        assert_eq!(kernel_version("6.1.0-49-amd64"), Some([6, 1]));
        assert!(kernel_version("5.15.0-91-generic") < Some(OLDEST_KERNEL));
        assert!(kernel_version("6.18.0") > Some(OLDEST_KERNEL));
        assert_eq!(kernel_version("unknown"), None);
    }
}
