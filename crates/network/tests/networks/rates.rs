//! What a relay's operator allows is used and kept to, in virtual time: a circuit alone has the whole rate of the
//! relay in its middle, whichever of the relay's shards its channels are in.

use heddle_client::ExchangeStatus;
use heddle_network::{Net, Plan, download, pattern_sha256, upload};
use heddle_seam::time::Duration;
use heddle_sim::Wire;

const RATE_BYTES_PER_S: u64 = 1 << 20;
/// What a bucket holds at most.
const BURST_BYTES: u64 = RATE_BYTES_PER_S;
const TRANSFER_BYTES: u64 = 16 << 20;

/// Bytes of cells in a second, over what the operator allows, of a transfer that begins with an empty bucket.
fn used(shards: usize, latency: Duration, up: bool) -> f64 {
    let mut net = Net::new(&Plan {
        shards: vec![1, shards, 1],
        wire: Wire { latency, ..Wire::default() },
        slow: Some((1, RATE_BYTES_PER_S)),
        ..Plan::default()
    });
    // The last relay comes to the one in the middle first, and so to another of its shards than the first one does:
    // what is measured crosses from one to the other.
    net.build(&[2, 1], true);
    let circuit = net.build(&[0, 1, 2], true);
    let shards_at_work = (0..shards).filter(|shard| net.circuits(1, *shard) > 0).count();
    assert_eq!(shards_at_work, shards.min(2));
    let mut transfer = |bytes| {
        // Of an upload the server's hash is all that comes back.
        let (exchange, comes_back) = if up { (upload(bytes), 32) } else { (download(bytes), bytes) };
        let exchange = net.begin(circuit, exchange);
        let is_over = |status: &ExchangeStatus| status.received_bytes == comes_back;
        let status = net.await_status(exchange, Duration::from_secs(120), is_over);
        if up {
            assert_eq!(status.received_head, pattern_sha256(bytes));
        }
        net.sim.now().since(status.begun_at).as_secs_f64()
    };
    transfer(2 * BURST_BYTES);
    // Of a cell's 514 bytes 498 are data, and TLS has some of its own.
    TRANSFER_BYTES as f64 / transfer(TRANSFER_BYTES) / RATE_BYTES_PER_S as f64 * 514.0 / 498.0
}

#[test]
fn a_circuit_alone_has_the_rate_of_its_relay() {
    for shards in [1, 3] {
        for latency_ms in [1, 40] {
            for up in [true, false] {
                let used = used(shards, Duration::from_millis(latency_ms), up);
                println!("{shards} shards, wires of {latency_ms} ms, up: {up}: {used:.3} of the rate");
                assert!(
                    (0.9..=1.02).contains(&used),
                    "{shards} shards, {latency_ms} ms, up: {up}: {used:.3}"
                );
            }
        }
    }
}
