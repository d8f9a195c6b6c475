//! `include/foldback.h` is what cbindgen makes of `src/capi.rs`, and C accepts it; and the library
//! exports what it should, no less and no more.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use foldback::call::COLLECTIVES;

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
        // Open MPI's old classes for C++ do not stand up to so many warnings.
        let status = Command::new("mpicc.openmpi")
            .args(["-x", language, "-fsyntax-only", "-Wall", "-Wextra", "-Werror"])
            .arg("-DOMPI_SKIP_MPICXX")
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
    let other: Vec<_> = exported.iter().filter(|name| !is_hook(name)).collect();
    assert!(other.is_empty(), "exported too: {other:?}");
    for name in ["MPI_Init", "MPI_Wait", "MPI_Allreduce", "MPI_Iallreduce_c", "mpi_bcast_f08_"] {
        assert!(exported.contains(name), "{name} is not exported");
    }
    for collective in COLLECTIVES {
        let name = collective.name();
        let lower = name.to_lowercase();
        for name in [
            format!("MPI_{name}"),
            format!("MPI_I{lower}"),
            format!("MPI_{name}_init"),
            format!("MPIX_{name}_init"),
            format!("mpi_{lower}_"),
            format!("mpi_i{lower}_f08_"),
            format!("mpix_{lower}_init_"),
        ] {
            assert!(exported.contains(name.as_str()), "{name} is not exported");
        }
    }
}

/// The version of RHEL 9. Debian 12, where this is built, has 2.36.
#[test]
fn glibc_2_34_will_do() {
    let command = Path::new(env!("CARGO_BIN_EXE_foldback"));
    let benchmarks = Path::new(env!("CARGO_BIN_EXE_foldback-bench"));
    for file in [command, benchmarks, &command.with_file_name("libfoldback.so")] {
        let output = Command::new("objdump").arg("-T").arg(file).output().expect("binutils");
        let text = String::from_utf8(output.stdout).unwrap();
        let minor = |word: &str| {
            let version = word.trim_matches(['(', ')']).strip_prefix("GLIBC_2.")?.to_owned();
            version.split('.').next()?.parse::<u32>().ok()
        };
        let needed: Vec<_> = text
            .lines()
            .filter(|line| line.split_whitespace().filter_map(minor).any(|v| v > 34))
            .collect();
        assert!(text.contains("GLIBC_2.") && needed.is_empty(), "{}: {needed:#?}", file.display());
    }
}

/// root's agent is that executable.
#[test]
fn the_command_has_no_chart_library() {
    let has_charts = |file| {
        let bytes = std::fs::read(file).unwrap();
        bytes.windows(8).any(|word| word == b"plotters")
    };
    assert!(!has_charts(env!("CARGO_BIN_EXE_foldback")));
    assert!(has_charts(env!("CARGO_BIN_EXE_foldback-bench")));
}

/// Functions that are not collectives.
const OTHERS: &[&str] = &[
    "init",
    "init_thread",
    "wait",
    "waitall",
    "waitany",
    "waitsome",
    "test",
    "testall",
    "testany",
    "testsome",
    "request_get_status",
    "request_get_status_any",
    "request_get_status_all",
    "request_get_status_some",
    "request_free",
    "start",
    "startall",
    "comm_set_info",
    "comm_dup_with_info",
    "comm_free",
    "comm_disconnect",
    "comm_idup",
    "comm_idup_with_info",
    "cart_create",
    "graph_create",
    "dist_graph_create",
    "dist_graph_create_adjacent",
];

/// Whether a symbol is foldback's own, or a function of C or Fortran that it takes on.
fn is_hook(name: &str) -> bool {
    let collective = |rest: &str| {
        COLLECTIVES.iter().any(|collective| {
            let name = collective.name().to_lowercase();
            let forms = [name.clone(), format!("i{name}"), format!("{name}_init")];
            forms.iter().any(|form| rest == form)
        })
    };
    let function = |rest: &str| collective(rest) || OTHERS.contains(&rest);
    // Fortran's names end with an underscore, C's are capitalised.
    if let Some(rest) = name.strip_suffix('_') {
        let rest = rest.strip_suffix('_').or(rest.strip_suffix("_f08")).unwrap_or(rest);
        let rest = rest.strip_prefix("mpi_").or(rest.strip_prefix("mpix_"));
        return rest.is_some_and(function);
    }
    match name.strip_prefix("MPI_").or(name.strip_prefix("MPIX_")) {
        Some(rest) => {
            let lower = rest.to_lowercase();
            function(lower.strip_suffix("_c").unwrap_or(&lower))
        }
        None => include_str!("../include/foldback.h").contains(&format!("{name}(")),
    }
}
