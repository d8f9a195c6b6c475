//! `foldback agent`.

use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::metrics::{Place, Server};
use crate::agent::{Daemon, HookChoice, Options, SocketAddress, default_address};
use crate::config::settings;

/// Serve the MPI ranks of this host: load the BPF programs, own their maps, admit groups.
///
/// Runs in the foreground until SIGTERM or SIGINT, and leaves nothing behind. It takes root, or
/// the capabilities CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON.
#[derive(clap::Args)]
pub struct Args {
    /// Hook that takes frames in: tc or xdp [default: $FOLDBACK_HOOK, or tc]
    #[arg(long)]
    hook: Option<HookChoice>,

    /// Socket to listen at: a path, or @NAME [default: $FOLDBACK_AGENT_SOCKET, or
    /// /run/foldback/agent.sock]
    #[arg(long)]
    socket: Option<SocketAddress>,

    /// UDP port of all frames, the same on all hosts [default: $FOLDBACK_PORT, or 337]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,

    /// After the signal, serve the present groups for so many seconds, while another agent may start and take
    /// the new ones. A second signal ends this one at once
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=3600))]
    drain: u16,

    /// How long the programs stay attached after the last group, so that the next job starts sooner
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(..=86400))]
    linger: u32,

    /// Serve metrics for Prometheus: at a loopback address such as 127.0.0.1:9337, or at the path of a socket that is
    /// root's [default: $FOLDBACK_METRICS, or nowhere]
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<Place>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    settings::warn();
    let mut options = Options::of_process()?;
    options.hook = args.hook.unwrap_or(options.hook);
    options.port = args.port.unwrap_or(options.port);
    options.tells_work = true;
    options.linger = Duration::from_secs(args.linger.into());
    let metrics = args.metrics.map_or_else(metrics_of_settings, |place| Ok(Some(place)))?;
    let address = args.socket.map_or_else(default_address, Ok)?;

    // Blocked before the socket appears: a signal from here on stops the agent in good order.
    let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
    signals.thread_block().context("blocking signals")?;
    let stop = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .context("waiting for signals")?;

    let mut daemon = Daemon::start(&address, options)?;
    log::info!("serving at {address}");
    let _metrics = metrics.map(|place| Server::start(&place, &address)).transpose()?;
    daemon.run(stop.as_fd())?;
    if args.drain > 0 {
        log::info!("draining for at most {} s", args.drain);
        // Or else it would be taken for the second one.
        stop.read_signal().context("reading the signal")?;
        daemon.drain(stop.as_fd(), Duration::from_secs(args.drain.into()))?;
    }
    log::info!("stopping");
    Ok(ExitCode::SUCCESS)
}

/// The place of the metrics that environment or file name, if any.
fn metrics_of_settings() -> anyhow::Result<Option<Place>> {
    const METRICS: &str = "FOLDBACK_METRICS";
    let Some(value) = settings::get(METRICS).map_err(anyhow::Error::msg)? else { return Ok(None) };
    let place =
        value.text.parse().map_err(|_| anyhow::Error::msg(settings::wrong(METRICS, &value)))?;
    Ok(Some(place))
}
