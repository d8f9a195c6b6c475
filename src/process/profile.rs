//! The file that keeps what was measured from one job to the next (`FOLDBACK_PROFILE`): read by rank 0, who tells the
//! others, and written by it at the end.

use std::io::{ErrorKind, Write};
use std::path::Path;

use super::Process;
use crate::bindings::FB_OP_BOR;
use crate::comm::{Folding, fold_words};
use crate::route::Profile;
use crate::setup::Context;

impl Process {
    /// Tells all ranks of MPI_COMM_WORLD what jobs before this have measured, if they want to know: they choose by
    /// it, so it must be alike on all. Collective.
    pub(super) fn tell_profile(&self, context: &Context<'_>, world: &mut Folding) {
        if !self.config.as_ref().is_ok_and(|config| config.shared.profile) {
            return;
        }
        let known = match self.mpi.rank(self.mpi.abi.comm_world) {
            0 => self.profile_file().map_or_else(Profile::default, |path| {
                let warn =
                    |why: &String| log::warn!("FOLDBACK_PROFILE={path} is left alone: {why}");
                read(path).inspect_err(warn).unwrap_or_default()
            }),
            _ => Profile::default(),
        };
        let known = known.of_mpi(&self.mpi.abi.version);
        let text = if known.is_empty() { String::new() } else { known.text() };
        // What one rank brings and the others leave out is the same on all after it.
        let mut length = [text.len() as u64];
        fold_words(context, &mut world.group, FB_OP_BOR, &mut length);
        let mut words = vec![0; (length[0] as usize).div_ceil(8)];
        for (word, bytes) in words.iter_mut().zip(text.as_bytes().chunks(8)) {
            let mut whole = [b' '; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(whole);
        }
        if words.is_empty() {
            return;
        }
        fold_words(context, &mut world.group, FB_OP_BOR, &mut words);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        // The same bytes everywhere, so the same conclusion.
        if let Ok(known) = Profile::parse(&String::from_utf8_lossy(&bytes)) {
            self.communicators.learn(known, world);
        }
    }

    fn profile_file(&self) -> Option<&str> {
        self.config.as_ref().ok()?.profile.as_deref()
    }

    /// Writes down what this job has measured, beside what the file knows of others.
    pub(super) fn write_profile(&self, measured: Profile) {
        let Some(path) = self.profile_file().filter(|_| !measured.is_empty()) else { return };
        // Other jobs may have written to it meanwhile. What is no profile stays as it is, as was told at the beginning.
        let Ok(mut profile) = read(path) else { return };
        profile.renew(measured);
        if let Err(error) = replace(Path::new(path), &profile.text()) {
            log::warn!("FOLDBACK_PROFILE={path}: {error}");
        }
    }
}

/// What a file says; nothing if it is not there.
fn read(path: &str) -> Result<Profile, String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Profile::parse(&text),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Profile::default()),
        Err(error) => Err(error.to_string()),
    }
}

/// Puts a file in place of another, whole: whoever reads it meanwhile gets either.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let write = || {
        let mut file = std::fs::File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        std::fs::rename(&beside, path)
    };
    write().inspect_err(|_| drop(std::fs::remove_file(&beside)))
}
