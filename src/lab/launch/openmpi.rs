//! Open MPI's `mpirun`.

use std::ffi::OsString;
use std::fmt::Write;
use std::fs;

use anyhow::{Context, Result};

use super::{Job, Launch, find_launcher, wrapper};
use crate::lab::registry::Lab;

/// MCA parameters that do not depend on the job.
const PARAMETERS: &[(&str, &str)] = &[
    // Shared memory inside a host, TCP between hosts. Which ranks are neighbours is what the
    // daemon of their host says, and there is one daemon for each host.
    ("pml", "ob1"),
    ("btl", "self,vader,tcp"),
    ("btl_tcp_if_include", "eth0"),
    ("oob_tcp_if_include", "eth0"),
    // Without it, a rank that waits keeps the CPU from the one it waits for: 4 ms a message as
    // soon as there are more ranks than CPUs.
    ("mpi_yield_when_idle", "1"),
    // Every daemon starts its ranks itself: no daemon needs to reach into another host.
    ("plm_rsh_no_tree_spawn", "1"),
    ("btl_base_warn_component_unused", "0"),
    ("orte_base_help_aggregate", "1"),
];

/// The command line.
pub fn launch(job: &Job<'_>) -> Result<Launch> {
    let mpirun = find_launcher(
        "mpirun.openmpi",
        "mpirun",
        "Open MPI",
        "install the package openmpi-bin, or use --mpi mpich",
    )?;
    let mut hosts = String::new();
    for index in 0..job.hosts {
        let _ = writeln!(hosts, "{} slots={}", Lab::host(index), job.ranks_per_host);
    }
    let hostfile = job.tmp.join("hosts");
    fs::write(&hostfile, hosts).with_context(|| format!("cannot write {}", hostfile.display()))?;

    let mut command: Vec<OsString> = vec![mpirun.into(), "--hostfile".into(), hostfile.into()];
    command.extend(["-np".into(), (job.hosts * job.ranks_per_host).to_string().into()]);
    // One daemon for each host: each would bind its ranks to CPU 0 upward.
    command.extend(["--bind-to", "none", "--allow-run-as-root"].map(OsString::from));
    let mut parameter = |name: &str, value: OsString| {
        command.extend(["--mca".into(), name.into(), value]);
    };
    for (name, value) in PARAMETERS {
        parameter(name, value.into());
    }
    parameter("plm_rsh_agent", wrapper(job.lab).into());
    parameter("orte_tmpdir_base", job.tmp.into());
    command.extend(job.command.iter().cloned());
    let mut env: Vec<(&str, OsString)> = Vec::new();
    if job.other_user {
        // The daemon would hand the ranks its data in files that only its own user may open, and
        // refuse ranks of another user. Its directories are given to the user by the rank step.
        env.extend([("PMIX_MCA_gds", "hash".into()), ("PMIX_MCA_psec", "none".into())]);
    }
    Ok(Launch { command, env })
}
