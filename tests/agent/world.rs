//! A network namespace for each test, agents and clients in it. Nothing here touches the host's
//! own interfaces.

use std::any::Any;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{command, install, remove, unique_path};
use foldback::agent::probe::has_tcx;
use foldback::agent::{Client, GroupSpec, SocketAddress};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

pub const PATIENCE: Duration = Duration::from_secs(120);
pub const HERE: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
pub const THERE: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
/// Index of `v0` in each test's namespace.
pub const V0: u32 = 10;

/// Runs a test in a namespace with a pair of interfaces, `v0` with the address `HERE` and `v1`.
pub fn in_namespace(test: impl FnOnce() + Send + 'static) {
    assert!(geteuid().is_root(), "this test needs root: it makes network namespaces and loads BPF");
    let (done, wait) = channel();
    let thread = thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        run("ip link set lo up
            ip link add v0 index 10 type veth peer name v1
            ip link set v0 address 02:00:00:00:00:01
            ip address add 10.99.0.1/24 dev v0
            ip neighbour add 10.99.0.2 lladdr 02:00:00:00:00:02 dev v0
            ip link set v0 up
            ip link set v1 up");
        let _done = done;
        test();
    });
    match wait.recv_timeout(4 * PATIENCE) {
        Err(RecvTimeoutError::Timeout) => panic!("the test hangs"),
        Ok(()) | Err(RecvTimeoutError::Disconnected) => {}
    }
    if let Err(panic) = thread.join() {
        let panic: Box<dyn Any + Send> = panic;
        std::panic::resume_unwind(panic);
    }
}

/// The same, if the kernel has tcx: only there can programs of others stand in order with ours, or links be detached.
pub fn with_tcx(test: impl FnOnce() + Send + 'static) {
    if has_tcx() {
        in_namespace(test);
    } else {
        println!("no tcx in this kernel");
    }
}

/// Runs commands, one a line, and returns what they print. Without a shell: busybox's, on the
/// kernels that the tests are taken to, has an `ip` of its own.
pub fn run(commands: &str) -> String {
    let mut printed = String::new();
    for command in commands.lines() {
        let mut words = command.split_whitespace();
        let program = words.next().expect("a command");
        let output = Command::new(program).args(words).output().expect(program);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {told}");
        printed += &String::from_utf8_lossy(&output.stdout);
    }
    printed
}

/// Gives the calling thread and its processes an empty `/run`.
pub fn own_run() {
    unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace");
    run("mount --make-rprivate /
        mount -t tmpfs -o mode=755 none /run");
}

/// Gives the calling thread and its processes a file system of their own for pinned programs.
pub fn own_bpffs() {
    unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace");
    run("mount --make-rprivate /
        mount -t bpf none /sys/fs/bpf");
}

/// A directory that goes with the test.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new() -> Self {
        let path = unique_path("agent");
        fs::create_dir(&path).expect("a directory");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("for every user");
        Self(path)
    }

    pub fn socket(&self) -> SocketAddress {
        SocketAddress::Path(self.0.join("agent.sock"))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// `foldback agent`, killed when dropped.
pub struct Agent(Child);

impl Agent {
    /// Starts it and waits until it serves.
    pub fn start(socket: &SocketAddress, environment: &[(&str, &str)]) -> Self {
        Self::start_as(socket, &mut agent_command(socket, environment))
    }

    /// Starts one that drains, and waits until it serves.
    pub fn start_to_drain(socket: &SocketAddress, seconds: &str) -> Self {
        Self::start_as(socket, agent_command(socket, &[]).args(["--drain", seconds]))
    }

    /// Starts it by this command, and waits until it serves.
    pub fn start_as(socket: &SocketAddress, command: &mut Command) -> Self {
        let child = command.spawn().expect("the agent starts");
        let mut agent = Self(child);
        let begin = Instant::now();
        while let Err(why) = Client::connect(socket) {
            let ended = agent.0.try_wait().expect("its status");
            assert!(ended.is_none(), "the agent does not start: {ended:?}");
            let took = begin.elapsed();
            assert!(took < PATIENCE, "no answer in {took:?}: {why}\n{}", doing(agent.0.id()));
            thread::sleep(Duration::from_millis(20));
        }
        agent
    }

    /// Asks it to stop, and waits.
    pub fn stop(self) {
        self.ask_to_stop();
        self.stops();
    }

    /// Asks it to stop.
    pub fn ask_to_stop(&self) {
        signal(&self.0, Signal::SIGTERM);
    }

    /// Waits until it has stopped.
    pub fn stops(mut self) {
        assert!(self.0.wait().expect("its status").success(), "the agent stops in good order");
    }

    /// Stops it as no program can prevent.
    pub fn kill(mut self) {
        signal(&self.0, Signal::SIGKILL);
        self.0.wait().expect("its status");
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The command line under test: as cargo built it, or where the test was taken elsewhere with it
/// (another kernel), in PATH.
pub fn foldback() -> Command {
    let built = Path::new(env!("CARGO_BIN_EXE_foldback"));
    command(if built.exists() { built } else { Path::new("foldback") })
}

pub fn agent_command(socket: &SocketAddress, environment: &[(&str, &str)]) -> Command {
    let mut command = foldback();
    command.args(["agent", "--socket", &socket.to_string()]);
    command.envs(environment.iter().copied());
    command
}

/// A process of some user that plays a part (see `role` in the test file); killed when dropped.
pub struct Actor {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    /// Directory of its program, if that is a copy.
    _program: Option<Directory>,
}

impl Actor {
    pub fn start(role: &str, uid: u32, socket: &SocketAddress, argument: &str) -> Self {
        // Not by its path, which other users may not reach.
        Self::start_by(&mut command("/proc/self/exe"), role, uid, socket, argument)
    }

    /// Starts one that has a group, as root of a user namespace of its own.
    pub fn start_in_user_namespace(uid: u32, socket: &SocketAddress) -> Self {
        let directory = Directory::new();
        let program = directory.0.join("program");
        install(&fs::read_link("/proc/self/exe").expect("this program"), &program);
        let mut unshare = command("unshare");
        let by = unshare.arg("-Ur").arg(program);
        let mut actor = Self::start_by(by, "hold", uid, socket, "1");
        actor._program = Some(directory);
        actor
    }

    fn start_by(
        program: &mut Command,
        role: &str,
        uid: u32,
        socket: &SocketAddress,
        argument: &str,
    ) -> Self {
        let mut child = program
            .args(["role", "--exact", "--nocapture", "--test-threads=1"])
            .env("SLURM_JOB_ID", "4711")
            .env("FOLDBACK_TEST_ROLE", role)
            .env("FOLDBACK_TEST_SOCKET", socket.to_string())
            .env("FOLDBACK_TEST_ARGUMENT", argument)
            .uid(uid)
            .gid(uid)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the actor starts");
        let stdout = child.stdout.take().expect("piped");
        Self { child, lines: BufReader::new(stdout).lines(), _program: None }
    }

    /// The next thing it says.
    pub fn says(&mut self) -> String {
        loop {
            let line = self.lines.next().expect("the actor says something").expect("text");
            // The first line of a test may follow libtest's own words.
            if let Some((_, said)) = line.split_once("role: ") {
                return said.to_string();
            }
        }
    }

    pub fn kill(mut self) {
        signal(&self.child, Signal::SIGKILL);
        self.child.wait().expect("its status");
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says something to the test.
pub fn say(text: &str) {
    println!("role: {text}");
    std::io::stdout().flush().expect("the test listens");
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).expect("the process is there");
}

/// The state of a process that was waited for in vain. Each thread has its name and state, its nanoseconds on a CPU
/// and in wait for one, and its place in the kernel.
fn doing(pid: u32) -> String {
    let mut told = String::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let read = |file| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let status = read("status");
        let line = |name| status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        let (name, state) = (line("Name:"), line("State:"));
        told += &format!("{name}, {state}, {}{}", read("schedstat"), read("stack"));
    }
    told
}

/// Waits until something is so.
pub fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !check() {
        assert!(Instant::now() < end, "still not so: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A group of `HERE` and `THERE`.
pub fn spec(token: u64) -> GroupSpec {
    GroupSpec {
        token,
        secret: None,
        self_index: 0,
        members: vec![HERE, THERE],
        window: 64,
        chunk_bytes: 1408,
        multicast: false,
    }
}
