//! `foldback bench types`: an Allreduce of each type and op, beside MPI_SUM of int32_t.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use foldback::lab::launch::Mpi;
use foldback::output::{print, tell};

use super::arena::Arena;
use super::latency::{COLUMNS, MEAN, Point, points};
use super::measure::{Bench, Folded, Job};
use super::mode::Mode;
use super::samples::{Of, Samples, Subject, median, microseconds};
use super::setting::{Setting, comments, program};

/// Compare an Allreduce of each type and op with and without foldback
///
/// Also compares int32 sums of the same round: the cost of a type or an op beyond the frames.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    setting: Setting,

    /// Message sizes in bytes, multiples of 16 or 8
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', default_value = "8,64,1024",
          value_parser = clap::value_parser!(u64).range(8..=16 << 20))]
    sizes: Vec<u64>,

    /// Calls timed for each size, a quarter of it above 8 KiB, ever fewer above 64 KiB
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..))]
    iterations: u64,

    /// Directory with openmpi4/latency and so on [default: where make puts them]
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
}

/// A type and an op by the names that `benchmarks/latency.c` has for them, and the type's bytes.
struct Kind {
    element: &'static str,
    op: &'static str,
    bytes: u64,
}

const fn kind(element: &'static str, op: &'static str, bytes: u64) -> Kind {
    Kind { element, op, bytes }
}

/// Kinds for each way of folding, at least one. The first one is the base of the comparison.
const KINDS: &[Kind] = &[
    kind("int32", "sum", 4),
    kind("int32", "prod", 4),
    kind("int32", "max", 4),
    kind("int32", "band", 4),
    kind("int64", "sum", 8),
    kind("float", "sum", 4),
    kind("float", "max", 4),
    kind("double", "sum", 8),
    kind("double", "prod", 8),
    kind("double", "max", 8),
    kind("complex", "sum", 16),
    kind("longdouble", "sum", 16),
    kind("double", "user", 8),
];

/// A row of the results.
struct Row {
    kind: &'static Kind,
    point: Point,
    /// Median of the rounds' ratios of foldback's mean to the first kind's.
    beside_first: Option<f64>,
}

/// Measures, and writes a table and a CSV.
pub fn run(mut args: Args) -> Result<ExitCode> {
    if args.setting.hosts.is_empty() {
        args.setting.hosts = vec![2, 4, 8];
    }
    if let Some(size) = args.sizes.iter().find(|size| !size.is_multiple_of(8)) {
        bail!("--sizes {size}: not a multiple of 8");
    }
    ensure!(args.sizes.len() <= 32, "--sizes: 32 at most");
    args.setting.make_out()?;
    let mut machine = args.setting.describe();
    let (samples, folded) = measure_all(&args)?;
    if folded.calls_of("allreduce") == 0 {
        bail!("no Allreduce was folded, so there is nothing to compare: {}", folded.reasons());
    }
    machine.push(format!("{} calls folded; to MPI: {}", folded.calls(), folded.reasons()));
    let rows = rows(&samples);
    let table = markdown(&rows, &args.setting, &machine);
    args.setting.write("types.md", &table)?;
    args.setting.write("types.csv", &(comments(&machine) + &csv(&rows)))?;
    tell(format_args!("bench: the table and its numbers are in {}\n", args.setting.out.display()));
    print(format_args!("{table}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Samples of each kind.
fn measure_all(args: &Args) -> Result<(Vec<Samples>, Folded)> {
    let setting = &args.setting;
    let find = |&mpi: &Mpi| Ok((mpi, program(args.programs.as_deref(), mpi, "latency")?));
    let programs: Vec<(Mpi, PathBuf)> = setting.mpi.iter().map(find).collect::<Result<_>>()?;
    let arena = Arena::new(setting.most_hosts(), &setting.network())?;
    let bench = Bench::new(&arena, setting, false);
    let mut samples: Vec<_> = KINDS.iter().map(|_| Samples::new(COLUMNS)).collect();
    let mut folded = Folded::default();
    let mut measured: Vec<_> = KINDS.iter().zip(&mut samples).collect();
    measured.retain(|(kind, _)| !kind.sizes(args).is_empty());
    let progress = setting.progress(measured.len());
    for round in 0..setting.repeats {
        for &hosts in &setting.hosts {
            for (kind, samples) in &mut measured {
                for (mpi, mode) in setting.order(round) {
                    let program = programs.iter().find(|(of, _)| *of == mpi);
                    let program = &program.expect("one for each MPI").1;
                    let arguments = kind.arguments(args);
                    let job =
                        Job { mpi, program, arguments: &arguments, hosts, mode, quantize: None };
                    let Kind { element, op, .. } = kind;
                    let round_of = setting.round(round);
                    let what =
                        format_args!("{round_of}, {hosts} hosts, {element} {op}, {mpi} {mode}");
                    let run = progress.step(what, || bench.run(&job))?;
                    folded.add(&run.folded);
                    samples.add(Of { round, mpi, hosts, mode }, &run.output, &run.folded)?;
                }
            }
        }
    }
    Ok((samples, folded))
}

impl Kind {
    /// Sizes of whole elements.
    fn sizes(&self, args: &Args) -> Vec<String> {
        let whole = args.sizes.iter().filter(|size| size.is_multiple_of(self.bytes));
        whole.map(u64::to_string).collect()
    }

    fn arguments(&self, args: &Args) -> Vec<String> {
        let pairs = [
            ("--collective", "allreduce".to_owned()),
            ("--type", self.element.to_owned()),
            ("--op", self.op.to_owned()),
            ("--sizes", self.sizes(args).join(",")),
            ("--iterations", args.iterations.to_string()),
        ];
        pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }
}

fn rows(samples: &[Samples]) -> Vec<Row> {
    let first = samples.first().map(Samples::subjects).unwrap_or_default();
    let mut rows = Vec::new();
    for (kind, samples) in KINDS.iter().zip(samples) {
        let subjects = samples.subjects();
        for point in points(samples) {
            let same = |subject: &&Subject<'_>| {
                (subject.mpi.name(), subject.hosts, subject.bytes)
                    == (&*point.name, point.hosts, point.bytes)
            };
            let means = |subject: &Subject<'_>| subject.values(Mode::Foldback, MEAN);
            let both = subjects.iter().find(same).zip(first.iter().find(same));
            let beside_first = both.and_then(|(mine, first)| {
                let pairs = means(mine).into_iter().zip(means(first));
                median(pairs.map(|(mine, first)| mine / first).collect())
            });
            rows.push(Row { kind, point, beside_first });
        }
    }
    rows
}

fn csv(rows: &[Row]) -> String {
    let mut text = "mpi,type,op,hosts,ranks,bytes,folded,mpi_us,foldback_us,ratio,ratio_min,\
                    ratio_max,to_int32_sum\n"
        .to_owned();
    for Row { kind, point: p, beside_first } in rows {
        let beside = beside_first.map_or_else(String::new, |ratio| format!("{ratio:.3}"));
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{},{:.2},{:.2},{:.3},{:.3},{:.3},{beside}",
            p.name,
            kind.element,
            kind.op,
            p.hosts,
            p.ranks,
            p.bytes,
            u8::from(p.folded),
            p.mpi.mean,
            p.foldback.mean,
            p.ratio,
            p.ratio_min,
            p.ratio_max
        );
    }
    text
}

fn markdown(rows: &[Row], setting: &Setting, machine: &[String]) -> String {
    let mut text = "# Allreduce by type and op\n\nMicroseconds with foldback; in brackets the MPI's time divided by it, \
                    and it divided by that of int32 sum. Medians of rounds. Left to MPI: –\n"
        .to_owned();
    for mpi in &setting.mpi {
        for &hosts in &setting.hosts {
            let of = |row: &&Row| row.point.name == mpi.name() && row.point.hosts == hosts;
            let mine: Vec<_> = rows.iter().filter(of).collect();
            let mut sizes: Vec<_> = mine.iter().map(|row| row.point.bytes).collect();
            sizes.sort_unstable();
            sizes.dedup();
            let _ = write!(text, "\n## {mpi}, {hosts} hosts\n\n| type | op |");
            sizes.iter().for_each(|size| text += &format!(" {size} B |"));
            let _ = write!(text, "\n|---|---|{}\n", "---|".repeat(sizes.len()));
            for kind in KINDS {
                let _ = write!(text, "| {} | {} |", kind.element, kind.op);
                for size in &sizes {
                    let of = |row: &&&Row| row.is_of(kind) && row.point.bytes == *size;
                    let cell = mine.iter().find(of).map_or_else(String::new, |row| row.cell());
                    let _ = write!(text, " {cell} |");
                }
                text.push('\n');
            }
        }
    }
    text.push('\n');
    machine.iter().for_each(|fact| text += &format!("* {fact}\n"));
    text
}

impl Row {
    fn is_of(&self, kind: &Kind) -> bool {
        std::ptr::eq(self.kind, kind)
    }

    /// "5.1 (2.2, 1.03)"
    fn cell(&self) -> String {
        if !self.point.folded {
            return "–".to_owned();
        }
        let beside = self.beside_first.map_or_else(String::new, |ratio| format!(", {ratio:.2}"));
        format!("{} ({:.1}{beside})", microseconds(self.point.foldback.mean), self.point.ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two rounds, of which foldback took `us` and twice as much, Open MPI ten times that.
    fn samples(us: f64) -> Samples {
        let mut samples = Samples::new(COLUMNS);
        for round in 0..2 {
            for (mode, times) in [(Mode::Mpi, 10.0), (Mode::Foldback, 1.0)] {
                let mean = us * times * (round + 1) as f64;
                let csv = format!(
                    "collective,bytes,ranks,iterations,calls,{}\nallreduce,8,2,9,9,1,1,1,{mean},1,1,1,1\n",
                    COLUMNS.join(",")
                );
                let folded = r#"{"collectives": [{"collective": "Allreduce", "form": "Blocking",
                    "calls": 18, "reason": null}], "routes": []}"#;
                let folded = Folded::parse(folded).unwrap();
                let of = Of { round, mpi: Mpi::OpenMpi4, hosts: 2, mode };
                samples.add(of, &csv, &folded).unwrap();
            }
        }
        samples
    }

    #[test]
    fn kinds_are_compared_with_the_mpi_and_with_the_first() {
        let rows = rows(&[samples(4.0), samples(5.0)]);
        let cells: Vec<_> = rows.iter().map(Row::cell).collect();
        assert_eq!(cells, ["6.00 (10.0, 1.00)", "7.50 (10.0, 1.25)"]);
        let csv = csv(&rows);
        let last = "openmpi4,int32,prod,2,2,8,1,75.00,7.50,10.000,10.000,10.000,1.250";
        assert_eq!(csv.lines().last(), Some(last));
    }
}
