//! Relays that put their circuits on datagrams, whole and in virtual time.

mod both;
mod dtls;
mod lossy;
mod oracle;
mod per_circuit;
pub mod transport;

use heddle_client::{CircuitNumber, ExchangeState, ExchangeStatus};
use heddle_network::{Net, download, pattern_sha256, upload};
use heddle_relay::Event;
use heddle_seam::time::Duration;
use transport::{Transport, find_each_other};

const MB: u64 = 1_000_000;
const LONG: Duration = Duration::from_secs(600);

fn is_over(status: &ExchangeStatus) -> bool {
    matches!(status.state, ExchangeState::Ended(_) | ExchangeState::Lost(_))
}

/// How often a connection became ready, as either end says.
fn ready(net: &Net) -> usize {
    net.sim.events().iter().filter(|(_, _, event)| matches!(event, Event::ConnectionReady { .. })).count()
}

/// Why connections ended.
fn ended(net: &Net) -> Vec<&'static str> {
    let reason = |event: &Event| match event {
        Event::ConnectionEnded { reason, .. } => Some(*reason),
        _ => None,
    };
    net.sim.events().iter().filter_map(|(_, _, event)| reason(event)).collect()
}

/// So many bytes there and as many back arrive as they were.
fn transfer(net: &mut Net, circuit: CircuitNumber, bytes: u64) {
    let down = net.begin(circuit, download(bytes));
    let status = net.await_status(down, LONG, is_over);
    assert_eq!(status.received_sha256, pattern_sha256(bytes), "{status:?}");
    let up = net.begin(circuit, upload(bytes));
    let status = net.await_status(up, LONG, |status| status.received_bytes == 32);
    assert_eq!(status.received_head, pattern_sha256(bytes), "{status:?}");
}

/// Ends circuits, and lets relays hear of it.
fn close_all(net: &mut Net, circuits: impl IntoIterator<Item = CircuitNumber>) {
    for circuit in circuits {
        net.proxy(|proxy| proxy.close_circuit(circuit));
    }
    net.sim.run_for(Duration::from_secs(2));
}

/// Relays of so many shards have no circuits, and nothing waits in them.
fn assert_unused(net: &mut Net, shards: &[usize]) {
    for (relay, count) in shards.iter().enumerate() {
        assert!((0..*count).all(|shard| net.circuits(relay, shard) == 0), "{shards:?}");
        assert_eq!(net.queued_cells(relay), 0, "{shards:?}");
    }
}
