//! Relays that put their circuits on datagrams, whole and in virtual time.

mod both;
mod dtls;
mod lossy;
mod oracle;
mod per_circuit;

use heddle_client::{CircuitNumber, ExchangeState, ExchangeStatus};
use heddle_network::{Net, Plan, download, pattern_sha256, upload};
use heddle_relay::Event;
use heddle_seam::time::Duration;

const MB: u64 = 1_000_000;
const LONG: Duration = Duration::from_secs(600);

/// What carries circuits between upgraded relays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Quic,
    Dtls,
    PerCircuit,
}

impl Transport {
    fn name(self) -> &'static str {
        match self {
            Transport::Quic => "quic",
            Transport::Dtls => "tcp-dtls",
            Transport::PerCircuit => "quic-per-circuit",
        }
    }

    /// The same network with these relays upgraded.
    fn among(self, upgraded: Vec<usize>, plan: &Plan) -> Plan {
        let mut plan = plan.clone();
        match self {
            Transport::Quic => plan.quic = upgraded,
            Transport::Dtls => plan.dtls = upgraded,
            Transport::PerCircuit => plan.per_circuit = upgraded,
        }
        plan
    }

    /// Upgraded relays, after a circuit over TLS made them find each other.
    fn paired(self, plan: &Plan) -> Net {
        self.paired_among((0..plan.shards.len()).collect(), plan)
    }

    /// The same where only these relays are upgraded.
    fn paired_among(self, upgraded: Vec<usize>, plan: &Plan) -> Net {
        let mut net = Net::new(&self.among(upgraded, plan));
        find_each_other(&mut net, &[0, 1, 2]);
        net
    }

    /// Cells that a relay sent to others over TLS, and over this.
    fn cells_out(self, net: &mut Net, relay: usize) -> [u64; 2] {
        ["tls", self.name()].map(|transport| net.cells_out_over(relay, transport))
    }
}

/// A circuit that is over before long makes the relays of a path find each other.
fn find_each_other(net: &mut Net, path: &[usize]) {
    let circuit = net.build(path, false);
    net.sim.run_for(Duration::from_secs(3));
    net.proxy(|proxy| proxy.close_circuit(circuit));
}

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
