//! Whether others reach our ORPort.

use crate::language::Wanted;
use heddle_dir::consensus::Consensus;
use heddle_proto::channel::Target;
use heddle_relay::{Control, ProbeHop};
use heddle_seam::rng::Rng;
use heddle_seam::time::{Duration, Instant};

/// Between two reachability probes.
const PROBE_EVERY: Duration = Duration::from_secs(30);

pub(crate) struct Reachability {
    reached: bool,
    probed_at: Option<Instant>,
}

impl Reachability {
    pub fn new(reached: bool) -> Self {
        Reachability { reached, probed_at: None }
    }

    pub(crate) fn is_reached(&self) -> bool {
        self.reached
    }

    pub(crate) fn on_reached(&mut self) {
        if !self.reached {
            self.reached = true;
            log::info!("Our ORPort is reachable from the outside");
        }
    }

    /// Has a shard build a circuit through some relays to `ourselves`, when that is due and there are any.
    pub fn probe(
        &mut self,
        now: Instant,
        consensus: &Consensus,
        ourselves: Target,
        rng: &mut Rng,
    ) -> Option<Wanted> {
        if self.probed_at.is_some_and(|at| now.since(at) < PROBE_EVERY) {
            return None;
        }
        let via = pick_path(consensus, &ourselves, rng)?;
        self.probed_at = Some(now);
        log::debug!("Probing our ORPort over {} and {}", via[0].target.rsa, via[1].target.rsa);
        Some(Wanted::Tell { shard: 0, control: Control::ProbeReachability { via, ourselves } })
    }
}

/// Two running relays other than ourselves, at random: a relay does not extend a circuit back to
/// where it came from, so one is not enough.
fn pick_path(consensus: &Consensus, ourselves: &Target, rng: &mut Rng) -> Option<Vec<ProbeHop>> {
    let others = consensus.relays.iter().filter(|relay| relay.rsa_id != ourselves.rsa.0);
    let hop = others.filter_map(|relay| {
        let (target, ntor_key) = relay.hop()?;
        Some(ProbeHop { target, ntor_key })
    });
    let mut hops: Vec<ProbeHop> = hop.collect();
    let mut take = || {
        let chosen = usize::try_from(rng.below(hops.len() as u64)).ok()?;
        (chosen < hops.len()).then(|| hops.swap_remove(chosen))
    };
    Some(vec![take()?, take()?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_dir::consensus::Relay;
    use heddle_proto::ids::RsaId;
    use heddle_seam::rng::Seed;
    use std::collections::BTreeSet;

    #[test]
    fn a_probe_goes_over_two_others_whichever() {
        let relay = |number: u8| Relay {
            rsa_id: [number; 20],
            ed25519_id: Some([number; 32]),
            ntor_onion_key: Some([number; 32]),
            ..Relay::default()
        };
        let mut consensus = Consensus::default();
        consensus.relays = (0..4).map(relay).collect();
        // One of which not enough is known.
        consensus.relays.push(Relay { ntor_onion_key: None, ..relay(4) });
        let ourselves = Target { rsa: RsaId([2; 20]), ed25519: None, addrs: Vec::new() };
        let mut rng = Seed::from_number(1).rng();
        let mut seen = BTreeSet::new();
        for _ in 0..200 {
            let via = pick_path(&consensus, &ourselves, &mut rng).unwrap();
            seen.insert([via[0].target.rsa.0[0], via[1].target.rsa.0[0]]);
        }
        let pairs = [[0, 1], [0, 3], [1, 0], [1, 3], [3, 0], [3, 1]];
        assert_eq!(seen, BTreeSet::from(pairs));
        consensus.relays.truncate(3);
        consensus.relays.remove(0);
        assert!(pick_path(&consensus, &ourselves, &mut rng).is_none(), "one other is not enough");
    }
}
