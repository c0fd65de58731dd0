//! One direction of a wire. A packet's way through it:
//!
//! 1. `enter`: the changes that are due are made, and the packet's fate is drawn.
//! 2. The MTU, then blackhole and flap, then loss may drop it; a bit may be flipped; a copy may follow it.
//! 3. The policer, then the queue and the rate.
//! 4. `depart`: a direction that is down by now drops it; otherwise its arrival is fixed by delay, jitter and hold.
//! 5. `step` gives it back when it arrives.

use crate::drop_log::DropLog;
use crate::fate::{Fate, Fates};
use crate::flight::Flight;
use crate::interface::Interface;
use crate::loss::LossProcess;
use crate::options::{DirectionOptions, Flap, Step};
use crate::policer::Policer;
use crate::seed::Seed;
use crate::stats::{DirectionStats, DropReason};
use crate::transit::{Packet, Transit};
use heddle_seam::time::Instant;

#[derive(Debug)]
pub(crate) struct Direction<P> {
    mtu_bytes: u64,
    delay_ns: u64,
    jitter_reorders: bool,
    down: bool,
    flap: Option<Flap>,
    schedule: Vec<Step>,
    /// How many steps of the schedule are made.
    steps_made: usize,
    fates: Fates,
    policer: Option<Policer>,
    interface: Interface<P>,
    flight: Flight<P>,
    /// The latest arrival so far, which the next packet does not undercut unless jitter reorders.
    last_arrival: Instant,
    stats: DirectionStats,
}

impl<P: Packet> Direction<P> {
    pub(crate) fn new(options: &DirectionOptions, seed: Seed) -> Self {
        Direction {
            mtu_bytes: options.mtu_bytes,
            delay_ns: options.delay_ns,
            jitter_reorders: options.jitter_reorders,
            down: options.down,
            flap: options.flap.clone(),
            schedule: options.schedule.clone(),
            steps_made: 0,
            fates: Fates::new(options, seed),
            policer: options.policer.as_ref().map(Policer::new),
            interface: Interface::new(&options.interface()),
            flight: Flight::new(options.in_flight_packets_max, options.in_flight_bytes_max),
            last_arrival: Instant::ZERO,
            stats: DirectionStats::default(),
        }
    }

    /// The longest packet that it will take at `now`, without framing. Makes no changes: `now` may lie ahead.
    pub(crate) fn mtu_bytes(&self, now: Instant) -> u64 {
        mtu_bytes(self.mtu_bytes, &self.schedule[self.steps_made..], now)
    }

    /// Takes a packet that begins its way at `now`.
    pub(crate) fn enter(&mut self, now: Instant, mut packet: Transit<P>, log: &mut DropLog<P>) {
        self.make_changes(now);
        self.stats.packets_in += 1;
        let fate = self.fates.draw();
        if let Some(reason) = self.refusal(now, &packet, fate) {
            log.bury(now, packet, reason, &mut self.stats.drops);
            return;
        }
        packet.jitter_ns = fate.jitter_ns;
        packet.hold_ns = fate.hold_ns;
        if let Some(place) = fate.flip {
            let bit = (place * (packet.len_bytes * 8) as f64) as usize;
            packet.packet.flip_bit(bit);
            packet.corrupted = true;
            self.stats.corrupted += 1;
        }
        let copy = fate.duplicated.then(|| Transit { copy: true, ..packet.clone() });
        self.enqueue(now, packet, log);
        if let Some(copy) = copy {
            self.stats.duplicated += 1;
            self.enqueue(now, copy, log);
        }
    }

    /// When it has something to do.
    pub(crate) fn next_time(&self) -> Option<Instant> {
        self.interface.next_time().into_iter().chain(self.flight.next_time()).min()
    }

    /// Does one thing that is due at `now`, which is `next_time`: a packet leaves the rate, or arrives and is given
    /// back. Leaving comes first.
    pub(crate) fn step(&mut self, now: Instant, log: &mut DropLog<P>) -> Option<Transit<P>> {
        if self.interface.next_time() == Some(now) {
            self.make_changes(now);
            if let Some(packet) = self.interface.finish(now, log) {
                self.depart(now, packet, log);
            }
            return None;
        }
        let packet = self.flight.arrive()?;
        self.stats.packets_out += 1;
        self.stats.bytes_out += packet.len_bytes;
        Some(packet)
    }

    pub(crate) fn stats(&self) -> DirectionStats {
        let interface = self.interface.stats();
        let mut stats = self.stats;
        stats.drops.add(&interface.drops);
        stats.marked = interface.marked;
        stats.queue = interface.queue;
        stats.in_flight_packets = self.flight.packets();
        stats.in_flight_bytes = self.flight.bytes();
        stats
    }

    /// Packets that wait, are being put on the wire, or are on their way.
    pub(crate) fn inside(&self) -> u64 {
        self.interface.inside() + self.flight.packets()
    }

    fn refusal(&self, now: Instant, packet: &Transit<P>, fate: Fate) -> Option<DropReason> {
        if packet.len_bytes > self.mtu_bytes {
            Some(DropReason::TooBig)
        } else if self.is_down(now) {
            Some(DropReason::Down)
        } else {
            fate.lost.then_some(DropReason::Loss)
        }
    }

    fn enqueue(&mut self, now: Instant, packet: Transit<P>, log: &mut DropLog<P>) {
        if self.policer.as_mut().is_some_and(|policer| !policer.passes(now, packet.len_bytes)) {
            log.bury(now, packet, DropReason::Policed, &mut self.stats.drops);
            return;
        }
        if let Some(packet) = self.interface.offer(now, packet, log) {
            self.depart(now, packet, log);
        }
    }

    fn depart(&mut self, now: Instant, packet: Transit<P>, log: &mut DropLog<P>) {
        if self.is_down(now) {
            log.bury(now, packet, DropReason::Down, &mut self.stats.drops);
            return;
        }
        let mut arrival = now.plus_ns(self.delay_ns.saturating_add_signed(packet.jitter_ns));
        if !self.jitter_reorders {
            arrival = arrival.max(self.last_arrival);
            self.last_arrival = arrival;
        }
        // A packet that is held back does not hold back those behind it.
        let is_held = packet.hold_ns > 0;
        arrival = arrival.plus_ns(packet.hold_ns);
        match self.flight.depart(arrival, packet) {
            Ok(()) => self.stats.held_back += u64::from(is_held),
            Err(packet) => log.bury(now, packet, DropReason::InFlightFull, &mut self.stats.drops),
        }
    }

    fn is_down(&self, now: Instant) -> bool {
        let flap_is_down = self.flap.as_ref().is_some_and(|flap| {
            let since_ns = now.as_nanos().checked_sub(flap.first_ns);
            since_ns.is_some_and(|since_ns| since_ns % (flap.down_ns + flap.up_ns) < flap.down_ns)
        });
        self.down || flap_is_down
    }

    /// Makes a change at once, whenever it says that it is due.
    pub(crate) fn change(&mut self, now: Instant, step: &Step) {
        self.make_changes(now);
        self.make_change(step);
    }

    /// Makes the changes that are due. Nothing happens on a direction between two packets, so this is early enough.
    fn make_changes(&mut self, now: Instant) {
        while let Some(step) = self.schedule.get(self.steps_made).filter(|step| step.at_ns <= now.as_nanos())
        {
            let step = step.clone();
            self.steps_made += 1;
            self.make_change(&step);
        }
    }

    fn make_change(&mut self, step: &Step) {
        self.mtu_bytes = step.mtu_bytes.unwrap_or(self.mtu_bytes);
        self.delay_ns = step.delay_ns.unwrap_or(self.delay_ns);
        self.down = step.down.unwrap_or(self.down);
        self.fates.duplicate = step.duplicate.unwrap_or(self.fates.duplicate);
        self.fates.corrupt = step.corrupt.unwrap_or(self.fates.corrupt);
        if let Some(rate) = step.rate {
            self.interface.set_rate(rate);
        }
        if let Some(jitter) = &step.jitter {
            self.fates.jitter = jitter.clone();
        }
        if let Some(loss) = &step.loss {
            self.fates.loss = LossProcess::new(loss.clone());
        }
        if let Some(reorder) = &step.reorder {
            self.fates.reorder = Some(reorder.clone());
        }
    }
}

/// The MTU at `now`, when it is `mtu_bytes` before these steps.
pub(crate) fn mtu_bytes(mtu_bytes: u64, steps: &[Step], now: Instant) -> u64 {
    let due = steps.iter().take_while(|step| step.at_ns <= now.as_nanos());
    due.filter_map(|step| step.mtu_bytes).last().unwrap_or(mtu_bytes)
}
