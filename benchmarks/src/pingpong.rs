//! A frame from one host of the lab to the other and back, without MPI and without foldback.
#![allow(unsafe_code)]

use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use foldback::bindings::fb_frame;
use foldback::lab::netns;
use foldback::lab::registry::{self, Lab};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

/// The programs of `benchmarks/floor/bench_floor.bpf.c`.
#[allow(missing_docs, unreachable_pub, dead_code, clippy::all, clippy::undocumented_unsafe_blocks)]
pub mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/bench_floor.skel.rs"));
}

const BACK_PORT: u16 = 17801;
const DROP_PORT: u16 = 17802;
const ECHO_PORT: u16 = 17803;

/// As long as the payload of a folded Allreduce of 4 bytes.
pub const PAYLOAD: usize = size_of::<fb_frame>() + 4;

/// A frame without an answer for so long is lost, which on these links none is.
pub const LOST: Duration = Duration::from_secs(10);

/// Microseconds of each frame, in the order sent.
pub struct Times {
    /// The system call that sends a frame to the peer's hook, which drops it.
    pub send: Vec<f64>,
    /// A frame to the peer's hook, which sends it back, until its number is in memory.
    pub hook: Vec<f64>,
    /// A datagram to a process of the peer, which sends it back, over sockets.
    pub process: Vec<f64>,
}

/// Measures between the first two hosts of a lab that is up.
///
/// # Errors
/// The programs cannot be loaded or attached, or a frame gets lost.
pub fn measure(lab: &str, iterations: usize) -> Result<Times> {
    let lab = registry::open(lab)?;
    let (here, there) = (lab.host_pin(&Lab::host(0)), lab.host_pin(&Lab::host(1)));
    let process = over_sockets(&here, &there, iterations)?;

    let mut object = MaybeUninit::uninit();
    let mut skeleton = skeleton::BenchFloorSkelBuilder::default()
        .open(&mut object)
        .context("cannot open the programs of the floor")?;
    let constants = skeleton.maps.rodata_data.as_deref_mut().context("no constants to set")?;
    constants.floor_back_port = BACK_PORT;
    constants.floor_drop_port = DROP_PORT;
    let skeleton = skeleton.load().context("the kernel refuses the programs of the floor")?;
    let bounce = skeleton.progs.floor_bounce.as_fd();
    let deposit = skeleton.progs.floor_deposit.as_fd();
    let _bounce = netns::inside(&there, || attach(bounce))?;
    let _deposit = netns::inside(&here, || attach(deposit))?;
    let last = Last::map(skeleton.maps.last.as_fd())?;
    netns::inside(&here, || {
        let send = send_alone(&connected(0, 1, DROP_PORT)?, iterations)?;
        let hook = by_hooks(&connected(0, 1, BACK_PORT)?, &last, iterations)?;
        Ok(Times { send, hook, process })
    })
}

/// Puts a program onto TC ingress of this namespace's `eth0`, as foldback does, for as long as the
/// descriptor is open.
pub fn attach(program: BorrowedFd<'_>) -> Result<OwnedFd> {
    let index = nix::net::if_::if_nametoindex("eth0").context("the host has no eth0")?;
    let on = i32::try_from(index)?;
    // SAFETY: the program is open, and no options are given.
    let link = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            on,
            libbpf_sys::BPF_TCX_INGRESS,
            std::ptr::null(),
        )
    };
    if link < 0 {
        return Err(std::io::Error::from_raw_os_error(-link))
            .context("cannot attach the programs of the floor (tcx came with Linux 6.6)");
    }
    // SAFETY: just opened, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// The number of the frame that came back last, in memory that the program writes.
struct Last(memmap2::MmapMut);

impl Last {
    fn map(map: BorrowedFd<'_>) -> Result<Self> {
        // SAFETY: the file is a BPF array of one page, made here; it cannot shrink.
        let map = unsafe { memmap2::MmapOptions::new().len(4096).map_mut(map.as_raw_fd()) };
        map.map(Self).context("cannot map the memory that the hook writes")
    }

    fn is(&self, number: u64) -> bool {
        // SAFETY: page-aligned, mapped as long as self, and written by atomic exchange only.
        let last = unsafe { AtomicU64::from_ptr(self.0.as_ptr().cast_mut().cast()) };
        last.load(Ordering::Acquire) == number
    }
}

/// Waits as `src/wait.rs` does, but has no MPI to drive meanwhile. It polls, then offers the CPU,
/// and polls the longer the more often that sufficed.
pub struct Waiter {
    spins: u32,
}

impl Waiter {
    const MOST_SPINS: u32 = 256;

    pub fn new() -> Self {
        Self { spins: 32 }
    }

    /// Until `done`, or the frame is lost.
    ///
    /// # Errors
    /// It is lost, or `done` fails.
    pub fn until(&mut self, done: impl FnMut() -> Result<bool>) -> Result<()> {
        self.until_by(done, || {
            std::thread::yield_now();
            Ok(())
        })
    }

    /// The same, doing something else in place of yielding.
    ///
    /// # Errors
    /// As above, or `otherwise` fails.
    pub fn until_by(
        &mut self,
        mut done: impl FnMut() -> Result<bool>,
        mut otherwise: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let mut turns = 0u32;
        let mut begin = None;
        while !done()? {
            turns = turns.wrapping_add(1);
            if turns <= self.spins {
                std::hint::spin_loop();
                continue;
            }
            if (turns - self.spins).is_multiple_of(64) {
                let begin = *begin.get_or_insert_with(Instant::now);
                ensure!(begin.elapsed() < LOST, "a frame did not come back");
            }
            otherwise()?;
        }
        self.spins = if turns <= self.spins {
            (self.spins + 1 + self.spins / 8).min(Self::MOST_SPINS)
        } else {
            self.spins / 2
        };
        Ok(())
    }
}

fn connected(from: usize, to: usize, port: u16) -> Result<UdpSocket> {
    let address = |index| -> Result<Ipv4Addr> { Ok(Lab::address(0, index).parse()?) };
    let socket = UdpSocket::bind(SocketAddrV4::new(address(from)?, port))
        .and_then(|socket| socket.set_nonblocking(true).map(|()| socket))
        .context("cannot open a socket")?;
    socket.connect(SocketAddrV4::new(address(to)?, port)).context("cannot connect a socket")?;
    Ok(socket)
}

/// Untimed first: a tenth.
fn timed(iterations: usize, mut once: impl FnMut(u64) -> Result<()>) -> Result<Vec<f64>> {
    let untimed = iterations / 10 + 1;
    let mut times = Vec::with_capacity(iterations);
    for number in 1..=untimed + iterations {
        let start = Instant::now();
        once(number as u64)?;
        if number > untimed {
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    Ok(times)
}

pub fn payload(number: u64) -> [u8; PAYLOAD] {
    let mut payload = [0; PAYLOAD];
    payload[..8].copy_from_slice(&number.to_ne_bytes());
    payload
}

fn send(socket: &UdpSocket, number: u64) -> Result<()> {
    socket.send(&payload(number)).context("cannot send")?;
    Ok(())
}

fn send_alone(socket: &UdpSocket, iterations: usize) -> Result<Vec<f64>> {
    timed(iterations, |number| send(socket, number))
}

fn by_hooks(socket: &UdpSocket, last: &Last, iterations: usize) -> Result<Vec<f64>> {
    let mut waiter = Waiter::new();
    timed(iterations, |number| {
        send(socket, number)?;
        waiter.until(|| Ok(last.is(number)))
    })
}

/// Takes a datagram if there is one. Its first 8 bytes are its number.
fn receive(socket: &UdpSocket) -> Result<Option<u64>> {
    let mut payload = [0; PAYLOAD];
    match socket.recv(&mut payload) {
        Ok(_) => Ok(Some(u64::from_ne_bytes(payload[..8].try_into().expect("8 bytes")))),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        // The peer's socket was not there yet: the error of an earlier datagram.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(None),
        Err(error) => Err(error).context("cannot receive"),
    }
}

/// Until the peer answers: the links of a new lab may take a moment to carry frames.
fn knock(socket: &UdpSocket) -> Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < LOST {
        send(socket, 0)?;
        std::thread::sleep(Duration::from_millis(5));
        if receive(socket)? == Some(0) {
            return Ok(());
        }
    }
    bail!("the peer does not answer");
}

/// Two threads of this process, each in a host; to the kernel it is the same as two processes.
fn over_sockets(
    here: &std::path::Path,
    there: &std::path::Path,
    iterations: usize,
) -> Result<Vec<f64>> {
    let (ready, over) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            let result = netns::inside(there, || echo(&ready, &over));
            ready.store(true, Ordering::Release);
            result
        });
        while !ready.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let times = netns::inside(here, || {
            let socket = connected(0, 1, ECHO_PORT)?;
            knock(&socket)?;
            let mut waiter = Waiter::new();
            timed(iterations, |number| {
                send(&socket, number)?;
                waiter.until(|| Ok(receive(&socket)? == Some(number)))
            })
        });
        over.store(true, Ordering::Release);
        let echoed = echo.join().expect("the echo does not panic");
        echoed.and(times)
    })
}

/// Sends back what comes, until it is over.
fn echo(ready: &AtomicBool, over: &AtomicBool) -> Result<()> {
    let socket = connected(1, 0, ECHO_PORT)?;
    ready.store(true, Ordering::Release);
    let mut waiter = Waiter::new();
    loop {
        let mut number = None;
        waiter.until(|| {
            number = receive(&socket)?;
            Ok(number.is_some() || over.load(Ordering::Acquire))
        })?;
        match number {
            Some(number) => send(&socket, number)?,
            None => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_when_it_is_done_and_polls_longer_next_time() {
        let mut waiter = Waiter::new();
        let mut polls = 0;
        let done = || {
            polls += 1;
            Ok(polls == 10)
        };
        waiter.until(done).unwrap();
        assert_eq!((polls, waiter.spins), (10, 37));
        waiter.until(|| Ok(true)).unwrap();
        assert!(waiter.spins <= Waiter::MOST_SPINS);
    }

    #[test]
    fn only_calls_behind_the_untimed_ones_are_timed() {
        let mut numbers = Vec::new();
        let times = timed(20, |number| {
            numbers.push(number);
            Ok(())
        });
        assert_eq!((times.unwrap().len(), numbers.len(), numbers[0]), (20, 23, 1));
    }
}
