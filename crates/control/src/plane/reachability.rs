//! Whether others reach our ORPort.

use crate::language::Wanted;
use heddle_dir::consensus::Consensus;
use heddle_proto::channel::Target;
use heddle_relay::{Control, ProbeHop};
use heddle_seam::rng::Rng;
use heddle_seam::time::{Duration, Instant};

/// Between two reachability probes.
const PROBE_EVERY: Duration = Duration::from_secs(30);
/// So long nobody may reach us until the operator hears it, as in stock Tor.
const COMPLAIN_AFTER: Duration = Duration::from_secs(20 * 60);
/// Between two such warnings.
const COMPLAIN_EVERY: Duration = Duration::from_secs(3600);

pub(crate) struct Reachability {
    /// What the operator says.
    assumed: bool,
    reached: bool,
    /// Whether others reached us at an address that we had before.
    was_reached: bool,
    probed_at: Option<Instant>,
    complain_at: Option<Instant>,
}

impl Reachability {
    pub fn new(assumed: bool) -> Self {
        Reachability { assumed, reached: assumed, was_reached: false, probed_at: None, complain_at: None }
    }

    /// We are somewhere else now, and whether others reach us there is not known.
    pub fn begin_anew(&mut self) {
        if self.reached {
            (self.was_reached, self.complain_at) = (true, None);
        }
        (self.reached, self.probed_at) = (self.assumed, None);
    }

    /// Whether the relay is published. One that was reached elsewhere is, because authorities test it for themselves,
    /// and because peers that have channels with us need not dial us to extend a circuit to us, so that a test may
    /// find nobody for long.
    pub fn may_publish(&self) -> bool {
        self.reached || self.was_reached
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

    /// What is to be said of a relay that looks for somebody who reaches it, and finds nobody for long.
    pub fn complain(&mut self, now: Instant, consensus: &Consensus, ourselves: &Target) -> Option<String> {
        let at = *self.complain_at.get_or_insert(now + COMPLAIN_AFTER);
        if self.reached || now < at {
            return None;
        }
        self.complain_at = Some(now + COMPLAIN_EVERY);
        let others = others(consensus, ourselves).count();
        let addrs: Vec<String> = ourselves.addrs.iter().map(ToString::to_string).collect();
        let addrs = addrs.join(" and ");
        if self.was_reached {
            return Some(format!(
                "Nobody has reached our ORPort at {addrs} yet, where the relay is published because others reached it \
                 elsewhere before. Look whether firewalls let TCP connections through to it"
            ));
        }
        if others < 2 {
            return Some(format!(
                "Whether our ORPort can be reached is not known, and the relay is not published: two other relays are \
                 needed to find out, and the consensus has {others} with all that a circuit needs. AssumeReachable 1 \
                 does without"
            ));
        }
        Some(format!(
            "Nobody has reached our ORPort at {addrs}, so the relay is not published. Look whether firewalls let TCP \
             connections through to it, whether the port is forwarded, and whether Address and ORPort are right"
        ))
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
    let mut hops: Vec<ProbeHop> = others(consensus, ourselves).collect();
    let mut take = || {
        let chosen = usize::try_from(rng.below(hops.len() as u64)).ok()?;
        (chosen < hops.len()).then(|| hops.swap_remove(chosen))
    };
    Some(vec![take()?, take()?])
}

/// The other relays of which we know what a circuit needs.
fn others<'a>(consensus: &'a Consensus, ourselves: &Target) -> impl Iterator<Item = ProbeHop> + use<'a> {
    let ours = ourselves.rsa.0;
    let others = consensus.relays.iter().filter(move |relay| relay.rsa_id != ours);
    others.filter_map(|relay| {
        let (target, ntor_key) = relay.hop()?;
        Some(ProbeHop { target, ntor_key })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_dir::consensus::Relay;
    use heddle_proto::ids::RsaId;
    use heddle_seam::rng::Seed;
    use std::collections::BTreeSet;

    fn relay(number: u8) -> Relay {
        Relay {
            rsa_id: [number; 20],
            ed25519_id: Some([number; 32]),
            ntor_onion_key: Some([number; 32]),
            ..Relay::default()
        }
    }

    #[test]
    fn the_operator_hears_why_a_relay_is_not_published() {
        let mut consensus = Consensus::default();
        consensus.relays = vec![relay(1), relay(2)];
        let addrs = vec!["192.0.2.5:9001".parse().unwrap(), "[2001:db8::5]:9001".parse().unwrap()];
        let ourselves = Target { rsa: RsaId([2; 20]), ed25519: None, addrs };
        let mut reachability = Reachability::new(false);
        let minutes = |minutes: u64| Instant::ZERO + Duration::from_secs(60 * minutes);
        let mut complain =
            |at, consensus: &Consensus| reachability.complain(minutes(at), consensus, &ourselves);
        assert_eq!((complain(5, &consensus), complain(24, &consensus)), (None, None));
        let said = complain(25, &consensus).unwrap();
        assert!(said.contains("the consensus has 1 with"), "{said}");
        consensus.relays.push(relay(3));
        assert_eq!(complain(84, &consensus), None);
        let said = complain(85, &consensus).unwrap();
        assert!(said.contains("at 192.0.2.5:9001 and [2001:db8::5]:9001, so"), "{said}");
        reachability.on_reached();
        assert_eq!(reachability.complain(minutes(600), &consensus, &ourselves), None);
    }

    #[test]
    fn one_that_moves_is_published_if_it_was_reached_before() {
        let mut consensus = Consensus::default();
        consensus.relays = vec![relay(1), relay(3)];
        let addrs = vec!["192.0.2.6:9001".parse().unwrap()];
        let ourselves = Target { rsa: RsaId([2; 20]), ed25519: None, addrs };
        let minutes = |minutes: u64| Instant::ZERO + Duration::from_secs(60 * minutes);
        let mut reachability = Reachability::new(false);
        assert_eq!(reachability.complain(minutes(0), &consensus, &ourselves), None);
        // As often as it moves before anybody reached it, the operator hears of it in time.
        reachability.begin_anew();
        assert!(!reachability.may_publish());
        assert!(
            reachability.complain(minutes(20), &consensus, &ourselves).unwrap().contains("not published")
        );
        reachability.on_reached();
        reachability.begin_anew();
        assert!(reachability.may_publish() && !reachability.is_reached());
        assert_eq!(reachability.complain(minutes(100), &consensus, &ourselves), None);
        let said = reachability.complain(minutes(120), &consensus, &ourselves).unwrap();
        assert!(said.contains("at 192.0.2.6:9001 yet, where the relay is published"), "{said}");
        let mut assumed = Reachability::new(true);
        assumed.begin_anew();
        assert!(assumed.is_reached() && assumed.may_publish());
    }

    #[test]
    fn a_probe_goes_over_two_others_whichever() {
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
