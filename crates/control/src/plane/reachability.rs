//! Whether others reach our ORPort.

use super::ControlPlane;
use crate::language::Wanted;
use heddle_dir::consensus::Consensus;
use heddle_dir::keys::RelayKeys;
use heddle_proto::channel::Target;
use heddle_proto::ids::{Ed25519Id, RsaId};
use heddle_relay::{Control, ProbeHop};
use heddle_seam::rng::Rng;
use heddle_seam::time::{Duration, Instant};

/// Between two reachability probes.
const PROBE_EVERY: Duration = Duration::from_secs(30);

impl ControlPlane {
    /// Asks a shard to build a circuit through some relays to ourselves.
    pub(super) fn probe(&mut self, now: Instant) {
        if self.probed_at.is_some_and(|at| now.since(at) < PROBE_EVERY) {
            return;
        }
        let keys = &self.identity.keys;
        let Some(consensus) = self.directory.consensus() else { return };
        let Some(path) = pick_path(consensus, keys, &mut self.rng) else { return };
        self.probed_at = Some(now);
        let ourselves = Target {
            rsa: RsaId(keys.rsa_id()),
            ed25519: Some(Ed25519Id(keys.ed25519_id())),
            addrs: self.options.advertised.clone(),
        };
        log::debug!("Probing our ORPort over {} and {}", path[0].target.rsa, path[1].target.rsa);
        let control = Control::ProbeReachability { via: path, ourselves };
        self.wanted.push_back(Wanted::Tell { shard: 0, control });
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
