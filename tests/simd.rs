//! The folds of the kernel module foldback_simd, compiled for user space, against the fold of the BPF programs. The
//! module itself is tested by scripts/test-kernels.sh.

use std::path::Path;
use std::process::Command;

/// Runs a command to its end; its output.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}{complaint}");
    said
}

/// Compiles kmod/foldback_simd/check.c as the module is compiled: only one file may use vectors.
fn check() -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (module, bpf) = (root.join("kmod/foldback_simd"), root.join("bpf"));
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("simd");
    std::fs::create_dir_all(&out).expect("a directory");
    let compile = |name: &str, flags: &[&str]| {
        let object = out.join(format!("{name}.o"));
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-Wall", "-Werror", "-Wno-unknown-pragmas", "-fno-strict-aliasing"]);
        gcc.args(flags).arg("-I").arg(&module).arg("-I").arg(&bpf);
        run(gcc.arg("-c").arg(module.join(name)).arg("-o").arg(&object));
        object
    };
    let objects = [compile("folds.c", &["-mavx2"]), compile("check.c", &[])];
    let program = out.join("check");
    run(Command::new("gcc").args(objects).arg("-o").arg(&program));
    Command::new(program)
}

#[test]
#[cfg(target_arch = "x86_64")]
fn vectors_fold_every_op_on_every_type_as_words_do() {
    let said = run(&mut check());
    if said == "no AVX2\n" {
        println!("skipped: this CPU has no AVX2");
        return;
    }
    let folds = said.strip_prefix("equal: ").and_then(|rest| rest.split(' ').next());
    let folds: u32 = folds.and_then(|count| count.parse().ok()).expect("a count");
    // 80 folds, each of 321 short lengths, 32 alignments and others; and the sums of floating point.
    assert!(folds > 80 * (321 + 32), "{said}");
}

#[test]
#[cfg(target_arch = "x86_64")]
#[ignore = "a measurement: it has nothing to assert about times"]
fn times_of_words_and_vectors() {
    print!("{}", run(check().arg("measure")));
}
