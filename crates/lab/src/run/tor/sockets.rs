//! What kernels tell of the TCP connections between relays while a phase is measured: experiments 6 and 7 of
//! J. Reardon's thesis, which need nothing of the relays and so see stock ones too.

use std::collections::BTreeMap;
use std::time::Duration;

use heddle_net::tcp_diag::TcpConnection;

use super::transport_use::{relay_labels, steps};
use crate::backend::Testbed;
use crate::error::Result;
use crate::figures::{Labels, labels};
use crate::plan::{Phase, Tor};
use crate::run::sampled::Sampled;

/// All connections of one relay to another at one moment, as one: usually there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    window_bytes: Option<u32>,
    cwnd_packets: u32,
    unacked_packets: u32,
    unsent_bytes: u32,
    queued_bytes: u32,
    is_writable: bool,
}

/// Looks at the connections of a phase's paths, again and again.
#[derive(Debug)]
pub(super) struct Looks {
    every: Option<Duration>,
    next: Duration,
    /// By the relay and the one that it is connected to, each with when it was.
    seen: BTreeMap<[String; 2], Vec<(Duration, Look)>>,
}

impl Looks {
    /// The first one is when the window opens.
    pub(super) fn new(phase: &Phase, opens: Duration) -> Looks {
        Looks { every: phase.sockets, next: opens, seen: BTreeMap::new() }
    }

    /// When the next look is due, if that is before `then`.
    pub(super) fn due_before(&self, then: Duration) -> Option<Duration> {
        self.every.is_some().then_some(self.next).filter(|next| *next < then)
    }

    /// Takes one look. If it took longer than the next one was due, that is left out.
    pub(super) fn look(&mut self, tor: &Tor, phase: &Phase, testbed: &mut dyn Testbed) -> Result<()> {
        for relay in tor.relays.iter().map(|relay| &relay.as_ref().name) {
            let neighbours = steps(tor, phase).filter(|step| step.contains(&relay.as_str()));
            let neighbours: Vec<&str> = neighbours.flatten().filter(|name| name != relay).collect();
            if neighbours.is_empty() {
                continue;
            }
            let now = testbed.now();
            for (peer, look) in by_peer(testbed.connections(relay)?.unwrap_or_default()) {
                if neighbours.contains(&peer.as_str()) {
                    self.seen.entry([relay.clone(), peer]).or_default().push((now, look));
                }
            }
        }
        let every = self.every.unwrap_or_default();
        self.next = (self.next + every).max(testbed.now());
        Ok(())
    }

    /// What was seen, in the order of the looks.
    pub(super) fn figures(self, tor: &Tor) -> Vec<Sampled> {
        let of_pair = |([relay, peer], looks): ([String; 2], Vec<(Duration, Look)>)| {
            let of_pair = relay_labels(tor, &relay).into_iter().chain(labels([("to", &*peer)]));
            let of_pair: Labels = of_pair.collect();
            let values = |name: &str, value: fn(&Look) -> Option<f64>| {
                let points = looks.iter().filter_map(|(at, look)| Some((at.as_secs_f64(), value(look)?)));
                Sampled::over_time(name, points)
            };
            // Of the looks that tell it; none where none does.
            let pct = |is: fn(&Look) -> Option<bool>| -> Vec<f64> {
                let told: Vec<bool> = looks.iter().filter_map(|(_, look)| is(look)).collect();
                let count = told.iter().filter(|is| **is).count();
                (!told.is_empty()).then(|| 100.0 * count as f64 / told.len() as f64).into_iter().collect()
            };
            [
                values("socket_window_kb", |look| look.window_bytes.map(|bytes| f64::from(bytes) / 1e3)),
                Sampled::new(
                    "socket_window_closed_pct",
                    pct(|look| look.window_bytes.map(|bytes| bytes == 0)),
                ),
                values("socket_cwnd_packets", |look| Some(f64::from(look.cwnd_packets))),
                values("socket_unacked_packets", |look| Some(f64::from(look.unacked_packets))),
                values("socket_unsent_kb", |look| Some(f64::from(look.unsent_bytes) / 1e3)),
                values("socket_queued_kb", |look| Some(f64::from(look.queued_bytes) / 1e3)),
                Sampled::new("socket_unwritable_pct", pct(|look| Some(!look.is_writable))),
            ]
            .map(|sampled| sampled.with(of_pair.clone()))
        };
        let all = self.seen.into_iter().flat_map(of_pair);
        all.filter(|sampled| !sampled.values.is_empty()).collect()
    }
}

/// The connections to each relay as one: what is in them together, the smallest window, and whether all are writable.
fn by_peer(connections: Vec<(String, TcpConnection)>) -> BTreeMap<String, Look> {
    let mut peers: BTreeMap<String, Look> = BTreeMap::new();
    for (peer, connection) in connections {
        let one = Look {
            window_bytes: connection.window_bytes,
            cwnd_packets: connection.cwnd_packets,
            unacked_packets: connection.unacked_packets,
            unsent_bytes: connection.unsent_bytes,
            queued_bytes: connection.queued_bytes,
            is_writable: connection.is_writable(),
        };
        let together = |other: &mut Look| {
            *other = Look {
                window_bytes: other.window_bytes.min(one.window_bytes),
                cwnd_packets: other.cwnd_packets.saturating_add(one.cwnd_packets),
                unacked_packets: other.unacked_packets.saturating_add(one.unacked_packets),
                unsent_bytes: other.unsent_bytes.saturating_add(one.unsent_bytes),
                queued_bytes: other.queued_bytes.saturating_add(one.queued_bytes),
                is_writable: other.is_writable && one.is_writable,
            };
        };
        peers.entry(peer).and_modify(together).or_insert(one);
    }
    peers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_connections_to_one_relay_count_together() {
        let connection = |window: u32, queued: u32| TcpConnection {
            local: "10.0.0.1:1".parse().unwrap(),
            peer: "10.0.0.2:2".parse().unwrap(),
            cwnd_packets: 10,
            unacked_packets: 4,
            unsent_bytes: 500,
            window_bytes: Some(window),
            queued_bytes: queued,
            buffer_bytes: 1000,
        };
        let all = vec![
            ("b".to_owned(), connection(100, 0)),
            ("c".to_owned(), connection(7, 0)),
            ("b".to_owned(), connection(0, 900)),
        ];
        let peers = by_peer(all);
        let both = Look {
            window_bytes: Some(0),
            cwnd_packets: 20,
            unacked_packets: 8,
            unsent_bytes: 1000,
            queued_bytes: 900,
            is_writable: false,
        };
        assert_eq!(peers["b"], both);
        assert!(peers["c"].is_writable && peers["c"].window_bytes == Some(7));
    }
}
