//! Arms whose flows go over single wires.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use heddle_netem::WireOptions;

use super::pings;
use super::sampled::Sampled;
use crate::backend::{Deployment, Outcome, WireFlow};
use crate::emulator::{EmulatedHostOptions, KernelOptions, NetworkOptions};
use crate::plan::{Arm, Case};

/// What an arm's flows need: two hosts for each, the sender first, and the wire between them.
pub(super) fn deployment(arm: &Arm, kernel: &KernelOptions, seed: u64) -> Deployment {
    let mut network = NetworkOptions { kernel: kernel.clone(), ..NetworkOptions::default() };
    for (place, case) in arm.flows().enumerate() {
        let [from, to] = host_names(arm, place);
        let bulk = case.bulk.as_ref().map(|bulk| &bulk.congestion_control);
        let share = case.share.as_ref().map(|share| &share.congestion_control);
        for name in [&from, &to] {
            let number = network.hosts.len() as u32 + 1;
            // One for the kernel's connection and one for that of `utcp`.
            let is_shared = case.share.is_some() && name == &from;
            network.hosts.push(EmulatedHostOptions {
                name: name.clone(),
                congestion_control: bulk.or(share).cloned(),
                addresses: if is_shared { shared_addresses(number) } else { Vec::new() },
                ..EmulatedHostOptions::default()
            });
        }
        network.wires.push(WireOptions { from, to, there: case.wire.clone(), back: case.back.clone() });
    }
    Deployment { network, seed, ..Deployment::default() }
}

/// The flows of an arm over the wires of its deployment.
pub(super) fn flows<'a>(arm: &'a Arm, deployment: &'a Deployment) -> Vec<WireFlow<'a>> {
    let wires = arm.flows().zip(&deployment.network.wires);
    wires.map(|(case, wire)| WireFlow { from: &wire.from, to: &wire.to, case }).collect()
}

/// Two addresses of the host with this number; the first is the automatic one.
fn shared_addresses(number: u32) -> Vec<IpAddr> {
    let [_, _, high, low] = number.to_be_bytes();
    [0, 1].map(|net| Ipv4Addr::new(10, net, high, low).into()).to_vec()
}

/// Hosts' names label the seeds of their wires: no two arms share one, unless they are to meet the same fates.
fn host_names(arm: &Arm, place: usize) -> [String; 2] {
    let arm = arm.wires_as.as_ref().unwrap_or(&arm.name);
    ["sender", "receiver"].map(|end| format!("{arm}-{place}-{end}"))
}

/// The samples of an arm's outcomes.
pub(super) fn samples(arm: &Arm, outcomes: &[Outcome]) -> Vec<Sampled> {
    let of = |(case, outcome): (&Case, &Outcome)| {
        let one = |sampled: Sampled| sampled.with(case.labels.clone());
        of_outcome(case, outcome).into_iter().map(one).collect::<Vec<_>>()
    };
    arm.flows().zip(outcomes).flat_map(of).collect()
}

/// The samples of a repetition.
pub(super) fn differences(arm: &Arm, first: &[Outcome], second: &[Outcome]) -> Vec<Sampled> {
    let of = |(case, (first, second)): (&Case, (&Outcome, &Outcome))| {
        let one = |(name, values)| Sampled::new(name, values).with(case.labels.clone());
        between(first, second).into_iter().map(one).collect::<Vec<_>>()
    };
    arm.flows().zip(first.iter().zip(second)).flat_map(of).collect()
}

/// The samples of an outcome.
fn of_outcome(case: &Case, outcome: &Outcome) -> Vec<Sampled> {
    match outcome {
        Outcome::Bulk { mbit_s } => vec![Sampled::one("goodput_mbit_s", *mbit_s)],
        Outcome::Share { share, together_mbit_s } => {
            vec![
                Sampled::one("share_beside_linux", *share),
                Sampled::one("together_mbit_s", *together_mbit_s),
            ]
        }
        Outcome::Ping { rtts_ms } => pings::samples(rtts_ms, case.directions()),
        Outcome::Probe { delays_ms } => of_probes(delays_ms),
    }
}

/// The samples of datagrams one way.
fn of_probes(delays_ms: &[Option<f64>]) -> Vec<Sampled> {
    let arrived = delays_ms.iter().copied().flatten().collect();
    let lost =
        |thousand: &[Option<f64>]| thousand.iter().filter(|probe| probe.is_none()).count() as f64 / 10.0;
    let losses = delays_ms.chunks_exact(1000).map(lost).collect();
    vec![Sampled::new("delay_ms", arrived), Sampled::new("loss_pct", losses)]
}

/// In how many fates the two differ, and by how much the delays of probes that arrived
/// both times do.
fn between(first: &Outcome, second: &Outcome) -> BTreeMap<&'static str, Vec<f64>> {
    let (Outcome::Probe { delays_ms: first }, Outcome::Probe { delays_ms: second }) = (first, second) else {
        return BTreeMap::new();
    };
    let pairs = || first.iter().zip(second);
    let lost_once = pairs().filter(|(a, b)| a.is_some() != b.is_some()).count() as f64;
    let apart = pairs().filter_map(|(a, b)| Some((a.as_ref()? - b.as_ref()?).abs())).collect();
    BTreeMap::from([("repeated_loss_differences", vec![lost_once]), ("repeated_delay_difference_ms", apart)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fates_of_probes_are_counted_and_compared() {
        let fates = |lost: usize| {
            let fate = |number: usize| (number >= lost).then_some(number as f64);
            (0..2000).map(fate).collect::<Vec<_>>()
        };
        let samples = of_probes(&fates(7));
        assert_eq!((samples[0].values.len(), &*samples[1].values), (1993, &[0.7, 0.0][..]));
        let probes = |lost: usize| Outcome::Probe { delays_ms: fates(lost) };
        let again = between(&probes(7), &probes(10));
        assert_eq!(again["repeated_loss_differences"], [3.0]);
        assert_eq!(again["repeated_delay_difference_ms"], [0.0; 1990]);
    }
}
