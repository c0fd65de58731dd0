//! Relays that put their circuits on datagrams.

use heddle_network::{Net, Plan};
use heddle_seam::time::Duration;

/// What carries circuits between upgraded relays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Quic,
    Dtls,
    PerCircuit,
    Esp,
}

impl Transport {
    pub fn name(self) -> &'static str {
        match self {
            Transport::Quic => "quic",
            Transport::Dtls => "tcp-dtls",
            Transport::PerCircuit => "quic-per-circuit",
            Transport::Esp => "tcp-esp",
        }
    }

    /// The same network with these relays upgraded.
    pub fn among(self, upgraded: Vec<usize>, plan: &Plan) -> Plan {
        let mut plan = plan.clone();
        match self {
            Transport::Quic => plan.quic = upgraded,
            Transport::Dtls => plan.dtls = upgraded,
            Transport::PerCircuit => plan.per_circuit = upgraded,
            Transport::Esp => plan.esp = upgraded,
        }
        plan
    }

    /// Upgraded relays, after a circuit over TLS made them find each other.
    pub fn paired(self, plan: &Plan) -> Net {
        self.paired_among((0..plan.shards.len()).collect(), plan)
    }

    /// The same where only these relays are upgraded.
    pub fn paired_among(self, upgraded: Vec<usize>, plan: &Plan) -> Net {
        let mut net = Net::new(&self.among(upgraded, plan));
        find_each_other(&mut net, &[0, 1, 2]);
        net
    }

    /// Cells that a relay sent to others over TLS, and over this.
    pub fn cells_out(self, net: &mut Net, relay: usize) -> [u64; 2] {
        ["tls", self.name()].map(|transport| net.cells_out_over(relay, transport))
    }
}

/// A circuit that is over before long makes the relays of a path find each other.
pub fn find_each_other(net: &mut Net, path: &[usize]) {
    let circuit = net.build(path, false);
    net.sim.run_for(Duration::from_secs(3));
    net.proxy(|proxy| proxy.close_circuit(circuit));
}
