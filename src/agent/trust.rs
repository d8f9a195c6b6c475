//! Whether the user at the other end of a socket may serve this rank: root, or the rank's own user.
//!
//! In a user namespace (a container without root) the kernel gives one number to all users of the host that the
//! namespace does not map, root among them. There the number tells nothing, but the socket's place does. Nobody but
//! the host's root makes a directory in `/run`, and the owner of a container decides on its `/run`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::geteuid;

use crate::agent::address::{HOST_SOCKET, SocketAddress};

/// The kernel's own number of the user namespace that the host begins with (`PROC_USER_INIT_INO`).
const FIRST_USER_NAMESPACE: u64 = 0xefff_fffd;

/// Whether this process is in a user namespace of a container, where its capabilities are not the host's.
pub(crate) fn in_user_namespace() -> bool {
    fs::metadata("/proc/self/ns/user").is_ok_and(|space| space.ino() != FIRST_USER_NAMESPACE)
}

/// Whether `peer`, the kernel's number of the user who listens at this address, may be the agent.
pub(crate) fn may_serve(peer: u32, address: &SocketAddress) -> bool {
    let own = geteuid().as_raw();
    if !in_user_namespace() {
        return peer == 0 || peer == own;
    }
    let Some(nameless) = nameless() else { return false };
    if peer != nameless {
        return peer == 0 || peer == own;
    }
    is_at(address, HOST_SOCKET) && open_directory(Path::new(HOST_SOCKET)).is_none()
}

/// More about a peer that may not serve, for a line that says so.
pub(crate) fn why_not(address: &SocketAddress) -> String {
    if !in_user_namespace() {
        return String::new();
    }
    let open = open_directory(Path::new(HOST_SOCKET)).filter(|_| is_at(address, HOST_SOCKET));
    let open = open
        .map_or_else(String::new, |path| format!(", and others may write to {}", path.display()));
    format!(
        ", as far as this user namespace can tell; of an agent of the host's root it takes only {HOST_SOCKET}, in \
         directories that nobody else writes to{open}"
    )
}

/// The number that stands for all users whom the namespace does not map.
fn nameless() -> Option<u32> {
    fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?.trim().parse().ok()
}

fn is_at(address: &SocketAddress, path: &str) -> bool {
    matches!(address, SocketAddress::Path(at) if at == Path::new(path))
}

/// The nearest directory above a path that another user may write to, or that is none.
fn open_directory(path: &Path) -> Option<&Path> {
    let own = geteuid().as_raw();
    let owners = [0, own, nameless().unwrap_or(own)];
    path.ancestors().skip(1).find(|directory| {
        !fs::symlink_metadata(directory)
            .is_ok_and(|found| found.is_dir() && is_closed(found.uid(), found.mode(), owners))
    })
}

/// Whether nobody writes to a directory but its owner, and that is one of these.
fn is_closed(owner: u32, mode: u32, owners: [u32; 3]) -> bool {
    owners.contains(&owner) && mode & 0o022 == 0
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_that_others_write_to_is_not_closed() {
        let owners = [0, 1000, 65534];
        assert!(is_closed(65534, 0o755, owners) && is_closed(1000, 0o700, owners));
        assert!(!is_closed(1001, 0o755, owners));
        assert!(!is_closed(0, 0o1777, owners) && !is_closed(65534, 0o775, owners));
    }

    #[test]
    fn the_nearest_open_directory_is_named() {
        let place = std::env::temp_dir().join(format!("foldback-trust-{}", std::process::id()));
        let [inner, socket] = [place.join("inner"), place.join("inner/socket")];
        fs::create_dir_all(&inner).unwrap();
        fs::set_permissions(&place, Permissions::from_mode(0o755)).unwrap();
        for (mode, found) in [(0o777, Some(inner.as_path())), (0o755, place.parent())] {
            fs::set_permissions(&inner, Permissions::from_mode(mode)).unwrap();
            assert_eq!(open_directory(&socket), found, "{mode:o}");
        }
        fs::remove_dir_all(&place).unwrap();
        assert_eq!(open_directory(&socket), Some(inner.as_path()), "there is none");
    }
}
