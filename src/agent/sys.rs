//! Calls of the bpf system call for which libbpf-rs has no function.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use libbpf_rs::libbpf_sys::{
    BPF_F_BEFORE, BPF_LINK_TYPE_TCX, BPF_LINK_TYPE_XDP, BPF_TCX_EGRESS, BPF_TCX_INGRESS, BPF_XDP,
    XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE, bpf_attach_type, bpf_link_create, bpf_link_create_opts,
    bpf_link_detach, bpf_link_get_info_by_fd, bpf_link_info, bpf_map_get_fd_by_id,
    bpf_prog_get_info_by_fd, bpf_prog_info, bpf_prog_query,
};
use nix::errno::Errno;

/// The place of a link's program on its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkPoint {
    TcxIngress,
    TcxEgress,
    XdpNative,
    XdpGeneric,
}

impl LinkPoint {
    /// Attach type, and flags. Among tcx programs ours comes first, whoever else is there.
    fn parameters(self) -> (bpf_attach_type, u32) {
        match self {
            Self::TcxIngress => (BPF_TCX_INGRESS, BPF_F_BEFORE),
            Self::TcxEgress => (BPF_TCX_EGRESS, BPF_F_BEFORE),
            Self::XdpNative => (BPF_XDP, XDP_FLAGS_DRV_MODE),
            Self::XdpGeneric => (BPF_XDP, XDP_FLAGS_SKB_MODE),
        }
    }
}

/// Attaches a program to an interface for as long as the descriptor is open.
pub(crate) fn create_link(
    program: BorrowedFd<'_>,
    interface: u32,
    point: LinkPoint,
) -> nix::Result<OwnedFd> {
    let (attach_type, flags) = point.parameters();
    let options = bpf_link_create_opts {
        sz: size_of::<bpf_link_create_opts>() as _,
        flags,
        ..Default::default()
    };
    // SAFETY: the descriptor is open while it is borrowed; the options live through the call and
    // are zero but for their size and flags.
    let fd = unsafe {
        bpf_link_create(program.as_raw_fd(), interface as RawFd, attach_type, &raw const options)
    };
    own(fd)
}

/// Detaches at once, also where a forked child still has the descriptor.
pub(crate) fn detach_link(link: BorrowedFd<'_>) -> nix::Result<()> {
    // SAFETY: takes a number, and the descriptor is open while it is borrowed.
    check(unsafe { bpf_link_detach(link.as_raw_fd()) }).map(drop)
}

/// Whether a link is on its interface: somebody may have detached it, and the interface may be gone.
pub(crate) fn is_on_interface(link: BorrowedFd<'_>) -> bool {
    let mut info = bpf_link_info::default();
    let mut bytes = size_of::<bpf_link_info>() as u32;
    // SAFETY: the descriptor is open while it is borrowed, and the kernel writes no more than so many bytes.
    let asked = unsafe { bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut bytes) };
    // SAFETY: of these types of link the kernel fills the member that is read; before, all were zero.
    let interface = unsafe {
        match info.type_ {
            BPF_LINK_TYPE_TCX => info.__bindgen_anon_1.tcx.ifindex,
            BPF_LINK_TYPE_XDP => info.__bindgen_anon_1.xdp.ifindex,
            _ => 0,
        }
    };
    check(asked).is_ok() && interface != 0
}

/// The runs of a program, and their nanoseconds, over all CPUs. The kernel counts while `kernel.bpf_stats_enabled` is 1.
pub(crate) fn runs(program: BorrowedFd<'_>) -> nix::Result<(u64, u64)> {
    let mut info = bpf_prog_info::default();
    let mut bytes = size_of::<bpf_prog_info>() as u32;
    // SAFETY: the descriptor is open while it is borrowed; the kernel writes no more than so many bytes, and follows
    // none of the pointers in them, since the lengths beside them are zero.
    let asked =
        unsafe { bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut bytes) };
    check(asked).map(|_| (info.run_cnt, info.run_time_ns))
}

/// Whether the kernel has tcx, asked of an interface that exists.
pub(crate) fn has_tcx(interface: u32) -> bool {
    let mut count = 0;
    // SAFETY: with no room for program ids the kernel writes their count alone.
    let result = unsafe {
        bpf_prog_query(
            interface as RawFd,
            BPF_TCX_INGRESS,
            0,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            &raw mut count,
        )
    };
    // A kernel that does not know the attach type says EINVAL.
    check(result).is_ok()
}

/// Whether a map is still held by somebody. A kernel that does not tell us (it takes
/// CAP_SYS_ADMIN) counts as no.
pub(crate) fn map_exists(id: u32) -> bool {
    // SAFETY: takes a number.
    own(unsafe { bpf_map_get_fd_by_id(id) }).is_ok()
}

fn own(fd: RawFd) -> nix::Result<OwnedFd> {
    let fd = check(fd)?;
    // SAFETY: libbpf just returned this descriptor to us, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// libbpf returns the error's number, negated.
fn check(result: i32) -> nix::Result<i32> {
    if result < 0 { Err(Errno::from_raw(-result)) } else { Ok(result) }
}
