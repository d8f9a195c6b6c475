//! `foldback bench quantize`: long sums of floating point, quantized in each way, beside the MPIs' own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use clap::ValueEnum;
use foldback::lab::launch::Mpi;
use foldback::output::{print, tell};
use foldback::progress::Progress;

use super::arena::Arena;
use super::latency::{COLUMNS, points};
use super::measure::{Bench, Job, Run};
use super::mode::Mode;
use super::quantize_report::{Row, chart, csv, markdown};
use super::samples::{Of, Samples};
use super::setting::{Setting, comments, program};

/// Compare an Allreduce of floats, quantized in several ways, with the MPIs' own
///
/// Measures time, bytes on the wire, and how far sums are from the exact ones. With more than one MPI, also compares
/// the time with the fastest one's in each round.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    setting: Setting,

    /// Values of FOLDBACK_QUANTIZE, one for each way [default: off, fixed32, int16, int8]
    #[arg(long = "mode", value_name = "MODE")]
    modes: Vec<String>,

    /// Message sizes in bytes, multiples of 8
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',',
          default_value = "65536,1048576,4194304,16777216",
          value_parser = clap::value_parser!(u64).range(8..=64 << 20))]
    sizes: Vec<u64>,

    /// Type of the elements of messages
    #[arg(long = "type", value_enum, value_name = "TYPE", default_value = "float")]
    element: Element,

    /// Calls timed for each size, a quarter of it above 8 KiB, ever fewer above 64 KiB
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..))]
    iterations: u64,

    /// Directory with openmpi4/latency and so on [default: where make puts them]
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
}

/// Type of the elements of messages.
#[derive(Clone, Copy, ValueEnum)]
enum Element {
    /// 4 bytes
    Float,
    /// 8 bytes
    Double,
}

/// The ways to compare unless others are named.
const MODES: [&str; 4] = ["off", "fixed32", "int16", "int8"];

/// Mean and greatest error, by mode (`None`: the MPI), hosts and bytes.
type Errors = BTreeMap<(Option<usize>, u64, u64), [f64; 2]>;

/// Measures, and writes a table, a CSV and charts.
pub fn run(mut args: Args) -> Result<ExitCode> {
    if args.setting.hosts.is_empty() {
        args.setting.hosts = vec![2, 4, 8];
    }
    if args.modes.is_empty() {
        args.modes = MODES.map(str::to_owned).to_vec();
    }
    if let Some(size) = args.sizes.iter().find(|size| !size.is_multiple_of(8)) {
        bail!("--sizes {size}: not a multiple of 8");
    }
    ensure!(args.sizes.len() <= 32, "--sizes: 32 at most");
    args.setting.make_out()?;
    let mut machine = args.setting.describe();
    machine.push(format!("MPI_Allreduce, MPI_SUM of {}", args.element_name()));
    let (samples, errors) = measure_all(&args)?;
    let rows = rows(&args, &samples, &errors);
    let table = markdown(&rows, &machine);
    args.setting.write("quantize.md", &table)?;
    args.setting.write("quantize.csv", &(comments(&machine) + &csv(&rows)))?;
    for mpi in &args.setting.mpi {
        for &hosts in &args.setting.hosts {
            if let Some(svg) = chart(&rows, mpi.name(), hosts, &args.setting.note())? {
                let name = args.setting.chart_name(&format!("quantize-{hosts}"), mpi.name());
                args.setting.write(&name, &svg)?;
            }
        }
    }
    let out = args.setting.out.display();
    tell(format_args!("bench: the table, its numbers and charts are in {out}\n"));
    print(format_args!("{table}\n"))?;
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn element_name(&self) -> &'static str {
        match self.element {
            Element::Float => "float",
            Element::Double => "double",
        }
    }

    /// The arguments of both programs.
    fn what(&self) -> Vec<String> {
        let sizes: Vec<_> = self.sizes.iter().map(u64::to_string).collect();
        ["--type", self.element_name(), "--sizes", &sizes.join(",")].map(str::to_owned).to_vec()
    }

    /// Without foldback, and each mode.
    fn ways(&self) -> impl Iterator<Item = Option<usize>> {
        std::iter::once(None).chain((0..self.modes.len()).map(Some))
    }

    /// The runs of a round: each MPI alone, and with foldback in each mode, forth and back.
    fn order(&self, round: u64) -> Vec<(Mpi, Option<usize>)> {
        let both = |&mpi| self.ways().map(move |way| (mpi, way));
        let mut runs: Vec<_> = self.setting.mpi.iter().flat_map(both).collect();
        if !round.is_multiple_of(2) {
            runs.reverse();
        }
        runs
    }

    /// One run of a program. Fails if a mode quantizes nothing.
    fn run(
        &self,
        bench: &Bench<'_>,
        progress: &Progress,
        (name, arguments): (&str, &[String]),
        (mpi, hosts, way): (Mpi, u64, Option<usize>),
        when: &str,
    ) -> Result<Run> {
        let program = &program(self.programs.as_deref(), mpi, name)?;
        let quantize = way.map_or("off", |way| self.modes[way].as_str());
        let mode = if way.is_some() { Mode::Foldback } else { Mode::Mpi };
        let job = Job { mpi, program, arguments, hosts, mode, quantize: Some(quantize) };
        let said =
            way.map_or_else(|| "without".to_owned(), |_| format!("with foldback, {quantize}"));
        let what = format_args!("{when}, {hosts} hosts, {mpi} {said}");
        let run = progress.step(what, || bench.run(&job))?;
        if quantize != "off" && run.folded.quantized == 0 {
            bail!("--mode {quantize}: nothing was quantized");
        }
        Ok(run)
    }
}

/// Samples of each mode, and errors.
fn measure_all(args: &Args) -> Result<(Vec<Samples>, Errors)> {
    let setting = &args.setting;
    let arena = Arena::new(setting.most_hosts(), &setting.network())?;
    let bench = Bench::new(&arena, setting, false);
    let runs = args.order(0).len() as u64 * setting.repeats + args.ways().count() as u64;
    let progress = Progress::with_lines("bench", runs * setting.hosts.len() as u64);
    let errors = errors(args, &bench, &progress)?;
    Ok((samples(args, &bench, &progress)?, errors))
}

/// The errors, which are the same in every round, and by integers on every MPI.
fn errors(args: &Args, bench: &Bench<'_>, progress: &Progress) -> Result<Errors> {
    let mut errors = Errors::new();
    let (mpi, arguments) = (args.setting.mpi[0], args.what());
    for &hosts in &args.setting.hosts {
        for way in args.ways() {
            let what = ("accuracy", arguments.as_slice());
            let run = args.run(bench, progress, what, (mpi, hosts, way), "accuracy")?;
            for line in run.output.lines() {
                let fields: Vec<f64> = line.split(',').flat_map(str::parse).collect();
                if let [bytes, _, mean, most] = fields[..] {
                    errors.insert((way, hosts, bytes as u64), [mean, most]);
                }
            }
        }
    }
    Ok(errors)
}

/// Samples of each mode. Samples of the MPIs alone are added to all modes, for comparison.
fn samples(args: &Args, bench: &Bench<'_>, progress: &Progress) -> Result<Vec<Samples>> {
    let setting = &args.setting;
    let mut samples: Vec<_> = args.modes.iter().map(|_| Samples::new(COLUMNS)).collect();
    let mut arguments = args.what();
    arguments.extend(["--iterations".to_owned(), args.iterations.to_string()]);
    for round in 0..setting.repeats {
        for &hosts in &setting.hosts {
            for (mpi, way) in args.order(round) {
                let (what, when) = (("latency", arguments.as_slice()), setting.round(round));
                let run = args.run(bench, progress, what, (mpi, hosts, way), &when)?;
                let mode = way.map_or(Mode::Mpi, |_| Mode::Foldback);
                for (_, samples) in samples
                    .iter_mut()
                    .enumerate()
                    .filter(|(of, _)| way.is_none_or(|way| way == *of))
                {
                    samples.add(Of { round, mpi, hosts, mode }, &run.output, &run.folded)?;
                }
            }
        }
    }
    Ok(samples)
}

fn rows(args: &Args, samples: &[Samples], errors: &Errors) -> Vec<Row> {
    let mut rows = Vec::new();
    for (way, samples) in samples.iter().enumerate() {
        for point in points(samples) {
            let error = |way| errors.get(&(way, point.hosts, point.bytes)).copied();
            rows.push(Row {
                mode: args.modes[way].clone(),
                error: error(Some(way)),
                mpi_error: error(None),
                point,
            });
        }
    }
    rows
}
