//! The agent's programs on interfaces, beside other people's, and what remains of them.

use super::*;

#[test]
fn stopping_leaves_nothing() {
    for tc in ["auto", "clsact"] {
        in_namespace(move || {
            let directory = Directory::new();
            let agent = Agent::start(&directory.socket(), &[("FOLDBACK_TEST_TC", tc)]);
            let client = Client::connect(&directory.socket()).unwrap();
            let group = client.create_group(&spec(1)).unwrap();
            let programs = programs_of_v0();
            assert_eq!(programs.len(), 2, "{programs:?}");
            let mut maps = maps_of(&programs);
            maps.push(map_id(group.cells.as_fd()));
            agent.stop();
            drop((client, group));
            assert!(programs_of_v0().is_empty());
            assert!(!run("tc qdisc show dev v0").contains("clsact"));
            assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 0, "no file stays");
            for id in &programs {
                eventually("a program is gone", || !program_exists(*id));
            }
            for id in &maps {
                eventually("a map is gone", || !map_exists(*id));
            }
        });
    }
}

#[test]
fn dropping_an_embedded_agent_leaves_nothing() {
    for options in [Options::default(), clsact(), with_hook(HookChoice::Xdp)] {
        in_namespace(move || {
            let (agent, client) = embedded(options);
            let group = client.create_group(&spec(1)).unwrap();
            let programs = programs_of_v0();
            drop(agent);
            assert!(programs_of_v0().is_empty());
            assert_eq!(xdp_on("v0"), None);
            assert!(!run("tc qdisc show dev v0").contains("clsact"));
            assert_eq!(client.counters(group.slot).unwrap_err().kind(), ErrorKind::Connection);
            for id in programs {
                eventually("a program is gone", || !program_exists(id));
            }
        });
    }
}

/// An agent whose programs stay for so long after the last group.
fn lingering(options: Options, linger: Duration) -> (Embedded, Client) {
    embedded(Options { linger, ..options })
}

/// Longer than any test takes.
const FOR_LONG: Duration = Duration::from_secs(3600);

#[test]
fn programs_linger_for_the_next_group_and_cells_are_in_stock() {
    for options in [Options::default(), clsact(), with_hook(HookChoice::Xdp)] {
        in_namespace(move || {
            let (agent, client) = lingering(options, FOR_LONG);
            let first = client.create_group(&spec(1)).unwrap();
            let (programs, xdp) = (programs_of_v0(), xdp_on("v0"));
            client.destroy_group(first.slot).unwrap();
            let cells = map_id(first.cells.as_fd());
            drop(first);
            // The group's memory does not linger.
            eventually("the cells are gone", || !map_exists(cells));
            let status = client.status().unwrap();
            assert_eq!((status.groups, status.interfaces[0].groups), (0, 0));
            let second = client.create_group(&spec(2)).unwrap();
            assert_eq!((programs_of_v0(), xdp_on("v0")), (programs, xdp), "the same as before");
            let before = client.counters(second.slot).unwrap().frames_out;
            send_hello(2);
            assert_eq!((before, client.counters(second.slot).unwrap().frames_out), (0, 1));
            drop(agent);
            assert!(programs_of_v0().is_empty());
            assert_eq!(xdp_on("v0"), None);
        });
    }
}

/// A rank asks which interface a group would use. The answer comes when all that takes long is done.
#[test]
fn all_is_there_for_a_group_to_come() {
    in_namespace(|| {
        let (_agent, client) = embedded(Options::default());
        assert_eq!(client.interface(HERE, 48).unwrap_err().kind(), ErrorKind::Invalid);
        assert!(programs_of_v0().is_empty());
        client.interface(HERE, spec(1).window).unwrap();
        let programs = programs_of_v0();
        assert_eq!(programs.len(), 2);
        let status = client.status().unwrap();
        assert_eq!((status.groups, status.interfaces[0].groups), (0, 0));
        // Also where the programs go with the last group.
        std::thread::sleep(Duration::from_millis(50));
        let group = client.create_group(&spec(1)).unwrap();
        assert_eq!(programs_of_v0(), programs);
        client.destroy_group(group.slot).unwrap();
        eventually("the programs are gone", || programs_of_v0().is_empty());
    });
}

#[test]
fn programs_that_linger_go_when_their_time_is_over() {
    in_namespace(|| {
        let (_agent, client) = lingering(Options::default(), Duration::from_millis(100));
        for token in 1..=3 {
            let group = client.create_group(&spec(token)).unwrap();
            send_hello(token);
            assert_eq!(client.counters(group.slot).unwrap().frames_out, 1);
            assert_eq!(programs_of_v0().len(), 2, "as long as there is a group");
            client.destroy_group(group.slot).unwrap();
            eventually("the programs are gone", || programs_of_v0().is_empty());
        }
        assert!(client.status().unwrap().interfaces.is_empty());
    });
}

/// Any process that may attach programs may detach them; the next group finds out.
#[test]
fn programs_that_somebody_detached_are_attached_anew() {
    in_namespace(|| {
        let (_agent, client) = lingering(clsact(), FOR_LONG);
        let group = client.create_group(&spec(1)).unwrap();
        run("tc filter del dev v0 ingress");
        client.create_group(&spec(2)).unwrap();
        assert_eq!((tc_names(false).len(), tc_names(true).len()), (1, 1), "none of the old ones");
        run("tc qdisc del dev v0 clsact");
        client.create_group(&spec(3)).unwrap();
        assert_eq!((tc_names(false).len(), tc_names(true).len()), (1, 1));
        send_hello(1);
        assert_eq!(client.counters(group.slot).unwrap().frames_out, 1, "older groups gain by it");
    });
    with_tcx(|| {
        let (_agent, client) = lingering(with_hook(HookChoice::Xdp), FOR_LONG);
        client.create_group(&spec(1)).unwrap();
        let (programs, xdp) = (programs_of_v0(), xdp_program().expect("XDP is on"));
        for (token, gone) in [(2, [xdp].as_slice()), (3, &programs[..1]), (4, &programs)] {
            foreign::detach_links_of(gone);
            client.create_group(&spec(token)).unwrap();
            assert_eq!(programs_of_v0().len(), 2);
            assert!(xdp_on("v0").is_some());
        }
    });
}

/// Programs that linger are of one size of chunk. When the links call for another, they go.
#[test]
fn programs_that_linger_make_way_for_those_of_other_chunks() {
    in_namespace(|| {
        let (_agent, client) = lingering(Options::default(), FOR_LONG);
        let group = client.create_group(&spec(1)).unwrap();
        client.destroy_group(group.slot).unwrap();
        let usual = programs_of_v0();
        run("ip link set v0 mtu 9000");
        let most = client.interface(HERE, 256).unwrap().max_chunk_bytes;
        assert!(u32::from(most) > foldback::bindings::FB_CHUNK_BYTES);
        client.create_group(&GroupSpec { chunk_bytes: most, ..spec(2) }).unwrap();
        let jumbo = programs_of_v0();
        assert!(
            jumbo.len() == 2 && jumbo.iter().all(|id| !usual.contains(id)),
            "{usual:?} {jumbo:?}"
        );
    });
}

#[test]
fn an_embedded_agent_may_end_while_it_loads() {
    in_namespace(|| {
        let loading = Embedded::begin(Options::default()).unwrap();
        let address = loading.address();
        loading.end();
        let refused = || Client::connect(&address).err().map(|error| error.kind());
        eventually("nobody listens", || refused() == Some(ErrorKind::Connection));
        let loading = Embedded::begin(Options::default()).unwrap();
        let client = Client::connect(&loading.address()).expect("who comes early waits");
        assert!(loading.is_known());
        client.create_group(&spec(1)).unwrap();
        loading.end();
        eventually("all is detached", || programs_of_v0().is_empty());
    });
}

#[test]
fn what_a_killed_agent_leaves_goes_when_the_next_one_starts() {
    in_namespace(|| {
        let directory = Directory::new();
        let socket = directory.socket();
        let agent = Agent::start(&socket, &[("FOLDBACK_TEST_TC", "clsact")]);
        let client = Client::connect(&socket).unwrap();
        client.create_group(&spec(1)).unwrap();
        let left = programs_of_v0();
        agent.kill();
        assert_eq!(programs_of_v0(), left, "clsact filters outlive their agent");

        let next = Agent::start(&socket, &[]);
        assert!(programs_of_v0().is_empty(), "swept at the start, before any group");
        assert!(!run("tc qdisc show dev v0").contains("clsact"));
        next.stop();
    });
}

#[test]
fn a_living_agents_filters_are_not_swept() {
    in_namespace(|| {
        run("tc qdisc add dev v0 clsact");
        let (first, client) = embedded(clsact());
        client.create_group(&spec(1)).unwrap();
        let programs = programs_of_v0();
        let (second, _other) = embedded(clsact());
        assert_eq!(programs_of_v0(), programs);
        drop((first, second));
        assert!(run("tc qdisc show dev v0").contains("clsact"), "the qdisc was not ours");
    });
}

#[test]
fn the_last_of_two_agents_takes_the_qdisc_along() {
    in_namespace(|| {
        let (first, client) = embedded(clsact());
        client.create_group(&spec(1)).unwrap();
        let (second, other) = embedded(clsact());
        other.create_group(&spec(2)).unwrap();
        assert_eq!(programs_of_v0().len(), 4);
        drop(first);
        assert_eq!(programs_of_v0().len(), 2);
        drop(second);
        assert!(!run("tc qdisc show dev v0").contains("clsact"));
    });
}

#[test]
fn other_peoples_tc_programs_stay_and_ours_comes_first() {
    with_tcx(|| {
        let _foreign = foreign::tcx(V0, false, Place::Tail, Verdict::Next);
        let (agent, client) = embedded(Options::default());
        client.create_group(&spec(1)).unwrap();
        assert_eq!(tc_names(false), ["fb_tc_ingress", "foreign"]);
        drop(agent);
        assert_eq!(tc_names(false), ["foreign"]);
    });
}

#[test]
fn other_peoples_filters_stay() {
    in_namespace(|| {
        run("tc qdisc add dev v0 clsact
            tc filter add dev v0 ingress prio 5 protocol ip u32 match u32 0 0 flowid 1:1");
        let before = run("tc filter show dev v0 ingress");
        let (agent, client) = embedded(clsact());
        client.create_group(&spec(1)).unwrap();
        let during = run("tc filter show dev v0 ingress");
        let ours = during.find("fb_tc_ingress").expect("ours is there");
        assert!(ours < during.find("u32").unwrap(), "and comes first:\n{during}");
        drop(agent);
        assert_eq!(run("tc filter show dev v0 ingress"), before);
    });
}

#[test]
fn an_ingress_qdisc_is_not_mistaken_for_clsact() {
    in_namespace(|| {
        run("tc qdisc add dev v0 ingress");
        let (agent, client) = embedded(clsact());
        assert_eq!(client.create_group(&spec(1)).unwrap_err().kind(), ErrorKind::Hook);
        drop(agent);
        if has_tcx() {
            let (_agent, client) = embedded(Options::default());
            client.create_group(&spec(1)).expect("tcx does not mind");
        }
        assert!(run("tc qdisc show dev v0").contains("qdisc ingress"));
    });
}

#[test]
fn xdp_is_attached_when_asked_for() {
    in_namespace(|| {
        for mtu in [1500, 9000] {
            run(&format!("ip link set v1 mtu {mtu}\nip link set v0 mtu {mtu}"));
            let (_agent, client) = embedded(with_hook(HookChoice::Xdp));
            let group = client.create_group(&spec(1)).unwrap();
            assert_eq!(group.hook, Hook::XdpNative, "MTU {mtu}");
            assert_eq!(xdp_on("v0").as_deref(), Some("xdp"));
            assert_eq!(tc_names(false), ["fb_tc_ingress"], "TC is there as well");
            assert_eq!(tc_names(true), ["fb_tc_egress"]);
        }
    });
}

#[test]
fn xdp_is_generic_where_the_driver_has_none() {
    in_namespace(|| {
        run("ip link add br0 type bridge
            ip address add 10.97.0.1/24 dev br0
            ip link set br0 up");
        let (_agent, client) = embedded(with_hook(HookChoice::Xdp));
        let members = vec![Ipv4Addr::new(10, 97, 0, 1)];
        let group = client.create_group(&GroupSpec { members, ..spec(1) }).unwrap();
        assert_eq!(group.hook, Hook::XdpGeneric);
        assert_eq!(xdp_on("br0").as_deref(), Some("xdpgeneric"));
    });
}

#[test]
fn programs_are_for_the_links_that_are_there_once_no_group_is() {
    in_namespace(|| {
        let (_agent, client) = embedded(Options::default());
        let longest = || client.interface(HERE, 256).unwrap().max_chunk_bytes;
        let group = client.create_group(&spec(1)).unwrap();
        run("ip link set v0 mtu 9000");
        assert_eq!(longest(), 1408, "a group has cells for these");
        client.destroy_group(group.slot).unwrap();
        assert_eq!(longest(), 8896);
        let group = client.create_group(&GroupSpec { chunk_bytes: 8896, ..spec(2) }).unwrap();
        touch_cells(group.cells.as_fd(), 64);
        client.destroy_group(group.slot).unwrap();
        run("ip link set v0 mtu 1500");
        assert_eq!(longest(), 1408);
        client.create_group(&spec(3)).unwrap();
    });
}

#[test]
fn a_foreign_xdp_program_stays() {
    in_namespace(|| {
        let _foreign = foreign::xdp(V0);
        let (agent, client) = embedded(with_hook(HookChoice::Xdp));
        let error = client.create_group(&spec(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Hook);
        assert!(error.to_string().contains("left alone"), "{error}");
        assert!(tc_names(false).is_empty(), "nothing half attached");
        drop(agent);
        let (agent, client) = embedded(Options::default());
        assert_eq!(client.create_group(&spec(1)).unwrap().hook, Hook::TcIngress);
        drop(agent);
        assert_eq!(xdp_on("v0").as_deref(), Some("xdp"));
    });
}
