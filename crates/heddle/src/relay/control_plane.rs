//! The control plane: what a relay does beside carrying cells.
//!
//! Once a second, on a thread of its own:
//!
//! 1. the shards' events are heard;
//! 2. a consensus is fetched when one is due, and its parameters go to the shards;
//! 3. keys and certificates are renewed when that is due, and what was carried is written down;
//! 4. while nobody has shown that our ORPort is reachable, a shard is asked to find out;
//! 5. an exit whose name servers are not known looks for them again;
//! 6. the descriptor is published when its schedule says so.
//!
//! Directories are waited for by threads of their own: a round of fetches ([`follower`]) and the posting of a descriptor.

mod background;
mod follower;
mod renewal;
#[cfg(test)]
mod tests;

use super::metrics::Known;
use super::{Failure, net_options, outcome};
use crate::torrc::Options;
use background::Background;
use follower::Follower;
use heddle_dir::authority::DirAuthority;
use heddle_dir::bandwidth::BandwidthHistory;
use heddle_dir::certs::ChannelCerts;
use heddle_dir::consensus::client::{DirectoryClient, FetchError};
use heddle_dir::consensus::{Consensus, Relay};
use heddle_dir::descriptor::{Bandwidth, DescriptorOptions, sign_descriptor};
use heddle_dir::keys::RelayKeys;
use heddle_dir::publish::{PostOutcome, PublishReason, PublishSchedule, PublishView, post_descriptor};
use heddle_net::{LoopHandle, Resolver, SystemEntropy, wall_clock};
use heddle_proto::channel::Target;
use heddle_proto::crypto::{NtorKeypair, OnionKeys};
use heddle_proto::ids::{Ed25519Id, RsaId};
use heddle_proto::params::NetworkParams;
use heddle_proto::policy::ExitPolicy;
use heddle_relay::{Control, Event, ListedRelay, ProbeHop, RelayLanguage, Relays};
use heddle_seam::rng::{Entropy, Rng};
use heddle_transport::PaddingOptions;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// What the relay can do, in the words of tor-spec ("Subprotocol versioning"); nothing that is not
/// implemented.
const PROTOCOLS: &str = "Cons=2 Desc=2 FlowCtrl=1-2 Link=4-5 LinkAuth=3 Microdesc=2 Relay=2-4";
const PLATFORM: &str = concat!("Heddle ", env!("CARGO_PKG_VERSION"), " on Linux");
/// Between two reachability probes.
const PROBE_EVERY: Duration = Duration::from_secs(30);
const RENEW_EVERY_S: u64 = 3600;
/// Between two looks for name servers that are not known.
const NAME_SERVERS_EVERY: Duration = Duration::from_secs(600);
/// Between two warnings of troubles with directories.
const COMPLAIN_EVERY: Duration = Duration::from_secs(3600);
/// Between two warnings that the memory for cells is used up, which strangers may bring about as often as they like.
const PRESSURE_EVERY: Duration = Duration::from_secs(60);

/// What the operator has not heard yet of memory that was used up.
#[derive(Default)]
struct Pressure {
    freed_cells: u64,
    told_at: Option<Instant>,
}

/// The rest of the relay, as the control plane reaches it.
pub struct Reach {
    pub handles: Vec<LoopHandle<RelayLanguage>>,
    pub events: Receiver<Event>,
    /// What metrics tell of the control plane.
    pub known: Known,
    /// Exits have one.
    pub resolver: Option<Resolver>,
}

impl Reach {
    /// Tells every shard. A shard that is full or has ended misses it; the next renewal repeats it.
    fn tell(&self, control: impl Fn() -> Control) {
        for handle in &self.handles {
            if let Err(error) = handle.control(control()) {
                log::warn!("A shard was not told: {error}");
            }
        }
    }

    /// Whether names can be resolved, as far as anybody needs that.
    fn can_resolve(&self) -> bool {
        self.resolver.as_ref().is_none_or(Resolver::is_ready)
    }

    /// Bytes read and written.
    fn carried_bytes(&self) -> (u64, u64) {
        let counters = self.handles.iter().map(LoopHandle::counters);
        counters.fold((0, 0), |(read, written), counters| {
            let datagrams = (counters.datagram_recv_bytes, counters.datagram_send_bytes);
            (read + counters.recv_bytes + datagrams.0, written + counters.send_bytes + datagrams.1)
        })
    }
}

/// A descriptor on its way to the authorities.
struct Posting {
    reason: PublishReason,
    view: PublishView,
    outcomes: Background<Vec<(String, PostOutcome)>>,
}

pub struct ControlPlane {
    options: Options,
    advertised: Vec<SocketAddr>,
    authorities: Vec<DirAuthority>,
    /// Where requests to authorities come from, whose DirPorts are IPv4 only.
    source: Option<IpAddr>,
    keys: RelayKeys,
    certs: Arc<ChannelCerts>,
    directory: Follower,
    schedule: PublishSchedule,
    posting: Option<Posting>,
    shards: Reach,
    /// Seeds of keys, each for one use.
    entropy: SystemEntropy,
    /// For what is no secret: whom to ask, and when.
    rng: Rng,
    started: Instant,
    bandwidth: BandwidthHistory,
    reachable: bool,
    probed_at: Option<Instant>,
    complained_at: Option<Instant>,
    pressure: Pressure,
    renewed_unix_s: u64,
    /// Whether the last look at the resolver found it ready, and when its configuration was last read by us.
    resolves: bool,
    name_servers_at: Instant,
    padding: PaddingOptions,
    /// What the network asks of relays and we lack, as it was last logged.
    missing: Option<String>,
}

impl ControlPlane {
    /// Starts the thread, and hands the shards what they need first. The thread ends with the last shard, and tells
    /// `ended` what it came to.
    pub fn start(
        options: Options,
        keys: RelayKeys,
        certs: Arc<ChannelCerts>,
        advertised: Vec<SocketAddr>,
        shards: Reach,
        entropy: SystemEntropy,
        ended: impl FnOnce(Result<(), String>) + Send + 'static,
    ) -> Result<(), Failure> {
        let now_unix_s = wall_clock().as_secs();
        let mut plane = ControlPlane::new(options, keys, certs, advertised, shards, entropy, now_unix_s);
        plane.shards.known.set_signing_expires(plane.keys.signing_expires_unix_s());
        plane.warn_of_master_key(now_unix_s);
        plane.tell_onion_keys();
        plane.tell_params();
        plane.tell_peers();
        std::thread::Builder::new().name("control plane".into()).spawn(move || {
            ended(outcome("the control plane", || plane.run()));
        })?;
        Ok(())
    }

    fn new(
        options: Options,
        keys: RelayKeys,
        certs: Arc<ChannelCerts>,
        advertised: Vec<SocketAddr>,
        shards: Reach,
        mut entropy: SystemEntropy,
        now_unix_s: u64,
    ) -> Self {
        let mut rng = entropy.rng();
        let authorities: Vec<DirAuthority> = options.authorities().cloned().collect();
        let source = net_options(&options).outbound_bind_v4.map(IpAddr::V4);
        let client = DirectoryClient::new(
            options.cache_directory(),
            authorities.clone(),
            source,
            now_unix_s,
            &mut rng,
        );
        let bandwidth = BandwidthHistory::load(&options.data_directory, now_unix_s).unwrap_or_else(|error| {
            log::warn!("What the relay carried before is not known: the file state: {error}");
            BandwidthHistory::new(now_unix_s)
        });
        ControlPlane {
            reachable: options.assume_reachable,
            resolves: shards.can_resolve(),
            name_servers_at: Instant::now(),
            options,
            advertised,
            authorities,
            source,
            keys,
            certs,
            directory: Follower::new(client),
            schedule: PublishSchedule::new(),
            posting: None,
            shards,
            entropy,
            rng,
            started: Instant::now(),
            bandwidth,
            probed_at: None,
            complained_at: None,
            pressure: Pressure::default(),
            renewed_unix_s: now_unix_s,
            padding: PaddingOptions::default(),
            missing: None,
        }
    }

    fn run(mut self) {
        loop {
            match self.shards.events.recv_timeout(Duration::from_secs(1)) {
                Ok(event) => self.on_event(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.save_bandwidth(),
            }
            self.tick(wall_clock().as_secs());
        }
    }

    /// All that is done once a second, none of which waits for another machine.
    fn tick(&mut self, now_unix_s: u64) {
        let (read, written) = self.shards.carried_bytes();
        self.bandwidth.sample(now_unix_s, read, written);
        if let Some(result) = self.directory.poll(now_unix_s, &mut self.rng) {
            self.on_fetched(result, now_unix_s);
        }
        // Also when the clock was set back, by however much.
        if now_unix_s.abs_diff(self.renewed_unix_s) >= RENEW_EVERY_S {
            self.renew(now_unix_s);
            self.save_bandwidth();
        }
        if !self.resolves {
            self.find_name_servers();
        }
        if !self.reachable {
            self.probe();
        } else if self.options.publish_server_descriptor {
            self.publish(now_unix_s);
        }
    }

    fn save_bandwidth(&self) {
        if let Err(error) = self.bandwidth.save(&self.options.data_directory) {
            log::warn!("What the relay carried is not kept in the file state: {error}");
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Reachable if !self.reachable => {
                self.reachable = true;
                log::info!("Our ORPort is reachable from the outside");
            }
            Event::ProbeFailed => log::debug!("A reachability probe failed"),
            Event::MemoryPressure { freed_cells } => {
                self.shards.known.on_memory_pressure(freed_cells);
                self.tell_pressure(freed_cells);
            }
            other => log::debug!("{other:?}"),
        }
    }

    fn tell_pressure(&mut self, freed_cells: u32) {
        self.pressure.freed_cells += u64::from(freed_cells);
        if self.pressure.told_at.is_none_or(|at| at.elapsed() >= PRESSURE_EVERY) {
            let Pressure { freed_cells, .. } = core::mem::take(&mut self.pressure);
            self.pressure.told_at = Some(Instant::now());
            log::warn!(
                "MaxMemInQueues is used up; circuits that held {freed_cells} cells, the oldest, were closed"
            );
        }
    }

    fn on_fetched(&mut self, result: Result<(), FetchError>, now_unix_s: u64) {
        match result {
            Ok(()) => self.complained_at = None,
            // The consensus is in use all the same.
            Err(error @ FetchError::Write { .. }) => self.complain(&error),
            Err(error) => {
                let is_live = |consensus: &Consensus| consensus.is_live(now_unix_s);
                return match self.directory.consensus().is_some_and(is_live) {
                    true => log::debug!("No newer consensus: {error}"),
                    false => self.complain(&error),
                };
            }
        }
        let relays = self.directory.consensus().map_or(0, |consensus| consensus.relays.len());
        log::info!("A new consensus lists {relays} relays");
        self.tell_missing();
        self.tell_params();
        self.tell_peers();
    }

    /// Warns of a trouble with directories, at most once an hour: tries come more often.
    fn complain(&mut self, error: &FetchError) {
        if self.complained_at.is_none_or(|at| at.elapsed() >= COMPLAIN_EVERY) {
            self.complained_at = Some(Instant::now());
            log::warn!("The directory: {error}");
        }
    }

    /// Says what the network recommends or requires of relays and Heddle does not have yet. Stock Tor
    /// stops when it is too old for the network; Heddle is not too old, and goes on with what it has.
    fn tell_missing(&mut self) {
        let missing = self.directory.consensus().and_then(|consensus| consensus.missing_protocols(PROTOCOLS));
        let missing = missing.map(|missing| missing.explanation);
        if missing != self.missing {
            if let Some(explanation) = &missing {
                log::info!("Not all that the network asks of relays is implemented: {explanation}");
            }
            self.missing = missing;
        }
    }

    fn tell_params(&mut self) {
        let params = self.directory.consensus().map(|consensus| consensus.params.clone()).unwrap_or_default();
        let params = Arc::new(NetworkParams(params));
        self.shards.tell(|| Control::Params(params.clone()));
        let padding = heddle_assembly::padding(&params);
        if padding != self.padding {
            self.padding = padding;
            self.replace_transports();
        }
    }

    /// Says which relays there are, and where they and the authorities listen.
    fn tell_peers(&self) {
        let consensus = self.directory.consensus();
        let listed = |relay: &Relay| ListedRelay {
            rsa: RsaId(relay.rsa_id),
            ed25519: relay.ed25519_id.map(Ed25519Id),
            or_addrs: relay.or_addresses.clone(),
        };
        let relays = consensus.iter().flat_map(|consensus| &consensus.relays).map(listed);
        let peers = Arc::new(Relays::new(relays, self.authorities.iter().flat_map(DirAuthority::ports)));
        if let Some(consensus) = consensus {
            let flags = consensus.relay(&self.keys.rsa_id()).map(|relay| relay.flags);
            let known = consensus.relays.iter().filter(|relay| relay.ed25519_id.is_some());
            self.shards.known.set_consensus(flags, known.count());
        }
        self.shards.tell(|| Control::Peers(peers.clone()));
    }

    fn tell_onion_keys(&self) {
        let mut pairs = self.keys.ntor_keys().into_iter().map(|key| NtorKeypair::from_secret(&key.secret));
        let Some(ntor_current) = pairs.next() else { return };
        let keys = Arc::new(OnionKeys {
            rsa_id: self.keys.rsa_id(),
            ed25519_id: self.keys.ed25519_id(),
            ntor_current,
            ntor_previous: pairs.next(),
        });
        self.shards.tell(|| Control::OnionKeys(keys.clone()));
    }

    /// Until its name servers are known an exit says that it is none. SIGHUP may have made them known.
    fn find_name_servers(&mut self) {
        if self.name_servers_at.elapsed() >= NAME_SERVERS_EVERY {
            self.name_servers_at = Instant::now();
            if let Some(Err(error)) = self.shards.resolver.as_ref().map(Resolver::reload) {
                log::warn!("Still no name can be resolved for clients: {error}");
            }
        }
        if self.shards.can_resolve() {
            log::info!("The name servers are known, and the relay is an exit");
            self.resolves = true;
            self.schedule.on_change();
        }
    }

    /// Asks a shard to build a circuit through some relay to ourselves.
    fn probe(&mut self) {
        if self.probed_at.is_some_and(|at| at.elapsed() < PROBE_EVERY) {
            return;
        }
        let Some(consensus) = self.directory.consensus() else { return };
        let Some(path) = pick_path(consensus, &self.keys, &mut self.rng) else { return };
        self.probed_at = Some(Instant::now());
        let ourselves = Target {
            rsa: RsaId(self.keys.rsa_id()),
            ed25519: Some(Ed25519Id(self.keys.ed25519_id())),
            addrs: self.advertised.clone(),
        };
        log::debug!("Probing our ORPort over {} and {}", path[0].target.rsa, path[1].target.rsa);
        if let Some(handle) = self.shards.handles.first() {
            let _ = handle.control(Control::ProbeReachability { via: path, ourselves });
        }
    }

    fn publish(&mut self, now_unix_s: u64) {
        let listing = self
            .directory
            .consensus()
            .filter(|consensus| consensus.is_live(now_unix_s))
            .map(|consensus| consensus.listing(&self.keys.rsa_id()));
        let view = PublishView {
            now_unix_s,
            uptime_s: self.started.elapsed().as_secs(),
            observed_bandwidth: self.bandwidth.observed(),
            listing,
        };
        if let Some(posting) = self.posting.take() {
            self.posting = self.hear_of(posting);
            return;
        }
        let Some(reason) = self.schedule.poll(&view) else { return };
        let Some(descriptor) = self.describe(&view) else { return };
        self.schedule.on_signed();
        let descriptor = match sign_descriptor(&descriptor, &self.keys, now_unix_s) {
            Ok(descriptor) => descriptor,
            Err(error) => {
                log::error!("No descriptor: {error}");
                return self.schedule.on_published(&view, false);
            }
        };
        let (authorities, source) = (self.authorities.clone(), self.source);
        let post = move || {
            let outcomes = post_descriptor(&descriptor, &authorities, source).into_iter();
            let name = |authority: &DirAuthority| authority.nickname.clone();
            let named = |authority| name(authority).unwrap_or_else(|| "an authority".to_owned());
            outcomes.map(|(authority, outcome)| (named(authority), outcome)).collect()
        };
        match Background::start("publishing", post) {
            Ok(outcomes) => self.posting = Some(Posting { reason, view, outcomes }),
            Err(error) => {
                log::error!("The descriptor could not be posted: {error}");
                self.schedule.on_published(&view, false);
            }
        }
    }

    /// Gives `posting` back while it is under way.
    fn hear_of(&mut self, posting: Posting) -> Option<Posting> {
        let Some(result) = posting.outcomes.poll() else { return Some(posting) };
        let outcomes = result.unwrap_or_else(|panic| {
            log::error!("The descriptor could not be posted: {panic}");
            Vec::new()
        });
        outcomes.iter().for_each(|(authority, outcome)| log_outcome(authority, outcome));
        let accepted =
            outcomes.iter().filter(|(_, outcome)| matches!(outcome, PostOutcome::Accepted)).count();
        log::info!("Published our descriptor ({:?}); {accepted} authorities took it", posting.reason);
        self.schedule.on_published(&posting.view, accepted > 0);
        None
    }

    fn describe(&self, view: &PublishView) -> Option<DescriptorOptions> {
        let options = &self.options;
        let (ipv4, or_port) = self.advertised.iter().find_map(|addr| match addr {
            SocketAddr::V4(addr) => Some((*addr.ip(), addr.port())),
            SocketAddr::V6(_) => None,
        })?;
        let ipv6_or_address = self.advertised.iter().find_map(|addr| match addr {
            SocketAddr::V4(_) => None,
            SocketAddr::V6(addr) => Some(*addr),
        });
        let addresses: Vec<_> = self.advertised.iter().map(SocketAddr::ip).collect();
        let policy = if self.resolves { options.exit_policy(&addresses) } else { ExitPolicy::reject_all() };
        let (rate, burst) = options.relay_rate_and_burst();
        let clip = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX).min(i32::MAX as u32);
        Some(DescriptorOptions {
            nickname: options.nickname.clone(),
            ipv4,
            or_port,
            dir_port: 0,
            ipv6_or_address,
            platform: PLATFORM.to_owned(),
            protocols: PROTOCOLS.to_owned(),
            uptime_s: view.uptime_s,
            bandwidth: Bandwidth {
                rate: clip(rate.min(options.max_advertised_bandwidth)),
                burst: clip(burst),
                observed: view.observed_bandwidth.min(clip(options.max_advertised_bandwidth)),
            },
            contact: options.contact_info.clone(),
            family: options.my_family.clone(),
            hibernating: false,
            hidden_service_dir: false,
            tunnelled_dir_server: false,
            exit_policy: policy.descriptor_lines(),
            ipv6_policy: policy.ipv6_summary(),
        })
    }
}

fn log_outcome(name: &str, outcome: &PostOutcome) {
    match outcome {
        PostOutcome::Accepted => log::debug!("{name} took our descriptor"),
        PostOutcome::Refused { status, reason } => {
            log::warn!("{name} refused our descriptor: {status} {reason}");
        }
        PostOutcome::Unreachable(error) => log::debug!("{name} could not be asked: {error}"),
    }
}

/// Two running relays other than ourselves, at random: a relay does not extend a circuit back to
/// where it came from, so one is not enough.
fn pick_path(consensus: &Consensus, ours: &RelayKeys, rng: &mut Rng) -> Option<Vec<ProbeHop>> {
    let mut hops: Vec<ProbeHop> = consensus
        .relays
        .iter()
        .filter(|relay| relay.rsa_id != ours.rsa_id())
        .filter_map(|relay| {
            let ed25519 = Some(Ed25519Id(relay.ed25519_id?));
            let target = Target { rsa: RsaId(relay.rsa_id), ed25519, addrs: relay.or_addresses.clone() };
            Some(ProbeHop { target, ntor_key: relay.ntor_onion_key? })
        })
        .collect();
    let mut take = || {
        let chosen = usize::try_from(rng.below(hops.len() as u64)).ok()?;
        (chosen < hops.len()).then(|| hops.swap_remove(chosen))
    };
    Some(vec![take()?, take()?])
}
