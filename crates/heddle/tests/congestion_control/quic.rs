//! Circuits between Heddle relays go over QUIC by themselves, over tcp-dtls or sctp-dtls where one of them speaks
//! nothing else, and over TLS where one has no UDP port.
//!
//! The relays in the middle are for these tests alone, so that their counts are too.

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::OnceLock;
use std::thread;
use std::time::Instant;

use heddle_lab::machine::ports::PortBlock;
use heddle_lab::metrics::Metrics;
use heddle_lab::testnet::RelayOptions;
use heddle_lab::traffic::Content;
use heddle_seam::stopwatch::Step;
use rustix::net::{self, AddressFamily, SocketType};

use crate::support::{Lab, TIMEOUT, eventually};
use crate::{CHOICE, lab};

/// The relays and what stands in their torrc beside their MetricsPort. Circuits of one of them cross between shards.
const MIDDLES: [(&str, &str); 14] = [
    ("quicmiddle", "HeddleShards 1"),
    ("shardedmiddle", "HeddleShards 2"),
    ("plainmiddle", "HeddleUDPOffload 0"),
    ("dtlsmiddle", "HeddleTransports tcp-dtls,tls"),
    ("sctpmiddle", "HeddleTransports sctp-dtls,tls"),
    ("percircuit", "HeddleTransports quic-per-circuit,tls"),
    ("espmiddle", "HeddleTransports tcp-esp,tls"),
    ("fewsockets", "HeddleTransports tcp-esp,tls"),
    ("tlsmiddle", "HeddleUDPPort 0"),
    ("dialler", "HeddleUDPPort auto"),
    ("stoppedquic", "HeddleTransports quic,tls"),
    ("stoppeddtls", "HeddleTransports tcp-dtls,tls"),
    ("floodedquic", "HeddleTransports quic,tls"),
    ("floodeddtls", "HeddleTransports tcp-dtls,tls"),
];

/// Addresses of loopback: where others reach the walled relay, and where their connections seem to come from then.
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const INSIDE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

fn metrics_ports() -> &'static [(&'static str, SocketAddr)] {
    static PORTS: OnceLock<(PortBlock, Vec<(&str, SocketAddr)>)> = OnceLock::new();
    let (_, ports) = PORTS.get_or_init(|| {
        let mut block = PortBlock::reserve().unwrap();
        let mut port = |(name, _)| (name, (Ipv4Addr::LOCALHOST, block.take().unwrap()).into());
        let ports = MIDDLES.map(&mut port).to_vec();
        (block, ports)
    });
    ports
}

/// The relays of these tests.
pub fn middles() -> Vec<RelayOptions> {
    let relay = |((name, line), (_, addr)): (&(&str, &str), &(&str, SocketAddr))| {
        let timings = u8::from(*name == "dtlsmiddle");
        let sockets = if *name == "fewsockets" { "12" } else { "auto" };
        let relay = RelayOptions::heddle(name).line(line).line(&format!("HeddleTimings {timings}"));
        let relay = relay.line(&format!("HeddleESPSocketsMax {sockets}"));
        relay.line(&format!("MetricsPort {addr}")).line("MetricsPortPolicy accept 127.0.0.1")
    };
    MIDDLES.iter().zip(metrics_ports()).map(relay).chain([walled()]).collect()
}

/// A relay whose TCP connections are translated and whose datagrams are not: those who dial it over TLS seem to come
/// from another address than their datagrams, which it therefore drops.
fn walled() -> RelayOptions {
    static WALL: OnceLock<(PortBlock, u16, u16)> = OnceLock::new();
    let (_, outside, inside) = WALL.get_or_init(|| {
        let mut block = PortBlock::reserve().unwrap();
        let (outside, inside) = (block.take().unwrap(), block.take().unwrap());
        let listener = TcpListener::bind((OUTSIDE, outside)).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().map(Result::unwrap) {
                // The relay may not listen yet, or no longer.
                if let Ok(relay) = connect_from_inside((Ipv4Addr::LOCALHOST, inside).into()) {
                    join(&stream, &relay);
                }
            }
        });
        (block, outside, inside)
    });
    RelayOptions::heddle("walled")
        .line(&format!("Address {OUTSIDE}"))
        .line(&format!("ORPort {OUTSIDE}:{outside} NoListen"))
        .line(&format!("ORPort 127.0.0.1:{inside} NoAdvertise"))
}

fn connect_from_inside(to: SocketAddr) -> rustix::io::Result<TcpStream> {
    let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    net::bind(&socket, &SocketAddr::from((INSIDE, 0)))?;
    net::connect(&socket, &to)?;
    Ok(TcpStream::from(socket))
}

/// Passes bytes on, both ways, until the sides end.
fn join(outside: &TcpStream, inside: &TcpStream) {
    for (from, to) in [(outside, inside), (inside, outside)] {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
    }
}

pub fn metrics(nickname: &str) -> Metrics {
    let (_, addr) = metrics_ports().iter().find(|(name, _)| *name == nickname).unwrap();
    Metrics::scrape(*addr, TIMEOUT).unwrap()
}

/// Waits until `middle` has a pair with the guard and with the exit, which takes circuits to find them.
pub fn wait_for_pairs(lab: &Lab, middle: &str, transport: &str) {
    // That there are two connections says little: two shards may both have found the same neighbour.
    eventually("the relays to pair", || {
        let before = metrics(middle);
        let circuit = lab.first_circuit(&["heddleguard", middle, "heddleexit"]);
        lab.both_ways(circuit, Content { seed: 1, len: 20_000 });
        lab.close(circuit);
        metrics(middle).cell_share(&before, transport).is_some_and(|share| share >= 0.99)
    });
}

pub fn carries_circuits_over(middle: &str, transport: &str) {
    let (lab, _shared) = (lab(), CHOICE.read().unwrap());
    wait_for_pairs(lab, middle, transport);
    // Two shards may both have found the same neighbour first, while the other one is yet to be found.
    let (mut share, mut after) = (0.0, Metrics::default());
    for _ in 0..5 {
        let before = metrics(middle);
        let circuit = lab.circuit(&["heddleguard", middle, "heddleexit"]);
        lab.both_ways(circuit, Content { seed: 1, len: 5_000_000 });
        lab.close(circuit);
        after = metrics(middle);
        share = after.cell_share(&before, transport).unwrap();
        let sent =
            |name| after.sum(name, &[("direction", "out")]) - before.sum(name, &[("direction", "out")]);
        let at_a_time = sent("heddle_datagrams_total") / sent("heddle_datagram_calls_total");
        println!(
            "{middle}: {share:.5} of the cells went over {transport}, {at_a_time:.1} datagrams at a time"
        );
        if share >= 0.99 {
            break;
        }
    }
    assert!(share >= 0.99, "{middle}: {share}");
    assert_eq!(after.sum("heddle_datagrams_dropped_total", &[]), 0.0);
    // Waiting in queues was measured, and the pool is as good as empty again.
    assert!(after.sum("heddle_queue_delay_seconds_count", &[]) > 20_000.0);
    assert!(after.sum("tor_relay_traffic_bytes", &[("direction", "read")]) > 10_000_000.0);
}

#[test]
fn circuits_go_over_quic() {
    carries_circuits_over("quicmiddle", "quic");
}

#[test]
fn circuits_that_cross_between_shards_go_over_quic() {
    carries_circuits_over("shardedmiddle", "quic");
    assert_eq!(metrics("shardedmiddle").sum("heddle_shards", &[]), 2.0);
}

#[test]
fn circuits_go_over_quic_in_plain_datagrams() {
    carries_circuits_over("plainmiddle", "quic");
}

#[test]
fn circuits_go_over_tcp_dtls_where_one_side_speaks_nothing_else() {
    carries_circuits_over("dtlsmiddle", "tcp-dtls");
    let told = metrics("dtlsmiddle");
    for step in Step::ALL {
        let count = told.sum("heddle_step_seconds_count", &[("step", step.name())]);
        let least = match step {
            Step::Timer => 1.0,
            // What comes together is worked off together, so a loop has far fewer turns than there are datagrams.
            Step::Wait | Step::Turn => 50.0,
            _ => 1_000.0,
        };
        assert!(count >= least, "{step:?}: {count}");
    }
}

#[test]
fn circuits_go_over_sctp_dtls_where_one_side_speaks_nothing_else() {
    carries_circuits_over("sctpmiddle", "sctp-dtls");
}

#[test]
fn circuits_have_quic_connections_of_their_own_where_that_is_asked_for() {
    carries_circuits_over("percircuit", "quic-per-circuit");
}

#[test]
fn a_relay_without_a_udp_port_stays_on_tls() {
    let (lab, _shared) = (lab(), CHOICE.read().unwrap());
    let circuit = lab.first_circuit(&["heddleguard", "tlsmiddle", "heddleexit"]);
    lab.both_ways(circuit, Content { seed: 2, len: 2_000_000 });
    lab.close(circuit);
    let after = metrics("tlsmiddle");
    assert_eq!(after.cell_share(&Metrics::default(), "tls"), Some(1.0));
    assert_eq!(after.sum("heddle_datagrams_total", &[]), 0.0);
    lab.check();
}

#[test]
fn datagrams_that_do_not_come_through_delay_no_circuit() {
    let (lab, _shared) = (lab(), CHOICE.read().unwrap());
    let start = Instant::now();
    while metrics("dialler").sum("heddle_fallbacks_total", &[("reason", "no_answer")]) == 0.0 {
        assert!(start.elapsed() < TIMEOUT, "nobody noticed that there is no answer");
        let circuit = lab.first_circuit(&["dialler", "walled", "heddleexit"]);
        lab.both_ways(circuit, Content { seed: 3, len: 500_000 });
        lab.close(circuit);
    }
    // Had anything waited for the datagrams, this would not have been over TLS. Other relays may have found the dialler
    // while they tried whether they can be reached, which takes a few cells.
    let told = metrics("dialler");
    let cells = told.sum("heddle_cells_total", &[("transport", "tls")]);
    assert!(cells > 2_000.0, "{cells}");
    let share = told.cell_share(&Metrics::default(), "quic").unwrap();
    assert!(share < 0.01, "{share}");
}

#[test]
fn metrics_tell_what_stock_tor_tells() {
    let (_lab, _shared) = (lab(), CHOICE.read().unwrap());
    eventually("the flags of the consensus", || {
        metrics("quicmiddle").sum("tor_relay_flag", &[("type", "Running")]) == 1.0
    });
    let middle = metrics("quicmiddle");
    assert!(middle.sum("tor_relay_signing_cert_expiry_timestamp", &[]) > 1_700_000_000.0);
    assert!(middle.sum("tor_relay_load_socket_total", &[("state", "opened")]) >= 1.0);
    assert!(middle.sum("heddle_consensus_relays", &[]) >= 6.0);
}
