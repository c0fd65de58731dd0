//! Relays that put their circuits on datagrams.

use core::fmt;
use heddle_network::{Net, Plan};
use heddle_seam::time::Duration;
use heddle_transport::registry::{self, Registered};

/// What carries circuits between upgraded relays.
#[derive(Clone, Copy)]
pub struct Transport(&'static Registered);

impl Transport {
    /// One of the registry.
    pub fn named(name: &str) -> Self {
        Transport(registry::named(name).expect("a transport of the registry"))
    }

    pub fn name(self) -> &'static str {
        self.0.transport.name
    }

    /// The same network with these relays upgraded.
    pub fn among(self, upgraded: &[usize], plan: &Plan) -> Plan {
        plan.clone().speaking(self.0, upgraded)
    }

    /// Upgraded relays, after a circuit over TLS made them find each other.
    pub fn paired(self, plan: &Plan) -> Net {
        self.paired_among(&Vec::from_iter(0..plan.shards.len()), plan)
    }

    /// The same where only these relays are upgraded.
    pub fn paired_among(self, upgraded: &[usize], plan: &Plan) -> Net {
        let mut net = Net::new(&self.among(upgraded, plan));
        find_each_other(&mut net, &[0, 1, 2]);
        net
    }

    /// Cells that a relay sent to others over TLS, and over this.
    pub fn cells_out(self, net: &mut Net, relay: usize) -> [u64; 2] {
        ["tls", self.name()].map(|transport| net.cells_out_over(relay, transport))
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A circuit that is over before long makes the relays of a path find each other.
pub fn find_each_other(net: &mut Net, path: &[usize]) {
    let circuit = net.build(path, false);
    net.sim.run_for(Duration::from_secs(3));
    net.proxy(|proxy| proxy.close_circuit(circuit));
}
