//! Whether the transport that an arm names carries its circuits, by what Heddle relays tell of themselves.
//!
//! 1. Relays that are neighbours on a phase's paths and have the same transport are *pairs*. Before a phase circuits
//!    are built and closed again until they go over their transport between all pairs, because relays find each other
//!    only by circuits. They did when as many lanes end with them.
//! 2. Of the cells of relays that have pairs on every path of the phase and no client beside them, the share is told
//!    that went over their transport. A silent return to TLS must not pass for a result.

use std::collections::BTreeMap;
use std::time::Duration;

use toml::Spanned;

use crate::arm::Transport;
use crate::backend::{Built, CircuitOrder, Testbed};
use crate::error::{Error, Result};
use crate::figures::{Labels, labels};
use crate::metrics::{COUNTS_AGE_MAX, Metrics, SHARE_MIN};
use crate::plan::{Phase, Tor, TorArm};
use crate::run::sampled::Sampled;

/// How long the lanes of circuits that were closed may take to end, and how often it is looked at.
const CLOSING_MAX: Duration = Duration::from_secs(3);
const CLOSING_LOOK: Duration = Duration::from_millis(50);
/// The most samples of a histogram's times; of more, every second or third or further one.
const TIMES_MAX: u64 = 20_000;
/// Where the middle of a bucket lies below its upper bound, in its mean: buckets have from 1/16 to 1/32 of their bound.
const STEP_MIDDLE: f64 = 1.0 - 3.0 / 128.0;
/// Where there are fewer cells than this, those of directories weigh too much to judge by the share.
const CELLS_MIN: f64 = 10_000.0;

/// What one relay told, by its name.
pub(super) type Readings = Vec<(String, Metrics)>;

/// Reads the metrics of every Heddle relay.
pub(super) fn read(tor: &Tor, testbed: &mut dyn Testbed) -> Result<Readings> {
    let mut readings = Readings::new();
    for relay in tor.relays.iter().map(Spanned::as_ref) {
        readings.extend(testbed.metrics(&relay.name)?.map(|metrics| (relay.name.clone(), metrics)));
    }
    Ok(readings)
}

/// Builds circuits until all pairs of a phase have found each other, and says how long that took, in seconds. `None` if
/// there are none.
pub(super) fn wait_for_pairs(
    tor: &Tor,
    arm: &TorArm,
    phase: &Phase,
    testbed: &mut dyn Testbed,
    on_step: &mut dyn FnMut(&str),
) -> Result<Option<f64>> {
    let wanted = lanes_by_relay(tor, arm, phase);
    if wanted.iter().all(|(.., lanes)| *lanes == 0) {
        return Ok(None);
    }
    let clients = tor.clients.iter().map(Spanned::as_ref).filter(|client| phase.builds_for(&client.name));
    let orders: Vec<CircuitOrder<'_>> =
        clients.map(|client| CircuitOrder { proxy: &client.name, path: phase.path_of(client) }).collect();
    let begun = testbed.now();
    loop {
        let tried = testbed.now() - begun;
        let built = testbed.build_circuits(&orders)?;
        pass(testbed, COUNTS_AGE_MAX)?;
        let with_circuits = read(tor, testbed)?;
        let circuits: Vec<_> = built.iter().map(|Built { circuit, .. }| *circuit).collect();
        testbed.close_circuits(&circuits)?;
        let Some((relay, transport)) = missing_when_closed(tor, testbed, &wanted, &with_circuits)? else {
            return Ok(Some(tried.as_secs_f64()));
        };
        if testbed.now() - begun > phase.pairs_max {
            let waiting_for = format!("{relay} to reach all its neighbours over {transport}");
            return Err(Error::Deadline { waiting_for, after: phase.pairs_max });
        }
        on_step(&format!("waiting for {relay} to reach its neighbours over {transport}"));
    }
}

/// Waits until as many lanes have ended as circuits were closed: those went over the transport. Returns a relay for
/// which that does not happen, and its transport.
fn missing_when_closed<'a>(
    tor: &Tor,
    testbed: &mut dyn Testbed,
    wanted: &[(&'a str, &'static str, usize)],
    with_circuits: &Readings,
) -> Result<Option<(&'a str, &'static str)>> {
    let until = testbed.now() + CLOSING_MAX;
    loop {
        let missing = missing(wanted, with_circuits, &read(tor, testbed)?);
        if missing.is_none() || testbed.now() > until {
            return Ok(missing);
        }
        pass(testbed, CLOSING_LOOK)?;
    }
}

/// Lets so much time pass.
fn pass(testbed: &mut dyn Testbed, time: Duration) -> Result<()> {
    let then = testbed.now() + time;
    testbed.pass_until(then, &mut || ())
}

/// A relay with fewer lanes less over its transport than it ought to have, and its transport.
fn missing<'a>(
    wanted: &[(&'a str, &'static str, usize)],
    before: &Readings,
    after: &Readings,
) -> Option<(&'a str, &'static str)> {
    let is_missing = |(relay, transport, lanes): &&(&str, &'static str, usize)| {
        let count = |readings: &Readings| {
            let metrics = readings.iter().find(|(name, _)| name == relay).map(|(_, metrics)| metrics);
            metrics.map_or(0.0, |metrics| metrics.sum("heddle_lanes", &[("transport", transport)]))
        };
        count(before) - count(after) < *lanes as f64
    };
    wanted.iter().find(is_missing).map(|(relay, transport, _)| (*relay, *transport))
}

/// How many lanes each relay with a transport of flows has over it when each client of a phase has one circuit.
fn lanes_by_relay<'a>(tor: &'a Tor, arm: &TorArm, phase: &'a Phase) -> Vec<(&'a str, &'static str, usize)> {
    let mut wanted = Vec::new();
    for relay in tor.relays.iter().map(Spanned::as_ref) {
        let transport = arm.transport_of(relay);
        let Some(metric) = transport.heddle_name().filter(|_| transport != Transport::Tls) else { continue };
        let is_pair = |[from, to]: &[&str; 2]| {
            let other = if *from == relay.name { to } else { from };
            let touches = *from == relay.name || *to == relay.name;
            touches && transport_of(tor, arm, other) == Some(transport)
        };
        wanted.push((&*relay.name, metric, steps(tor, phase).filter(is_pair).count()));
    }
    wanted
}

/// The share of cells that the transport carried between two readings, from 0 to 1, over the relays by which it can be
/// told; `None` when there is no such relay or no cell. Beside it why it must not be trusted, if so.
pub(super) fn share(
    tor: &Tor,
    arm: &TorArm,
    phase: &Phase,
    before: &Readings,
    after: &Readings,
) -> (Option<f64>, Option<String>) {
    let (mut over, mut all) = (0.0, 0.0);
    for ((name, before), (_, after)) in before.iter().zip(after) {
        let Some(metric) = witness(tor, arm, phase, name) else { continue };
        let since = |labels: &[(&str, &str)]| {
            after.sum("heddle_cells_total", labels) - before.sum("heddle_cells_total", labels)
        };
        over += since(&[("transport", metric)]);
        all += since(&[]);
    }
    if all <= 0.0 {
        return (None, None);
    }
    let share = over / all;
    let is_bad = share < SHARE_MIN && all >= CELLS_MIN && !phase.any_transport;
    (Some(share), is_bad.then(|| format!("the transport carried {:.1} % of the cells", 100.0 * share)))
}

/// The transport of a relay by whose cells one can tell: it has one, and is never the first of a path, where cells come
/// from a client, and all its neighbours have the same one.
fn witness(tor: &Tor, arm: &TorArm, phase: &Phase, name: &str) -> Option<&'static str> {
    let transport = transport_of(tor, arm, name)?;
    let mut paths = paths(tor, phase);
    let is_first = paths.any(|path| path.first().is_some_and(|first| first == name));
    let all_have = steps(tor, phase)
        .filter(|step| step.contains(&name))
        .all(|step| step.into_iter().all(|end| transport_of(tor, arm, end) == Some(transport)));
    let is_used = steps(tor, phase).any(|step| step.contains(&name));
    transport.heddle_name().filter(|_| !is_first && all_have && is_used)
}

/// The paths of a phase's circuits.
fn paths<'a>(tor: &'a Tor, phase: &'a Phase) -> impl Iterator<Item = &'a [String]> {
    let clients = tor.clients.iter().map(Spanned::as_ref).filter(|client| phase.builds_for(&client.name));
    clients.map(|client| phase.path_of(client))
}

/// Each relay of a path with the next one, path by path.
pub(super) fn steps<'a>(tor: &'a Tor, phase: &'a Phase) -> impl Iterator<Item = [&'a str; 2]> {
    paths(tor, phase).flat_map(|path| path.windows(2).map(|step| [&*step[0], &*step[1]]))
}

/// What Heddle relays tell about fallbacks since `before`, and about their queues.
pub(super) fn figures(tor: &Tor, before: &Readings, after: &Readings) -> Vec<Sampled> {
    let mut fallbacks: BTreeMap<String, f64> = BTreeMap::new();
    let mut samples = Vec::new();
    for ((name, before), (_, after)) in before.iter().zip(after) {
        for reason in after.values_of("heddle_fallbacks_total", "reason") {
            let count = |at: &Metrics| at.sum("heddle_fallbacks_total", &[("reason", reason)]);
            *fallbacks.entry(reason.to_owned()).or_default() += count(after) - count(before);
        }
        let of_relay = relay_labels(tor, name);
        for figure in ["queue_cells_max", "held_queue_cells_max"] {
            let value = after.sum(&format!("heddle_{figure}"), &[]);
            samples.push(Sampled::one(figure, value).with(of_relay.clone()));
        }
        let waits = waits_ms(before, after);
        samples
            .extend((!waits.is_empty()).then(|| Sampled::new("cell_wait_ms", waits).with(of_relay.clone())));
        let idle = loop_idle_pct(before, after);
        samples.extend(idle.map(|pct| Sampled::one("loop_idle_pct", pct).with(of_relay.clone())));
        samples.extend(steps_us(before, after).map(|(step, values)| {
            let labels = of_relay.clone().into_iter().chain(labels([("step", step)])).collect();
            Sampled::new("step_us", values).with(labels)
        }));
    }
    let fallbacks = fallbacks.into_iter();
    samples.extend(
        fallbacks
            .map(|(reason, count)| Sampled::one("fallbacks", count).with(labels([("reason", &*reason)]))),
    );
    samples
}

/// The labels of what is told of a relay.
pub(super) fn relay_labels(tor: &Tor, name: &str) -> Labels {
    let relay = tor.relays.iter().map(Spanned::as_ref).find(|relay| relay.name == name);
    let own = relay.map(|relay| relay.labels.clone()).unwrap_or_default();
    own.into_iter().chain(labels([("relay", name)])).collect()
}

/// The share of its time that a relay's event loop waited for news since `before`, in percent.
fn loop_idle_pct(before: &Metrics, after: &Metrics) -> Option<f64> {
    let took = |step: &str| {
        let sum = |at: &Metrics| at.sum("heddle_step_seconds_sum", &[("step", step)]);
        sum(after) - sum(before)
    };
    let (wait, turn) = (took("wait"), took("turn"));
    (wait + turn > 0.0).then(|| 100.0 * wait / (wait + turn))
}

/// How long cells waited in queues since `before`, in milliseconds. A bucket's bound is twice the one before.
fn waits_ms(before: &Metrics, after: &Metrics) -> Vec<f64> {
    const MIDDLE: f64 = 0.75;
    let counts = after.histogram_since(before, "heddle_queue_delay_seconds", &[]);
    spread(counts, 1e3 * MIDDLE)
}

/// What each step took since `before`, in microseconds: the middle of the bucket for each time.
fn steps_us<'a>(before: &Metrics, after: &'a Metrics) -> impl Iterator<Item = (&'a str, Vec<f64>)> {
    const NAME: &str = "heddle_step_seconds";
    let steps = after.values_of("heddle_step_seconds_count", "step");
    steps.filter_map(move |step| {
        let counts = after.histogram_since(before, NAME, &[("step", step)]);
        // A bound is a sixteenth above the next lower one, or less.
        let values = spread(counts, 1e6 * STEP_MIDDLE);
        (!values.is_empty()).then_some((step, values))
    })
}

/// A histogram's times one by one, each of them `scale` times its bucket's bound: at most [`TIMES_MAX`], of more the
/// same share of each bucket.
fn spread(counts: Vec<(f64, u64)>, scale: f64) -> Vec<f64> {
    let all: u64 = counts.iter().map(|(_, count)| count).sum();
    let each = all.div_ceil(TIMES_MAX).max(1);
    let mut values = Vec::new();
    let mut seen = 0;
    for (bound_s, count) in counts {
        let times = (seen + count) / each - seen / each;
        seen += count;
        values.extend(std::iter::repeat_n(bound_s * scale, times as usize));
    }
    values
}

fn transport_of(tor: &Tor, arm: &TorArm, name: &str) -> Option<Transport> {
    let mut relays = tor.relays.iter().map(Spanned::as_ref);
    relays.find(|relay| relay.name == name).map(|relay| arm.transport_of(relay))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Relay;
    use crate::plan::network_tests::{network_of, small};

    fn metrics(lanes: u32, quic: u32, tls: u32) -> Metrics {
        Metrics::parse(&format!(
            "heddle_lanes{{transport=\"quic\"}} {lanes}\nheddle_cells_total{{transport=\"quic\"}} {quic}\n\
             heddle_cells_total{{transport=\"tls\"}} {tls}\n"
        ))
    }

    fn readings(exit: Metrics) -> Readings {
        vec![("guard".into(), metrics(1, 0, 0)), ("exit".into(), exit)]
    }

    #[test]
    fn pairs_are_neighbours_with_one_transport() {
        let quic = ("transport = \"tls\"", "transport = \"quic\"");
        let loaded = small(quic).unwrap();
        let (tor, arm) = network_of(&loaded.plan);
        let phase = tor.phases[0].as_ref();
        // The middle is stock whatever the arm says, so nobody is a pair and nobody tells.
        assert_eq!(lanes_by_relay(tor, arm, phase), [("guard", "quic", 0), ("exit", "quic", 0)]);
        assert_eq!(witness(tor, arm, phase, "exit"), None);
        let mut all = tor.clone();
        all.relays = tor
            .relays
            .iter()
            .map(|relay| Spanned::new(relay.span(), Relay { transport: None, ..relay.as_ref().clone() }))
            .collect();
        let wanted = lanes_by_relay(&all, arm, phase);
        assert_eq!(wanted, [("guard", "quic", 2), ("middle", "quic", 4), ("exit", "quic", 2)]);
        assert_eq!(witness(&all, arm, phase, "guard"), None);
        assert_eq!(witness(&all, arm, phase, "exit"), Some("quic"));
        let before = readings(metrics(5, 0, 0));
        assert_eq!(missing(&wanted, &before, &before), Some(("guard", "quic")));
        assert_eq!(missing(&wanted[2..], &before, &readings(metrics(4, 0, 0))), Some(("exit", "quic")));
        assert_eq!(missing(&wanted[2..], &before, &readings(metrics(3, 0, 0))), None);
        let share = |after| share(&all, arm, phase, &readings(metrics(1, 0, 0)), &readings(after));
        assert_eq!(share(metrics(1, 0, 0)), (None, None));
        assert_eq!(share(metrics(1, 100, 100)), (Some(0.5), None));
        let (told, fault) = share(metrics(1, 9000, 1000));
        assert_eq!((told, fault.unwrap()), (Some(0.9), "the transport carried 90.0 % of the cells".into()));
    }

    #[test]
    fn fallbacks_are_counted_since_and_queues_are_told_as_they_are() {
        let loaded =
            small(("{ name = \"guard\" }", "{ name = \"guard\", labels = { at = \"here\" } }")).unwrap();
        let (tor, _) = network_of(&loaded.plan);
        let told = |dead: u32, cells: u32| {
            let text = format!(
                "heddle_fallbacks_total{{reason=\"dead\"}} {dead}\nheddle_fallbacks_total{{reason=\"no_room\"}} 1\n\
                 heddle_queue_cells_max {cells}\nheddle_held_queue_cells_max 3\n"
            );
            vec![("guard".to_owned(), Metrics::parse(&text))]
        };
        let samples = figures(tor, &told(2, 5), &told(5, 9));
        let of = |name: &str, labels: &Labels| {
            samples.iter().find(|one| one.name == name && one.labels == *labels).map(|one| one.values[0])
        };
        let guard = labels([("at", "here"), ("relay", "guard")]);
        assert_eq!(
            (of("queue_cells_max", &guard), of("held_queue_cells_max", &guard)),
            (Some(9.0), Some(3.0))
        );
        assert_eq!(of("fallbacks", &labels([("reason", "dead")])), Some(3.0));
        assert_eq!(of("fallbacks", &labels([("reason", "no_room")])), Some(0.0));
    }
}
