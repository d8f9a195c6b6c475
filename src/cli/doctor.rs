//! `foldback doctor`.

mod hardening;
mod peers;

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::agent::probe::{OLDEST_KERNEL, kernel_version};
use crate::agent::simd::{Fold, Module};
use crate::agent::{Client, ErrorKind, Options, capable, default_address, probe};
use crate::config::site::{self, CONF, Line};
use crate::config::{Value, settings};
use crate::output::print;
use crate::places;

/// Advice for settings that make no sense.
const MEND: &str = "docs/using/environment.md says more";

/// MTU that carries a whole chunk.
const USUAL_MTU: u32 = 1500;

/// Say whether this host can run foldback, and what to do about each no.
///
/// Exits with status 1 if something essential is missing: then programs run on plain MPI here.
#[derive(clap::Args)]
pub struct Args {
    /// Ask the agents of these hosts, too: names or addresses. An agent answers at the UDP port of frames. One line a host
    /// says its release, the MTU that passes between, whether it hears multicast from here, and how long an answer takes
    #[arg(long, value_name = "HOST", num_args = 1.., value_delimiter = ',')]
    peers: Vec<String>,

    /// Leave out what is well
    #[arg(long, short)]
    quiet: bool,
}

/// A finding about one thing.
struct Finding {
    verdict: Verdict,
    what: String,
    /// Advice, if there is anything to do.
    advice: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Ok,
    /// Works, but not as well as it could.
    Note,
    No,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut findings = settings();
    let options = Options::of_process().unwrap_or_else(|error| {
        findings.push(no(error.to_string(), MEND));
        Options::default()
    });
    let agent = agent();
    let served = agent.verdict == Verdict::Ok;
    findings.push(agent);
    findings.extend(privileges(served));
    if capable() {
        findings.extend(kernel(&options));
    }
    findings.extend(hardening::findings("/".as_ref()));
    findings.extend(interfaces());
    findings.extend([library(), mpi()]);
    // All who read a wrong file say so.
    let mut told = HashSet::new();
    findings.retain(|finding| told.insert(finding.what.clone()));
    show(&findings, args.quiet)?;
    let missing = count_no(&findings);
    print(if missing == 0 {
        "This host can run foldback.\n"
    } else {
        "Programs run on plain MPI here until every \"no\" is mended.\n"
    })?;
    let mut unfit = 0;
    if !args.peers.is_empty() {
        let here = probe::candidates().unwrap_or_default();
        let of_peers = peers::findings(&args.peers, options.port, &here);
        show(&of_peers, args.quiet)?;
        unfit = count_no(&of_peers);
        let all = of_peers.len();
        print(if unfit == 0 {
            format!("{all} of {all} hosts can take part.\n")
        } else {
            format!(
                "Jobs run on plain MPI with {unfit} of {all} hosts until every \"no\" is mended.\n"
            )
        })?;
    }
    Ok(if missing + unfit == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn count_no(findings: &[Finding]) -> usize {
    findings.iter().filter(|finding| finding.verdict == Verdict::No).count()
}

fn show(findings: &[Finding], quiet: bool) -> anyhow::Result<()> {
    for finding in findings.iter().filter(|finding| !quiet || finding.verdict != Verdict::Ok) {
        let mark = match finding.verdict {
            Verdict::Ok => "ok",
            Verdict::Note => "--",
            Verdict::No => "no",
        };
        print(format_args!("{mark}  {}\n", finding.what))?;
        if let Some(advice) = &finding.advice {
            print(format_args!("      {advice}\n"))?;
        }
    }
    Ok(())
}

fn ok(what: impl Into<String>) -> Finding {
    Finding { verdict: Verdict::Ok, what: what.into(), advice: None }
}

fn note(what: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { verdict: Verdict::Note, what: what.into(), advice: Some(advice.into()) }
}

fn no(what: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { verdict: Verdict::No, what: what.into(), advice: Some(advice.into()) }
}

/// The file of settings, what is set, and what the file sets for others.
fn settings() -> Vec<Finding> {
    let site = site::site();
    let file = match (&site.wrong, &site.path) {
        (Some(why), _) => no(why, MEND),
        (None, None) => ok(format!("no file of settings: {CONF} is empty")),
        (None, Some(path)) if site.is_there => ok(format!("settings of this site: {path}")),
        (None, Some(path)) => ok(format!("no settings of this site: there is no {path}")),
    };
    let of_process = settings::SETTINGS.iter().filter_map(|setting| {
        let value = settings::lookup(setting.name).filter(|_| setting.name != CONF)?;
        Some(set(setting.name, &value, ""))
    });
    let is_of_others = |line: &&Line| !line.counts && settings::warning_of_line(line).is_none();
    let of_others = site.lines.iter().filter(is_of_others).map(|line| {
        let section = line.section.as_deref().unwrap_or_default();
        set(&line.name, &line.value, &format!(", for {section}"))
    });
    let warnings = site.lines.iter().filter_map(settings::warning_of_line);
    let warnings = warnings.map(|warning| note(warning, "correct the line, or remove it"));
    std::iter::once(file).chain(of_process).chain(of_others).chain(warnings).collect()
}

/// A value that somebody has set, and where.
fn set(name: &str, value: &Value, whose: &str) -> Finding {
    let of_agent = Options::default().set(name, value).map_err(|error| error.to_string());
    match settings::check(name, value).and(of_agent) {
        Ok(()) => ok(format!("{name}={} ({}{whose})", value.text, value.origin())),
        Err(why) => no(why, MEND),
    }
}

fn agent() -> Finding {
    let address = match default_address() {
        Ok(address) => address,
        Err(error) => return no(error.to_string(), MEND),
    };
    match Client::connect(&address) {
        Ok(client) => {
            let (release, pid) = (&client.welcome().release, client.welcome().pid);
            ok(format!("an agent answers at {address} (foldback {release}, process {pid})"))
        }
        Err(error) if error.kind() == ErrorKind::Unreachable => note(
            error.to_string(),
            "start one for all users: systemctl enable --now foldback-agent; without it, \
             privileged jobs bring their own",
        ),
        Err(error) => no(error.to_string(), "install the same release everywhere and restart it"),
    }
}

fn privileges(served: bool) -> Option<Finding> {
    match (capable(), served) {
        (true, _) => Some(ok("this user may load BPF programs (CAP_BPF, CAP_NET_ADMIN)")),
        (false, true) => None,
        (false, false) => Some(note(
            "no agent, and this user may not load BPF programs: jobs fold by ordinary sockets alone",
            "for more speed have root run `foldback agent`, or run `foldback doctor` as root for more",
        )),
    }
}

fn kernel(options: &Options) -> Vec<Finding> {
    let mut findings = Vec::new();
    let release = nix::sys::utsname::uname()
        .map(|name| name.release().to_string_lossy().into_owned())
        .unwrap_or_default();
    let [major, minor] = OLDEST_KERNEL;
    match probe::load_tc(options) {
        Ok((took, fold)) => {
            findings.push(ok(format!("Linux {release} takes the TC programs ({took:.0?})")));
            findings.push(simd(fold));
        }
        Err(error) => {
            let needed = format!(
                "foldback needs Linux {major}.{minor} with CONFIG_BPF_SYSCALL and CONFIG_NET_CLS_BPF"
            );
            findings.push(no(error.to_string(), needed));
            return findings;
        }
    }
    if kernel_version(&release).is_some_and(|version| version < OLDEST_KERNEL) {
        let advice = format!("foldback is tested on Linux {major}.{minor} and newer");
        findings.push(note(format!("Linux {release} is older than what is supported"), advice));
    }
    findings.push(match probe::map_cells(options) {
        Ok(()) => ok("ranks can map cells into their memory"),
        Err(error) => no(error.to_string(), "raise the limit on locked memory (ulimit -l)"),
    });
    findings.push(match (probe::has_tcx(), probe::has_clsact()) {
        (true, _) => ok("programs attach to TC as links (tcx)"),
        (false, Ok(true)) => {
            ok("programs attach to TC as filters (clsact; tcx came with Linux 6.6)")
        }
        (false, Ok(false)) => no(
            "there is neither tcx nor clsact",
            "use a kernel with CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_ACT and CONFIG_NET_CLS_BPF",
        ),
        (false, Err(error)) => note("whether clsact works is not known", error.to_string()),
    });
    let without = "nothing to do, unless FOLDBACK_HOOK=xdp asks for it";
    findings.push(match (probe::has_xdp_load_bytes(), probe::load_xdp(options)) {
        (true, Ok(())) => ok("the kernel takes the XDP program"),
        (true, Err(error)) => note(error.to_string(), without),
        (false, _) => note("XDP programs cannot read whole frames (Linux 5.18 can)", without),
    });
    findings
}

/// The instructions by which programs that are loaded now fold long chunks.
fn simd(fold: Fold) -> Finding {
    let what = format!("fold: {fold}");
    match (fold, Module::find()) {
        (Fold::Avx2, _) => ok(what),
        (Fold::Swar, Module::Missing) => Finding {
            advice: Some(
                "the module foldback_simd, not loaded here, folds long chunks by AVX2".into(),
            ),
            ..ok(what)
        },
        (Fold::Swar, Module::WithoutAvx2) => {
            note(what, "the module foldback_simd is of no use here: this CPU has no AVX2")
        }
        (Fold::Swar, Module::Useful) => note(
            what,
            "the module foldback_simd is loaded, but not used: is it of another release, or CAP_SYS_ADMIN missing?",
        ),
    }
}

fn interfaces() -> Vec<Finding> {
    let candidates = match probe::candidates() {
        Ok(candidates) => candidates,
        Err(error) => {
            return vec![no(error.to_string(), "is this a network namespace of its own?")];
        }
    };
    let mut findings = Vec::new();
    let mut usable = false;
    for c in candidates {
        let what = format!("{} on {}, MTU {}", c.address, c.interface, c.mtu);
        let kind = if c.physical { "hardware" } else { "virtual" };
        findings.push(if !c.ethernet {
            note(format!("{what}: not Ethernet"), "use an address of another interface")
        } else if !c.running {
            note(format!("{what}: down"), format!("ip link set {} up", c.interface))
        } else if c.max_chunk_bytes == 0 {
            note(format!("{what}: too small for any frame"), "raise it")
        } else {
            usable = true;
            let what = format!("{what}, {kind}{}", if c.xdp { ", somebody's XDP program" } else { "" });
            if c.mtu < USUAL_MTU {
                let advice = format!(
                    "frames carry {} bytes instead of a whole chunk; raise it to {USUAL_MTU} if the network can",
                    c.max_chunk_bytes
                );
                note(what, advice)
            } else {
                ok(what)
            }
        });
    }
    if !usable {
        findings
            .push(no("no Ethernet interface is up and has an IPv4 address", "ip address add …"));
    }
    findings
}

fn library() -> Finding {
    match places::library() {
        Ok(path) => {
            let advice = "a program that is built with AddressSanitizer needs \
                          ASAN_OPTIONS=verify_asan_link_order=0, which `foldback run` sets";
            Finding { advice: Some(advice.into()), ..ok(path.display().to_string()) }
        }
        Err(error) => no(error.to_string(), "`make install` installs both"),
    }
}

fn mpi() -> Finding {
    let names = ["mpirun.openmpi", "mpirun.mpich", "mpirun", "mpiexec"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut found: Vec<String> = names
        .iter()
        .filter_map(|name| directories.iter().map(|d| d.join(name)).find(|file| file.is_file()))
        .filter_map(|file| file.canonicalize().ok())
        .map(|file| file.display().to_string())
        .collect();
    found.sort();
    found.dedup();
    if found.is_empty() {
        no("no MPI launcher in PATH", "apt install openmpi-bin, or mpich")
    } else {
        ok(format!("MPI: {}", found.join(", ")))
    }
}
