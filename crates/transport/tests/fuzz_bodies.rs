//! The fuzz targets of this crate without a fuzzer: the same bodies, on seeded inputs. How to add
//! one is in `fuzz/README.md`.

#[path = "../../../fuzz/src/dtls.rs"]
mod dtls;
#[path = "../../../fuzz/src/handshake.rs"]
mod handshake;
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;
#[path = "../../../fuzz/src/neighbour.rs"]
mod neighbour;
#[path = "../../../fuzz/src/quic.rs"]
mod quic;
#[path = "../../../fuzz/src/quic_neighbour.rs"]
mod quic_neighbour;
#[path = "../../../fuzz/src/sctp_dtls.rs"]
mod sctp_dtls;
#[path = "../../../fuzz/src/shared_tcp.rs"]
mod shared_tcp;
#[path = "../../../fuzz/src/tcp_esp.rs"]
mod tcp_esp;
#[path = "../../../fuzz/src/tls.rs"]
mod tls;
#[path = "../../../fuzz/src/tls_open.rs"]
mod tls_open;
#[path = "../../../fuzz/src/tls_responder.rs"]
mod tls_responder;

/// Inputs per target.
const ROUNDS: u64 = 20_000;

/// Each begins with a handshake, so there are fewer.
#[test]
fn dtls_stands() {
    mutate::throw(dtls::run, &dtls::seeds(), ROUNDS / 50);
}

#[test]
fn sctp_dtls_stands() {
    mutate::throw(sctp_dtls::run, &sctp_dtls::seeds(), ROUNDS / 50);
}

#[test]
fn shared_tcp_stands() {
    mutate::throw(shared_tcp::run, &shared_tcp::seeds(), ROUNDS / 50);
}

#[test]
fn tcp_esp_stands() {
    let cells: Vec<usize> = tcp_esp::seeds().iter().map(|seed| tcp_esp::run_counting(seed)).collect();
    // CREATE2, two of RELAY, and DESTROY where we did not end the flow ourselves.
    assert_eq!(cells[..4], [3, 4, 4, 4], "the seeds reach what is behind the decryption");
    mutate::throw(tcp_esp::run, &tcp_esp::seeds(), ROUNDS / 20);
}

#[test]
fn handshake_stands() {
    mutate::throw(handshake::run, &handshake::seeds(), ROUNDS);
}

/// Each begins with a handshake, so there are fewer.
#[test]
fn neighbour_stands() {
    mutate::throw(neighbour::run, &neighbour::seeds(), ROUNDS / 50);
}

#[test]
fn quic_neighbour_stands() {
    mutate::throw(quic_neighbour::run, &quic_neighbour::seeds(), ROUNDS / 50);
}

/// Each begins with a handshake, so there are fewer.
#[test]
fn quic_stands() {
    mutate::throw(quic::run, &quic::seeds(), ROUNDS / 50);
}

/// Each begins with two handshakes, so there are fewer.
#[test]
fn tls_open_stands() {
    mutate::throw(tls_open::run, &tls_open::seeds(), ROUNDS / 50);
}

/// A responder signs for each ClientHello, so there are fewer.
#[test]
fn tls_responder_stands() {
    mutate::throw(tls_responder::run, &tls_responder::seeds(), ROUNDS / 10);
}

#[test]
fn tls_stands() {
    mutate::throw(tls::run, &tls::seeds(), ROUNDS);
}
