//! The metrics of an agent, and a Prometheus that scrapes them.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};

use foldback::agent::Client;

use crate::common::{Killed, command};
use crate::world::{Actor, Agent, Directory, PATIENCE, agent_command, eventually, in_namespace};
use crate::{foreign, send_hello};

const AT: &str = "127.0.0.1:9337";

/// The answer to a request, head and body.
fn exchange(mut stream: impl Read + Write, request: &str) -> String {
    stream.write_all(request.as_bytes()).expect("it listens");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer in UTF-8");
    answer
}

fn get(at: &str, path: &str) -> String {
    let stream = TcpStream::connect(at).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a bound");
    exchange(stream, &format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n"))
}

/// The value of a metric, named with its labels.
fn scraped(metric: &str) -> Option<String> {
    let metrics = get(AT, "/metrics");
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
    let line = metrics.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
    line.map(str::to_owned)
}

#[test]
fn metrics_keep_the_counts_of_groups_that_have_ended() {
    in_namespace(|| {
        let directory = Directory::new();
        let (socket, log) = (directory.socket(), directory.0.join("log"));
        let mut command = agent_command(&socket, &[("FOLDBACK_LOG", "info")]);
        command.args(["--metrics", AT]).stderr(fs::File::create(&log).expect("a file"));
        let _agent = Agent::start_as(&socket, &mut command);
        assert_eq!(scraped("foldback_groups{uid=\"1000\"}"), None);

        let _counting = foreign::count_runs();
        let mut actor = Actor::start("hold", 1000, &socket, "7");
        assert_eq!(actor.says(), "0");
        // As root: the group's user alone may.
        send_hello(7);
        let is = |metric: &str, value: &str| {
            assert_eq!(
                scraped(metric).as_deref(),
                Some(value),
                "{metric}: {}",
                get(AT, "/metrics")
            );
        };
        is("foldback_groups{uid=\"1000\"}", "1");
        is("foldback_dropped_total{uid=\"1000\",reason=\"uid\"}", "1");
        let number = |metric| scraped(metric).and_then(|text| text.parse::<f64>().ok());
        assert!(number("foldback_program_runs_total{program=\"tc-egress\"}") >= Some(1.0));
        assert!(number("foldback_program_seconds_total{program=\"tc-egress\"}") > Some(0.0));
        let pid = Client::connect(&socket).unwrap().groups().unwrap()[0].pid;
        let group = format!("{{uid=\"1000\",job=\"4711\",process=\"{pid}\",slot=\"0\"");
        is(&format!("foldback_group_calls_total{group}}}"), "0");
        is(&format!("foldback_group_cpu_seconds_total{group}}}"), "0.0");
        is(&format!("foldback_group_frames_in_total{group}}}"), "0");
        is(&format!("foldback_group_dropped_total{group},reason=\"uid\"}}"), "1");

        let (board, metrics) = (include_str!("../../dist/grafana.json"), get(AT, "/metrics"));
        let shown: Vec<_> = board.match_indices("foldback_").map(|(at, _)| &board[at..]).collect();
        assert!(shown.len() > 8, "a board");
        for rest in shown {
            let end = rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap();
            assert!(metrics.contains(&format!("\n{}{{", &rest[..end])), "{}", &rest[..end]);
        }

        actor.kill();
        eventually("the group is gone", || {
            scraped("foldback_groups{uid=\"1000\"}").as_deref() == Some("0")
        });
        is("foldback_dropped_total{uid=\"1000\",reason=\"uid\"}", "1");
        assert!(!get(AT, "/metrics").contains("foldback_group_"), "there is no group");
        let told = fs::read_to_string(&log).unwrap();
        let gone = format!("process {pid} of job 4711 of user 1000 has gone; groups 1, ");
        assert!(told.contains(&gone), "{told}");

        let mut next = Actor::start("hold", 1000, &socket, "8");
        next.says();
        is("foldback_groups_made_total{uid=\"1000\"}", "2");
    });
}

#[test]
fn nobody_keeps_metrics_from_others_for_good() {
    in_namespace(|| {
        let directory = Directory::new();
        let socket = directory.socket();
        let _agent = Agent::start_as(&socket, agent_command(&socket, &[]).args(["--metrics", AT]));
        let silent: Vec<_> = (0..3).map(|_| TcpStream::connect(AT).expect("it listens")).collect();
        Client::connect(&socket).unwrap().status().expect("the agent is not concerned");
        assert!(scraped("foldback_agent_age_seconds").is_some());
        drop(silent);
        let new = "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n";
        let answer = exchange(TcpStream::connect(AT).unwrap(), new);
        assert!(answer.ends_with("# EOF\n"), "{answer}");
        for (request, status) in [
            ("GET /secret HTTP/1.1\r\n\r\n", "404"),
            ("PUT /metrics HTTP/1.1\r\n\r\n", "405"),
            ("\0\0\0\0\r\n\r\n", "400"),
        ] {
            let answer = exchange(TcpStream::connect(AT).unwrap(), request);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        }
    });
}

#[test]
fn a_socket_of_metrics_is_roots_and_goes_with_the_agent() {
    in_namespace(|| {
        let directory = Directory::new();
        let (socket, path) = (directory.socket(), directory.0.join("metrics.sock"));
        // One that a killed agent has left.
        drop(UnixListener::bind(&path).unwrap());
        let at = path.to_str().unwrap();
        let agent = Agent::start_as(&socket, agent_command(&socket, &[]).args(["--metrics", at]));
        eventually("it serves", || UnixStream::connect(&path).is_ok());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let metrics =
            exchange(UnixStream::connect(&path).unwrap(), "GET /metrics HTTP/1.0\r\n\r\n");
        assert!(metrics.contains("\nfoldback_agent_age_seconds "), "{metrics}");

        // A second agent takes neither from the first.
        let other = directory.0.join("other.sock").to_str().unwrap().parse().unwrap();
        let refused =
            agent_command(&other, &[("FOLDBACK_PORT", "338")]).args(["--metrics", at]).output();
        let refused = refused.unwrap();
        let told = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{told}");
        assert!(told.contains(&format!("serving metrics at {at}: ")), "{told}");
        let named = [("FOLDBACK_PORT", "338"), ("FOLDBACK_METRICS", "0.0.0.0:9337")];
        let refused = agent_command(&other, &named).output().unwrap();
        let told = String::from_utf8_lossy(&refused.stderr);
        let why =
            "FOLDBACK_METRICS=0.0.0.0:9337: a loopback address such as 127.0.0.1:9337, or a path";
        assert!(told.contains(why), "{told}");
        let elsewhere = agent_command(&other, &[]).args(["--metrics", "0.0.0.0:9337"]).output();
        assert_eq!(elsewhere.unwrap().status.code(), Some(2));

        agent.stop();
        assert!(!path.exists());
    });
}

#[test]
fn prometheus_scrapes_the_metrics() {
    let there = |program: &str| {
        let version = Command::new(program).arg("--version").stdout(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    };
    if !there("prometheus") || !there("promtool") {
        let told =
            "agent: there is no Prometheus (scripts/setup.sh metrics), so its test is skipped";
        let _ = writeln!(std::io::stderr(), "{told}");
        return;
    }
    in_namespace(|| {
        let directory = Directory::new();
        let socket = directory.socket();
        let _agent = Agent::start_as(&socket, agent_command(&socket, &[]).args(["--metrics", AT]));
        let mut actor = Actor::start("hold", 1000, &socket, "7");
        actor.says();

        let mut check = Command::new("promtool");
        check.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut check = check.stderr(Stdio::piped()).spawn().expect("promtool starts");
        let answer = get(AT, "/metrics");
        let (_, metrics) = answer.split_once("\r\n\r\n").expect("a head and a body");
        check.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
        let checked = check.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "{told}");

        let config = directory.0.join("prometheus.yml");
        let jobs = format!("[{{job_name: foldback, static_configs: [{{targets: ['{AT}']}}]}}]");
        let text = format!("global: {{scrape_interval: 1s}}\nscrape_configs: {jobs}\n");
        fs::write(&config, text).unwrap();
        let storage = directory.0.join("data");
        let at = "127.0.0.1:9390";
        let child = command("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", storage.display()))
            .arg(format!("--web.listen-address={at}"))
            .stderr(Stdio::null())
            .spawn();
        let _prometheus = Killed(child.expect("Prometheus starts"));
        eventually("Prometheus serves", || TcpStream::connect(at).is_ok());
        let query = "/api/v1/query?query=foldback_groups%7Buid%3D%221000%22%7D";
        eventually("Prometheus has scraped a group", || {
            let answer = get(at, query);
            answer.contains("\"instance\":\"127.0.0.1:9337\"") && answer.contains(",\"1\"]")
        });
    });
}
