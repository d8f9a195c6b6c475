//! `foldback`, the command line.

mod glibc;

use std::process::ExitCode;

fn main() -> ExitCode {
    foldback::cli::main()
}
