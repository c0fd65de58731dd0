//! What of the metrics the driver alone knows: what its loops count, how many descriptors it has, and how long steps
//! took. The control plane answers at the `MetricsPort`.

mod timings;

use super::Failure;
use crate::torrc::Options;
use heddle_control::metrics::Exposition;
use heddle_control::{Carried, Figures};
use heddle_net::{Counters, LoopHandle};
use heddle_relay::RelayLanguage;
use std::net::TcpListener;
use std::sync::Arc;
pub use timings::Timings;
use timings::Told;

/// Binds the `MetricsPort`, if the operator wants one.
pub fn bind(options: &Options) -> Result<Option<TcpListener>, Failure> {
    let bind = |addr| {
        let refused = |error| format!("MetricsPort {addr} cannot be opened: {error}; choose another");
        heddle_net::listen(addr).map_err(refused)
    };
    Ok(options.metrics_port.map(bind).transpose()?)
}

/// How long steps take, where `HeddleTimings` asks for it.
#[derive(Clone)]
pub struct Timed(pub Option<Arc<Timings>>);

impl Timed {
    pub fn new(options: &Options) -> Self {
        Timed(options.heddle.timings.then(|| Arc::new(Timings::new())))
    }
}

/// The shards' loops and what else is counted.
pub struct DriverMetrics {
    pub shards: Vec<LoopHandle<RelayLanguage>>,
    pub timed: Timed,
    /// The limit of descriptors.
    pub sockets_max: Option<u64>,
}

impl DriverMetrics {
    /// Bytes that the shards' sockets have carried over the network.
    pub fn carried(&self) -> Carried {
        carried(&self.counters())
    }

    pub fn figures(&self) -> Figures {
        let counters = self.counters();
        let mut out = Exposition::default();
        loops(&mut out, &counters);
        timings(&mut out, self.timed.0.iter().flat_map(|timings| timings.told()).collect());
        Figures {
            carried: carried(&counters),
            sockets: counters.iter().map(|of| of.sockets_opened.saturating_sub(of.sockets_closed)).sum(),
            sockets_max: self.sockets_max,
            more: out.into_text(),
        }
    }

    fn counters(&self) -> Vec<Counters> {
        self.shards.iter().map(LoopHandle::counters).collect()
    }
}

/// What goes through a stack is carried once, in the datagrams that have its packets.
fn carried(counters: &[Counters]) -> Carried {
    Carried {
        read: counters.iter().map(|of| of.recv_bytes - of.stack_recv_bytes + of.datagram_recv_bytes).sum(),
        written: counters.iter().map(|of| of.send_bytes - of.stack_send_bytes + of.datagram_send_bytes).sum(),
    }
}

/// What the shards' loops did.
fn loops(out: &mut Exposition, counters: &[Counters]) {
    let sum = |of: fn(&Counters) -> u64| -> u64 { counters.iter().map(of).sum() };
    out.gauge("heddle_shards", "Shards of the relay").value(counters.len());
    out.counter("heddle_turns_total", "Turns of the shards' event loops").value(sum(|of| of.waits));
    let mut calls = out.counter("heddle_stream_calls_total", "System calls for TCP connections");
    calls.labelled(&[("what", "receive")], sum(|of| of.recvs));
    calls.labelled(&[("what", "send")], sum(|of| of.sends));
    calls.labelled(&[("what", "open")], sum(|of| of.accepts + of.connects));
    calls.labelled(&[("what", "close")], sum(|of| of.sockets_closed));
    let mut datagrams = out.counter("heddle_datagrams_total", "Datagrams");
    datagrams.labelled(&[("direction", "in")], sum(|of| of.datagrams_received));
    datagrams.labelled(&[("direction", "out")], sum(|of| of.datagrams_sent));
    let mut calls =
        out.counter("heddle_datagram_calls_total", "System calls that received or sent datagrams");
    calls.labelled(&[("direction", "in")], sum(|of| of.datagram_recvs));
    calls.labelled(&[("direction", "out")], sum(|of| of.datagram_sends));
    let mut bytes = out.counter("heddle_datagram_bytes_total", "Bytes of datagrams, without headers of UDP");
    bytes.labelled(&[("direction", "in")], sum(|of| of.datagram_recv_bytes));
    bytes.labelled(&[("direction", "out")], sum(|of| of.datagram_send_bytes));
    stacks(out, sum);
    for (name, help, value) in [
        (
            "heddle_datagrams_dropped_total",
            "Datagrams that the system did not take",
            sum(|of| of.datagrams_dropped),
        ),
        (
            "heddle_datagram_sends_blocked_total",
            "Sends of datagrams that had to wait for room",
            sum(|of| of.datagram_sends_blocked),
        ),
        (
            "heddle_accepts_out_of_resources_total",
            "Accepts that found no descriptor or memory left",
            sum(|of| of.accepts_out_of_resources),
        ),
        (
            "heddle_jobs_inline_total",
            "Jobs that the workers' queue had no room for",
            sum(|of| of.jobs_inline),
        ),
    ] {
        out.counter(name, help).value(value);
    }
}

/// What went over the devices of stacks.
fn stacks(out: &mut Exposition, sum: impl Fn(fn(&Counters) -> u64) -> u64) {
    let mut packets =
        out.counter("heddle_stack_packets_total", "IP packets of the relay's own network stacks");
    packets.labelled(&[("direction", "in")], sum(|of| of.stack_packets_sent));
    packets.labelled(&[("direction", "out")], sum(|of| of.stack_packets_received));
    let mut calls = out.counter("heddle_stack_calls_total", "System calls that carried or looked for them");
    calls.labelled(&[("direction", "in")], sum(|of| of.stack_sends));
    calls.labelled(&[("direction", "out")], sum(|of| of.stack_recvs));
    out.counter("heddle_stack_packets_lost_total", "Packets that a stack did not take")
        .value(sum(|of| of.stack_packets_lost));
}

fn timings(out: &mut Exposition, steps: Vec<Told>) {
    if steps.is_empty() {
        return;
    }
    let mut family = out.histograms(
        "heddle_step_seconds",
        "How long the steps of datagrams' ways, cells, and waits and turns of the event loop took",
    );
    for Told { step, buckets, sum_s } in steps {
        family.labelled(("step", step.name()), &buckets, sum_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stack_carries_is_counted_where_it_leaves_the_machine() {
        let tls = Counters { recv_bytes: 5, send_bytes: 7, ..Counters::default() };
        let stack = Counters {
            recv_bytes: 100,
            stack_recv_bytes: 100,
            datagram_recv_bytes: 120,
            send_bytes: 1_001,
            stack_send_bytes: 1_000,
            datagram_send_bytes: 1_200,
            ..Counters::default()
        };
        assert_eq!(carried(&[tls, stack]), Carried { read: 125, written: 1_208 });
    }
}
