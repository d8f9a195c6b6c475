//! Keepers over real sockets, on loopback addresses, with programs that are not there.

use std::ops::Range;
use std::time::Instant;

use super::transports::Transports;
use super::userspace_hook::Datagrams;
use super::*;
use crate::bindings as b;
use crate::leaf::arithmetic::{Arithmetic, Element, Operator};
use crate::wire::cells::Cells;
use crate::wire::{Algorithm, Buffers, Kind, Seal, Secret, Transfer, Transport, Wire};

const WINDOW: u32 = 256;
const TOKEN: u64 = 0x1234_5678_9abc_def0;
/// For hangs alone.
const MOST: Duration = Duration::from_secs(120);

/// Frames that no program meets.
struct Nowhere;

impl Transport for Nowhere {
    fn send(&mut self, _member: u8, _frame: &fb_frame, _payload: &[u8]) {}
}

/// The data that one transfer reads, and replaces.
struct Data(Vec<u8>);

impl Buffers for Data {
    fn read(&self, range: Range<usize>) -> &[u8] {
        &self.0[range]
    }

    fn write(&mut self, at: usize, data: &[u8]) {
        self.0[at..][..data.len()].copy_from_slice(data);
    }

    fn result(&self, range: Range<usize>) -> &[u8] {
        &self.0[range]
    }

    fn fold(&mut self, _at: usize, _data: &[u8], _arithmetic: Arithmetic) {
        unreachable!("only by shards");
    }

    fn in_place(&self) -> bool {
        true
    }

    fn begin_with_own(&mut self, _range: Range<usize>) {}

    fn fold_own(&mut self, _range: Range<usize>, _arithmetic: Arithmetic) {
        unreachable!("only by shards");
    }
}

/// Seals its frames.
fn seal() -> Seal {
    Seal::new(Some(Secret::new([1, 2])))
}

/// A member of the test's group.
fn identity(members: u8, me: u8) -> Identity {
    let chunk_bytes = b::FB_CHUNK_BYTES as u16;
    Identity { token: TOKEN, seal: seal(), members, me, chunk_bytes, multicast: false }
}

/// A frame of the test's group.
fn frame(kind: b::fb_kind, rest: fb_frame) -> fb_frame {
    let fb_frame { magic, version, kind, token, .. } = identity(2, 0).frame(kind);
    seal().sealed(fb_frame { magic, version, kind, token, ..rest }, &[])
}

/// Its bytes.
fn bytes(frame: &fb_frame) -> &[u8] {
    // SAFETY: a frame is FRAME bytes without holes (bpf/wire.h).
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(frame).cast::<u8>(), FRAME) }
}

type TestWire = Wire<Mapped, Transports<Nowhere, Mapped, Peers>, Data>;

/// Members at 127.0.0.1 and on, whose ways are the second alone.
struct Members {
    keepers: Keepers,
    wires: Vec<TestWire>,
    hooks: Vec<Arc<KeptHook>>,
    peers: Vec<SocketAddrV4>,
}

fn home(at: SocketAddrV4) -> Contact {
    Contact { at, elsewhere: vec![] }
}

fn address(member: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 1 + member)
}

/// `transports` makes the ways out of a member of the second one.
fn members_by(
    count: u8,
    transports: impl Fn(Arc<KeptHook>) -> Transports<Nowhere, Mapped, Peers>,
) -> Members {
    let keepers = Keepers::default();
    let at = |member| keepers.at(address(member), &[]).unwrap();
    let peers: Vec<_> =
        (0..count).map(|member| SocketAddrV4::new(address(member), at(member).port())).collect();
    let (mut wires, mut hooks) = (Vec::new(), Vec::new());
    for me in 0..count {
        let identity = identity(count, me);
        let others = peers.iter().enumerate();
        let others = others.map(|(member, at)| (member != usize::from(me)).then(|| home(*at)));
        let memory = Mapped::own(WINDOW, identity.chunk_bytes).unwrap();
        let hook = at(me).add_group(&identity, others.collect(), memory.clone());
        hooks.push(Arc::clone(&hook));
        wires.push(Wire::new(Cells::new(memory), transports(hook), identity));
    }
    Members { keepers, wires, hooks, peers }
}

/// With programs that are not there.
fn members(count: u8) -> Members {
    members_by(count, |hook| {
        let mut transports = Transports::new(Nowhere);
        transports.add(hook);
        transports
    })
}

/// Polls all members until each has its answer.
fn run(
    wires: &mut [TestWire],
    transfer: Transfer,
    brings: impl Fn(usize) -> Vec<u8>,
) -> Vec<Vec<u8>> {
    let begin = Instant::now();
    for (me, wire) in wires.iter_mut().enumerate() {
        wire.submit(transfer, Data(brings(me)));
    }
    let mut answers = vec![None; wires.len()];
    while answers.iter().any(Option::is_none) {
        assert!(begin.elapsed() < MOST, "stuck: {answers:?}");
        for (wire, answer) in wires.iter_mut().zip(&mut answers) {
            wire.poll(Instant::now);
            if let Some(over) = wire.take_over() {
                *answer = Some(over.buffers.0);
            }
        }
        thread::yield_now();
    }
    answers.into_iter().flatten().collect()
}

#[test]
fn collectives_outlive_their_programs() {
    for count in [2, 3, 5] {
        let mut members = members(count);
        collectives_go(count, &mut members);
        assert!(members.wires.iter().all(|wire| wire.transport.rescued() > 0));
    }
}

#[test]
fn collectives_go_where_there_are_no_programs() {
    for count in [2, 3, 5] {
        let mut members = members_by(count, Transports::without_programs);
        collectives_go(count, &mut members);
        for wire in &members.wires {
            assert!(!wire.transport.has_programs() && wire.transport.counters().frames_out > 0);
            assert_eq!(wire.transport.rescued(), 0, "there is nothing to be rescued from");
        }
    }
}

/// A rank that waits takes in frames; no other thread has to be woken for it.
#[test]
fn a_rank_that_waits_receives_for_itself() {
    let mut members = members_by(2, Transports::without_programs);
    let keeper = members.keepers.at(address(0), &[]).unwrap();
    let before = keeper.looks.load(Ordering::Relaxed);
    members.wires[0].transport.take_in();
    assert_ne!(keeper.looks.load(Ordering::Relaxed), before);
    // With programs the keeper is enough.
    let mut with = Transports::new(Nowhere);
    with.add(Arc::clone(&members.hooks[0]));
    let before = keeper.looks.load(Ordering::Relaxed);
    with.take_in();
    assert_eq!(keeper.looks.load(Ordering::Relaxed), before);
}

fn collectives_go(count: u8, members: &mut Members) {
    for round in 0..50u8 {
        let sum = Kind::FoldToAll(Arithmetic { op: Operator::Sum, element: Element::U8 });
        let want: u8 = (0..count).map(|member| member + round).sum();
        for by in [Algorithm::Star, Algorithm::Direct, Algorithm::Ring] {
            let bytes = 1 + usize::from(round) * 61;
            let fold = Transfer::new(sum, bytes).by(by);
            let got = run(&mut members.wires, fold, |me| vec![me as u8 + round; bytes]);
            assert!(got.iter().flatten().all(|byte| *byte == want), "{by:?}, {got:?}");
        }
        let root = round % count;
        let cast = Transfer::new(Kind::Broadcast(root), 100);
        let got = run(&mut members.wires, cast, |me| vec![me as u8; 100]);
        assert!(got.iter().flatten().all(|byte| *byte == root), "{got:?}");
    }
}

/// Any socket but the one of the member's own keeper, at its address or elsewhere.
#[test]
fn a_stranger_is_not_listened_to() {
    let members = members(2);
    let to = members.peers[0];
    let frame = frame(
        b::FB_KIND_BROADCAST,
        fb_frame { seq: 1, source: 1, target: 1, ..Default::default() },
    );
    for from in [address(1), address(0), address(7)] {
        let socket = UdpSocket::bind(SocketAddrV4::new(from, 0)).unwrap();
        for cut in [0, 1, FRAME - 1, FRAME] {
            socket.send_to(&bytes(&frame)[..cut], to).unwrap();
        }
    }
    // The keeper's own frame comes, and comes after all of these.
    members.hooks[1].let_out(0, &frame, &[]);
    let begin = Instant::now();
    while members.hooks[0].counters().deposited == 0 {
        assert!(begin.elapsed() < MOST, "{:?}", members.hooks[0].counters());
        thread::yield_now();
    }
    assert_eq!(members.hooks[0].counters().frames_in, 1);
}

/// A keeper holds its ports at other addresses for connections alone: any user of its host may send datagrams from
/// there.
#[test]
fn datagrams_from_the_address_of_connections_are_not_listened_to() {
    let elsewhere = |host| Ipv4Addr::new(127, 1, 0, host);
    let at_home = UdpSocket::bind(SocketAddrV4::new(address(1), 0)).unwrap();
    let forger = UdpSocket::bind(SocketAddrV4::new(elsewhere(2), 0)).unwrap();
    let address_of = |socket: &UdpSocket| match socket.local_addr() {
        Ok(SocketAddr::V4(at)) => at,
        other => panic!("{other:?}"),
    };
    let contact =
        Contact { at: address_of(&at_home), elsewhere: vec![(elsewhere(1), address_of(&forger))] };
    let keeper = Keepers::default().at(address(0), &[]).unwrap();
    let identity = identity(2, 0);
    let memory = Mapped::own(WINDOW, identity.chunk_bytes).unwrap();
    let hook = keeper.add_group(&identity, vec![None, Some(contact)], memory);
    let cast = |seq| {
        let rest = fb_frame { seq, source: 1, target: 1, ..Default::default() };
        frame(b::FB_KIND_BROADCAST, rest)
    };
    let to = SocketAddrV4::new(address(0), keeper.port());
    for seq in 1..20 {
        forger.send_to(bytes(&cast(seq)), to).unwrap();
    }
    at_home.send_to(bytes(&cast(20)), to).unwrap();
    let begin = Instant::now();
    while hook.counters().deposited == 0 {
        assert!(begin.elapsed() < MOST, "{:?}", hook.counters());
        thread::yield_now();
    }
    assert_eq!(hook.counters().frames_in, 1);
}

#[test]
fn a_group_that_is_gone_has_no_seat() {
    let members = members(2);
    let keeper = members.keepers.at(address(0), &[]).unwrap();
    assert_eq!(keeper.groups().values().filter(|group| group.hook.strong_count() > 0).count(), 1);
    drop((members.wires, members.hooks));
    assert_eq!(keeper.groups().values().filter(|group| group.hook.strong_count() > 0).count(), 0);
}

#[test]
fn an_address_has_one_keeper() {
    let keepers = Keepers::default();
    let first = keepers.at(Ipv4Addr::LOCALHOST, &[]).unwrap();
    assert!(Arc::ptr_eq(&first, &keepers.at(Ipv4Addr::LOCALHOST, &[]).unwrap()));
    assert!(!Arc::ptr_eq(&first, &keepers.at(Ipv4Addr::new(127, 0, 0, 2), &[]).unwrap()));
    assert!(keepers.at(Ipv4Addr::new(192, 0, 2, 1), &[]).is_err(), "not ours");
}

/// Its rank does nothing meanwhile.
#[test]
fn whoever_is_late_is_not_taken_for_silent() {
    let members = members(2);
    let begin = Instant::now();
    while !members.hooks[0].out().known(1).0 {
        assert!(begin.elapsed() < MOST);
        members.hooks[0].by_all_means();
        thread::yield_now();
    }
    assert_eq!(members.hooks[0].out().known(1), (true, false));
}

/// A peer that answers no datagrams takes the connections of `streams`.
fn goes_by_a_connection(contact: Contact, streams: &Streams) {
    let to = address(0);
    let elsewhere: Vec<_> = contact.elsewhere.iter().map(|(own, _)| *own).collect();
    let keeper = Keepers::default().at(to, &elsewhere).unwrap();
    let own = keeper.elsewhere().pop().unwrap_or(SocketAddrV4::new(to, keeper.port()));
    let identity = identity(2, 0);
    let hook = keeper.add_group(
        &identity,
        vec![None, Some(contact)],
        Mapped::own(WINDOW, identity.chunk_bytes).unwrap(),
    );
    let pull = frame(b::FB_KIND_PULL, fb_frame { seq: 7, target: 1, ..Default::default() });
    let (begin, mut came) = (Instant::now(), None);
    while came.is_none() {
        assert!(begin.elapsed() < MOST);
        hook.by_all_means();
        hook.let_out(1, &pull, &[]);
        streams.accept(|peer| peer == own).unwrap();
        streams.receive(|frame, _, _| came = Some(frame.seq));
        thread::yield_now();
    }
    assert_eq!((came, hook.out().known(1)), (Some(7), (false, true)));
    // And what it says by the connection is heard.
    let cast = frame(
        b::FB_KIND_BROADCAST,
        fb_frame { seq: 1, source: 1, target: 1, ..Default::default() },
    );
    while hook.counters().deposited == 0 {
        assert!(begin.elapsed() < MOST, "{:?}", hook.counters());
        streams.send(own, bytes(&cast), false);
        thread::yield_now();
    }
}

#[test]
fn whoever_does_not_answer_datagrams_gets_frames_by_a_connection() {
    let (_filtered, at, streams) = sockets(address(1)).unwrap();
    goes_by_a_connection(home(at), &streams.unwrap());
}

#[test]
fn whoever_is_not_reached_at_home_is_reached_elsewhere() {
    let (_filtered, at, _) = sockets(address(1)).unwrap();
    let other = |host| Ipv4Addr::new(127, 1, 0, host);
    let streams = Streams::at(SocketAddrV4::new(other(2), 0)).unwrap();
    let elsewhere = vec![(other(1), streams.own())];
    goes_by_a_connection(Contact { at, elsewhere }, &streams);
}

/// Counts the frames that it is to send.
#[derive(Clone, Default)]
struct Counted(Arc<std::sync::atomic::AtomicU32>);

impl Counted {
    fn take(&self) -> u32 {
        self.0.swap(0, std::sync::atomic::Ordering::Relaxed)
    }

    fn add(&self) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

impl Transport for Counted {
    fn send(&mut self, _member: u8, _frame: &fb_frame, _payload: &[u8]) {
        self.add();
    }
}

impl Datagrams for Counted {
    fn send(&self, _member: u8, _frame: &fb_frame, _payload: &[u8]) {
        self.add();
    }
}

#[test]
fn frames_take_both_ways_while_the_programs_are_in_doubt() {
    let identity = identity(2, 0);
    let (first, second) = (Counted::default(), Counted::default());
    let hook = Arc::new(UserspaceHook::new(
        &identity,
        Mapped::own(WINDOW, identity.chunk_bytes).unwrap(),
        second.clone(),
    ));
    let mut transports = Transports::new(first.clone());
    let pull = fb_frame { kind: b::FB_KIND_PULL as u8, ..Default::default() };
    let sent = |transports: &mut Transports<Counted, Mapped, Counted>| {
        transports.send(1, &pull, &[]);
        (first.take(), second.take())
    };
    let in_vain = |transports: &mut Transports<Counted, Mapped, Counted>, times| {
        (0..times).for_each(|_| transports.asked_in_vain());
    };
    in_vain(&mut transports, 10);
    assert_eq!(sent(&mut transports), (1, 0), "there is no second way yet");
    transports.add(Arc::clone(&hook));
    transports.made_progress();
    in_vain(&mut transports, 2);
    assert_eq!(sent(&mut transports), (1, 0), "too early");
    in_vain(&mut transports, 1);
    assert_eq!(sent(&mut transports), (1, 1));
    transports.made_progress();
    assert_eq!(sent(&mut transports), (1, 0), "it came by itself: somebody was late");

    in_vain(&mut transports, 3);
    let word = |seq| {
        let said = fb_frame { seq, source: 1, target: 1, ..pull };
        hook.take_in(&frame(b::FB_KIND_BROADCAST, said), &[]);
    };
    for seq in 1..=20 {
        word(seq);
        transports.made_progress();
        assert_eq!(sent(&mut transports), (1, 1), "rescued");
    }
    assert_eq!(transports.rescued(), 20);
    for _ in 1..64 {
        transports.made_progress();
        assert_eq!(sent(&mut transports), (1, 1));
    }
    transports.made_progress();
    assert_eq!(sent(&mut transports), (1, 0), "the programs are back");
}
