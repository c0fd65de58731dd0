//! The first fault of a plan that its form alone does not show.

use std::collections::BTreeSet;
use std::time::Duration;

use heddle_netem::{DirectionOptions, HostOptions, TopologyOptions, WireOptions};
use toml::Spanned;

use super::case::{Case, Tcp, check_probes};
use super::model::{Arm, Compare, Plan, Target};
use super::network::{Tor, TorArm};
use super::sample::Fault;
use super::text::Source;
use super::{check_network, congestion_control};
use crate::error::Result;

/// The most runs of a plan.
pub(crate) const RUNS_MAX: usize = 10_000;
/// The most flows of an arm: each has two hosts.
const FLOWS_MAX: usize = 500;

/// The first fault that the form alone does not show.
pub(super) fn check(plan: &Plan, source: Source<'_>) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if plan.name.is_empty() || !plan.name.chars().all(plain) {
        return Err(
            source.error(0, format!("the name {:?} has more than letters, digits and hyphens", plan.name))
        );
    }
    if !(1..=RUNS_MAX).contains(&plan.runs) {
        return Err(source.error(0, format!("{} runs; possible is from 1 to {RUNS_MAX}", plan.runs)));
    }
    if plan.budget.is_zero() {
        return Err(source.error(0, "the budget is no time at all"));
    }
    if plan.arms.iter().all(|arm| arm.as_ref().by_choice) {
        return Err(source.error(0, "there is no [[arm]] that is measured without being named"));
    }
    let network = match &plan.tor {
        Some(network) => {
            let error = |(at, what): Fault| source.error(at.unwrap_or(network.span().start), what);
            let drawn = network.as_ref().drawn(plan.seed).map_err(error)?;
            check_network::check(&drawn).map_err(error)?;
            Some(drawn)
        }
        None => None,
    };
    let mut names = BTreeSet::new();
    let mut labels = BTreeSet::new();
    for arm in &plan.arms {
        let at = arm.span().start;
        let arm = arm.as_ref();
        if !names.insert(&arm.name) {
            return Err(source.error(at, format!("arm {:?} is there twice", arm.name)));
        }
        let copies = arm.cases.iter().map(|case| case.as_ref().copies);
        let flows = copies.fold(0, usize::saturating_add);
        if let Some(options) = &arm.tor {
            check_tor_arm(plan, network.as_ref(), arm, options).map_err(|what| source.error(at, what))?;
            continue;
        }
        if !(1..=FLOWS_MAX).contains(&flows) {
            let what = format!("arm {:?} has {flows} flows; possible is from 1 to {FLOWS_MAX}", arm.name);
            return Err(source.error(at, what));
        }
        for case in &arm.cases {
            let at = case.span().start;
            check_case(case.as_ref()).map_err(|what| source.error(at, what))?;
            if !labels.insert(arm.labels_of(case.as_ref())) {
                return Err(source.error(at, "another case has the same labels"));
            }
        }
    }
    check_values(plan, source)?;
    let mut compared = BTreeSet::new();
    for compare in &plan.compare {
        let at = compare.span().start;
        check_compare(compare.as_ref()).map_err(|what| source.error(at, what))?;
        if !compared.insert(&*compare.as_ref().name) {
            return Err(source.error(at, "another comparison has the same name"));
        }
    }
    Ok(())
}

/// Checks known values and targets.
fn check_values(plan: &Plan, source: Source<'_>) -> Result<()> {
    for known in &plan.known {
        let bounds = known.as_ref().within_pct.iter().chain(&known.as_ref().within);
        if !known.as_ref().value.is_finite()
            || bounds.clone().any(|bound| !(*bound >= 0.0 && bound.is_finite()))
        {
            return Err(source.error(
                known.span().start,
                "a known value and its bounds are finite numbers, bounds at least 0",
            ));
        }
    }
    for target in &plan.targets {
        let Target { at_most, at_least, .. } = target.as_ref();
        let bounds = at_most.iter().chain(at_least);
        if bounds.clone().count() == 0 || bounds.clone().any(|bound| !bound.is_finite()) {
            let what = "a target has `at_most`, `at_least` or both, and they are finite numbers";
            return Err(source.error(target.span().start, what));
        }
    }
    Ok(())
}

/// Checks an arm that runs the plan's network, which is drawn.
fn check_tor_arm(
    plan: &Plan,
    network: Option<&Tor>,
    arm: &Arm,
    options: &TorArm,
) -> std::result::Result<(), String> {
    if !arm.cases.is_empty() || arm.repeat {
        return Err("an arm with `tor` has no cases and is not repeated".into());
    }
    // Names differ, so those before it are other arms.
    let before = plan.arms.iter().map(Spanned::as_ref).take_while(|other| other.name != arm.name);
    let shares = |other: &&Arm| other.tor.as_ref().is_some_and(|other| other.shares_a_phase(options));
    if let Some(other) = before.filter(shares).find(|other| other.labels == arm.labels) {
        let what = "has the same labels and a phase in common: nothing would tell their samples apart";
        return Err(format!("arm {:?} {what}", other.name));
    }
    let network = network.ok_or("the plan has no network: [tor] is missing")?;
    check_network::check_arm(network, options)
}

fn check_compare(compare: &Compare) -> std::result::Result<(), String> {
    let by_label = compare.label.is_some() && compare.base.is_some();
    let by_figure = compare.to.is_some() && compare.label.is_none() && compare.base.is_none();
    match (by_label && compare.to.is_none()) || by_figure {
        true => Ok(()),
        false => Err("a comparison has either `label` and `base`, or `to`".into()),
    }
}

fn check_case(case: &Case) -> std::result::Result<(), String> {
    match (&case.bulk, &case.share, &case.probe, &case.ping) {
        (Some(bulk), None, None, None) => {
            congestion_control::check(&bulk.congestion_control, &[bulk.sender])?;
            check_times(bulk.warm_up, bulk.duration)?;
        }
        (None, Some(share), None, None) => {
            congestion_control::check(&share.congestion_control, &[share.first, share.second])?;
            check_times(share.warm_up, share.duration)?;
            if share.first == Tcp::Utcp && share.second == Tcp::Utcp {
                return Err("one of two that share a wire is the kernel's".into());
            }
        }
        (None, None, Some(probe), None) => check_probes("probes", probe.count, probe.interval, probe.bytes)?,
        (None, None, None, Some(ping)) => check_probes("pings", ping.count, ping.interval, ping.bytes)?,
        _ => return Err("a case has either `bulk`, `share`, `probe` or `ping`".into()),
    }
    check_wire(&case.wire, case.back.as_ref())
}

fn check_times(warm_up: Duration, duration: Duration) -> std::result::Result<(), String> {
    match warm_up < duration {
        true => Ok(()),
        false => Err("the warm-up leaves nothing of the duration".into()),
    }
}

fn check_wire(there: &DirectionOptions, back: Option<&DirectionOptions>) -> std::result::Result<(), String> {
    let host = |name: &str| HostOptions { name: name.to_owned(), ..HostOptions::default() };
    let wire = WireOptions {
        from: "sender".into(),
        to: "receiver".into(),
        there: there.clone(),
        back: back.cloned(),
    };
    let topology = TopologyOptions {
        hosts: vec![host("sender"), host("receiver")],
        wires: vec![wire],
        default_wire: None,
    };
    topology.validate().map_err(|error| error.to_string())
}
