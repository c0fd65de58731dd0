//! What moves packets between the devices and the wires, in turns. In a turn
//!
//! 1. what hosts sent is stamped, cut into packets, and put on the wire to whoever has the destination's address, and
//! 2. what is due is given to the kernels of the hosts that it reached, and how late that is gets counted, and
//! 3. programs that take the place of a kernel (`stack`) answer what they were given.
//!
//! Bounds: what is inside is bounded by the wires' own options; at most [`FRAMES_PER_TURN`] frames or about
//! [`BYTES_PER_TURN`] are read from a device before the others have their turn.

use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::net::IpAddr;
use std::time::Duration;

use heddle_net::offload::Cut;
use heddle_net::packet;
use heddle_net::tun::{FRAME_BYTES_MAX, Tun};
use heddle_net::{monotonic, wall_clock};
use heddle_netem::pcapng::Place;
use heddle_netem::{Dropped, HostId, Instant as Time, SendError, Step, Topology};

use super::arrivals::Arrivals;
use super::attack::{Attackers, Passing};
use super::captures::Captures;
use super::histogram::{BySecond, Histogram};
use super::stack::{Stack, Stacks};
use crate::capture::Capture;

/// How many packets may be dropped in a turn for captures to have them all.
const DROPS_PER_TURN_MAX: usize = 4096;
const FRAMES_PER_TURN: usize = 16;
const BYTES_PER_TURN: usize = 64 << 10;

/// What the engine counted beside the wires' own counts.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// How long after they were due packets were given to their kernel.
    pub lateness: BySecond,
    /// How long the engine did not look at the devices because it was busy: what came in then was stamped up to this
    /// much too late.
    pub unattended: BySecond,
    /// How long what comes while nothing else is due waits for a thread, by a timer beside the devices.
    pub waking: BySecond,
    /// How long after something was due it woke up for that: the machine's doing.
    pub oversleeping: Histogram,
    /// How long kernels took for what was given to them at once.
    pub giving: Histogram,
    /// Packets to an address that no host has or no wire leads to.
    pub unrouted: u64,
    /// Frames that were no packets.
    pub malformed: u64,
    /// Packets that a kernel did not take.
    pub refused: u64,
    /// The CPU time of the engine's threads, which do most of the kernels' work on packets too.
    pub cpu_ns: u64,
}

impl Tally {
    /// Somebody measures from now on, or no more.
    pub(super) fn measuring(&mut self, on: bool) {
        for times in [&mut self.lateness, &mut self.unattended, &mut self.waking] {
            times.measuring(on);
        }
    }
}

/// The wires and the devices at their ends.
pub(super) struct Engine {
    pub topology: Topology<Vec<u8>>,
    pub captures: Option<Captures>,
    /// What is kept of the wire between two hosts.
    watched: Option<([HostId; 2], Capture)>,
    pub attackers: Attackers,
    /// Whether the attackers do anything.
    is_attacked: bool,
    pub tally: Tally,
    ports: Vec<Port>,
    stacks: Stacks,
    homes: BTreeMap<IpAddr, HostId>,
    clock: Clock,
    frame: Vec<u8>,
}

struct Port {
    device: Tun,
    arrivals: Arrivals,
}

/// The topology's clock begins when the engine does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    origin_ns: u64,
    origin_unix_ns: u64,
}

impl Clock {
    pub(super) fn start() -> Clock {
        Clock { origin_ns: monotonic().as_nanos(), origin_unix_ns: wall_clock().ns }
    }

    pub(super) fn now(self) -> Time {
        Time::from_nanos(monotonic().as_nanos().saturating_sub(self.origin_ns))
    }

    /// A time of the engine by the kernel's monotonic clock.
    pub(super) fn monotonic_ns(self, engine_ns: u64) -> u64 {
        self.origin_ns + engine_ns
    }

    fn unix_ns(self, time: Time) -> u64 {
        self.origin_unix_ns + time.as_nanos()
    }
}

impl Engine {
    /// `devices` are those of the topology's hosts in their order.
    pub(super) fn new(
        mut topology: Topology<Vec<u8>>,
        devices: Vec<Tun>,
        homes: BTreeMap<IpAddr, HostId>,
        captures: Option<Captures>,
        attackers: Attackers,
    ) -> Engine {
        let port = |device| Port { device, arrivals: Arrivals::default() };
        let ports = devices.into_iter().map(port).collect();
        if captures.is_some() {
            topology.log_drops(DROPS_PER_TURN_MAX);
        }
        let (clock, frame) = (Clock::start(), vec![0; FRAME_BYTES_MAX]);
        let (tally, stacks) = (Tally::default(), Stacks::default());
        Engine {
            topology,
            captures,
            watched: None,
            attackers,
            is_attacked: true,
            tally,
            ports,
            stacks,
            homes,
            clock,
            frame,
        }
    }

    /// Takes what these hosts sent and delivers what is due. Returns when something is due next.
    pub(super) fn turn(&mut self, senders: impl Iterator<Item = HostId>) -> io::Result<Option<Time>> {
        let looked = self.clock.now();
        if let Some(due) = self.topology.next_time().filter(|due| *due <= looked) {
            self.tally.oversleeping.add(looked.ns_since(due), 1);
        }
        let mut frame = mem::take(&mut self.frame);
        let mut read = Ok(());
        for host in senders {
            read = read.and_then(|()| self.read_host(host, &mut frame));
        }
        self.frame = frame;
        read?;
        let now = self.deliver_due();
        self.run_stacks(now);
        self.capture_drops();
        self.tally.unattended.add(now, now.ns_since(looked), 1);
        Ok(self.next_time())
    }

    /// When something is due next.
    pub(super) fn next_time(&self) -> Option<Time> {
        self.topology.next_time().into_iter().chain(self.stacks.next_time()).min()
    }

    /// Gives a host's packets to this address to a program, and the wires what the program sends.
    pub(super) fn attach(&mut self, host: HostId, address: IpAddr, stack: Box<dyn Stack>) {
        let now = self.deliver_due();
        self.stacks.attach(host, address, stack);
        self.run_stacks(now);
    }

    /// Gives them to the host's kernel again.
    pub(super) fn detach(&mut self, address: IpAddr) -> Option<Box<dyn Stack>> {
        self.stacks.detach(address)
    }

    /// Has the programs whose packets came or whose time is there do what they want to.
    fn run_stacks(&mut self, now: Time) {
        while let Some(address) = self.stacks.begin(now) {
            let mut packet = Vec::new();
            while let Some(from) = self.stacks.poll_packet(address, now, &mut packet) {
                self.put_on_wire(now, from, mem::take(&mut packet));
            }
        }
    }

    /// Changes one direction of a wire now.
    pub(super) fn change(&mut self, from: HostId, to: HostId, step: &Step) -> io::Result<()> {
        let now = self.deliver_due();
        self.topology.change(now, from, to, step).map_err(io::Error::other)
    }

    /// Lets attackers act, or has them wait. What they hold goes on its way then.
    pub(super) fn let_attack(&mut self, on: bool) {
        self.is_attacked = on;
        if !on {
            let now = self.deliver_due();
            self.attackers.release().into_iter().for_each(|passing| self.send(now, passing));
        }
    }

    /// Keeps what is sent on the wire between two hosts from now on, and nothing of what was kept before.
    pub(super) fn watch(&mut self, ends: [HostId; 2]) {
        self.watched = Some((ends, Capture::default()));
    }

    /// What was kept, by this clock; nothing is kept any more.
    pub(super) fn watched(&mut self) -> Capture {
        self.watched.take().map(|(_, capture)| capture).unwrap_or_default()
    }

    fn capture_drops(&mut self) {
        let Some(captures) = &mut self.captures else { return };
        for dropped in self.topology.take_drops() {
            let Dropped { at, from, to, reason, packet, .. } = dropped;
            captures.add(from, to, Place::Dropped(reason.name()), self.clock.unix_ns(at), &packet);
        }
    }

    /// The devices, in the order of their hosts.
    pub(super) fn devices(&self) -> impl Iterator<Item = &Tun> {
        self.ports.iter().map(|port| &port.device)
    }

    pub(super) fn clock(&self) -> Clock {
        self.clock
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
            let Ok(mut cut) = Cut::new(&frame[..len]) else {
                self.tally.malformed += 1;
                continue;
            };
            loop {
                let mut packet = Vec::with_capacity(cut.next_bytes());
                if !cut.append_next(&mut packet) {
                    break;
                }
                self.put_on_wire(now, from, packet);
            }
        }
        Ok(())
    }

    /// Puts a packet on the wire to whoever has its destination's address. Everything due by `now` was delivered.
    fn put_on_wire(&mut self, now: Time, from: HostId, packet: Vec<u8>) {
        let to = packet::destination(&packet).and_then(|address| self.homes.get(&address));
        let Some(to) = to.copied().filter(|to| self.topology.mtu_bytes(now, from, *to).is_ok()) else {
            self.tally.unrouted += 1;
            return;
        };
        if let Some(captures) = &mut self.captures {
            captures.add(from, to, Place::Sent, self.clock.unix_ns(now), &packet);
        }
        if let Some((ends, capture)) = &mut self.watched
            && ends.contains(&from)
            && ends.contains(&to)
        {
            capture.add(Duration::from_nanos(now.as_nanos()), ends[0] == from, &packet);
        }
        let passing = Passing { from, to, packet };
        if self.is_attacked && self.attackers.are_on(from, to) {
            self.attackers.pass(now, passing).into_iter().for_each(|passing| self.send(now, passing));
        } else {
            self.send(now, passing);
        }
    }

    /// Puts a packet on its wire, whatever attackers say.
    fn send(&mut self, now: Time, Passing { from, to, packet }: Passing) {
        match self.topology.send(now, from, to, packet) {
            Ok(()) => {}
            Err(SendError::NoHost(_) | SendError::NoWire(..)) => self.tally.unrouted += 1,
            Err(SendError::Length(_) | SendError::PollFirst(_)) => self.tally.malformed += 1,
        }
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
            if self.stacks.handle_packet(now, &delivery.packet) {
                self.tally.lateness.add(now, now.ns_since(delivery.at), 1);
                continue;
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
                let before = clock.now();
                tally.refused += if device.write(together.parts).is_ok() { 0 } else { together.packets };
                let after = clock.now();
                tally.giving.add(after.ns_since(before), 1);
                let late_ns = after.ns_since(Time::from_nanos(together.due_ns));
                tally.lateness.add(after, late_ns, together.packets);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use heddle_netem::{DirectionOptions, HostOptions, Seed, TopologyOptions};

    use super::*;

    const A: HostId = HostId(0);
    const B: HostId = HostId(1);

    /// Two hosts without devices and a wire of an hour, on which sits an attacker.
    fn attacked(kind: &str) -> Engine {
        let host = |name: &str| HostOptions { name: name.to_owned(), ..HostOptions::default() };
        let options = TopologyOptions {
            hosts: vec![host("a"), host("b")],
            default_wire: Some(DirectionOptions {
                delay_ns: 3_600_000_000_000,
                ..DirectionOptions::default()
            }),
            ..TopologyOptions::default()
        };
        let seed = Seed::from_number(1);
        let topology = Topology::new(&options, &seed).unwrap();
        let attack = toml::from_str(&format!("from = 'a'\nto = 'b'\nkind = {{ {kind} }}")).unwrap();
        let attackers = Attackers::new(&[attack], |name| topology.host(name), &seed);
        let homes = BTreeMap::from([([10, 0, 0, 2].into(), B)]);
        Engine::new(topology, Vec::new(), homes, None, attackers)
    }

    #[test]
    fn attackers_that_are_switched_off_hold_nothing_back() {
        let mut engine = attacked("reorder = { behind = 9 }");
        // A datagram of one byte.
        let header = [0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let packet = [&header[..], &[0, 1, 0, 2, 0, 9, 0, 0, 7]].concat();
        let sent =
            |engine: &Engine| engine.topology.direction_stats(A, B).map_or(0, |stats| stats.packets_in);
        for _ in 0..3 {
            let now = engine.deliver_due();
            engine.put_on_wire(now, A, packet.clone());
        }
        assert_eq!(sent(&engine), 0);
        engine.let_attack(true);
        assert_eq!(sent(&engine), 0);
        engine.let_attack(false);
        assert_eq!((sent(&engine), engine.tally.malformed), (3, 0));
    }
}
