//! `foldback bench osu`: the user's own OSU micro-benchmarks with and without foldback, in turns.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use foldback::lab::launch::Mpi;
use foldback::output::{print, tell};

use super::arena::Arena;
use super::charts;
use super::measure::{Bench, Folded, Job};
use super::mode::Mode;
use super::osu_report::{self, Point};
use super::osu_table::{self, Table};
use super::setting::{Setting, comments};

/// Compare OSU micro-benchmarks with and without foldback
///
/// Runs all programs of the OSU micro-benchmarks that are below --osu-dir, built for --mpi, and
/// compares their results. All runs are in one lab, in changing order.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    setting: Setting,

    /// Directory that has osu_allreduce and so on, somewhere below
    #[arg(long, value_name = "DIR")]
    osu_dir: PathBuf,

    /// Programs [default: all blocking collectives that are there]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    programs: Vec<String>,

    /// Message sizes in bytes (-m)
    #[arg(long, value_name = "LEAST:MOST", default_value = "4:65536", value_parser = sizes)]
    sizes: String,

    /// Calls timed for each size (-i)
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..))]
    iterations: u64,

    /// Untimed calls before (-x)
    #[arg(long, value_name = "N", default_value_t = 200)]
    warmup: u64,

    /// Element of reductions (-T); none: the programs' default, which is no integer that folds
    #[arg(long = "type", value_name = "TYPE", default_value = "mpi_int")]
    element: String,

    /// Let the programs check their results (-c)
    #[arg(long, short = 'c')]
    check: bool,

    /// Fold messages of any size that can be folded
    #[arg(long)]
    lift: bool,
}

/// Run if none is named.
const COLLECTIVES: &[&str] = &[
    "osu_allreduce",
    "osu_reduce",
    "osu_bcast",
    "osu_barrier",
    "osu_allgather",
    "osu_allgatherv",
    "osu_gather",
    "osu_scatter",
    "osu_reduce_scatter",
    "osu_reduce_scatter_block",
    "osu_alltoall",
];

/// One program of one round, one way.
struct Sample {
    round: u64,
    mpi: Mpi,
    hosts: u64,
    mode: Mode,
    program: String,
    /// Calls of the collective, over all ranks, that were folded.
    folded: u64,
    table: Table,
}

/// Measures, and writes tables and charts.
pub fn run(mut args: Args) -> Result<ExitCode> {
    if args.setting.hosts.is_empty() {
        args.setting.hosts = vec![2, 4, 8];
    }
    let programs = find_all(&args)?;
    args.setting.make_out()?;
    let mut machine = args.setting.describe();
    machine.push(format!(
        "OSU micro-benchmarks in {}: -m {} -i {} -x {}{}{}",
        args.osu_dir.display(),
        args.sizes,
        args.iterations,
        args.warmup,
        if args.element == "none" { String::new() } else { format!(" -T {}", args.element) },
        if args.check { " -c, and all found their answers right" } else { "" },
    ));
    if args.lift {
        machine.push("with foldback, all sizes that can be folded were (--lift)".to_owned());
    }
    let (samples, folded) = measure_all(&args, &programs)?;
    machine.push(format!("{} calls folded; to MPI: {}", folded.calls(), folded.reasons()));
    let points = points(&samples);
    let table = osu_report::markdown(&points, &machine);
    args.setting.write("osu.md", &table)?;
    args.setting.write("osu.csv", &(comments(&machine) + &osu_report::csv(&points)))?;
    args.setting.write("osu-samples.csv", &(comments(&machine) + &samples_csv(&samples)))?;
    draw(&args, &points)?;
    print(format_args!("{table}\n"))?;
    tell(format_args!("bench: table, charts and samples are in {}\n", args.setting.out.display()));
    Ok(ExitCode::SUCCESS)
}

fn sizes(text: &str) -> Result<String, String> {
    let parse = |size: &str| size.parse::<u64>().ok().filter(|&size| size > 0);
    match text.split_once(':').and_then(|(least, most)| Some((parse(least)?, parse(most)?))) {
        Some((least, most)) if least <= most => Ok(text.to_owned()),
        _ => Err("write the least and the greatest size, such as 4:65536".into()),
    }
}

/// Name and path of each program to run.
fn find_all(args: &Args) -> Result<Vec<(String, PathBuf)>> {
    let directory = &args.osu_dir;
    ensure!(directory.is_dir(), "--osu-dir: {} is no directory", directory.display());
    let directory = fs::canonicalize(directory)
        .with_context(|| format!("--osu-dir: cannot read {}", directory.display()))?;
    let mut found = BTreeMap::new();
    collect(&directory, &mut found);
    if args.programs.is_empty() {
        let there = COLLECTIVES.iter().filter_map(|name| found.remove_entry(*name));
        let programs: Vec<_> = there.collect();
        ensure!(
            !programs.is_empty(),
            "--osu-dir: {} has no osu_allreduce or other blocking collective",
            directory.display()
        );
        return Ok(programs);
    }
    let named = |name: &String| match found.remove_entry(name) {
        Some(program) => Ok(program),
        None => bail!("--programs: {} has no program {name}", directory.display()),
    };
    args.programs.iter().map(named).collect()
}

/// Programs whose names begin with `osu_`; of those with the same name, the first.
fn collect(directory: &Path, found: &mut BTreeMap<String, PathBuf>) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        // Libtool keeps what it links in .libs.
        if path.is_dir() && name != ".libs" && !path.is_symlink() {
            collect(&path, found);
        } else if name.starts_with("osu_") && is_executable(&path) {
            found.entry(name.to_owned()).or_insert(path);
        }
    }
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

impl Args {
    fn arguments(&self, program: &str) -> Vec<String> {
        let mut arguments: Vec<String> = Vec::new();
        if !program.contains("barrier") {
            arguments.extend(["-m".to_owned(), self.sizes.clone()]);
        }
        arguments.extend(["-i".to_owned(), self.iterations.to_string()]);
        arguments.extend(["-x".to_owned(), self.warmup.to_string()]);
        if program.contains("reduce") && self.element != "none" {
            arguments.extend(["-T".to_owned(), self.element.clone()]);
        }
        if self.check && !program.contains("barrier") {
            arguments.push("-c".to_owned());
        }
        arguments
    }
}

fn measure_all(args: &Args, programs: &[(String, PathBuf)]) -> Result<(Vec<Sample>, Folded)> {
    let setting = &args.setting;
    let arena = Arena::new(setting.most_hosts(), &setting.network())?;
    let bench = Bench::new(&arena, setting, args.lift);
    let mut samples = Vec::new();
    let mut folded = Folded::default();
    let progress = setting.progress(programs.len());
    for round in 0..setting.repeats {
        for &hosts in &setting.hosts {
            for (name, program) in programs {
                let arguments = args.arguments(name);
                for (mpi, mode) in setting.order(round) {
                    let job =
                        Job { mpi, program, arguments: &arguments, hosts, mode, quantize: None };
                    let round_of = setting.round(round);
                    let what = format_args!("{round_of}, {hosts} hosts, {name}, {mpi} {mode}");
                    let run =
                        progress.step(what, || bench.run(&job)).with_context(|| name.clone())?;
                    let table = osu_table::parse(&run.output).with_context(|| name.clone())?;
                    folded.add(&run.folded);
                    let collective = osu_table::collective(name);
                    let folded = run.folded.calls_of(&collective);
                    let program = name.clone();
                    samples.push(Sample { round, mpi, hosts, mode, program, folded, table });
                }
            }
        }
    }
    Ok((samples, folded))
}

/// Both ways of each program, MPI, number of hosts and size that was measured both ways.
fn points(samples: &[Sample]) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for sample in samples {
        for &(bytes, value) in &sample.table.rows {
            let key = (sample.mpi.name(), sample.program.as_str(), sample.hosts, bytes);
            let at = points
                .iter()
                .position(|p| (p.mpi.as_str(), p.program.as_str(), p.hosts, p.bytes) == key)
                .unwrap_or_else(|| {
                    let (mpi, program, hosts, bytes) = key;
                    points.push(Point::new(mpi, program, hosts, bytes, &sample.table.unit));
                    points.len() - 1
                });
            points[at].add(sample.round, sample.mode, value, sample.folded > 0);
        }
    }
    points.retain(Point::is_complete);
    points
        .sort_by_key(|point| (point.mpi.clone(), point.program.clone(), point.hosts, point.bytes));
    points
}

fn samples_csv(samples: &[Sample]) -> String {
    let mut text = "round,mpi,mode,hosts,program,bytes,folded_calls,value,unit\n".to_owned();
    for s in samples {
        for (bytes, value) in &s.table.rows {
            let of = format!("{},{},{},{}", s.round, s.mpi, s.mode.name(), s.hosts);
            text += &format!("{of},{},{bytes},{},{value},{}\n", s.program, s.folded, s.table.unit);
        }
    }
    text
}

fn draw(args: &Args, points: &[Point]) -> Result<()> {
    let note = args.setting.note();
    let mut drawn: Vec<(&str, &str)> = Vec::new();
    for point in points {
        let key = (point.mpi.as_str(), point.program.as_str());
        if drawn.contains(&key) {
            continue;
        }
        drawn.push(key);
        let mine: Vec<_> = points
            .iter()
            .filter(|p| (p.mpi.as_str(), p.program.as_str()) == key)
            .map(Point::to_chart)
            .collect();
        let (mpi, program) = key;
        let latency = charts::latency_of(&mine, program, &point.unit, mpi, &note)?;
        let ratio = charts::ratio_of(&mine, &format!("{program}: {mpi} / foldback"), &note)?;
        for (kind, svg) in [("", latency), ("-ratio", ratio)] {
            if let Some(svg) = svg {
                args.setting
                    .write(&args.setting.chart_name(&format!("{program}{kind}"), mpi), &svg)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_least_and_most() {
        assert!(sizes("4:65536").is_ok() && sizes("4:4").is_ok());
        for wrong in ["4", "8:4", "0:4", "a:b", ":", "4:8:16"] {
            assert!(sizes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rounds_and_ways_come_together() {
        let sample = |round, mode, value| Sample {
            round,
            mpi: Mpi::OpenMpi4,
            hosts: 2,
            mode,
            program: "osu_bcast".into(),
            folded: 7,
            table: Table { unit: "us".into(), rows: vec![(4, value)] },
        };
        let samples = [
            sample(0, Mode::Mpi, 10.0),
            sample(0, Mode::Foldback, 5.0),
            sample(1, Mode::Foldback, 4.0),
            sample(1, Mode::Mpi, 12.0),
        ];
        let points = points(&samples);
        assert_eq!(points.len(), 1);
        assert_eq!(points[0].ratios(), [2.0, 3.0]);
        assert_eq!(samples_csv(&samples).lines().count(), 5);
    }
}
