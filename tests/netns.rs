//! Three hosts, as network namespaces behind a bridge, with foldback's own agent, client and
//! protocol in each, on real sockets: a job without an MPI. Needs root.

#[path = "common/random.rs"]
mod random;
#[path = "bpf/reference.rs"]
mod reference;
#[path = "netns/world.rs"]
mod world;

use std::fs;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use foldback::agent::probe::has_tcx;
use foldback::agent::{Client, Embedded, GroupSpec, Hook, HookChoice, Options, Tc};
use foldback::bindings as b;
use foldback::leaf::arithmetic::{Arithmetic, Element, Operator};
use foldback::wire::cells::{Cells, Mapped};
use foldback::wire::socket::SocketPool;
use foldback::wire::{Algorithm, Identity, Kind, Seal, Secret, Transfer, Wire};
use random::Rng;
use reference::{element_bytes, elements, fold_all};
use world::{Bridge, Meeting, PATIENCE, address, ip, run_hosts, tc};

const HOSTS: u8 = 3;
const TRANSFERS: u64 = 200;
const JUMBO: [u32; HOSTS as usize] = [9000; HOSTS as usize];
/// The least that a job can ask for.
const WINDOW: u32 = 256;
const TOKEN: u64 = 0x00f0_1dba_c000_0001;
const SECRET: Secret = Secret::new([1, 2]);

/// A transfer that all hosts run.
#[derive(Clone, Copy, Debug)]
struct Plan {
    kind: Kind,
    bytes: usize,
}

impl Plan {
    /// Op and type of elements, by their numbers.
    fn codes(&self) -> (u8, u8) {
        self.kind.arithmetic().map_or((0, 0), |of| (of.op as u8, of.element as u8))
    }
}

fn plan(number: u64) -> Plan {
    let mut rng = Rng(number);
    let root = rng.below(HOSTS.into()) as u8;
    let element = Element::INTEGERS[rng.below(8) as usize];
    let size = element_bytes(element as u8);
    let arithmetic = Arithmetic { element, op: Operator::ALL[rng.below(10) as usize] };
    let long = number.is_multiple_of(50);
    // Mostly a chunk or less; the long ones take most of a window.
    let bytes = match rng.below(40) {
        _ if long => 256 << 10,
        0..5 => rng.below(16 << 10) as usize,
        5..20 => rng.below(u64::from(b::FB_CHUNK_BYTES) + 64) as usize,
        _ => rng.below(64) as usize,
    };
    let fold = Plan { kind: Kind::FoldToAll(arithmetic), bytes: bytes / size * size };
    match if long { number / 50 } else { rng.below(8) } {
        0 | 3 | 4 => fold,
        1 | 5 => Plan { kind: Kind::FoldToRoot(root, arithmetic), ..fold },
        2 | 6 => Plan { kind: Kind::Broadcast(root), bytes },
        _ => Plan { kind: Kind::Barrier, bytes: 0 },
    }
}

/// A host's contribution to a transfer.
fn contribution(number: u64, plan: &Plan, host: u8) -> Vec<u8> {
    elements(&mut Rng(number << 8 | u64::from(host)), plan.codes().1, plan.bytes)
}

/// The host's right result; `None`: nothing.
fn expected(number: u64, plan: &Plan, host: u8) -> Option<Vec<u8>> {
    match plan.kind {
        Kind::Broadcast(root) => Some(contribution(number, plan, root)),
        Kind::FoldToRoot(root, _) if root != host => None,
        _ if plan.bytes == 0 => Some(Vec::new()),
        _ => {
            let all: Vec<_> = (0..HOSTS).map(|host| contribution(number, plan, host)).collect();
            let (op, element) = plan.codes();
            Some(fold_all(&all, op, element))
        }
    }
}

/// Polls until it is done.
fn wait(what: &str, meeting: &Meeting, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "no end: {what}");
        assert!(!meeting.broken(), "another host failed; here: {what}");
        std::thread::yield_now();
    }
}

/// Attachments of this host, by iproute2's account: the qdisc of the old way, XDP.
fn attached() -> (bool, bool) {
    let clsact = tc("qdisc show dev eth0").contains("clsact");
    let link = ip("-o link show dev eth0");
    (clsact, link.contains("xdp"))
}

/// Programs, maps and links that this process holds.
fn held() -> Vec<String> {
    fs::read_dir("/proc/self/fd")
        .expect("proc is mounted")
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .map(|target| target.to_string_lossy().into_owned())
        .filter(|target| target.starts_with("anon_inode:b")) // bpf-prog, bpf-map, bpf_link, btf
        .collect()
}

/// The means of the hosts, and their visible effects.
#[derive(Clone, Debug)]
struct Setting {
    options: Options,
    hooks: &'static [Hook],
    tc: Tc,
    by: Algorithm,
    /// Each host's MAC address is another now and then.
    moving: bool,
    /// Of each host's link.
    mtus: [u32; HOSTS as usize],
    /// The link is in a bridge of its host's, which has the address. A bridge has no XDP of its own.
    bridged: bool,
}

/// The most payload of a frame that fits all links.
fn chunk_bytes(mtus: &[u32]) -> u16 {
    let is_jumbo = mtus.iter().all(|mtu| *mtu == 9000);
    (if is_jumbo { b::FB_JUMBO_BYTES } else { b::FB_CHUNK_BYTES }) as u16
}

/// Gives this host another MAC address, which its neighbours hear of by a gratuitous ARP, and lets
/// nothing come to what it had before.
fn move_away(me: u8, bridge: &Bridge, number: u64) {
    fs::write("/proc/sys/net/ipv4/conf/all/arp_notify", "1").expect("it can be set");
    bridge.forget(me);
    ip(&format!("link set eth0 address 02:00:00:00:{me:02x}:{:02x}", number % 256));
}

fn host(me: u8, meeting: &Meeting, bridge: &Bridge, setting: &Setting) {
    let Setting { options, hooks, tc, by, moving, mtus, .. } = setting.clone();
    let agent = Embedded::start(options.clone()).expect("the agent starts");
    let client = Client::connect(&agent.address()).expect("it answers");
    let members: Vec<Ipv4Addr> = (0..HOSTS).map(address).collect();
    let here = client.interface(address(me), WINDOW).expect("an interface");
    assert_eq!(here.max_chunk_bytes, chunk_bytes(&[here.mtu]));
    let chunk_bytes = chunk_bytes(&mtus);
    let spec = GroupSpec {
        token: TOKEN,
        secret: Some(SECRET),
        self_index: me,
        members: members.clone(),
        window: WINDOW,
        chunk_bytes,
        multicast: true,
    };
    let group = client.create_group(&spec).expect("a group");
    assert!(hooks.contains(&group.hook), "{:?}", group.hook);
    assert_eq!(client.status().expect("status").interfaces[0].tc, tc);
    assert_eq!(attached(), (tc == Tc::Clsact, group.hook != Hook::TcIngress));
    assert_eq!(group.cell_bytes, 64 + u32::from(here.max_chunk_bytes), "cells are the host's");
    let cells = Cells::new(Mapped::new(&group.cells, WINDOW, group.cell_bytes).expect("cells"));
    let sockets = SocketPool::default().sockets(&members, me.into(), group.port).expect("sockets");
    let seal = Seal::new(Some(SECRET));
    let identity =
        Identity { token: TOKEN, seal, members: HOSTS, me, chunk_bytes, multicast: false };
    let mut wire = Wire::new(cells, sockets, identity);

    // Every host has its programs before the first HELLO, and has heard all before the first
    // transfer.
    meeting.meet();
    let mut again = Instant::now();
    wait("HELLO", meeting, || {
        if Instant::now() >= again {
            wire.hello();
            again = Instant::now() + Duration::from_millis(100);
        }
        wire.heard_all()
    });
    meeting.meet();

    for number in 0..TRANSFERS {
        let plan = plan(number);
        if moving && number % 20 == 5 * u64::from(me) {
            move_away(me, bridge, number);
        }
        let data = match plan.kind {
            Kind::Broadcast(root) if root != me => vec![0xee; plan.bytes],
            _ => contribution(number, &plan, me),
        };
        let transfer = Transfer::new(plan.kind, plan.bytes).by(by);
        wire.submit(transfer, data);
        let mut over = None;
        wait(&format!("{number}: {plan:?}"), meeting, || {
            wire.poll(Instant::now);
            over = wire.take_over().map(|over| over.buffers);
            over.is_some()
        });
        if let Some(want) = expected(number, &plan, me) {
            assert!(over.unwrap() == want, "wrong at host {me}, number {number}: {plan:?}");
        }
    }
    wait("farewell", meeting, || wire.farewell(Instant::now));
    let counted = client.counters(group.slot).expect("counters");
    check_counters(&counted, by, group.hook);

    meeting.meet();
    client.destroy_group(group.slot).expect("it was there");
    wait("the last group takes the programs along", meeting, || attached() == (false, false));
    drop((wire, group, client, agent));
    meeting.meet();
    assert_eq!(held(), [""; 0], "nothing is left in the kernel");
    meeting.meet();
}

/// The kernel did the work, and had nothing to complain of.
fn check_counters(counted: &b::fb_counters, by: Algorithm, hook: Hook) {
    // By shards, the kernel folds nothing but what is empty: barriers and syncs. Along a ring, what ends here is a
    // part.
    let few = matches!(by, Algorithm::Shards | Algorithm::Ring);
    // There are fewer long chunks, and this host aggregates a third of the shared ones.
    let least = if few { 1 } else { TRANSFERS / 10 };
    assert!(counted.chunks_completed >= least, "{counted:?}");
    let once = counted.chunks_completed * u64::from(HOSTS);
    match by {
        Algorithm::Star | Algorithm::Shards => {
            assert_eq!(counted.contributions_folded, once, "each once: {counted:?}")
        }
        // A result that was asked for may have ended a fold that was under way here.
        Algorithm::Direct => assert!(counted.contributions_folded >= once, "{counted:?}"),
        Algorithm::Ring => assert!(counted.passed_on > TRANSFERS / 6, "{counted:?}"),
    }
    assert!(counted.fan_outs > 0 && counted.deposited > TRANSFERS / 6, "{counted:?}");
    // Super-frames come whole from a bridge, and XDP has no frames for them.
    let malformed = if hook == Hook::XdpGeneric { 0 } else { counted.drop_malformed };
    let dropped = malformed
        + counted.drop_mismatch
        + counted.drop_stranger
        + counted.drop_uid
        + counted.drop_no_mac;
    assert_eq!(dropped, 0, "{counted:?}");
}

fn run(setting: Setting) {
    // One at a time: six hosts that poll would only be in each other's way.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    run_hosts(&setting.mtus.clone(), setting.bridged, move |me, meeting, bridge| {
        host(me, meeting, bridge, &setting)
    });
}

fn usual_tc() -> Tc {
    if has_tcx() { Tc::Tcx } else { Tc::Clsact }
}

/// TC alone, or XDP in front of it.
fn by(hook: HookChoice, by: Algorithm) -> Setting {
    let hooks: &[Hook] = match hook {
        HookChoice::Tc => &[Hook::TcIngress],
        _ => &[Hook::XdpNative, Hook::XdpGeneric],
    };
    let options = Options { hook, ..Options::default() };
    let mtus = [1500; HOSTS as usize];
    Setting { options, hooks, tc: usual_tc(), by, moving: false, mtus, bridged: false }
}

#[test]
fn hosts_fold_by_tc() {
    run(by(HookChoice::Tc, Algorithm::Star));
}

#[test]
fn hosts_fold_by_xdp() {
    run(by(HookChoice::Xdp, Algorithm::Star));
}

#[test]
fn hosts_fold_by_tc_attached_the_old_way() {
    let setting = by(HookChoice::Tc, Algorithm::Star);
    let options = Options { force_clsact: true, ..setting.options };
    run(Setting { options, tc: Tc::Clsact, ..setting });
}

/// From Linux 6.9 on, packets that generic XDP has copied come to TC without their Ethernet header.
#[test]
fn hosts_fold_by_generic_xdp() {
    let setting = by(HookChoice::Xdp, Algorithm::Star);
    run(Setting { hooks: &[Hook::XdpGeneric], bridged: true, ..setting });
}

#[test]
fn hosts_fold_by_generic_xdp_attached_the_old_way() {
    let setting = by(HookChoice::Xdp, Algorithm::Direct);
    let options = Options { force_clsact: true, ..setting.options };
    let hooks = &[Hook::XdpGeneric];
    run(Setting { options, hooks, tc: Tc::Clsact, bridged: true, ..setting });
}

#[test]
fn hosts_fold_directly_by_tc() {
    run(by(HookChoice::Tc, Algorithm::Direct));
}

#[test]
fn hosts_fold_directly_by_xdp() {
    run(by(HookChoice::Xdp, Algorithm::Direct));
}

#[test]
fn hosts_fold_along_a_ring_by_tc() {
    run(by(HookChoice::Tc, Algorithm::Ring));
}

#[test]
fn hosts_fold_along_a_ring_by_xdp() {
    run(by(HookChoice::Xdp, Algorithm::Ring));
}

/// Long messages leave as super-frames, which arrive whole: between namespaces nothing cuts them up.
#[test]
fn hosts_fold_by_shards_by_tc() {
    run(by(HookChoice::Tc, Algorithm::Shards));
}

/// In front of XDP they are cut up.
#[test]
fn hosts_fold_by_shards_by_xdp() {
    run(by(HookChoice::Xdp, Algorithm::Shards));
}

/// Jumbo frames, which carry long chunks.
#[test]
fn hosts_fold_long_chunks_by_tc() {
    run(Setting { mtus: JUMBO, ..by(HookChoice::Tc, Algorithm::Star) });
}

#[test]
fn hosts_fold_long_chunks_directly_by_xdp() {
    run(Setting { mtus: JUMBO, ..by(HookChoice::Xdp, Algorithm::Direct) });
}

#[test]
fn hosts_fold_long_chunks_by_shards_by_tc() {
    run(Setting { mtus: JUMBO, ..by(HookChoice::Tc, Algorithm::Shards) });
}

#[test]
fn hosts_fold_long_chunks_by_shards_by_xdp() {
    run(Setting { mtus: JUMBO, ..by(HookChoice::Xdp, Algorithm::Shards) });
}

/// If one has the usual MTU, all have its chunks, in whatever cells they have.
#[test]
fn hosts_of_unlike_mtus_fold_by_tc() {
    run(Setting { mtus: [9000, 1500, 9000], ..by(HookChoice::Tc, Algorithm::Star) });
}

#[test]
fn hosts_of_unlike_mtus_fold_by_shards_by_xdp() {
    run(Setting { mtus: [1500, 9000, 9000], ..by(HookChoice::Xdp, Algorithm::Shards) });
}

/// A bond fails over, a virtual machine moves.
#[test]
fn hosts_fold_while_their_mac_addresses_change() {
    run(Setting { moving: true, ..by(HookChoice::Tc, Algorithm::Star) });
}

#[test]
fn hosts_fold_directly_while_their_mac_addresses_change() {
    run(Setting { moving: true, ..by(HookChoice::Xdp, Algorithm::Direct) });
}

#[test]
fn hosts_fold_by_shards_while_their_mac_addresses_change() {
    run(Setting { moving: true, ..by(HookChoice::Tc, Algorithm::Shards) });
}
