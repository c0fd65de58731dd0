//! Relays of the assembly, with keys and certificates, on hosts of the simulator.

use crate::OR_PORT;
use crate::mischief::Mischief;
use crate::relay_options::{RelayOptions, shards};
use core::net::IpAddr;
use heddle_assembly::{Assembly, Offered, Over, Setup, queue_bytes_max};
use heddle_client::Hop;
use heddle_dir::certs::ChannelCerts;
use heddle_dir::files::{Files, InMemory};
use heddle_dir::keys::{KeyOptions, RelayKeys};
use heddle_proto::channel::Target;
use heddle_proto::crypto::{NtorKeypair, OnionKeys};
use heddle_proto::ids::{Ed25519Id, RelayIds, RsaId};
use heddle_relay::{Control, Limits, ListedRelay, Relay, RelayLanguage, Relays};
use heddle_seam::language::Language;
use heddle_seam::node::{PortId, StackId};
use heddle_seam::rng::{Entropy, Repeatable, Rng, Seed};
use heddle_seam::stopwatch::Stopwatch;
use heddle_sim::{AnyNode, Host, HostId, Simulation};
use heddle_torrc::{Options, UdpPort};
use heddle_transport::Ciphers;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};
use zeroize::Zeroizing;

/// A relay of the network.
#[derive(Clone)]
pub struct RelayHost {
    pub host: HostId,
    pub hop: Hop,
    pub shards: u16,
}

/// A relay that has no host yet.
pub struct MadeRelay {
    nodes: Vec<Relay>,
    hop: Hop,
    keys: Arc<OnionKeys>,
    options: RelayOptions,
}

impl MadeRelay {
    /// Makes a relay with the keys that all relays of this number have, and chance of its own.
    pub fn new(sim: &Simulation<RelayLanguage>, index: usize, options: RelayOptions) -> Self {
        let identity = identity(index);
        let seed = sim.seed().child("relay", index as u64);
        let (ids, addr) = (identity.ids(), options.addr);
        let setup = setup(&options.torrc, addr, Limits::default());
        let nodes = assemble(&setup, &identity.keys, &identity.certs, &seed, (options.ciphers, None));
        let onion = NtorKeypair::generate(&mut seed.child("onion key", 0).rng());
        let hop = Hop {
            target: Target { rsa: ids.rsa, ed25519: Some(ids.ed25519), addrs: vec![(addr, OR_PORT).into()] },
            ntor_key: *onion.public(),
        };
        let keys = Arc::new(OnionKeys {
            rsa_id: ids.rsa.0,
            ed25519_id: ids.ed25519.0,
            ntor_current: onion,
            ntor_previous: None,
        });
        MadeRelay { nodes, hop, keys, options }
    }

    /// Its host, with these nodes beside its shards.
    pub fn host(
        &mut self,
        ports: Vec<u16>,
        beside: Vec<Box<dyn AnyNode<RelayLanguage>>>,
    ) -> Host<RelayLanguage> {
        let node = |relay| -> Box<dyn AnyNode<RelayLanguage>> { Box::new(relay) };
        let nodes = std::mem::take(&mut self.nodes).into_iter().map(node).collect();
        Host { addrs: vec![self.options.addr], ports, nodes, beside, plain: false }
    }

    /// Opens its UDP ports and its transports' stacks, and tells it what its control plane would.
    pub fn settle(self, sim: &mut Simulation<RelayLanguage>, host: HostId) -> RelayHost {
        open_ports(sim, host, &self.options.torrc);
        let (shards, params) = (shards(&self.options.torrc), Arc::new(self.options.params));
        for shard in 0..usize::from(shards) {
            sim.control(host, shard, Control::OnionKeys(self.keys.clone()));
            sim.control(host, shard, Control::Params(params.clone()));
        }
        RelayHost { host, hop: self.hop, shards }
    }
}

/// Tells each of these relays of all of them.
pub fn introduce<'a>(
    sim: &mut Simulation<RelayLanguage>,
    relays: impl Iterator<Item = &'a RelayHost> + Clone,
) {
    let listed = |relay: &RelayHost| {
        let Target { rsa, ed25519, addrs } = relay.hop.target.clone();
        ListedRelay { rsa, ed25519, or_addrs: addrs }
    };
    let peers = Arc::new(Relays::new(relays.clone().map(listed), []));
    for relay in relays {
        for shard in 0..usize::from(relay.shards) {
            sim.control(relay.host, shard, Control::Peers(peers.clone()));
        }
    }
}

/// What a simulated machine at this address adds to a relay's options: no bounds but these.
pub(crate) fn setup(torrc: &Options, addr: IpAddr, limits: Limits) -> Setup<'_> {
    Setup {
        options: torrc,
        platform: "Heddle in virtual time",
        advertised: vec![(addr, OR_PORT).into()],
        shards: shards(torrc),
        queue_bytes_max: queue_bytes_max(torrc, None),
        sockets_max: None,
        limits,
    }
}

/// The shards of a relay, be it a malicious one.
pub(crate) fn assemble(
    setup: &Setup<'_>,
    keys: &RelayKeys,
    certs: &Arc<ChannelCerts>,
    seed: &Seed,
    (ciphers, mischief): (Ciphers, Option<&Arc<Mischief>>),
) -> Vec<Relay> {
    let assembly = Assembly::new(setup, keys, certs, *ANCHOR).with_ciphers(ciphers);
    let mut relays: Vec<Relay> = Vec::new();
    for shard in 0..setup.shards {
        let seed = seed.child("shard", shard.into());
        let transports = (0..).zip(setup.options.heddle.over_datagrams());
        let offered = transports.map(|(place, transport)| Offered {
            port: PortId(place),
            number: udp_port(setup.options, shard, place),
            transport,
        });
        let chance = |part: &str| -> Box<dyn Entropy> { Box::new(Repeatable::new(&seed.child(part, 0))) };
        let offered: Vec<_> = offered.collect();
        let (first, stopwatch) = (relays.first(), Stopwatch::default());
        let relay = match mischief {
            None => assembly.shard(shard, &offered, first, &stopwatch, &chance),
            Some(mischief) => {
                let channels = |channels| mischief.over_channels(channels);
                let endpoint = |endpoint| mischief.over_endpoint(endpoint);
                let over = Over { channels: &channels, endpoint: &endpoint };
                assembly.shard_over(shard, &offered, first, &stopwatch, &chance, &over)
            }
        };
        relays.push(relay.expect("keys and options are good"));
    }
    relays
}

/// Opens the UDP ports of a relay's shards, and the stacks of its transports.
pub(crate) fn open_ports<L: Language>(sim: &mut Simulation<L>, host: HostId, torrc: &Options) {
    let transports = || (0..).zip(torrc.heddle.over_datagrams());
    for shard in 0..shards(torrc) {
        let ports: Vec<u16> = transports().map(|(place, _)| udp_port(torrc, shard, place)).collect();
        sim.open_ports(host, shard.into(), &ports);
        for (place, stack) in transports().filter_map(|(place, line)| Some((place, line.stack?))) {
            sim.open_stack(host, shard.into(), StackId(place), stack);
        }
    }
}

/// The first shard's for its first transport, where the operator chose none.
pub const FIRST_UDP_PORT: u16 = 4430;

/// Each shard has a port of its own for each transport.
fn udp_port(torrc: &Options, shard: u16, place: u8) -> u16 {
    match torrc.heddle.udp_port {
        UdpPort::Fixed(first) => first + u16::from(place) * shards(torrc) + shard,
        _ => FIRST_UDP_PORT + shard + 100 * u16::from(place),
    }
}

/// What virtual time counts from; nothing else depends on it.
static ANCHOR: LazyLock<std::time::Instant> = LazyLock::new(|| {
    #[expect(clippy::disallowed_methods, reason = "libraries want a time that only this makes")]
    std::time::Instant::now()
});

/// Keys and certificates, made once in a process, because RSA takes its time.
struct Identity {
    keys: RelayKeys,
    certs: Arc<ChannelCerts>,
}

impl Identity {
    fn ids(&self) -> RelayIds {
        RelayIds { rsa: RsaId(self.keys.rsa_id()), ed25519: Ed25519Id(self.keys.ed25519_id()) }
    }
}

fn identity(index: usize) -> Arc<Identity> {
    static MADE: Mutex<Vec<Option<Arc<Identity>>>> = Mutex::new(Vec::new());
    let mut made = MADE.lock().expect("nobody fails while he makes keys");
    if made.len() <= index {
        made.resize(index + 1, None);
    }
    made[index].get_or_insert_with(|| Arc::new(make_identity(index as u64))).clone()
}

/// A relay's other RSA key, for handshakes that nobody makes any more: only descriptors name it, and these relays have
/// none. To make one takes as long as all the rest of an identity, and so they have the same.
static TAP_KEY: LazyLock<Zeroizing<Vec<u8>>> = LazyLock::new(|| {
    let files = Arc::new(InMemory::default());
    make_keys(files.clone(), &mut Seed::from_number(0).child("tap", 0).rng());
    files.read(Path::new(TAP_PATH), 1 << 16).expect("it is in memory").expect("it was made")
});
const TAP_PATH: &str = "data/keys/secret_onion_key";

fn make_keys(files: Arc<InMemory>, rng: &mut Rng) -> RelayKeys {
    let options = KeyOptions { files, ..KeyOptions::new("data", "heddle") };
    let unix_s = heddle_sim::Options::default().wall.as_secs();
    RelayKeys::load_or_create(options, unix_s, rng).expect("keys are made")
}

fn make_identity(index: u64) -> Identity {
    let mut rng = Seed::from_number(index).child("identity", index).rng();
    let unix_s = heddle_sim::Options::default().wall.as_secs();
    let files = Arc::new(InMemory::default());
    let path = Path::new(TAP_PATH);
    path.parent().map_or(Ok(()), |folder| files.create_private_dir(folder)).expect("there is room");
    files.write(path, &TAP_KEY).expect("there is room");
    let keys = make_keys(files, &mut rng);
    let certs = Arc::new(ChannelCerts::create(&keys, unix_s, &mut rng).expect("certificates are made"));
    Identity { keys, certs }
}
