//! Other people's BPF programs, and a look at what is attached where. In this thread's network
//! namespace.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys::{
    BPF_F_AFTER, BPF_F_BEFORE, BPF_PROG_TYPE_SCHED_CLS, BPF_PROG_TYPE_XDP, BPF_TCX_EGRESS,
    BPF_TCX_INGRESS, BPF_XDP, bpf_attach_type, bpf_enable_stats, bpf_insn, bpf_link_create,
    bpf_link_create_opts, bpf_link_detach, bpf_link_get_fd_by_id, bpf_prog_load,
    bpf_prog_load_opts, bpf_prog_query,
};
use libbpf_rs::query::{LinkInfoIter, ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{MapHandle, ProgramHandle};

/// Somebody's program on a hook, until dropped.
pub struct Foreign {
    id: u32,
    _program: OwnedFd,
    link: OwnedFd,
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // Not left to closing: a child that another test has just forked has the descriptor too.
        // SAFETY: takes a number, of a descriptor that is open.
        unsafe { bpf_link_detach(self.link.as_raw_fd()) };
    }
}

impl Foreign {
    /// The number of packets that it has seen, while the kernel [counts](count_runs).
    pub fn runs(&self) -> u64 {
        let mut programs = ProgInfoIter::default();
        programs.find(|program| program.id == self.id).expect("it is there").run_cnt
    }
}

/// A program's place among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Head,
    Tail,
}

/// The verdict of each packet: on to the next program, on past the others, or nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Next = -1,
    Pass = 0,
    Drop = 2,
}

/// Has the kernel count the runs of programs, until dropped.
pub fn count_runs() -> OwnedFd {
    // SAFETY: takes a number.
    let counting = unsafe { bpf_enable_stats(0) };
    assert!(counting >= 0, "the kernel counts no runs: {counting}");
    // SAFETY: just made, and nobody else's.
    unsafe { OwnedFd::from_raw_fd(counting) }
}

/// Puts a program on a tcx hook of an interface.
pub fn tcx(interface: u32, egress: bool, place: Place, verdict: Verdict) -> Foreign {
    let hook = if egress { BPF_TCX_EGRESS } else { BPF_TCX_INGRESS };
    let flags = if place == Place::Head { BPF_F_BEFORE } else { BPF_F_AFTER };
    attach(BPF_PROG_TYPE_SCHED_CLS, verdict as i32, interface, hook, flags)
}

/// Puts a program that lets everything pass on the XDP of an interface.
pub fn xdp(interface: u32) -> Foreign {
    attach(BPF_PROG_TYPE_XDP, 2, interface, BPF_XDP, 0)
}

fn attach(
    program_type: u32,
    verdict: i32,
    interface: u32,
    to: bpf_attach_type,
    flags: u32,
) -> Foreign {
    // r0 = verdict; exit
    let mut code = [bpf_insn::default(), bpf_insn::default()];
    (code[0].code, code[0].imm) = (0xb7, verdict);
    code[1].code = 0x95;
    let mut options =
        bpf_prog_load_opts { sz: size_of::<bpf_prog_load_opts>() as _, ..Default::default() };
    // SAFETY: name and license end in NUL, and the code is as long as said.
    let program = unsafe {
        bpf_prog_load(
            program_type,
            c"foreign".as_ptr(),
            c"GPL".as_ptr(),
            code.as_ptr(),
            code.len() as _,
            &raw mut options,
        )
    };
    assert!(program >= 0, "no foreign program: {program}");
    // SAFETY: just made, and nobody else's.
    let program = unsafe { OwnedFd::from_raw_fd(program) };
    let options = bpf_link_create_opts {
        sz: size_of::<bpf_link_create_opts>() as _,
        flags,
        ..Default::default()
    };
    // SAFETY: the program is open, and the options are zero but for their size and flags.
    let link =
        unsafe { bpf_link_create(program.as_raw_fd(), interface as i32, to, &raw const options) };
    assert!(link >= 0, "no foreign link: {link}");
    // SAFETY: as above.
    let link = unsafe { OwnedFd::from_raw_fd(link) };
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", program.as_raw_fd()));
    let id = number(&info.expect("a descriptor"), "prog_id:").expect("a BPF program");
    Foreign { id, _program: program, link }
}

/// Programs of an interface's tcx hooks, first to last: number and name. None, of course, where
/// the kernel has no tcx.
pub fn tcx_programs(interface: u32, egress: bool) -> Vec<(u32, String)> {
    if !foldback::agent::probe::has_tcx() {
        return Vec::new();
    }
    let mut ids = [0_u32; 16];
    let mut count = ids.len() as u32;
    let hook = if egress { BPF_TCX_EGRESS } else { BPF_TCX_INGRESS };
    // SAFETY: there is room for as many ids as said.
    let result = unsafe {
        bpf_prog_query(
            interface as i32,
            hook,
            0,
            std::ptr::null_mut(),
            ids.as_mut_ptr(),
            &raw mut count,
        )
    };
    assert_eq!(result, 0, "asking for tcx programs");
    ids[..count as usize].iter().map(|id| (*id, program_name(*id))).collect()
}

/// Takes programs off where links have put them, as root may without being their owner.
pub fn detach_links_of(programs: &[u32]) {
    for link in LinkInfoIter::default().filter(|link| programs.contains(&link.prog_id)) {
        // SAFETY: takes a number.
        let fd = unsafe { bpf_link_get_fd_by_id(link.id) };
        assert!(fd >= 0, "the link is there: {fd}");
        // SAFETY: just made, and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: takes a number, of a descriptor that is open.
        assert_eq!(unsafe { bpf_link_detach(fd.as_raw_fd()) }, 0, "detaching a link");
    }
}

/// Name of a program that is attached.
pub fn program_name(id: u32) -> String {
    let handle = ProgramHandle::from_prog_id(id).expect("an attached program exists");
    handle.name().to_string_lossy().into_owned()
}

/// Whether the kernel still has a program.
pub fn program_exists(id: u32) -> bool {
    ProgramHandle::from_prog_id(id).is_ok()
}

/// Whether the kernel still has a map.
pub fn map_exists(id: u32) -> bool {
    MapHandle::from_map_id(id).is_ok()
}

/// The kernel's number of a map.
pub fn map_id(map: BorrowedFd<'_>) -> u32 {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", map.as_raw_fd())).unwrap();
    number(&info, "map_id:").expect("a BPF map")
}

/// The number on the line of `info` that begins so.
fn number(info: &str, begin: &str) -> Option<u32> {
    info.lines().find_map(|line| line.strip_prefix(begin))?.trim().parse().ok()
}

/// The maps of some programs.
pub fn maps_of(programs: &[u32]) -> Vec<u32> {
    ProgInfoIter::with_query_opts(ProgInfoQueryOptions::default().include_map_ids(true))
        .filter(|program| programs.contains(&program.id))
        .flat_map(|program| program.map_ids)
        .collect()
}

/// Maps a group's cells, writes into the first one, and reads that back.
pub fn touch_cells(cells: BorrowedFd<'_>, window: usize) {
    use foldback::bindings::{FB_CHUNK_BYTES, fb_cell};
    let cell_bytes = foldback::wire::cells::cell_bytes(FB_CHUNK_BYTES) as usize;
    let length = (1 + window) * cell_bytes;
    let map = memmap2::MmapOptions::new().len(length).map_raw(&cells).expect("cells can be mapped");
    let cell = map.as_mut_ptr().wrapping_add(window * cell_bytes).cast::<fb_cell>();
    // SAFETY: the mapping has 1 + window cells, and a new group's are nobody's business yet.
    unsafe {
        assert_eq!((*cell).seq, 0, "a new cell is free");
        (&raw mut (*cell).seq).write_volatile(42);
        assert_eq!((&raw const (*cell).seq).read_volatile(), 42);
    }
}
