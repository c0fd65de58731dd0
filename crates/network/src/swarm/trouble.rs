//! What goes wrong: relays are killed, their clocks set and their disks full, wires lose, change, go down, or part some
//! relays from the others.

use super::Swarm;
use heddle_netem::{DirectionOptions, Flap, Jitter, Loss, Rate, Reorder};
use heddle_sim::HostId;

/// How far a clock may be set, in seconds: beyond, certificates of channels and a consensus hold no longer.
const CLOCK_STEP_MAX_S: u64 = 1800;

impl Swarm {
    pub(super) fn note(&mut self, fault: &'static str) {
        *self.outcome.faults.entry(fault).or_default() += 1;
    }

    /// Something happens to the wire between two relays, or to a relay.
    pub(super) fn make_trouble(&mut self) {
        let (a, b) = (self.rng.below(self.relays() as u64), self.rng.below(self.relays() as u64));
        let hosts = (self.net.relays[a as usize].host, self.net.relays[b as usize].host);
        match self.rng.below(10) {
            0 => self.part(),
            1 => self.set_clock(a as usize),
            2 => self.fill_disk(a as usize),
            _ if a == b => {}
            3 => {
                self.note("datagrams blocked");
                self.net.sim.block_datagrams(hosts.0, hosts.1, true);
            }
            4 => self.net.sim.block_datagrams(hosts.0, hosts.1, false),
            5 => {
                self.note("connections reset");
                self.net.sim.reset_streams(hosts.0, hosts.1);
            }
            6 => self.flap(hosts),
            _ => self.change(hosts),
        }
    }

    /// A wire gets slow, long, narrow or rough, and stays so until it is changed again.
    fn change(&mut self, hosts: (HostId, HostId)) {
        self.note("wires changed");
        let rate = match self.rng.below(3) {
            0 => Rate::BitsPerS(1_000_000 << self.rng.below(6)),
            _ => Rate::Unlimited,
        };
        let options = DirectionOptions {
            rate,
            delay_ns: 1_000_000 * self.rng.below(80),
            jitter: Jitter::Exponential { mean_ns: 2_000_000 },
            jitter_reorders: true,
            loss: Loss::Bernoulli { probability: self.rng.below(30) as f64 / 1000.0 },
            reorder: Some(Reorder { probability: 0.05, hold_ns: 20_000_000 }),
            duplicate: 0.01,
            ..DirectionOptions::default()
        };
        self.net.sim.set_wire(hosts.0, hosts.1, options);
    }

    /// A wire goes down and up again and again.
    fn flap(&mut self, hosts: (HostId, HostId)) {
        self.note("wires flapping");
        let (down_ms, up_ms) = (10 << self.rng.below(9), 50 << self.rng.below(8));
        let flap = Flap { first_ns: 0, down_ns: down_ms * 1_000_000, up_ns: up_ms * 1_000_000 };
        let options =
            DirectionOptions { delay_ns: 20_000_000, flap: Some(flap), ..DirectionOptions::default() };
        self.net.sim.set_wire(hosts.0, hosts.1, options);
    }

    /// Some relays are parted from the others, or, if any are, all are joined again.
    fn part(&mut self) {
        if std::mem::take(&mut self.is_parted) {
            return self.mend_wires();
        }
        self.note("networks parted");
        self.is_parted = true;
        let sides: Vec<(HostId, bool)> = self
            .net
            .relays
            .iter()
            .map(|relay| relay.host)
            .map(|host| (host, self.rng.below(2) == 0))
            .collect();
        for (place, (a, side)) in sides.iter().enumerate() {
            for (b, _) in sides[place + 1..].iter().filter(|(_, other)| other != side) {
                self.net.sim.set_wire(*a, *b, DirectionOptions { down: true, ..DirectionOptions::default() });
            }
        }
    }

    /// A relay's clock is set, forward or back.
    fn set_clock(&mut self, relay: usize) {
        self.note("clocks set");
        let far = self.rng.below(2 * CLOCK_STEP_MAX_S) as i64 - CLOCK_STEP_MAX_S as i64;
        self.net.sim.set_clock(self.net.relays[relay].host, far);
    }

    /// A relay's disk is full, or has room again.
    fn fill_disk(&mut self, relay: usize) {
        let is_full = self.rng.below(2) == 0;
        if is_full {
            self.note("disks full");
        }
        self.net.relays[relay].disk.set_full(is_full);
    }

    pub(super) fn kill_or_start(&mut self) {
        match self.killed.take() {
            Some(relay) => {
                self.note("relays started anew");
                // Who starts a relay sees to it that it has a disk, and room there.
                self.net.relays[relay].disk.set_full(false);
                self.net.relays[relay].disk.set_dead(false);
                self.net.start_anew(relay);
            }
            None => {
                self.note("relays killed");
                let relay = self.rng.below(self.relays() as u64) as usize;
                self.net.kill(relay);
                self.exit_killed |= relay + 1 == self.relays();
                self.killed = Some(relay);
            }
        }
    }

    /// Nothing is wrong any more.
    pub(super) fn mend(&mut self) {
        self.mend_wires();
        for relay in &self.net.relays {
            relay.disk.set_full(false);
            relay.disk.set_dead(false);
            self.net.sim.set_clock(relay.host, 0);
        }
    }

    fn mend_wires(&mut self) {
        let hosts: Vec<_> = self.net.relays.iter().map(|relay| relay.host).collect();
        for (place, a) in hosts.iter().enumerate() {
            for b in &hosts[place + 1..] {
                self.net.sim.block_datagrams(*a, *b, false);
                let good = DirectionOptions { delay_ns: 10_000_000, ..DirectionOptions::default() };
                self.net.sim.set_wire(*a, *b, good);
            }
        }
    }
}
