//! Peers that keep to no protocol. Whatever they send, the relay serves its other circuits.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use heddle_lab::traffic::Content;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::anybody::Anybody;
use super::house;

const PATH: [&str; 3] = ["stockguard", "heddlemiddle", "heddleexit"];
/// How long a relay may take to close a connection whose peer broke the protocol.
const PATIENCE: Duration = Duration::from_secs(20);
/// Link protocols 4 and 5 (tor-spec, "Negotiating versions").
pub const VERSIONS: &[u8] = &[0, 0, 7, 0, 4, 0, 4, 0, 5];
const CELL_LEN: usize = 514;

pub fn or_port(nickname: &str) -> SocketAddr {
    let port = house().lab.network.relay(nickname).unwrap().or_port();
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn tcp(nickname: &str) -> TcpStream {
    let stream = TcpStream::connect(or_port(nickname)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A TLS connection to a relay, as any stranger can make one.
fn tls(nickname: &str) -> StreamOwned<ClientConnection, TcpStream> {
    StreamOwned::new(tls_client(), tcp(nickname))
}

/// The client's end of TLS, which takes every certificate.
pub fn tls_client() -> ClientConnection {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_no_client_auth();
    let name = ServerName::try_from("www.example.com").unwrap();
    ClientConnection::new(Arc::new(config), name).unwrap()
}

/// Sends bytes until all are out or the relay has had enough.
fn send(stream: &mut impl Write, bytes: &[u8]) {
    let _ = stream.write_all(bytes).and_then(|()| stream.flush());
}

/// Waits until the relay closes the connection.
fn expect_closed(stream: &mut impl Read, what: &str) {
    let mut sink = [0; 4096];
    loop {
        match stream.read(&mut sink) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                panic!("{what}: the relay keeps the connection")
            }
            Err(_) => return,
        }
    }
}

/// Bytes that follow from a seed and look like nothing.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        // xorshift64 (Marsaglia 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A cell of fixed length.
fn cell(circ_id: u32, command: u8, body: &[u8]) -> Vec<u8> {
    let mut cell = circ_id.to_be_bytes().to_vec();
    cell.push(command);
    cell.extend(body);
    cell.resize(CELL_LEN, 0);
    cell
}

/// Reads cells until one with this command has come.
fn await_cell(stream: &mut impl Read, command: u8) {
    // VERSIONS, which comes first, has a shorter circuit id than all others.
    let mut id_len = 2;
    loop {
        let mut head = vec![0_u8; id_len + 1];
        stream.read_exact(&mut head).unwrap();
        let came = head[id_len];
        id_len = 4;
        let mut body_len = CELL_LEN - 5;
        if came == 7 || came >= 128 {
            let mut len = [0; 2];
            stream.read_exact(&mut len).unwrap();
            body_len = u16::from_be_bytes(len).into();
        }
        stream.read_exact(&mut vec![0_u8; body_len]).unwrap();
        if came == command {
            return;
        }
    }
}

/// The relay still carries what it carried, and takes new circuits.
fn serves(circuit: heddle_lab::control::CircuitId) {
    let lab = &house().lab;
    lab.both_ways(circuit, Content { seed: 7, len: 200_000 });
    let another = lab.circuit(&PATH);
    lab.both_ways(another, Content { seed: 8, len: 50_000 });
    lab.close(another);
    lab.check();
}

#[test]
fn noise_costs_the_connection_that_makes_it() {
    let circuit = house().lab.circuit(&PATH);
    for seed in 0..20 {
        let mut stream = tcp("heddlemiddle");
        send(&mut stream, &noise(seed, 20_000));
        expect_closed(&mut stream, "noise instead of TLS");
        let mut stream = tls("heddlemiddle");
        send(&mut stream, &noise(seed, 20_000));
        expect_closed(&mut stream, "noise in TLS");
    }
    serves(circuit);
    house().lab.close(circuit);
}

#[test]
fn cells_out_of_place_cost_the_connection() {
    let circuit = house().lab.circuit(&PATH);
    // VERSIONS as long as a cell can be; an odd one; none of ours; a relay cell first; padding of
    // 64 KiB before the handshake is done, without end.
    let huge = [&[0, 0, 7, 0xFF, 0xFF][..], &noise(1, 0xFFFF)].concat();
    let padding = [&[0, 0, 0, 0, 128, 0xFF, 0xFF][..], &[0; 0xFFFF]].concat().repeat(20);
    let cases: [(&str, Vec<u8>); 5] = [
        ("a huge VERSIONS", huge),
        ("an odd VERSIONS", vec![0, 0, 7, 0, 3, 0, 4, 0]),
        ("versions of the future", vec![0, 0, 7, 0, 2, 0, 99]),
        ("a cell before VERSIONS", cell(0x8000_0001, 3, &noise(2, 509))),
        ("a circuit before NETINFO", [VERSIONS, &cell(0x8000_0001, 5, &noise(3, 20)), &padding].concat()),
    ];
    for (what, bytes) in cases {
        let mut stream = tls("heddlemiddle");
        send(&mut stream, &bytes);
        expect_closed(&mut stream, what);
    }
    serves(circuit);
    house().lab.close(circuit);
}

#[test]
fn an_anonymous_peer_may_send_any_cell() {
    let circuit = house().lab.circuit(&PATH);
    for seed in 1..10 {
        let mut stream = tls("heddlemiddle");
        // NETINFO as a client sends it: no time, the other's address, none of its own.
        let mut opening = [VERSIONS, &cell(0, 8, &[0, 0, 0, 0, 4, 4, 127, 0, 0, 1, 0])].concat();
        opening.extend(cell(0x8000_0000 | seed, 5, &noise(seed.into(), 20)));
        send(&mut stream, &opening);
        // The circuit is there when CREATED_FAST has come.
        await_cell(&mut stream, 6);
        let mut cells = Vec::new();
        for index in 0..500_u32 {
            let bytes = noise(u64::from(seed * 1000 + index), 514);
            // Half of them are for the circuit that is there, half for none.
            let circ_id = 0x8000_0000 | (seed + index % 2);
            // All but VERSIONS, which is of another length, so that the relay would take no cell after it for one.
            let command = bytes[0] % 15;
            let command = if command < 7 { command } else { command + 1 };
            cells.extend(cell(circ_id, command, &bytes[5..]));
        }
        send(&mut stream, &cells);
        // It may be closed or kept; what counts is the others.
    }
    serves(circuit);
    house().lab.close(circuit);
}

#[test]
fn half_open_connections_block_nobody() {
    let circuit = house().lab.circuit(&PATH);
    let silent: Vec<TcpStream> = (0..300).map(|_| tcp("heddlemiddle")).collect();
    let slow: Vec<_> = (0..20)
        .map(|_| {
            let mut stream = tls("heddlemiddle");
            send(&mut stream, &VERSIONS[..5]);
            stream
        })
        .collect();
    serves(circuit);
    drop((silent, slow));
    serves(circuit);
    house().lab.close(circuit);
}
