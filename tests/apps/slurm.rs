//! Slurm: its daemons in a lab of two hosts, an agent on each host, and jobs of a user without privilege. The plugin
//! of `dist/slurm` is built for them.
//!
//! A cluster has its configuration, keys, sockets and spool in a directory of its own, and ends with its test. The
//! daemons run in the network namespaces of a lab, so they meet no Slurm of the machine.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{
    FOLDBACK, HANG, Lab, Mpi, Outcome, Scratch, finish, install, install_script, library, program,
    succeed, turn, wait,
};
use crate::{HOSTS, in_path, skip};

/// The user and the group of all jobs.
const NOBODY: &str = "65534";
/// Each host has an agent of this name: abstract names belong to network namespaces.
const AGENT: &str = "@foldback/test/slurm";
const HEADER: &str = "/usr/include/slurm/spank.h";
/// The collectives of the program that most jobs run.
const FOLDED: &[&str] = &["Allreduce", "Reduce", "Bcast", "Barrier"];
/// Says its host, the libraries that it preloads, and the report that it makes.
const TELL: &str = r#"echo "[$LD_PRELOAD] $FOLDBACK_REPORT.""#;
/// A library that tasks may preload.
const OTHER: &str = "/lib/x86_64-linux-gnu/libz.so.1";

/// The daemons of a cluster. The lab's end has killed them.
struct Daemons(Vec<Child>);

impl Drop for Daemons {
    fn drop(&mut self) {
        for daemon in &mut self.0 {
            let _ = wait(daemon, Duration::from_secs(10));
        }
    }
}

/// Takes the lab down when the test is killed. Steps of Slurm's outlive its daemons.
struct Guard(Child);

impl Guard {
    fn of(lab: &Lab) -> Self {
        // It waits for the end of its input, whose other end is this process's alone.
        let mut guard = Command::new("sh");
        guard.args(["-c", "cat; exec \"$@\"", "sh", FOLDBACK, "lab", "down", "--name", &lab.name]);
        guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Self(guard.spawn().expect("a guard"))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = wait(&mut self.0, HANG);
    }
}

/// Slurm on the hosts h0 and h1. The controller, munge and the users' commands are on h0.
struct Cluster {
    lab: Lab,
    daemons: Daemons,
    _guard: Guard,
    directory: Scratch,
}

impl Cluster {
    /// Says so if Slurm is not installed.
    fn new() -> Option<Self> {
        let is_installed = |name: &&str| in_path(name.as_ref()).is_some();
        let programs = ["munged", "slurmctld", "slurmd", "srun"];
        if !programs.iter().all(is_installed) || !Path::new(HEADER).is_file() {
            skip("Slurm is not installed, or its headers are not (make setup-slurm)");
            return None;
        }
        let lab = Lab::new(HOSTS);
        let mut cluster = Self {
            _guard: Guard::of(&lab),
            lab,
            daemons: Daemons(Vec::new()),
            directory: Scratch::new("slurm"),
        };
        cluster.write_files();
        cluster.start_daemons();
        Some(cluster)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The library as the plugin preloads it.
    fn library(&self) -> String {
        self.path("libfoldback.so").display().to_string()
    }

    fn write_files(&self) {
        let all = |path: &str, mode| {
            fs::create_dir_all(self.path(path)).unwrap();
            fs::set_permissions(self.path(path), Permissions::from_mode(mode)).unwrap();
        };
        all("", 0o755);
        // Jobs write here.
        all("out", 0o1777);
        for directory in ["state", "munge", "h0/spool", "h1/spool"] {
            all(directory, 0o755);
        }
        // Slurm's PMIx makes directories that bear the job's number alone.
        ["h0/tmp", "h1/tmp"].iter().for_each(|path| all(path, 0o1777));

        let mut key = [0; 1024];
        fs::File::open("/dev/urandom").unwrap().read_exact(&mut key).unwrap();
        fs::write(self.path("munge/key"), key).unwrap();
        fs::set_permissions(self.path("munge/key"), Permissions::from_mode(0o400)).unwrap();

        install(&library(), &self.path("libfoldback.so"));
        install(Path::new(FOLDBACK), &self.path("foldback"));
        let plugin = self.path("foldback.so");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("dist/slurm");
        let mut make = Command::new("make");
        make.args(["-s", "-C"]).arg(sources).env_remove("MAKEFLAGS");
        make.arg(format!("OUT={}", plugin.display())).arg("CFLAGS=-O2 -Werror");
        succeed(&mut make, HANG);
        self.plugstack("optional", "");

        let directory = self.directory.path().display();
        let prolog = format!(
            "#!/bin/sh\n\
             {directory}/foldback status --socket {AGENT} >/dev/null 2>&1 && state=serves || state=none\n\
             echo $state >{directory}/out/prolog-$SLURM_JOB_ID-$SLURMD_NODENAME\n"
        );
        install_script(&prolog, &self.path("prolog"));
        let configuration = format!(
            "ClusterName=test\nSlurmctldHost=h0(10.77.0.1)\nSlurmUser=root\nSlurmdUser=root\n\
             AuthType=auth/munge\nAuthInfo=socket={directory}/munge/socket\nCredType=cred/munge\n\
             StateSaveLocation={directory}/state\nSlurmdSpoolDir={directory}/%n/spool\nTmpFS={directory}/%n/tmp\n\
             SlurmctldPidFile={directory}/slurmctld.pid\nSlurmdPidFile={directory}/%n/slurmd.pid\n\
             SlurmctldLogFile={directory}/slurmctld.log\nSlurmdLogFile={directory}/%n/slurmd.log\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nMpiDefault=none\n\
             JobAcctGatherType=jobacct_gather/none\nAccountingStorageType=accounting_storage/none\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nSlurmdParameters=config_overrides\n\
             PlugStackConfig={directory}/plugstack.conf\nProlog={directory}/prolog\nPrologFlags=Alloc\n\
             NodeName=h0 NodeAddr=10.77.0.1 CPUs=4\nNodeName=h1 NodeAddr=10.77.0.2 CPUs=4\n\
             PartitionName=all Nodes=h0,h1 Default=YES State=UP MaxTime=INFINITE\n"
        );
        fs::write(self.path("slurm.conf"), configuration).unwrap();
    }

    /// Writes the line that loads the plugin, from the next command on.
    fn plugstack(&self, kind: &str, words: &str) {
        let (plugin, library) = (self.path("foldback.so"), self.library());
        let library =
            if words.contains("library=") { String::new() } else { format!("library={library}") };
        let line = format!("{kind} {} {library} {words}\n", plugin.display());
        fs::write(self.path("plugstack.conf"), line).unwrap();
    }

    fn start_daemons(&mut self) {
        let munge = |option: &str, file: &str| {
            format!("--{option}={}", self.path(&format!("munge/{file}")).display())
        };
        let mut munged = self.on(0);
        munged.args(["munged", "--foreground", "--force"]).args([
            munge("key-file", "key"),
            munge("socket", "socket"),
            munge("pid-file", "pid"),
            munge("log-file", "log"),
            munge("seed-file", "seed"),
        ]);
        self.start(munged);
        let socket = self.path("munge/socket");
        self.wait_for("munged", || socket.exists());
        let configuration = self.path("slurm.conf");
        let mut controller = self.on(0);
        controller.args(["slurmctld", "-D", "-f"]).arg(&configuration);
        self.start(controller);
        // A node that finds no controller registers minutes later.
        self.wait_for("the controller", || {
            let (_, said, _) = finish(self.on(0).args(["scontrol", "ping"]), HANG);
            said.contains("is UP")
        });
        for host in 0..HOSTS {
            self.start_agent(host);
            let mut daemon = self.on(host);
            daemon.args(["slurmd", "-D", "-N", &format!("h{host}"), "-f"]).arg(&configuration);
            self.start(daemon);
        }
        self.wait_for("idle nodes", || self.nodes_in("idle") == 2);
    }

    /// The agent's process is the one that this starts: each step on the way executes the next.
    fn start_agent(&mut self, host: u32) -> u32 {
        let mut agent = self.on(host);
        agent.args([FOLDBACK, "agent", "--socket", AGENT]);
        let id = self.start(agent);
        self.wait_for("the agent", || self.status(host).is_some());
        id
    }

    fn start(&mut self, mut command: Command) -> u32 {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let daemon = command.spawn().expect("the daemon starts");
        let id = daemon.id();
        self.daemons.0.push(daemon);
        id
    }

    /// A command of root's on a host.
    fn on(&self, host: u32) -> Command {
        let mut command = self.lab.on(host);
        command.args(["env", &format!("FOLDBACK_AGENT_SOCKET={AGENT}")]);
        command.env("SLURM_CONF", self.path("slurm.conf"));
        // For ranks of Open MPI, one a host, on hosts that share their CPUs.
        command.env("OMPI_MCA_pml", "ob1").env("OMPI_MCA_btl", "self,tcp");
        command.env("OMPI_MCA_btl_tcp_if_include", "eth0").env("OMPI_MCA_mpi_yield_when_idle", "1");
        command.env("FOLDBACK_SETUP_CALLS", "0").env("FOLDBACK_ROUTE", "fold");
        command.env("FOLDBACK_MAX_BYTES", "16384").env("FOLDBACK_SETUP_TIMEOUT", "300");
        command.env("FOLDBACK_LIB", self.library());
        command.current_dir(self.path("out"));
        command
    }

    /// A command of the user's. Another user's processes are told anew to end with the test.
    fn user(&self) -> Command {
        let mut command = self.on(0);
        command.args(["setpriv", "--pdeathsig", "TERM", "--clear-groups"]);
        command.args(["--reuid", NOBODY, "--regid", NOBODY]);
        command
    }

    fn run(&self, words: &[&str]) -> (ExitStatus, String, String) {
        finish(self.user().args(words), HANG)
    }

    /// Output and messages of a command that succeeds.
    fn succeed(&self, words: &[&str]) -> (String, String) {
        succeed(self.user().args(words), HANG)
    }

    /// The output of a command of root's on h0.
    fn admin(&self, words: &[&str]) -> String {
        succeed(self.on(0).args(words), HANG).0
    }

    /// A job of one step, whose statistics tell whether it was folded.
    fn step(&self, words: &[&str]) -> Outcome {
        let stats = self.path("out/stats.json");
        let _ = fs::remove_file(&stats);
        let mut command = self.user();
        command.args(words).env("FOLDBACK_STATS", &stats);
        let (stdout, stderr) = succeed(&mut command, HANG);
        Outcome::new(stdout, stderr, &stats, HOSTS)
    }

    /// Hands a batch script in. Returns the job's number.
    fn submit(&self, options: &[&str], script: &str) -> String {
        let path = self.path("script");
        install_script(&format!("#!/bin/sh\n{script}"), &path);
        let mut command = self.user();
        let (said, _) =
            succeed(command.args(["sbatch", "--parsable"]).args(options).arg(path), HANG);
        said.trim().to_owned()
    }

    fn output(&self, file: &str) -> String {
        fs::read_to_string(self.path("out").join(file)).unwrap_or_default()
    }

    fn await_end(&self, job: &str) {
        self.wait_for("the job's end", || self.admin(&["squeue", "-h", "-j", job]).is_empty());
    }

    fn nodes_in(&self, state: &str) -> usize {
        let (_, said, _) = finish(self.on(0).args(["sinfo", "-h", "-N", "-o", "%T"]), HANG);
        said.lines().filter(|line| *line == state).count()
    }

    /// The state of an agent, if it answers.
    fn status(&self, host: u32) -> Option<serde_json::Value> {
        let mut command = self.on(host);
        command.args([FOLDBACK, "status", "--json", "--socket", AGENT]);
        let (status, said, _) = finish(&mut command, HANG);
        status.success().then(|| serde_json::from_str(&said).expect("the status is JSON"))
    }

    fn groups(&self, host: u32) -> usize {
        self.status(host).expect("the agent answers")["groups"].as_array().expect("groups").len()
    }

    fn wait_for(&self, what: &str, is_there: impl Fn() -> bool) {
        let end = Instant::now() + HANG;
        while !is_there() {
            assert!(Instant::now() < end, "{what}: not within {HANG:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A test program, where every user can execute it.
    fn program(&self, mpi: Mpi, name: &str) -> String {
        let path = self.path(&format!("{}-{name}", mpi.name()));
        install(&program(mpi, name), &path);
        path.display().to_string()
    }

    /// The words of a shell in a step of one task.
    fn tell(&self, options: &[&str]) -> String {
        let words = [&["srun", "-N1", "-n1"], options, &["/bin/sh", "-c", TELL]].concat();
        self.succeed(&words).0.trim().to_owned()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for log in ["slurmctld.log", "h0/slurmd.log", "h1/slurmd.log"] {
            eprintln!("{log}:\n{}", fs::read_to_string(self.path(log)).unwrap_or_default());
        }
    }
}

/// A job says these words, and by its statistics it has folded.
fn assert_folds(said: String, stats: &Path, words: &str) {
    let outcome = Outcome::new(said.clone(), said, stats, HOSTS);
    outcome.assert_prints(words);
    outcome.assert_folded(FOLDED);
}

/// MPIs, and how Slurm starts their ranks.
const STARTS: &[(Mpi, &str)] = &[
    (Mpi::Open, "--mpi=pmix"),
    (Mpi::Open5, "--mpi=pmix"),
    (Mpi::Mpich, "--mpi=pmi2"),
    (Mpi::Mpich5, "--mpi=pmi2"),
    (Mpi::Mpich5Abi, "--mpi=pmi2"),
    (Mpi::Intel, "--mpi=pmi2"),
];

#[test]
#[ignore = "starts Slurm: make test-apps"]
fn steps_of_every_mpi_fold_and_say_the_same() {
    let _turn = turn();
    let Some(cluster) = Cluster::new() else { return };
    for (mpi, start) in STARTS {
        if !mpi.installed() {
            skip(&format!("{} is not installed (make setup-mpis)", mpi.name()));
            continue;
        }
        // Of MPIs in a place of their own. Debian's are found without.
        let libraries = format!("LD_LIBRARY_PATH={}/lib", mpi.directory().display());
        let program = cluster.program(*mpi, "histogram");
        let srun = ["env", &libraries, "srun", start, "-N2", "-n2"];
        let plain = cluster.step(&[&srun[..], &[&program]].concat());
        assert!(plain.stats.is_null(), "foldback is there unasked: {:#}", plain.stats);
        let folded = cluster.step(&[&srun[..], &["--foldback=line", &program]].concat());
        folded.assert_prints("histogram: OK");
        folded.assert_folded(FOLDED);
        assert_eq!(plain.stdout, folded.stdout, "{}", mpi.name());
        let report = folded.stderr.lines().filter(|line| line.starts_with("foldback: folded "));
        assert_eq!(report.count(), 1, "{}", folded.stderr);
    }
}

#[test]
#[ignore = "starts Slurm: make test-apps"]
fn the_option_says_what_tasks_preload() {
    let _turn = turn();
    let Some(cluster) = Cluster::new() else { return };
    let ours = cluster.library();
    assert_eq!(cluster.tell(&[]), "[] .");
    assert_eq!(cluster.tell(&["--foldback"]), format!("[{ours}] ."));
    assert_eq!(cluster.tell(&["--foldback=on"]), format!("[{ours}] ."));
    assert_eq!(cluster.tell(&["--foldback=line"]), format!("[{ours}] line."));
    assert_eq!(cluster.tell(&["--foldback=full"]), format!("[{ours}] full."));
    let own = ["--foldback=line", "--export=ALL,FOLDBACK_REPORT=off"];
    assert_eq!(cluster.tell(&own), format!("[{ours}] off."));
    assert_eq!(cluster.tell(&["--foldback", "--export=NONE"]), format!("[{ours}] ."));

    let preloading =
        |list: &str| cluster.tell(&["--foldback", &format!("--export=ALL,LD_PRELOAD={list}")]);
    assert_eq!(preloading(OTHER), format!("[{ours}:{OTHER}] ."));
    assert_eq!(preloading(&ours), format!("[{ours}] ."));
    assert_eq!(preloading(&format!("{OTHER}:{ours}")), format!("[{ours}:{OTHER}] ."));
    assert_eq!(preloading(&format!("{OTHER} {ours}: {ours}")), format!("[{ours}:{OTHER}] ."));
    // A build of the user's own.
    let mine = cluster.path("out/libfoldback.so.0");
    install(&library(), &mine);
    let mine = mine.display();
    assert_eq!(preloading(&format!("{OTHER}:{mine}")), format!("[{mine}:{OTHER}] ."));

    cluster.plugstack("optional", "default=on");
    assert_eq!(cluster.tell(&[]), format!("[{ours}] ."));
    assert_eq!(cluster.tell(&["--foldback=off"]), "[] .");
    assert_eq!(cluster.tell(&["--foldback=line"]), format!("[{ours}] line."));
    cluster.plugstack("optional", "default=line");
    assert_eq!(cluster.tell(&[]), format!("[{ours}] line."));
}

#[test]
#[ignore = "starts Slurm: make test-apps"]
fn wrong_words_are_refused_by_a_line() {
    let _turn = turn();
    let Some(cluster) = Cluster::new() else { return };
    let line = "foldback: --foldback=maybe: it may be on, off, line or full";
    for words in [
        &["srun", "--foldback=maybe", "-n1", "true"][..],
        &["sbatch", "--foldback=maybe", "--wrap", "true"],
        &["salloc", "--foldback=maybe", "true"],
    ] {
        let (status, _, stderr) = cluster.run(words);
        assert!(!status.success(), "{words:?}: {stderr}");
        assert_eq!(stderr.matches(line).count(), 1, "{words:?}: {stderr}");
    }
    for (words, line) in [
        (
            "default=maybe",
            "foldback: plugstack.conf: default=maybe: it may be on, off, line or full",
        ),
        ("library=some.so", "foldback: plugstack.conf: library=some.so: the path must be absolute"),
        ("library=/a:b.so", "foldback: plugstack.conf: library=/a:b.so: the path must be absolute"),
        ("default=on more", "foldback: plugstack.conf: more: there are library= and default="),
    ] {
        cluster.plugstack("optional", words);
        // Steps run on, without foldback.
        let (stdout, stderr) = cluster.succeed(&["srun", "-n1", "/bin/sh", "-c", TELL]);
        assert_eq!(stdout.trim(), "[] .", "{words}");
        assert!(stderr.contains(line), "{words}: {stderr}");
        let (status, _, stderr) = cluster.run(&["srun", "--foldback", "-n1", "true"]);
        assert!(!status.success() && stderr.contains(line), "{words}: {stderr}");
    }
}

/// Ranks with the library would wait for the ranks without it.
#[test]
#[ignore = "starts Slurm: make test-apps"]
fn a_step_ends_if_one_node_has_no_library() {
    let _turn = turn();
    let Some(cluster) = Cluster::new() else { return };
    let program = cluster.program(Mpi::Open, "histogram");
    // Each host of a lab has a /dev/shm of its own.
    let path = "/dev/shm/libfoldback.so";
    cluster.admin(&["install", "-m", "755", &cluster.library(), path]);
    let srun = ["srun", "--mpi=pmix", "-N2", "-n2"];
    for kind in ["optional", "required"] {
        cluster.plugstack(kind, &format!("library={path}"));
        let (status, stdout, stderr) =
            cluster.run(&[&srun[..], &["--foldback", &program]].concat());
        assert!(!status.success(), "{stdout}\n{stderr}");
        assert!(!stdout.contains("histogram: OK"), "{stdout}");
        let line = format!("foldback: {path}: No such file or directory: the step ends");
        let lines: Vec<_> = stderr.lines().filter(|said| said.contains(&line)).collect();
        assert!(lines.len() == 1 && lines[0].starts_with("slurmstepd-h1: "), "{kind}: {stderr}");
        // The nodes serve the next job.
        cluster.wait_for("idle nodes", || cluster.nodes_in("idle") == 2);
        let plain = cluster.step(&[&srun[..], &[&program]].concat());
        plain.assert_prints("histogram: OK");
    }
}

#[test]
#[ignore = "starts Slurm: make test-apps"]
fn options_of_a_batch_script_are_for_its_steps() {
    let _turn = turn();
    let Some(cluster) = Cluster::new() else { return };
    let (ours, program) = (cluster.library(), cluster.program(Mpi::Open, "histogram"));
    let stats = cluster.path("out/stats.json");
    let script = format!(
        "#SBATCH --foldback=line\n#SBATCH -N2\n#SBATCH --ntasks-per-node=1\n\
         grep -c libfoldback /proc/self/maps; {TELL}\n\
         srun -N1 -n1 sh -c '{TELL}'\n\
         srun -N1 -n1 --foldback=off sh -c '{TELL}'\n\
         mpirun.openmpi -np 2 sh -c 'echo \"mpirun [$LD_PRELOAD]\"'\n\
         FOLDBACK_STATS={} exec srun --mpi=pmix {program}\n",
        stats.display()
    );
    let job = cluster.submit(&["-o", "batch"], &script);
    cluster.await_end(&job);
    let said = cluster.output("batch");
    let lines: Vec<_> = said.lines().collect();
    let tasks = format!("[{ours}] line.");
    let expected = ["0", "[] .", &tasks, "[] .", "mpirun []", "mpirun []"];
    assert_eq!(lines.get(..expected.len()), Some(&expected[..]), "{said}");
    assert_folds(said, &stats, "histogram: OK");

    let inner = format!("{TELL}; srun -n1 sh -c '{TELL}'");
    let (stdout, _) = cluster.succeed(&["salloc", "--foldback", "-n1", "sh", "-c", &inner]);
    assert_eq!(stdout, format!("[] .\n[{ours}] .\n"));
}

#[test]
#[ignore = "starts Slurm: make test-apps"]
fn arrays_fold_in_each_of_their_jobs() {
    let _turn = turn();
    let Some(cluster) = Cluster::new() else { return };
    let program = cluster.program(Mpi::Open, "histogram");
    let directory = cluster.path("out");
    let script = format!(
        "FOLDBACK_STATS={}/stats-$SLURM_ARRAY_TASK_ID exec srun --mpi=pmix {program}\n",
        directory.display()
    );
    let options = ["--array=1-4", "-N2", "--ntasks-per-node=1", "--foldback", "-o", "array-%a"];
    let job = cluster.submit(&options, &script);
    cluster.await_end(&job);
    for number in 1..=4 {
        let said = cluster.output(&format!("array-{number}"));
        assert_folds(said, &directory.join(format!("stats-{number}")), "histogram: OK");
    }
}

#[test]
#[ignore = "starts Slurm: make test-apps"]
fn two_jobs_fold_on_the_same_nodes_at_once() {
    let _turn = turn();
    let Some(cluster) = Cluster::new() else { return };
    let programs = [(Mpi::Open, "pmix"), (Mpi::Mpich, "pmi2")];
    let jobs: Vec<_> = programs
        .iter()
        .map(|(mpi, start)| {
            // Each waits until both run.
            let script = format!(
                "touch begun-{start}; until test -e begun-pmix && test -e begun-pmi2; do sleep 0.05; done\n\
                 FOLDBACK_STATS=stats-{start} srun --mpi={start} {} --rounds 20 && echo over\n",
                cluster.program(*mpi, "histogram")
            );
            let output = format!("two-{start}");
            let options = ["-N2", "--ntasks-per-node=1", "--foldback", "-o", &output];
            cluster.submit(&options, &script)
        })
        .collect();
    jobs.iter().for_each(|job| cluster.await_end(job));
    for (_, start) in programs {
        let said = cluster.output(&format!("two-{start}"));
        assert_folds(said, &cluster.path(&format!("out/stats-{start}")), "over");
    }
}

#[test]
#[ignore = "starts Slurm: make test-apps"]
fn a_cancelled_job_leaves_no_group() {
    let _turn = turn();
    let Some(cluster) = Cluster::new() else { return };
    for (mpi, start) in [(Mpi::Open, "--mpi=pmix"), (Mpi::Mpich, "--mpi=pmi2")] {
        let script =
            format!("exec srun {start} {} --rounds 100000000\n", cluster.program(mpi, "histogram"));
        let options = ["-N2", "--ntasks-per-node=1", "--foldback", "-o", "cancelled"];
        let job = cluster.submit(&options, &script);
        for host in 0..HOSTS {
            cluster.wait_for("a group", || {
                let is_there = cluster.admin(&["squeue", "-h", "-j", &job, "-o", "%T"]);
                assert!(!is_there.is_empty(), "{}", cluster.output("cancelled"));
                cluster.groups(host) == 1
            });
        }
        assert_eq!(cluster.status(0).unwrap()["groups"][0]["uid"].to_string(), NOBODY);
        cluster.admin(&["scancel", &job]);
        cluster.await_end(&job);
        for host in 0..HOSTS {
            cluster.wait_for("no group", || cluster.groups(host) == 0);
        }
    }
}

#[test]
#[ignore = "starts Slurm: make test-apps"]
fn a_drained_node_gets_no_task_and_folds_again_later() {
    let _turn = turn();
    let Some(cluster) = Cluster::new() else { return };
    let program = cluster.program(Mpi::Open, "histogram");
    let stats = cluster.path("out/stats.json");
    let drain = ["scontrol", "update", "nodename=h1", "state=drain", "reason=test"];
    cluster.admin(&drain);
    let (host, _) = cluster.succeed(&["srun", "--foldback", "-n1", "hostname"]);
    assert_eq!(host, "h0\n");
    let script = format!("FOLDBACK_STATS={} exec srun --mpi=pmix {program}\n", stats.display());
    let options = ["-N2", "--ntasks-per-node=1", "--foldback", "-o", "drained"];
    let job = cluster.submit(&options, &script);
    cluster.wait_for("a reason to wait", || {
        cluster
            .admin(&["squeue", "-h", "-j", &job, "-o", "%T %r"])
            .contains("PENDING ReqNodeNotAvail")
    });
    assert_eq!(cluster.groups(1), 0);
    cluster.admin(&["scontrol", "update", "nodename=h1", "state=resume"]);
    cluster.await_end(&job);
    let said = cluster.output("drained");
    assert_folds(said, &stats, "histogram: OK");
}

#[test]
#[ignore = "starts Slurm: make test-apps"]
fn foldback_run_gives_srun_the_library_once() {
    let _turn = turn();
    let Some(cluster) = Cluster::new() else { return };
    let command = cluster.path("foldback").display().to_string();
    let (ours, run) = (cluster.library(), [command.as_str(), "run", "--", "srun"]);
    for (mpi, start) in [(Mpi::Open, "--mpi=pmix"), (Mpi::Mpich, "--mpi=pmi2")] {
        let program = cluster.program(mpi, "histogram");
        let folded = cluster.step(&[&run[..], &[start, "-N2", "-n2", &program]].concat());
        folded.assert_prints("histogram: OK");
        folded.assert_folded(FOLDED);
        assert!(folded.stderr.contains("foldback: folded "), "{}", folded.stderr);
    }
    let tell = |options: &[&str]| {
        let words = [&run[..], options, &["-n1", "/bin/sh", "-c", TELL]].concat();
        cluster.succeed(&words).0.trim().to_owned()
    };
    let expected = format!("[{ours}] line.");
    assert_eq!(tell(&[]), expected);
    assert_eq!(tell(&["--foldback"]), expected);
    let kept = tell(&["--foldback", &format!("--export=ALL,LD_PRELOAD={OTHER}")]);
    assert_eq!(kept, format!("[{ours}:{OTHER}] line."));
    cluster.plugstack("optional", "default=on");
    assert_eq!(tell(&[]), expected);
}

#[test]
#[ignore = "starts Slurm: make test-apps"]
fn a_prolog_asks_the_agent_and_jobs_run_without_it() {
    let _turn = turn();
    let Some(mut cluster) = Cluster::new() else { return };
    let program = cluster.program(Mpi::Open, "histogram");
    let srun = format!("srun --mpi=pmix {program}\n");
    let options = ["-N2", "--ntasks-per-node=1", "--foldback", "-o", "prolog"];
    let said_of = |cluster: &Cluster| {
        let job = cluster.submit(&options, &srun);
        cluster.await_end(&job);
        assert!(cluster.output("prolog").contains("histogram: OK"), "{}", cluster.output("prolog"));
        [0, 1].map(|host| cluster.output(&format!("prolog-{job}-h{host}")).trim().to_owned())
    };
    assert_eq!(said_of(&cluster), ["serves", "serves"]);
    // The last daemons are the agent and slurmd of h1.
    let at = cluster.daemons.0.len() - 2;
    let id = cluster.daemons.0[at].id().to_string();
    cluster.admin(&["kill", &id]);
    cluster.wait_for("the agent's end", || cluster.status(1).is_none());
    assert_eq!(said_of(&cluster), ["serves", "none"]);
    cluster.start_agent(1);
    assert_eq!(said_of(&cluster), ["serves", "serves"]);
}
