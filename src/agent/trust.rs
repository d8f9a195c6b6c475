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
    let nameless = fs::read_to_string("/proc/sys/kernel/overflowuid");
    let Some(nameless) = nameless.ok().and_then(|text| text.trim().parse().ok()) else {
        return false;
    };
    if peer != nameless {
        return peer == 0 || peer == own;
    }
    let SocketAddress::Path(path) = address else { return false };
    path == Path::new(HOST_SOCKET)
        && path.ancestors().skip(1).all(|directory| {
            fs::symlink_metadata(directory).is_ok_and(|found| {
                found.is_dir() && is_closed(found.uid(), found.mode(), [0, own, nameless])
            })
        })
}

/// Whether nobody writes to a directory but its owner, and that is one of these.
fn is_closed(owner: u32, mode: u32, owners: [u32; 3]) -> bool {
    owners.contains(&owner) && mode & 0o022 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_others_write_to_is_not_closed() {
        let owners = [0, 1000, 65534];
        assert!(is_closed(65534, 0o755, owners) && is_closed(1000, 0o700, owners));
        assert!(!is_closed(1001, 0o755, owners));
        assert!(!is_closed(0, 0o1777, owners) && !is_closed(65534, 0o775, owners));
    }
}
