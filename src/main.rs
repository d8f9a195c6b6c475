//! `foldback`, the command line.

#![warn(clippy::print_stdout, clippy::print_stderr)]

mod cli;
mod glibc;
mod lab;
mod library;
mod output;
mod progress;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
