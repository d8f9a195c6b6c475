//! MPICH's `mpiexec.hydra`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Job, Launch, find_launcher, wrapper};
use crate::lab::registry::Lab;

/// MPICH before 4.2 hangs in `MPI_Finalize` on UCX over TCP, in one of four short jobs, depending on
/// who comes first. Each rank there closes its endpoints, which flushes them, and then enters PMI's
/// barrier, in which it does not keep UCX going. On TCP, a flush after any message is a question
/// that the peer has to answer (whatever `UCX_TCP_PUT_ENABLE` says). If the last rank is still in
/// MPI calls that make progress, it answers the first one, which goes on to the barrier; nobody
/// answers the last one's question then. No setting of either changes that, nor does `MPI_Barrier`
/// before. MPICH 4.2 has a barrier of PMI's before the first endpoint is closed; this library adds
/// one to older ones, and leaves everything before `MPI_Finalize` alone.
const FINALIZE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/mpich_finalize.so"));

/// Writes the library that ranks need preloaded.
pub fn write_remedy(dir: &Path) -> Result<PathBuf> {
    let path = dir.join("mpich_finalize.so");
    fs::write(&path, FINALIZE).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The command line.
pub fn launch(job: &Job<'_>) -> Result<Launch> {
    let mpiexec = find_launcher(
        "mpiexec.hydra",
        "mpiexec",
        "HYDRA",
        "install the package mpich, or use --mpi openmpi",
    )?;
    let hosts: Vec<String> = (0..job.hosts)
        .map(|index| format!("{}:{}", Lab::host(index), job.ranks_per_host))
        .collect();
    let mut command: Vec<OsString> = vec![mpiexec.into()];
    command.extend(["-launcher", "ssh", "-launcher-exec"].map(OsString::from));
    command.push(wrapper(job.lab).into());
    command.extend(["-iface", "eth0", "-bind-to", "none", "-hosts"].map(OsString::from));
    command.push(hosts.join(",").into());
    command.extend(["-np".into(), (job.hosts * job.ranks_per_host).to_string().into()]);
    command.extend(job.command.iter().cloned());
    // UCX finds out by itself that hosts share the kernel, and would use shared memory.
    let env = vec![("UCX_TLS", "tcp,self".into()), ("UCX_NET_DEVICES", "eth0".into())];
    Ok(Launch { command, env })
}
