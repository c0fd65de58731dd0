//! What is told, by name; `docs/reference/metrics.md` has the list. Nothing is about a single client or circuit.

use super::text::Exposition;
use crate::language::{Figures, Standing};
use heddle_proto::cell::CELL_LEN;
use heddle_relay::{DelayHistogram, RelayStats, TransportStats};

/// All that is told; what the driver alone knows comes last.
pub(crate) fn render(relay: &RelayStats, standing: &Standing, figures: &Figures) -> String {
    let mut out = Exposition::default();
    stock(&mut out, relay, standing, figures);
    transports(&mut out, relay);
    shares(&mut out, relay);
    queues(&mut out, relay);
    out.gauge("heddle_consensus_relays", "Relays of the consensus whose identities are both known")
        .value(standing.relays);
    out.into_text() + &figures.more
}

/// Those that stock Tor has, with its names.
fn stock(out: &mut Exposition, relay: &RelayStats, standing: &Standing, figures: &Figures) {
    let mut sockets = out.gauge("tor_relay_load_socket_total", "Sockets");
    sockets.labelled(&[("state", "opened")], figures.sockets);
    if let Some(max) = figures.sockets_max {
        sockets.value(max);
    }
    let mut traffic =
        out.counter("tor_relay_traffic_bytes", "Bytes read and written, without headers of TCP and UDP");
    traffic.labelled(&[("direction", "read")], figures.carried.read);
    traffic.labelled(&[("direction", "written")], figures.carried.written);
    let mut circuits = out.gauge("tor_relay_circuits_total", "Circuits");
    circuits.labelled(&[("state", "opened")], relay.circuits);
    let mut oom = out.counter("tor_relay_load_oom_bytes_total", "Bytes freed because memory was short");
    oom.labelled(&[("subsys", "cell")], standing.freed_cells * CELL_LEN as u64);
    let refused = |what, why| relay.refused.get(&(what, why)).copied().unwrap_or(0);
    let mut dos = out.counter("tor_relay_dos_total", "What the defences of DoS… options did");
    for (kind, count) in [
        ("circuit_rejected", refused("circuit", "rate")),
        ("marked_address", relay.addresses_held_off),
        ("marked_address_maxq", relay.addresses_held_off_for_queues),
        ("conn_rejected", refused("channel", "rate")),
        ("concurrent_conn_rejected", refused("channel", "concurrent")),
        ("stream_rejected", refused("stream", "rate")),
    ] {
        dos.labelled(&[("type", kind)], count);
    }
    out.gauge("tor_relay_signing_cert_expiry_timestamp", "When the certificate of the signing key ends")
        .value(standing.signing_expires_unix_s);
    let mut flag = out.gauge("tor_relay_flag", "The relay's flags in the consensus");
    let listed = standing.flags.is_some();
    let of = standing.flags.unwrap_or_default();
    for (name, value) in [
        ("Fast", of.fast),
        ("Exit", of.exit),
        ("Authority", of.authority),
        ("Stable", of.stable),
        ("HSDir", of.hs_dir),
        ("Running", listed),
        ("V2Dir", of.v2_dir),
        ("Guard", of.guard),
    ] {
        flag.labelled(&[("type", name)], u8::from(value));
    }
}

fn transports(out: &mut Exposition, relay: &RelayStats) {
    let of = |out: &mut Exposition, counter: bool, name, help: &str, value: fn(&TransportStats) -> u64| {
        let mut family = if counter { out.counter(name, help) } else { out.gauge(name, help) };
        for transport in &relay.transports {
            family.labelled(&[("transport", transport.name)], value(transport));
        }
    };
    let mut cells = out.counter("heddle_cells_total", "Cells by transport");
    for transport in &relay.transports {
        for (direction, count) in [("in", transport.cells_in), ("out", transport.cells_out)] {
            cells.labelled(&[("transport", transport.name), ("direction", direction)], count);
        }
    }
    of(
        out,
        false,
        "heddle_links",
        "Channels that are open, or connections with other Heddle relays (pairs)",
        |of| of.links,
    );
    of(out, false, "heddle_lanes", "Circuits' lanes on channels, or flows on connections", |of| of.lanes);
    of(
        out,
        true,
        "heddle_links_opened_total",
        "Channels to relays that opened, or connections that became ready",
        |of| of.links_opened,
    );
    let mut ended = out.counter("heddle_links_ended_total", "How channels to relays and connections ended");
    for transport in &relay.transports {
        for (reason, count) in &transport.links_ended {
            ended.labelled(&[("transport", transport.name), ("reason", reason)], count);
        }
    }
    let mut refused = out.counter("heddle_refused_datagrams_total", "Datagrams that were dropped");
    for transport in relay.transports.iter().skip(1) {
        for (of, count) in [("strangers", transport.refused.strangers), ("peers", transport.refused.peers)] {
            refused.labelled(&[("transport", transport.name), ("of", of)], count);
        }
    }
    out.counter("heddle_dropped_datagrams_total", "Cells that are datagrams which were dropped in lanes")
        .value(relay.dropped_datagrams);
    let help = "Circuits to other Heddle relays that went over TLS where a flow was wanted";
    let mut fallbacks = out.counter("heddle_fallbacks_total", help);
    for (reason, count) in &relay.fallbacks {
        fallbacks.labelled(&[("reason", reason)], count);
    }
}

fn shares(out: &mut Exposition, relay: &RelayStats) {
    let of = &relay.granted;
    let mut granted = out.gauge("heddle_granted", "What neighbours hold of what is shared");
    for (what, count) in [
        ("channel", of.channels),
        ("handshake", of.handshakes),
        ("handshake_byte", of.handshake_bytes),
        ("dial", of.dials),
        ("circuit", of.circuits),
        ("onionskin", of.onionskins),
        ("stream", of.streams),
    ] {
        granted.labelled(&[("what", what)], count);
    }
    let mut refused =
        out.counter("heddle_refused_total", "What neighbours asked for and did not get, or lost");
    for ((what, why), count) in &relay.refused {
        refused.labelled(&[("what", what), ("why", why)], count);
    }
}

fn queues(out: &mut Exposition, relay: &RelayStats) {
    let delay = &relay.queue_delay;
    let bucket = |class: usize| {
        let bound = DelayHistogram::bound(class)?;
        Some((bound.as_secs_f64(), *delay.counts.get(class)?))
    };
    let buckets: Vec<(f64, u64)> = (0..DelayHistogram::CLASSES).map_while(bucket).collect();
    let over = delay.counts.last().copied().unwrap_or(0);
    let help = "How long cells waited in the relay's queues";
    out.histogram("heddle_queue_delay_seconds", help, &buckets, over, delay.sum_us as f64 / 1e6);
    for (name, help, value) in [
        ("heddle_queue_cells", "Cells that wait now", relay.queue_cells),
        ("heddle_queue_cells_longest", "Cells in the longest queue now", relay.queue_cells_longest),
        ("heddle_queue_cells_max", "The most cells that ever waited in one queue", relay.queue_cells_max),
        (
            "heddle_held_queue_cells_max",
            "The most cells that ever waited in one queue whose supply is a flow",
            relay.held_queue_cells_max,
        ),
        ("heddle_pool_slots", "Slots of the cell pool in use", relay.pool_slots),
        ("heddle_pool_slots_used_max", "Slots of the cell pool in use at most", relay.pool_slots_used_max),
        ("heddle_pool_slots_max", "Slots that the cell pool may have", relay.pool_slots_max),
        ("heddle_flow_bytes", "Bytes that flows keep in transports over datagrams", relay.flow_bytes),
        (
            "heddle_flow_state_bytes",
            "Bytes that these flows and their connections take themselves",
            relay.flow_state_bytes,
        ),
        ("heddle_buffer_bytes", "Bytes of sockets that wait to be sent or are not whole", relay.buffer_bytes),
        ("heddle_circuit_state_bytes", "Bytes that circuits take themselves", relay.circuit_state_bytes),
        ("heddle_channel_state_bytes", "Bytes that channels take themselves", relay.channel_state_bytes),
    ] {
        out.gauge(name, help).value(value);
    }
}
