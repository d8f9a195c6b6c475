//! `foldback bench keys`: pairs reduced by key, beside the ways of plain MPI.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use foldback::lab::launch::Mpi;
use foldback::output::{print, tell};

use super::keys_report::{chart, csv, markdown, rows};
use super::keys_samples::{Of, Samples};
use super::measure::{self, Folded, Which};
use super::setting::{Setting, comments, program};

/// Compare a reduction of pairs by key with what plain MPI can do
///
/// Plain MPI sends pairs by MPI_Alltoallv and adds them up in hash tables: combined on each rank before, and
/// uncombined. Measures time, CPU time and bytes on the wire, over the number of different keys. Checks that all
/// ways have the same answer.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    setting: Setting,

    /// Numbers of different keys
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          default_value = "1000,100000,10000000",
          value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    keys: Vec<u64>,

    /// Pairs of all ranks together
    #[arg(long, value_name = "N", default_value_t = 10_000_000,
          value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pairs: u64,

    /// How often keys come
    #[arg(
        long,
        value_enum,
        value_name = "SKEW,...",
        value_delimiter = ',',
        default_value = "uniform"
    )]
    skew: Vec<Skew>,

    /// Reductions that are timed in each run
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u64).range(1..))]
    iterations: u64,

    /// Directory with openmpi4/pairs and so on [default: where make puts them]
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
}

/// How often keys come, by the names that `benchmarks/pairs.c` has.
#[derive(Clone, Copy, ValueEnum)]
enum Skew {
    /// All as often
    Uniform,
    /// The n-th one 1/n as often as the first
    Zipf,
    /// One of them 99 times of 100
    Hot,
}

/// Measures, and writes a table, CSVs and charts.
pub fn run(mut args: Args) -> Result<ExitCode> {
    if args.setting.hosts.is_empty() {
        args.setting.hosts = vec![2, 4, 8];
    }
    args.setting.make_out()?;
    let mut machine = args.setting.describe();
    machine.push(format!("{} pairs of uint64_t and int64_t, MPI_SUM", args.pairs));
    let (samples, folded) = measure_all(&args)?;
    machine.push(format!("{} calls folded; to MPI: {}", folded.calls(), folded.reasons()));
    let rows = rows(&samples);
    let table = markdown(&rows, &machine);
    args.setting.write("keys.md", &table)?;
    args.setting.write("keys.csv", &(comments(&machine) + &csv(&rows)))?;
    args.setting.write("keys-samples.csv", &(comments(&machine) + &samples.csv()))?;
    for mpi in &args.setting.mpi {
        for &hosts in &args.setting.hosts {
            for skew in &args.skew {
                let of = (*mpi, hosts, skew.name());
                if let Some(svg) = chart(&rows, of, &args.setting.note())? {
                    let subject = format!("keys-{}-{hosts}", skew.name());
                    args.setting.write(&args.setting.chart_name(&subject, mpi.name()), &svg)?;
                }
            }
        }
    }
    let out = args.setting.out.display();
    tell(format_args!("bench: the table, its numbers and charts are in {out}\n"));
    print(format_args!("{table}\n"))?;
    Ok(ExitCode::SUCCESS)
}

impl Skew {
    fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf",
            Self::Hot => "hot",
        }
    }
}

impl Args {
    /// The program's.
    fn arguments(&self) -> Vec<String> {
        let keys: Vec<_> = self.keys.iter().map(u64::to_string).collect();
        let skews: Vec<_> = self.skew.iter().map(|skew| skew.name()).collect();
        let pairs = [
            ("--keys", keys.join(",")),
            ("--pairs", self.pairs.to_string()),
            ("--skew", skews.join(",")),
            ("--iterations", self.iterations.to_string()),
        ];
        pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }
}

fn measure_all(args: &Args) -> Result<(Samples, Folded)> {
    let find = |mpi: Mpi| program(args.programs.as_deref(), mpi, "pairs");
    let mut samples = Samples::default();
    let folded =
        measure::all_rounds(&args.setting, find, &args.arguments(), false, |which, run| {
            let Which { round, mpi, hosts, mode } = which;
            samples.add(Of { round, mpi, hosts }, mode, &run.output)
        })?;
    Ok((samples, folded))
}
