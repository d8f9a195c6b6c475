//! Programs into which the dynamic linker loads no preloaded library: that can be seen beforehand.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::prctl;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{getgid, getuid};

/// Why this program's processes do not load the library, if that is certain. Scripts and the like may start anything.
pub fn obstacle(program: &Path) -> Option<&'static str> {
    let bytes = fs::read(program).ok().filter(|bytes| bytes.starts_with(b"\x7fELF"))?;
    let unlike = of_file(&bytes);
    unlike.or_else(|| {
        is_privileged(program)
            .then_some("the linker preloads nothing into programs of another user (setuid, setgid)")
    })
}

/// By the file's contents.
fn of_file(bytes: &[u8]) -> Option<&'static str> {
    const CLASS_64: u8 = 2;
    const X86_64: usize = 62;
    const INTERPRETER: usize = 3;
    if bytes.get(4) != Some(&CLASS_64) || number(bytes, 18, 2)? != X86_64 {
        return Some("it is not for x86-64");
    }
    let (table, size, count) =
        (number(bytes, 32, 8)?, number(bytes, 54, 2)?, number(bytes, 56, 2)?);
    let headers = (0..count).map(|at| table.saturating_add(at * size));
    for at in headers {
        if number(bytes, at, 4)? == INTERPRETER {
            let from = number(bytes, at + 8, 8)?;
            let path = bytes.get(from..from.checked_add(number(bytes, at + 32, 8)?)?)?;
            let is_musl = path.windows(7).any(|part| part == b"ld-musl");
            return is_musl.then_some("it is linked with musl, and the library with glibc");
        }
    }
    Some("it is statically linked")
}

/// A number of the file's, the lowest byte first.
fn number(bytes: &[u8], at: usize, size: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
}

/// Whether a process becomes another user or group by it.
fn is_privileged(program: &Path) -> bool {
    const SET_UID: u32 = 0o4000;
    const SET_GID: u32 = 0o2010; // and executable by the group, else it is a lock
    let Ok(file) = fs::metadata(program) else { return false };
    let becomes_another = file.mode() & SET_UID == SET_UID && file.uid() != getuid().as_raw()
        || file.mode() & SET_GID == SET_GID && file.gid() != getgid().as_raw();
    becomes_another
        && prctl::get_no_new_privs() == Ok(false)
        && statvfs(program).is_ok_and(|system| !system.flags().contains(FsFlags::ST_NOSUID))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    /// An executable with such a header, and such an interpreter.
    fn file(machine: u8, interpreter: Option<&str>) -> Vec<u8> {
        let mut bytes = vec![0; 120];
        bytes[..4].copy_from_slice(b"\x7fELF");
        (bytes[4], bytes[18], bytes[32], bytes[54], bytes[56]) = (2, machine, 64, 56, 1);
        if let Some(path) = interpreter {
            (bytes[64], bytes[72], bytes[96]) = (3, 120, path.len() as u8);
            bytes.extend(path.as_bytes());
        }
        bytes
    }

    #[test]
    fn what_the_linker_does_not_preload_into_is_known() {
        let usual = Some("/lib64/ld-linux-x86-64.so.2");
        assert_eq!(of_file(&file(62, usual)), None);
        assert_eq!(of_file(&file(62, None)), Some("it is statically linked"));
        assert_eq!(of_file(&file(183, usual)), Some("it is not for x86-64"));
        let musl = of_file(&file(62, Some("/lib/ld-musl-x86_64.so.1")));
        assert!(musl.is_some_and(|why| why.contains("musl")));
        // Cut short, or nonsense: nothing is certain.
        for length in 5..146 {
            let _ = of_file(&file(62, usual)[..length]);
        }
        assert_eq!(of_file(&[255; 200]), Some("it is not for x86-64"));
        let mut far = file(62, usual);
        far[32..40].fill(255);
        assert_eq!(of_file(&far), None);
    }

    #[test]
    fn programs_of_another_user_are_known() {
        assert_eq!(obstacle(Path::new("/proc/self/exe")), None);
        let program = std::env::temp_dir().join(format!("foldback-reach-{}", std::process::id()));
        fs::write(&program, file(62, Some("/lib64/ld-linux-x86-64.so.2"))).unwrap();
        let mut found = Vec::new();
        for (owner, mode) in [(0, 0o4755), (1, 0o755), (1, 0o4755), (1, 0o2755)] {
            if getuid().is_root() {
                chown(&program, Some(owner), Some(owner)).unwrap();
                fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
                found.push(obstacle(&program).is_some());
            }
        }
        let may_become = statvfs(&program).unwrap().flags().contains(FsFlags::ST_NOSUID);
        fs::remove_file(&program).unwrap();
        if getuid().is_root() && prctl::get_no_new_privs() == Ok(false) {
            assert_eq!(found, [false, false, !may_become, !may_become]);
        }
    }
}
