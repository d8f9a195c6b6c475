//! The simulated network: what the hooks of all hosts do, and what happens to frames between them.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use foldback::bindings as b;
use foldback::keeper::transports::Transports;
use foldback::keeper::userspace_hook::{Datagrams, UserspaceHook};
use foldback::wire::cells::{Cells, Mapped};
use foldback::wire::{Buffers, Identity, Seal, Secret, Transport, Wire, native};

use crate::adversary::{Adversary, Fault, Seeded};

struct Host {
    /// Its programs are gone: sockets alone send and receive.
    crashed: bool,
    /// Stands in for them, if the run has a second transport.
    hook: Weak<SimulatedUserspaceHook>,
    group: native::Group,
    cells: Mapped,
    counters: b::fb_counters,
    /// How often it has moved, which is its address.
    address: u64,
    /// The other hosts' addresses, as its programs know them. Sockets find out by themselves.
    learnt: Vec<u64>,
}

/// Addresses of a frame's way.
#[derive(Clone, Copy)]
struct Way {
    from: u64,
    to: u64,
    /// By the second transport.
    second: bool,
}

type Packet = (u8, b::fb_frame, Vec<u8>, Way);

struct State {
    hosts: Vec<Host>,
    chunk_bytes: u16,
    /// By time of arrival and a serial number.
    wire: BTreeMap<(u64, u64), Packet>,
    serial: u64,
    frames: [u64; 2],
    now: u64,
    adversary: Box<dyn Adversary>,
    /// Whether there is a second transport.
    second: bool,
    xdp: bool,
}

/// Flips a bit of frame and payload.
fn flip((_, frame, payload, _): &mut Packet, bit: usize) {
    let (byte, mask) = (bit / 8, 1 << (bit % 8));
    match byte.checked_sub(size_of::<b::fb_frame>()) {
        Some(byte) => payload[byte] ^= mask,
        // SAFETY: within the frame, which is integers without holes.
        None => unsafe { *std::ptr::from_mut(frame).cast::<u8>().add(byte) ^= mask },
    }
}

/// The cells of every host.
#[derive(Clone, Copy)]
pub struct Shape {
    pub window: u32,
    /// Most payload of a frame.
    pub chunk_bytes: u16,
}

/// Frames of which nothing came, or nothing new: where they came from is not where their member is.
fn said_nothing(counters: &b::fb_counters) -> [u64; 8] {
    [
        counters.drop_forged,
        counters.drop_corrupt,
        counters.drop_stale,
        counters.drop_window,
        counters.drop_mismatch,
        counters.drop_malformed,
        counters.drop_lock,
        counters.duplicates,
    ]
}

/// A member of the one group. Its frames bear a code where there are several hosts, else, since every seal is as good
/// as the other to the protocol, a checksum.
fn identity(members: u8, me: u8, chunk_bytes: u16) -> Identity {
    let seal = Seal::new((members != 2).then_some(Secret::new([7, 7])));
    Identity { token: 7, seal, members, me, chunk_bytes, multicast: false }
}

/// A handle on the network.
#[derive(Clone)]
pub struct Network(Rc<RefCell<State>>);

/// The way out of one host.
pub struct Port {
    network: Network,
    me: u8,
}

/// The way out of one host without the programs.
pub struct SecondPort {
    network: Network,
    me: u8,
}

type SimulatedUserspaceHook = UserspaceHook<Mapped, SecondPort>;
/// All ways out of one host.
pub type Out = Transports<Port, Mapped, SecondPort>;

impl Network {
    /// One on which chance decides what befalls frames; with a second transport, if programs may be gone.
    pub fn new(seed: u64, cells: Shape, members: u8, xdp: bool, fault: Fault) -> Self {
        let second = fault.crashes > 0 || fault.dead > 0;
        let network = Self::under(Box::new(Seeded::new(seed, fault)), cells, members, xdp, second);
        for (me, host) in network.0.borrow_mut().hosts.iter_mut().enumerate() {
            host.crashed = fault.dead >> me & 1 == 1;
        }
        network
    }

    /// One on which `adversary` decides.
    pub fn under(
        adversary: Box<dyn Adversary>,
        cells: Shape,
        members: u8,
        xdp: bool,
        second: bool,
    ) -> Self {
        let Shape { window, chunk_bytes } = cells;
        let identity = |me| identity(members, me, chunk_bytes);
        let host = |me| Host {
            crashed: false,
            hook: Weak::new(),
            group: native::Group::new(&identity(me), window),
            cells: Mapped::own(window, chunk_bytes).expect("memory for cells"),
            counters: b::fb_counters::default(),
            address: 0,
            learnt: vec![0; members.into()],
        };
        let hosts = (0..members).map(host).collect();
        let (wire, serial, frames, now) = (BTreeMap::new(), 0, [0; 2], 0);
        let state = State { hosts, chunk_bytes, wire, serial, frames, now, adversary, second, xdp };
        Self(Rc::new(RefCell::new(state)))
    }

    /// The cells of one host.
    fn memory(&self, me: u8) -> Mapped {
        self.0.borrow().hosts[usize::from(me)].cells.clone()
    }

    /// A member's wire, for its collectives.
    pub fn wire<B: Buffers>(&self, me: u8) -> Wire<Mapped, Out, B> {
        let state = self.0.borrow();
        let (members, chunk_bytes) = (state.hosts.len() as u8, state.chunk_bytes);
        drop(state);
        let identity = identity(members, me, chunk_bytes);
        Wire::new(Cells::new(self.memory(me)), self.transports(&identity), identity)
    }

    /// The ways out of a member.
    fn transports(&self, identity: &Identity) -> Out {
        let me = identity.me;
        let port = Port { network: self.clone(), me };
        if !self.0.borrow().second {
            return Transports::new(port);
        }
        let second = SecondPort { network: self.clone(), me };
        #[expect(clippy::arc_with_non_send_sync, reason = "what the library has shared by threads")]
        let hook = Arc::new(UserspaceHook::new(identity, self.memory(me), second));
        self.0.borrow_mut().hosts[usize::from(me)].hook = Arc::downgrade(&hook);
        let mut transports = Transports::new(port);
        transports.add(hook);
        transports
    }

    /// Microseconds since the start.
    pub fn now(&self) -> u64 {
        self.0.borrow().now
    }

    /// A member had nothing to do.
    pub fn pass_time(&self) {
        let mut state = self.0.borrow_mut();
        state.now += 1;
        // Nothing under way that is due: let the clocks run to where something happens.
        if state.wire.keys().next().is_none_or(|(at, _)| *at > state.now + 100) {
            state.now += 20;
        }
    }

    /// Nothing is left to do before a frame arrives, or somebody is out of patience: lets the clocks run on, for
    /// a millisecond at most.
    pub fn skip(&self) {
        let mut state = self.0.borrow_mut();
        let arrival = state.wire.keys().next().map_or(u64::MAX, |(at, _)| *at);
        state.now = arrival.clamp(state.now + 1, state.now + 1000);
    }

    /// Frames that were put on the wire, whatever became of them: with data, and without.
    pub fn frames(&self) -> [u64; 2] {
        self.0.borrow().frames
    }

    pub fn counters(&self) -> Vec<b::fb_counters> {
        self.0.borrow().hosts.iter().map(|host| host.counters).collect()
    }

    /// Delivers the next frame that is due, if any.
    pub fn deliver(&self) -> bool {
        let mut state = self.0.borrow_mut();
        match state.wire.first_key_value() {
            Some((&(at, _), _)) if at <= state.now => {}
            _ => return false,
        }
        let Some((_, (to, frame, payload, way))) = state.wire.pop_first() else { return false };
        let host = &state.hosts[usize::from(to)];
        if way.to != host.address {
            return true;
        }
        if way.second {
            let hook = host.hook.upgrade();
            // It sends over this network.
            drop(state);
            if let Some(hook) = hook {
                hook.take_in(&frame, &payload);
            }
        } else if !host.crashed {
            state.ingress(to, &frame, &payload, way.from);
        }
        true
    }
}

impl State {
    /// Puts a frame on the wire to where the programs of `me` take `to` to be.
    fn forward(&mut self, me: u8, to: u8, frame: &b::fb_frame, payload: &[u8]) {
        let address = self.hosts[usize::from(me)].learnt[usize::from(to)];
        let from = self.hosts[usize::from(me)].address;
        self.carry(to, Way { from, to: address, second: false }, frame, payload);
    }

    /// Puts a frame on the wire to where `to` is: of sockets.
    fn by_socket(&mut self, me: u8, to: u8, second: bool, frame: &b::fb_frame, payload: &[u8]) {
        let [from, address] = [me, to].map(|host| self.hosts[usize::from(host)].address);
        self.carry(to, Way { from, to: address, second }, frame, payload);
    }

    /// Puts a frame on the wire, with its faults.
    fn carry(&mut self, to: u8, way: Way, frame: &b::fb_frame, payload: &[u8]) {
        let bits = 8 * (b::FB_FRAME_BYTES as usize + payload.len());
        self.frames[usize::from(u32::from(frame.kind) == b::FB_KIND_PULL)] += 1;
        let fate = self.adversary.befall(self.hosts.len(), bits);
        if let Some(moved) = fate.moved {
            self.hosts[moved].address += 1;
        }
        if let Some(crashed) = fate.crashed {
            self.hosts[crashed].crashed ^= true;
        }
        for copy in fate.copies.into_iter().flatten() {
            self.serial += 1;
            let key = (self.now + copy.delay, self.serial);
            let mut packet = (to, *frame, payload.to_vec(), way);
            if let Some(bit) = copy.flipped {
                flip(&mut packet, bit);
            }
            self.wire.insert(key, packet);
        }
    }

    /// `from`: where a frame of the wire comes from.
    fn cell(
        &mut self,
        me: u8,
        frame: &b::fb_frame,
        payload: &[u8],
        from: Option<u64>,
        can_send: bool,
    ) -> bool {
        let host = &mut self.hosts[usize::from(me)];
        if from.is_none() && self.adversary.is_busy() {
            return false;
        }
        let before = said_nothing(&host.counters);
        let counters = &mut host.counters;
        let reply = native::enter(&host.cells, &host.group, counters, frame, payload, can_send);
        if let Some(from) = from.filter(|_| said_nothing(&host.counters) == before) {
            host.learnt[usize::from(frame.source)] = from;
        }
        if reply.to_tc() {
            return true;
        }
        for to in (0..64).filter(|to| reply.mask() >> to & 1 == 1) {
            self.forward(me, to, reply.frame(), reply.payload());
        }
        false
    }

    /// As in `bpf/tc.bpf.h` and `bpf/xdp.bpf.h`.
    fn ingress(&mut self, me: u8, frame: &b::fb_frame, payload: &[u8], from: u64) {
        if usize::from(frame.length) != payload.len() {
            // Not what the datagram has.
            return;
        }
        let group = &self.hosts[usize::from(me)].group;
        if !group.admits(frame, size_of::<b::fb_frame>() + payload.len()) {
            // Such as a contribution that was meant for the egress programs of its host, which are gone.
            return;
        }
        let pull = u32::from(frame.kind) == b::FB_KIND_PULL;
        if self.xdp && !pull && !self.cell(me, frame, payload, Some(from), false) {
            return;
        }
        self.cell(me, frame, payload, Some(from), true);
    }

    fn fan_out(&mut self, me: u8, frame: &b::fb_frame, payload: &[u8]) {
        let others = (0..self.hosts.len() as u8).filter(|to| *to != me);
        for to in others.filter(|to| native::goes_to(frame, *to)) {
            self.forward(me, to, frame, payload);
        }
    }

    /// As in `bpf/tc.bpf.h`.
    fn egress(&mut self, me: u8, to: u8, frame: &b::fb_frame, payload: &[u8]) {
        let direct = u32::from(frame.flags) == b::FB_FLAG_DIRECT;
        match u32::from(frame.kind) {
            _ if self.hosts[usize::from(me)].crashed => {
                self.by_socket(me, to, false, frame, payload);
            }
            b::FB_KIND_CONTRIBUTION if direct => {
                self.cell(me, frame, payload, None, true);
                self.fan_out(me, frame, payload);
            }
            b::FB_KIND_CONTRIBUTION if frame.target == me => {
                self.cell(me, frame, payload, None, true);
            }
            b::FB_KIND_BROADCAST => self.fan_out(me, frame, payload),
            _ => self.by_socket(me, to, false, frame, payload),
        }
    }
}

impl Datagrams for SecondPort {
    fn send(&self, member: u8, frame: &b::fb_frame, payload: &[u8]) {
        assert_ne!(member, self.me);
        self.network.0.borrow_mut().by_socket(self.me, member, true, frame, payload);
    }
}

impl Transport for Port {
    fn send(&mut self, member: u8, frame: &b::fb_frame, payload: &[u8]) {
        assert_ne!(member, self.me);
        // The wire sends from its own cells, which the network may touch meanwhile.
        let payload = payload.to_vec();
        self.network.0.borrow_mut().egress(self.me, member, frame, &payload);
    }
}
