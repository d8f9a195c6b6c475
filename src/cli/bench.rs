//! `foldback bench`: the same MPI program with and without foldback, in turns.

mod chart;
mod machine;
mod measure;
mod report;
mod samples;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::lab::launch::Mpi;
use measure::{Bench, Mode};
use samples::Samples;

/// Compare the same MPI program with and without foldback
///
/// Each round measures every number of hosts once with and once without, each time in a lab made
/// for it (programs attached for the one would slow the other down), and in changing order. A ratio
/// is that of two runs of one round. Tables, charts and all samples go to --out.
#[derive(clap::Args)]
pub struct Args {
    /// MPI to compare with
    #[arg(long, value_enum, default_value = "openmpi4")]
    mpi: Mpi,

    /// Numbers of hosts, one rank on each
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "2,4,8",
          value_parser = clap::value_parser!(u64).range(2..=64))]
    hosts: Vec<u64>,

    /// Collectives: allreduce, reduce, bcast, barrier
    #[arg(long, value_name = "NAME,...", value_delimiter = ',',
          default_value = "allreduce,reduce,bcast,barrier",
          value_parser = ["allreduce", "reduce", "bcast", "barrier"])]
    collective: Vec<String>,

    /// Message sizes in bytes, multiples of 4
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',',
          default_value = "4,64,1400,16384,65536",
          value_parser = clap::value_parser!(u64).range(4..))]
    sizes: Vec<u64>,

    /// Rounds
    #[arg(long, value_name = "R", default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(1..))]
    repeats: u64,

    /// Calls timed for each size, a quarter of it above 8 KiB
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..))]
    iterations: u64,

    /// Seconds that one run may take
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,

    /// Where the results go
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,

    /// Directory with openmpi4/latency, mpich5/latency and so on [default: where make puts them]
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<ExitCode> {
    let bench = Bench {
        program: program(&args)?,
        mpi: args.mpi,
        collectives: args.collective.clone(),
        sizes: args.sizes.clone(),
        iterations: args.iterations,
        timeout: args.timeout,
    };
    fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot make the directory {}", args.out.display()))?;
    let machine = machine::describe(args.mpi);
    let (samples, folded) = measure_all(&bench, &args)?;
    if folded.calls == 0 {
        bail!(
            "not one call was folded in the runs with foldback, so there is nothing to compare: \
             {}",
            folded.reasons()
        );
    }

    let points = samples.points();
    let table = report::markdown(&points, &machine, args.mpi.name(), &folded);
    println!("{table}");
    let write = |name: &str, text: &str| {
        let path = args.out.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    write("table.md", &table)?;
    write("samples.csv", &samples.csv())?;
    write("summary.csv", &report::csv(&points))?;
    for collective in &args.collective {
        if let Some(svg) = chart::draw(&points, collective, args.mpi.name())? {
            write(&format!("{collective}.svg"), &svg)?;
        }
    }
    eprintln!("bench: table, charts and samples are in {}", args.out.display());
    Ok(ExitCode::SUCCESS)
}

/// A before B, then B before A: what drifts meanwhile hits both.
fn order(round: u64) -> [Mode; 2] {
    if round.is_multiple_of(2) { [Mode::Mpi, Mode::Foldback] } else { [Mode::Foldback, Mode::Mpi] }
}

fn measure_all(bench: &Bench, args: &Args) -> Result<(Samples, measure::Folded)> {
    let mut samples = Samples::default();
    let mut folded = measure::Folded::default();
    for round in 0..args.repeats {
        for &hosts in &args.hosts {
            for mode in order(round) {
                eprint!("bench: round {}/{}, {hosts} hosts, {mode}: ", round + 1, args.repeats);
                let run = bench.run(hosts, mode)?;
                eprintln!("{:.1} s", run.seconds);
                folded.add(&run.folded);
                samples.add(round, hosts, mode, &run.csv)?;
            }
        }
    }
    Ok((samples, folded))
}

/// The latency program: `target/mpi-tests/` lies beside `target/release/`.
fn program(args: &Args) -> Result<PathBuf> {
    let directory = match &args.programs {
        Some(directory) => directory.clone(),
        None => std::env::current_exe()
            .context("cannot find this executable")?
            .parent()
            .context("this executable is in no directory")?
            .with_file_name("mpi-tests"),
    };
    let path = directory.join(args.mpi.name()).join("latency");
    if !path.is_file() {
        bail!(
            "{} not found: make -C mpi-tests, or name its directory in --programs",
            path.display()
        );
    }
    Ok(path)
}
