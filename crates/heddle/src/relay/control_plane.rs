//! The control plane: what a relay does beside carrying cells.
//!
//! Once a second, on a thread of its own:
//!
//! 1. the shards' events are heard;
//! 2. a consensus is fetched when one is due, and its parameters go to the shards;
//! 3. keys and certificates are renewed when that is due;
//! 4. while nobody has shown that our ORPort is reachable, a shard is asked to find out;
//! 5. the descriptor is published when its schedule says so.

use super::bandwidth::Observed;
use super::metrics::Known;
use super::{Failure, link_identity, outcome};
use crate::torrc::Options;
use heddle_dir::authority::DirAuthority;
use heddle_dir::certs::ChannelCerts;
use heddle_dir::consensus::client::{DirectoryClient, FetchError};
use heddle_dir::consensus::{Consensus, Relay};
use heddle_dir::descriptor::{Bandwidth, DescriptorOptions, sign_descriptor};
use heddle_dir::keys::{OnionKeyLifetimes, RelayKeys, SigningRenewal};
use heddle_dir::publish::{PostOutcome, PublishSchedule, PublishView, post_descriptor};
use heddle_net::{LoopHandle, wall_clock};
use heddle_proto::channel::Target;
use heddle_proto::crypto::{NtorKeypair, OnionKeys};
use heddle_proto::ids::{Ed25519Id, RelayIds, RsaId};
use heddle_proto::relay::{Control, Event, NetworkParams, ProbeHop};
use heddle_proto::rng::{Rng, Seed};
use heddle_transport::PaddingOptions;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What the relay can do, in the words of tor-spec ("Subprotocol versioning"); nothing that is not
/// implemented.
const PROTOCOLS: &str = "Cons=2 Desc=2 FlowCtrl=1-2 Link=4-5 LinkAuth=3 Microdesc=2 Relay=2-4";
const PLATFORM: &str = concat!("Heddle ", env!("CARGO_PKG_VERSION"), " on Linux");
/// Between two reachability probes.
const PROBE_EVERY: Duration = Duration::from_secs(30);
const RENEW_EVERY_S: u64 = 3600;
/// How long before its end we warn of a signing key that we cannot replace.
const WARN_OF_MASTER_KEY_S: u64 = 7 * 24 * 3600;
/// Between two warnings of troubles with directories.
const COMPLAIN_EVERY: Duration = Duration::from_secs(3600);

/// The shards, as the control plane reaches them.
pub struct Reach {
    pub handles: Vec<LoopHandle>,
    pub events: Receiver<Event>,
    /// What metrics tell of the control plane.
    pub known: Known,
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

    /// Bytes carried: the smaller of what came in and what went out.
    fn carried_bytes(&self) -> u64 {
        let counters = self.handles.iter().map(LoopHandle::counters);
        let (read, written) = counters.fold((0, 0), |(read, written), counters| {
            let datagrams = (counters.datagram_recv_bytes, counters.datagram_send_bytes);
            (read + counters.recv_bytes + datagrams.0, written + counters.send_bytes + datagrams.1)
        });
        read.min(written)
    }
}

pub struct ControlPlane {
    options: Options,
    advertised: Vec<SocketAddr>,
    authorities: Vec<DirAuthority>,
    keys: RelayKeys,
    certs: Arc<ChannelCerts>,
    client: DirectoryClient,
    schedule: PublishSchedule,
    shards: Reach,
    seed: Seed,
    rng: Rng,
    started: Instant,
    observed: Observed,
    reachable: bool,
    probed_at: Option<Instant>,
    complained_at: Option<Instant>,
    renewed_unix_s: u64,
    transports_made: u64,
    padding: PaddingOptions,
    /// What the network asks of relays and we lack, as it was last logged.
    missing: Option<String>,
}

impl ControlPlane {
    /// Starts the thread, and hands the shards what they need first. The thread ends with the last shard; if it ends
    /// otherwise, `ended` is told.
    pub fn start(
        options: Options,
        keys: RelayKeys,
        certs: Arc<ChannelCerts>,
        advertised: Vec<SocketAddr>,
        shards: Reach,
        seed: Seed,
        ended: impl FnOnce(Result<(), String>) + Send + 'static,
    ) -> Result<JoinHandle<()>, Failure> {
        let now_unix_s = wall_clock().as_secs();
        let mut rng = seed.child("directory", 0).rng();
        let authorities: Vec<DirAuthority> = options.authorities().cloned().collect();
        let client =
            DirectoryClient::new(options.cache_directory(), authorities.clone(), now_unix_s, &mut rng);
        let mut plane = ControlPlane {
            reachable: options.assume_reachable,
            options,
            advertised,
            authorities,
            keys,
            certs,
            client,
            schedule: PublishSchedule::new(),
            shards,
            seed,
            rng,
            started: Instant::now(),
            observed: Observed::default(),
            probed_at: None,
            complained_at: None,
            renewed_unix_s: now_unix_s,
            transports_made: 0,
            padding: PaddingOptions::default(),
            missing: None,
        };
        plane.shards.known.set_signing_expires(plane.keys.signing_expires_unix_s());
        plane.warn_of_master_key(now_unix_s);
        plane.tell_onion_keys();
        plane.tell_params();
        plane.tell_peers();
        Ok(std::thread::Builder::new().name("control plane".into()).spawn(move || {
            if let Err(error) = outcome("the control plane", || plane.run()) {
                ended(Err(error));
            }
        })?)
    }

    fn run(mut self) {
        loop {
            match self.shards.events.recv_timeout(Duration::from_secs(1)) {
                Ok(event) => self.on_event(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now_unix_s = wall_clock().as_secs();
            self.observed.sample(now_unix_s, self.shards.carried_bytes());
            if self.client.is_due(now_unix_s) {
                self.fetch(now_unix_s);
            }
            // Also when the clock was set back, by however much.
            if now_unix_s.abs_diff(self.renewed_unix_s) >= RENEW_EVERY_S {
                self.renew(now_unix_s);
            }
            if !self.reachable {
                self.probe();
            } else if self.options.publish_server_descriptor {
                self.publish(now_unix_s);
            }
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
                log::warn!("MaxMemInQueues is used up; the circuit that held {freed_cells} cells was closed");
            }
            other => log::debug!("{other:?}"),
        }
    }

    fn fetch(&mut self, now_unix_s: u64) {
        match self.client.fetch(now_unix_s, &mut self.rng) {
            Ok(()) => self.complained_at = None,
            // The consensus is in use all the same.
            Err(error @ FetchError::Write { .. }) => self.complain(&error),
            Err(error) => {
                let is_live = |consensus: &Consensus| consensus.is_live(now_unix_s);
                return match self.client.consensus().is_some_and(is_live) {
                    true => log::debug!("No newer consensus: {error}"),
                    false => self.complain(&error),
                };
            }
        }
        let relays = self.client.consensus().map_or(0, |consensus| consensus.relays.len());
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
        let missing = self.client.consensus().and_then(|consensus| consensus.missing_protocols(PROTOCOLS));
        let missing = missing.map(|missing| missing.explanation);
        if missing != self.missing {
            if let Some(explanation) = &missing {
                log::info!("Not all that the network asks of relays is implemented: {explanation}");
            }
            self.missing = missing;
        }
    }

    fn tell_params(&mut self) {
        let params = self.client.consensus().map(|consensus| consensus.params.clone()).unwrap_or_default();
        let params = Arc::new(NetworkParams(params));
        self.shards.tell(|| Control::Params(params.clone()));
        let padding = link_identity::padding(&params);
        if padding != self.padding {
            self.padding = padding;
            self.replace_transports();
        }
    }

    /// Says which relays there are, by both identities. Those whose microdescriptor is not known are left out.
    fn tell_peers(&self) {
        let Some(consensus) = self.client.consensus() else { return };
        let ids = |relay: &Relay| {
            Some(RelayIds { rsa: RsaId(relay.rsa_id), ed25519: Ed25519Id(relay.ed25519_id?) })
        };
        let peers: Arc<BTreeSet<RelayIds>> = Arc::new(consensus.relays.iter().filter_map(ids).collect());
        let flags = consensus.relay(&self.keys.rsa_id()).map(|relay| relay.flags);
        self.shards.known.set_consensus(flags, peers.len());
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

    fn renew(&mut self, now_unix_s: u64) {
        self.renewed_unix_s = now_unix_s;
        let params = self.client.consensus().map(|consensus| consensus.params.clone()).unwrap_or_default();
        let lifetimes = OnionKeyLifetimes::from_params(&params);
        let renewal = match self.keys.renew(now_unix_s, lifetimes, &mut self.rng) {
            Ok(renewal) => renewal,
            Err(error) => {
                // Those of circuits' handshakes may be new all the same.
                self.tell_onion_keys();
                return log::error!("Keys could not be renewed: {error}");
            }
        };
        self.shards.known.set_signing_expires(self.keys.signing_expires_unix_s());
        self.warn_of_master_key(now_unix_s);
        let signing_changed = renewal.signing == SigningRenewal::Renewed;
        if renewal.onion_rotated || renewal.onion_expired {
            self.tell_onion_keys();
        }
        if renewal.onion_rotated || signing_changed {
            self.schedule.on_change();
        }
        if signing_changed || self.certs.renewal_due(now_unix_s) {
            self.renew_certs(now_unix_s);
        }
    }

    /// Without the master key here nobody but the operator can replace a signing key that is about to end.
    fn warn_of_master_key(&self, now_unix_s: u64) {
        let left_s = self.keys.signing_expires_unix_s().saturating_sub(now_unix_s);
        if self.options.offline_master_key && left_s < WARN_OF_MASTER_KEY_S {
            log::warn!(
                "The signing key ends in {} hours, and the relay with it: make a new one with `tor --keygen` where the \
                 master key is, and put ed25519_signing_cert and ed25519_signing_secret_key into {}",
                left_s / 3600,
                self.keys.directory().display()
            );
        }
    }

    fn renew_certs(&mut self, now_unix_s: u64) {
        match ChannelCerts::create(&self.keys, now_unix_s, &mut self.rng) {
            Ok(certs) => self.certs = Arc::new(certs),
            Err(error) => return log::error!("Link certificates could not be renewed: {error}"),
        }
        self.replace_transports();
    }

    /// Channels from now on are made anew; those that are open go on as they are.
    fn replace_transports(&mut self) {
        for handle in &self.shards.handles {
            self.transports_made += 1;
            let seed = self.seed.child("tls", self.transports_made);
            let padding = self.padding.clone();
            match link_identity::transport(&self.keys, &self.certs, &self.advertised, padding, seed) {
                Ok(transport) => drop(handle.control(Control::Transport(Box::new(transport)))),
                Err(error) => log::error!("New channels are made as before: {error}"),
            }
        }
    }

    /// Asks a shard to build a circuit through some relay to ourselves.
    fn probe(&mut self) {
        if self.probed_at.is_some_and(|at| at.elapsed() < PROBE_EVERY) {
            return;
        }
        let Some(consensus) = self.client.consensus() else { return };
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
            .client
            .consensus()
            .filter(|consensus| consensus.is_live(now_unix_s))
            .map(|consensus| consensus.listing(&self.keys.rsa_id()));
        let view = PublishView {
            now_unix_s,
            uptime_s: self.started.elapsed().as_secs(),
            observed_bandwidth: self.observed.bytes_per_s(),
            listing,
        };
        let Some(reason) = self.schedule.poll(&view) else { return };
        let Some(descriptor) = self.describe(&view) else { return };
        let accepted = match sign_descriptor(&descriptor, &self.keys, now_unix_s) {
            Ok(descriptor) => {
                let outcomes = post_descriptor(&descriptor, &self.authorities);
                outcomes.iter().for_each(|(authority, outcome)| log_outcome(authority, outcome));
                let accepted =
                    outcomes.iter().filter(|(_, outcome)| matches!(outcome, PostOutcome::Accepted));
                accepted.count()
            }
            Err(error) => {
                log::error!("No descriptor: {error}");
                0
            }
        };
        log::info!("Published our descriptor ({reason:?}); {accepted} authorities took it");
        self.schedule.on_published(&view, accepted > 0);
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
        let policy = options.exit_policy(&addresses);
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

fn log_outcome(authority: &DirAuthority, outcome: &PostOutcome) {
    let name = authority.nickname.as_deref().unwrap_or("an authority");
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
