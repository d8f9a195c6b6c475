//! The agent and its clients, in network namespaces of their own. Needs root.

#[path = "agent/attaching.rs"]
mod attaching;
#[path = "agent/beside.rs"]
mod beside;
mod common;
#[path = "common/enemy.rs"]
mod enemy;
#[path = "agent/foreign.rs"]
mod foreign;
#[path = "agent/metrics.rs"]
mod metrics;
#[path = "agent/peer.rs"]
mod peer;
#[path = "common/random.rs"]
mod random;
#[path = "agent/world.rs"]
mod world;

use std::fs;
use std::io::{IoSliceMut, Read};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::unique_path;
use foldback::agent::echo::{ECHO_BYTES, Echo, EchoKind};
use foldback::agent::probe::has_tcx;
use foldback::agent::{
    Client, Embedded, ErrorKind, GroupSpec, Hook, HookChoice, Limits, Options, SocketAddress, Tc,
    Versions,
};
use foldback::bindings::{FB_KIND_HELLO, FB_UDP_PORT, FB_WIRE_MAGIC, FB_WIRE_VERSION};
use foldback::wire::table::{MappedTable, TABLE_BYTES, Table};
use foreign::{
    Place, Verdict, map_exists, map_id, maps_of, program_exists, program_name, tcx_programs,
    touch_cells,
};
use nix::sys::socket::{
    AddressFamily, MsgFlags, RecvMsg, SockFlag, SockType, UnixAddr, connect, recv, recvmsg, send,
    socket,
};
use random::Rng;
use world::{
    Actor, Agent, Directory, HERE, PATIENCE, THERE, V0, agent_command, eventually, in_namespace,
    own_run, run, say, spec, with_tcx,
};

/// Not a test: the parts of the tests' other processes.
#[test]
fn role() {
    let Ok(role) = std::env::var("FOLDBACK_TEST_ROLE") else { return };
    let socket: SocketAddress = std::env::var("FOLDBACK_TEST_SOCKET").unwrap().parse().unwrap();
    let argument = std::env::var("FOLDBACK_TEST_ARGUMENT").unwrap();
    // Has the port of frames, by whatever way there is, until told to end.
    if role == "bind" {
        let bound = enemy::bind_port(argument.parse().unwrap());
        say(if bound.is_some() { "bound" } else { "refused" });
        let _ = std::io::stdin().read(&mut [0]);
        return;
    }
    let client = match Client::connect(&socket) {
        Ok(client) => client,
        Err(error) => return say(&format!("refused {:?}", error.kind())),
    };
    match role.as_str() {
        // Has a group until told to end.
        "hold" => {
            let group = client.create_group(&spec(argument.parse().unwrap())).unwrap();
            touch_cells(group.cells.as_fd(), 64);
            client.counters(group.slot).unwrap();
            say(&group.slot.to_string());
            let _ = std::io::stdin().read(&mut [0]);
        }
        // Tries to get at another user's.
        "intrude" => {
            let slot = argument.parse().unwrap();
            let destroyed = client.destroy_group(slot).map_err(|error| error.kind());
            let read = client.counters(slot).map(drop).map_err(|error| error.kind());
            let listed = client.groups().unwrap().len();
            say(&format!("{destroyed:?} {read:?} {listed}"));
        }
        other => panic!("no role {other}"),
    }
}

fn embedded(options: Options) -> (Embedded, Client) {
    let agent = Embedded::start(options).unwrap();
    let client = Client::connect(&agent.address()).unwrap();
    (agent, client)
}

fn best_tc() -> Tc {
    if has_tcx() { Tc::Tcx } else { Tc::Clsact }
}

fn clsact() -> Options {
    Options { force_clsact: true, ..Options::default() }
}

fn with_hook(hook: HookChoice) -> Options {
    Options { hook, ..Options::default() }
}

/// A HELLO of one member to the other: the one frame that needs no cell.
fn hello(token: u64, source: u8) -> [u8; 64] {
    let mut frame = [0_u8; 64];
    frame[0..4].copy_from_slice(&FB_WIRE_MAGIC.to_ne_bytes());
    frame[4] = FB_WIRE_VERSION as u8;
    frame[5] = FB_KIND_HELLO as u8;
    frame[8..16].copy_from_slice(&token.to_ne_bytes());
    frame[16..24].copy_from_slice(&1_u64.to_ne_bytes());
    (frame[32], frame[33]) = (source, 1 - source);
    frame
}

/// Sends one of member 0, from here.
fn send_hello(token: u64) {
    let socket = UdpSocket::bind((HERE, 0)).unwrap();
    socket.send_to(&hello(token, 0), (THERE, FB_UDP_PORT as u16)).unwrap();
}

/// How XDP is attached to an interface, in the words of ip-link(8).
fn xdp_on(interface: &str) -> Option<String> {
    let words = run(&format!("ip -o link show {interface}"));
    words.split_whitespace().find(|word| word.starts_with("xdp")).map(Into::into)
}

/// The XDP program of `v0`.
fn xdp_program() -> Option<u32> {
    let words = run("ip -o link show v0");
    let (_, words) = words.split_once("prog/xdp id ")?;
    words.split_whitespace().next()?.parse().ok()
}

#[test]
fn a_group_is_made_counted_and_destroyed() {
    in_namespace(|| {
        let (_agent, client) = embedded(Options::default());
        assert!(client.welcome().embedded);
        let group = client.create_group(&spec(1)).unwrap();
        assert_eq!((group.interface.as_str(), group.port), ("v0", FB_UDP_PORT as u16));
        assert_eq!(group.hook, Hook::TcIngress, "auto takes TC on a veth");
        touch_cells(group.cells.as_fd(), 64);

        let status = client.status().unwrap();
        assert_eq!((status.groups, status.interfaces[0].tc), (1, best_tc()));
        assert_eq!(group.fold, status.fold);
        assert_eq!(tc_names(false), ["fb_tc_ingress"]);
        assert_eq!(tc_names(true), ["fb_tc_egress"]);

        assert_eq!(client.counters(group.slot).unwrap().frames_out, 0);
        send_hello(1);
        assert_eq!(client.counters(group.slot).unwrap().frames_out, 1);
        send_hello(77);
        assert_eq!(client.status().unwrap().host_counters.no_group, 1);

        let listed = client.groups().unwrap();
        assert_eq!((listed.len(), listed[0].counters.frames_out), (1, 1));
        assert_eq!(listed[0].members, [HERE, THERE]);

        client.destroy_group(group.slot).unwrap();
        assert_eq!(client.destroy_group(group.slot).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(client.counters(group.slot).unwrap_err().kind(), ErrorKind::NotFound);
        eventually("the last group takes the programs along", || programs_of_v0().is_empty());
    });
}

#[test]
fn a_slot_starts_from_zero_whoever_had_it_before() {
    in_namespace(|| {
        let limits = Limits { groups: 1, ..Limits::default() };
        let (_agent, client) = embedded(Options { limits, ..Options::default() });
        let first = client.create_group(&spec(1)).unwrap();
        assert_eq!(client.create_group(&spec(2)).unwrap_err().kind(), ErrorKind::Limit);
        send_hello(1);
        assert_eq!(client.counters(first.slot).unwrap().frames_out, 1);
        client.destroy_group(first.slot).unwrap();
        let second = client.create_group(&spec(2)).unwrap();
        assert_eq!(second.slot, first.slot);
        assert_eq!(client.counters(second.slot).unwrap().frames_out, 0);
        touch_cells(second.cells.as_fd(), 64);
    });
}

#[test]
fn a_token_is_one_group_only() {
    in_namespace(|| {
        let (_agent, client) = embedded(Options::default());
        let first = client.create_group(&spec(1)).unwrap();
        assert_eq!(client.create_group(&spec(1)).unwrap_err().kind(), ErrorKind::Invalid);
        send_hello(1);
        assert_eq!(client.counters(first.slot).unwrap().frames_out, 1, "the first one works on");
        client.destroy_group(first.slot).unwrap();
        client.create_group(&spec(1)).unwrap();
    });
}

#[test]
fn groups_of_a_window_of_any_size_fit_up_to_the_users_limit() {
    in_namespace(|| {
        let limits = Limits { cell_bytes_per_user: 8 << 20, ..Limits::default() };
        let (_agent, client) = embedded(Options { limits, ..Options::default() });
        for window in [1, 256, 4096] {
            let group = client.create_group(&GroupSpec { window, ..spec(u64::from(window)) });
            let group = group.unwrap();
            touch_cells(group.cells.as_fd(), window as usize);
            client.destroy_group(group.slot).unwrap();
        }
        let large = |token| GroupSpec { window: 4096, ..spec(token) };
        let held = client.create_group(&large(1)).unwrap();
        assert_eq!(client.create_group(&large(2)).unwrap_err().kind(), ErrorKind::Limit);
        // Destroyed, but its memory is still held.
        client.destroy_group(held.slot).unwrap();
        assert_eq!(client.create_group(&large(3)).unwrap_err().kind(), ErrorKind::Limit);
        drop(held);
        eventually("the kernel frees the cells", || client.create_group(&large(4)).is_ok());
    });
}

#[test]
fn a_group_has_one_table_which_counts_as_memory() {
    in_namespace(|| {
        // Of a table, and of the cells of two groups, but not of two tables.
        let limits =
            Limits { cell_bytes_per_user: (3 * TABLE_BYTES / 2) as u64, ..Limits::default() };
        let (_agent, client) = embedded(Options { limits, ..Options::default() });
        let [first, second] = [1, 2].map(|token| client.create_group(&spec(token)).unwrap());
        let of = |slot| client.create_table(slot).map_err(|error| error.kind());
        assert_eq!(of(77).unwrap_err(), ErrorKind::NotFound);
        let table = of(first.slot).unwrap();
        assert_eq!(MappedTable::new(&table).map(|table| Table::new(table).epoch()).unwrap(), 0);
        assert_eq!(of(first.slot).unwrap_err(), ErrorKind::Invalid);
        assert_eq!(of(second.slot).unwrap_err(), ErrorKind::Limit);
        let map = map_id(table.as_fd());
        client.destroy_group(first.slot).unwrap();
        assert_eq!(of(second.slot).unwrap_err(), ErrorKind::Limit, "somebody holds the table");
        drop(table);
        eventually("the kernel frees the table", || !map_exists(map));
        of(second.slot).unwrap();
    });
}

/// Makes and destroys groups at an agent that has so many slots, of which one user may have `most`.
fn make_and_destroy(groups: u32, most: usize) {
    in_namespace(move || {
        let limits = Limits { groups, ..Limits::default() };
        let (_agent, client) = embedded(Options { limits, ..Options::default() });
        let (mut held, mut maps) = (Vec::new(), Vec::new());
        let mut rng = Rng(groups.into());
        let counted = |slot| client.counters(slot).unwrap().frames_out;
        for token in 1..=120 {
            let window = [1, 64, 256][rng.below(3) as usize];
            let group = client.create_group(&GroupSpec { window, ..spec(token) }).unwrap();
            assert!(group.slot < groups);
            touch_cells(group.cells.as_fd(), window as usize);
            maps.push(map_id(group.cells.as_fd()));
            assert_eq!(counted(group.slot), 0, "nobody's who had the slot before");
            held.push((token, group.slot));
            if held.len() == most {
                let refused = client.create_group(&spec(1000)).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::Limit);
            }
            for (token, slot) in &held {
                let before = counted(*slot);
                send_hello(*token);
                assert_eq!(counted(*slot), before + 1);
            }
            let left = rng.below(most as u64) as usize;
            while held.len() > left {
                let (_, slot) = held.swap_remove(rng.below(held.len() as u64) as usize);
                client.destroy_group(slot).unwrap();
            }
        }
        assert_eq!(client.status().unwrap().host_counters.no_group, 0);
        held.iter().for_each(|(_, slot)| client.destroy_group(*slot).unwrap());
        drop(client);
        let left = || maps.iter().filter(|map| map_exists(**map)).count();
        eventually("all cells are gone", || left() == 0);
    });
}

#[test]
fn groups_come_and_go_in_two_slots() {
    make_and_destroy(2, 1);
}

#[test]
fn groups_come_and_go_two_at_a_time_in_three_slots() {
    make_and_destroy(3, 2);
}

/// Cells are taken out of the kernel many at a time.
#[test]
fn groups_that_come_and_go_do_not_pile_up() {
    in_namespace(|| {
        let (_agent, client) = embedded(Options::default());
        let kept = client.create_group(&spec(1000)).unwrap();
        let mut maps = Vec::new();
        for token in 1..=100 {
            let group = client.create_group(&spec(token)).unwrap();
            maps.push(map_id(group.cells.as_fd()));
            client.destroy_group(group.slot).unwrap();
        }
        let left = || maps.iter().filter(|map| map_exists(**map)).count();
        eventually("most cells are gone", || left() <= 16);
        // All of them with the last group.
        client.destroy_group(kept.slot).unwrap();
        drop(client);
        eventually("all cells are gone", || left() == 0);
    });
}

#[test]
fn only_a_local_address_is_a_member_and_nothing_else_is_attached_to() {
    in_namespace(|| {
        let (_agent, client) = embedded(Options::default());
        let stranger = GroupSpec { self_index: 1, ..spec(1) };
        assert_eq!(client.create_group(&stranger).unwrap_err().kind(), ErrorKind::NotLocal);
        assert!(client.status().unwrap().interfaces.is_empty());
        assert!(tc_names(false).is_empty());

        run("ip address add 10.98.0.1/24 dev v1");
        let members = vec![Ipv4Addr::new(10, 98, 0, 1), Ipv4Addr::new(10, 98, 0, 2)];
        let group = client.create_group(&GroupSpec { members, ..spec(1) }).unwrap();
        assert_eq!(group.interface, "v1");
        assert!(tc_names(false).is_empty(), "v0 has nothing to do with it");
    });
}

#[test]
fn a_chunk_fits_the_interface() {
    in_namespace(|| {
        run("ip link set v0 mtu 1400");
        let (_agent, client) = embedded(Options::default());
        assert_eq!(client.interface(HERE, 256).unwrap().max_chunk_bytes, 1308);
        assert_eq!(client.create_group(&spec(1)).unwrap_err().kind(), ErrorKind::Invalid);
        client.create_group(&GroupSpec { chunk_bytes: 1308, ..spec(1) }).unwrap();
    });
}

#[test]
fn another_version_is_refused() {
    in_namespace(|| {
        let (agent, _client) = embedded(Options::default());
        let newer = Versions { interface: Versions::CURRENT.interface + 1, ..Versions::CURRENT };
        let error = Client::connect_as(&agent.address(), newer).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Version);
        assert!(error.to_string().contains("another version"), "{error}");
    });
}

#[test]
fn an_embedded_agent_serves_its_own_user_alone() {
    in_namespace(|| {
        let (agent, _client) = embedded(Options::default());
        let mut other = Actor::start("hold", 65534, &agent.address(), "1");
        assert_eq!(other.says(), "refused Denied");
    });
}

#[test]
fn a_user_without_privileges_has_groups_of_his_own() {
    in_namespace(|| {
        let directory = Directory::new();
        let socket = directory.socket();
        let _agent = Agent::start(&socket, &[]);
        let mut owner = Actor::start("hold", 65534, &socket, "1");
        let slot = owner.says();

        let mut intruder = Actor::start("intrude", 65533, &socket, &slot);
        assert_eq!(intruder.says(), "Err(NotFound) Err(NotFound) 0");
        let mut sibling = Actor::start("intrude", 65534, &socket, &slot);
        assert_eq!(sibling.says(), "Err(NotFound) Ok(()) 1", "reads, but only the owner destroys");

        let root = Client::connect(&socket).unwrap();
        let groups = root.groups().unwrap();
        assert_eq!((groups.len(), groups[0].uid), (1, 65534), "root sees it");
        let error = root.destroy_group(groups[0].slot).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "but it belongs to its connection");
        // The programs know the owner: root's socket may not send for the group.
        send_hello(1);
        assert_eq!(root.counters(groups[0].slot).unwrap().drop_uid, 1);
    });
}

/// There root and all others of the host are one: the agent is root's where nobody else could be.
#[test]
fn in_a_user_namespace_the_agent_of_the_host_is_told_by_its_place() {
    in_namespace(|| {
        own_run();
        let first_words = |socket: &SocketAddress| {
            let actor = &mut Actor::start_in_user_namespace(65533, socket);
            actor.says()
        };
        let directory = Directory::new();
        let elsewhere = Agent::start(&directory.socket(), &[]);
        assert_eq!(first_words(&directory.socket()), "refused Denied");
        elsewhere.stop();
        let socket = "/run/foldback/agent.sock".parse().unwrap();
        let agent = Agent::start(&socket, &[]);
        let mut owner = Actor::start_in_user_namespace(65533, &socket);
        owner.says().parse::<u32>().expect("a slot");
        let groups = Client::connect(&socket).unwrap().groups().unwrap();
        assert_eq!((groups.len(), groups[0].uid), (1, 65533));
        fs::set_permissions("/run/foldback", fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(first_words(&socket), "refused Denied");
        agent.stop();
    });
}

/// Whether another user can have a port.
fn may_bind(directory: &Directory, port: u16) -> bool {
    let mut other = Actor::start("bind", 65533, &directory.socket(), &port.to_string());
    other.says() == "bound"
}

#[test]
fn nobody_else_can_have_the_port_of_frames_whether_there_is_an_agent_or_none() {
    in_namespace(|| {
        let directory = Directory::new();
        let socket = directory.socket();
        let may_bind = || may_bind(&directory, FB_UDP_PORT as u16);
        assert!(!may_bind());
        let agent = Agent::start(&socket, &[]);
        assert!(!may_bind());
        let _client = Client::connect(&socket).unwrap();
        agent.kill();
        assert!(!may_bind(), "programs are gone, but frames still come");
    });
}

#[test]
fn the_agents_of_a_host_hold_a_port_that_is_not_privileged() {
    in_namespace(|| {
        let directory = Directory::new();
        let socket = directory.socket();
        let port = [("FOLDBACK_PORT", "17717")];
        let agent = Agent::start(&socket, &port);
        let second =
            Agent::start(&SocketAddress::Abstract(unique_path("a").display().to_string()), &port);
        agent.stop();
        assert!(!may_bind(&directory, 17717));
        second.stop();
        assert!(may_bind(&directory, 17717));
    });
}

/// By one, its holder would let others have the port beside the agent.
#[test]
fn nobody_gets_a_descriptor_of_the_agents_port() {
    in_namespace(|| {
        let directory = Directory::new();
        let agent = Agent::start(&directory.socket(), &[]);
        let SocketAddress::Path(path) = directory.socket() else { panic!("a path") };
        let ours =
            socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
        connect(ours.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        let versions = serde_json::to_string(&Versions::CURRENT).unwrap();
        let hello = format!("{{\"versions\":{versions}}}");
        send(ours.as_raw_fd(), hello.as_bytes(), MsgFlags::empty()).unwrap();
        let mut reply = [0; 4096];
        let mut control = nix::cmsg_space!([std::os::fd::RawFd; 8]);
        let mut parts = [IoSliceMut::new(&mut reply)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let came: RecvMsg<'_, '_, UnixAddr> =
            recvmsg(ours.as_raw_fd(), &mut parts, Some(&mut control), flags).unwrap();
        assert_eq!(came.cmsgs().unwrap().count(), 0);
        let bytes = came.bytes;
        let said = String::from_utf8_lossy(&reply[..bytes]);
        assert!(said.starts_with("{\"welcome\":"), "{said}");
        agent.stop();
    });
}

#[test]
fn the_cpu_time_of_each_group_is_counted_if_that_is_wanted() {
    for cpu_time in [false, true] {
        for hook in [HookChoice::Tc, HookChoice::Xdp] {
            in_namespace(move || {
                let (_agent, client) = embedded(Options { cpu_time, hook, ..Options::default() });
                let groups = [1, 2].map(|token| client.create_group(&spec(token)).unwrap());
                send_hello(1);
                let times = groups.map(|group| client.counters(group.slot).unwrap().nanoseconds);
                assert_eq!(times.map(|time| time > 0), [cpu_time, false], "{times:?}");
            });
        }
    }
}

/// A socket of this host that is connected to the agent's port.
fn socket_to_the_port() -> UdpSocket {
    let socket = UdpSocket::bind((HERE, 0)).unwrap();
    socket.connect((HERE, FB_UDP_PORT as u16)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn receive_echo(socket: &UdpSocket) -> Echo {
    let mut datagram = [0; 9000];
    let bytes = socket.recv(&mut datagram).unwrap();
    assert_eq!(bytes, ECHO_BYTES, "no longer than the shortest request");
    Echo::decode(&datagram[..bytes]).expect("an echo")
}

#[test]
fn echoes_are_answered_and_nothing_else() {
    in_namespace(|| {
        let directory = Directory::new();
        let agents = [
            Agent::start(&directory.socket(), &[]),
            Agent::start(&SocketAddress::Abstract(unique_path("a").display().to_string()), &[]),
        ];
        let socket = socket_to_the_port();
        let request = Echo { tell: true, ..Echo::new(EchoKind::Request, 7, 1) };
        let frame = Echo { nonce: 8, ..request.clone() }.encode();
        let frame = [&FB_WIRE_MAGIC.to_ne_bytes(), &frame[4..]].concat();
        let reply = Echo::new(EchoKind::Reply, 8, 1).encode();
        let short = &Echo::new(EchoKind::Request, 8, 1).encode()[..ECHO_BYTES - 1];
        for nothing in [&frame[..], &reply, short, b"", b"FBE1"] {
            socket.send(nothing).unwrap();
        }
        socket.send(&[&request.encode()[..], &[0; 1000]].concat()).unwrap();
        // The first that is answered is the last that was sent.
        let expected = Echo {
            kind: EchoKind::Reply,
            bytes: 1000 + ECHO_BYTES as u32,
            mtu: 1500,
            ..request.clone()
        };
        assert_eq!(receive_echo(&socket), expected);
        let announcement = Echo::new(EchoKind::Announcement, 7, 1).encode();
        socket.send(&announcement).unwrap();
        socket.send(&request.encode()).unwrap();
        assert!(receive_echo(&socket).heard);
        drop(agents);
    });
}

#[test]
fn an_agent_that_is_not_to_answer_echoes_does_not() {
    in_namespace(|| {
        let directory = Directory::new();
        let _agent = Agent::start(&directory.socket(), &[("FOLDBACK_ECHO", "off")]);
        let socket = socket_to_the_port();
        socket.send(&Echo::new(EchoKind::Request, 7, 1).encode()).unwrap();
        // The last column of a socket counts what was dropped there (proc_net_tcp.rst of Linux).
        let port = format!("00000000:{FB_UDP_PORT:04X}");
        eventually("it is dropped", || {
            let sockets = fs::read_to_string("/proc/thread-self/net/udp").unwrap();
            let agents = sockets.lines().find(|line| line.contains(&port)).expect("the agent's");
            agents.split_whitespace().last() == Some("1")
        });
        socket.set_nonblocking(true).unwrap();
        assert!(socket.recv(&mut [0; 64]).is_err());
    });
}

#[test]
fn an_agent_serves_its_host_while_others_ask_much() {
    in_namespace(|| {
        let directory = Directory::new();
        let agent = Agent::start(&directory.socket(), &[]);
        let socket = socket_to_the_port();
        let request = Echo { tell: true, ..Echo::new(EchoKind::Request, 7, 1) }.encode();
        for turn in 1..=5 {
            for _ in 0..5000 {
                socket.send(&request).unwrap();
            }
            let client = Client::connect(&directory.socket()).unwrap();
            client.create_group(&spec(turn)).unwrap();
        }
        agent.stop();
    });
}

#[test]
fn an_agent_does_not_serve_where_another_user_has_the_port() {
    in_namespace(|| {
        let directory = Directory::new();
        let mut other = Actor::start("bind", 65533, &directory.socket(), "17717");
        assert_eq!(other.says(), "bound");
        let port = [("FOLDBACK_PORT", "17717")];
        let output = agent_command(&directory.socket(), &port).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("UDP port 17717 is no privileged one"), "{told}");
        assert!(told.contains("UDP port 17717 is taken by another"), "{told}");
        drop(other);
        Agent::start(&directory.socket(), &port).stop();
    });
}

#[test]
fn a_killed_rank_leaves_no_group() {
    in_namespace(|| {
        let directory = Directory::new();
        let _agent = Agent::start(&directory.socket(), &[]);
        let root = Client::connect(&directory.socket()).unwrap();
        let mut victim = Actor::start("hold", 65534, &directory.socket(), "1");
        victim.says();
        victim.kill();
        eventually("the group is gone", || root.status().unwrap().groups == 0);
        root.create_group(&spec(1)).expect("the token is free again");
    });
}

#[test]
fn hostile_clients_keep_nobody_waiting() {
    in_namespace(|| {
        let limits = Limits { connections_per_user: 20, ..Limits::default() };
        let (agent, client) = embedded(Options { limits, ..Options::default() });
        client.create_group(&spec(1)).unwrap();
        let SocketAddress::Abstract(name) = agent.address() else { panic!("abstract") };
        let address = UnixAddr::new_abstract(name.as_bytes()).unwrap();
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let raw = || {
            let fd = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap();
            connect(fd.as_raw_fd(), &address).unwrap();
            fd
        };
        let tell = |fd: &std::os::fd::OwnedFd, text: &[u8]| {
            send(fd.as_raw_fd(), text, MsgFlags::MSG_NOSIGNAL)
        };
        let hello = br#"{"versions":{"protocol":1,"interface":1,"wire":1}}"#;
        // Says nothing; says nonsense; says too much; asks and never listens.
        let _silent = raw();
        let nonsense = raw();
        tell(&nonsense, b"\x00\xff{{{").unwrap();
        let endless = raw();
        tell(&endless, &[b' '; 20_000]).unwrap();
        let deaf = raw();
        tell(&deaf, hello).unwrap();
        let mut asked = 0;
        let end = Instant::now() + world::PATIENCE;
        while asked < 100_000 && Instant::now() < end && tell(&deaf, br#""status""#).is_ok() {
            asked += 1;
        }
        assert!(asked < 100_000, "its own queue is full before the agent's memory is");
        client.status().expect("it is answered all the same, or the client gives up");

        let mut answer = [0; 512];
        eventually("nonsense is told so and hung up on", || {
            matches!(recv(nonsense.as_raw_fd(), &mut answer, MsgFlags::empty()), Ok(0))
        });
        // More of them than one user may have: the others are hung up on.
        let many: Vec<_> = (0..40).map(|_| raw()).collect();
        eventually("those above the limit are hung up on", || {
            let gone = |fd: &&std::os::fd::OwnedFd| {
                recv(fd.as_raw_fd(), &mut [0; 8], MsgFlags::empty()).is_ok()
            };
            many.iter().filter(gone).count() >= 20
        });
        client.status().expect("the others do not notice");
    });
}

#[test]
fn one_user_leaves_room_for_the_next() {
    in_namespace(|| {
        let limits = Limits { connections: 12, groups: 8, ..Limits::default() };
        let options = Options { limits, ..Options::default() };
        let agent = Embedded::start(options).unwrap();
        let mut mine = Vec::new();
        let refused = loop {
            match Client::connect(&agent.address()) {
                Ok(client) => mine.push(client),
                Err(error) => break error,
            }
        };
        assert_eq!((refused.kind(), mine.len()), (ErrorKind::Limit, 6), "{refused}");
        let groups = (1..=8).map(|token| mine[0].create_group(&spec(token)));
        let made = groups.take_while(Result::is_ok).count();
        assert_eq!(made, 4);
    });
}

#[test]
fn a_connection_without_groups_does_not_stay_for_ever() {
    in_namespace(|| {
        let limits = Limits { idle: Duration::from_millis(300), ..Limits::default() };
        let agent = Embedded::start(Options { limits, ..Options::default() }).unwrap();
        // On a busy machine the connection may be gone before the group is made.
        let connect_and_make = || {
            let client = Client::connect(&agent.address())?;
            client.create_group(&spec(1)).map(|group| (client, group))
        };
        let mut made = None;
        eventually("a group is made", || {
            made = connect_and_make().ok();
            made.is_some()
        });
        let (client, group) = made.unwrap();
        // Silent as long as the one that goes.
        let SocketAddress::Abstract(name) = agent.address() else { panic!("abstract") };
        let silent = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::empty(), None);
        let silent = silent.unwrap();
        connect(silent.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes()).unwrap()).unwrap();
        let hello = serde_json::json!({ "versions": Versions::CURRENT }).to_string();
        send(silent.as_raw_fd(), hello.as_bytes(), MsgFlags::MSG_NOSIGNAL).unwrap();
        let mut packet = [0; 4096];
        assert!(recv(silent.as_raw_fd(), &mut packet, MsgFlags::empty()).unwrap() > 0, "welcome");
        assert_eq!(recv(silent.as_raw_fd(), &mut packet, MsgFlags::empty()), Ok(0), "the end");
        client.counters(group.slot).expect("whoever has a group is not sent away");
    });
}

#[test]
fn one_agent_serves_a_path() {
    in_namespace(|| {
        let directory = Directory::new();
        let socket = directory.socket();
        let path = directory.0.join("agent.sock");
        let first = Agent::start(&socket, &[]);
        let second = agent_command(&socket, &[]).output().unwrap();
        let told = String::from_utf8_lossy(&second.stderr).into_owned();
        assert!(!second.status.success());
        assert!(told.contains("serves here already") && told.lines().count() == 1, "{told}");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o666);

        first.kill();
        assert!(path.exists(), "a killed agent leaves its socket");
        assert_eq!(Client::connect(&socket).err().unwrap().kind(), ErrorKind::Unreachable);
        Agent::start(&socket, &[]).stop();
        assert!(!path.exists());

        fs::write(&path, "precious").unwrap();
        let refused = agent_command(&socket, &[]).output().unwrap();
        assert!(!refused.status.success());
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    });
}

#[test]
fn an_agent_that_drains_serves_its_groups_until_they_are_gone() {
    in_namespace(|| {
        let directory = Directory::new();
        let socket = directory.socket();
        let old = Agent::start_to_drain(&socket, "3600");
        let client = Client::connect(&socket).unwrap();
        let group = client.create_group(&spec(1)).unwrap();
        old.ask_to_stop();
        eventually("its address is free", || Client::connect(&socket).is_err());
        let new = Agent::start(&socket, &[]);

        // Asked for a group, it says to ask the next one; whoever has one is served.
        for refused in
            [client.create_group(&spec(2)).map(drop), client.interface(HERE, 256).map(drop)]
        {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Ending);
        }
        send_hello(1);
        assert_eq!(client.counters(group.slot).unwrap().frames_out, 1);

        let next = Client::connect(&socket).unwrap();
        let another = next.create_group(&spec(2)).unwrap();
        send_hello(2);
        assert_eq!(next.counters(another.slot).unwrap().frames_out, 1);
        assert_eq!(client.counters(group.slot).unwrap().frames_out, 1);

        client.destroy_group(group.slot).unwrap();
        old.stops();
        send_hello(2);
        assert_eq!(next.counters(another.slot).unwrap().frames_out, 2);
        new.stop();
    });
}

#[test]
fn an_agent_that_drains_ends_when_told_again_or_when_its_time_is_over() {
    in_namespace(|| {
        let directory = Directory::new();
        let socket = directory.socket();
        for (seconds, is_told_again) in [("3600", true), ("1", false)] {
            let agent = Agent::start_to_drain(&socket, seconds);
            let client = Client::connect(&socket).unwrap();
            let group = client.create_group(&spec(1)).unwrap();
            agent.ask_to_stop();
            if is_told_again {
                eventually("its address is free", || Client::connect(&socket).is_err());
                client.counters(group.slot).expect("it serves");
                agent.ask_to_stop();
            }
            agent.stops();
        }
        let refused = agent_command(&socket, &[]).args(["--drain", "3601"]).output().unwrap();
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && told.contains("3601"), "{told}");
    });
}

#[test]
fn the_agent_makes_its_directory_and_tells_systemd() {
    in_namespace(|| {
        let directory = Directory::new();
        let deep = directory.0.join("run/foldback/agent.sock");
        let notify = directory.0.join("notify");
        let listener = UnixDatagram::bind(&notify).unwrap();
        listener.set_read_timeout(Some(world::PATIENCE)).unwrap();
        let socket = SocketAddress::Path(deep.clone());
        let agent = Agent::start(
            &socket,
            &[("NOTIFY_SOCKET", notify.to_str().unwrap()), ("WATCHDOG_USEC", "100000")],
        );
        let told = || {
            let mut text = [0; 128];
            let length = listener.recv(&mut text).unwrap();
            String::from_utf8_lossy(&text[..length]).into_owned()
        };
        assert_eq!(told(), "READY=1\nSTATUS=Serving\n");
        for _ in 0..3 {
            assert_eq!(told(), "WATCHDOG=1\nSTATUS=Groups: 0\n");
        }
        let client = Client::connect(&socket).unwrap();
        let _group = client.create_group(&spec(1)).unwrap();
        eventually("it says that it has a group", || told() == "WATCHDOG=1\nSTATUS=Groups: 1\n");
        assert!(fs::metadata(&deep).unwrap().file_type().is_socket());
        let mode = fs::metadata(deep.parent().unwrap()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        // Or else it might wait for somebody to hear it.
        drop(listener);
        agent.stop();
    });
}

#[test]
fn status_and_doctor_report() {
    in_namespace(|| {
        let directory = Directory::new();
        let socket = directory.socket().to_string();
        let foldback = |arguments: &[&str]| {
            world::foldback()
                .args(arguments)
                .env("FOLDBACK_AGENT_SOCKET", &socket)
                .stdin(Stdio::null())
                .output()
                .unwrap()
        };
        let alone = foldback(&["status"]);
        assert!(!alone.status.success());
        assert!(String::from_utf8_lossy(&alone.stderr).contains("no agent at"));

        let _agent = Agent::start(&directory.socket(), &[]);
        let client = Client::connect(&directory.socket()).unwrap();
        let group = client.create_group(&spec(1)).unwrap();
        send_hello(1);
        let json = foldback(&["status", "--json"]).stdout;
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(json["groups"][0]["slot"], group.slot);
        assert_eq!(json["groups"][0]["counters"]["frames_out"], 1);
        assert_eq!(json["interfaces"][0]["name"], "v0");
        let text = String::from_utf8(foldback(&["status"]).stdout).unwrap();
        assert!(text.contains("v0: tc-ingress") && text.contains("frames_out 1"), "{text}");

        let doctor = String::from_utf8(foldback(&["doctor"]).stdout).unwrap();
        for line in ["ok  an agent answers", "takes the TC programs", "10.99.0.1 on v0"] {
            assert!(doctor.contains(line), "{line}:\n{doctor}");
        }
    });
}

#[test]
fn an_agent_of_root_reads_no_file_that_others_write_to() {
    in_namespace(|| {
        let directory = Directory::new();
        let (conf, socket) = (directory.0.join("conf"), directory.socket());
        let told = |mode: u32, owner: u32| {
            fs::set_permissions(&conf, fs::Permissions::from_mode(mode)).unwrap();
            std::os::unix::fs::chown(&conf, Some(owner), None).unwrap();
            let mut agent = world::foldback();
            let output = agent.arg("agent").env("FOLDBACK_CONF", &conf).output().unwrap();
            assert!(!output.status.success());
            String::from_utf8(output.stderr).unwrap()
        };
        fs::write(&conf, format!("FOLDBACK_AGENT_SOCKET = {socket}\nFOLDBACK_HOOK = up\n"))
            .unwrap();
        let path = conf.display();
        let line = format!("foldback: {path}: everybody may write to it: chmod o-w\n");
        assert_eq!(told(0o646, 0), line);
        let line = format!(
            "foldback: {path}: root reads no file that others may write to: chown root, chmod go-w\n"
        );
        assert_eq!([told(0o664, 0), told(0o644, 1000)], [line.clone(), line]);
        let line = format!("foldback: {path}:2: FOLDBACK_HOOK=up: auto, tc or xdp\n");
        assert_eq!(told(0o644, 0), line);

        // With nothing wrong, it serves where the file says, and the environment wins.
        let mut agent = world::foldback();
        let conf = conf.to_str().unwrap();
        let envs = [("FOLDBACK_CONF", conf), ("FOLDBACK_HOOK", "xdp")];
        let _agent = Agent::start_as(&socket, agent.arg("agent").envs(envs));
        assert!(Client::connect(&socket).is_ok());
    });
}

#[test]
fn doctor_says_what_is_set_and_where() {
    let directory = Directory::new();
    let conf = directory.0.join("conf");
    let doctor = || {
        let mut doctor = world::foldback();
        doctor.arg("doctor").env("FOLDBACK_CONF", &conf).env("FOLDBACK_SUM", "exact");
        String::from_utf8(doctor.output().unwrap().stdout).unwrap()
    };
    let path = conf.display();
    let missing = doctor();
    assert!(missing.contains(&format!("no  {path}: No such file")), "{missing}");
    fs::write(
        &conf,
        "FOLDBACK_NET = 10.0.0.0/8
        FOLDBACK_SUM = rank-order
        FOLDBACK_WINDOW = 7
        FOLDBACK_NETS = 10.0.0.0/8
        [program gmx*]
        FOLDBACK = off
        FOLDBACK_PORT = 0
        [user 0]
        FOLDBACK_REPORT = full",
    )
    .unwrap();
    let said = doctor();
    for line in [
        format!("ok  settings of this site: {path}\n"),
        format!("ok  FOLDBACK_NET=10.0.0.0/8 ({path}:1)\n"),
        "ok  FOLDBACK_SUM=exact (environment)\n".into(),
        format!("no  {path}:3: FOLDBACK_WINDOW=7: a power of two from 256 to 4096\n"),
        format!("--  {path}:4: FOLDBACK_NETS is no setting of foldback: is FOLDBACK_NET meant?\n"),
        format!("ok  FOLDBACK=off ({path}:6, for program gmx*)\n"),
        format!("no  {path}:7: FOLDBACK_PORT=0: a port from 1 to 65535\n"),
        format!("ok  FOLDBACK_REPORT=full ({path}:9)\n"),
    ] {
        assert!(said.contains(&line), "{line}{said}");
    }
    assert!(!said.contains("rank-order") && !said.contains("FOLDBACK_NETS="), "{said}");
    // An empty variable is the default.
    let mut doctor = world::foldback();
    doctor.arg("doctor").env("FOLDBACK_CONF", &conf).env("FOLDBACK_NET", "");
    let said = String::from_utf8(doctor.output().unwrap().stdout).unwrap();
    assert!(said.contains("FOLDBACK_SUM=rank-order") && !said.contains("FOLDBACK_NET="), "{said}");
    let none = world::foldback().arg("doctor").output().unwrap().stdout;
    let none = String::from_utf8(none).unwrap();
    assert!(none.starts_with("ok  no file of settings: FOLDBACK_CONF is empty\n"), "{none}");
}

/// Programs on a TC hook of `v0`, first to last: tcx comes before clsact.
fn tc_programs(egress: bool) -> Vec<u32> {
    let mut ids: Vec<u32> = tcx_programs(V0, egress).into_iter().map(|(id, _)| id).collect();
    let side = if egress { "egress" } else { "ingress" };
    let filters = run(&format!("tc filter show dev v0 {side}"));
    let mut words = filters.split_whitespace();
    while words.by_ref().any(|word| word == "id") {
        ids.extend(words.next().and_then(|id| id.parse::<u32>().ok()));
    }
    ids
}

fn programs_of_v0() -> Vec<u32> {
    [tc_programs(false), tc_programs(true)].concat()
}

fn tc_names(egress: bool) -> Vec<String> {
    tc_programs(egress).into_iter().map(program_name).collect()
}
