//! Looks whether the ranks of this host have the library, from beside the launcher.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio, id};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::lab::processes::Identity;
use crate::places;

/// Look whether the ranks of a launcher have the library
#[derive(clap::Args)]
pub struct Args {
    /// The launcher's process
    launcher: i32,
    /// In this process, not in one that nobody waits for
    #[arg(long)]
    here: bool,
}

/// How often to see whether the launcher is there.
const TICK: Duration = Duration::from_millis(200);
/// Looks for ranks are as far apart as this part of the time so far: the fewer, the longer there are none.
const SHARE: u32 = 16;
/// Looks at which no rank has the library. Several programs of one job start one by one.
const LOOKS: u32 = 5;
/// Variables that launchers give to their ranks.
const RANK: [&str; 3] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"];
const MPI: [&str; 3] = ["libmpi.so", "libmpich.so", "libmpi_abi.so"];

/// A rank that has loaded its MPI.
#[derive(Debug, PartialEq, Eq)]
struct Rank {
    pid: i32,
    /// The file's name.
    mpi: String,
    /// Whether it has loaded the library.
    folds: bool,
}

/// Begins to watch the launcher that this process becomes. Without, the job is the same.
pub fn begin() {
    let watched = start(id().cast_signed(), &[]).and_then(|mut child| Ok(child.wait()?));
    if let Err(error) = watched {
        log::info!("nobody looks whether the ranks have the library: {error:#}");
    }
}

fn start(launcher: i32, more: &[&str]) -> Result<Child> {
    let own = places::own()?;
    // No signal of the terminal's is for it.
    let mut command = Command::new(own);
    command.arg("watch").args(more).arg(launcher.to_string()).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().context("cannot start this executable")
}

/// Ends with the launcher, or when it is known.
pub fn run(args: Args) -> Result<ExitCode> {
    if !args.here {
        // An orphan: the launcher might trip over a child that it does not know.
        let _ = start(args.launcher, &["--here"])?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(launcher) = Identity::of(args.launcher) else { return Ok(ExitCode::SUCCESS) };
    // Its canonical name, which the system has for mapped files, and not a link's.
    let library = places::library()?.canonicalize().context("cannot find the library")?;
    let library = library.file_name().unwrap_or_default().to_string_lossy();
    let (start, mut looked, mut looks) = (Instant::now(), Instant::now(), 0);
    while launcher.alive() {
        if looked.elapsed() >= start.elapsed() / SHARE {
            looked = Instant::now();
            let ranks = ranks(args.launcher, &library);
            match ranks.iter().find(|rank| rank.folds).or(ranks.first()) {
                Some(rank) if rank.folds => {
                    log::info!("process {} ({}) is a rank with foldback", rank.pid, rank.name());
                    break;
                }
                Some(_) if looks < LOOKS => looks += 1,
                Some(rank) => {
                    warn(rank, &library);
                    break;
                }
                None => looks = 0,
            }
        }
        sleep(TICK);
    }
    Ok(ExitCode::SUCCESS)
}

fn warn(rank: &Rank, library: &str) {
    log::warn!(
        "the ranks on this host run without foldback: process {} ({}) has loaded {}, but not {library}. Does a \
         wrapper or a container drop LD_PRELOAD?",
        rank.pid,
        rank.name(),
        rank.mpi
    );
}

impl Rank {
    fn name(&self) -> String {
        let name = fs::read_to_string(format!("/proc/{}/comm", self.pid)).unwrap_or_default();
        name.trim_end().to_owned()
    }
}

/// The ranks that descend from a process, as far as they have loaded an MPI.
fn ranks(launcher: i32, library: &str) -> Vec<Rank> {
    let mut family = vec![launcher];
    let mut next = 0;
    while let Some(pid) = family.get(next) {
        family.extend(children(*pid));
        next += 1;
    }
    family
        .into_iter()
        .skip(1)
        .filter(|pid| is_rank(*pid))
        .filter_map(|pid| rank(pid, library))
        .collect()
}

fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).ok();
    let numbers = |text: String| text.split_whitespace().flat_map(str::parse).collect::<Vec<_>>();
    threads.filter_map(children).flat_map(numbers).collect()
}

fn is_rank(pid: i32) -> bool {
    let text = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let name = |entry: &[u8]| entry.split(|byte| *byte == b'=').next().map(<[u8]>::to_vec);
    text.split(|byte| *byte == 0)
        .filter_map(name)
        .any(|name| RANK.iter().any(|rank| rank.as_bytes() == name))
}

fn rank(pid: i32, library: &str) -> Option<Rank> {
    // Of another user, it cannot be read.
    let text = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let (mpi, folds) = loaded(&text, library)?;
    Some(Rank { pid, mpi, folds })
}

/// The MPI in a list of a process's mapped files, and whether the library is there, too.
fn loaded(maps: &str, library: &str) -> Option<(String, bool)> {
    let names = || maps.lines().filter_map(|line| line.rsplit_once('/')).map(|(_, name)| name);
    let mpi = names().find(|name| MPI.iter().any(|mpi| name.starts_with(mpi)))?;
    Some((mpi.to_owned(), names().any(|name| name.starts_with(library))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_known_by_what_they_have_mapped() {
        let library = "libfoldback.so";
        let lines = |names: &[&str]| {
            let line = |name| format!("7f3c0000-7f3d0000 r-xp 00000000 fe:00 1234   {name}\n");
            names.iter().map(line).collect::<String>()
        };
        let of = |names: &[&str]| loaded(&lines(names), library);
        assert_eq!(of(&["/bin/sh", "/lib/libfoldback.so", "[stack]"]), None);
        assert_eq!(
            of(&["/a", "/x/libmpi_cxx.so.40", "/x/libmpich.so"]).unwrap(),
            ("libmpich.so".into(), false)
        );
        let both = of(&["/a", "/x/libmpi.so.40.30.4", "/y/libfoldback.so"]);
        assert_eq!(both.unwrap(), ("libmpi.so.40.30.4".into(), true));
    }

    #[test]
    fn no_other_process_is_a_rank() {
        assert!(!is_rank(id().cast_signed()));
        assert_eq!(ranks(id().cast_signed(), "libfoldback.so"), []);
        let mut child = Command::new("sleep").arg("600").env(RANK[2], "0").spawn().unwrap();
        let pid = child.id().cast_signed();
        let end = Instant::now() + Duration::from_secs(60);
        while !is_rank(pid) && Instant::now() < end {
            sleep(Duration::from_millis(1));
        }
        let found = (children(id().cast_signed()).contains(&pid), is_rank(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, (true, true));
    }
}
