//! The machine of a measurement: without it, numbers mean nothing.

use std::fs;

use foldback::lab::launch::{Mpi, launcher};

/// One fact a line.
pub fn describe(mpis: &[Mpi]) -> Vec<String> {
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or("?");
    let own = concat!("foldback ", env!("CARGO_PKG_VERSION")).to_owned();
    let all: Vec<_> = std::iter::once(own).chain(mpis.iter().map(|&m| mpi_version(m))).collect();
    let mut lines = vec![
        all.join(", "),
        format!(
            "Linux {kernel}, {} CPUs ({}), {}, load before {load}",
            cpus(),
            cpu_model(),
            memory()
        ),
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

/// The machine in a few words.
pub fn note() -> String {
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("lab on one machine: {} CPUs ({}), Linux {kernel}", cpus(), cpu_model())
}

/// For example 2026-11-24, UTC.
pub fn today() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%d").to_string()
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

/// For example "24 GiB".
fn memory() -> String {
    let text = read("/proc/meminfo");
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.map_or_else(|| "? GiB".to_owned(), |kib| format!("{:.0} GiB", kib / 1024.0 / 1024.0))
}

/// As the launcher tells it.
fn mpi_version(mpi: Mpi) -> String {
    match launcher::find(mpi) {
        Ok(launcher) => format!("{mpi} {}", launcher.version),
        Err(_) => format!("{mpi} of unknown version"),
    }
}
