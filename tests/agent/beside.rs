//! The agent's programs beside others' on the same interface: the order, and that neither harms the
//! other. Packets come in from a [`Peer`].

use std::process::Output;

use crate::common::command;
use crate::foreign::Foreign;
use crate::peer::{Peer, Seen};
use crate::world::own_bpffs;

use super::*;

/// So many frames are sent at a time: more than the few packets that the kernel itself sends.
const FRAMES: u64 = 100;
const VERDICTS: [Verdict; 3] = [Verdict::Next, Verdict::Pass, Verdict::Drop];

/// Frames that a group has taken in.
fn taken(client: &Client, slot: u32) -> u64 {
    client.counters(slot).unwrap().frames_in
}

/// Sends frames, and waits until the group has taken all of them in.
fn takes_all(peer: &Peer, client: &Client, slot: u32, token: u64) {
    let before = taken(client, slot);
    peer.send_hellos(token, FRAMES);
    eventually("the frames are taken in", || taken(client, slot) >= before + FRAMES);
}

/// Sends something, and waits until a foreign program has seen so many packets of it.
fn sees(foreign: &Foreign, count: u64, send: impl FnOnce()) {
    let before = foreign.runs();
    send();
    eventually("the foreign program sees them", || foreign.runs() >= before + count);
}

#[test]
fn a_tcx_program_behind_ours_has_all_packets_but_frames() {
    with_tcx(|| {
        let (peer, _counting) = (Peer::new(), foreign::count_runs());
        let (agent, client) = embedded(Options::default());
        let group = client.create_group(&spec(1)).unwrap();
        // At the tail, as Cilium attaches its programs.
        for verdict in VERDICTS {
            let foreign = foreign::tcx(V0, false, Place::Tail, verdict);
            assert_eq!(tc_names(false), ["fb_tc_ingress", "foreign"]);
            let before = foreign.runs();
            takes_all(&peer, &client, group.slot, 1);
            assert!(foreign.runs() - before < FRAMES / 2, "{verdict:?}: frames go no further");
            peer.seen();
            sees(&foreign, 3, || peer.send_others());
            match verdict {
                Verdict::Drop => assert_eq!(peer.seen(), [], "nothing gets past it"),
                Verdict::Next | Verdict::Pass => peer.is_answered(),
            }
        }
        let _foreign = foreign::tcx(V0, false, Place::Tail, Verdict::Next);
        drop(agent);
        assert_eq!(tc_names(false), ["foreign"]);
        peer.is_answered();
    });
}

#[test]
fn a_tcx_program_before_ours_decides_whether_frames_arrive() {
    with_tcx(|| {
        let (peer, _counting) = (Peer::new(), foreign::count_runs());
        let (agent, client) = embedded(Options::default());
        let group = client.create_group(&spec(1)).unwrap();
        for verdict in VERDICTS {
            let foreign = foreign::tcx(V0, false, Place::Head, verdict);
            assert_eq!(tc_names(false), ["foreign", "fb_tc_ingress"]);
            match verdict {
                Verdict::Next => {
                    sees(&foreign, FRAMES, || takes_all(&peer, &client, group.slot, 1));
                }
                Verdict::Pass | Verdict::Drop => {
                    let before = taken(&client, group.slot);
                    sees(&foreign, FRAMES, || peer.send_hellos(1, FRAMES));
                    assert_eq!(taken(&client, group.slot), before, "{verdict:?}");
                }
            }
            peer.seen();
            sees(&foreign, 3, || peer.send_others());
            match verdict {
                Verdict::Drop => assert_eq!(peer.seen(), [], "nothing gets past it"),
                Verdict::Next | Verdict::Pass => peer.is_answered(),
            }
            // Another group is no reason to move.
            let other = client.create_group(&spec(2)).unwrap();
            assert_eq!(tc_names(false), ["foreign", "fb_tc_ingress"]);
            client.destroy_group(other.slot).unwrap();
            drop(foreign);
            takes_all(&peer, &client, group.slot, 1);
        }
        let _foreign = foreign::tcx(V0, false, Place::Head, Verdict::Next);
        drop(agent);
        assert_eq!(tc_names(false), ["foreign"]);
        // Programs that are attached later come before those that are there.
        let (_agent, client) = embedded(Options::default());
        client.create_group(&spec(1)).unwrap();
        assert_eq!(tc_names(false), ["fb_tc_ingress", "foreign"]);
    });
}

#[test]
fn tcx_programs_before_and_behind_ours_see_what_is_sent() {
    with_tcx(|| {
        let (peer, _counting) = (Peer::new(), foreign::count_runs());
        let (_agent, client) = embedded(Options::default());
        let group = client.create_group(&spec(1)).unwrap();
        let sent = || client.counters(group.slot).unwrap().frames_out;
        for (place, verdict) in [Place::Head, Place::Tail]
            .into_iter()
            .flat_map(|place| VERDICTS.map(|verdict| (place, verdict)))
        {
            let foreign = foreign::tcx(V0, true, place, verdict);
            let order = match place {
                Place::Head => ["foreign", "fb_tc_egress"],
                Place::Tail => ["fb_tc_egress", "foreign"],
            };
            assert_eq!(tc_names(true), order);
            let before = sent();
            peer.seen();
            sees(&foreign, 1, || send_hello(1));
            let is_ours = place == Place::Tail || verdict == Verdict::Next;
            assert_eq!(sent() - before, u64::from(is_ours), "{place:?} {verdict:?}");
            if verdict == Verdict::Drop {
                assert_eq!(peer.seen(), [], "nothing gets past it");
            } else {
                eventually("the frame is out", || peer.seen().contains(&Seen::Frame));
                peer.is_answered();
            }
        }
    });
}

/// A filter on clsact comes behind our links, whatever its priority.
#[test]
fn filters_come_behind_our_links() {
    with_tcx(|| {
        let (peer, directory) = (Peer::new(), Directory::new());
        run("tc qdisc add dev v0 clsact");
        filter(&directory, "add", "prio 1 protocol all", Verdict::Drop);
        let (agent, client) = embedded(Options::default());
        let group = client.create_group(&spec(1)).unwrap();
        takes_all(&peer, &client, group.slot, 1);
        peer.seen();
        peer.send_others();
        takes_all(&peer, &client, group.slot, 1);
        assert_eq!(peer.seen(), [], "the filter drops them");
        drop(agent);
        run("tc filter del dev v0 ingress prio 1");
        peer.is_answered();
    });
}

/// Adds or replaces a filter on the ingress of `v0` with a verdict for every packet.
fn filter(directory: &Directory, how: &str, place: &str, verdict: Verdict) {
    let code = directory.0.join("code");
    // Classic BPF: return a number.
    fs::write(&code, format!("1,6 0 0 {}", verdict as i32 as u32)).unwrap();
    let code = code.display();
    run(&format!("tc filter {how} dev v0 ingress {place} bpf da bytecode-file {code}"));
}

/// Priorities and names of the filters on the ingress of `v0`, first to last.
fn filters() -> Vec<(u32, String)> {
    let listed = run("tc filter show dev v0 ingress");
    let filters = listed.lines().filter(|line| line.contains(" handle ") || line.contains(" fh "));
    let filter = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "pref").expect("a priority");
        let name = words.iter().find(|word| word.starts_with("fb_tc_ingress"));
        let name = name.map_or("foreign", |_| "fb_tc_ingress");
        (words[at + 1].parse().expect("a number"), name.into())
    };
    let mut filters: Vec<(u32, String)> = filters.map(filter).collect();
    filters.dedup();
    filters
}

fn names(filters: &[(u32, String)]) -> Vec<&str> {
    filters.iter().map(|(_, name)| name.as_str()).collect()
}

#[test]
fn filters_of_fixed_priorities_find_them_free() {
    in_namespace(|| {
        let (peer, directory) = (Peer::new(), Directory::new());
        let (agent, client) = embedded(clsact());
        let group = client.create_group(&spec(1)).unwrap();
        let ours = tc_programs(false);
        // A priority takes filters of one kind and one protocol.
        run("tc filter add dev v0 ingress prio 1 protocol ip u32 match u32 0 0 flowid 1:1");
        run("tc filter del dev v0 ingress prio 1");
        assert_eq!(names(&filters()), ["fb_tc_ingress"]);
        for verdict in VERDICTS {
            // As Cilium attaches its programs to a kernel without tcx.
            filter(&directory, "replace", "prio 1 handle 1 protocol all", verdict);
            assert_eq!(names(&filters()), ["foreign", "fb_tc_ingress"], "{:?}", filters());
            if verdict == Verdict::Next {
                takes_all(&peer, &client, group.slot, 1);
                peer.is_answered();
                continue;
            }
            let before = taken(&client, group.slot);
            peer.seen();
            peer.send_hellos(1, FRAMES);
            if verdict == Verdict::Pass {
                peer.is_answered();
            } else {
                peer.send_others();
                assert_eq!(peer.seen(), [], "nothing gets past it");
            }
            assert_eq!(taken(&client, group.slot), before, "{verdict:?}");
        }
        client.create_group(&spec(2)).unwrap();
        assert_eq!(tc_programs(false), ours, "in their place");
        run("tc filter del dev v0 ingress prio 1");
        assert_eq!(tc_programs(false), ours, "in their place");
        takes_all(&peer, &client, group.slot, 1);
        // Behind ours.
        for (priority, verdict) in [(49, Verdict::Pass), (48, Verdict::Drop)] {
            filter(&directory, "add", &format!("prio {priority} protocol all"), verdict);
            takes_all(&peer, &client, group.slot, 1);
        }
        assert_eq!(names(&filters()), ["fb_tc_ingress", "foreign", "foreign"]);
        let theirs = filters().split_off(1);
        drop(agent);
        assert_eq!(filters(), theirs);
    });
}

#[test]
fn ours_comes_behind_a_filter_of_priority_1_that_is_there() {
    in_namespace(|| {
        let (peer, directory) = (Peer::new(), Directory::new());
        run("tc qdisc add dev v0 clsact");
        filter(&directory, "add", "prio 5 protocol all", Verdict::Drop);
        for verdict in [Verdict::Next, Verdict::Pass] {
            filter(&directory, "replace", "prio 1 handle 1 protocol all", verdict);
            let before = filters();
            let (agent, client) = embedded(clsact());
            let group = client.create_group(&spec(1)).unwrap();
            assert_eq!(names(&filters()), ["foreign", "fb_tc_ingress", "foreign"]);
            if verdict == Verdict::Next {
                takes_all(&peer, &client, group.slot, 1);
            } else {
                peer.send_hellos(1, FRAMES);
                peer.is_answered();
                assert_eq!(taken(&client, group.slot), 0);
            }
            drop(agent);
            assert_eq!(filters(), before);
        }
    });
}

/// Runs a program of xdp-tools, and says how it ended.
fn tool(words: &str) -> Output {
    let mut words = words.split_whitespace();
    let output = command(words.next().expect("a program")).args(words).output();
    output.expect("a program of xdp-tools")
}

fn has_xdp_tools() -> bool {
    let is_there = |name: &&str| command(name).arg("help").output().is_ok();
    let has = ["xdp-filter", "xdp-loader"].iter().all(is_there);
    if !has {
        println!("agent: there are no xdp-tools (scripts/setup.sh xdp), so their test is skipped");
    }
    has
}

#[test]
fn xdp_filter_stays_and_filters_frames() {
    if !has_xdp_tools() {
        return;
    }
    in_namespace(|| {
        // Programs are pinned in the one, and locks are files in the other.
        own_bpffs();
        own_run();
        let peer = Peer::new();
        run("xdp-filter load v0 -f udp");
        let theirs = xdp_program().expect("it is on");
        let (agent, client) = embedded(with_hook(HookChoice::Xdp));
        let error = client.create_group(&spec(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Hook);
        assert!(error.to_string().contains("left alone; use FOLDBACK_HOOK=tc"), "{error}");
        assert_eq!((xdp_program(), programs_of_v0().len()), (Some(theirs), 0));
        drop(agent);
        let (agent, client) = embedded(Options::default());
        let group = client.create_group(&spec(1)).unwrap();
        takes_all(&peer, &client, group.slot, 1);
        run("xdp-filter port 337");
        let before = taken(&client, group.slot);
        peer.send_hellos(1, FRAMES);
        peer.is_answered();
        assert_eq!(taken(&client, group.slot), before, "it comes first");
        run("xdp-filter port --remove 337");
        takes_all(&peer, &client, group.slot, 1);
        drop(agent);
        assert_eq!(xdp_program(), Some(theirs));
        run("xdp-filter unload v0");
        assert_eq!(xdp_program(), None);
    });
}

#[test]
fn xdp_tools_do_not_replace_ours() {
    if !has_xdp_tools() {
        return;
    }
    in_namespace(|| {
        own_bpffs();
        own_run();
        let peer = Peer::new();
        let (agent, client) = embedded(with_hook(HookChoice::Xdp));
        let group = client.create_group(&spec(1)).unwrap();
        let ours = xdp_program().expect("XDP is on");
        for words in [
            "xdp-filter load v0",
            "xdp-filter load -m skb v0",
            "xdp-loader unload v0 --all",
            "ip link set dev v0 xdp off",
        ] {
            let output = tool(words);
            println!("{words}: {output:?}");
            assert!(!output.status.success(), "{words}: {output:?}");
            assert_eq!(xdp_program(), Some(ours), "{words}");
            takes_all(&peer, &client, group.slot, 1);
            peer.is_answered();
        }
        drop(agent);
        assert_eq!(xdp_program(), None);
        run("xdp-filter load v0
            xdp-filter unload v0");
    });
}

/// Somebody detaches our XDP program to load another. Groups that there are go on by TC.
#[test]
fn a_group_outlives_that_another_xdp_program_takes_the_place_of_ours() {
    in_namespace(|| {
        let peer = Peer::new();
        let (_agent, client) = embedded(with_hook(HookChoice::Xdp));
        let group = client.create_group(&spec(1)).unwrap();
        let programs = programs_of_v0();
        takes_all(&peer, &client, group.slot, 1);
        foreign::detach_links_of(&[xdp_program().expect("XDP is on")]);
        let foreign = foreign::xdp(V0);
        takes_all(&peer, &client, group.slot, 1);
        let error = client.create_group(&spec(2)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Hook);
        assert!(error.to_string().contains("left alone"), "{error}");
        assert_eq!(programs_of_v0(), programs, "in their place");
        takes_all(&peer, &client, group.slot, 1);
        drop(foreign);
        client.create_group(&spec(2)).unwrap();
        assert_eq!(programs_of_v0().len(), 2);
        assert_eq!(xdp_on("v0").as_deref(), Some("xdp"));
        takes_all(&peer, &client, group.slot, 1);
    });
}
