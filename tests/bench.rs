//! `foldback bench` and its subcommands on tiny runs: the files that they write, the columns in
//! them, and how they end. No time is asserted: times on a busy machine say nothing. Needs root.

#[path = "mpi/harness.rs"]
#[allow(dead_code)] // It serves more tests than these.
mod harness;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Output, Stdio};

use harness::{FOLDBACK, Mpi, Scratch, command, install, install_script, library, program, turn};

/// Longest that any command here may take: `timeout` ends it.
const PATIENCE: &str = "900";

fn bench(arguments: &[&str]) -> Output {
    assert!(nix::unistd::geteuid().is_root(), "the lab needs root");
    // Builds the programs.
    let programs = program(Mpi::Open, "latency");
    assert!(programs.is_file());
    command("timeout")
        .args([PATIENCE, FOLDBACK, "bench"])
        .args(arguments)
        .env("FOLDBACK_LIB", library())
        // A test does not decide which way is faster.
        .env("FOLDBACK_ROUTE", "fold")
        .stdin(Stdio::null())
        .output()
        .expect("timeout is in coreutils")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs it, with its results in `out`. Returns what it printed.
#[track_caller]
fn ok(arguments: &[&str], out: &Path) -> String {
    without_jobs(&[arguments, &["--timeout", "600"]].concat(), out)
}

/// The same of what has no jobs, which could take too long.
#[track_caller]
fn without_jobs(arguments: &[&str], out: &Path) -> String {
    let mut all = arguments.to_vec();
    all.extend(["--repeats", "1", "--out", out.to_str().unwrap()]);
    let output = bench(&all);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {}\n{stdout}{stderr}", output.status);
    // The job's own lines come between the two.
    let begins = stderr.lines().any(|line| line.starts_with("bench: round 1/1, "));
    let ends = stderr.lines().any(|line| line.ends_with(" left"));
    assert!(begins && ends, "no progress in: {stderr}");
    stdout
}

/// One line on standard error (clap adds a hint), and an exit status that says so.
#[track_caller]
fn fails(arguments: &[&str], says: &str) {
    let output = bench(arguments);
    let stderr = text(&output.stderr);
    assert!(matches!(output.status.code(), Some(1 | 2)), "{arguments:?}: {}", output.status);
    let first = stderr.lines().next().unwrap_or_default();
    assert!(first.contains(says), "{arguments:?}: no {says:?} in: {stderr}");
    assert!(output.stdout.is_empty(), "{arguments:?}: {}", text(&output.stdout));
}

/// `foldback` with nothing of its own beside it or in `$PATH`.
#[test]
fn a_missing_executable_is_named_in_one_line() {
    let alone = Scratch::new("bench-alone");
    fs::create_dir(alone.path()).unwrap();
    let program = alone.path().join("foldback");
    install(Path::new(FOLDBACK), &program);
    let output = command(&program).args(["bench", "--help"]).env("PATH", "").output().unwrap();
    let says = format!("foldback: no foldback-bench beside {} ", program.display());
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with(&says) && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn each_way_to_ask_for_help_leads_to_the_same() {
    let help = |arguments: &[&str]| {
        let output = command(FOLDBACK).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let apps = help(&["bench", "apps", "--help"]);
    assert!(apps.contains("Usage: foldback bench apps "), "{apps}");
    assert_eq!(help(&["bench", "help", "apps"]), apps);
    assert_eq!(help(&["help", "bench", "apps"]), apps);
    let bench = help(&["bench", "--help"]);
    let summary = bench.lines().next().unwrap();
    assert!(help(&["--help"]).contains(summary), "{summary}");
    assert_eq!(help(&["help", "bench"]), bench);
}

/// Rows of a CSV, by column; its first lines say where it was measured.
struct Csv {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Csv {
    #[track_caller]
    fn read(path: &Path) -> Self {
        let text =
            fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(text.starts_with("# foldback "), "no machine in {}:\n{text}", path.display());
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let split = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<_>>();
        let columns = split(lines.next().expect("a CSV has a heading"));
        let rows: Vec<_> = lines.map(split).collect();
        assert!(rows.iter().all(|row| row.len() == columns.len()), "{text}");
        assert!(!rows.is_empty(), "{text}");
        Self { columns, rows }
    }

    #[track_caller]
    fn column(&self, name: &str) -> Vec<&str> {
        let at = self.columns.iter().position(|column| column == name);
        let at = at.unwrap_or_else(|| panic!("no column {name} among {:?}", self.columns));
        self.rows.iter().map(|row| row[at].as_str()).collect()
    }

    #[track_caller]
    fn assert_positive(&self, name: &str) {
        for value in self.column(name) {
            assert!(value.parse::<f64>().is_ok_and(|value| value > 0.0), "{name}: {value}");
        }
    }
}

/// No lab of a `foldback bench` is left.
#[track_caller]
fn assert_no_lab() {
    let labs = fs::read_dir("/run/foldback/lab").into_iter().flatten().flatten();
    let left: Vec<_> = labs
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("bench-"))
        .collect();
    assert!(left.is_empty(), "labs are left: {left:?}");
}

#[test]
fn latencies_of_two_mpis_are_compared() {
    let _turn = turn();
    let out = Scratch::new("bench-latency");
    let table = ok(
        &[
            "--mpi",
            "openmpi,mpich",
            "--hosts",
            "2",
            "--collective",
            "allreduce,barrier",
            "--sizes",
            "4,64",
            "--iterations",
            "20",
        ],
        out.path(),
    );
    assert!(table.contains("| openmpi4 | foldback |"), "{table}");
    assert!(table.contains("| mpich4 | foldback |"), "{table}");
    let summary = Csv::read(&out.path().join("summary.csv"));
    // Two sizes and the barrier, on each MPI.
    assert_eq!(summary.rows.len(), 6);
    assert_eq!(summary.column("folded"), ["1"; 6]);
    for mode in ["mpi", "foldback"] {
        for value in ["us", "min_us", "median_us", "p99_us", "cpu_us", "frames", "wire_bytes"] {
            summary.assert_positive(&format!("{mode}_{value}"));
        }
    }
    for ratio in ["ratio", "ratio_min", "ratio_max", "slowest_ratio", "fastest_ratio"] {
        summary.assert_positive(ratio);
    }
    let samples = Csv::read(&out.path().join("samples.csv"));
    assert_eq!(samples.rows.len(), 12);
    for file in ["table.md", "allreduce-openmpi4.svg", "allreduce-ratio-mpich4.svg"] {
        assert!(out.path().join(file).is_file(), "no {file}");
    }
    assert_no_lab();
}

#[test]
fn growth_is_fitted_over_hosts_with_ranks_mtu_rate_and_doubles() {
    let _turn = turn();
    let out = Scratch::new("bench-growth");
    let options = ["--hosts", "2,3,4", "--ranks-per-host", "2", "--mtu", "9000", "--rate", "1gbit"];
    let what = ["--type", "double", "--collective", "bcast", "--sizes", "8", "--iterations", "10"];
    let table = ok(&[&options[..], &what[..]].concat(), out.path());
    assert!(table.contains("mtu 9000, links shaped to 1gbit"), "{table}");
    assert!(table.contains("2, 3, 4 hosts, 2 ranks on each"), "{table}");
    let summary = Csv::read(&out.path().join("summary.csv"));
    assert_eq!(summary.column("ranks"), ["4", "6", "8"]);
    let growth = Csv::read(&out.path().join("growth.csv"));
    // Latency and CPU time, both ways.
    assert_eq!(growth.rows.len(), 4);
    growth.assert_positive("factor");
    assert!(out.path().join("bcast-growth.svg").is_file());
    assert_no_lab();
}

#[test]
fn overlap_still_has_its_table() {
    let _turn = turn();
    let out = Scratch::new("bench-overlap");
    let what = ["--overlap", "--hosts", "2", "--collective", "ibcast", "--sizes", "4,64"];
    let table = ok(&[&what[..], &["--iterations", "20"]].concat(), out.path());
    assert!(table.contains("| ibcast | 2 | 64 |"), "{table}");
    let csv = Csv::read(&out.path().join("overlap.csv"));
    assert_eq!(csv.rows.len(), 4);
    assert!(out.path().join("ibcast.svg").is_file());
}

#[test]
fn large_messages_that_take_too_much_memory_are_left_out() {
    let _turn = turn();
    let out = Scratch::new("bench-large");
    let what = ["--hosts", "2", "--collective", "bcast,alltoall", "--sizes", "4,16777216"];
    ok(&[&what[..], &["--iterations", "5", "--memory", "100"]].concat(), out.path());
    let summary = Csv::read(&out.path().join("summary.csv"));
    assert_eq!(summary.column("bytes"), ["4", "16777216", "4"]);
}

#[test]
fn the_floor_stands_beside_the_allreduce() {
    let _turn = turn();
    let out = Scratch::new("bench-floor");
    let table = ok(&["floor", "--iterations", "50"], out.path());
    assert!(table.contains("openmpi4 / this"), "{table}");
    let csv = Csv::read(&out.path().join("floor.csv"));
    assert_eq!(csv.column("what"), ["send", "hook", "process", "openmpi4", "foldback-openmpi4"]);
    for value in ["mean_us", "median_us", "p99_us"] {
        csv.assert_positive(value);
    }
    assert!(out.path().join("floor.md").is_file());
    assert_no_lab();
}

#[test]
fn waiting_awake_stands_beside_waiting_asleep() {
    let _turn = turn();
    let out = Scratch::new("bench-waiting");
    let table = without_jobs(&["waiting", "--iterations", "200", "--per-cpu", "1,4"], out.path());
    assert!(table.contains("| threads a CPU | looks and yields | looks, then sleeps | sleeps |"));
    let csv = Csv::read(&out.path().join("waiting.csv"));
    assert_eq!(csv.column("per_cpu"), ["1", "1", "1", "4", "4", "4"]);
    for value in ["us", "cpu_us"] {
        csv.assert_positive(value);
    }
    assert_no_lab();
}

#[test]
fn types_and_ops_stand_beside_each_other() {
    let _turn = turn();
    let out = Scratch::new("bench-types");
    let what = ["types", "--hosts", "2", "--sizes", "8,64", "--iterations", "10"];
    let table = ok(&what, out.path());
    let csv = Csv::read(&out.path().join("types.csv"));
    let kinds: Vec<_> =
        csv.column("type").into_iter().zip(csv.column("op")).zip(csv.column("bytes")).collect();
    // Two sizes each, but for the two types of 16 bytes.
    assert_eq!(kinds.len(), 2 * 13 - 2, "{kinds:?}");
    for ((element, op), bytes) in kinds {
        let row = format!("| {element} | {op} |");
        assert!(table.contains(&row), "no {row:?} for {bytes} B in {table}");
    }
    assert!(csv.column("folded").iter().all(|folded| *folded == "1"), "{table}");
    csv.assert_positive("ratio");
    csv.assert_positive("to_int32_sum");
    assert!(out.path().join("types.md").is_file());
    assert_no_lab();
}

#[test]
fn ways_to_quantize_stand_beside_each_other() {
    let _turn = turn();
    let out = Scratch::new("bench-quantize");
    let modes = ["off", "int16,min=0", "int8,min=0,error_feedback"];
    let mut what = vec!["quantize", "--hosts", "2", "--sizes", "1024,4096", "--iterations", "10"];
    what.extend(modes.iter().flat_map(|mode| ["--mode", mode]));
    let table = ok(&what, out.path());
    for heading in ["time", "bytes on the wire, of a call", "error"] {
        let row = format!("| {heading} | without | {} |", modes.join(" | "));
        assert!(table.contains(&row), "no {row:?} in {table}");
    }
    let text = fs::read_to_string(out.path().join("quantize.csv")).unwrap();
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).skip(1).collect();
    assert_eq!(lines.len(), 2 * modes.len(), "{text}");
    for (line, mode) in lines.iter().zip(modes.iter().flat_map(|mode| [mode, mode])) {
        let (before, after) = line.split_once(&format!("\"{mode}\"")).expect("the mode");
        let numbers: Vec<f64> = after.split(',').skip(1).flat_map(str::parse).collect();
        assert!(before == "openmpi4," && numbers.len() == 13, "{line}");
        // Mean error, of numbers up to 1: of floats, and of integers of 16 and of 8 bits.
        let error = numbers[11];
        let expected = match *mode {
            "off" => 1e-9..1e-7,
            mode if mode.starts_with("int16") => 1e-6..1e-3,
            _ => 1e-3..1e-1,
        };
        assert!(expected.contains(&error), "{line}");
    }
    assert!(out.path().join("quantize-2.svg").is_file());
    assert_no_lab();
}

#[test]
fn pairs_by_key_stand_beside_plain_mpi_and_all_ways_agree() {
    let _turn = turn();
    let out = Scratch::new("bench-keys");
    let what = ["keys", "--hosts", "2,3", "--keys", "100,10000", "--pairs", "60000"];
    let table =
        ok(&[&what[..], &["--skew", "uniform,hot", "--iterations", "1"]].concat(), out.path());
    for hosts in ["2", "3"] {
        for skew in ["uniform", "hot"] {
            let heading = format!("## openmpi4, {hosts} hosts, {skew}\n");
            assert!(table.contains(&heading), "no {heading:?} in {table}");
            let chart = format!("keys-{skew}-{hosts}.svg");
            assert!(out.path().join(&chart).is_file(), "no {chart}");
        }
    }
    let csv = Csv::read(&out.path().join("keys.csv"));
    assert_eq!(csv.column("hosts"), ["2", "2", "2", "2", "3", "3", "3", "3"]);
    assert_eq!(csv.column("keys"), ["100", "10000"].repeat(4));
    assert_eq!(csv.column("ranks"), csv.column("hosts"));
    // The keys that came, on 2 hosts as on 3.
    let different = csv.column("different");
    assert_eq!(different[..4], different[4..]);
    assert_eq!(different[0], "100");
    let at_most = different.iter().zip(csv.column("keys"));
    assert!(at_most.into_iter().all(|(came, keys)| came.len() <= keys.len()), "{different:?}");
    for way in ["foldback", "combined", "uncombined"] {
        for value in ["shuffle_s", "all_s", "cpu_s", "frames", "wire_bytes"] {
            csv.assert_positive(&format!("{way}_{value}"));
        }
    }
    for ratio in ["shuffle", "all"]
        .iter()
        .flat_map(|what| [format!("{what}_to_best"), format!("{what}_to_uncombined")])
    {
        csv.assert_positive(&ratio);
    }
    // A hundred keys are few bytes, unless all 60,000 pairs travel.
    let bytes = |way: &str| csv.column(&format!("{way}_wire_bytes"))[0].parse::<f64>().unwrap();
    for way in ["foldback", "combined"] {
        assert!(10.0 * bytes(way) < bytes("uncombined"), "{way}: {} bytes", bytes(way));
    }
    // Three ways of four problems on 2 and 3 hosts.
    assert_eq!(Csv::read(&out.path().join("keys-samples.csv")).rows.len(), 24);
    assert_no_lab();
}

/// A directory with programs that take OSU's options and print what OSU's print, by means of ours.
fn fake_osu() -> Scratch {
    let osu = Scratch::new("bench-osu-programs");
    let collective = osu.path().join("libexec/mpi/collective");
    fs::create_dir_all(&collective).unwrap();
    let latency = program(Mpi::Open, "latency");
    for (name, heading, fields) in [
        ("allreduce", "# Size       Avg Latency(us)", "$2, $9"),
        ("barrier", "# Avg Latency(us)", "\"\", $9"),
    ] {
        let script = format!(
            "#!/bin/sh\n\
             # -m LEAST:MOST -i ITERATIONS -x WARMUP -T TYPE -c\n\
             sizes=4:4 check=\n\
             while getopts m:i:x:T:c option; do\n\
             case $option in\n\
             m) sizes=$OPTARG;; i) iterations=$OPTARG;; x) warmup=$OPTARG;; c) check=Pass;; T) ;;\n\
             *) exit 2;;\n\
             esac\n\
             done\n\
             {} --collective {name} --sizes \"${{sizes%:*}},${{sizes#*:}}\" \\\n\
             --iterations \"$iterations\" --warmup \"$warmup\" | awk -F, -v check=\"$check\" '\n\
             NR == 1 {{ print \"# OSU MPI Test v0\"; print \"{heading}\" }}\n\
             $1 == \"{name}\" {{ print {fields}, check }}'\n",
            latency.display()
        );
        let path = collective.join(format!("osu_{name}"));
        install_script(&script, &path);
    }
    osu
}

#[test]
fn osu_programs_are_found_run_and_compared() {
    let _turn = turn();
    let (osu, out) = (fake_osu(), Scratch::new("bench-osu"));
    let directory = osu.path().to_str().unwrap();
    let what = ["osu", "--osu-dir", directory, "--hosts", "2", "--sizes", "4:1024", "-c"];
    let table = ok(&[&what[..], &["--iterations", "20", "--warmup", "5"]].concat(), out.path());
    assert!(table.contains("| osu_allreduce | openmpi4 | 2 | 1024 |"), "{table}");
    assert!(table.contains("| osu_barrier | openmpi4 | 2 | - |"), "{table}");
    let csv = Csv::read(&out.path().join("osu.csv"));
    assert_eq!(csv.column("bytes"), ["4", "1024", "0"]);
    assert_eq!(csv.column("folded"), ["1"; 3]);
    csv.assert_positive("ratio");
    assert_eq!(Csv::read(&out.path().join("osu-samples.csv")).rows.len(), 6);
    for file in ["osu.md", "osu_allreduce.svg", "osu_allreduce-ratio.svg"] {
        assert!(out.path().join(file).is_file(), "no {file}");
    }
    assert_no_lab();
}

#[test]
fn a_program_of_osu_that_prints_something_else_is_one_clear_line() {
    let _turn = turn();
    let osu = Scratch::new("bench-osu-wrong");
    fs::create_dir_all(osu.path()).unwrap();
    let path = osu.path().join("osu_bcast");
    install_script("#!/bin/sh\necho 'no table'\n", &path);
    let directory = osu.path().to_str().unwrap();
    let output = bench(&["osu", "--osu-dir", directory, "--hosts", "2", "--repeats", "1"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("osu_bcast: the program printed no table"), "{stderr}");
    assert_no_lab();
}

/// A program that every user may run, and a shell script that executes it.
fn own_program(script: &str) -> Scratch {
    let own = Scratch::new("bench-apps-program");
    fs::create_dir_all(own.path()).unwrap();
    fs::set_permissions(own.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (latency, run) = (own.path().join("latency"), own.path().join("run"));
    install(&program(Mpi::Open, "latency"), &latency);
    let exec =
        format!("exec {} --collective allreduce --sizes 4 --iterations 2000", latency.display());
    install_script(&format!("#!/bin/sh\n{script}\n{exec}\n"), &run);
    own
}

/// Its options end where the program begins.
fn apps(hosts: &str, own: &Scratch, out: &Scratch) -> Output {
    let run = own.path().join("run");
    let options = ["apps", "--hosts", hosts, "--repeats", "1", "--timeout", "600", "--out"];
    let paths = [out.path(), &run].map(|path| path.to_str().unwrap());
    bench(&[&options[..], &paths].concat())
}

#[test]
fn a_whole_program_is_timed_both_ways_and_taken_apart() {
    let _turn = turn();
    let (own, out) = (own_program(":"), Scratch::new("bench-apps"));
    let output = apps("2,3", &own, &out);
    let (table, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}\n{stderr}", output.status);
    assert!(stderr.lines().any(|line| line.starts_with("bench: with the timer, 3 hosts, run, ")));
    assert!(table.contains("| run | openmpi4 | 3 |"), "{table}");
    let csv = Csv::read(&out.path().join("summary.csv"));
    assert_eq!(csv.column("hosts"), ["2", "3"]);
    for value in ["without_s", "foldback_s", "ratio", "collectives_s", "other_s", "at_most"] {
        csv.assert_positive(value);
    }
    // The timed calls, those before, and a quarter as many whose cost is counted, with barriers between.
    for calls in csv.column("calls") {
        let calls: f64 = calls.parse().unwrap();
        assert!((2.0 * 2200.0..10000.0).contains(&calls), "{calls}");
    }
    csv.assert_positive("folded_percent");
    assert_eq!(Csv::read(&out.path().join("samples.csv")).rows.len(), 4);
    for file in ["table.md", "apps.svg"] {
        assert!(out.path().join(file).is_file(), "no {file}");
    }
    assert_no_lab();
}

/// On two hosts it does not.
#[test]
fn a_whole_program_that_fails_is_one_clear_line_and_the_others_go_on() {
    let _turn = turn();
    let script = "test \"$OMPI_COMM_WORLD_SIZE\" = 2 || { echo 'no such grid'; exit 3; }";
    let (own, out) = (own_program(script), Scratch::new("bench-apps-fails"));
    let output = apps("3,2", &own, &out);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let says = "bench: 3 hosts, run, openmpi4 without: exit status 3; what it said is in ";
    assert_eq!(stderr.matches("exit status 3").count(), 1, "{stderr}");
    assert!(stderr.contains(says), "{stderr}");
    let said = fs::read_to_string(out.path().join("failed-run-openmpi4-3.txt")).unwrap();
    assert!(said.contains("no such grid"), "{said}");
    assert!(stdout.contains("| run | openmpi4 | 2 |"), "{stdout}");
    assert!(!stdout.contains("| run | openmpi4 | 3 |"), "{stdout}");
    assert_no_lab();
}

/// The gate of `make instructions`: counts are kept, and such as are too low fail. That those in the repository
/// pass is for that command to say, which CI gives, too.
#[test]
fn instructions_are_kept_and_compared() {
    let _turn = turn();
    let kept = Scratch::new("bench-instructions.json");
    let script = |arguments: &[&str]| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(program(Mpi::Open, "instructions").is_file());
        let output = command("timeout")
            .arg(PATIENCE)
            .arg(root.join("scripts/instructions.sh"))
            .args(arguments)
            .env("WHAT", "fold")
            .env("KEPT", kept.path())
            .env("BIN", FOLDBACK)
            .env("FOLDBACK_LIB", library())
            .stdin(Stdio::null())
            .output()
            .expect("timeout is in coreutils");
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (status, _, stderr) = script(&[]);
    assert!(status == Some(1) && stderr.contains("make instructions RENEW=1"), "{stderr}");
    let (status, stdout, stderr) = script(&["renew"]);
    assert_eq!(status, Some(0), "{stdout}{stderr}");
    let mut counts: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(kept.path()).unwrap()).unwrap();
    let fold = counts["per_call"]["fold"].as_u64().unwrap();
    assert!(fold > 100, "{counts}");
    counts["per_call"]["fold"] = (fold / 2).into();
    fs::write(kept.path(), counts.to_string()).unwrap();
    let (status, _, stderr) = script(&[]);
    assert_eq!(status, Some(1), "{stderr}");
    assert!(stderr.contains("FAILED: fold takes"), "{stderr}");
}

#[test]
fn wrong_words_are_one_clear_line() {
    let _turn = turn();
    for (words, says) in [
        (&["--sizes", "6"][..], "not a multiple of 4"),
        (&["--sizes", "4", "--type", "double"], "not a multiple of 8"),
        (&["--sizes", "33554432"], "--sizes"),
        (&["--collective", "sort"], "--collective sort"),
        (&["--hosts", "1"], "--hosts"),
        (&["--mpi", "lam"], "--mpi"),
        (&["--mtu", "100"], "--mtu"),
        (&["--rate", "fast"], "--rate"),
        (
            &["--programs", "/nonexistent", "--hosts", "2"],
            "/nonexistent/openmpi4/latency not found",
        ),
        (&["floor", "--hosts", "4"], "between 2 hosts"),
        (&["types", "--hosts", "2", "--sizes", "12"], "not a multiple of 8"),
        (&["waiting", "--per-cpu", "0"], "--per-cpu"),
        (&["keys", "--keys", "10,0"], "--keys"),
        (&["keys", "--pairs", "0"], "--pairs"),
        (&["keys", "--skew", "steep"], "--skew"),
        (&["keys", "--programs", "/nonexistent"], "/nonexistent/openmpi4/pairs not found"),
        (&["quantize", "--hosts", "2", "--sizes", "12"], "not a multiple of 8"),
        (&["osu", "--osu-dir", "/nonexistent"], "/nonexistent is no directory"),
        (&["osu", "--osu-dir", "/sys/power"], "no osu_allreduce"),
        (&["osu", "--osu-dir", "/sys/power", "--programs", "osu_x"], "no program osu_x"),
        (&["osu", "--osu-dir", "/tmp", "--sizes", "8:4"], "--sizes"),
        (&["apps", "--programs", "sort"], "--programs"),
        (&["apps", "--programs", "melt", "--mpi", "mpich4"], "for openmpi4"),
        (&["apps", "--programs", "melt", "/bin/true"], "cannot be used with"),
    ] {
        fails(words, says);
    }
    assert_no_lab();
}
