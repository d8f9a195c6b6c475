//! The output of the OSU micro-benchmarks.

use anyhow::{Result, bail, ensure};

/// A table of sizes and measured values.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The unit of the values, for example "us".
    pub unit: String,
    /// Bytes, and the first value beside them. Latency programs give the mean over calls and ranks;
    /// overlap programs give the whole time. Programs without sizes (Barrier): 0 bytes.
    pub rows: Vec<(u64, f64)>,
}

/// Finds the table in a program's output.
///
/// The heading is the last line of comment that names a column with its unit in brackets:
///
/// ```text
/// # Size       Avg Latency(us)      Validation
/// 4                       3.21            Pass
/// ```
///
/// # Errors
/// No table, a value that is not a time, or an answer that the program found wrong.
pub fn parse(output: &str) -> Result<Table> {
    let mut heading: Option<Heading> = None;
    let mut rows = Vec::new();
    for line in output.lines() {
        if let Some(comment) = line.trim_start().strip_prefix('#') {
            if rows.is_empty() {
                heading = Heading::of(comment).or(heading);
            }
            continue;
        }
        let Some(heading) = &heading else { continue };
        let words: Vec<&str> = line.split_whitespace().collect();
        ensure!(
            !words.iter().any(|word| word.eq_ignore_ascii_case("fail")),
            "the program found an answer wrong: {}",
            line.trim()
        );
        rows.extend(heading.row(&words));
    }
    let Some(heading) = heading else { bail!("the program printed no table:\n{output}") };
    ensure!(!rows.is_empty(), "the program's table is empty:\n{output}");
    ensure!(
        heading.unit == "us" || heading.unit == "ms",
        "the program measures no time but {}, of which more is better",
        heading.unit
    );
    Ok(Table { unit: heading.unit, rows })
}

struct Heading {
    has_size: bool,
    unit: String,
}

impl Heading {
    fn of(comment: &str) -> Option<Self> {
        // The first unit in brackets; titles have none.
        let (_, rest) = comment.split_once('(')?;
        let (unit, _) = rest.split_once(')')?;
        let has_size = comment.split_whitespace().next() == Some("Size");
        let known = has_size || comment.contains("Latency") || comment.contains("Overall");
        known.then(|| Self { has_size, unit: unit.to_owned() })
    }

    fn row(&self, words: &[&str]) -> Option<(u64, f64)> {
        let (bytes, rest) =
            if self.has_size { (words.first()?.parse().ok()?, &words[1..]) } else { (0, words) };
        let value: f64 = rest.first()?.parse().ok()?;
        (value.is_finite() && value >= 0.0).then_some((bytes, value))
    }
}

/// The collective of a program, as the statistics name it: "iallreduce" of "osu_iallreduce".
pub fn collective(program: &str) -> String {
    let name = program.strip_prefix("osu_").unwrap_or(program);
    name.strip_suffix("_persistent").unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_latencies_is_read() {
        let output = "\n# OSU MPI Allreduce Latency Test v7.3\n# Datatype: MPI_INT.\n\
                      # Size       Avg Latency(us)\n4                       3.21\n\
                      8                       3.25\n";
        let table = Table { unit: "us".into(), rows: vec![(4, 3.21), (8, 3.25)] };
        assert_eq!(parse(output).unwrap(), table);
    }

    #[test]
    fn further_columns_and_warnings_are_passed_over() {
        let output = "a warning of the MPI\n# OSU MPI Bcast Latency Test v5.9 (something)\n\
                      # Size  Avg Latency(us)  Min Latency(us)  Max Latency(us)  Iterations  Validation\n\
                      4   3.21  1.0  9.0  1000  Pass\nanother warning\n\n64  4.5  1.0  9.0  1000  Pass\n";
        assert_eq!(parse(output).unwrap().rows, [(4, 3.21), (64, 4.5)]);
    }

    #[test]
    fn a_barrier_has_no_size() {
        let output = "# OSU MPI Barrier Latency Test v7.3\n# Avg Latency(us)\n             4.75\n";
        assert_eq!(parse(output).unwrap().rows, [(0, 4.75)]);
    }

    #[test]
    fn of_overlap_the_whole_time_counts() {
        let output = "# OSU MPI Non-blocking Allreduce Latency Test v7.3\n\
                      # Overall = Coll. Init + Compute + MPI_Test + MPI_Wait\n\n\
                      # Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)\n\
                      4    12.5  6.0  6.5  0.0\n";
        assert_eq!(parse(output).unwrap().rows, [(4, 12.5)]);
    }

    #[test]
    fn wrong_answers_no_table_and_bandwidths_are_errors() {
        let heading = "# Size       Avg Latency(us)      Validation\n";
        let error = |output: &str| parse(output).unwrap_err().to_string();
        assert!(error(&format!("{heading}4  3.2  Fail\n")).contains("answer wrong"));
        assert!(error("usage: osu_allreduce").contains("no table"));
        assert!(error(heading).contains("empty"));
        assert!(error("# Size      Bandwidth (MB/s)\n4   12.3\n").contains("MB/s"));
    }

    #[test]
    fn programs_name_their_collective() {
        assert_eq!(collective("osu_iallreduce"), "iallreduce");
        assert_eq!(collective("osu_bcast_persistent"), "bcast");
    }
}
