//! The fuzz targets of this crate without a fuzzer: the same bodies, on seeded inputs. How to add
//! one is in `fuzz/README.md`.

#[path = "../../../fuzz/src/dtls.rs"]
mod dtls;
#[path = "../../../fuzz/src/handshake.rs"]
mod handshake;
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;
#[path = "../../../fuzz/src/quic.rs"]
mod quic;
#[path = "../../../fuzz/src/tls.rs"]
mod tls;

/// Inputs per target.
const ROUNDS: u64 = 20_000;

/// Each begins with a handshake, so there are fewer.
#[test]
fn dtls_stands() {
    mutate::throw(dtls::run, &dtls::seeds(), ROUNDS / 50);
}

#[test]
fn handshake_stands() {
    mutate::throw(handshake::run, &handshake::seeds(), ROUNDS);
}

/// Each begins with a handshake, so there are fewer.
#[test]
fn quic_stands() {
    mutate::throw(quic::run, &quic::seeds(), ROUNDS / 50);
}

#[test]
fn tls_stands() {
    mutate::throw(tls::run, &tls::seeds(), ROUNDS);
}
