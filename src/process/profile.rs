//! The file that keeps what was measured from one job to the next (`FOLDBACK_PROFILE`): read by rank 0, and written by
//! it at the end.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{Error, ErrorKind, Write};

use super::Process;
use crate::choice::Profile;
use crate::config::file;

impl Process {
    /// Has rank 0 read what jobs before this have measured. The first group of all ranks tells the others.
    pub(super) fn read_profile(&self, rank: usize) {
        let Some(path) = self.profile_file().filter(|_| rank == 0) else { return };
        let warn = |why: &String| log::warn!("FOLDBACK_PROFILE={path} is left alone: {why}");
        let known = read(path).inspect_err(warn).unwrap_or_default();
        self.communicators.set_kept(known.of_mpi(&self.mpi.abi.version));
    }

    fn profile_file(&self) -> Option<&str> {
        self.config.as_ref().ok()?.profile.as_deref()
    }

    /// Writes down what this job has measured, beside what the file knows of others.
    pub(super) fn write_profile(&self, measured: Profile) {
        let Some(path) = self.profile_file().filter(|_| !measured.is_empty()) else { return };
        // Other jobs may have written to it meanwhile. A file that is no profile stays as it is, as was told at the
        // beginning.
        let Ok(mut profile) = read(path) else { return };
        profile.renew(measured);
        if let Err(error) = replace(path, &profile.text()) {
            log::warn!("FOLDBACK_PROFILE={path}: {error}");
        }
    }
}

/// Longest file: some 500 kinds of groups.
const MOST_BYTES: usize = 4 << 20;

/// Reads a file; nothing if it is not there.
fn read(path: &str) -> Result<Profile, String> {
    match file::read(path, MOST_BYTES) {
        Ok((bytes, _)) => Profile::parse(&String::from_utf8_lossy(&bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Profile::default()),
        Err(error) => Err(error.to_string()),
    }
}

/// Puts a file in place of another, whole: whoever reads it meanwhile gets either. If that is a symbolic link, in place
/// of what it names.
fn replace(path: &str, text: &str) -> std::io::Result<()> {
    if text.len() > MOST_BYTES {
        return Err(Error::other(format!("it would have more than {MOST_BYTES} bytes")));
    }
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
    // Another job may do the same, on another host, with the same process id.
    let mut beside = path.clone().into_os_string();
    beside.push(format!(".{:016x}", RandomState::new().hash_one(std::process::id())));
    let mut file = File::create_new(&beside)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| std::fs::rename(&beside, path));
    written.inspect_err(|_| drop(std::fs::remove_file(&beside)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    /// A directory that is gone when the test is over.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn path(&self, name: &str) -> String {
            self.0.join(name).to_str().unwrap().into()
        }

        fn names(&self) -> Vec<String> {
            let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
            let names = fs::read_dir(&self.0).unwrap().map(name);
            let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all_and_nothing_else_remains() {
        let directory = Directory::new("profile-replace");
        let (file, link) = (directory.path("file"), directory.path("link"));
        replace(&file, "one").unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        replace(&link, "two").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        fs::create_dir(directory.path("taken")).unwrap();
        replace(&directory.path("taken"), "three").unwrap_err();
        replace(&file, &" ".repeat(MOST_BYTES + 1)).unwrap_err();
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
        assert!(read(&directory.path("absent")).unwrap().is_empty());
        assert_eq!(directory.names(), ["file", "link", "taken"]);
    }
}
