//! `include/foldback.h` is what cbindgen makes of `src/capi.rs`, and C accepts it; and the library
//! exports what it should, no less and no more.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn generated() -> String {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).unwrap();
    let header = cbindgen::Builder::new()
        .with_config(config)
        .with_src(root().join("src/capi.rs"))
        .generate()
        .unwrap();
    let mut text = Vec::new();
    header.write(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn the_header_in_the_repository_is_the_generated_one() {
    let path = root().join("include/foldback.h");
    if std::env::var_os("FOLDBACK_RENEW_HEADER").is_some() {
        std::fs::write(&path, generated()).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == generated(), "include/foldback.h is out of date: run `make header`");
}

#[test]
fn c_and_cplusplus_compilers_accept_the_header() {
    for language in ["c", "c++"] {
        let status = Command::new("cc")
            .args(["-x", language, "-fsyntax-only", "-Wall", "-Wextra", "-Werror"])
            .arg(root().join("include/foldback.h"))
            .status()
            .unwrap();
        assert!(status.success(), "{language}");
    }
}

/// Functions whose mere presence would change what a program does (`MPI_Get_version` makes mpi4py
/// take the wrong MPI's constants, …) must not slip in.
#[test]
fn the_library_exports_its_hooks_and_nothing_else() {
    let library = Path::new(env!("CARGO_BIN_EXE_foldback")).with_file_name("libfoldback.so");
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output().unwrap();
    assert!(output.status.success(), "nm {}", library.display());
    let text = String::from_utf8(output.stdout).unwrap();
    let exported: BTreeSet<_> = text.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let expected = [
        "MPI_Allreduce",
        "MPI_Barrier",
        "MPI_Bcast",
        "MPI_Init",
        "MPI_Init_thread",
        "MPI_Reduce",
        "foldback_is_active",
        "foldback_version",
    ];
    assert_eq!(exported, BTreeSet::from(expected));
}
