//! `foldback`, the command line.

mod cli;
mod lab;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
