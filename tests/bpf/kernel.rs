//! The real programs in the kernel, attached to nothing, and their maps.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use foldback::agent::simd::{Fold, Module};
use foldback::bindings as b;
use foldback::wire::Seal;
use foldback::wire::cells::cell_bytes;
use libbpf_rs::libbpf_sys::{
    BPF_F_INNER_MAP, BPF_F_MMAPABLE, BPF_F_XDP_HAS_FRAGS, bpf_map_create_opts,
    bpf_obj_get_info_by_fd, bpf_prog_info, bpf_prog_test_run_opts, bpf_test_run_opts,
};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, ObjectBuilder, ProgramType};
use nix::unistd::geteuid;

/// One of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    Ingress,
    Egress,
    Xdp,
}

/// The result of a program on a packet.
pub struct Verdict {
    pub code: i32,
    /// `skb->mark` afterwards; 0 of XDP.
    pub mark: u32,
    pub packet: Vec<u8>,
    /// The time that the program took.
    pub ns: u32,
}

/// A BPF instruction, by the fields that tests ask for.
#[derive(Clone, Copy)]
pub struct Instruction {
    pub opcode: u8,
    pub to: u8,
    pub from: u8,
    pub offset: i16,
}

impl Instruction {
    fn of(word: u64) -> Self {
        let [opcode, registers, low, high, ..] = word.to_le_bytes();
        let offset = i16::from_le_bytes([low, high]);
        Self { opcode, to: registers & 15, from: registers >> 4, offset }
    }
}

/// Programs and maps.
pub struct Kernel {
    /// Most payload of a frame.
    pub chunk_bytes: u16,
    /// As the agent would choose.
    pub fold: Fold,
    ingress: OwnedFd,
    egress: OwnedFd,
    xdp: OwnedFd,
    groups: MapHandle,
    cells: MapHandle,
    tables: MapHandle,
    keys: MapHandle,
    counters: MapHandle,
}

/// Words of `struct __sk_buff` that a test run takes and gives; there is room for it to grow.
const SK_BUFF_WORDS: usize = 64;
const SK_BUFF_MARK: usize = 2;
const SK_BUFF_IFINDEX: usize = 10;
const SK_BUFF_GSO_SEGS: usize = 41;
const SK_BUFF_GSO_SIZE: usize = 44;

impl Kernel {
    /// Loads all three programs, for the usual MTU, on maps of their own.
    pub fn load() -> Self {
        Self::of([b::PROGRAMS, b::SIMD_PROGRAMS], b::FB_CHUNK_BYTES, false)
    }

    /// `times`: each group's CPU time is counted (`FOLDBACK_CPU_TIME`).
    fn of([swar, simd]: [&[u8]; 2], chunk_bytes: u32, times: bool) -> Self {
        let fold = Module::find().fold();
        let object = if fold == Fold::Avx2 { simd } else { swar };
        assert!(geteuid().is_root(), "this test needs root: it loads BPF programs");
        let mut open = ObjectBuilder::default().open_memory(object).expect("the object opens");
        for mut program in open.progs_mut() {
            if program.prog_type() == ProgramType::Xdp {
                program.set_flags(BPF_F_XDP_HAS_FRAGS); // as the agent does
            }
        }
        let mut constant = open.maps_mut().find(|map| map.name() == ".rodata.times");
        let constant = constant.as_mut().expect("the constant");
        constant.set_initial_value(&[times.into()]).expect("a value for it");
        let object = open.load().expect("the kernel takes the programs");
        let program = |name: &str| {
            let program = object.progs().find(|program| program.name() == name);
            let program = program.expect("a program");
            program.as_fd().try_clone_to_owned().expect("a descriptor")
        };
        let map = |name: &str| {
            let map = object.maps().find(|map| map.name() == name);
            MapHandle::try_from(&map.expect("a map")).expect("a handle")
        };
        Self {
            chunk_bytes: chunk_bytes as u16,
            fold,
            ingress: program("fb_tc_ingress"),
            egress: program("fb_tc_egress"),
            xdp: program("fb_xdp_ingress"),
            groups: map("groups"),
            cells: map("cells"),
            tables: map("tables"),
            keys: map("keys"),
            counters: map("counters"),
        }
    }

    /// One for all tests of this process: each has groups of its own.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Kernel> = OnceLock::new();
        SHARED.get_or_init(Self::load)
    }

    /// The same, with the CPU time of each group counted.
    pub fn timed() -> &'static Self {
        static TIMED: OnceLock<Kernel> = OnceLock::new();
        TIMED.get_or_init(|| Self::of([b::PROGRAMS, b::SIMD_PROGRAMS], b::FB_CHUNK_BYTES, true))
    }

    /// The same, for jumbo frames.
    pub fn jumbo() -> &'static Self {
        static JUMBO: OnceLock<Kernel> = OnceLock::new();
        JUMBO.get_or_init(|| {
            Self::of([b::JUMBO_PROGRAMS, b::JUMBO_SIMD_PROGRAMS], b::FB_JUMBO_BYTES, false)
        })
    }

    fn program(&self, hook: Hook) -> &OwnedFd {
        match hook {
            Hook::Ingress => &self.ingress,
            Hook::Egress => &self.egress,
            Hook::Xdp => &self.xdp,
        }
    }

    /// Instructions that the verifier went through when the program was loaded (Linux 5.16).
    pub fn verified(&self, hook: Hook) -> u32 {
        self.info(hook, &mut []).verified_insns
    }

    /// The program's instructions as the kernel has them, its functions one behind the other.
    pub fn code(&self, hook: Hook) -> Vec<Instruction> {
        let bytes = self.info(hook, &mut []).xlated_prog_len as usize;
        let mut words = vec![0_u64; bytes / 8];
        self.info(hook, &mut words);
        words.into_iter().map(Instruction::of).collect()
    }

    /// The kernel's word on a program, whose instructions come into `code` as far as there is room.
    fn info(&self, hook: Hook, code: &mut [u64]) -> bpf_prog_info {
        let mut info = bpf_prog_info {
            xlated_prog_len: size_of_val(code) as u32,
            xlated_prog_insns: if code.is_empty() { 0 } else { code.as_mut_ptr() as u64 },
            ..Default::default()
        };
        let mut bytes = size_of_val(&info) as u32;
        let program = self.program(hook).as_raw_fd();
        // SAFETY: `info` has room for as many bytes as are said, and outlives the call; so does `code`, whose
        // length it says; the program's descriptor is open.
        let result =
            unsafe { bpf_obj_get_info_by_fd(program, (&raw mut info).cast(), &raw mut bytes) };
        assert_eq!(result, 0, "asking about {hook:?}");
        info
    }

    /// Runs a program on a packet that is on an interface of this thread's network namespace.
    pub fn run(&self, hook: Hook, packet: &[u8], interface: u32, mark: u32) -> Verdict {
        self.run_segmented(hook, packet, interface, mark, None)
    }

    /// The same; the packet is to be cut into so many segments of so many bytes of UDP payload.
    pub fn run_segmented(
        &self,
        hook: Hook,
        packet: &[u8],
        interface: u32,
        mark: u32,
        segments: Option<(u32, u32)>,
    ) -> Verdict {
        let program = self.program(hook);
        let mut out = vec![0_u8; 16384];
        let mut context = [0_u32; SK_BUFF_WORDS];
        (context[SK_BUFF_MARK], context[SK_BUFF_IFINDEX]) = (mark, interface);
        if let Some((count, bytes)) = segments {
            (context[SK_BUFF_GSO_SEGS], context[SK_BUFF_GSO_SIZE]) = (count, bytes);
        }
        let mut context_out = [0_u32; SK_BUFF_WORDS];
        let mut options = bpf_test_run_opts {
            sz: size_of::<bpf_test_run_opts>() as _,
            data_in: packet.as_ptr().cast(),
            data_size_in: packet.len() as u32,
            data_out: out.as_mut_ptr().cast(),
            data_size_out: out.len() as u32,
            ..Default::default()
        };
        if hook != Hook::Xdp {
            options.ctx_in = context.as_ptr().cast();
            options.ctx_size_in = size_of_val(&context) as u32;
            options.ctx_out = context_out.as_mut_ptr().cast();
            options.ctx_size_out = size_of_val(&context_out) as u32;
        }
        // SAFETY: every pointer of the options is to memory of the size beside it, which outlives
        // the call; the program's descriptor is open.
        let result = unsafe { bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
        assert_eq!(result, 0, "a test run of {hook:?} on {} bytes", packet.len());
        out.truncate(options.data_size_out as usize);
        let (code, mark) = (options.retval as i32, context_out[SK_BUFF_MARK]);
        Verdict { code, mark, packet: out, ns: options.duration }
    }

    /// The XDP program, to be attached.
    pub fn xdp(&self) -> BorrowedFd<'_> {
        self.xdp.as_fd()
    }

    /// Makes cells for a group, and lets the programs know both.
    pub fn add_group(&self, token: u64, seal: &Seal, group: &b::fb_group) -> MapHandle {
        let inner = create_cells(group.window, self.chunk_bytes);
        let fd = inner.as_fd().as_raw_fd().to_ne_bytes();
        self.cells.update(&group.slot.to_ne_bytes(), &fd, MapFlags::ANY).expect("cells");
        let key = seal.key_bytes(self.keys.value_size() as usize);
        self.keys.update(&group.slot.to_ne_bytes(), &key, MapFlags::ANY).expect("a key");
        // The control element lies in a cell's place.
        let mut control: b::fb_cell = element(&inner, 0);
        control.arrived = token;
        set_element(&inner, 0, &control);
        let control: b::fb_control = element(&inner, 0);
        assert_eq!(control.token, token);
        self.set_group(token, group);
        inner
    }

    /// Makes a table of pairs for a group, and lets the programs know it.
    pub fn add_table(&self, token: u64, slot: u32) -> MapHandle {
        let options = bpf_map_create_opts {
            sz: size_of::<bpf_map_create_opts>() as _,
            map_flags: BPF_F_MMAPABLE,
            ..Default::default()
        };
        let (key, value) = (size_of::<u32>() as u32, size_of::<b::fb_part>() as u32);
        let table = MapHandle::create(
            MapType::Array,
            Some("test_table"),
            key,
            value,
            1 + b::FB_PARTS,
            &options,
        );
        let table = table.expect("a table");
        let fd = table.as_fd().as_raw_fd().to_ne_bytes();
        self.tables.update(&slot.to_ne_bytes(), &fd, MapFlags::ANY).expect("tables");
        set_element(&table, 0, &b::fb_table { token, ..element(&table, 0) });
        table
    }

    /// Takes the cells from a group.
    pub fn remove_cells(&self, slot: u32) {
        self.cells.delete(&slot.to_ne_bytes()).expect("cells");
    }

    pub fn set_group(&self, token: u64, group: &b::fb_group) {
        let token = token.to_ne_bytes();
        self.groups.update(&token, bytes_of(group), MapFlags::ANY).expect("a group");
    }

    pub fn group(&self, token: u64) -> b::fb_group {
        let bytes = self.groups.lookup(&token.to_ne_bytes(), MapFlags::ANY).expect("groups");
        from_bytes(&bytes.expect("the group is there"))
    }

    fn counter_bytes(&self, slot: u32) -> Vec<Vec<u8>> {
        let values = self.counters.lookup_percpu(&slot.to_ne_bytes(), MapFlags::ANY);
        values.expect("counters").expect("an element")
    }

    /// Counters of a slot, of each CPU.
    pub fn counters_by_cpu(&self, slot: u32) -> Vec<b::fb_counters> {
        self.counter_bytes(slot).iter().map(|bytes| from_bytes(bytes)).collect()
    }

    /// Counters of a slot, over all CPUs.
    pub fn counters(&self, slot: u32) -> b::fb_counters {
        let values = self.counter_bytes(slot);
        let mut sum = vec![0_u8; size_of::<b::fb_counters>()];
        for value in values {
            for (sum, word) in
                sum.as_chunks_mut::<8>().0.iter_mut().zip(value.as_chunks::<8>().0.iter())
            {
                *sum = (u64::from_ne_bytes(*sum) + u64::from_ne_bytes(*word)).to_ne_bytes();
            }
        }
        from_bytes(&sum)
    }
}

fn create_cells(window: u32, chunk_bytes: u16) -> MapHandle {
    let options = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as _,
        map_flags: BPF_F_MMAPABLE | BPF_F_INNER_MAP,
        ..Default::default()
    };
    let (key, value) = (size_of::<u32>() as u32, cell_bytes(chunk_bytes.into()));
    MapHandle::create(MapType::Array, Some("test_cells"), key, value, 1 + window, &options)
        .expect("a map of cells")
}

/// Bytes of element `index` of a group's cells, or of its table.
pub fn bytes_at(cells: &MapHandle, index: u32) -> Vec<u8> {
    cells.lookup(&index.to_ne_bytes(), MapFlags::ANY).expect("cells").expect("an element")
}

/// Element `index` of a group's cells, or of its table.
pub fn element<T: Plain>(cells: &MapHandle, index: u32) -> T {
    let mut bytes = bytes_at(cells, index);
    // Cells of the usual MTU have fewer data than the structure has.
    bytes.resize(bytes.len().max(size_of::<T>()), 0);
    from_bytes(&bytes)
}

/// Sets a cell, or what lies at the beginning of one's place.
pub fn set_element<T: Plain>(cells: &MapHandle, index: u32, value: &T) {
    let mut bytes = bytes_at(cells, index);
    let length = size_of::<T>().min(bytes.len());
    bytes[..length].copy_from_slice(&bytes_of(value)[..length]);
    cells.update(&index.to_ne_bytes(), &bytes, MapFlags::ANY).expect("cells");
}

/// Structures of the C header.
///
/// # Safety
/// Without holes, and of integers alone: any bytes are a value.
pub unsafe trait Plain: Copy {}

// SAFETY: the header asserts its size, and bindgen the offset of every field.
unsafe impl Plain for b::fb_cell {}
// SAFETY: as above.
unsafe impl Plain for b::fb_part {}
// SAFETY: made of u64 alone.
unsafe impl Plain for b::fb_table {}
// SAFETY: as above.
unsafe impl Plain for b::fb_control {}
// SAFETY: as above.
unsafe impl Plain for b::fb_group {}
// SAFETY: made of u64 alone.
unsafe impl Plain for b::fb_counters {}

fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: `Plain`: each byte is initialized; the slice borrows the value.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

fn from_bytes<T: Plain>(bytes: &[u8]) -> T {
    assert!(bytes.len() >= size_of::<T>());
    // SAFETY: `Plain`: any bytes are a value, and there are enough of them.
    unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
}
