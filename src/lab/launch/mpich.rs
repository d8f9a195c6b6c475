//! MPICH's `mpiexec.hydra`.

use std::ffi::OsString;

use anyhow::Result;

use super::{Job, Launch, find_launcher, wrapper};
use crate::lab::registry::Lab;

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
