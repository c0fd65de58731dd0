//! How long a plan takes.

use std::time::Duration;

use super::case::Case;
use super::model::{Arm, Plan};
use super::network::{Tor, TorArm};

/// What the coming and going of an arm's hosts takes, for the estimate of the time left.
const SETUP_ESTIMATE: Duration = Duration::from_secs(1);

/// What the network's coming up usually takes.
const STARTUP_ESTIMATE: Duration = Duration::from_secs(40);
/// What new circuits and the wait for steady streams usually take in a phase.
const PHASE_ESTIMATE: Duration = Duration::from_secs(9);

/// How long one run of a plan takes.
pub fn estimate(plan: &Plan) -> Duration {
    let of = |arm: &Arm| match (&arm.tor, &plan.tor) {
        (Some(arm), Some(network)) => of_network(network.as_ref(), arm),
        _ => (of_flows(arm) + SETUP_ESTIMATE) * (1 + u32::from(arm.repeat)),
    };
    plan.arms.iter().map(|arm| of(arm.as_ref())).sum()
}

/// How long an arm's flows take.
fn of_flows(arm: &Arm) -> Duration {
    let of = |case: &Case| {
        let bulk = case.bulk.as_ref().map(|bulk| bulk.duration);
        let share = case.share.as_ref().map(|share| share.apart + share.duration);
        let probe = case.probe.as_ref().map(|probe| probe.interval * probe.count as u32 + case.stragglers());
        let ping = case.ping.as_ref().map(|ping| ping.interval * ping.count as u32 + case.stragglers());
        bulk.or(share).or(probe).or(ping).unwrap_or_default()
    };
    arm.cases.iter().map(|case| of(case.as_ref())).max().unwrap_or_default()
}

/// How long an arm of a network takes.
fn of_network(tor: &Tor, arm: &TorArm) -> Duration {
    let phases = tor.phases_of(arm, 0);
    phases.map(|phase| PHASE_ESTIMATE + phase.warm_up + phase.duration).sum::<Duration>() + STARTUP_ESTIMATE
}
