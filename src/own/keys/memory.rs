//! How much memory the pairs of a rank may take.

use crate::config::Config;

/// Bytes, on one of so many ranks of this machine: what the program says, or half of what is free, in equal parts.
pub(super) fn limit(ranks: usize) -> usize {
    let given = Config::of_process().ok().and_then(|config| config.pairs_memory);
    given.unwrap_or_else(|| {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        available(&text).map_or(usize::MAX, |bytes| bytes / 2 / ranks.max(1))
    })
}

/// A number that all processes of this machine have in common, and others have not.
pub(super) fn machine() -> u64 {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = boot.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0)
}

/// MemAvailable of /proc/meminfo, in bytes.
fn available(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_memory_is_found_among_the_lines() {
        let text = "MemTotal:       65 kB\nMemFree:  1 kB\nMemAvailable:    3000 kB\n";
        assert_eq!(available(text), Some(3_072_000));
        assert_eq!(available("MemTotal: 65 kB\n"), None);
    }

    #[test]
    fn this_machine_has_a_number() {
        assert_ne!(machine(), 0);
        assert_eq!(machine(), machine());
    }
}
