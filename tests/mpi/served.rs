//! Labs with an agent on each host, and troubles of agents and their programs.

use std::net::Ipv4Addr;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use foldback::agent::{Client, SocketAddress};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, accept, bind, listen, recv,
    send, socket,
};
use nix::unistd::{Pid, close};

use crate::harness::{FOLDBACK, Lab, succeed, wait};

/// Hosts of most tests.
pub const HOSTS: u32 = 3;
pub const NOBODY: &str = "65534";
/// The window of groups of few hosts where nobody asks for another.
const WINDOW: u32 = 1024;
const SOON: Duration = Duration::from_secs(600);

/// A lab with an agent on each host.
pub struct Served {
    pub lab: Lab,
    pub agents: Vec<Child>,
    hosts: u32,
    /// Options of agents that are started.
    options: &'static [&'static str],
}

impl Served {
    pub fn new(hosts: u32) -> Self {
        Self::with(hosts, &[])
    }

    pub fn with(hosts: u32, options: &'static [&'static str]) -> Self {
        let mut served = Self { lab: Lab::new(hosts), agents: Vec::new(), hosts, options };
        served.agents = (0..hosts).map(|host| served.start_agent(host)).collect();
        for host in 0..hosts {
            served.await_agent(host);
        }
        served
    }

    pub fn start_agent(&self, host: u32) -> Child {
        let mut agent = self.lab.on(host);
        agent.args([FOLDBACK, "agent"]).args(self.options).stdin(Stdio::null());
        agent.spawn().expect("the agent starts")
    }

    /// All hosts.
    pub fn all(&self) -> Range<usize> {
        0..self.hosts as usize
    }

    /// The socket of a host's agent: hosts of a lab share the file system.
    pub fn address(&self, host: u32) -> SocketAddress {
        let mut asked = self.lab.on(host);
        let (path, _) = succeed(asked.args(["sh", "-c", "echo $FOLDBACK_AGENT_SOCKET"]), SOON);
        path.trim().parse().expect("an address")
    }

    /// Addresses of the hosts.
    pub fn addresses(&self) -> Vec<Ipv4Addr> {
        (0..self.hosts).map(|host| Ipv4Addr::new(10, 77, 0, host as u8 + 1)).collect()
    }

    /// Answers at the address of a host's agent, which has ended, as agents of other versions do.
    pub fn take_place_by_another_version(&self, host: u32) {
        let SocketAddress::Path(path) = self.address(host) else { panic!("a path") };
        let path = path.as_path();
        let _ = std::fs::remove_file(path);
        let kind = (AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC);
        let listener = socket(kind.0, kind.1, kind.2, None).expect("a socket");
        bind(listener.as_raw_fd(), &UnixAddr::new(path).expect("a path")).expect("nobody has it");
        let mode = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(path, mode).expect("it is there");
        listen(&listener, Backlog::MAXCONN).expect("it may listen");
        // Until the test's process ends.
        std::thread::spawn(move || {
            while let Ok(client) = accept(listener.as_raw_fd()) {
                let _ = recv(client, &mut [0; 8192], MsgFlags::empty());
                let message = "the client has another version of foldback";
                let error = serde_json::json!({"error": {"kind": "version", "message": message}});
                let _ = send(client, error.to_string().as_bytes(), MsgFlags::empty());
                let _ = close(client);
            }
        });
    }

    /// Starts agents anew where they end, and has them attach their programs, until `over` says so.
    pub fn restart_agents(&mut self, over: impl Fn() -> bool) {
        let mut is_new = vec![false; self.agents.len()];
        while !over() {
            for host in 0..self.hosts {
                let at = host as usize;
                if self.agents[at].try_wait().expect("the agent can be waited for").is_some() {
                    self.agents[at] = self.start_agent(host);
                    is_new[at] = true;
                }
                is_new[at] = is_new[at] && self.attach_on(host).is_err();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A command that sends a signal to the agents of these hosts, and waits until they stand still or have ended.
    /// On a busy machine all calls of a test may be over before.
    pub fn signal(&self, signal: &str, hosts: Range<usize>) -> String {
        let ids = self.ids(hosts);
        let is_over = "! test -e /proc/$agent || grep -q '^State:.[TZ]' /proc/$agent/status";
        let wait = format!("until {is_over}; do sleep 0.01; done");
        format!("kill -{signal} {ids}; for agent in {ids}; do {wait}; done")
    }

    /// A command that has the agents of these hosts go on.
    pub fn go_on(&self, hosts: Range<usize>) -> String {
        format!("kill -CONT {}", self.ids(hosts))
    }

    fn ids(&self, hosts: Range<usize>) -> String {
        let ids: Vec<_> = self.agents[hosts].iter().map(|agent| agent.id().to_string()).collect();
        ids.join(" ")
    }

    /// A command that detaches what the agents of these hosts have attached as links.
    pub fn detach(&self, hosts: Range<usize>) -> String {
        let files: Vec<_> = self.agents[hosts]
            .iter()
            .map(|agent| format!("/proc/{}/fdinfo/*", agent.id()))
            .collect();
        let links = format!("sed -n 's/^link_id:[[:space:]]*//p' {}", files.join(" "));
        format!(
            "links=$({links}); test -n \"$links\" && for link in $links; do bpftool link detach id $link; done"
        )
    }

    /// A command that takes all groups out of a map, by its name, of the programs of these hosts.
    pub fn empty(&self, map: &str, hosts: Range<usize>) -> String {
        let of_agent = |agent: &Child| {
            format!(
                "for map in $(sed -n 's/^map_id:[[:space:]]*//p' /proc/{}/fdinfo/*); do \
                   bpftool map show id $map | grep -q 'name {map} ' || continue; \
                   for key in $(bpftool -j map dump id $map | grep -o '\"key\":\\[[^]]*' | tr -d '\" ' | cut -d[ -f2); do \
                     bpftool map delete id $map key $(echo $key | tr , ' ') && gone=1; \
                   done; \
                 done",
                agent.id()
            )
        };
        let commands: Vec<_> = self.agents[hosts].iter().map(of_agent).collect();
        format!("{}; test -n \"$gone\"", commands.join("; "))
    }

    /// Has all agents attach their programs, and make cells for the next group.
    pub fn attach(&self) {
        (0..self.hosts).for_each(|host| self.attach_on(host).expect("the agent answers"));
    }

    fn attach_on(&self, host: u32) -> foldback::agent::Result<()> {
        let address = self.addresses()[host as usize];
        Client::connect(&self.address(host))?.interface(address, WINDOW).map(drop)
    }

    fn await_agent(&self, host: u32) {
        self.await_status(host, |_| true);
    }

    /// Whether the agent of a host answers.
    pub fn answers(&self, host: u32) -> bool {
        let output = self.lab.on(host).args([FOLDBACK, "status"]).output();
        output.expect("foldback status starts").status.success()
    }

    /// Agents destroy the groups of ranks that are gone.
    pub fn await_no_groups(&self) {
        for host in 0..self.hosts {
            self.await_status(host, |said| !said.lines().any(|line| line.starts_with("group ")));
        }
    }

    /// Waits until the agent of a host answers, and says what is wanted.
    pub fn await_status(&self, host: u32, is_right: impl Fn(&str) -> bool) {
        let end = Instant::now() + SOON;
        loop {
            let output = self.lab.on(host).args([FOLDBACK, "status"]).output();
            let output = output.expect("foldback status starts");
            let said = String::from_utf8_lossy(&output.stdout);
            if output.status.success() && is_right(&said) {
                return;
            }
            assert!(Instant::now() < end, "the agent of h{host} says {said}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn end_agents(&mut self) {
        for agent in &mut self.agents {
            // One that has ended already is not there to be told.
            if agent.try_wait().is_ok_and(|status| status.is_none()) {
                for signal in [Signal::SIGTERM, Signal::SIGCONT] {
                    let _ = kill(Pid::from_raw(agent.id() as i32), signal);
                }
            }
            let _ = wait(agent, Duration::from_secs(10));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end_agents();
    }
}
