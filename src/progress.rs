//! How far long work is, on standard error: a bar with the time left on a terminal, elsewhere a line for each
//! step.

use std::fmt::Display;
use std::time::Instant;

use anyhow::Result;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::tell;

/// On a terminal, at the first step, when nobody knows how long the others take.
const FIRST: &str = "{prefix}: [{bar:16}] {pos}/{len}: {wide_msg}";
const BAR: &str = "{prefix}: [{bar:16}] {pos}/{len}, {eta} left: {wide_msg}";

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("a template of ours").progress_chars("=> ")
}

/// Work in steps of about the same length.
pub struct Progress {
    /// Draws nothing where standard error is no terminal, but counts and estimates all the same.
    bar: ProgressBar,
    /// The beginning of each line; None: none are written.
    lines: Option<&'static str>,
}

impl Progress {
    /// Of a command that is quiet where nobody looks on.
    pub fn new(name: &'static str, steps: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
        bar.set_style(style(FIRST));
        bar.set_prefix(name);
        Self { bar, lines: None }
    }

    /// Of a command that tells its steps also where standard error is a file.
    pub fn with_lines(name: &'static str, steps: u64) -> Self {
        let mut progress = Self::new(name, steps);
        progress.lines = progress.bar.is_hidden().then_some(name);
        progress
    }

    /// Does one step.
    ///
    /// # Errors
    /// The step's own.
    pub fn step<T>(&self, what: impl Display, work: impl FnOnce() -> Result<T>) -> Result<T> {
        if let Some(name) = self.lines {
            tell(format_args!("{name}: {what}: "));
        }
        self.bar.set_message(what.to_string());
        let start = Instant::now();
        let result = work()?;
        if self.bar.position() == 0 {
            self.bar.set_style(style(BAR));
        }
        self.bar.inc(1);
        if self.lines.is_some() {
            let (seconds, left) = (start.elapsed().as_secs_f64(), HumanDuration(self.bar.eta()));
            tell(format_args!("{seconds:.1} s, {left} left\n"));
        }
        Ok(result)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
