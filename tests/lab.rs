//! The lab itself: clusters come and go without a trace, and programs run in them as they would
//! elsewhere. Needs root, and says so.

#[allow(dead_code, reason = "other tests use the rest")]
mod common;

use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use common::{Killed, command};

const FOLDBACK: &str = env!("CARGO_BIN_EXE_foldback");

/// The command that cargo has built. In the guest of `scripts/test-kernels.sh` it is in $PATH.
fn built() -> &'static str {
    if Path::new(FOLDBACK).exists() { FOLDBACK } else { "foldback" }
}

/// Longest that any command here may take: `timeout` ends it.
const PATIENCE: &str = "600";

fn foldback(arguments: &[&str]) -> Output {
    assert!(nix::unistd::geteuid().is_root(), "the lab needs root");
    command("timeout")
        .args([PATIENCE, built()])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("timeout is in coreutils")
}

#[track_caller]
fn ok(arguments: &[&str]) -> String {
    let output = foldback(arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {}\n{stdout}{stderr}", output.status);
    stdout
}

/// Labs that this process made and that are there now.
fn labs_like(name: &str) -> usize {
    std::fs::read_dir("/run/foldback/lab").map_or(0, |entries| {
        entries.flatten().filter(|e| e.file_name().to_string_lossy().starts_with(name)).count()
    })
}

struct Lab(String);

impl Lab {
    fn up(name: &str, options: &[&str]) -> Self {
        let name = format!("{name}{}", std::process::id());
        let own = std::process::id().to_string();
        let mut arguments = vec!["lab", "up", "--name", &name, "--lives-with", &own];
        arguments.extend(options);
        ok(&arguments);
        Self(name)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        foldback(&["lab", "down", "--name", &self.0]);
    }
}

#[test]
fn a_lab_comes_and_goes() {
    let lab = Lab::up("a", &["--hosts", "3"]);
    assert!(ok(&["lab", "status"]).contains(&lab.0));
    let name = lab.0.clone();
    let address = ok(&["lab", "exec", "--name", &name, "h2", "--", "hostname"]);
    assert_eq!(address.trim(), "h2");
    assert_eq!(labs_like(&name), 1);
    drop(lab);
    assert_eq!(labs_like(&name), 0);
}

#[test]
fn hosts_read_no_file_of_the_machines_settings() {
    let lab = Lab::up("conf", &[]);
    let conf = |named: Option<&str>| {
        let mut exec = command(FOLDBACK);
        exec.args(["lab", "exec", "--name", &lab.0, "h0", "--", "printenv", "FOLDBACK_CONF"]);
        match named {
            Some(path) => exec.env("FOLDBACK_CONF", path),
            None => exec.env_remove("FOLDBACK_CONF"),
        };
        String::from_utf8(exec.output().expect("the command starts").stdout).expect("UTF-8")
    };
    assert_eq!(conf(None), "\n");
    assert_eq!(conf(Some("/dev/null/none")), "/dev/null/none\n");
}

#[test]
fn hosts_reach_each_other_and_nothing_else() {
    let lab = Lab::up("b", &["--hosts", "2"]);
    let routes = ok(&["lab", "exec", "--name", &lab.0, "h0", "--", "ip", "-br", "address"]);
    let interfaces: Vec<_> = routes.lines().filter_map(|line| line.split('@').next()).collect();
    assert!(interfaces.iter().any(|name| name.starts_with("eth0")), "{routes}");
    assert!(
        interfaces.iter().all(|name| name.starts_with("eth0") || name.starts_with("lo")),
        "{routes}"
    );
}

/// Runs a job without foldback: a rank on each of two hosts.
fn two_ranks(mpi: &str, program: &[&str]) -> Output {
    let start = ["lab", "run", "--private", "--mpi", mpi, "--hosts", "2", "--off"];
    foldback(&[&start[..], program].concat())
}

#[test]
fn the_exit_status_is_the_programs() {
    // Not Intel's: its launcher tells no more than that a program failed.
    for mpi in ["openmpi", "openmpi5", "mpich", "mpich5", "mpich5-abi"] {
        let prefix = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/mpis").join(mpi);
        if mpi.contains('5') && !prefix.is_dir() {
            let _ = writeln!(std::io::stderr(), "lab: {mpi} is not installed, and skipped");
            continue;
        }
        let output = two_ranks(mpi, &["--", "sh", "-c", "exit 7"]);
        assert_eq!(output.status.code(), Some(7), "{mpi}: {output:?}");
    }
}

/// MPICH's launcher ends by SIGPIPE if two hosts' ranks end at one moment. It then has told nobody their status.
#[test]
fn the_status_of_a_rank_outlives_the_launcher() {
    // The launcher stands still while the rank of h1 ends, and gets the signal then. But not before it has started
    // that rank, which on a busy machine may take a while.
    let end = "parent() { cut -d ' ' -f 4 /proc/$1/stat; }
        [ $(hostname) = h1 ] && { touch \"$1\"; until [ -e \"$0\" ]; do sleep 0.1; done; exit 7; }
        until [ -e \"$1\" ]; do sleep 0.1; done
        launcher=$(parent $(parent $PPID))
        statuses=$(tr '\\0' '\\n' < /proc/$PPID/cmdline | grep -A 1 -x -e --statuses | tail -n 1)
        kill -STOP $launcher
        touch \"$0\"
        until [ -n \"$(ls \"$statuses\")\" ]; do sleep 0.1; done
        kill -PIPE $launcher
        kill -CONT $launcher
        sleep 300";
    let [stopped, started] = ["stopped", "started"].map(common::unique_path);
    let files = [&stopped, &started].map(|file| file.to_str().unwrap());
    let program = ["--timeout", "300", "--", "sh", "-c", end];
    let output = two_ranks("mpich4", &[&program[..], &files].concat());
    files.iter().for_each(|file| common::remove(file.as_ref()));
    assert_eq!(output.status.code(), Some(7), "{output:?}");
}

/// The launchers end a job for a rank that a signal ended, not for one that exits. 11 is how `wait` tells of the
/// signal. A process that exits because of it, as shells do, is shown with 139. Hydra of MPICH 4.0 often trips
/// over its own end before it can say more.
#[test]
fn a_signal_that_ends_a_rank_reaches_the_launcher() {
    let end = "[ $(hostname) != h0 ] || exec sleep 100; kill -SEGV $$";
    let output = two_ranks("mpich4", &["--", "sh", "-c", end]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("EXIT CODE: 11\n") && !output.status.success(), "{output:?}");
}

#[test]
fn progress_is_drawn_for_those_who_look_on() {
    let name = format!("t{}", std::process::id());
    let pid = std::process::id();
    let up = format!("{FOLDBACK} lab up --name {name} --hosts 3 --lives-with {pid}");
    let up = format!("stty cols 80; {up}; {FOLDBACK} lab down --name {name}");
    let output = command("timeout")
        .args([PATIENCE, "script", "-qec", &up, "/dev/null"])
        .stdin(Stdio::null())
        .output()
        .expect("script is in bsdutils");
    let drawn = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && drawn.contains("lab: ["), "{output:?}");
    let unseen = foldback(&["lab", "run", "--private", "--hosts", "3", "--off", "--", "true"]);
    // The launcher may have something to say: on one busy CPU, that a process was not made leader of its group in time.
    let said = String::from_utf8_lossy(&unseen.stderr);
    assert!(unseen.status.success() && !said.contains("lab: ["), "{unseen:?}");
}

/// Open MPI 5's does so now and then; one that is stopped does so always.
#[test]
fn a_launcher_that_outlives_its_ranks_is_ended_with_their_status() {
    if !Path::new(env!("CARGO_MANIFEST_DIR")).join("target/mpis/openmpi5").is_dir() {
        let _ = writeln!(std::io::stderr(), "lab: openmpi5 is not installed, and skipped");
        return;
    }
    // The parent is `foldback lab rank`, whose parent is the launcher or its daemon. Both ranks have to be
    // there before: a launcher that is stopped starts nobody any more.
    let here = common::unique_path("here");
    std::fs::create_dir(&here).unwrap();
    let stop = "touch \"$0/$(hostname)\"
        until [ -e \"$0/h0\" ] && [ -e \"$0/h1\" ]; do sleep 0.1; done
        kill -STOP $(cut -d ' ' -f 4 /proc/$PPID/stat)
        exit 7";
    let output = foldback(&[
        "lab",
        "run",
        "--private",
        "--mpi",
        "openmpi5",
        "--hosts",
        "2",
        "--off",
        "--timeout",
        "300",
        "--",
        "sh",
        "-c",
        stop,
        here.to_str().unwrap(),
    ]);
    common::remove(&here);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("all ranks have ended, but the launcher has not"), "{said}");
}

#[test]
fn what_a_killed_run_leaves_is_gone_after_the_next() {
    let mut run = command(FOLDBACK)
        .args(["lab", "run", "--private", "--hosts", "2", "--off", "--", "sleep", "600"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let name = format!("run-{}", run.id());
    let begin = Instant::now();
    while labs_like(&name) == 0 {
        assert!(begin.elapsed() < Duration::from_secs(120), "no lab of the name {name}");
        std::thread::sleep(Duration::from_millis(20));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    // A run of another test, beside this one, may have taken it away by now.
    ok(&["lab", "run", "--private", "--hosts", "2", "--off", "--", "true"]);
    assert_eq!(labs_like(&name), 0);
}

#[test]
fn a_program_of_another_mpi_is_told_which_to_give() {
    let directory = common::unique_path("linked");
    std::fs::create_dir(&directory).unwrap();
    let source = directory.join("program.c");
    std::fs::write(
        &source,
        "#include <mpi.h>\nint main(void){return MPI_Init(0,0)|MPI_Finalize();}",
    )
    .unwrap();
    for (compiler, own, other) in
        [("mpicc.openmpi", "openmpi4", "mpich4"), ("mpicc.mpich", "mpich4", "openmpi4")]
    {
        let program = directory.join(own);
        let built = command(compiler).arg("-o").arg(&program).arg(&source).status().unwrap();
        assert!(built.success());
        let run = |mpi: &str| {
            let arguments = ["lab", "run", "--private", "--mpi", mpi, "--off", "--"];
            foldback(&[&arguments[..], &[program.to_str().unwrap()]].concat())
        };
        assert_eq!(run(own).status.code(), Some(0));
        let refused = run(other);
        let told = String::from_utf8(refused.stderr).unwrap();
        assert_eq!((refused.status.code(), told.lines().count()), (Some(1), 1), "{told}");
        assert!(told.contains(&format!("try --mpi {own}")), "{told}");
    }
    common::remove(&directory);
}

#[test]
fn programs_linked_with_foldback_are_off_with_the_rest() {
    let off = ["lab", "run", "--private", "--off", "--", "sh", "-c", "echo is=$FOLDBACK"];
    assert_eq!(ok(&off), "is=off\n".repeat(2));
}

#[test]
fn a_reader_who_has_gone_is_no_failure() {
    let lab = Lab::up("g", &["--hosts", "2"]);
    let closed = || Stdio::from(std::io::pipe().unwrap().1);
    let run = |arguments: &[&str]| {
        let mut command = command(FOLDBACK);
        command.args(arguments).stdout(closed()).stderr(closed());
        command.status().unwrap().code()
    };
    assert_eq!(run(&["lab", "status", "--name", &lab.0]), Some(0));
    assert_eq!(run(&["lab", "status", "--name", "nosuchlab"]), Some(1));
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let told = command(FOLDBACK).args(["lab", "status", "--name", &lab.0]).stdout(full).output();
    let told = String::from_utf8(told.unwrap().stderr).unwrap();
    assert!(told.contains("No space left") && told.lines().count() == 1, "{told}");
}

#[test]
fn a_lab_is_gone_after_the_process_that_it_lives_with() {
    let mut process = command("sleep").arg("600").spawn().unwrap();
    let name = format!("with{}", std::process::id());
    let pid = process.id().to_string();
    ok(&["lab", "up", "--name", &name, "--lives-with", &pid]);
    ok(&["lab", "run", "--private", "--hosts", "2", "--off", "--", "true"]);
    assert_eq!(labs_like(&name), 1);
    process.kill().unwrap();
    process.wait().unwrap();
    ok(&["lab", "run", "--private", "--hosts", "2", "--off", "--", "true"]);
    assert_eq!(labs_like(&name), 0);
}

#[test]
fn a_wrong_word_is_one_clear_line() {
    for words in [
        &["lab", "up", "--hosts", "0"][..],
        &["lab", "up", "--loss", "200%"],
        &["lab", "up", "--delay", "25"],
        &["lab", "up", "--lives-with", "999999999"],
        &["lab", "run", "--mpi", "lam", "--", "true"],
        &["lab", "exec", "--name", "nosuchlab", "h0", "--", "true"],
    ] {
        let output = foldback(words);
        let code = output.status.code();
        assert!(matches!(code, Some(1 | 2)), "{words:?}: {code:?}");
        assert!(!output.stderr.is_empty(), "{words:?}");
    }
    assert!(!Path::new("/run/foldback/lab/nosuchlab").exists());
}

/// The kernel divides its measure of a segment's memory by the length of the data. TCP's receiver dies of a
/// frame that is longer than the memory that it is said to be in.
#[test]
fn a_long_frame_does_not_take_the_place_of_a_short_one() {
    let lab = Lab::up("r", &["--hosts", "2"]);
    let on = |host: &str, script: &str| {
        ok(&["lab", "exec", "--name", &lab.0, host, "--", "bash", "-c", script])
    };
    on("h1", "echo x > /dev/udp/10.77.0.1/9");
    ok(&["lab", "faults", "--name", &lab.0, "--reorder", "100%", "--faults-on", "udp:9"]);
    let reordered_by = |bytes: u32| {
        on("h0", &format!("printf '%0{bytes}d\\n' 0 > /dev/udp/10.77.0.2/9"));
        let status = ok(&["lab", "status", "--name", &lab.0, "--json"]);
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        status["host"][1]["faults"]["reordered"].as_u64().unwrap()
    };
    assert_eq!([1000, 10, 10, 900, 1000].map(reordered_by), [0, 0, 0, 0, 1]);
    // Short ones are known to fit: any frame is at least that long in memory.
    assert_eq!([500, 10].map(reordered_by), [1, 2]);
}

/// Faults befall frames before they wait, and links have their speed as well. One line
/// says so if the kernel has no netem, and no lab stays.
#[test]
fn frames_take_their_delay_between_hosts() {
    let name = format!("d{}", std::process::id());
    let own = std::process::id().to_string();
    let start = ["lab", "up", "--name", &name, "--lives-with", &own, "--delay", "200ms"];
    let output = foldback(&start);
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        let last = said.lines().last().unwrap_or_default();
        assert!(last.contains("no netem") && last.contains("CONFIG_NET_SCH_NETEM"), "{said}");
        assert_eq!(labs_like(&name), 0);
        let _ = writeln!(std::io::stderr(), "lab: the kernel has no netem, so no frame is delayed");
        return;
    }
    let lab = Lab(name);
    let on_h0 = |script: &str| {
        ok(&["lab", "exec", "--name", &lab.0, "h0", "--", "bash", "-c", script]);
    };
    // To a port that nobody has, and back.
    let round_trip = || {
        let begin = Instant::now();
        on_h0("! : 2>/dev/null > /dev/tcp/10.77.0.2/9");
        begin.elapsed()
    };
    let status = || ok(&["lab", "status", "--name", &lab.0]);
    assert!(round_trip() >= Duration::from_millis(400));
    ok(&["lab", "rate", "--name", &lab.0, "1gbit"]);
    assert!(status().contains("rate 1gbit, delay 200ms"), "{}", status());
    assert!(round_trip() >= Duration::from_millis(400));
    ok(&["lab", "faults", "--name", &lab.0, "--loss", "100%", "--faults-on", "udp:9"]);
    on_h0("for i in 1 2 3 4; do echo x > /dev/udp/10.77.0.2/9; done");
    let json = ok(&["lab", "status", "--name", &lab.0, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["host"][1]["faults"]["lost"].as_u64(), Some(4));
    assert!(round_trip() >= Duration::from_millis(400));
    ok(&["lab", "rate", "--name", &lab.0, "off"]);
    assert!(round_trip() >= Duration::from_millis(400));
    ok(&["lab", "delay", "--name", &lab.0, "300ms"]);
    assert!(round_trip() >= Duration::from_millis(600));
    ok(&["lab", "delay", "--name", &lab.0, "off"]);
    assert!(!status().contains("delay"), "{}", status());
    on_h0("! : 2>/dev/null > /dev/tcp/10.77.0.2/9");
}

/// While something runs in it, on one host or all; and each host tells the faults of frames to it.
#[test]
fn faults_may_change() {
    let lab = Lab::up("f", &["--hosts", "3"]);
    let on = |host: &str, script: &str| {
        ok(&["lab", "exec", "--name", &lab.0, host, "--", "bash", "-c", script])
    };
    // The switch sends frames everywhere until it has heard of a host. One line, one datagram.
    for host in ["h1", "h2"] {
        on(host, "echo x > /dev/udp/10.77.0.1/9");
    }
    let send = |port: u16| {
        let four = format!("for i in 1 2 3 4; do echo x > /dev/udp/10.77.0.$to/{port}; done");
        on("h0", &format!("for to in 2 3; do {four}; done"));
    };
    let set = |options: &[&str]| ok(&[&["lab", "faults", "--name", &lab.0], options].concat());
    let lost = || {
        let status = ok(&["lab", "status", "--name", &lab.0, "--json"]);
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        [1, 2].map(|host: usize| status["host"][host]["faults"]["lost"].as_u64().unwrap())
    };
    set(&["--loss", "100%", "--faults-on", "udp:9"]);
    send(9);
    send(10);
    assert_eq!(lost(), [4, 4]);
    set(&["--host", "h1"]);
    send(9);
    assert_eq!(lost(), [4, 8]);
    assert!(ok(&["lab", "status", "--name", &lab.0]).contains("loss 100%, faults on udp:9"));
    set(&[]);
    send(9);
    assert_eq!(lost(), [4, 8]);
    set(&["--loss", "100%", "--faults-on", "udp:9", "--faults-above", "44"]);
    send(9);
    on("h0", "echo 'longer than 44 bytes' > /dev/udp/10.77.0.2/9");
    assert_eq!(lost(), [5, 8]);
    let wrong = foldback(&["lab", "faults", "--name", &lab.0, "--host", "h7"]);
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(!wrong.status.success() && said.contains("has no host h7"), "{said}");
}

/// An agent in a host of a lab.
struct Agent {
    _process: Killed,
}

impl Agent {
    /// Starts it, and waits until it serves.
    fn start(lab: &Lab, host: &str, settings: &[&str]) -> Self {
        let exec = ["lab", "exec", "--name", &lab.0, host, "--"];
        let mut agent = command(FOLDBACK);
        agent.args(exec).arg("env").args(settings).args([FOLDBACK, "agent"]).stdin(Stdio::null());
        let agent = Self { _process: Killed(agent.spawn().expect("the agent starts")) };
        let begin = Instant::now();
        while !foldback(&[&exec[..], &[FOLDBACK, "status"]].concat()).status.success() {
            let took = begin.elapsed();
            assert!(took < Duration::from_secs(120), "the agent of {host} does not answer");
        }
        agent
    }
}

#[test]
fn doctor_asks_the_agents_of_other_hosts() {
    let lab = Lab::up("peers", &["--hosts", "6"]);
    let settings: [(_, &[_]); 4] =
        [("h1", &[]), ("h2", &[]), ("h4", &[]), ("h5", &["FOLDBACK_ECHO=off"])];
    let _agents = settings.map(|(host, settings)| Agent::start(&lab, host, settings));
    let fabric = format!("--net=/run/foldback/lab/{}/fabric", lab.0);
    let inside = |words: &str| {
        let mut nsenter = command("nsenter");
        let status = nsenter.arg(&fabric).args(words.split(' ')).status().expect("it is there");
        assert!(status.success(), "{words}");
    };
    // The way to h2 has less room than its ends; h4 is out of order.
    inside("ip link set p2 mtu 1300");
    inside("ip link set p4 down");
    let ask = |more: &[&str]| {
        let exec = ["lab", "exec", "--name", &lab.0, "h0", "--", FOLDBACK, "doctor", "--peers"];
        let output = foldback(&[&exec[..], more].concat());
        (output.status.code(), String::from_utf8(output.stdout).expect("UTF-8"))
    };
    let release = env!("CARGO_PKG_VERSION");
    let (status, said) = ask(&["h0,h1"]);
    for line in [
        "ok  h0 (10.77.0.1): this host\n".to_owned(),
        format!("ok  h1 (10.77.0.2): foldback {release}, MTU 1500, hears multicast, round trip "),
        "2 of 2 hosts can take part.\n".to_owned(),
    ] {
        assert!(said.contains(&line), "{line}{said}");
    }
    assert_eq!(status == Some(0), !said.contains("\nno  "), "{said}");
    let (status, said) = ask(&["h1", "10.77.0.3", "h3", "h4", "h5", "nobody.invalid", "--quiet"]);
    assert_eq!(status, Some(1), "{said}");
    for line in [
        format!("no  10.77.0.3: foldback {release}, round trip "),
        // Bridges leave room for the tag of a VLAN.
        "packets of 1500 bytes do not arrive there, 1304 do\n".to_owned(),
        "no  h3 (10.77.0.4): no agent there has UDP port 337\n".to_owned(),
        "no  h4 (10.77.0.5): nothing answers at UDP port 337, asked from 10.77.0.1\n".to_owned(),
        "no  h5 (10.77.0.6): nothing answers at UDP port 337, asked from 10.77.0.1\n".to_owned(),
        "no  nobody.invalid: ".to_owned(),
        "Jobs run on plain MPI with 5 of 6 hosts until every \"no\" is mended.\n".to_owned(),
    ] {
        assert!(said.contains(&line), "{line}{said}");
    }
    assert!(!said.contains("h1 (") && !said.contains("ok  "), "{said}");
}
