//! Open MPI's `mpirun`.

use std::ffi::OsString;
use std::fmt::Write;
use std::fs;

use anyhow::{Context, Result};

use super::launcher::Launcher;
use super::{Launch, Mpi, MpiJob, wrapper};
use crate::lab::registry::Lab;

/// Names that the launchers of two releases have in common. ORTE starts the ranks of Open MPI 4;
/// PRRTE starts the ranks of Open MPI 5.
struct Release {
    /// MCA parameters of MPI that do not depend on the job.
    mpi: &'static [(&'static str, &'static str)],
    /// The option that sets a parameter of the launcher.
    option: &'static str,
    /// Parameters of the launcher that do not depend on the job.
    launcher: &'static [(&'static str, &'static str)],
    /// The parameter that names the command in place of ssh.
    agent: &'static str,
    /// The parameter that says where its temporary files go.
    tmp: &'static str,
}

const OPEN_MPI_4: Release = Release {
    mpi: &[
        // Shared memory inside a host, TCP between hosts. The daemon of a host says which ranks are
        // neighbours, and there is one daemon for each host.
        ("pml", "ob1"),
        ("btl", "self,vader,tcp"),
        ("btl_tcp_if_include", "eth0"),
        // Without it, a rank that waits keeps the CPU from the one it waits for: 4 ms a message as
        // soon as there are more ranks than CPUs.
        ("mpi_yield_when_idle", "1"),
        ("btl_base_warn_component_unused", "0"),
    ],
    option: "--mca",
    launcher: &[
        ("oob_tcp_if_include", "eth0"),
        // Every daemon starts its ranks itself: no daemon needs to reach into another host.
        ("plm_rsh_no_tree_spawn", "1"),
        ("orte_base_help_aggregate", "1"),
    ],
    agent: "plm_rsh_agent",
    tmp: "orte_tmpdir_base",
};

const OPEN_MPI_5: Release = Release {
    mpi: &[
        // For the same reasons.
        ("pml", "ob1"),
        ("btl", "self,sm,tcp"),
        ("btl_tcp_if_include", "eth0"),
        ("mpi_yield_when_idle", "1"),
    ],
    option: "--prtemca",
    // PRRTE takes the interface that is not loopback without being told.
    launcher: &[("plm_ssh_no_tree_spawn", "1")],
    agent: "plm_ssh_agent",
    tmp: "prte_tmpdir_base",
};

pub fn launch(mpi: Mpi, job: &MpiJob<'_>, launcher: &Launcher) -> Result<Launch> {
    let release = if mpi == Mpi::OpenMpi4 { OPEN_MPI_4 } else { OPEN_MPI_5 };
    let mut hosts = String::new();
    for index in 0..job.hosts {
        let _ = writeln!(hosts, "{} slots={}", Lab::host(index), job.ranks_per_host);
    }
    let hostfile = job.tmp.join("hosts");
    fs::write(&hostfile, hosts).with_context(|| format!("cannot write {}", hostfile.display()))?;

    let mut command: Vec<OsString> =
        vec![launcher.path.clone().into(), "--hostfile".into(), hostfile.into()];
    command.extend(["-np".into(), (job.hosts * job.ranks_per_host).to_string().into()]);
    // One daemon for each host: each would bind its ranks to CPU 0 upward.
    command.extend(["--bind-to", "none", "--allow-run-as-root"].map(OsString::from));
    let mut parameter = |option: &str, name: &str, value: OsString| {
        command.extend([option.into(), name.into(), value]);
    };
    for (name, value) in release.mpi {
        parameter("--mca", name, value.into());
    }
    for (name, value) in release.launcher {
        parameter(release.option, name, value.into());
    }
    parameter(release.option, release.agent, wrapper(job.lab).into());
    parameter(release.option, release.tmp, job.tmp.into());
    command.extend(job.command.iter().cloned());
    let mut env: Vec<(&str, OsString)> = Vec::new();
    if job.other_user {
        // The daemon would hand the ranks its data in files that only its own user may open, and
        // refuse ranks of another user. Its directories are given to the user by the rank step.
        env.extend([("PMIX_MCA_gds", "hash".into()), ("PMIX_MCA_psec", "none".into())]);
    }
    Ok(Launch { command, env })
}
