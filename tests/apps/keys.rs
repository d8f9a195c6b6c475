//! Reductions by key: the examples of words, of k-mers and of Python.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::harness::{HANG, Job, Mpi, Outcome, Scratch, command, succeed, turn};
use crate::skip;

/// Debian's own, which has its packages.
const PYTHON: &str = "/usr/bin/python3";

/// By foldback; by plain MPI, with and without combining.
const WAYS: [&[&str]; 3] = [&[], &["--plain"], &["--naive"]];

/// Bytes of the large files. A part of four is smaller than the one that is a single word.
const TEXT: usize = 13 << 20;
const LONG_WORD: usize = 8 << 20;

/// Numbers by chance, the same each time (splitmix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Words of 1 to 13 letters and digits, some of them very frequent, and whatever may be between words.
fn text(chance: &mut Chance, length: usize) -> Vec<u8> {
    const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    const BETWEEN: [&[u8]; 8] =
        [b" ", b"\n", b", ", b"_", b"\0", "é".as_bytes(), b".\n\n", b"\xff\r"];
    let mut text = Vec::with_capacity(length + 16);
    while text.len() < length {
        let rarity = chance.below(20);
        let mut word = mix(chance.below(1 << rarity) + 1);
        for _ in 0..1 + word % 13 {
            text.push(LETTERS[usize::try_from(word % 62).unwrap()]);
            word /= 62;
        }
        text.extend_from_slice(BETWEEN[usize::try_from(chance.below(8)).unwrap()]);
    }
    text.truncate(length);
    text
}

/// A tree of large, small and empty files. Most end within a word.
fn write_files(folder: &Path) {
    let mut chance = Chance(1);
    let below = folder.join("some/folders");
    fs::create_dir_all(&below).unwrap();
    fs::create_dir(folder.join("none")).unwrap();
    fs::write(folder.join("large"), text(&mut chance, TEXT)).unwrap();
    fs::write(folder.join("long"), "x".repeat(LONG_WORD)).unwrap();
    fs::write(folder.join("empty"), "").unwrap();
    for name in 0..300 {
        let length = usize::try_from(chance.below(5000)).unwrap();
        fs::write(below.join(name.to_string()), text(&mut chance, length)).unwrap();
    }
}

/// The counts by the shell's tools. The end of a line follows each file.
fn count_by_tools(folder: &Path) -> String {
    let script = "find \"$0\" -type f -exec sh -c 'for file; do cat \"$file\"; echo; done' sh {} + | \
                  tr -cs '[:alnum:]' '\\n' | grep . | sort | uniq -c";
    let mut tools = command("sh");
    tools.arg("-c").arg(script).arg(folder).env("LC_ALL", "C");
    succeed(&mut tools, HANG).0
}

/// Of a line "count word".
fn count_of(line: &str) -> i64 {
    let (count, _) = line.trim_start().split_once(' ').expect("a count and a word");
    count.parse().expect("a count")
}

/// Not by assert_eq, which would show all.
fn assert_same(what: &str, said: &str, right: &str) {
    let differ = said.lines().zip(right.lines()).find(|(said, right)| said != right);
    assert!(differ.is_none(), "{what}: {differ:.1000?}");
    assert_eq!(said.lines().count(), right.lines().count(), "{what}");
}

fn count_words(job: Job, options: &[&str], folder: &Path) -> String {
    let arguments = [options, &[folder.to_str().expect("a path in UTF-8")]].concat();
    job.run("wordcount", &arguments).stdout
}

#[test]
fn words_are_counted_as_the_tools_of_the_shell_count_them() {
    let _turn = turn();
    let files = Scratch::new("words");
    write_files(files.path());
    let lines = count_by_tools(files.path());
    let words: i64 = lines.lines().map(count_of).sum();
    let totals = format!("{words} words, {} different\n", lines.lines().count());
    let right = format!("{lines}{totals}");
    assert!(words > 1_000_000, "{totals}");
    for way in WAYS {
        let options = [way, &["--all"]].concat();
        let said = count_words(Job::new(Mpi::Open, 4), &options, files.path());
        assert_same(&options.join(" "), &said, &right);
    }
    // The most frequent ones, by an MPI whose handles are numbers, with several ranks on a host.
    let mut sorted: Vec<_> = lines.lines().collect();
    sorted.sort_by_key(|line| -count_of(line));
    let first = format!("{}\n{totals}", sorted[..50].join("\n"));
    for way in WAYS {
        let options = [way, &["--top", "50"]].concat();
        let job = Job::new(Mpi::Mpich, 2).ranks_per_host(2);
        assert_same(&options.join(" "), &count_words(job, &options, files.path()), &first);
    }
}

#[test]
fn k_mers_are_counted_as_one_process_counts_them() {
    let _turn = turn();
    for genome in [["1000000", "21"], ["300000", "31"], ["100000", "1"]] {
        let [bases, k] = genome;
        let outputs = WAYS.map(|way| {
            let arguments = [way, &["--check", "--bases", bases, "--k", k]].concat();
            let outcome = Job::new(Mpi::Open, 4).run("kmers", &arguments);
            assert!(outcome.stderr.contains("kmers: all is right"), "{}", outcome.stderr);
            outcome.stdout
        });
        for output in &outputs[1..] {
            assert_same(&genome.join(" "), output, &outputs[0]);
        }
    }
}

#[test]
fn a_program_that_needs_foldback_says_so() {
    let _turn = turn();
    for name in ["wordcount", "kmers"] {
        let job = Job::new(Mpi::Open, 2).option(&["--off"]);
        let said = job.run_to_failure(
            name,
            &[env!("CARGO_MANIFEST_DIR")][..usize::from(name == "wordcount")],
        );
        let line =
            format!("{name}: no foldback_pairs_create: preload libfoldback.so, or say --plain");
        assert_eq!(said.matches(&line).count(), 1, "{said}");
    }
}

#[test]
fn python_groups_by_key_as_numpy_does() {
    let mut python = Command::new(PYTHON);
    python.args(["-c", "import mpi4py, numpy"]).stderr(Stdio::null());
    if !python.status().is_ok_and(|status| status.success()) {
        return skip("NumPy and mpi4py of Debian are not installed (make setup-gnn)");
    }
    let _turn = turn();
    let script = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/pairs.py"));
    let script = script.to_str().expect("a path in UTF-8");
    let outcome: Outcome = Job::new(Mpi::Open, 3)
        .env("OPENBLAS_NUM_THREADS", "1")
        .run_path(Path::new(PYTHON), &[script, "20000"]);
    assert!(outcome.stdout.ends_with("pairs: all as NumPy has it\n"), "{}", outcome.stdout);
}
