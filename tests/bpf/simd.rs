//! The programs that fold by the kernel module foldback_simd. The tests of folds are the same for them, and run where
//! the module is loaded: scripts/test-kernels.sh loads it, and says so.
#![allow(unsafe_code)]

use std::arch::asm;
use std::env;
use std::fs;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use foldback::agent::simd::Fold;
use foldback::bindings as b;
use libbpf_rs::libbpf_sys::{BPF_PROG_TEST_RUN, bpf_attr, bpf_attr__bindgen_ty_7};
use libbpf_rs::{Xdp, XdpFlags};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, unshare};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::unistd::Pid;

use crate::host::{Chunk, Host, SUM, XDP_DROP};
use crate::kernel::{Hook, Kernel};
use crate::namespace::{V0, in_namespace};
use crate::packet::Packet;
use crate::random::Rng;
use crate::reference::{elements, fold_all};
use crate::star::data;

/// Set where the module is loaded.
const EXPECTED: &str = "FOLDBACK_TEST_SIMD";

const USUAL: usize = b::FB_CHUNK_BYTES as usize;
const JUMBO: usize = b::FB_JUMBO_BYTES as usize;

/// Folds that the module has counted: by AVX2, and without.
fn folds() -> [u64; 2] {
    ["by_avx2", "by_words"].map(|name| {
        let text = fs::read_to_string(format!("/sys/module/foldback_simd/parameters/{name}"));
        text.expect("the module is loaded").trim().parse().expect("a count")
    })
}

/// A host, and two contributions to its next chunk: the first is copied, the second folded.
struct Folds {
    host: Host,
    seq: u64,
}

impl Folds {
    fn on(kernel: &'static Kernel) -> Self {
        Self { host: Host::on(kernel, 3, 0), seq: 0 }
    }

    /// Copies the first and makes the second fold, by `run`. The fold must be right.
    fn fold(&mut self, op: b::fb_op, element: b::fb_type, bytes: usize, run: impl FnOnce(&Packet)) {
        self.host.set_consumed(self.seq);
        self.seq += 1;
        let (op, element) = (op as u8, element as u8);
        let chunk = Chunk { seq: self.seq, consumed: self.seq - 1, op, element, ..SUM };
        let mut rng = Rng(self.seq << 8 | u64::from(op));
        let inputs = [(); 2].map(|()| elements(&mut rng, element, bytes));
        assert_eq!(self.host.xdp(&self.host.contribution(1, chunk, &inputs[0])).code, XDP_DROP);
        run(&self.host.contribution(2, chunk, &inputs[1]));
        assert_eq!(self.host.counted(), "contributions_folded 2, frames_in 2");
        let right = fold_all(&inputs, op, element);
        assert!(
            data(&self.host.cell(self.seq), bytes) == right,
            "op {op}, type {element}, {bytes} bytes"
        );
    }
}

/// The only test that reads the module's counts. No other may fold beside it: scripts/test-kernels.sh runs it alone.
#[test]
fn the_module_folds_what_gains_by_it_and_is_needed_until_the_programs_end() {
    if env::var_os(EXPECTED).is_none() {
        println!("{EXPECTED} is not set: nothing to count");
        return;
    }
    assert_eq!((Kernel::shared().fold, Kernel::jumbo().fold), (Fold::Avx2, Fold::Avx2));
    in_namespace(|| {
        let (mut usual, mut jumbo) = (Folds::on(Kernel::shared()), Folds::on(Kernel::jumbo()));
        for (on, op, element, bytes, by_module) in [
            (false, b::FB_OP_MIN, b::FB_TYPE_I32, USUAL, 1),
            (false, b::FB_OP_MIN, b::FB_TYPE_I32, 1152, 1),
            (false, b::FB_OP_MIN, b::FB_TYPE_I32, 1148, 0),
            (false, b::FB_OP_PROD, b::FB_TYPE_U16, USUAL, 1),
            (false, b::FB_OP_PROD, b::FB_TYPE_U32, USUAL, 0),
            (false, b::FB_OP_SUM, b::FB_TYPE_I32, USUAL, 0),
            (true, b::FB_OP_MAX, b::FB_TYPE_U16, JUMBO, 1),
            (true, b::FB_OP_SUM, b::FB_TYPE_I64, JUMBO, 1),
            (true, b::FB_OP_BXOR, b::FB_TYPE_U64, 5120, 1),
            (true, b::FB_OP_BXOR, b::FB_TYPE_U64, 5112, 0),
        ] {
            let before = folds();
            let on = if on { &mut jumbo } else { &mut usual };
            let kernel = on.host.kernel;
            on.fold(op, element, bytes, |packet| {
                assert_eq!(kernel.run(Hook::Xdp, &packet.bytes(), V0, 0).code, XDP_DROP);
            });
            let [by_avx2, by_words] = folds();
            let moved = [by_avx2 - before[0], by_words - before[1]];
            assert_eq!(moved, [by_module, 0], "op {op}, type {element}, {bytes} bytes");
        }
        let refused = Command::new("rmmod").arg("foldback_simd").status().expect("rmmod");
        assert!(!refused.success(), "the programs still need the module");
    });
}

/// The registers ymm0 to ymm15.
type Registers = [[u8; 32]; 16];

/// Values by which each byte of each register is known.
fn distinct(round: u8) -> Registers {
    let mut registers = [[round; 32]; 16];
    for (number, register) in registers.iter_mut().enumerate() {
        register[number] = 0;
        register[31 - number] = number as u8;
    }
    registers
}

/// Loads the registers, runs some instructions, and stores the registers. All in assembly: the compiler may use them
/// at any other time. The CPU has them, since the module uses AVX2.
macro_rules! between_load_and_store {
    ($registers:expr, $($instructions:literal),+; $($operands:tt)*) => {
        asm!(
                "vmovdqu ymm0, [r8 + 0]",
                "vmovdqu ymm1, [r8 + 32]",
                "vmovdqu ymm2, [r8 + 64]",
                "vmovdqu ymm3, [r8 + 96]",
                "vmovdqu ymm4, [r8 + 128]",
                "vmovdqu ymm5, [r8 + 160]",
                "vmovdqu ymm6, [r8 + 192]",
                "vmovdqu ymm7, [r8 + 224]",
                "vmovdqu ymm8, [r8 + 256]",
                "vmovdqu ymm9, [r8 + 288]",
                "vmovdqu ymm10, [r8 + 320]",
                "vmovdqu ymm11, [r8 + 352]",
                "vmovdqu ymm12, [r8 + 384]",
                "vmovdqu ymm13, [r8 + 416]",
                "vmovdqu ymm14, [r8 + 448]",
                "vmovdqu ymm15, [r8 + 480]",
                $($instructions,)+
                "vmovdqu [r8 + 0], ymm0",
                "vmovdqu [r8 + 32], ymm1",
                "vmovdqu [r8 + 64], ymm2",
                "vmovdqu [r8 + 96], ymm3",
                "vmovdqu [r8 + 128], ymm4",
                "vmovdqu [r8 + 160], ymm5",
                "vmovdqu [r8 + 192], ymm6",
                "vmovdqu [r8 + 224], ymm7",
                "vmovdqu [r8 + 256], ymm8",
                "vmovdqu [r8 + 288], ymm9",
                "vmovdqu [r8 + 320], ymm10",
                "vmovdqu [r8 + 352], ymm11",
                "vmovdqu [r8 + 384], ymm12",
                "vmovdqu [r8 + 416], ymm13",
                "vmovdqu [r8 + 448], ymm14",
                "vmovdqu [r8 + 480], ymm15",
                "vzeroupper",
                in("r8") $registers.as_mut_ptr(),
                $($operands)*
                out("xmm0") _,
                out("xmm1") _,
                out("xmm2") _,
                out("xmm3") _,
                out("xmm4") _,
                out("xmm5") _,
                out("xmm6") _,
                out("xmm7") _,
                out("xmm8") _,
                out("xmm9") _,
                out("xmm10") _,
                out("xmm11") _,
                out("xmm12") _,
                out("xmm13") _,
                out("xmm14") _,
                out("xmm15") _,
        )
    };
}

/// Runs XDP on a packet by a system call that is made with these registers.
fn call_with(registers: &mut Registers, kernel: &Kernel, packet: &[u8]) -> i32 {
    let mut attributes = bpf_attr::default();
    attributes.test = bpf_attr__bindgen_ty_7 {
        prog_fd: kernel.xdp().as_raw_fd() as u32,
        data_size_in: packet.len() as u32,
        data_in: packet.as_ptr() as u64,
        ..Default::default()
    };
    let mut result = libc::SYS_bpf;
    // SAFETY: the kernel reads the packet and writes the attributes, which are as long as said. The registers are
    // loaded from an array of their size, and stored to it. All registers that change are named.
    unsafe {
        between_load_and_store!(registers, "syscall";
            inlateout("rax") result,
            in("rdi") BPF_PROG_TEST_RUN,
            in("rsi") &raw mut attributes,
            in("rdx") size_of::<bpf_attr>(),
            out("rcx") _,
            out("r11") _,
        );
    }
    assert_eq!(result, 0, "a test run of XDP on {} bytes", packet.len());
    // SAFETY: it is the member that a test run writes.
    unsafe { attributes.test.retval as i32 }
}

/// Computes for a while with these registers.
fn compute_with(registers: &mut Registers) {
    // SAFETY: the registers are loaded from an array of their size, and stored to it. All registers that change are
    // named.
    unsafe {
        between_load_and_store!(registers, "2: dec {left}", "jnz 2b";
            left = inout(reg) 1_000_000_u64 => _,
        );
    }
}

/// A system call of this process makes a frame be folded. So the registers that the module borrows are this one's.
#[test]
fn a_fold_leaves_the_registers_of_its_caller_alone() {
    if Kernel::jumbo().fold != Fold::Avx2 {
        return;
    }
    in_namespace(|| {
        let mut folds = Folds::on(Kernel::jumbo());
        for round in 1..100 {
            let mut registers = distinct(round);
            folds.fold(b::FB_OP_MAX, b::FB_TYPE_I32, JUMBO, |packet| {
                let code = call_with(&mut registers, Kernel::jumbo(), &packet.bytes());
                assert_eq!(code, XDP_DROP);
            });
            assert_eq!(registers, distinct(round));
        }
    });
}

/// From now on the first CPU takes in what comes to the far end of `V0`.
fn take_in_by_first_cpu() {
    // The interfaces of this network namespace are in a mount of it.
    unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace");
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("private mounts");
    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none).expect("sysfs");
    fs::write("/sys/class/net/v1/queues/rx-0/rps_cpus", "1").expect("a kernel with CONFIG_RPS");
}

fn stay_on(cpu: usize) {
    let mut only = CpuSet::new();
    only.set(cpu).expect("a CPU");
    sched_setaffinity(Pid::from_raw(0), &only).expect("two CPUs");
}

/// Sends a packet from `V0`.
fn send(from: &OwnedFd, packet: &[u8]) {
    // SAFETY: an address of integers.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_IP as u16).to_be();
    address.sll_ifindex = V0 as i32;
    // SAFETY: packet and address are of the sizes beside them.
    let sent = unsafe {
        libc::sendto(
            from.as_raw_fd(),
            packet.as_ptr().cast(),
            packet.len(),
            0,
            (&raw const address).cast(),
            size_of_val(&address) as u32,
        )
    };
    assert_eq!(sent, packet.len() as isize);
}

/// A process computes on the CPU that folds the frames, which come from another one.
#[test]
fn a_fold_leaves_the_registers_of_the_process_that_it_interrupts_alone() {
    const ROUNDS: u64 = 100;
    if Kernel::shared().fold != Fold::Avx2 {
        return;
    }
    in_namespace(|| {
        take_in_by_first_cpu();
        let kernel = Kernel::shared();
        let xdp = Xdp::new(kernel.xdp());
        xdp.attach(V0 as i32 + 1, XdpFlags::SKB_MODE).expect("XDP is attached");
        let from = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None);
        let from = from.expect("a packet socket");
        static OVER: AtomicBool = AtomicBool::new(false);
        let computing = thread::spawn(|| {
            stay_on(0);
            while !OVER.load(Ordering::Relaxed) {
                for round in 1..100 {
                    let mut registers = distinct(round);
                    compute_with(&mut registers);
                    assert_eq!(registers, distinct(round));
                }
            }
        });
        stay_on(1);
        let host = Host::on(kernel, 3, 0);
        let slot = host.slot;
        let mut folds = Folds { host, seq: 0 };
        for _ in 0..ROUNDS {
            let before = kernel.counters(slot).frames_in;
            folds.fold(b::FB_OP_MIN, b::FB_TYPE_I32, USUAL, |packet| {
                send(&from, &packet.bytes());
                let end = Instant::now() + Duration::from_secs(60);
                // XDP counts the frame last.
                while kernel.counters(slot).frames_in < before + 2 {
                    assert!(Instant::now() < end, "the frame is not folded");
                    thread::yield_now();
                }
            });
        }
        OVER.store(true, Ordering::Relaxed);
        computing.join().expect("no register has changed");
        // The first contributions came by test runs, the others by interrupts of the first CPU.
        assert_eq!(kernel.counters_by_cpu(slot)[0].frames_in, ROUNDS);
        xdp.detach(V0 as i32 + 1, XdpFlags::SKB_MODE).expect("XDP is detached");
    });
}
