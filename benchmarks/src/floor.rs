//! `foldback bench floor`: the time below which no fold over this fabric can be.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use foldback::lab::launch::Mpi;
use foldback::output::{print, tell};
use foldback::progress::Progress;

use super::arena::Arena;
use super::measure::{Bench, Folded, Job};
use super::mode::Mode;
use super::pingpong;
use super::samples::microseconds;
use super::samples::{Of, Samples, median};
use super::setting::{Setting, comments, program};
use super::{latency, samples};

/// Measure the least time of any fold: a frame to a peer's hook and back
///
/// Between two hosts of the same lab, with the same waiting as in a folded call, beside a 4-byte
/// Allreduce with and without foldback, in turns.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    setting: Setting,

    /// Frames, and calls of Allreduce, that are timed in a round
    #[arg(long, value_name = "N", default_value_t = 2000,
          value_parser = clap::value_parser!(u64).range(1..))]
    iterations: u64,

    /// Directory with openmpi4/latency and so on [default: where make puts them]
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
}

/// Measurements without MPI, and their descriptions.
const WAYS: [(&str, &str); 3] = [
    ("send", "a frame to the peer's hook, dropped there: the system call that sends it"),
    ("hook", "a frame to the peer's hook, sent back from there, until it is in memory"),
    ("process", "a datagram to a process of the peer, sent back from there, over sockets"),
];

/// A row of the table: the rounds' values in microseconds.
struct Row {
    name: String,
    text: String,
    mean: Vec<f64>,
    median: Vec<f64>,
    p99: Vec<f64>,
}

/// Measures, and writes a table and a CSV.
pub fn run(mut args: Args) -> Result<ExitCode> {
    if args.setting.hosts.iter().any(|&hosts| hosts != 2) {
        bail!("--hosts: the floor is measured between 2 hosts");
    }
    args.setting.hosts = vec![2];
    args.setting.make_out()?;
    let mut machine = args.setting.describe();
    let (mut rows, samples, folded) = measure_all(&args)?;
    if folded.calls_of("allreduce") == 0 {
        bail!("no Allreduce was folded, so there is nothing to compare: {}", folded.reasons());
    }
    machine.push(format!("{} calls folded; to MPI: {}", folded.calls(), folded.reasons()));
    let subjects = samples.subjects();
    for subject in &subjects {
        for mode in [Mode::Mpi, Mode::Foldback] {
            rows.push(row_of(subject, mode));
        }
    }
    let mut table = markdown(&rows, &subjects);
    for line in &machine {
        let _ = writeln!(table, "* {line}");
    }
    args.setting.write("floor.md", &table)?;
    args.setting.write("floor.csv", &(comments(&machine) + &csv(&rows)))?;
    print(format_args!("{table}\n"))?;
    tell(format_args!("bench: table and CSV are in {}\n", args.setting.out.display()));
    Ok(ExitCode::SUCCESS)
}

fn measure_all(args: &Args) -> Result<(Vec<Row>, Samples, Folded)> {
    let setting = &args.setting;
    let find = |&mpi: &Mpi| Ok((mpi, program(args.programs.as_deref(), mpi, "latency")?));
    let programs: Vec<(Mpi, PathBuf)> = setting.mpi.iter().map(find).collect::<Result<_>>()?;
    let iterations = args.iterations.to_string();
    let arguments = ["--collective", "allreduce", "--sizes", "4", "--iterations", &iterations];
    let arguments = arguments.map(str::to_owned);
    let arena = Arena::new(2, &setting.network())?;
    let bench = Bench::new(&arena, setting, false);
    let mut rows: Vec<Row> = WAYS.iter().map(|(name, text)| Row::new(name, text)).collect();
    let mut samples = Samples::new(latency::COLUMNS);
    let mut folded = Folded::default();
    let progress = Progress::with_lines("bench", setting.repeats * (1 + setting.runs()));
    for round in 0..setting.repeats {
        let iterations = usize::try_from(args.iterations)?;
        let what = format_args!("{}, frames alone", setting.round(round));
        let times = progress.step(what, || pingpong::measure(&arena.name, iterations))?;
        for (row, times) in rows.iter_mut().zip([times.send, times.hook, times.process]) {
            row.add(times);
        }
        for (mpi, mode) in setting.order(round) {
            let program = programs.iter().find(|(of, _)| *of == mpi);
            let program = &program.expect("one for each MPI").1;
            let job = Job { mpi, program, arguments: &arguments, hosts: 2, mode, quantize: None };
            let what = format_args!("{}, {mpi} {mode}", setting.round(round));
            let run = progress.step(what, || bench.run(&job))?;
            folded.add(&run.folded);
            samples.add(Of { round, mpi, hosts: 2, mode }, &run.output, &run.folded)?;
        }
    }
    Ok((rows, samples, folded))
}

fn row_of(subject: &samples::Subject<'_>, mode: Mode) -> Row {
    let (name, text) = match mode {
        Mode::Mpi => {
            (subject.mpi.name().to_owned(), format!("Allreduce of 4 bytes, {}", subject.mpi))
        }
        Mode::Foldback => (
            format!("foldback-{}", subject.mpi),
            format!("Allreduce of 4 bytes, foldback over {}", subject.mpi),
        ),
    };
    Row {
        mean: subject.values(mode, latency::MEAN),
        median: subject.values(mode, latency::MEDIAN),
        p99: subject.values(mode, latency::P99),
        ..Row::new(&name, &text)
    }
}

impl Row {
    fn new(name: &str, text: &str) -> Self {
        let (name, text) = (name.to_owned(), text.to_owned());
        Self { name, text, mean: Vec::new(), median: Vec::new(), p99: Vec::new() }
    }

    /// A round's times of single frames.
    fn add(&mut self, mut times: Vec<f64>) {
        times.sort_by(f64::total_cmp);
        self.mean.push(times.iter().sum::<f64>() / times.len() as f64);
        self.median.push(times[times.len() / 2]);
        self.p99.push(times[times.len() * 99 / 100]);
    }

    /// Median, least and greatest of the rounds' means.
    fn means(&self) -> [f64; 3] {
        let all = || self.mean.iter().copied();
        let middle = median(self.mean.clone()).unwrap_or(f64::NAN);
        [middle, all().fold(f64::MAX, f64::min), all().fold(f64::MIN, f64::max)]
    }
}

fn csv(rows: &[Row]) -> String {
    let mut text = "what,mean_us,mean_min_us,mean_max_us,median_us,p99_us\n".to_owned();
    for row in rows {
        let [mean, least, most] = row.means();
        let middle = |values: &Vec<f64>| median(values.clone()).unwrap_or(f64::NAN);
        let _ = writeln!(
            text,
            "{},{mean:.2},{least:.2},{most:.2},{:.2},{:.2}",
            row.name,
            middle(&row.median),
            middle(&row.p99)
        );
    }
    text
}

fn markdown(rows: &[Row], subjects: &[samples::Subject<'_>]) -> String {
    let mut text = String::from(
        "Two hosts; microseconds, the mean over calls: median of the rounds (least to greatest). Of \
         the frames, no MPI and no group takes part; they are as long as those of a folded Allreduce of \
         4 bytes, go through the same links and hooks, and are waited for in the same way (poll, then \
         yield). An Allreduce of two hosts needs no way back: each sends the other one frame, so \
         the system call that sends is what it cannot be faster than. Among more hosts it is the way there \
         and back.\n\n| what | mean | median call | p99 |",
    );
    for subject in subjects {
        let _ = write!(text, " {} / this |", subject.mpi);
    }
    let _ = writeln!(text, "\n|---|---:|---:|---:|{}", "---:|".repeat(subjects.len()));
    for row in rows {
        let [mean, least, most] = row.means();
        let middle = |values: &Vec<f64>| microseconds(median(values.clone()).unwrap_or(f64::NAN));
        let _ = write!(
            text,
            "| {} | {} ({} to {}) | {} | {} |",
            row.text,
            microseconds(mean),
            microseconds(least),
            microseconds(most),
            middle(&row.median),
            middle(&row.p99)
        );
        for subject in subjects {
            let mpi = subject.median(Mode::Mpi, latency::MEAN).unwrap_or(f64::NAN);
            let _ = write!(text, " {:.2} |", mpi / mean);
        }
        text.push('\n');
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_sums_up_rounds() {
        let mut row = Row::new("hook", "a frame");
        row.add(vec![1.0, 2.0, 3.0]);
        row.add(vec![5.0, 3.0, 4.0]);
        row.add(vec![9.0, 9.0, 9.0]);
        assert_eq!(row.means(), [4.0, 2.0, 9.0]);
        assert!(csv(&[row]).ends_with("\nhook,4.00,2.00,9.00,4.00,5.00\n"));
    }

    #[test]
    fn the_table_compares_every_row_with_the_mpi() {
        let mut samples = Samples::new(latency::COLUMNS);
        for (mode, mean) in [(Mode::Mpi, 12.0), (Mode::Foldback, 4.0)] {
            let columns = latency::COLUMNS.join(",");
            let csv = format!(
                "collective,bytes,ranks,iterations,calls,{columns}\n\
                 allreduce,4,2,10,12,1,2,3,{mean},5,6,7,8\n"
            );
            let of = Of { round: 0, mpi: Mpi::OpenMpi4, hosts: 2, mode };
            samples.add(of, &csv, &Folded::default()).unwrap();
        }
        let mut row = Row::new("hook", "a frame");
        row.add(vec![3.0]);
        let table = markdown(&[row], &samples.subjects());
        assert!(
            table.contains("| a frame | 3.00 (3.00 to 3.00) | 3.00 | 3.00 | 4.00 |"),
            "{table}"
        );
    }
}
