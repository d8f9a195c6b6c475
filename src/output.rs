//! Standard output and standard error of the command. A reader who has heard enough (`| head`) ends
//! nothing but the output; the macros of the standard library would panic.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use anyhow::Result;

/// Writes to standard output.
///
/// # Errors
/// What the system says (a full disk), but for a reader who has gone.
pub fn print(text: impl fmt::Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Writes to standard error, if there is anybody to read it.
pub fn tell(text: impl fmt::Display) {
    let mut out = io::stderr().lock();
    let _ = write!(out, "{text}").and_then(|()| out.flush());
}

/// The exit status of a command. An error ends it with one line and exit status 1.
pub fn end(result: Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        tell(format_args!("foldback: {error:#}\n"));
        ExitCode::FAILURE
    })
}
