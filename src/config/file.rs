//! Small files that settings name or come from.

use std::fs::{File, Metadata};
use std::io::{Error, Read, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The contents of a regular file of at most so many bytes. Nothing is read of a pipe or a device, which could go on
/// for ever.
pub(crate) fn read(path: impl AsRef<Path>, most: usize) -> Result<(Vec<u8>, Metadata)> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    match bytes.len() > most {
        true => Err(Error::other(format!("it has more than {most} bytes"))),
        false => Ok((bytes, about)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_a_regular_file_of_bounded_length_is_read() {
        let folder = std::env::temp_dir().join(format!("foldback-file-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let [pipe, long, full, absent] =
            ["pipe", "long", "full", "absent"].map(|name| folder.join(name));
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        File::create(&long).unwrap().set_len(1 << 40).unwrap();
        std::fs::write(&full, "1234567").unwrap();
        let why = |path: &Path| read(path, 7).unwrap_err().to_string();
        let others = [Path::new("/dev/zero"), Path::new("/dev/null"), &pipe, &folder].map(why);
        let (too_long, there) = (why(&long), read(&full, 7).unwrap().0);
        let kind = read(&absent, 7).unwrap_err().kind();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(others, ["it is no regular file"; 4]);
        assert_eq!(too_long, "it has more than 7 bytes");
        assert_eq!(there, b"1234567");
        assert_eq!(kind, std::io::ErrorKind::NotFound);
    }
}
