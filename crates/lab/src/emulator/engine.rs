//! The thread that moves packets between the devices and the wires:
//!
//! 1. What is due is given to the kernels of the hosts that it reached, and how late that is gets counted.
//! 2. It sleeps until the next packet is due or a host sends.
//! 3. What a host sent is stamped, cut into packets, and put on the wire to whoever has the destination's address.
//!
//! Bounds: what is inside is bounded by the wires' own options; at most [`FRAMES_PER_TURN`] frames or about
//! [`BYTES_PER_TURN`] are read from a device before the others have their turn.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use heddle_net::tun::{FRAME_BYTES_MAX, Tun};
use heddle_net::{monotonic, realtime, wall_clock};
use heddle_netem::{HostId, SendError, Time, Topology};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::histogram::Histogram;
use super::offload::{self, Arrivals};
use super::packet;
use super::pcapng::{Captures, Place};

const FRAMES_PER_TURN: usize = 16;
const BYTES_PER_TURN: usize = 64 << 10;
const EVENTS_MAX: usize = 64;
/// The token of the descriptor that says stop; hosts have their numbers.
const STOP: u64 = u64::MAX;

/// What the engine counted beside the wires' own counts.
#[derive(Debug)]
pub(super) struct Tally {
    /// How long after they were due packets were given to their kernel.
    pub lateness: Histogram,
    /// How long the engine did not look at the devices because it was busy: what came in then was stamped up to this
    /// much too late.
    pub unattended: Histogram,
    /// Packets to an address that no host has or no wire leads to.
    pub unrouted: u64,
    /// Frames that were no packets.
    pub malformed: u64,
    /// Packets that a kernel did not take.
    pub refused: u64,
    /// The CPU time of the engine's thread, which does most of the kernels' work on packets too.
    pub cpu_ns: u64,
}

/// Asks an engine to stop.
#[derive(Clone, Debug)]
pub(super) struct Stop(Arc<OwnedFd>);

impl Stop {
    pub(super) fn new() -> io::Result<Stop> {
        Ok(Stop(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    pub(super) fn request(&self) {
        // It only fails when it was requested 2⁶⁴ times already.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// The wires and the devices at their ends.
pub(super) struct Engine {
    pub topology: Topology<Vec<u8>>,
    pub captures: Option<Captures>,
    pub tally: Tally,
    ports: Vec<Port>,
    homes: BTreeMap<IpAddr, HostId>,
    epoll: OwnedFd,
    /// Keeps open what `epoll` watches.
    _stop: Stop,
    clock: Clock,
}

struct Port {
    device: Tun,
    arrivals: Arrivals,
}

/// The topology's clock begins when the engine does.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    origin_ns: u64,
    origin_unix_ns: u64,
}

impl Clock {
    fn start() -> Clock {
        Clock { origin_ns: monotonic().as_nanos(), origin_unix_ns: wall_clock().ns }
    }

    fn now(self) -> Time {
        Time::from_nanos(monotonic().as_nanos().saturating_sub(self.origin_ns))
    }

    fn unix_ns(self, time: Time) -> u64 {
        self.origin_unix_ns + time.as_nanos()
    }
}

impl Engine {
    /// `devices` are those of the topology's hosts in their order.
    pub(super) fn new(
        topology: Topology<Vec<u8>>,
        devices: Vec<Tun>,
        homes: BTreeMap<IpAddr, HostId>,
        captures: Option<Captures>,
        stop: Stop,
    ) -> io::Result<Engine> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &*stop.0, EventData::new_u64(STOP), EventFlags::IN)?;
        for (number, device) in devices.iter().enumerate() {
            epoll::add(&epoll, device, EventData::new_u64(number as u64), EventFlags::IN)?;
        }
        let port = |device| Port { device, arrivals: Arrivals::default() };
        let tally = Tally {
            lateness: Histogram::new(),
            unattended: Histogram::new(),
            unrouted: 0,
            malformed: 0,
            refused: 0,
            cpu_ns: 0,
        };
        let ports = devices.into_iter().map(port).collect();
        Ok(Engine { topology, captures, tally, ports, homes, epoll, _stop: stop, clock: Clock::default() })
    }

    /// Moves packets until it is asked to stop. `on_start` hears whether the thread runs before all others.
    pub(super) fn run(&mut self, on_start: impl FnOnce(io::Result<()>)) -> io::Result<()> {
        on_start(realtime::sharpen_timers().and_then(|()| realtime::run_first()));
        self.clock = Clock::start();
        let mut frame = vec![0; FRAME_BYTES_MAX];
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut looked = self.clock.now();
        loop {
            let now = self.deliver_due();
            self.tally.unattended.add(now.ns_since(looked), 1);
            self.sleep(now, &mut events)?;
            looked = self.clock.now();
            for event in &events {
                match event.data.u64() {
                    STOP => {
                        self.tally.cpu_ns = thread_cpu_ns();
                        return Ok(());
                    }
                    host => self.read_host(HostId(host as u32), &mut frame)?,
                }
            }
        }
    }

    /// Seconds since the engine began.
    pub(super) fn elapsed_s(&self) -> f64 {
        self.clock.now().as_nanos() as f64 / 1e9
    }

    fn sleep(&self, now: Time, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        let timeout = self.topology.next_time().map(|due| {
            let ns = due.ns_since(now);
            Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ }
        });
        events.clear();
        match epoll::wait(&self.epoll, spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes what a host sent. Every frame is stamped when it is read.
    fn read_host(&mut self, from: HostId, frame: &mut [u8]) -> io::Result<()> {
        let mut bytes = 0;
        for _ in 0..FRAMES_PER_TURN {
            if bytes >= BYTES_PER_TURN {
                break;
            }
            let Some(len) = self.ports[from.0 as usize].device.read(frame)? else { return Ok(()) };
            bytes += len;
            let now = self.deliver_due();
            let Engine { topology, captures, tally, homes, clock, .. } = self;
            let mut put_on_wire = |packet: Vec<u8>| {
                let to = packet::destination(&packet).and_then(|address| homes.get(&address));
                let Some(to) = to.filter(|to| topology.mtu_bytes(now, from, **to).is_ok()) else {
                    tally.unrouted += 1;
                    return;
                };
                if let Some(captures) = captures {
                    captures.add(from, *to, Place::Sent, clock.unix_ns(now), &packet);
                }
                match topology.send(now, from, *to, packet) {
                    Ok(()) => {}
                    Err(SendError::NoHost(_) | SendError::NoWire(..)) => tally.unrouted += 1,
                    Err(SendError::Length(_) | SendError::PollFirst(_)) => tally.malformed += 1,
                }
            };
            if offload::segment(&frame[..len], &mut put_on_wire).is_err() {
                self.tally.malformed += 1;
            }
        }
        Ok(())
    }

    /// Gives what has arrived by now to the kernels. Returns the time of the last look, after which nothing was due.
    fn deliver_due(&mut self) -> Time {
        loop {
            let now = self.clock.now();
            if self.topology.next_time().is_none_or(|due| due > now) {
                // The topology hears of the time, as it takes no packet from before something that it did.
                let nothing = self.topology.poll(now);
                debug_assert!(nothing.is_none());
                return now;
            }
            self.deliver_until(now);
        }
    }

    fn deliver_until(&mut self, now: Time) {
        let mut reached = Vec::new();
        while let Some(delivery) = self.topology.poll(now) {
            if let Some(captures) = &mut self.captures {
                let unix_ns = self.clock.unix_ns(now);
                captures.add(delivery.from, delivery.to, Place::Arrived, unix_ns, &delivery.packet);
            }
            let arrivals = &mut self.ports[delivery.to.0 as usize].arrivals;
            if arrivals.is_empty() {
                reached.push(delivery.to);
            }
            arrivals.push(delivery.packet, delivery.corrupted, delivery.at.as_nanos());
        }
        let (clock, tally) = (self.clock, &mut self.tally);
        for host in reached {
            let Port { device, arrivals } = &mut self.ports[host.0 as usize];
            arrivals.hand_over(&mut |together| {
                tally.refused += if device.write(together.parts).is_ok() { 0 } else { together.packets };
                let late_ns = clock.now().ns_since(Time::from_nanos(together.due_ns));
                tally.lateness.add(late_ns, together.packets);
            });
        }
    }
}

/// What the calling thread has used of a processor.
fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // It begins at zero and counts up.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
