//! Running `ip`, `tc` and `ethtool`, with errors that say which command failed and why.

use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Runs a tool to its end, with `input` as its standard input.
pub fn run(tool: &str, args: &[&str], input: &str) -> Result<()> {
    output_of(tool, args, input).map(|_| ())
}

/// Runs a tool to its end, with `input` as its standard input. Returns its standard output.
pub fn output_of(tool: &str, args: &[&str], input: &str) -> Result<String> {
    let child = Command::new(tool)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let package = if tool == "ethtool" { "ethtool" } else { "iproute2" };
            bail!("{tool} not found: install the package {package}");
        }
        other => other.with_context(|| format!("cannot run {tool}"))?,
    };
    // It stops reading at the first error; what it says on stderr tells more than the broken pipe.
    let _ = child.stdin.take().expect("stdin is piped").write_all(input.as_bytes());
    let output = child.wait_with_output().with_context(|| format!("cannot run {tool}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().collect::<Vec<_>>().join("; ");
        bail!("{tool} {} failed: {said}", args.join(" "));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
