//! `mpiexec.hydra`, of MPICH and of Intel MPI.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::launcher::Launcher;
use super::{Launch, Mpi, MpiJob, wrapper};
use crate::lab::registry::Lab;

/// MPICH before 4.2 hangs in `MPI_Finalize` on UCX over TCP, in one of four short jobs, depending on
/// who comes first. Each rank there closes its endpoints, which flushes them, and then enters PMI's
/// barrier, in which it does not keep UCX going. On TCP, a flush after any message is a question
/// that the peer has to answer (whatever `UCX_TCP_PUT_ENABLE` says). If the last rank is still in
/// MPI calls that make progress, it answers the first one, which goes on to the barrier; nobody
/// answers the last one's question then. No setting of either changes that, nor does `MPI_Barrier`
/// before, nor that all flush before. MPICH 4.2 has a barrier of PMI's before the first endpoint is closed; this
/// library keeps UCX going in the barrier of older ones, and leaves everything before `MPI_Finalize` alone.
const FINALIZE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/mpich_finalize.so"));

/// Settings that MPICH reads from the environment.
const MPICH: &[(&str, &str)] = &[
    // UCX would find that hosts share the kernel, and would use shared memory.
    ("UCX_TLS", "tcp,self"),
    ("UCX_NET_DEVICES", "eth0"),
];

/// Settings that MPICH 5 reads besides.
const MPICH_5: &[(&str, &str)] = &[
    // It is built with two.
    ("MPIR_CVAR_CH4_NETMOD", "ucx"),
    // Its collectives in a host's shared memory wait without yielding. As soon as there are more
    // ranks than CPUs they take 8 ms a call. Made of messages, which yield, they take 0.06 ms. With
    // one rank on a host it makes no difference.
    ("MPIR_CVAR_DEVICE_COLLECTIVES", "none"),
];

/// Settings that Intel MPI reads.
const INTEL: &[(&str, &str)] = &[
    // Shared memory inside a host, TCP between hosts.
    ("I_MPI_FABRICS", "shm:ofi"),
    ("FI_PROVIDER", "tcp"),
    ("FI_TCP_IFACE", "eth0"),
    // One proxy for each host: each would bind its ranks to CPU 0 upward.
    ("I_MPI_PIN", "0"),
    // Ranks that wait do not spin. With more ranks than CPUs a call takes 0.05 ms so, and 8 ms
    // otherwise. With a CPU for each rank it costs nothing.
    ("I_MPI_WAIT_MODE", "1"),
];

/// Writes the library that ranks of MPICH 4 need preloaded.
pub fn write_remedy(dir: &Path) -> Result<PathBuf> {
    let path = dir.join("mpich_finalize.so");
    fs::write(&path, FINALIZE).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

pub fn launch(mpi: Mpi, job: &MpiJob<'_>, launcher: &Launcher) -> Launch {
    let hosts: Vec<String> = (0..job.hosts).map(Lab::host).collect();
    let mut command: Vec<OsString> = vec![launcher.path.clone().into()];
    command.extend(["-launcher", "ssh", "-launcher-exec"].map(OsString::from));
    command.push(wrapper(job.lab).into());
    command.extend(["-iface", "eth0", "-hosts"].map(OsString::from));
    command.push(hosts.join(",").into());
    command.extend(["-ppn".into(), job.ranks_per_host.to_string().into()]);
    command.extend(["-np".into(), (job.hosts * job.ranks_per_host).to_string().into()]);
    if mpi != Mpi::Intel {
        command.extend(["-bind-to", "none"].map(OsString::from));
    }
    command.extend(job.command.iter().cloned());

    let settings: &[&[(&'static str, &str)]] = match mpi {
        Mpi::Intel => &[INTEL],
        Mpi::Mpich4 => &[MPICH],
        _ => &[MPICH, MPICH_5],
    };
    let mut env: Vec<(&str, OsString)> =
        settings.iter().copied().flatten().map(|&(name, value)| (name, value.into())).collect();
    if mpi == Mpi::Intel
        && let Some(prefix) = &launcher.prefix
    {
        env.push(("I_MPI_ROOT", prefix.into()));
    }
    Launch { command, env }
}
