//! What is due, and when. Once a second:
//!
//! 1. it is asked how much was carried;
//! 2. a round of fetches begins when a consensus is due, and what came of it goes to the shards ([`following`]);
//! 3. keys and certificates are renewed when that is due ([`credentials`]), and what was carried is written down;
//! 4. an exit whose name servers are not known has them looked for ([`name_servers`]);
//! 5. once a minute the driver looks whether the machine has other addresses, and where none of them is one at which
//!    others reach it, an authority is asked ([`addresses`]);
//! 6. while nobody has shown that our ORPort is reachable, a shard is asked to find out ([`reachability`]);
//! 7. once somebody has, at whichever address, the descriptor is published when its schedule says so ([`publishing`]);
//! 8. a shard that missed something is told all of it again.
//!
//! Each of these has its own state; this file wires them.

mod addresses;
mod clock_skew;
mod credentials;
mod following;
mod name_servers;
mod pressure;
mod publishing;
mod reachability;
#[cfg(test)]
mod tests;

pub use credentials::Identity;

use crate::clock::Clock;
use crate::exchanges::{Exchanges, Outcome};
use crate::language::{ControlLanguage, Standing, Told, Wanted};
use crate::metrics::MetricsPort;
use crate::options::ControlOptions;
use addresses::Addresses;
use clock_skew::ClockSkew;
use credentials::{Credentials, Renewed};
use following::Following;
use heddle_dir::authority::DirAuthority;
use heddle_dir::bandwidth::BandwidthHistory;
use heddle_dir::consensus::Consensus;
use heddle_dir::files::Files;
use heddle_proto::policy::ExitPolicy;
use heddle_relay::Control;
use heddle_seam::node::{Input, Node, Output, SocketId};
use heddle_seam::rng::{Entropy, Rng};
use heddle_seam::time::{Duration, Instant};
use name_servers::NameServers;
use pressure::Pressure;
use publishing::{Described, Publishing};
use reachability::Reachability;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

const TICK: Duration = Duration::from_secs(1);
const RENEW_EVERY_S: u64 = 3600;

/// What an exchange is for.
#[derive(Clone, Debug)]
enum Purpose {
    /// The consensus and what belongs to it.
    Fetch,
    /// The descriptor, for the authority of this name.
    Post(String),
}

/// The control plane of a relay; a [`Node`].
pub struct ControlPlane {
    options: ControlOptions,
    files: Arc<dyn Files>,
    shards: u16,
    credentials: Credentials,
    addresses: Addresses,
    /// What exit streams may reach.
    exit_policy: ExitPolicy,
    following: Following,
    publishing: Publishing,
    reachability: Reachability,
    name_servers: NameServers,
    clock_skew: ClockSkew,
    pressure: Pressure,
    exchanges: Exchanges<Purpose>,
    metrics: MetricsPort,
    bandwidth: BandwidthHistory,
    standing: Standing,
    /// For what is no secret: whom to ask, and when.
    rng: Rng,
    clock: Clock,
    renewed_unix_s: u64,
    tick_at: Instant,
    /// Shards that missed something.
    missed: BTreeSet<u16>,
    wanted: VecDeque<Wanted>,
}

impl ControlPlane {
    /// The control plane of a relay with so many shards, whom it first tells what they need. `resolves` is false for an
    /// exit whose name servers are not known yet.
    pub fn new(
        options: ControlOptions,
        identity: Identity,
        shards: u16,
        resolves: bool,
        now_unix_s: u64,
        mut entropy: Box<dyn Entropy>,
    ) -> Self {
        let mut rng = entropy.rng();
        let files = identity.files.clone();
        let following = Following::new(&options, files.clone(), now_unix_s, &mut rng);
        let bandwidth = BandwidthHistory::load(&*files, &options.data_directory, now_unix_s);
        let bandwidth = bandwidth.unwrap_or_else(|error| {
            log::warn!("What the relay carried before is not known: the file state: {error}");
            BandwidthHistory::new(now_unix_s)
        });
        let addresses = Addresses::new(&options);
        let mut plane = ControlPlane {
            files,
            shards,
            credentials: Credentials::new(identity, addresses.ips(), entropy),
            addresses,
            exit_policy: options.exit_policy.clone(),
            following,
            publishing: Publishing::default(),
            reachability: Reachability::new(options.assume_reachable),
            name_servers: NameServers::new(resolves),
            clock_skew: ClockSkew::default(),
            pressure: Pressure::default(),
            exchanges: Exchanges::new(),
            metrics: MetricsPort::new(options.metrics_policy.clone(), shards),
            bandwidth,
            standing: Standing::default(),
            rng,
            clock: Clock::new(now_unix_s),
            renewed_unix_s: now_unix_s,
            tick_at: Instant::ZERO,
            missed: BTreeSet::new(),
            wanted: VecDeque::new(),
            options,
        };
        plane.credentials.warn_of_master_key(now_unix_s);
        plane.standing.signing_expires_unix_s = plane.credentials.signing_expires_unix_s();
        plane.tell(|plane| plane.credentials.onion_keys());
        plane.on_consensus();
        plane
    }

    /// The newest consensus, which may have ended; `None` before the first.
    pub fn consensus(&self) -> Option<&Consensus> {
        self.following.consensus()
    }

    /// What metrics tell of it.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Whether somebody has reached our ORPort, or the operator says so.
    pub(crate) fn is_reached(&self) -> bool {
        self.reachability.is_reached()
    }

    /// Writes down what the relay was seen to carry. To be called at its end.
    pub fn save(&self) {
        if let Err(error) = self.bandwidth.save(&*self.files, &self.options.data_directory) {
            log::warn!("What the relay carried is not kept in the file state: {error}");
        }
    }

    /// Has every shard told, what there is to tell.
    fn tell(&mut self, control: impl Fn(&mut Self) -> Option<Control>) {
        for shard in 0..self.shards {
            if let Some(control) = control(self) {
                self.wanted.push_back(Wanted::Tell { shard, control });
            }
        }
    }

    /// All that is done once a second.
    fn tick(&mut self, now: Instant) {
        let now_unix_s = self.clock.unix_s(now);
        self.wanted.push_back(Wanted::Carried);
        self.fetch(now);
        // Also when the clock was set back, by however much.
        if now_unix_s.abs_diff(self.renewed_unix_s) >= RENEW_EVERY_S {
            self.renew(now_unix_s);
            self.save();
        }
        self.wanted.extend(self.name_servers.look(now));
        self.ask_address(now);
        if self.reachability.may_publish() {
            self.publish(now);
        }
        if !self.is_reached() {
            self.probe(now);
        }
        for shard in core::mem::take(&mut self.missed) {
            self.repeat(shard);
        }
    }

    fn fetch(&mut self, now: Instant) {
        let now_unix_s = self.clock.unix_s(now);
        if let Some(request) = self.following.poll(now, now_unix_s, &mut self.rng) {
            self.exchanges.start(now, request, Purpose::Fetch);
        }
    }

    /// There is a new consensus, or none yet: shards hear what it says.
    fn on_consensus(&mut self) {
        let params = self.following.params();
        self.tell(|_| Some(Control::Params(params.clone())));
        if self.credentials.set_padding(crate::shown::padding(&params)) {
            self.tell(|plane| plane.credentials.transport());
        }
        let peers = self.following.peers(&self.options.authorities);
        self.tell(|_| Some(Control::Peers(peers.clone())));
        if let Some(consensus) = self.following.consensus() {
            let known = consensus.relays.iter().filter(|relay| relay.ed25519_id.is_some());
            self.standing.relays = known.count() as u64;
            let ours = consensus.relay(&self.credentials.rsa_id());
            self.standing.flags = ours.map(|relay| relay.flags);
        }
    }

    fn renew(&mut self, now_unix_s: u64) {
        self.renewed_unix_s = now_unix_s;
        let Renewed { onion_keys, transports, descriptor } =
            self.credentials.renew(now_unix_s, &self.following.params());
        self.standing.signing_expires_unix_s = self.credentials.signing_expires_unix_s();
        if onion_keys {
            self.tell(|plane| plane.credentials.onion_keys());
        }
        if transports {
            self.tell(|plane| plane.credentials.transport());
        }
        if descriptor {
            self.publishing.on_change();
        }
    }

    fn ask_address(&mut self, now: Instant) {
        self.wanted.extend(self.addresses.look(now));
        let consensus = self.following.consensus();
        self.wanted.extend(self.addresses.ask(now, consensus, &self.options.authorities, &mut self.rng));
    }

    /// Takes news of our addresses. If we are reached elsewhere than before, all who name our addresses or keep streams
    /// away from them hear it.
    fn on_addresses(&mut self, take: impl FnOnce(&mut Addresses, &[DirAuthority]) -> bool) {
        let before = self.addresses.ipv4();
        if !take(&mut self.addresses, &self.options.authorities) {
            return;
        }
        let ours = self.addresses.ips();
        self.credentials.set_addrs(ours.clone());
        self.tell(|plane| plane.credentials.transport());
        if self.options.exit_rejects_own {
            // Those of the start stay closed, because the policy of the options has them, and cost nobody much.
            let all_others = self.options.exit_policy.clone();
            let policy = ours.iter().fold(all_others, |policy, ours| policy.without(*ours));
            self.tell(|_| Some(Control::ExitPolicy(policy.clone())));
            self.exit_policy = policy;
        }
        // That others reached the old one says nothing of this one. They dial the IPv4 address.
        if self.addresses.ipv4() != before {
            self.reachability.begin_anew();
        }
        self.publishing.on_change();
    }

    fn probe(&mut self, now: Instant) {
        let Some(consensus) = self.following.consensus() else { return };
        if !self.addresses.are_known() {
            return;
        }
        let ourselves = self.credentials.target(self.addresses.advertised());
        if let Some(complaint) = self.reachability.complain(now, consensus, &ourselves) {
            log::warn!("{complaint}");
        }
        self.wanted.extend(self.reachability.probe(now, consensus, ourselves, &mut self.rng));
    }

    fn publish(&mut self, now: Instant) {
        if !self.options.publish {
            return;
        }
        let described = Described {
            options: &self.options,
            advertised: self.addresses.advertised(),
            exit_policy: &self.exit_policy,
            keys: self.credentials.keys(),
            resolves: self.name_servers.are_known(),
            now_unix_s: self.clock.unix_s(now),
            uptime_s: self.clock.uptime_s(now),
            observed_bandwidth: self.bandwidth.observed(),
            consensus: self.following.consensus(),
        };
        for (name, request) in self.publishing.poll(&described) {
            self.exchanges.start(now, request, Purpose::Post(name));
        }
    }

    /// Tells a shard all that it may have missed.
    fn repeat(&mut self, shard: u16) {
        let (params, peers) = (self.following.params(), self.following.peers(&self.options.authorities));
        let controls = [
            Some(Control::Params(params)),
            Some(Control::Peers(peers)),
            self.credentials.onion_keys(),
            self.credentials.transport(),
            self.addresses.are_others().then(|| Control::ExitPolicy(self.exit_policy.clone())),
        ];
        let controls = controls.into_iter().flatten();
        self.wanted.extend(controls.map(|control| Wanted::Tell { shard, control }));
    }

    fn on_told(&mut self, now: Instant, told: Told) {
        match told {
            Told::Reachable => self.reachability.on_reached(),
            Told::ProbeFailed => log::debug!("A reachability probe failed"),
            Told::OurAddress { ours, by, at } => {
                self.on_addresses(|addresses, authorities| {
                    addresses.on_seen(now, ours, (by, at), authorities)
                });
            }
            Told::Addresses(found) => self.on_addresses(|addresses, _| addresses.on_found(&found)),
            Told::ClockDiffers { by, ahead_s } => {
                if let Some(ahead_s) = self.clock_skew.on_differs(now, by, ahead_s) {
                    log::warn!("{}", clock_skew::warning(ahead_s));
                }
            }
            Told::MemoryPressure { freed_cells } => {
                self.standing.freed_cells += u64::from(freed_cells);
                self.pressure.on_freed(now, freed_cells);
            }
            Told::Carried(carried) => {
                self.bandwidth.sample(self.clock.unix_s(now), carried.read, carried.written);
            }
            Told::Stats { shard, stats } => self.metrics.on_stats(now, shard, *stats),
            Told::Figures(figures) => self.metrics.on_figures(now, &figures, &self.standing),
            Told::NameServers { known } => {
                if self.name_servers.on_looked(known) {
                    self.publishing.on_change();
                }
            }
            Told::Missed { shard } => {
                self.missed.insert(shard);
            }
        }
    }

    fn on_outcome(&mut self, now: Instant, (purpose, result): Outcome<Purpose>) {
        match purpose {
            Purpose::Fetch => {
                let now_unix_s = self.clock.unix_s(now);
                if self.following.on_answer(now, now_unix_s, result, &mut self.rng) {
                    self.on_consensus();
                }
                // The next round begins with a tick, however soon it is due.
                if self.following.is_fetching() {
                    self.fetch(now);
                }
            }
            Purpose::Post(authority) => self.publishing.on_answer(&authority, result),
        }
    }
}

impl Node<ControlLanguage> for ControlPlane {
    fn recv_buf(&mut self, socket: SocketId) -> &mut [u8] {
        if socket.is_dialled() { self.exchanges.recv_buf() } else { self.metrics.recv_buf() }
    }

    fn handle_input(&mut self, now: Instant, input: Input<ControlLanguage>) {
        self.clock.start(now);
        match input {
            Input::Control(told) => self.on_told(now, told),
            Input::WallClock(time) => self.clock.set(now, time),
            // Not at other inputs: what has come in time may lie in sockets that are read after them.
            Input::Timeout => {
                while let Some(outcome) = self.exchanges.expire(now) {
                    self.on_outcome(now, outcome);
                }
                self.metrics.expire(now);
            }
            input => {
                self.metrics.handle(now, &input);
                if let Some(outcome) = self.exchanges.handle(&input) {
                    self.on_outcome(now, outcome);
                }
            }
        }
        if self.tick_at <= now {
            self.tick_at = now + TICK;
            self.tick(now);
        }
    }

    fn poll_output(&mut self, _now: Instant, buf: &mut Vec<u8>) -> Output<ControlLanguage> {
        if let Some(wanted) = self.wanted.pop_front() {
            return Output::Event(wanted);
        }
        if let Some(output) = self.exchanges.poll_output(buf) {
            return output;
        }
        if let Some(output) = self.metrics.poll_output(buf) {
            return output;
        }
        let ends = [self.exchanges.next_end(), self.metrics.next_end()].into_iter().flatten();
        Output::Timeout(Some(ends.fold(self.tick_at, Instant::min)))
    }
}
