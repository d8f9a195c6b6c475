//! Building the network: hosts, links, the fabric between them.

use std::fmt::Write;
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, ensure};
use nix::mount::{MsFlags, mount};

use super::registry::{self, Lab};
use super::settings::{Delay, Faults, Rate, Settings};
use super::{enter, faults, launch, netns, tool};
use crate::bindings::LF_FIRST_PORT;
use crate::progress::Progress;

/// Makes a lab. If that fails, nothing of it is left.
pub fn build(name: &str, hosts: usize, settings: &Settings) -> Result<Lab> {
    let mut lab = registry::create(name, hosts, settings)?;
    log::info!("making the lab {name}: {hosts} hosts, {settings}");
    match assemble(&mut lab) {
        Ok(()) => Ok(lab),
        Err(error) => {
            if let Err(second) = registry::remove(name) {
                log::warn!("cannot remove the unfinished lab: {second:#}");
            }
            Err(error)
        }
    }
}

fn assemble(lab: &mut Lab) -> Result<()> {
    registry::make_public_dir(&lab.dir().join("tmp"))?;
    enter::make_staging_dir(lab)?;
    launch::write_wrapper(lab)?;
    fs::write(lab.dir().join("hosts"), hosts_file(lab)).context("cannot write the hosts file")?;

    let progress = Progress::new("lab", 2 * lab.hosts as u64);
    for host in lab.host_names() {
        progress.step(format_args!("making {host}"), || prepare_host(lab, &host))?;
    }
    netns::create(&lab.fabric_pin(), || tool::run("ip", &["-batch", "-"], &fabric_batch(lab)))?;
    for (index, host) in lab.host_names().enumerate() {
        let configure = || netns::inside(&lab.host_pin(&host), || configure_host(lab, index));
        progress
            .step(format_args!("connecting {host}"), configure)
            .with_context(|| format!("host {host}"))?;
    }
    netns::inside(&lab.fabric_pin(), wait_for_ports)?;
    drop(progress);
    if lab.settings.rate.is_some() || lab.settings.delay.is_some() {
        shape(lab)?;
    }
    if lab.settings.faults.any() {
        let faults = lab.settings.faults.clone();
        befall(lab, &(0..lab.hosts).collect::<Vec<_>>(), &faults)?;
    }
    lab.ready = true;
    lab.save()?;
    log::info!("the lab {} is ready", lab.name);
    Ok(())
}

/// Changes the speed of all links of a lab that is up, whatever runs in it; `None`: as fast as they go.
pub fn set_rate(name: &str, rate: Option<Rate>) -> Result<()> {
    let mut lab = registry::open(name)?;
    lab.settings.rate = rate;
    shape(&lab)?;
    lab.save()
}

/// Changes the time that frames take between hosts of a lab that is up, whatever runs in it; `None`: no more than they
/// need.
pub fn set_delay(name: &str, delay: Option<Delay>) -> Result<()> {
    let mut lab = registry::open(name)?;
    lab.settings.delay = delay;
    shape(&lab)?;
    lab.save()
}

/// Changes the faults of the frames to these hosts of a lab that is up, whatever runs in it. No name means all
/// hosts.
pub fn set_faults(name: &str, hosts: &[String], faults: &Faults) -> Result<()> {
    let mut lab = registry::open(name)?;
    let number = |host: &String| {
        let number = lab.host_names().position(|name| name == *host);
        number.with_context(|| format!("the lab {name} has no host {host}"))
    };
    let mut numbers = hosts.iter().map(number).collect::<Result<Vec<_>>>()?;
    if numbers.is_empty() {
        numbers = (0..lab.hosts).collect();
    }
    befall(&mut lab, &numbers, faults)?;
    lab.save()
}

fn befall(lab: &mut Lab, hosts: &[usize], faults: &Faults) -> Result<()> {
    let maps = match lab.fault_maps {
        Some(maps) => maps,
        None => {
            for host in lab.host_names() {
                netns::inside(&lab.host_pin(&host), send_as_on_a_wire)
                    .with_context(|| format!("host {host}"))?;
            }
            netns::inside(&lab.fabric_pin(), || faults::attach(lab))?
        }
    };
    lab.fault_maps = Some(maps);
    for host in hosts {
        lab.faults[*host] = faults.clone();
    }
    faults::set(maps, hosts.iter().copied(), faults)
}

/// The kernel must hand frames to the fault program as on a wire: at most an MTU long, with checksums.
/// Otherwise the receiver would not notice a flipped bit.
fn send_as_on_a_wire() -> Result<()> {
    let off = ["tx", "tso", "gso", "tx-udp-segmentation"];
    let args = off.iter().flat_map(|feature| [*feature, "off"]);
    let args: Vec<&str> = ["-K", "eth0"].into_iter().chain(args).collect();
    tool::run("ethtool", &args, "")
}

/// Sets the speed and the delay of all links, whatever they were.
fn shape(lab: &Lab) -> Result<()> {
    let Settings { rate, delay, .. } = &lab.settings;
    let (rate, delay) = (rate.as_ref(), delay.as_ref());
    let batch: String =
        (0..lab.hosts).map(|index| shaper(&format!("p{index}"), rate, delay, PORT_QUEUE)).collect();
    netns::inside(&lab.fabric_pin(), || {
        ensure!(
            delay.is_none() || has_netem(),
            "the kernel cannot delay frames: it has no netem; load the module sch_netem, or take a kernel with \
             CONFIG_NET_SCH_NETEM"
        );
        tool::run("tc", &["-batch", "-"], &batch)
    })?;
    for host in lab.host_names() {
        let batch = shaper("eth0", rate, None, HOST_QUEUE);
        netns::inside(&lab.host_pin(&host), || tool::run("tc", &["-batch", "-"], &batch))
            .with_context(|| format!("host {host}"))?;
    }
    Ok(())
}

/// Whether the kernel knows netem. Asked on the loopback interface of the calling thread's namespace, which carries
/// nothing.
fn has_netem() -> bool {
    tool::run("tc", &["qdisc", "replace", "dev", "lo", "root", "netem"], "").is_ok()
}

/// Makes the host's directory and network namespace, its own BPF file system and its own /dev/shm.
/// Shared ones would have clashing names, or tell programs that they share memory.
fn prepare_host(lab: &Lab, host: &str) -> Result<()> {
    let dir = lab.host_dir(host);
    let bpf = dir.join("bpf");
    fs::create_dir(&dir)
        .and_then(|()| fs::create_dir(&bpf))
        .with_context(|| format!("cannot create {}", dir.display()))?;
    registry::make_public_dir(&dir.join("shm"))?;
    let none: Option<&str> = None;
    mount(Some("bpf"), &bpf, Some("bpf"), MsFlags::empty(), none)
        .with_context(|| format!("cannot mount a BPF file system on {}", bpf.display()))?;
    netns::create(&lab.host_pin(host), || Ok(()))
}

/// Commands for `ip -batch`, run in the fabric's namespace.
fn fabric_batch(lab: &Lab) -> String {
    let mut batch = String::from("link set lo up\n");
    (0..lab.networks()).for_each(|network| network_batch(lab, network, &mut batch));
    batch
}

/// Commands for one network: a bridge, with a port for each host.
fn network_batch(lab: &Lab, network: usize, batch: &mut String) {
    let mtu = lab.settings.mtu;
    // No spanning tree: ports would stay silent for 30 s. No multicast snooping: it sends queries.
    // The highest MTU from the start, or the bridge follows its smallest port.
    let _ = writeln!(
        batch,
        "link add br{network} address {} mtu {mtu} type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
        mac(0xff, 0xff - network)
    );
    for (index, host) in lab.host_names().enumerate() {
        // Faults go by the index of a port of the first network.
        let (port, number) = match network {
            0 => (format!("p{index}"), format!("index {}", LF_FIRST_PORT as usize + index)),
            _ => (format!("p{index}n{network}"), String::new()),
        };
        let _ = writeln!(
            batch,
            "link add {port} {number} address {} mtu {mtu} type veth \
             peer name eth{network} address {} mtu {mtu} netns {}",
            mac(2 * network + 1, index),
            mac(2 * network, index),
            lab.host_pin(&host).display()
        );
        let _ = writeln!(batch, "link set {port} master br{network} up");
    }
    let _ = writeln!(batch, "link set br{network} up");
}

fn configure_host(lab: &Lab, index: usize) -> Result<()> {
    let mut batch = String::from("link set lo up\n");
    for network in 0..lab.networks() {
        let _ = writeln!(
            batch,
            "addr add {}/24 brd + dev eth{network}\nlink set eth{network} up",
            Lab::address(network, index)
        );
        // All network namespaces share the kernel's table of neighbours, which is too small for what 64
        // hosts may learn of each other; permanent entries are not limited.
        for other in (0..lab.hosts).filter(|other| *other != index) {
            let (address, mac) = (Lab::address(network, other), mac(2 * network, other));
            let _ =
                writeln!(batch, "neigh add {address} lladdr {mac} dev eth{network} nud permanent");
        }
    }
    tool::run("ip", &["-batch", "-"], &batch)
}

/// Waits until all ports of the switches forward. A port drops all frames until the kernel has noticed, some time
/// later, that its link is up.
fn wait_for_ports() -> Result<()> {
    let deadline = Instant::now() + PORTS_WITHIN;
    loop {
        let links = tool::output_of("ip", &["-br", "link"], "")?;
        let ports = links.lines().filter(|line| line.starts_with('p'));
        let down: Vec<_> =
            ports.filter(|line| line.split_whitespace().nth(1) != Some("UP")).collect();
        if down.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "links do not come up: {}", down.join("; "));
        thread::sleep(PORTS_AGAIN);
    }
}

/// The time that ports may take, and from one look at them to the next.
const PORTS_WITHIN: Duration = Duration::from_secs(30);
const PORTS_AGAIN: Duration = Duration::from_millis(2);

/// Bytes that wait before a host's link. Large: a sender is slowed down by its own socket buffers
/// and should not lose frames inside its own kernel.
const HOST_QUEUE: u64 = 16 << 20;
/// Bytes that wait in the fabric before a link, as in a switch with ample buffers.
const PORT_QUEUE: u64 = 4 << 20;

/// Frames that may be under way on a delayed link. Far more than the queues before it let through in a second.
const DELAYED: u32 = 1_000_000;

/// The commands for `tc -batch` that set a link's speed and delay, or take them away.
fn shaper(device: &str, rate: Option<&Rate>, delay: Option<&Delay>, queue: u64) -> String {
    // There may be none to delete.
    let none = format!("qdisc replace dev {device} root pfifo\nqdisc del dev {device} root\n");
    let tbf = |rate: &Rate| {
        // 1 ms at full speed, but at least one unsegmented 64 KiB packet.
        let burst = (rate.bits / 8 / 1000).max(70_000);
        format!("tbf rate {}bit burst {burst} limit {queue}", rate.bits)
    };
    match (rate, delay) {
        (None, None) => none,
        (Some(rate), None) => format!("qdisc replace dev {device} root {}\n", tbf(rate)),
        (rate, Some(delay)) => {
            let mut commands = format!(
                "{none}qdisc add dev {device} root handle 1: netem delay {}us limit {DELAYED}\n",
                delay.nanoseconds as f64 / 1e3
            );
            // Not the rate of netem, which knows no burst: a link has the same speed with a delay and without.
            if let Some(rate) = rate {
                let _ = writeln!(commands, "qdisc add dev {device} parent 1: {}", tbf(rate));
            }
            commands
        }
    }
}

/// Addresses that say where they belong, the same in every lab.
fn mac(kind: usize, index: usize) -> String {
    format!("02:fb:00:00:{kind:02x}:{index:02x}")
}

fn hosts_file(lab: &Lab) -> String {
    let mut text = String::from("127.0.0.1 localhost\n");
    for (index, host) in lab.host_names().enumerate() {
        let _ = writeln!(text, "{} {host}", Lab::address(0, index));
    }
    text
}
