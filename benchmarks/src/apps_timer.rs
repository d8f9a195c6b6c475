//! The line of `benchmarks/apps/timer.c`, which divides a program's time.

use anyhow::{Context, Result, ensure};

/// The times of one job, or of several one after the other: seconds, means over ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// From the launcher's start to its end.
    pub whole: f64,
    /// From the end of `MPI_Init` to the begin of `MPI_Finalize`.
    pub run: f64,
    pub collectives: f64,
    /// In other calls of MPI.
    pub other: f64,
    /// `MPI_Init` and `MPI_Finalize`.
    pub ends: f64,
    /// Collective calls of a rank.
    pub calls: f64,
}

impl Times {
    /// Reads the line that the timer has written of a job, which took so many seconds.
    ///
    /// # Errors
    /// It is another line.
    pub fn parse(line: &str, whole: f64) -> Result<Self> {
        let value = |name: &str| {
            let mut words = line.split_whitespace();
            let text = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            let text = text.with_context(|| format!("the timer says no {name}: {line}"))?;
            text.parse::<f64>().with_context(|| format!("the timer's {name} is no number: {text}"))
        };
        let times = Self {
            whole,
            run: value("run")?,
            collectives: value("collectives")?,
            other: value("other")?,
            ends: value("init")? + value("finalize")?,
            calls: value("calls")?,
        };
        ensure!(times.run <= whole, "the part is longer than the whole of {whole} s: {line}");
        Ok(times)
    }

    /// Adds another job's.
    pub fn add(&mut self, other: &Self) {
        self.whole += other.whole;
        self.run += other.run;
        self.collectives += other.collectives;
        self.other += other.other;
        self.ends += other.ends;
        self.calls += other.calls;
    }

    /// Between calls of MPI. Threads that call it at once may leave less than nothing.
    pub fn computing(&self) -> f64 {
        (self.run - self.collectives - self.other).max(0.0)
    }

    /// Before `MPI_Init` ends and after `MPI_Finalize` begins, with the launcher's work.
    pub fn around(&self) -> f64 {
        self.whole - self.run
    }

    /// Percent of the whole.
    pub fn percent(&self, part: f64) -> f64 {
        100.0 * part / self.whole
    }

    /// The whole divided by what it would be if collectives took no time.
    pub fn at_most(&self) -> f64 {
        self.whole / (self.whole - self.collectives)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str =
        "ranks=4 run=6.0 collectives=4.0 other=0.5 calls=6250.5 init=0.5 finalize=0.25\n";

    #[test]
    fn the_line_has_all_parts() {
        let times = Times::parse(LINE, 8.0).unwrap();
        assert_eq!((times.calls, times.ends), (6250.5, 0.75));
        assert_eq!((times.computing(), times.around()), (1.5, 2.0));
        assert_eq!((times.percent(times.collectives), times.at_most()), (50.0, 2.0));
    }

    #[test]
    fn jobs_add_up() {
        let mut times = Times::default();
        for _ in 0..3 {
            times.add(&Times::parse(LINE, 8.0).unwrap());
        }
        assert_eq!((times.whole, times.calls, times.at_most()), (24.0, 18751.5, 2.0));
    }

    #[test]
    fn another_line_is_an_error() {
        let error = |line: &str, whole| Times::parse(line, whole).unwrap_err().to_string();
        assert!(error("", 8.0).contains("no run"));
        assert!(error(&LINE.replace("other=0.5", "other=x"), 8.0).contains("other is no number"));
        assert!(error(LINE, 5.0).contains("longer than the whole of 5 s"));
    }
}
