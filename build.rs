//! Compiles the BPF programs and makes Rust of the headers they share with user space.

use std::env;
use std::path::PathBuf;

use bindgen::callbacks::{DeriveInfo, ParseCallbacks};
use libbpf_cargo::SkeletonBuilder;

/// The programs, whose objects are taken as they are: for chunks that fit the usual MTU, and for chunks of jumbo
/// frames. Either exists once more, for hosts with the kernel module foldback_simd.
const PROGRAMS: &[&str] =
    &["bpf/foldback", "bpf/foldback_jumbo", "bpf/foldback_simd", "bpf/foldback_jumbo_simd"];
/// Others, which have skeletons.
const SKELETONS: &[&str] = &["bpf/lab_faults", "benchmarks/floor/bench_floor"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-changed=benchmarks/floor");

    // Programs that are linked with the library ask for it by this name; scripts/install.sh makes the link.
    let major = env::var("CARGO_PKG_VERSION_MAJOR").expect("cargo sets it");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libfoldback.so.{major}");

    // asm/types.h lives in a directory of the host's architecture.
    let include = format!("/usr/include/{}-linux-gnu", env::consts::ARCH);
    let include = include.as_str();
    for object in PROGRAMS.iter().chain(SKELETONS) {
        let name = object.rsplit('/').next().expect("a path has a last part");
        let mut builder = SkeletonBuilder::new();
        builder
            .source(format!("{object}.bpf.c"))
            .obj(out.join(format!("{name}.bpf.o")))
            // v3: 32-bit ALU, and the atomic operations that the cells' lock needs (Linux 5.12).
            .clang_args(["-mcpu=v3", "-Wall", "-Werror", "-Ibpf", "-I", include]);
        let built = match SKELETONS.contains(object) {
            true => builder.build_and_generate(out.join(format!("{name}.skel.rs"))),
            false => builder.build(),
        };
        built.unwrap_or_else(|error| panic!("{object}.bpf.c does not build: {error:#}"));
    }

    // The same protocol for user space.
    cc::Build::new()
        .compiler("clang")
        .files(["bpf/native.c", "bpf/exact.c"])
        .include("bpf")
        .flags(["-Wall", "-Werror"])
        .opt_level(2)
        .compile("foldback_native");

    // The lab preloads these into launchers and into MPICH's ranks, as libraries of their own.
    for name in ["mpich_finalize", "one_session"] {
        let source = format!("src/lab/launch/{name}.c");
        println!("cargo:rerun-if-changed={source}");
        let built = cc::Build::new()
            .compiler("clang")
            .flags(["-Wall", "-Werror", "-shared"])
            .pic(true)
            .opt_level(2)
            .get_compiler()
            .to_command()
            .args([&source, "-o"])
            .arg(out.join(format!("{name}.so")))
            .status()
            .expect("clang does not start");
        assert!(built.success(), "{source} does not build");
    }

    bindgen::Builder::default()
        .header("bpf/native.h")
        .header("bpf/lab_faults.h")
        .clang_args(["-Ibpf", "-I", include])
        .allowlist_item("[fF][bB]_.*")
        .allowlist_item("[lL][fF]_.*")
        .prepend_enum_name(false)
        .derive_default(true)
        .parse_callbacks(Box::new(SerializableCounters))
        .generate_comments(false)
        .generate()
        .expect("bpf/intf.h does not parse")
        .write_to_file(out.join("intf.rs"))
        .expect("OUT_DIR is writable");
}

/// Gives the counters their names in JSON.
#[derive(Debug)]
struct SerializableCounters;

impl ParseCallbacks for SerializableCounters {
    fn add_derives(&self, info: &DeriveInfo<'_>) -> Vec<String> {
        if info.name.ends_with("_counters") { vec!["serde::Serialize".into()] } else { Vec::new() }
    }
}
