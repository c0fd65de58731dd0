//! Hosts and the wires between them. A packet's way from host to host:
//!
//! 1. `send` puts it on the sending host's uplink: a queue and a rate that all the host's wires share.
//! 2. The wire's direction, as `direction` describes.
//! 3. The receiving host's downlink: again a queue and a rate for all its wires.
//! 4. `poll` delivers it.

use crate::agenda::Agenda;
use crate::direction::{self, Direction};
use crate::drop_log::{DropLog, Dropped};
use crate::interface::Interface;
use crate::options::{DirectionOptions, Step, TopologyOptions};
use crate::seed::Seed;
use crate::stats::{DirectionStats, InterfaceStats, Totals};
use crate::transit::{Delivery, HostId, Packet, Transit};
use crate::validate::{OptionsError, PACKET_BYTES_MAX};
use core::fmt;
use heddle_seam::time::Instant;
use std::collections::BTreeMap;

/// Hosts and wires with all the packets inside them.
///
/// Everything happens in a total order: by time, at one time by element, and in an element first in first out. The
/// elements are numbered: each host's uplink (twice the host's number) and downlink (one more), then the directions of
/// the declared wires, there before back, then those that `default_wire` made, in the order of their first packets.
///
/// Memory: an interface holds its queue's bounds and one packet more, a direction also its `in_flight` bounds, the log
/// of drops what it was allowed, and nothing else grows with the packets sent.
#[derive(Debug)]
pub struct Topology<P> {
    hosts: Vec<Host<P>>,
    directions: Vec<Direction<P>>,
    default_wire: Option<DirectionOptions>,
    seed: Seed,
    agenda: Agenda,
    log: DropLog<P>,
    /// The latest time that the driver named or something happened at.
    now: Instant,
    sent: u64,
    delivered: u64,
}

#[derive(Debug)]
struct Host<P> {
    name: String,
    up: Interface<P>,
    down: Interface<P>,
    /// The direction towards each other host, by its place in the topology.
    directions: BTreeMap<HostId, u32>,
}

/// Why a packet was not taken. It is not counted anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// There is no host with this number.
    NoHost(HostId),
    /// No wire joins these two hosts.
    NoWire(HostId, HostId),
    /// Something was due before; call [`Topology::poll`] with this time until it gives nothing, then send again.
    PollFirst(Instant),
    /// The packet has no bytes, or more than 16 MiB.
    Length(usize),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::NoHost(host) => write!(f, "there is no host {}", host.0),
            SendError::NoWire(from, to) => {
                write!(f, "there is no wire from host {} to host {}", from.0, to.0)
            }
            SendError::PollFirst(time) => {
                write!(f, "something was due at {} ns; poll first", time.as_nanos())
            }
            SendError::Length(bytes) => write!(f, "a packet of {bytes} bytes; possible is from 1 to 16 MiB"),
        }
    }
}

impl std::error::Error for SendError {}

impl<P: Packet> Topology<P> {
    /// The topology of these options, with nothing under way. The same options and seed give the same fates.
    ///
    /// # Errors
    ///
    /// The first fault of the options.
    pub fn new(options: &TopologyOptions, seed: &Seed) -> Result<Self, OptionsError> {
        options.validate()?;
        let host = |options: &crate::HostOptions| Host {
            name: options.name.clone(),
            up: Interface::new(&options.up),
            down: Interface::new(&options.down),
            directions: BTreeMap::new(),
        };
        let mut topology = Topology {
            hosts: options.hosts.iter().map(host).collect(),
            directions: Vec::new(),
            default_wire: options.default_wire.clone(),
            seed: seed.clone(),
            agenda: Agenda::default(),
            log: DropLog::new(0),
            now: Instant::ZERO,
            sent: 0,
            delivered: 0,
        };
        let ids: BTreeMap<&str, HostId> = options
            .hosts
            .iter()
            .zip(0..)
            .map(|(host, number)| (host.name.as_str(), HostId(number)))
            .collect();
        for wire in &options.wires {
            let (from, to) = (ids[wire.from.as_str()], ids[wire.to.as_str()]);
            topology.add_direction(from, to, &wire.there);
            topology.add_direction(to, from, wire.back.as_ref().unwrap_or(&wire.there));
        }
        Ok(topology)
    }

    /// The host of this name.
    pub fn host(&self, name: &str) -> Option<HostId> {
        let place = self.hosts.iter().position(|host| host.name == name)?;
        Some(HostId(place as u32))
    }

    /// The name of a host.
    pub fn host_name(&self, host: HostId) -> Option<&str> {
        self.hosts.get(host.0 as usize).map(|host| host.name.as_str())
    }

    /// The longest packet, without framing, that the wire between two hosts takes in this direction at `now`.
    ///
    /// # Errors
    ///
    /// When there is no such host or no wire between them.
    pub fn mtu_bytes(&self, now: Instant, from: HostId, to: HostId) -> Result<u64, SendError> {
        let host = self.hosts.get(from.0 as usize).ok_or(SendError::NoHost(from))?;
        if let Some(direction) = host.directions.get(&to) {
            return Ok(self.directions[*direction as usize].mtu_bytes(now));
        }
        let options = self.default_for(from, to)?;
        Ok(direction::mtu_bytes(options.mtu_bytes, &options.schedule, now))
    }

    /// Sends a packet at `now`. A time before one that was named already counts as that one.
    ///
    /// # Errors
    ///
    /// See [`SendError`]; the packet is gone then. What happens to a packet that was taken shows in a delivery or in
    /// the counts of drops.
    pub fn send(&mut self, now: Instant, from: HostId, to: HostId, packet: P) -> Result<(), SendError> {
        let direction = self.direction(from, to)?;
        if let Some(due) = self.next_time().filter(|due| *due < now) {
            return Err(SendError::PollFirst(due));
        }
        let length = packet.len_bytes();
        if length == 0 || length as u64 > PACKET_BYTES_MAX {
            return Err(SendError::Length(length));
        }
        self.now = self.now.max(now);
        self.sent += 1;
        let transit = Transit {
            packet,
            len_bytes: length as u64,
            from,
            to,
            direction,
            sent: self.now,
            queued_ns: 0,
            jitter_ns: 0,
            hold_ns: 0,
            corrupted: false,
            copy: false,
        };
        let up = &mut self.hosts[from.0 as usize].up;
        match up.offer(self.now, transit, &mut self.log) {
            Some(transit) => self.enter(transit),
            None => self.agenda.set(from.0 * 2, up.next_time()),
        }
        Ok(())
    }

    /// Changes the wire from one host to another at `now`, in this direction only. What the change says about its time
    /// does not matter; [`Step::validate`] finds what is wrong with it otherwise.
    ///
    /// # Errors
    ///
    /// When there is no such host or no wire between them, and when something was due before `now`.
    pub fn change(&mut self, now: Instant, from: HostId, to: HostId, step: &Step) -> Result<(), SendError> {
        let direction = self.direction(from, to)?;
        if let Some(due) = self.next_time().filter(|due| *due < now) {
            return Err(SendError::PollFirst(due));
        }
        self.now = self.now.max(now);
        self.directions[direction as usize].change(self.now, step);
        Ok(())
    }

    /// The next packet that arrived by `now`, in the order of arrival. Call it until it gives nothing; then
    /// [`next_time`](Self::next_time) is after `now`.
    pub fn poll(&mut self, now: Instant) -> Option<Delivery<P>> {
        while let Some((time, element)) = self.agenda.first().filter(|(time, _)| *time <= now) {
            self.now = self.now.max(time);
            let arrived = match (element as usize).checked_sub(2 * self.hosts.len()) {
                None if element % 2 == 0 => self.finish_up(element),
                None => self.finish_down(element),
                Some(direction) => self.step(element, direction),
            };
            if let Some(transit) = arrived {
                return Some(self.deliver(transit));
            }
        }
        self.now = self.now.max(now);
        None
    }

    /// When [`poll`](Self::poll) next has something to do; `None` when the topology is empty.
    pub fn next_time(&self) -> Option<Instant> {
        self.agenda.first().map(|(time, _)| time)
    }

    /// From now on keeps the packets that are dropped until [`take_drops`](Self::take_drops), up to `packets_max` of
    /// them.
    pub fn log_drops(&mut self, packets_max: usize) {
        self.log = DropLog::new(packets_max);
    }

    /// The packets that were dropped since the last call, in the order of their drops. None without
    /// [`log_drops`](Self::log_drops).
    pub fn take_drops(&mut self) -> Vec<Dropped<P>> {
        self.log.take()
    }

    /// Dropped packets that did not fit into the log.
    pub fn drops_missed(&self) -> u64 {
        self.log.missed
    }

    /// The counts of a host's uplink.
    pub fn up_stats(&self, host: HostId) -> Option<InterfaceStats> {
        self.hosts.get(host.0 as usize).map(|host| host.up.stats())
    }

    /// The counts of a host's downlink.
    pub fn down_stats(&self, host: HostId) -> Option<InterfaceStats> {
        self.hosts.get(host.0 as usize).map(|host| host.down.stats())
    }

    /// The counts of one direction; `None` when there is no wire or when `default_wire` has not made it yet.
    pub fn direction_stats(&self, from: HostId, to: HostId) -> Option<DirectionStats> {
        let direction = self.hosts.get(from.0 as usize)?.directions.get(&to)?;
        Some(self.directions[*direction as usize].stats())
    }

    /// The counts of the whole topology, summed on demand.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals { sent: self.sent, delivered: self.delivered, ..Totals::default() };
        for interface in self.hosts.iter().flat_map(|host| [&host.up, &host.down]) {
            totals.drops.add(&interface.stats().drops);
            totals.inside += interface.inside();
        }
        for direction in &self.directions {
            let stats = direction.stats();
            totals.drops.add(&stats.drops);
            totals.duplicated += stats.duplicated;
            totals.inside += direction.inside();
        }
        totals
    }

    /// Every direction that exists, in the order of its element.
    pub fn directions(&self) -> impl Iterator<Item = (HostId, HostId)> {
        let mut pairs = vec![(HostId(0), HostId(0)); self.directions.len()];
        for (from, host) in self.hosts.iter().enumerate() {
            for (to, direction) in &host.directions {
                pairs[*direction as usize] = (HostId(from as u32), *to);
            }
        }
        pairs.into_iter()
    }

    fn direction(&mut self, from: HostId, to: HostId) -> Result<u32, SendError> {
        let host = self.hosts.get(from.0 as usize).ok_or(SendError::NoHost(from))?;
        if let Some(direction) = host.directions.get(&to) {
            return Ok(*direction);
        }
        let options = self.default_for(from, to)?.clone();
        Ok(self.add_direction(from, to, &options))
    }

    /// The options of a direction that does not exist yet.
    fn default_for(&self, from: HostId, to: HostId) -> Result<&DirectionOptions, SendError> {
        if to.0 as usize >= self.hosts.len() {
            return Err(SendError::NoHost(to));
        }
        let options = self.default_wire.as_ref().filter(|_| from != to);
        options.ok_or(SendError::NoWire(from, to))
    }

    /// Makes a direction. Its seed depends on the names of its ends only.
    fn add_direction(&mut self, from: HostId, to: HostId, options: &DirectionOptions) -> u32 {
        let number = self.directions.len() as u32;
        let names = [from, to].map(|host| self.hosts[host.0 as usize].name.as_str());
        let seed = self.seed.child(&["wire", names[0], names[1]]);
        self.directions.push(Direction::new(options, seed));
        self.hosts[from.0 as usize].directions.insert(to, number);
        number
    }

    /// A packet enters its wire.
    fn enter(&mut self, transit: Transit<P>) {
        let number = transit.direction;
        let direction = &mut self.directions[number as usize];
        direction.enter(self.now, transit, &mut self.log);
        self.agenda.set(self.hosts.len() as u32 * 2 + number, direction.next_time());
    }

    fn finish_up(&mut self, element: u32) -> Option<Transit<P>> {
        let up = &mut self.hosts[element as usize / 2].up;
        let transit = up.finish(self.now, &mut self.log);
        self.agenda.set(element, up.next_time());
        self.enter(transit?);
        None
    }

    fn finish_down(&mut self, element: u32) -> Option<Transit<P>> {
        let down = &mut self.hosts[element as usize / 2].down;
        let transit = down.finish(self.now, &mut self.log);
        self.agenda.set(element, down.next_time());
        transit
    }

    /// A direction does one thing; a packet that arrived at its end passes to the downlink, and perhaps through it.
    fn step(&mut self, element: u32, number: usize) -> Option<Transit<P>> {
        let direction = &mut self.directions[number];
        let transit = direction.step(self.now, &mut self.log);
        self.agenda.set(element, direction.next_time());
        let transit = transit?;
        let host = transit.to.0;
        let down = &mut self.hosts[host as usize].down;
        let passed = down.offer(self.now, transit, &mut self.log);
        if passed.is_none() {
            self.agenda.set(host * 2 + 1, down.next_time());
        }
        passed
    }

    fn deliver(&mut self, transit: Transit<P>) -> Delivery<P> {
        self.delivered += 1;
        Delivery {
            at: self.now,
            sent: transit.sent,
            from: transit.from,
            to: transit.to,
            queued_ns: transit.queued_ns,
            corrupted: transit.corrupted,
            copy: transit.copy,
            packet: transit.packet,
        }
    }
}
