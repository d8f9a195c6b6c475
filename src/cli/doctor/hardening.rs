//! Settings and modules of the kernel that may stand in the way of BPF programs, or make them slow.

use std::fs;
use std::path::Path;

use super::{Finding, no, note, ok};

/// All of them, as `/proc` and `/sys` below `root` tell.
pub(super) fn findings(root: &Path) -> Vec<Finding> {
    let read =
        |path: &str| fs::read_to_string(root.join(path)).ok().map(|text| text.trim().to_owned());
    let all = [
        jit(read("proc/sys/net/core/bpf_jit_enable")),
        harden(read("proc/sys/net/core/bpf_jit_harden")),
        unprivileged(read("proc/sys/kernel/unprivileged_bpf_disabled")),
        Some(realtime(read("sys/kernel/realtime"), read("proc/version"))),
        btf(root.join("sys/kernel/btf/vmlinux").exists()),
        lockdown(read("sys/kernel/security/lockdown")),
        selinux(read("sys/fs/selinux/enforce")),
    ];
    all.into_iter().flatten().collect()
}

/// With CONFIG_BPF_JIT_ALWAYS_ON it is always 1.
fn jit(enable: Option<String>) -> Option<Finding> {
    Some(match enable.as_deref() {
        Some("0") => no(
            "BPF programs are interpreted, which is too slow",
            "sysctl -w net.core.bpf_jit_enable=1",
        ),
        Some(_) => ok("BPF programs are compiled (JIT)"),
        None => note(
            "whether BPF programs are compiled is not known",
            "containers and network namespaces do not see net.core.bpf_jit_enable: ask the host",
        ),
    })
}

/// At 2 constants are hidden in all programs, at 1 in programs of users without privilege. Only root can read it.
fn harden(level: Option<String>) -> Option<Finding> {
    (level.as_deref() == Some("2")).then(|| {
        note(
            "net.core.bpf_jit_harden=2: the kernel hides the constants of all programs, which makes them slower",
            "sysctl -w net.core.bpf_jit_harden=1 hides those of users without privilege",
        )
    })
}

/// The agent has CAP_BPF, which this setting does not concern.
fn unprivileged(disabled: Option<String>) -> Option<Finding> {
    let level = disabled?;
    let who = if level == "0" { "any user may" } else { "only privileged users may" };
    Some(ok(format!("{who} load BPF programs (kernel.unprivileged_bpf_disabled={level})")))
}

/// On PREEMPT_RT a program may be preempted by another one on its CPU, and share its scratch.
fn realtime(file: Option<String>, version: Option<String>) -> Finding {
    let on = file.is_some_and(|text| text == "1")
        || version.is_some_and(|text| text.contains("PREEMPT_RT"));
    if on {
        no(
            "this is a real-time kernel (PREEMPT_RT)",
            "boot another: programs may interrupt each other here",
        )
    } else {
        ok("not a real-time kernel")
    }
}

fn btf(is_there: bool) -> Option<Finding> {
    (!is_there).then(|| {
        note(
            "the kernel does not show its types (/sys/kernel/btf/vmlinux)",
            "nothing to do, unless the module foldback_simd is wanted, which takes CONFIG_DEBUG_INFO_BTF",
        )
    })
}

/// The file has all modes, the present one in brackets.
fn lockdown(modes: Option<String>) -> Option<Finding> {
    let modes = modes?;
    let (_, rest) = modes.split_once('[')?;
    let (mode, _) = rest.split_once(']')?;
    Some(match mode {
        "none" => ok("the kernel is not locked down"),
        mode => note(
            format!("the kernel is locked down ({mode})"),
            "the programs read no memory of the kernel's, so the line on the TC programs should be ok; \
             the module foldback_simd must be signed",
        ),
    })
}

fn selinux(enforce: Option<String>) -> Option<Finding> {
    match enforce?.as_str() {
        "1" => Some(note(
            "SELinux enforces a policy, and foldback brings none",
            "docs/running/agent.md lists what agent and ranks need; ausearch -m avc shows what is denied",
        )),
        _ => Some(ok("SELinux does not enforce a policy")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    /// The lines about a machine with these files.
    fn of(name: &str, files: &[(&str, &str)]) -> Vec<(Verdict, String)> {
        let folder = format!("foldback-doctor-{name}-{}", std::process::id());
        let root = std::env::temp_dir().join(folder);
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = findings(&root);
        let _ = fs::remove_dir_all(&root);
        found.into_iter().map(|finding| (finding.verdict, finding.what)).collect()
    }

    const USUAL: [(&str, &str); 7] = [
        ("proc/sys/net/core/bpf_jit_enable", "1\n"),
        ("proc/sys/net/core/bpf_jit_harden", "0\n"),
        ("proc/sys/kernel/unprivileged_bpf_disabled", "2\n"),
        ("proc/version", "Linux version 6.1.0 #1 SMP PREEMPT_DYNAMIC\n"),
        ("sys/kernel/btf/vmlinux", ""),
        ("sys/kernel/security/lockdown", "[none] integrity confidentiality\n"),
        ("sys/fs/selinux/enforce", "0"),
    ];

    #[test]
    fn nothing_is_said_against_a_usual_kernel() {
        let found = of("usual", &USUAL);
        assert!(found.iter().all(|(verdict, _)| *verdict == Verdict::Ok), "{:?}", found.len());
        assert_eq!(found.len(), 5, "a finding for all but harden and BTF");
    }

    #[test]
    fn each_obstacle_is_told() {
        for (at, text, verdict, told) in [
            (0, "0\n", Verdict::No, "interpreted"),
            (1, "2\n", Verdict::Note, "bpf_jit_harden=2"),
            (2, "0\n", Verdict::Ok, "any user may load BPF programs"),
            (3, "Linux version 6.1.0-rt #1 SMP PREEMPT_RT\n", Verdict::No, "real-time"),
            (5, "none integrity [confidentiality]\n", Verdict::Note, "(confidentiality)"),
            (6, "1", Verdict::Note, "SELinux enforces"),
        ] {
            let mut files = USUAL;
            files[at].1 = text;
            let found = of(&format!("obstacle-{at}"), &files);
            let is_told = |(its, what): &(Verdict, String)| *its == verdict && what.contains(told);
            assert!(found.iter().any(is_told), "{told}");
        }
        let found = of("bare", &[]);
        let notes = found.iter().filter(|(verdict, _)| *verdict == Verdict::Note).count();
        assert_eq!(notes, 2, "neither /proc nor types");
    }
}
