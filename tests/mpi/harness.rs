//! Runs a test program in a lab and looks at its outcome.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

#[path = "../common/mod.rs"]
mod common;

#[allow(unused_imports, reason = "not all who have this module write scripts")]
pub use common::install_script;
pub use common::{command, install};
use common::{remove, unique_path};

/// An MPI that the lab can run programs on. Debian's, on which most tests run, have short names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mpi {
    Open,
    Open5,
    Mpich,
    Mpich5,
    Mpich5Abi,
    Intel,
}

impl Mpi {
    pub const EVERY: [Self; 6] =
        [Self::Open, Self::Open5, Self::Mpich, Self::Mpich5, Self::Mpich5Abi, Self::Intel];

    /// The name that the lab has for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "openmpi4",
            Self::Open5 => "openmpi5",
            Self::Mpich => "mpich4",
            Self::Mpich5 => "mpich5",
            Self::Mpich5Abi => "mpich5-abi",
            Self::Intel => "intel",
        }
    }

    /// Whether there is one. Debian's must be there: without them tests fail.
    pub fn installed(self) -> bool {
        match self {
            Self::Open | Self::Mpich => true,
            // Its programs are built with MPICH's headers.
            Self::Intel => prefix(self).is_dir() && prefix(Self::Mpich5).is_dir(),
            Self::Open5 | Self::Mpich5 | Self::Mpich5Abi => prefix(self).is_dir(),
        }
    }

    /// Its directory.
    pub fn directory(self) -> PathBuf {
        match self {
            Self::Open | Self::Mpich => "/usr".into(),
            _ => prefix(self),
        }
    }
}

/// The directory into which `make setup-mpis` installs it.
fn prefix(mpi: Mpi) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/mpis").join(mpi.name())
}

/// All that foldback takes on.
pub const COLLECTIVES: &[&str] = &[
    "Allreduce",
    "Reduce",
    "Bcast",
    "Barrier",
    "Allgather",
    "Allgatherv",
    "Gather",
    "Scatter",
    "Reduce_scatter",
    "Reduce_scatter_block",
    "Scan",
    "Exscan",
    "Alltoall",
];

pub const FOLDBACK: &str = env!("CARGO_BIN_EXE_foldback");

/// After so long a job, or a command, hangs. Far beyond what any takes on one busy core, and beyond
/// PATIENCE of `mpi-tests/lib/program.h`, so that a program which hangs says where.
pub const HANG: Duration = Duration::from_secs(600);

/// Beyond the job's own time limit: making and removing the lab, and stacks of a job that hangs.
const GRACE: Duration = Duration::from_secs(120);

/// A script whose words are a program, which host h1 runs without foldback. The lab's own library stays preloaded:
/// MPICH 4 needs it to end (`src/lab/launch/hydra.rs`).
pub const WITHOUT_FOLDBACK_ON_H1: &str = concat!(
    "[ \"$(hostname)\" = h1 ] && LD_PRELOAD=$(echo \"$LD_PRELOAD\" | tr ': ' '\\n\\n' | ",
    "grep -v libfoldback | paste -sd :); exec \"$@\""
);

/// One job at a time in a lane of `make test`, except jobs that mostly wait (scripts/test.sh). Jobs side by side slow
/// each other down: 498 s two at a time, 477 s in turns, on two CPUs.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A test program of `mpi-tests/`, built first if need be.
pub fn program(mpi: Mpi, name: &str) -> PathBuf {
    static BUILT: OnceLock<Result<(), String>> = OnceLock::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let built = BUILT.get_or_init(|| {
        let output = Command::new("make")
            .args(["-s", "-C"])
            .arg(root.join("mpi-tests"))
            .env_remove("MAKEFLAGS")
            .output()
            .map_err(|error| format!("cannot start make: {error}"))?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        output.status.success().then_some(()).ok_or(text)
    });
    if let Err(text) = built {
        panic!("mpi-tests do not build (scripts/setup.sh installs what is needed):\n{text}");
    }
    root.join("target/mpi-tests").join(mpi.name()).join(name)
}

/// The library that belongs to these tests. `cargo test` leaves it in deps/, `cargo build` copies
/// it from there.
pub fn library() -> PathBuf {
    let directory = Path::new(FOLDBACK).parent().unwrap();
    ["libfoldback.so", "deps/libfoldback.so"]
        .iter()
        .map(|name| directory.join(name))
        .filter(|path| path.is_file())
        .max_by_key(|path| path.metadata().and_then(|m| m.modified()).unwrap())
        .expect("cargo built libfoldback.so")
}

/// A lab that stays until the test is over.
pub struct Lab {
    pub name: String,
}

impl Lab {
    pub fn new(hosts: u32) -> Self {
        Self::with(hosts, &[])
    }

    /// With more options of `lab up`.
    pub fn with(hosts: u32, options: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (own, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let lab = Self { name: format!("test-{own}-{number}") };
        let mut up = command(FOLDBACK);
        up.args(["lab", "up", "--name", &lab.name, "--hosts", &hosts.to_string()]);
        up.args(["--lives-with", &own.to_string()]).args(options);
        succeed(&mut up, HANG);
        lab
    }

    /// A command inside a host; the arguments are still to be given.
    pub fn on(&self, host: u32) -> Command {
        let mut command = command(FOLDBACK);
        command.args(["lab", "exec", "--name", &self.name, &format!("h{host}"), "--"]);
        command
    }

    /// A shell command that changes the faults of the frames.
    pub fn faults(&self, options: &str) -> String {
        format!("{FOLDBACK} lab faults --name {} {options}", self.name)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = command(FOLDBACK).args(["lab", "down", "--name", &self.name]).status();
    }
}

/// A file or directory that is gone when the test is over.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(what: &str) -> Self {
        Self(unique_path(what))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// `foldback lab run …`
pub struct Job {
    command: Command,
    mpi: Mpi,
    hosts: u32,
    timeout: u64,
    copies: Option<Scratch>,
    stats: Scratch,
}

impl Job {
    pub fn new(mpi: Mpi, hosts: u32) -> Self {
        let mut command = command(FOLDBACK);
        let stats = Scratch::new("stats.json");
        command
            .args(["lab", "run", "--mpi", mpi.name(), "--hosts", &hosts.to_string()])
            // Sooner than by default, so that short tests fold from their first call on.
            .env("FOLDBACK_SETUP_CALLS", "0")
            // More than by default, so that messages of many frames fold.
            .env("FOLDBACK_MAX_BYTES", "16384")
            // By the limits alone: what is tested is what is folded. tests/mpi/router.rs has the rest.
            .env("FOLDBACK_ROUTE", "fold")
            // For hangs alone: TCP, over which MPI goes, may stand still for a minute where frames are lost.
            .env("FOLDBACK_SETUP_TIMEOUT", "300")
            .env("FOLDBACK_PROBE_TIMEOUT", "60")
            // Shown if the test fails.
            .env("FOLDBACK_LOG", "debug")
            .env("FOLDBACK_STATS", stats.path())
            .env("FOLDBACK_LIB", library());
        Self { command, mpi, hosts, timeout: HANG.as_secs(), copies: None, stats }
    }

    pub fn option(mut self, arguments: &[&str]) -> Self {
        self.command.args(arguments);
        self
    }

    pub fn ranks_per_host(self, ranks: u32) -> Self {
        self.option(&["--ranks-per-host", &ranks.to_string()])
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Leaves settings to a file, which `lines` are written to, or to their defaults.
    pub fn by_file(mut self, file: &Scratch, names: &[&str], lines: &str) -> Self {
        std::fs::write(file.path(), lines).unwrap();
        for name in names {
            self.command.env_remove(name);
        }
        self.command.env("FOLDBACK_CONF", file.path());
        self
    }

    /// Program and library are copied to where every user can read them: the sources may be in
    /// root's home directory.
    pub fn readable_by_all(mut self) -> Self {
        let copies = Scratch::new("copies");
        std::fs::create_dir(copies.path()).unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(copies.path(), mode).unwrap();
        self.command.env("FOLDBACK_LIB", copy(&library(), copies.path()));
        self.copies = Some(copies);
        self
    }

    /// In a lab that is up.
    pub fn lab(self, lab: &Lab) -> Self {
        self.option(&["--name", &lab.name])
    }

    /// Seconds that the job may take.
    pub fn timeout(mut self, seconds: u64) -> Self {
        self.timeout = seconds;
        self
    }

    /// Runs the program, which must fail, and not for want of time. Returns what was said.
    pub fn run_to_failure(self, name: &str, arguments: &[&str]) -> String {
        let program = program(self.mpi, name);
        self.run_path_to_failure(&program, arguments)
    }

    /// Runs a program from elsewhere, which must fail in the same way.
    pub fn run_path_to_failure(mut self, program: &Path, arguments: &[&str]) -> String {
        self.command.args(["--timeout", &self.timeout.to_string(), "--"]).arg(program);
        self.command.args(arguments);
        let limit = Duration::from_secs(self.timeout) + GRACE;
        let (status, stdout, stderr) = finish(&mut self.command, limit);
        let said = format!("{stdout}\n{stderr}");
        assert!(!status.success(), "{said}");
        assert!(!said.contains("takes longer than its --timeout"), "{said}");
        said
    }

    /// Runs the program, which must succeed.
    pub fn run(self, name: &str, arguments: &[&str]) -> Outcome {
        let program = program(self.mpi, name);
        self.run_path(&program, arguments)
    }

    /// Runs a program from elsewhere, which must succeed.
    pub fn run_path(mut self, program: &Path, arguments: &[&str]) -> Outcome {
        let mut program = program.to_owned();
        if let Some(copies) = &self.copies {
            program = copy(&program, copies.path());
        }
        self.command
            .args(["--timeout", &self.timeout.to_string(), "--"])
            .arg(program)
            .args(arguments);
        let limit = Duration::from_secs(self.timeout) + GRACE;
        let begin = Instant::now();
        let (stdout, stderr) = succeed(&mut self.command, limit);
        note_time(&self.command, begin);
        Outcome::new(stdout, stderr, self.stats.path(), self.hosts)
    }
}

/// Appends the seconds that a job took, its test and its command to the file that FOLDBACK_TEST_TIMES names. `sort -n`
/// shows where the time of a run goes.
fn note_time(command: &Command, begin: Instant) {
    let Some(path) = std::env::var_os("FOLDBACK_TEST_TIMES") else { return };
    let test = thread::current();
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    let line = format!(
        "{:.2}\t{}\t{}\n",
        begin.elapsed().as_secs_f64(),
        test.name().unwrap_or_default(),
        words.join(" ")
    );
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("FOLDBACK_TEST_TIMES");
}

fn copy(file: &Path, directory: &Path) -> PathBuf {
    let to = directory.join(file.file_name().unwrap());
    install(file, &to);
    to
}

/// Runs a command that must succeed within a time. Returns what it wrote.
pub fn succeed(command: &mut Command, limit: Duration) -> (String, String) {
    let (status, stdout, stderr) = finish(command, limit);
    assert!(status.success(), "{command:?}: {status}\n{stdout}\n{stderr}");
    (stdout, stderr)
}

/// Runs a command that must end within a time. Returns how, and what it wrote.
pub fn finish(command: &mut Command, limit: Duration) -> (ExitStatus, String, String) {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let stdout = reader(child.stdout.take().unwrap());
    let stderr = reader(child.stderr.take().unwrap());
    let status = wait(&mut child, limit);
    let (stdout, stderr) = (stdout.join().unwrap(), stderr.join().unwrap());
    match status {
        Some(status) => (status, stdout, stderr),
        None => panic!("{command:?}: still running after {limit:?}\n{stdout}\n{stderr}"),
    }
}

fn reader(mut from: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Kills the child when the time is over: then there is no status.
pub fn wait(child: &mut Child, limit: Duration) -> Option<std::process::ExitStatus> {
    let end = Instant::now() + limit;
    while Instant::now() < end {
        if let Some(status) = child.try_wait().expect("the child can be waited for") {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// The results of a job.
pub struct Outcome {
    pub stdout: String,
    pub stderr: String,
    pub stats: Value,
    hosts: u32,
}

impl Outcome {
    /// With the statistics that the job wrote to a file, if it did.
    pub fn new(stdout: String, stderr: String, stats: &Path, hosts: u32) -> Self {
        let stats = std::fs::read_to_string(stats)
            .map(|text| serde_json::from_str(&text).expect("the statistics are JSON"));
        Self { stdout, stderr, stats: stats.unwrap_or(Value::Null), hosts }
    }

    /// Calls of a collective ("Allreduce") that went one way ("fold", "mpi").
    pub fn calls(&self, collective: &str, route: &str) -> u64 {
        self.lines()
            .filter(|line| line["collective"] == collective && line["route"] == route)
            .map(|line| line["calls"].as_u64().unwrap())
            .sum()
    }

    /// Calls of a collective that were quantized.
    pub fn quantized(&self, collective: &str) -> u64 {
        self.lines()
            .filter(|line| line["collective"] == collective && line["quantized"] == true)
            .map(|line| line["calls"].as_u64().unwrap())
            .sum()
    }

    /// Calls of all collectives that went one way, or of all ways.
    pub fn all_calls(&self, route: Option<&str>) -> u64 {
        let lines = self.lines().filter(|line| route.is_none_or(|route| line["route"] == route));
        lines.map(|line| line["calls"].as_u64().unwrap()).sum()
    }

    /// Calls in one form ("Nonblocking").
    pub fn calls_in_form(&self, collective: &str, form: &str, route: &str) -> u64 {
        self.lines()
            .filter(|line| line["collective"] == collective && line["form"] == form)
            .filter(|line| line["route"] == route)
            .map(|line| line["calls"].as_u64().unwrap())
            .sum()
    }

    /// Calls that went to MPI for a reason.
    pub fn calls_for(&self, reason: &str) -> u64 {
        let mine = self.lines().filter(|line| line["reason"] == reason);
        mine.map(|line| line["calls"].as_u64().unwrap()).sum()
    }

    pub fn lines(&self) -> impl Iterator<Item = &Value> {
        self.stats["collectives"].as_array().into_iter().flatten()
    }

    /// The router's choices for a collective on MPI_COMM_WORLD, by class of sizes.
    pub fn routes(&self, collective: &str) -> Vec<&Value> {
        let routes = self.stats["routes"].as_array().into_iter().flatten();
        routes.filter(|route| route["collective"] == collective).collect()
    }

    /// A counter of the kernel's, over all hosts.
    pub fn kernel(&self, counter: &str) -> u64 {
        let hosts = self.stats["hosts"].as_array().into_iter().flatten();
        hosts.map(|host| host["kernel"][counter].as_u64().expect("a counter of that name")).sum()
    }

    /// Chunks that came to their end by ordinary sockets, over all hosts.
    pub fn rescued(&self) -> u64 {
        let hosts = self.stats["hosts"].as_array().into_iter().flatten();
        hosts.map(|host| host["rescued"].as_u64().expect("a number")).sum()
    }

    /// Chunks came to their end by ordinary sockets, and a warning said why.
    pub fn assert_rescued(&self) {
        assert!(self.stderr.contains("going on by ordinary sockets"), "{}", self.stderr);
        assert!(self.rescued() > 0, "{:#}", self.stats);
    }

    /// Each of these collectives was folded, by the kernels of all hosts.
    pub fn assert_folded(&self, collectives: &[&str]) {
        for collective in collectives {
            let folded = self.calls(collective, "fold");
            assert!(folded > 0, "no {collective} was folded: {:#}\n{}", self.stats, self.stderr);
        }
        let hosts = self.stats["hosts"].as_array().map_or(0, Vec::len);
        assert_eq!(hosts, self.hosts as usize, "hosts in the statistics: {:#}", self.stats);
        let folded = self.kernel("contributions_folded");
        assert!(folded > 0, "the kernel folded nothing: {:#}", self.stats);
        // Two hosts have no need of that: each folds what the other sends.
        let result = if self.hosts > 2 { "fan_outs" } else { "chunks_completed" };
        assert!(self.kernel(result) > 0, "the kernel sent no result: {:#}", self.stats);
    }

    /// Frames came in by hooks of that kind on all hosts, and the programs there folded them.
    pub fn assert_hook(&self, kind: &str) {
        for host in self.stats["hosts"].as_array().expect("hosts in the statistics") {
            let hook = host["hook"].as_str().expect("a hook");
            assert!(hook.starts_with(kind), "the hook is {hook}, not {kind}");
            let fold = host["fold"].as_str().expect("a fold");
            assert_eq!(fold == "processes", kind == "none", "the fold is {fold} by hook {hook}");
        }
    }

    pub fn assert_prints(&self, text: &str) {
        assert!(
            self.stdout.contains(text),
            "no {text:?} in the output:\n{}\n{}",
            self.stdout,
            self.stderr
        );
    }
}
