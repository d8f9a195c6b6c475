//! `foldback bench`: the same MPI program with and without foldback, in turns.

mod chart;
mod latency;
mod limits;
mod machine;
mod measure;
mod overlap;
mod report;
mod samples;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::lab::launch::Mpi;
use crate::lab::settings::Rate;
use measure::{Bench, Folded, Mode};
use samples::Samples;

/// Compare the same MPI program with and without foldback
///
/// Each round measures every number of hosts once with and once without, each time in a lab made
/// for it (programs attached for the one would slow the other down), and in changing order. A ratio
/// is that of two runs of one round. Tables, charts and all samples go to --out.
///
/// What is measured is the latency of blocking collectives or, with --overlap, how much of
/// non-blocking ones passes while the program computes.
#[derive(clap::Args)]
pub struct Args {
    /// Measure the overlap of non-blocking collectives, not the latency of blocking ones
    #[arg(long)]
    overlap: bool,

    /// MPI to compare with
    #[arg(long, value_enum, default_value = "openmpi4")]
    mpi: Mpi,

    /// Numbers of hosts, one rank on each [default: 2,4,8; 2,4 with --overlap]
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u64).range(2..=64))]
    hosts: Vec<u64>,

    /// Speed of every link, in each direction, such as 1gbit [default: as fast as it goes]
    #[arg(long)]
    rate: Option<Rate>,

    /// Collectives, such as allreduce or, with --overlap, iallreduce [default: all]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    collective: Vec<String>,

    /// Message sizes in bytes, multiples of 4 [default: some from 4 to 65536]
    ///
    /// As the OSU micro-benchmarks count: the vector of reductions (of both Reduce_scatters the
    /// whole) and broadcasts; what a rank sends in Allgather and Gather, gets in Scatter, and
    /// sends to each in Alltoall.
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u64).range(4..))]
    sizes: Vec<u64>,

    /// Fold messages of any size that can be folded, to find where it stops paying
    #[arg(long)]
    lift: bool,

    /// Calls of MPI_Test while computing
    #[arg(long, value_name = "N", default_value_t = 0, requires = "overlap")]
    tests: u64,

    /// Rounds
    #[arg(long, value_name = "R", default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(1..))]
    repeats: u64,

    /// Calls timed for each size, a quarter of it above 8 KiB
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..))]
    iterations: u64,

    /// Seconds that one run may take
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    timeout: u64,

    /// Where the results go
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,

    /// Directory with openmpi4/latency, mpich5/overlap and so on [default: where make puts them]
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
}

/// Runs the subcommand.
pub fn run(mut args: Args) -> Result<ExitCode> {
    if args.hosts.is_empty() {
        args.hosts = if args.overlap { vec![2, 4] } else { vec![2, 4, 8] };
    }
    if args.sizes.is_empty() {
        args.sizes = match (args.overlap, args.lift) {
            (true, _) => vec![4, 64, 1024, 4096, 16384, 65536],
            (false, false) => vec![4, 64, 1400, 16384, 65536],
            (false, true) => vec![4, 64, 256, 700, 1400, 2800, 4096, 8192, 16384, 32768, 65536],
        };
    }
    let names: &[&str] = if args.overlap { overlap::COLLECTIVES } else { latency::COLLECTIVES };
    if args.collective.is_empty() {
        args.collective = names.iter().map(|name| (*name).to_owned()).collect();
    }
    if let Some(name) = args.collective.iter().find(|name| !names.contains(&name.as_str())) {
        bail!("--collective {name}: one of {}", names.join(", "));
    }
    fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot make the directory {}", args.out.display()))?;

    let mut machine = machine::describe(args.mpi);
    let (samples, folded) = measure_all(&args)?;
    if folded.calls() == 0 {
        bail!(
            "not one call was folded in the runs with foldback, so there is nothing to compare: \
             {}",
            folded.reasons()
        );
    }
    if let Some(rate) = &args.rate {
        machine.push(format!("links shaped to {}", rate.text));
    }
    if args.lift {
        machine.push("with foldback, all sizes that can be folded were (--lift)".to_owned());
    }
    machine.push(format!("{} calls folded; to MPI: {}", folded.calls(), folded.reasons()));
    if args.overlap {
        write_overlap(&args, &samples, &machine)
    } else {
        write_latency(&args, &samples, &machine)
    }?;
    eprintln!("bench: table, charts and samples are in {}", args.out.display());
    Ok(ExitCode::SUCCESS)
}

fn write(args: &Args, name: &str, text: &str) -> Result<()> {
    let path = args.out.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn write_latency(args: &Args, samples: &Samples, machine: &[String]) -> Result<()> {
    let points = latency::points(samples);
    let table = report::markdown(&points, machine, args.mpi.name());
    println!("{table}");
    write(args, "table.md", &table)?;
    write(args, "samples.csv", &samples.csv())?;
    write(args, "summary.csv", &report::csv(&points))?;
    for collective in &args.collective {
        if let Some(svg) = chart::latency(&points, collective, args.mpi.name())? {
            write(args, &format!("{collective}.svg"), &svg)?;
        }
    }
    Ok(())
}

fn write_overlap(args: &Args, samples: &Samples, machine: &[String]) -> Result<()> {
    let points = overlap::points(samples);
    let table = overlap::markdown(&points, machine, args.mpi.name(), args.tests);
    println!("{table}");
    write(args, "overlap.md", &table)?;
    write(args, "overlap.csv", &samples.csv())?;
    for collective in &args.collective {
        if let Some(svg) = chart::overlap(&points, collective, args.mpi.name())? {
            write(args, &format!("{collective}.svg"), &svg)?;
        }
    }
    Ok(())
}

/// A before B, then B before A: what drifts meanwhile hits both.
fn order(round: u64) -> [Mode; 2] {
    if round.is_multiple_of(2) { [Mode::Mpi, Mode::Foldback] } else { [Mode::Foldback, Mode::Mpi] }
}

fn measure_all(args: &Args) -> Result<(Samples, Folded)> {
    let sizes: Vec<_> = args.sizes.iter().map(u64::to_string).collect();
    let mut arguments = vec![
        format!("--collective={}", args.collective.join(",")),
        format!("--sizes={}", sizes.join(",")),
        format!("--iterations={}", args.iterations),
    ];
    if args.overlap {
        arguments.push(format!("--tests={}", args.tests));
    }
    let columns = if args.overlap { overlap::COLUMNS } else { latency::COLUMNS };
    let bench = Bench {
        program: program(args)?,
        arguments: arguments
            .iter()
            .filter_map(|argument| argument.split_once('='))
            .flat_map(|(name, value)| [name.to_owned(), value.to_owned()])
            .collect(),
        mpi: args.mpi,
        rate: args.rate.clone(),
        lift: args.lift,
        timeout: args.timeout,
    };
    let mut samples = Samples::new(columns);
    let mut folded = Folded::default();
    for round in 0..args.repeats {
        for &hosts in &args.hosts {
            for mode in order(round) {
                eprint!("bench: round {}/{}, {hosts} hosts, {mode}: ", round + 1, args.repeats);
                let run = bench.run(hosts, mode)?;
                eprintln!("{:.1} s", run.seconds);
                folded.add(&run.folded);
                samples.add(round, hosts, mode, &run.csv, &run.folded)?;
            }
        }
    }
    Ok((samples, folded))
}

/// The program that measures: `target/mpi-tests/` lies beside `target/release/`.
fn program(args: &Args) -> Result<PathBuf> {
    let directory = match &args.programs {
        Some(directory) => directory.clone(),
        None => std::env::current_exe()
            .context("cannot find this executable")?
            .parent()
            .context("this executable is in no directory")?
            .with_file_name("mpi-tests"),
    };
    let name = if args.overlap { "overlap" } else { "latency" };
    let path = directory.join(args.mpi.name()).join(name);
    if !path.is_file() {
        bail!(
            "{} not found: make -C mpi-tests, or name its directory in --programs",
            path.display()
        );
    }
    Ok(path)
}
