//! Where it was measured: without that, numbers mean nothing.

use std::fs;
use std::process::{Command, Stdio};

/// One fact a line.
pub fn describe(mpi: &str) -> Vec<String> {
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or("?");
    let mut lines = vec![
        format!("foldback {}, {}", env!("CARGO_PKG_VERSION"), mpi_version(mpi)),
        format!("Linux {kernel}, {} CPUs ({}), load before {load}", cpus(), cpu_model()),
        "all hosts are network namespaces of this machine, joined by veth and a bridge".to_owned(),
    ];
    let settings: Vec<String> = std::env::vars()
        .filter(|(name, _)| name.starts_with("FOLDBACK"))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    if !settings.is_empty() {
        lines.push(settings.join(" "));
    }
    lines
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "?".to_owned(), |text| text.trim().to_owned())
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(0, usize::from)
}

fn cpu_model() -> String {
    read("/proc/cpuinfo")
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, model)| model.to_owned())
}

/// As the launcher tells it.
fn mpi_version(mpi: &str) -> String {
    let program = if mpi == "openmpi" { "mpirun.openmpi" } else { "mpiexec.hydra" };
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_default();
    match mpi {
        "openmpi" => text.split_once(") ").and_then(|(_, rest)| rest.lines().next()),
        _ => text.lines().find_map(|line| line.trim().strip_prefix("Version:")).map(str::trim),
    }
    .map_or_else(|| format!("{mpi} of unknown version"), |version| format!("{mpi} {version}"))
}
