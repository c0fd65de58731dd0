//! A transport that no registry has and no other crate knows carries circuits between relays in virtual time.

// The relay's own tests want more of it.
#[allow(dead_code, reason = "of use to the relay's tests")]
#[path = "../../../relay/tests/relay/pipe.rs"]
mod pipe;

use heddle_client::ExchangeState;
use heddle_network::{Net, Plan, download, pattern_sha256, upload};
use heddle_seam::time::Duration;
use heddle_transport::registry::{Registered, TRANSPORTS};
use pipe::{PIPE, Pipe};

static REGISTERED: Registered = Registered {
    transport: &PIPE,
    summary: "cells as they are, for this test",
    testing_only: Some("it hides nothing"),
    options: &[],
    stack: None,
    endpoint: |_| Ok(Box::new(Pipe::default())),
};

const BYTES: u64 = 500_000;

#[test]
fn a_transport_of_a_test_carries_circuits_both_ways() {
    assert!(TRANSPORTS.iter().all(|line| line.transport != &PIPE));
    for shards in [vec![1, 1, 1], vec![1, 2, 2]] {
        let mut net = Net::new(&Plan { shards, ..Plan::default() }.speaking(&REGISTERED, &[0, 1]));
        // The first two relays find each other over TLS, and take the transport for what comes later.
        let first = net.build(&[0, 1, 2], false);
        net.sim.run_for(Duration::from_secs(3));
        net.proxy(|proxy| proxy.close_circuit(first));
        let circuit = net.build(&[0, 1, 2], true);
        let before = [0, 1].map(|relay| net.cells_out_over(relay, PIPE.name));

        let down = net.begin(circuit, download(BYTES));
        let status = net.await_status(down, Duration::from_secs(60), |status| {
            matches!(status.state, ExchangeState::Ended(_) | ExchangeState::Lost(_))
        });
        assert_eq!(status.received_sha256, pattern_sha256(BYTES), "{status:?}");
        let up = net.begin(circuit, upload(BYTES));
        let status = net.await_status(up, Duration::from_secs(60), |status| status.received_bytes == 32);
        assert_eq!(status.received_head, pattern_sha256(BYTES), "{status:?}");

        let cells = [0, 1].map(|relay| net.cells_out_over(relay, PIPE.name) - before[relay]);
        assert!(cells.iter().all(|cells| *cells > BYTES / 509), "{cells:?} cells");
        assert_eq!(net.cells_out_over(2, PIPE.name), 0, "the exit does not speak it");
    }
}
