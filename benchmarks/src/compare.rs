//! `foldback bench` without a subcommand: our own programs, latency and overlap.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use clap::ValueEnum;
use foldback::lab::launch::Mpi;
use foldback::output::{print, tell};

use super::measure::{self, Folded, Which};
use super::samples::{Of, Samples};
use super::setting::{Setting, comments, program};
use super::{charts, growth, latency, overlap, report};

/// Largest message: the programs' and MPI's counts fit an int by far, memory does not.
const MOST_BYTES: u64 = 16 << 20;

/// Options of this comparison alone.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub setting: Setting,

    /// Measure the overlap of non-blocking collectives, not the latency of blocking ones
    #[arg(long)]
    overlap: bool,

    /// Collectives, such as allreduce or, with --overlap, iallreduce [default: all]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    collective: Vec<String>,

    /// Message sizes in bytes, up to 16 MiB, multiples of 4 (of 8 with --type double) [default:
    /// some from 4 to 65536]
    ///
    /// Counted as in the OSU micro-benchmarks. Reductions and broadcasts: the vector, in both
    /// Reduce_scatters the whole one. Allgather and Gather: the part that a rank sends. Scatter:
    /// the part that a rank gets. Alltoall: the part that a rank sends to each.
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u64).range(4..=MOST_BYTES))]
    sizes: Vec<u64>,

    /// Type of the elements of messages
    #[arg(long = "type", value_enum, default_value = "int32", conflicts_with = "overlap")]
    element: Element,

    /// Fold messages of any size that can be folded, to find the size from which folding is slower
    #[arg(long)]
    lift: bool,

    /// Calls of MPI_Test while computing
    #[arg(long, value_name = "N", default_value_t = 0, requires = "overlap")]
    tests: u64,

    /// Calls timed for each size, a quarter of it above 8 KiB, ever fewer above 64 KiB
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..))]
    iterations: u64,

    /// MiB that the buffers of all ranks may take; what needs more is left out
    #[arg(long, value_name = "MIB", default_value_t = 2048, conflicts_with = "overlap",
          value_parser = clap::value_parser!(u64).range(1..))]
    memory: u64,

    /// Directory with openmpi4/latency, mpich5/overlap and so on [default: where make puts them]
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
}

/// A type that reductions add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Element {
    /// 4 bytes
    Int32,
    /// 8 bytes
    Double,
}

impl Element {
    fn name(self) -> &'static str {
        if self == Self::Double { "double" } else { "int32" }
    }

    fn bytes(self) -> u64 {
        if self == Self::Double { 8 } else { 4 }
    }
}

impl Args {
    /// Fills in what depends on other options, and checks what clap cannot.
    fn complete(&mut self) -> Result<()> {
        if self.setting.hosts.is_empty() {
            self.setting.hosts = if self.overlap { vec![2, 4] } else { vec![2, 4, 8] };
        }
        if self.sizes.is_empty() {
            self.sizes = match (self.overlap, self.lift) {
                (true, _) => vec![4, 64, 1024, 4096, 16384, 65536],
                (false, false) => vec![4, 64, 1400, 16384, 65536],
                (false, true) => vec![4, 64, 256, 704, 1400, 2800, 4096, 8192, 16384, 32768, 65536],
            };
            self.sizes[0] = self.element.bytes();
        }
        if let Some(size) =
            self.sizes.iter().find(|size| !size.is_multiple_of(self.element.bytes()))
        {
            bail!("--sizes {size}: not a multiple of {}", self.element.bytes());
        }
        ensure!(self.sizes.len() <= 32, "--sizes: 32 at most");
        let names = if self.overlap { overlap::COLLECTIVES } else { latency::COLLECTIVES };
        if self.collective.is_empty() {
            self.collective = names.iter().map(|name| (*name).to_owned()).collect();
        }
        if let Some(name) = self.collective.iter().find(|name| !names.contains(&name.as_str())) {
            bail!("--collective {name}: one of {}", names.join(", "));
        }
        Ok(())
    }

    fn arguments(&self) -> Vec<String> {
        let sizes: Vec<_> = self.sizes.iter().map(u64::to_string).collect();
        let mut pairs = vec![
            ("--collective", self.collective.join(",")),
            ("--sizes", sizes.join(",")),
            ("--iterations", self.iterations.to_string()),
        ];
        if self.overlap {
            pairs.push(("--tests", self.tests.to_string()));
        } else {
            pairs.push(("--type", self.element.name().to_owned()));
            pairs.push(("--memory", self.memory.to_string()));
        }
        pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }
}

/// Measures, and writes tables, charts and samples.
pub fn run(mut args: Args) -> Result<ExitCode> {
    args.complete()?;
    args.setting.make_out()?;
    let mut machine = args.setting.describe();
    let (samples, folded) = measure_all(&args)?;
    if folded.calls() == 0 {
        bail!(
            "not one call was folded in the runs with foldback, so there is nothing to compare: \
             {}",
            folded.reasons()
        );
    }
    if args.element == Element::Double {
        let reductions = latency::REDUCTIONS.join(", ");
        machine.push(format!("elements are doubles, which {reductions} add up"));
    }
    if args.lift {
        machine.push("with foldback, all sizes that can be folded were (--lift)".to_owned());
    }
    machine.push(format!("{} calls folded; to MPI: {}", folded.calls(), folded.reasons()));
    let conclusion = if args.overlap {
        write_overlap(&args, &samples, &machine)?;
        None
    } else {
        write_latency(&args, &samples, &machine)?
    };
    tell(format_args!("bench: table, charts and samples are in {}\n", args.setting.out.display()));
    if let Some(conclusion) = conclusion {
        print(format_args!("{conclusion}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the conclusion in short.
fn write_latency(args: &Args, samples: &Samples, machine: &[String]) -> Result<Option<String>> {
    let setting = &args.setting;
    let points = latency::points(samples);
    let table = report::markdown(&points, machine);
    let csv = |name: &str, rows: String| setting.write(name, &(comments(machine) + &rows));
    setting.write("table.md", &table)?;
    csv("samples.csv", samples.csv())?;
    csv("summary.csv", report::csv(&points))?;
    let growths = growth::growths(&points);
    if !growths.is_empty() {
        csv("growth.csv", growth::csv(&points))?;
    }
    let note = setting.note();
    for mpi in setting.mpi.iter().map(|mpi| mpi.name()) {
        for collective in &args.collective {
            let of = |p: &&latency::Point| p.collective == *collective && p.name == mpi;
            let mine: Vec<_> = points.iter().filter(of).collect();
            for (kind, svg) in [
                ("", charts::latency(&mine, collective, mpi, &note)?),
                ("-ratio", charts::ratio(&mine, collective, mpi, &note)?),
                ("-growth", charts::growth(&growths, collective, mpi, &note)?),
            ] {
                if let Some(svg) = svg {
                    setting
                        .write(&setting.chart_name(&format!("{collective}{kind}"), mpi), &svg)?;
                }
            }
        }
    }
    print(format_args!("{table}\n"))?;
    Ok(report::conclusion(&points))
}

fn write_overlap(args: &Args, samples: &Samples, machine: &[String]) -> Result<()> {
    let setting = &args.setting;
    let points = overlap::points(samples);
    let table = overlap::markdown(&points, machine, args.tests);
    setting.write("overlap.md", &table)?;
    setting.write("overlap.csv", &(comments(machine) + &samples.csv()))?;
    for mpi in setting.mpi.iter().map(|mpi| mpi.name()) {
        for collective in &args.collective {
            let of = |p: &&overlap::Point| p.collective == *collective && p.name == mpi;
            let mine: Vec<_> = points.iter().filter(of).collect();
            if let Some(svg) = charts::overlap(&mine, collective, mpi, &setting.note())? {
                setting.write(&setting.chart_name(collective, mpi), &svg)?;
            }
        }
    }
    print(format_args!("{table}\n"))?;
    Ok(())
}

fn measure_all(args: &Args) -> Result<(Samples, Folded)> {
    let name = if args.overlap { "overlap" } else { "latency" };
    let find = |mpi: Mpi| program(args.programs.as_deref(), mpi, name);
    let columns = if args.overlap { overlap::COLUMNS } else { latency::COLUMNS };
    let mut samples = Samples::new(columns);
    let folded =
        measure::all_rounds(&args.setting, find, &args.arguments(), args.lift, |which, run| {
            let Which { round, mpi, hosts, mode } = which;
            samples.add(Of { round, mpi, hosts, mode }, &run.output, &run.folded)
        })?;
    Ok((samples, folded))
}
