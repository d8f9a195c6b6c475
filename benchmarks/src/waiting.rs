//! `foldback bench waiting`: what it costs to wait for a frame awake, and asleep.
#![allow(unsafe_code)]

use std::fmt::Write;
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use foldback::lab::netns;
use foldback::lab::registry::{self, Lab};
use foldback::lab::settings::Settings;
use foldback::output::{print, tell};
use foldback::progress::Progress;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use super::arena::Arena;
use super::machine;
use super::pingpong::skeleton::BenchFloorSkelBuilder;
use super::pingpong::{LOST, PAYLOAD, Waiter, attach, payload};
use super::samples::median;

/// Measure what it costs to wait for a frame awake, and asleep
///
/// Pairs of threads, each thread on a host of its own in a lab of two, send a frame to and fro. A waiting
/// thread looks into memory and yields in between, as folded calls do, or sleeps in a socket.
#[derive(clap::Args)]
pub struct Args {
    /// Threads for each CPU
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,2,4,8",
          value_parser = clap::value_parser!(u64).range(1..=64))]
    per_cpu: Vec<u64>,

    /// Frames of each pair, to and fro, that are timed in a round
    #[arg(long, value_name = "N", default_value_t = 20_000,
          value_parser = clap::value_parser!(u64).range(1..))]
    iterations: u64,

    /// Rounds
    #[arg(long, value_name = "R", default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(1..))]
    repeats: u64,

    /// Directory of the results
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,
}

const PORT: u16 = 17810;
/// As in the programs.
const MOST_PAIRS: usize = 256;
const LINE: usize = 8;

/// How a frame is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Looks into memory, and yields in between.
    Awake,
    /// Looks as often as lately sufficed, then sleeps in the socket.
    Drowsy,
    /// Sleeps in the socket.
    Asleep,
}

/// With their names in the CSV and in the table.
const WAYS: [(Way, &str, &str); 3] = [
    (Way::Awake, "awake", "looks and yields"),
    (Way::Drowsy, "drowsy", "looks, then sleeps"),
    (Way::Asleep, "asleep", "sleeps"),
];

/// The times of rounds: microseconds of a frame to and fro, and of CPUs for it.
#[derive(Default)]
struct Took {
    time: Vec<f64>,
    cpu: Vec<f64>,
}

/// Measures, and writes a table and a CSV.
///
/// # Errors
/// Not root, or the lab or the programs cannot be had.
pub fn run(args: Args) -> Result<ExitCode> {
    let cpus = std::thread::available_parallelism().context("how many CPUs?")?.get();
    let pairs = |per_cpu: u64| (cpus * per_cpu as usize / 2).max(1);
    if let Some(most) = args.per_cpu.iter().find(|&&per_cpu| pairs(per_cpu) > MOST_PAIRS) {
        bail!("--per-cpu {most}: on {cpus} CPUs that is more than {MOST_PAIRS} pairs");
    }
    let path = |name| args.out.join(name);
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot make the directory {}", args.out.display()))?;
    let arena = Arena::new(2, &Settings::default())?;
    let mut took: Vec<_> = args.per_cpu.iter().map(|_| <[Took; 3]>::default()).collect();
    let rounds = args.repeats * (args.per_cpu.len() * WAYS.len()) as u64;
    let progress = Progress::with_lines("bench", rounds);
    for round in 0..args.repeats {
        for (&per_cpu, took) in args.per_cpu.iter().zip(&mut took) {
            for (index, (way, _, text)) in WAYS.iter().enumerate() {
                let round = round + 1;
                let what = format_args!("round {round}/{}, {per_cpu} a CPU, {text}", args.repeats);
                let iterations = args.iterations;
                let measured = || measure(&arena.name, pairs(per_cpu), *way, iterations);
                let (time, cpu) = progress.step(what, measured)?;
                took[index].time.push(time);
                took[index].cpu.push(cpu);
            }
        }
    }
    let mut facts = machine::describe(&[]);
    facts.push(format!("{} rounds, in turns, in one lab of two hosts", args.repeats));
    let (table, csv) = report(&args.per_cpu, &took, &facts);
    for (name, text) in [("waiting.md", &table), ("waiting.csv", &csv)] {
        let file = path(name);
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    print(format_args!("{table}\n"))?;
    tell(format_args!("bench: table and CSV are in {}\n", args.out.display()));
    Ok(ExitCode::SUCCESS)
}

fn report(per_cpu: &[u64], took: &[[Took; 3]], facts: &[String]) -> (String, String) {
    let middle = |values: &Vec<f64>| median(values.clone()).unwrap_or(f64::NAN);
    let mut table =
        "A frame to a thread of the other host and one back, microseconds: medians of the rounds; \
                     in brackets the time of all CPUs.\n\n| threads a CPU |"
            .to_owned();
    let mut csv = super::setting::comments(facts) + "per_cpu,way,us,cpu_us\n";
    table.extend(WAYS.iter().map(|(_, _, text)| format!(" {text} |")));
    table += "\n|---:|---:|---:|---:|\n";
    for (per_cpu, took) in per_cpu.iter().zip(took) {
        let _ = write!(table, "| {per_cpu} |");
        for ((_, name, _), took) in WAYS.iter().zip(took) {
            let (time, cpu) = (middle(&took.time), middle(&took.cpu));
            let _ = write!(table, " {time:.1} ({cpu:.1}) |");
            let _ = writeln!(csv, "{per_cpu},{name},{time:.3},{cpu:.3}");
        }
        table.push('\n');
    }
    table.push('\n');
    table.extend(facts.iter().map(|fact| format!("* {fact}\n")));
    (table, csv)
}

/// Microseconds of a frame to and fro, the mean over all pairs, and of CPUs for it.
fn measure(lab: &str, pairs: usize, way: Way, iterations: u64) -> Result<(f64, f64)> {
    let lab = registry::open(lab)?;
    let pin = |host| lab.host_pin(&Lab::host(host));
    let mut object = MaybeUninit::uninit();
    let mut skeleton =
        BenchFloorSkelBuilder::default().open(&mut object).context("cannot open the programs")?;
    let constants = skeleton.maps.rodata_data.as_deref_mut().context("no constants to set")?;
    constants.floor_pair_port = PORT;
    let skeleton = skeleton.load().context("the kernel refuses the programs")?;
    let program = match way {
        Way::Awake => skeleton.progs.floor_take.as_fd(),
        Way::Drowsy | Way::Asleep => skeleton.progs.floor_pass.as_fd(),
    };
    let (mut links, mut sockets) = (Vec::new(), Vec::new());
    for host in 0..2 {
        links.push(netns::inside(&pin(host), || attach(program))?);
        let all = || (0..pairs).map(|pair| connected(host, pair)).collect::<Result<Vec<_>>>();
        sockets.push(netns::inside(&pin(host), all)?);
    }
    let ends = Ends::map(skeleton.maps.ends.as_fd())?;
    let begin = Barrier::new(2 * pairs);
    let before = cpu_time()?;
    let times = std::thread::scope(|scope| {
        let run = |host: usize, pair: usize| {
            let end = End { socket: &sockets[host][pair], ends: &ends, host, pair, way };
            let begin = &begin;
            scope.spawn(move || end.run(begin, iterations))
        };
        let all: Vec<_> = (0..2 * pairs).map(|index| run(index % 2, index / 2)).collect();
        let joined = all.into_iter().map(|thread| thread.join().expect("no thread panics"));
        joined.collect::<Result<Vec<f64>>>()
    })?;
    let cpu = cpu_time()? - before;
    let calls = (pairs as u64 * (iterations + untimed(iterations))) as f64;
    Ok((times.iter().sum::<f64>() / times.len() as f64, cpu / calls))
}

/// Microseconds that this process has had of CPUs.
fn cpu_time() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).context("no account of CPU time")?;
    let all = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(all as f64)
}

fn connected(host: usize, pair: usize) -> Result<UdpSocket> {
    let port = PORT + u16::try_from(pair)?;
    let at = |host| -> Result<SocketAddrV4> {
        Ok(SocketAddrV4::new(Lab::address(0, host).parse::<Ipv4Addr>()?, port))
    };
    let socket = UdpSocket::bind(at(host)?).context("cannot open a socket")?;
    socket.connect(at(1 - host)?).context("cannot connect a socket")?;
    socket.set_read_timeout(Some(LOST)).context("cannot bound a wait")?;
    Ok(socket)
}

/// Calls before the timed ones.
fn untimed(iterations: u64) -> u64 {
    iterations / 10 + 1
}

/// The memory into which the programs write the numbers of frames.
struct Ends(memmap2::MmapMut);

impl Ends {
    fn map(map: BorrowedFd<'_>) -> Result<Self> {
        let bytes = 2 * MOST_PAIRS * LINE * size_of::<u64>();
        // SAFETY: the file is a BPF array of so many bytes, made here; it cannot shrink.
        let map = unsafe { memmap2::MmapOptions::new().len(bytes).map_mut(map.as_raw_fd()) };
        map.map(Self).context("cannot map the memory that the hook writes")
    }

    /// The number of the last frame that has come to a host for a pair.
    fn last(&self, host: usize, pair: usize) -> u64 {
        // The last bit of the host's address: hosts count from 0, addresses from 1.
        let place = (2 * pair + (host + 1) % 2) * LINE;
        // SAFETY: within the map, aligned, mapped as long as self, and written by atomic exchange only.
        let last =
            unsafe { AtomicU64::from_ptr(self.0.as_ptr().cast::<u64>().add(place).cast_mut()) };
        last.load(Ordering::Acquire)
    }
}

/// One thread of a pair.
struct End<'a> {
    socket: &'a UdpSocket,
    ends: &'a Ends,
    host: usize,
    pair: usize,
    way: Way,
}

impl End<'_> {
    /// Microseconds of a frame to and fro.
    fn run(&self, begin: &Barrier, iterations: u64) -> Result<f64> {
        begin.wait();
        self.meet()?;
        let mut waiter = Waiter::new();
        let untimed = untimed(iterations);
        let mut start = Instant::now();
        for number in 2..=1 + untimed + iterations {
            if self.host == 0 {
                self.send(number)?;
            }
            self.await_frame(number, &mut waiter)?;
            if self.host == 1 {
                self.send(number)?;
            }
            if number == 1 + untimed {
                start = Instant::now();
            }
        }
        Ok(start.elapsed().as_secs_f64() * 1e6 / iterations as f64)
    }

    /// The first frame, which may have to be sent again: the links of a new lab may take a moment to carry any.
    fn meet(&self) -> Result<()> {
        let begin = Instant::now();
        while !self.has_come(1) {
            ensure!(begin.elapsed() < LOST, "the peer does not answer");
            if self.host == 0 {
                self.send(1)?;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.host == 1 { self.send(1) } else { Ok(()) }
    }

    fn send(&self, number: u64) -> Result<()> {
        self.socket.send(&payload(number)).context("cannot send")?;
        Ok(())
    }

    fn has_come(&self, number: u64) -> bool {
        self.ends.last(self.host, self.pair) >= number
    }

    fn await_frame(&self, number: u64, waiter: &mut Waiter) -> Result<()> {
        match self.way {
            Way::Awake => waiter.until(|| Ok(self.has_come(number))),
            Way::Drowsy => waiter.until_by(|| Ok(self.has_come(number)), || self.sleep()),
            Way::Asleep => {
                while !self.has_come(number) {
                    self.sleep()?;
                }
                Ok(())
            }
        }
    }

    /// Until a frame comes, perhaps one that was seen before.
    fn sleep(&self) -> Result<()> {
        match self.socket.recv(&mut [0; PAYLOAD]) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => {
                ensure!(error.kind() != ErrorKind::WouldBlock, "a frame did not come back");
                Err(error).context("cannot receive")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_rounds_stand_side_by_side() {
        let of = |time: f64| Took { time: vec![time, 9.0, 1.0], cpu: vec![2.0 * time] };
        let (table, csv) = report(&[4], &[[of(3.0), of(4.0), of(5.0)]], &["a fact".to_owned()]);
        assert!(table.contains("\n| 4 | 3.0 (6.0) | 4.0 (8.0) | 5.0 (10.0) |\n"), "{table}");
        assert!(table.ends_with("* a fact\n"));
        assert!(csv.ends_with("4,asleep,5.000,10.000\n") && csv.starts_with("# a fact\n"));
    }
}
