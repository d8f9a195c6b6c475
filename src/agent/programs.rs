//! The BPF programs and their maps, loaded.
//!
//! The TC programs are loaded when the agent starts, so that a kernel that refuses them says so at
//! once. The XDP program is loaded for the first interface that needs it, as a second object on the
//! maps of the first. A host without XDP never has it verified.
//!
//! There are two sets of programs: for chunks that fit the usual MTU, and for chunks of jumbo frames, whose cells
//! take six times the memory. A host has one of them.
//!
//! Either exists once more, for hosts with the kernel module foldback_simd. A program that calls a module needs it to be
//! loaded, so these are loaded only where it is found, and hold it until they end.
//!
//! Only descriptors of programs and maps are kept; libbpf's objects are gone after loading.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use libbpf_rs::libbpf_sys::{
    BPF_F_INNER_MAP, BPF_F_MMAPABLE, BPF_F_XDP_HAS_FRAGS, BPF_FUNC_xdp_load_bytes,
    bpf_map_create_opts,
};
use libbpf_rs::{
    MapCore, MapFlags, MapHandle, MapType, Object, ObjectBuilder, OpenObject, PrintLevel,
    ProgramType, set_print,
};

use crate::agent::capability::capable;
use crate::agent::error::{Context, Error, ErrorKind, Result};
use crate::agent::options::Options;
use crate::agent::pod::{self, Work};
use crate::agent::protocol::ProgramStatus;
use crate::agent::simd::{Fold, Module};
use crate::agent::spec::Chunks;
use crate::agent::sys;
use crate::bindings::{
    FB_MAX_GROUPS, FB_PARTS, JUMBO_PROGRAMS, JUMBO_SIMD_PROGRAMS, PROGRAMS, SIMD_PROGRAMS,
    fb_counters, fb_group, fb_part,
};
use crate::wire::{Seal, cells};

/// Values that the programs get before they are loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Constants {
    /// UDP port of all frames.
    port: u16,
    /// Count the CPU time of each group.
    times: bool,
}

impl Constants {
    pub(crate) fn of(options: &Options) -> Self {
        Self { port: options.port, times: options.cpu_time }
    }
}

/// The loaded programs and the maps that the agent itself uses.
pub(crate) struct Programs {
    constants: Constants,
    chunks: Chunks,
    fold: Fold,
    tc_ingress: OwnedFd,
    tc_egress: OwnedFd,
    xdp_ingress: Option<OwnedFd>,
    /// Every map that two objects share, by name.
    shared: Vec<MapHandle>,
    groups: MapHandle,
    cells: MapHandle,
    tables: MapHandle,
    keys: MapHandle,
    counters: MapHandle,
}

/// Cells or the table of a group.
pub(crate) struct CellMap {
    map: MapHandle,
    /// The kernel's number of the map.
    pub(crate) id: u32,
}

impl CellMap {
    /// A descriptor of it, for the process that is to map it.
    pub(crate) fn descriptor(&self) -> Result<OwnedFd> {
        duplicate(self.map.as_fd())
    }

    /// The work of the group's leader, as it tells.
    pub(crate) fn work(&self) -> Option<Work> {
        pod::work(&self.map.lookup(&[0; 4], MapFlags::ANY).ok()??)
    }
}

impl AsFd for CellMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

impl Programs {
    /// Loads the TC programs for such chunks, and makes the maps.
    pub(crate) fn load(constants: Constants, chunks: Chunks) -> Result<Self> {
        match Module::find().fold() {
            Fold::Swar => Self::load_with(constants, chunks, Fold::Swar),
            // It may be of another release, or this process may lack CAP_SYS_ADMIN, which modules' types take.
            Fold::Avx2 => Self::load_with(constants, chunks, Fold::Avx2).or_else(|error| {
                log::warn!("foldback_simd is loaded, but not used: {error}");
                Self::load_with(constants, chunks, Fold::Swar)
            }),
        }
    }

    fn load_with(constants: Constants, chunks: Chunks, fold: Fold) -> Result<Self> {
        let start = Instant::now();
        let doing = || "loading the TC programs".to_string();
        let mut open = open(constants, chunks, fold).context(ErrorKind::Kernel, doing)?;
        for mut program in open.progs_mut() {
            let xdp = program.prog_type() == ProgramType::Xdp;
            program.set_autoload(!xdp);
        }
        let object = open.load().map_err(refused)?;
        let mut shared = Vec::new();
        for map in object.maps() {
            if !is_own(map.name()) {
                shared.push(MapHandle::try_from(&map).context(ErrorKind::Kernel, doing)?);
            }
        }
        let programs = Self {
            constants,
            chunks,
            fold,
            tc_ingress: find_program(&object, "fb_tc_ingress")?,
            tc_egress: find_program(&object, "fb_tc_egress")?,
            xdp_ingress: None,
            groups: find(&shared, "groups")?,
            cells: find(&shared, "cells")?,
            tables: find(&shared, "tables")?,
            keys: find(&shared, "keys")?,
            counters: find(&shared, "counters")?,
            shared,
        };
        log::debug!("TC programs loaded in {:.1?}, {chunks:?}, {fold}", start.elapsed());
        Ok(programs)
    }

    /// The chunks that they are for.
    pub(crate) fn chunks(&self) -> Chunks {
        self.chunks
    }

    /// The instructions that they fold long chunks by.
    pub(crate) fn fold(&self) -> Fold {
        self.fold
    }

    /// From one cell to the next.
    pub(crate) fn cell_bytes(&self) -> u32 {
        cells::cell_bytes(self.chunks.most_bytes())
    }

    /// Bytes of kernel memory that a window takes.
    pub(crate) fn window_bytes(&self, window: u32) -> u64 {
        (1 + u64::from(window)) * u64::from(self.cell_bytes())
    }

    pub(crate) fn tc_ingress(&self) -> BorrowedFd<'_> {
        self.tc_ingress.as_fd()
    }

    pub(crate) fn tc_egress(&self) -> BorrowedFd<'_> {
        self.tc_egress.as_fd()
    }

    /// The XDP program, loaded when first asked for.
    pub(crate) fn xdp_ingress(&mut self) -> Result<BorrowedFd<'_>> {
        let program = match self.xdp_ingress.take() {
            Some(program) => program,
            None => self.load_xdp()?,
        };
        let program: &OwnedFd = self.xdp_ingress.insert(program);
        Ok(program.as_fd())
    }

    fn load_xdp(&self) -> Result<OwnedFd> {
        let start = Instant::now();
        let doing = || "loading the XDP program".to_string();
        let mut open =
            open(self.constants, self.chunks, self.fold).context(ErrorKind::Kernel, doing)?;
        for mut program in open.progs_mut() {
            let xdp = program.prog_type() == ProgramType::Xdp;
            program.set_autoload(xdp);
            if xdp {
                // Interfaces with an MTU above about 3500 take no other program. Ours reads
                // frames with bpf_xdp_load_bytes, so they may be in several pieces.
                program.set_flags(BPF_F_XDP_HAS_FRAGS);
            }
        }
        for mut map in open.maps_mut() {
            if let Some(same) = self.shared.iter().find(|shared| shared.name() == map.name()) {
                map.reuse_fd(same.as_fd()).context(ErrorKind::Kernel, doing)?;
            }
        }
        let program = find_program(&open.load().map_err(refused)?, "fb_xdp_ingress")?;
        log::debug!("XDP program loaded in {:.1?}", start.elapsed());
        Ok(program)
    }

    /// The runs of each program, and their time.
    pub(crate) fn runs(&self) -> Result<Vec<ProgramStatus>> {
        let tc = [("tc-ingress", &self.tc_ingress), ("tc-egress", &self.tc_egress)];
        let xdp = self.xdp_ingress.iter().map(|program| ("xdp-ingress", program));
        let all = tc.into_iter().chain(xdp).map(|(name, program)| {
            let (runs, nanoseconds) = sys::runs(program.as_fd())
                .context(ErrorKind::Kernel, || format!("asking for the runs of {name}"))?;
            Ok(ProgramStatus { name: name.into(), runs, nanoseconds })
        });
        all.collect()
    }

    /// Makes the cells of a group.
    pub(crate) fn create_cells(&self, window: u32) -> Result<CellMap> {
        create_map("fb_cells", self.cell_bytes(), 1 + window, BPF_F_INNER_MAP)
            .context(ErrorKind::Kernel, || format!("making a map of {window} cells"))
    }

    /// Makes the table of a group with this token, not yet known to the programs.
    pub(crate) fn create_table(&self, token: u64) -> Result<CellMap> {
        let doing = || "making a table of pairs".to_string();
        let bytes = size_of::<fb_part>() as u32;
        let table =
            create_map("fb_table", bytes, 1 + FB_PARTS, 0).context(ErrorKind::Kernel, doing)?;
        let control = pod::table_element(token);
        table.map.update(&[0; 4], &control, MapFlags::ANY).context(ErrorKind::Kernel, doing)?;
        Ok(table)
    }

    /// Gives the group in a slot a table.
    pub(crate) fn put_table(&self, slot: u32, table: &CellMap) -> Result<()> {
        let descriptor = table.as_fd().as_raw_fd().to_ne_bytes();
        let put = self.tables.update(&slot.to_ne_bytes(), &descriptor, MapFlags::ANY);
        put.context(ErrorKind::Kernel, || format!("giving group {slot} a table"))
    }

    /// Takes it away. Running programs may still reach it, of which it has the group's token.
    pub(crate) fn remove_table(&self, slot: u32) {
        if let Err(error) = self.tables.delete(&slot.to_ne_bytes()) {
            log::warn!("group {slot} had no table: {error}");
        }
    }

    /// Puts maps of cells into slots, and waits until no program that began before still runs.
    pub(crate) fn put_cells(&self, cells: &[(u32, BorrowedFd<'_>)]) -> Result<()> {
        let doing = || "putting cells into slots".to_string();
        let bytes =
            |(slot, fd): &(u32, BorrowedFd<'_>)| (slot.to_ne_bytes(), fd.as_raw_fd().to_ne_bytes());
        let Some((last, others)) = cells.split_last() else { return Ok(()) };
        let (keys, values): (Vec<_>, Vec<_>) = others.iter().map(bytes).unzip();
        let (keys, values) = (keys.concat(), values.concat());
        let any = MapFlags::ANY;
        let batch = |count| self.cells.update_batch(&keys, &values, count, any, any);
        if !others.is_empty() && batch(others.len() as u32).is_err() {
            for (slot, fd) in others.iter().map(bytes) {
                self.cells.update(&slot, &fd, any).context(ErrorKind::Kernel, doing)?;
            }
        }
        // The last one alone, since then every kernel waits; after a batch not all of them do.
        let (slot, fd) = bytes(last);
        self.cells.update(&slot, &fd, any).context(ErrorKind::Kernel, doing)
    }

    /// Hands a group to the programs, whose cells are in its slot and have been no other's. Earlier
    /// counts of its slot are forgotten.
    pub(crate) fn add_group(
        &self,
        token: u64,
        seal: &Seal,
        group: &fb_group,
        cells: &CellMap,
    ) -> Result<()> {
        let doing = || format!("adding group {} to the maps", group.slot);
        let slot = group.slot.to_ne_bytes();
        let cpus = libbpf_rs::num_possible_cpus().context(ErrorKind::Kernel, doing)?;
        let zeros = vec![vec![0; size_of::<fb_counters>()]; cpus];
        self.counters
            .update_percpu(&slot, &zeros, MapFlags::ANY)
            .context(ErrorKind::Kernel, doing)?;
        let key = seal.key_bytes(self.keys.value_size() as usize);
        self.keys.update(&slot, &key, MapFlags::ANY).context(ErrorKind::Kernel, doing)?;
        let control = pod::control_element(token, self.cell_bytes());
        cells.map.update(&[0; 4], &control, MapFlags::ANY).context(ErrorKind::Kernel, doing)?;
        // From here on frames reach the cells. A token in use belongs to a group that lives.
        let added =
            self.groups.update(&token.to_ne_bytes(), pod::group_bytes(group), MapFlags::NO_EXIST);
        added.map_err(|error| match error.kind() {
            libbpf_rs::ErrorKind::AlreadyExists => Error::new(
                ErrorKind::Invalid,
                "the group's token is in use on this host (two members on one host?)",
            ),
            _ => Error::new(ErrorKind::Kernel, format!("{}: {error}", doing())),
        })
    }

    /// Takes a group from the programs. Running programs may still reach its cells.
    pub(crate) fn remove_group(&self, token: u64, slot: u32) {
        if let Err(error) = self.groups.delete(&token.to_ne_bytes()) {
            log::warn!("group {slot} was not in the map: {error}");
        }
    }

    /// Counters of a slot; of `FB_MAX_GROUPS`: of no group.
    pub(crate) fn counters(&self, slot: u32) -> Result<fb_counters> {
        let doing = || format!("reading the counters of group {slot}");
        let values = self
            .counters
            .lookup_percpu(&slot.to_ne_bytes(), MapFlags::ANY)
            .context(ErrorKind::Kernel, doing)?;
        values
            .and_then(|values| pod::sum_counters(&values))
            .ok_or_else(|| Error::new(ErrorKind::Kernel, format!("{}: none there", doing())))
    }

    /// The counters of no group.
    pub(crate) fn host_counters(&self) -> Result<fb_counters> {
        self.counters(FB_MAX_GROUPS)
    }
}

/// Makes an array that a process may map.
fn create_map(name: &str, bytes: u32, elements: u32, flags: u32) -> libbpf_rs::Result<CellMap> {
    let options = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as _,
        map_flags: BPF_F_MMAPABLE | flags,
        ..Default::default()
    };
    let key = size_of::<u32>() as u32;
    let map = MapHandle::create(MapType::Array, Some(name), key, bytes, elements, &options)?;
    let id = map.info()?.info.id;
    Ok(CellMap { map, id })
}

/// Whether XDP programs may read frames the way ours does (Linux 5.18).
pub(crate) fn has_xdp_load_bytes() -> bool {
    log_libbpf();
    ProgramType::Xdp.is_helper_supported(BPF_FUNC_xdp_load_bytes).unwrap_or(false)
}

/// Sends libbpf's output to the log. Warnings, among them the verifier's whole story of a refused
/// program, go at debug level, the rest at trace level.
pub(crate) fn log_libbpf() {
    let level =
        if log::log_enabled!(log::Level::Trace) { PrintLevel::Debug } else { PrintLevel::Warn };
    set_print(Some((level, |level, text| {
        let to = if level == PrintLevel::Warn { log::Level::Debug } else { log::Level::Trace };
        log::log!(to, "{}", text.trim_end());
    })));
}

/// The programs for such chunks, which are told these.
fn open(constants: Constants, chunks: Chunks, fold: Fold) -> libbpf_rs::Result<OpenObject> {
    log_libbpf();
    let object = match (chunks, fold) {
        (Chunks::Usual, Fold::Swar) => PROGRAMS,
        (Chunks::Usual, Fold::Avx2) => SIMD_PROGRAMS,
        (Chunks::Jumbo, Fold::Swar) => JUMBO_PROGRAMS,
        (Chunks::Jumbo, Fold::Avx2) => JUMBO_SIMD_PROGRAMS,
    };
    let mut open = ObjectBuilder::default().open_memory(object)?;
    for mut map in open.maps_mut() {
        if map.name() == PORT {
            map.set_initial_value(&constants.port.to_ne_bytes())?;
        } else if map.name() == TIMES {
            map.set_initial_value(&[constants.times.into()])?;
        }
    }
    Ok(open)
}

/// The maps that hold one of the [`Constants`] each, and nothing else.
const PORT: &str = ".rodata.port";
const TIMES: &str = ".rodata.times";

/// Read-only data is each object's own: it holds the same values.
fn is_own(map: &OsStr) -> bool {
    map.to_string_lossy().contains(".rodata")
}

fn find_program(object: &Object, name: &str) -> Result<OwnedFd> {
    let program = object.progs().find(|program| program.name() == name);
    let missing = || Error::new(ErrorKind::Kernel, format!("there is no program {name}"));
    duplicate(program.ok_or_else(missing)?.as_fd())
}

fn find(maps: &[MapHandle], name: &str) -> Result<MapHandle> {
    let map = maps
        .iter()
        .find(|map| map.name() == name)
        .ok_or_else(|| Error::new(ErrorKind::Kernel, format!("the programs have no map {name}")))?;
    MapHandle::try_from(map).context(ErrorKind::Kernel, || format!("map {name}"))
}

fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    fd.try_clone_to_owned().context(ErrorKind::Kernel, || "duplicating a descriptor".into())
}

/// The verifier says "permission denied" as well.
fn refused(error: libbpf_rs::Error) -> Error {
    let hint = if error.kind() == libbpf_rs::ErrorKind::PermissionDenied && !capable() {
        "it takes root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
    } else {
        "FOLDBACK_LOG=debug shows the verifier's reason"
    };
    Error::new(ErrorKind::Kernel, format!("the kernel refuses the BPF programs: {error}; {hint}"))
}
