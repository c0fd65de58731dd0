//! What a cell costs over tcp-dtls: `cargo bench -p heddle-transport --bench dtls`.

use heddle_transport::tcp_dtls::{self, DtlsOptions};

mod support;

fn main() {
    support::run(|anchor, secret, seed| {
        tcp_dtls::endpoint(DtlsOptions::new(anchor), secret, seed).expect("defaults")
    });
}
