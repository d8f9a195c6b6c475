//! `foldback`, the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    foldback::cli::main()
}
