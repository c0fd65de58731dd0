//! What is due, and when. Once a second:
//!
//! 1. it is asked how much was carried;
//! 2. a round of fetches begins when a consensus is due, and what came of it goes to the shards ([`following`]);
//! 3. keys and certificates are renewed when that is due, and what was carried is written down ([`renewal`]);
//! 4. an exit whose name servers are not known has them looked for;
//! 5. while nobody has shown that our ORPort is reachable, a shard is asked to find out ([`reachability`]);
//! 6. after that the descriptor is published when its schedule says so ([`publishing`]).

mod following;
mod publishing;
mod reachability;
mod renewal;
#[cfg(test)]
mod tests;

use crate::exchanges::{Exchanges, Outcome, Request};
use crate::language::{ControlLanguage, Facts, Told, Wanted};
use crate::options::ControlOptions;
use heddle_dir::bandwidth::BandwidthHistory;
use heddle_dir::certs::ChannelCerts;
use heddle_dir::consensus::Consensus;
use heddle_dir::consensus::client::DirectoryClient;
use heddle_dir::files::Files;
use heddle_dir::keys::RelayKeys;
use heddle_dir::publish::PublishSchedule;
use heddle_relay::Control;
use heddle_seam::node::{Input, Node, Output, SocketId};
use heddle_seam::rng::{Entropy, Rng};
use heddle_seam::time::{Duration, Instant, UnixTime};
use heddle_transport::PaddingOptions;
use publishing::Posting;
use std::collections::VecDeque;
use std::sync::Arc;

const TICK: Duration = Duration::from_secs(1);
const RENEW_EVERY_S: u64 = 3600;
/// Between two looks for name servers that are not known.
const NAME_SERVERS_EVERY: Duration = Duration::from_secs(600);
/// Between two warnings that the memory for cells is used up, which strangers may bring about as often as they like.
const PRESSURE_EVERY: Duration = Duration::from_secs(60);

/// Who the relay is, and where that is kept.
pub struct Identity {
    pub keys: RelayKeys,
    pub certs: Arc<ChannelCerts>,
    pub files: Arc<dyn Files>,
}

/// What an exchange is for.
#[derive(Clone, Debug)]
enum Purpose {
    /// The consensus and what belongs to it.
    Fetch,
    /// The descriptor, for the authority of this name.
    Post(String),
}

/// What the operator has not heard yet of memory that was used up.
#[derive(Default)]
struct Pressure {
    freed_cells: u64,
    told_at: Option<Instant>,
}

/// The control plane of a relay; a [`Node`].
pub struct ControlPlane {
    options: ControlOptions,
    identity: Identity,
    shards: u16,
    directory: DirectoryClient,
    exchanges: Exchanges<Purpose>,
    schedule: PublishSchedule,
    posting: Option<Posting>,
    /// Seeds of keys, each for one use.
    entropy: Box<dyn Entropy>,
    /// For what is no secret: whom to ask, and when.
    rng: Rng,
    bandwidth: BandwidthHistory,
    facts: Facts,
    reachable: bool,
    probed_at: Option<Instant>,
    complained_at: Option<Instant>,
    pressure: Pressure,
    renewed_unix_s: u64,
    /// Whether names can be resolved, as it was said last, and when name servers were last looked for.
    resolves: bool,
    name_servers_at: Option<Instant>,
    padding: PaddingOptions,
    /// What the network asks of relays and we lack, as it was last logged.
    missing: Option<String>,
    /// When the first input came.
    started: Option<Instant>,
    /// The wall clock as it was said last, and when.
    clock: (Instant, UnixTime),
    tick_at: Instant,
    wanted: VecDeque<Wanted>,
}

impl ControlPlane {
    /// The control plane of a relay with so many shards, whom it first tells what they need. `resolves` is false for an exit whose
    /// name servers are not known yet.
    pub fn new(
        options: ControlOptions,
        identity: Identity,
        shards: u16,
        resolves: bool,
        now_unix_s: u64,
        mut entropy: Box<dyn Entropy>,
    ) -> Self {
        let mut rng = entropy.rng();
        let directory = DirectoryClient::new(
            identity.files.clone(),
            &options.cache_directory,
            options.authorities.clone(),
            now_unix_s,
            &mut rng,
        );
        let bandwidth = BandwidthHistory::load(&*identity.files, &options.data_directory, now_unix_s);
        let bandwidth = bandwidth.unwrap_or_else(|error| {
            log::warn!("What the relay carried before is not known: the file state: {error}");
            BandwidthHistory::new(now_unix_s)
        });
        let mut plane = ControlPlane {
            shards,
            directory,
            exchanges: Exchanges::new(),
            schedule: PublishSchedule::new(),
            posting: None,
            entropy,
            rng,
            bandwidth,
            facts: Facts::default(),
            reachable: options.assume_reachable,
            probed_at: None,
            complained_at: None,
            pressure: Pressure::default(),
            renewed_unix_s: now_unix_s,
            resolves,
            name_servers_at: None,
            padding: PaddingOptions::default(),
            missing: None,
            started: None,
            clock: (Instant::ZERO, UnixTime { ns: now_unix_s.saturating_mul(1_000_000_000) }),
            tick_at: Instant::ZERO,
            wanted: VecDeque::new(),
            options,
            identity,
        };
        plane.facts.signing_expires_unix_s = plane.identity.keys.signing_expires_unix_s();
        plane.warn_of_master_key(now_unix_s);
        plane.tell_onion_keys();
        plane.tell_params();
        plane.tell_peers();
        plane
    }

    /// The newest consensus, which may have ended; `None` before the first.
    pub fn consensus(&self) -> Option<&Consensus> {
        self.directory.consensus().map(|consensus| &**consensus)
    }

    /// Has every shard told.
    fn tell(&mut self, control: impl Fn() -> Control) {
        for shard in 0..self.shards {
            self.wanted.push_back(Wanted::Tell { shard, control: control() });
        }
    }

    /// Lets whoever watches the relay see what changed.
    fn tell_facts(&mut self, change: impl FnOnce(&mut Facts)) {
        change(&mut self.facts);
        self.wanted.push_back(Wanted::Facts(self.facts.clone()));
    }

    fn unix_s(&self, now: Instant) -> u64 {
        let (at, time) = self.clock;
        UnixTime { ns: time.ns.saturating_add(now.ns_since(at)) }.as_secs()
    }

    /// All that is done once a second.
    fn tick(&mut self, now: Instant) {
        let now_unix_s = self.unix_s(now);
        self.wanted.push_back(Wanted::Carried);
        self.fetch(now);
        // Also when the clock was set back, by however much.
        if now_unix_s.abs_diff(self.renewed_unix_s) >= RENEW_EVERY_S {
            self.renew(now_unix_s);
            self.save_bandwidth();
        }
        if !self.resolves {
            self.find_name_servers(now);
        }
        if !self.reachable {
            self.probe(now);
        } else if self.options.publish {
            self.publish(now);
        }
    }

    fn save_bandwidth(&self) {
        let saved = self.bandwidth.save(&*self.identity.files, &self.options.data_directory);
        if let Err(error) = saved {
            log::warn!("What the relay carried is not kept in the file state: {error}");
        }
    }

    fn on_told(&mut self, now: Instant, told: Told) {
        match told {
            Told::Reachable if !self.reachable => {
                self.reachable = true;
                log::info!("Our ORPort is reachable from the outside");
            }
            Told::Reachable => {}
            Told::ProbeFailed => log::debug!("A reachability probe failed"),
            Told::MemoryPressure { freed_cells } => self.on_memory_pressure(now, freed_cells),
            Told::Carried { read, written } => self.bandwidth.sample(self.unix_s(now), read, written),
            Told::NameServers { known } => self.on_name_servers(known),
            Told::Ending => self.save_bandwidth(),
        }
    }

    fn on_memory_pressure(&mut self, now: Instant, freed_cells: u32) {
        self.tell_facts(|facts| facts.freed_cells += u64::from(freed_cells));
        self.pressure.freed_cells += u64::from(freed_cells);
        if self.pressure.told_at.is_none_or(|at| now.since(at) >= PRESSURE_EVERY) {
            let freed_cells = core::mem::take(&mut self.pressure.freed_cells);
            self.pressure.told_at = Some(now);
            log::warn!(
                "MaxMemInQueues is used up; circuits that held {freed_cells} cells, the oldest, were closed"
            );
        }
    }

    /// Until its name servers are known an exit says that it is none. They were read when the relay started, and SIGHUP may have
    /// made them known since.
    fn find_name_servers(&mut self, now: Instant) {
        let looked_at = *self.name_servers_at.get_or_insert(now);
        let reload = now.since(looked_at) >= NAME_SERVERS_EVERY;
        if reload {
            self.name_servers_at = Some(now);
        }
        self.wanted.push_back(Wanted::NameServers { reload });
    }

    fn on_name_servers(&mut self, known: bool) {
        if known && !self.resolves {
            log::info!("The name servers are known, and the relay is an exit");
            self.resolves = true;
            self.schedule.on_change();
        }
    }

    fn ask(&mut self, now: Instant, request: Request, purpose: Purpose) {
        self.exchanges.start(now, request, purpose);
    }

    fn on_outcome(&mut self, now: Instant, (purpose, result): Outcome<Purpose>) {
        match purpose {
            Purpose::Fetch => self.on_fetched(now, result),
            Purpose::Post(authority) => self.on_posted(&authority, result),
        }
    }
}

impl Node<ControlLanguage> for ControlPlane {
    fn recv_buf(&mut self, _socket: SocketId) -> &mut [u8] {
        self.exchanges.recv_buf()
    }

    fn handle_input(&mut self, now: Instant, input: Input<ControlLanguage>) {
        if self.started.is_none() {
            self.started = Some(now);
            self.clock.0 = now;
        }
        match input {
            Input::Control(told) => self.on_told(now, told),
            Input::WallClock(time) => self.clock = (now, time),
            input => {
                if let Some(outcome) = self.exchanges.handle(&input) {
                    self.on_outcome(now, outcome);
                }
            }
        }
        while let Some(outcome) = self.exchanges.expire(now) {
            self.on_outcome(now, outcome);
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
        let due = self.exchanges.next_end().map_or(self.tick_at, |end| end.min(self.tick_at));
        Output::Timeout(Some(due))
    }
}
