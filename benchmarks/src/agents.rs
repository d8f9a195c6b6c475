//! Agents on the hosts of a lab, for ranks without privilege.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use foldback::lab::registry::Lab;
use foldback::places;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::arena::Arena;

/// How long an agent may take to start.
const START: Duration = Duration::from_secs(60);
/// How long an agent may take to end. Later the lab's removal ends it.
const END: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

/// Agents that end with the value.
pub struct Agents(Vec<Child>);

impl Agents {
    /// Starts one on each of the lab's first hosts, and waits until they listen.
    ///
    /// # Errors
    /// One does not start.
    pub fn start(arena: &Arena, hosts: u64) -> Result<Self> {
        let own = places::command()?;
        let names: Vec<_> = (0..usize::try_from(hosts)?).map(Lab::host).collect();
        let mut agents = Self(Vec::new());
        for name in &names {
            let mut command = Command::new(&own);
            command
                .args(["lab", "exec", "--name", &arena.name, "--die-with-parent", name, "--"])
                .arg(&own)
                .arg("agent")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                // Ctrl-C is for the job.
                .process_group(0);
            agents.0.push(command.spawn().context("cannot start an agent")?);
        }
        let deadline = Instant::now() + START;
        for (agent, name) in agents.0.iter_mut().zip(&names) {
            let socket = Lab::agent_socket(&arena.name, name);
            while !socket.exists() {
                if let Some(status) = agent.try_wait().context("cannot wait for an agent")? {
                    bail!("the agent of {name} has ended: {status}");
                }
                ensure!(Instant::now() < deadline, "the agent of {name} does not start");
                sleep(LOOK);
            }
        }
        Ok(agents)
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        for agent in &mut self.0 {
            // An agent that has ended already gets no signal.
            if agent.try_wait().is_ok_and(|status| status.is_none())
                && let Ok(id) = i32::try_from(agent.id())
            {
                let _ = kill(Pid::from_raw(id), Signal::SIGTERM);
            }
        }
        let deadline = Instant::now() + END;
        for agent in &mut self.0 {
            while agent.try_wait().is_ok_and(|status| status.is_none()) {
                if Instant::now() > deadline {
                    let _ = agent.kill();
                }
                sleep(LOOK);
            }
        }
    }
}
