//! Whether the transport that an arm names carries its circuits, by what Heddle relays tell at their MetricsPort.
//!
//! 1. Relays that are neighbours on a path and have the same transport are *pairs*. Before the first phase circuits are
//!    built and closed again until every pair has the connection that its transport needs, because relays find each
//!    other only by circuits.
//! 2. In each phase, of the cells of relays that have pairs on every path and no client beside them, the share is told
//!    that went over their transport. A silent return to TLS must not pass for a result.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use toml::Spanned;

use super::phase::Stage;
use super::{Relay, Tor, TorArm, Transport, circuits};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::metrics::Metrics;

/// Where a Heddle relay tells its metrics, on the loopback of its own host.
const METRICS_PORT: u16 = 9035;
/// How long a relay may take to tell them.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How long pairs may take to find each other.
const PAIRING_MAX: Duration = Duration::from_secs(60);
/// The least share of cells that the transport must carry.
const SHARE_MIN: f64 = 0.99;
/// Where there are fewer cells than this, those of directories weigh too much to judge by the share.
const CELLS_MIN: f64 = 10_000.0;

/// Lines for the torrc of a Heddle relay by which it tells its metrics.
pub(super) fn torrc() -> [String; 2] {
    [format!("MetricsPort 127.0.0.1:{METRICS_PORT}"), "MetricsPortPolicy accept 127.0.0.1".to_owned()]
}

/// What one relay told, by its name.
pub(super) type Readings = Vec<(String, Metrics)>;

/// Reads the metrics of every Heddle relay.
pub(super) fn read(stage: &Stage<'_>) -> Result<Readings> {
    let heddle = stage.tor.relays.iter().map(Spanned::as_ref);
    let heddle = heddle.filter(|relay| transport(stage.arm, relay).metric().is_some());
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, METRICS_PORT));
    let scrape = |relay: &Relay| {
        let metrics = stage.emulation.inside(&relay.name, || Metrics::scrape(addr, ANSWER_MAX))??;
        Ok((relay.name.clone(), metrics))
    };
    heddle.map(scrape).collect()
}

/// Builds circuits until all pairs have found each other.
pub(super) fn wait_for_pairs(stage: &Stage<'_>, on_step: &mut dyn FnMut(&str)) -> Result<()> {
    let wanted = pairs_by_relay(stage.tor, stage.arm);
    let clients: Vec<_> =
        stage.tor.clients.iter().map(Spanned::as_ref).zip(stage.network.clients()).collect();
    let begun = Instant::now();
    loop {
        interrupt::check()?;
        let missing = missing(&wanted, &read(stage)?);
        let Some((relay, transport)) = missing else { return Ok(()) };
        if begun.elapsed() > PAIRING_MAX {
            let waiting_for = format!("{relay} to reach all its neighbours over {transport}");
            return Err(Error::Deadline { waiting_for, after: PAIRING_MAX });
        }
        on_step(&format!("waiting for {relay} to reach its neighbours over {transport}"));
        let open = circuits::build(stage.network, &clients)?;
        circuits::close(&open)?;
    }
}

/// A relay that has not reached all of its neighbours, and its transport.
fn missing<'a>(
    wanted: &[(&'a str, &'static str, usize)],
    readings: &Readings,
) -> Option<(&'a str, &'static str)> {
    let is_missing = |(relay, transport, pairs): &&(&str, &'static str, usize)| {
        let metrics = readings.iter().find(|(name, _)| name == relay).map(|(_, metrics)| metrics);
        let links = metrics.map_or(0.0, |metrics| metrics.sum("heddle_links", &[("transport", transport)]));
        (links as usize) < *pairs
    };
    wanted.iter().find(is_missing).map(|(relay, transport, _)| (*relay, *transport))
}

/// How many neighbours each relay with a transport of flows must reach over it.
fn pairs_by_relay<'a>(tor: &'a Tor, arm: &TorArm) -> Vec<(&'a str, &'static str, usize)> {
    let mut pairs = Vec::new();
    for relay in tor.relays.iter().map(Spanned::as_ref) {
        let transport = transport(arm, relay);
        let Some(metric) = transport.metric().filter(|_| transport != Transport::Tls) else { continue };
        let mut neighbours = BTreeSet::new();
        for [from, to] in steps(tor) {
            let other = if from == relay.name { to } else { from };
            let touches = from == relay.name || to == relay.name;
            if touches && transport_of(tor, arm, other) == Some(transport) {
                neighbours.insert(other);
            }
        }
        pairs.push((&*relay.name, metric, neighbours.len()));
    }
    pairs
}

/// The share of cells that the transport carried between two readings, from 0 to 1, over the relays by which it can be
/// told; `None` when there is no such relay or no cell. Beside it why it must not be trusted, if so.
pub(super) fn share(
    tor: &Tor,
    arm: &TorArm,
    before: &Readings,
    after: &Readings,
) -> (Option<f64>, Option<String>) {
    let (mut over, mut all) = (0.0, 0.0);
    for ((name, before), (_, after)) in before.iter().zip(after) {
        let Some(metric) = witness(tor, arm, name) else { continue };
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
    let is_bad = share < SHARE_MIN && all >= CELLS_MIN;
    (Some(share), is_bad.then(|| format!("the transport carried {:.1} % of the cells", 100.0 * share)))
}

/// The transport of a relay by whose cells one can tell: it has one, and is never the first of a path, where cells come
/// from a client, and all its neighbours have the same one.
fn witness(tor: &Tor, arm: &TorArm, name: &str) -> Option<&'static str> {
    let transport = transport_of(tor, arm, name)?;
    let mut clients = tor.clients.iter().map(Spanned::as_ref);
    let is_first = clients.any(|client| client.path.first().is_some_and(|first| first == name));
    let all_have = steps(tor)
        .filter(|step| step.contains(&name))
        .all(|step| step.into_iter().all(|end| transport_of(tor, arm, end) == Some(transport)));
    let is_used = steps(tor).any(|step| step.contains(&name));
    transport.metric().filter(|_| !is_first && all_have && is_used)
}

/// Each relay of a path with the next one, path by path.
fn steps(tor: &Tor) -> impl Iterator<Item = [&str; 2]> {
    let paths = tor.clients.iter().map(|client| &client.as_ref().path);
    paths.flat_map(|path| path.windows(2).map(|step| [&*step[0], &*step[1]]))
}

fn transport(arm: &TorArm, relay: &Relay) -> Transport {
    relay.transport.unwrap_or(arm.transport)
}

fn transport_of(tor: &Tor, arm: &TorArm, name: &str) -> Option<Transport> {
    let mut relays = tor.relays.iter().map(Spanned::as_ref);
    relays.find(|relay| relay.name == name).map(|relay| transport(arm, relay))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tor::tests::{network_of, small};

    fn metrics(links: u32, quic: u32, tls: u32) -> Metrics {
        Metrics::parse(&format!(
            "heddle_links{{transport=\"quic\"}} {links}\nheddle_cells_total{{transport=\"quic\"}} {quic}\n\
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
        // The middle is stock whatever the arm says, so nobody is a pair and nobody tells.
        assert_eq!(pairs_by_relay(tor, arm), [("guard", "quic", 0), ("exit", "quic", 0)]);
        assert_eq!(witness(tor, arm, "exit"), None);
        let mut all = tor.clone();
        all.relays = tor
            .relays
            .iter()
            .map(|relay| Spanned::new(relay.span(), Relay { transport: None, ..relay.as_ref().clone() }))
            .collect();
        let wanted = pairs_by_relay(&all, arm);
        assert_eq!(wanted, [("guard", "quic", 1), ("middle", "quic", 2), ("exit", "quic", 1)]);
        assert_eq!(witness(&all, arm, "guard"), None);
        assert_eq!(witness(&all, arm, "exit"), Some("quic"));
        assert_eq!(missing(&wanted, &readings(metrics(1, 0, 0))), Some(("middle", "quic")));
        assert_eq!(missing(&wanted[2..], &readings(metrics(1, 0, 0))), None);
        let share = |after| share(&all, arm, &readings(metrics(1, 0, 0)), &readings(after));
        assert_eq!(share(metrics(1, 0, 0)), (None, None));
        assert_eq!(share(metrics(1, 100, 100)), (Some(0.5), None));
        let (told, fault) = share(metrics(1, 9000, 1000));
        assert_eq!((told, fault.unwrap()), (Some(0.9), "the transport carried 90.0 % of the cells".into()));
    }
}
