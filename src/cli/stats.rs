//! `foldback stats`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::output::print;
use crate::stats::JobReport;

/// Show the statistics of a job, which FOLDBACK_STATS=FILE has written, as tables.
#[derive(clap::Args)]
pub struct Args {
    /// The file; -: standard input
    file: PathBuf,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let name = args.file.display();
    let text = if args.file.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(&args.file)
    };
    let text = text.with_context(|| format!("cannot read {name}"))?;
    let job: JobReport = serde_json::from_str(&text)
        .with_context(|| format!("{name} is no statistics of this version of foldback"))?;
    print(job.tables())?;
    Ok(ExitCode::SUCCESS)
}
