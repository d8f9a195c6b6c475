//! The lab that all runs of a comparison share.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use foldback::lab::settings::Settings;
use foldback::lab::supervise::{Outcome, Supervisor};
use foldback::lab::{fabric, registry};

/// A lab of this process, removed with the value. If the process is killed, the next lab command
/// removes it.
pub struct Arena {
    pub name: String,
    /// Bench programs must not be interrupted between a lab's making and its removal.
    supervisor: Supervisor,
    /// The directory for commands' output.
    scratch: PathBuf,
}

impl Arena {
    /// Makes a lab of so many hosts.
    ///
    /// # Errors
    /// Not root, or what the lab says.
    pub fn new(hosts: u64, settings: &Settings) -> Result<Self> {
        let supervisor = Supervisor::new()?;
        registry::sweep()?;
        let name = format!("bench-{}", std::process::id());
        let scratch = std::env::temp_dir().join(format!("foldback-{name}"));
        fs::create_dir_all(&scratch)
            .with_context(|| format!("cannot make the directory {}", scratch.display()))?;
        let arena = Self { name, supervisor, scratch };
        fabric::build(&arena.name, usize::try_from(hosts)?, settings)?;
        Ok(arena)
    }

    /// A file that is gone with the lab.
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    /// Runs a command to its end, and returns what it wrote to standard output and its exit status.
    /// Signals to this process are passed on to it.
    ///
    /// # Errors
    /// It cannot be started, a signal ended it, or its output is no text.
    pub fn run(&self, command: &mut Command) -> Result<(String, u8)> {
        let path = self.scratch("output");
        command.stdout(create(&path)?).stderr(Stdio::inherit());
        let status = self.wait_for(command)?;
        let output = fs::read_to_string(&path).context("the program's output is no text")?;
        Ok((output, status))
    }

    /// Does the same quietly: returns its standard error as well, and replaces bytes that are no text.
    ///
    /// # Errors
    /// It cannot be started, or a signal ended it.
    pub fn run_quietly(&self, command: &mut Command) -> Result<(String, u8)> {
        let path = self.scratch("output");
        let file = create(&path)?;
        let both = file.try_clone().context("cannot have a file twice")?;
        command.stdout(file).stderr(both);
        let status = self.wait_for(command)?;
        let output = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok((String::from_utf8_lossy(&output).into_owned(), status))
    }

    fn wait_for(&self, command: &mut Command) -> Result<u8> {
        command.stdin(Stdio::null());
        let outcome = self.supervisor.run(command, None, &|| None, || ())?;
        if let Outcome::Interrupted(signal) = outcome {
            bail!("interrupted by {signal}");
        }
        Ok(outcome.code())
    }
}

fn create(path: &Path) -> Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}

impl Drop for Arena {
    fn drop(&mut self) {
        // Not there if it could not be made.
        if let Ok(Some(_)) = registry::find(&self.name)
            && let Err(error) = registry::remove(&self.name)
        {
            log::warn!("cannot remove the lab {}: {error:#}", self.name);
        }
        let _ = fs::remove_dir_all(&self.scratch);
    }
}
