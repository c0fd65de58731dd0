//! Which relays are upgraded where only a part of the network is, and which clients go over upgraded ones alone.
//!
//! The seed puts all relays in an order. Those are upgraded with whom, in this order, a part of all rates is reached:
//! so who is upgraded in a smaller part is so in a greater one, too, and arms with several parts have one network.

use super::drawn::chance;
use super::network::{Relay, Tor, TorArm};
use crate::arm::Transport;
use toml::Spanned;

/// The label of clients that says from which part on all their relays are upgraded.
const LABEL: &str = "upgraded_from";

/// For each relay, up to which part of all rates those have come that are upgraded before it, and half of its own.
/// Relays without rates count alike.
pub(super) fn ranks(seed: u64, relays: &[(&str, Option<f64>)]) -> Vec<f64> {
    let mut order: Vec<(f64, usize)> = relays
        .iter()
        .enumerate()
        .map(|(at, (name, _))| (chance(seed, "upgrade", &[name]).unit(), at))
        .collect();
    order.sort_by(|one, other| one.0.total_cmp(&other.0));
    let rate = |at: usize| relays[at].1.unwrap_or(1.0);
    let all: f64 = (0..relays.len()).map(rate).sum();
    let mut ranks = vec![0.0; relays.len()];
    let mut before = 0.0;
    for (_, at) in order {
        ranks[at] = (before + rate(at) / 2.0) / all;
        before += rate(at);
    }
    ranks
}

impl TorArm {
    /// What it makes of a relay.
    pub(crate) fn transport_of(&self, relay: &Relay) -> Transport {
        let is_upgraded = self.upgraded.is_none_or(|part| relay.upgrade_rank.unwrap_or(0.0) < part);
        relay.transport.unwrap_or(if is_upgraded { self.transport } else { Transport::Tls })
    }
}

impl Tor {
    /// Gives clients of a network that is drawn the label that says from which of its `upgrade_steps` on all relays on
    /// their path are upgraded.
    pub(super) fn label_by_upgrades(&mut self) {
        if self.upgrade_steps.is_empty() {
            return;
        }
        let rank_of = |name: &String| {
            let mut relays = self.relays.iter().map(Spanned::as_ref);
            relays.find(|relay| relay.name == *name).and_then(|relay| relay.upgrade_rank).unwrap_or(1.0)
        };
        let from = |path: &[String]| {
            let last = path.iter().map(rank_of).fold(0.0, f64::max);
            self.upgrade_steps.iter().copied().find(|step| last < *step)
        };
        let steps: Vec<Option<f64>> = self.clients.iter().map(|client| from(&client.as_ref().path)).collect();
        for (client, step) in self.clients.iter_mut().zip(steps) {
            let value = step.map_or_else(|| "never".to_owned(), |step| format!("{} %", 100.0 * step));
            client.get_mut().labels.insert(LABEL.to_owned(), value);
        }
    }
}

/// What is wrong with the parts that a network names.
pub(super) fn fault(steps: &[f64]) -> Option<&'static str> {
    let are_parts = steps.iter().all(|step| is_part(*step));
    (!are_parts || !steps.is_sorted()).then_some("upgrade_steps rise, each from 0 to 1")
}

/// Whether it is a part of a network.
pub(super) fn is_part(part: f64) -> bool {
    (0.0..=1.0).contains(&part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_of_all_rates_and_one_within_another() {
        let names: Vec<String> = (0..200).map(|number| format!("relay{number}")).collect();
        let relays: Vec<(&str, Option<f64>)> =
            names.iter().enumerate().map(|(at, name)| (&**name, Some(1.0 + at as f64))).collect();
        let all: f64 = relays.iter().filter_map(|(_, rate)| *rate).sum();
        let ranks = super::ranks(1, &relays);
        for part in [0.1, 0.3, 0.6] {
            let upgraded = relays.iter().zip(&ranks).filter(|(_, rank)| **rank < part);
            let rate: f64 = upgraded.filter_map(|((_, rate), _)| *rate).sum();
            assert!((rate / all - part).abs() < 0.01, "{part}: {}", rate / all);
        }
        assert!(
            ranks.iter().all(|rank| *rank > 0.0 && *rank < 1.0),
            "none of it is nothing, all is everything"
        );
        assert_eq!(ranks, super::ranks(1, &relays));
        assert_ne!(ranks, super::ranks(2, &relays));
    }

    #[test]
    fn steps_rise() {
        assert_eq!(fault(&[0.1, 0.3, 1.0]), None);
        for bad in [&[0.3, 0.1][..], &[1.1], &[-0.1, 0.2], &[f64::NAN]] {
            assert!(fault(bad).is_some(), "{bad:?}");
        }
    }
}
