//! What a cell costs over tcp-dtls: `cargo bench -p heddle-transport --bench dtls`.

use heddle_transport::tcp_dtls::{DtlsEndpoint, DtlsOptions};

mod support;

fn main() {
    support::run(|anchor, secret, seed| {
        Box::new(DtlsEndpoint::new(DtlsOptions::new(anchor), secret, seed).expect("defaults"))
    });
}
