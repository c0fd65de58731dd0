//! What a cell costs over QUIC: `cargo bench -p heddle-transport --bench quic`.

use heddle_transport::quic::{QuicEndpoint, QuicOptions};

mod support;

fn main() {
    support::run(|anchor, secret, seed| {
        Box::new(QuicEndpoint::new(QuicOptions::new(anchor), secret, seed).expect("defaults"))
    });
}
