//! How circuits of `sctp-dtls` share a wire, with TCP and with other transports, and what losses cost them.

use crate::bench::{anchor, options};
use crate::loads::{ceilings, ceilings_are_kept, dtls, jain, quic, run, sctp, tcp};
use crate::lone::lone_cells_ms;
use crate::matrix::{of_seeds, wire_10mbit};
use heddle_netem::{DirectionOptions, Loss};
use heddle_transport::tcp_dtls::DtlsOptions;

#[test]
fn circuits_get_what_tcp_gets_and_no_more() {
    for name in ["6 : 1 TCP", "1 : 1 TCP, 60 ms", "4 : 4 TCP, 60 ms", "4 : 4 TCP, 30 ms"] {
        let (jain, tcp) = of_seeds(sctp, name, 1, 60);
        println!("{name}: {jain:.3} {tcp:.3}");
        assert!(jain >= 0.92, "{name}: {jain}");
        // One circuit leaves one TCP less than the 0.8 that tcp-dtls leaves it.
        let least = if name.starts_with("1 :") { 0.7 } else { 0.8 };
        assert!(tcp >= least, "{name}: {tcp}");
    }
}

#[test]
fn circuits_share_a_wire_whichever_transport_they_are_on() {
    for other in [dtls(3), quic(3)] {
        let loads = [sctp(3), other];
        let shares = run(&wire_10mbit(), &loads, 60, 7);
        println!("{shares:?}");
        assert!(jain(&loads, &shares) >= 0.95, "{shares:?}");
    }
}

/// Six circuits on a wire that loses: what they get together, over that of the same without losses.
#[test]
fn one_lost_in_a_thousand_costs_a_tenth_at_most() {
    let get = |load, probability| {
        let loss = Loss::Bernoulli { probability };
        let wire = DirectionOptions { loss, ..wire_10mbit() };
        run(&wire, &[load], 40, 3)[0].bits_per_s
    };
    let both = [sctp(6), dtls(6)].map(|load| (load, get(load, 0.0)));
    for probability in [0.001, 0.01] {
        let [sctp, dtls] = both.map(|(load, without)| get(load, probability) / without);
        println!("{probability}: {sctp:.3} of what it gets without, and tcp-dtls {dtls:.3}");
        assert!(sctp >= dtls - 0.1 && (probability > 0.001 || sctp >= 0.9), "{probability}: {sctp} {dtls}");
    }
}

/// What the paper asks of SCTP: whether it is fair to streams that send little.
#[test]
fn a_circuit_that_sends_little_waits_no_longer_than_over_tcp_dtls() {
    let (sctp, dtls) =
        (lone_cells_ms(wire_10mbit(), &options()), lone_cells_ms(wire_10mbit(), &DtlsOptions::new(anchor())));
    println!("a cell now and then beside bulk: {sctp:.1} ms, over tcp-dtls {dtls:.1} ms");
    assert!(sctp <= dtls * 1.15, "{sctp} {dtls}");
}

/// Eight circuits beside two TCPs: as the network lowers the ceiling, a running connection follows. They begin later
/// than these by the association's two round trips, with a queue that is full by then, and come to their share after
/// half a minute.
#[test]
fn the_network_says_as_how_many_tcps_a_connection_contends() {
    let loads = [sctp(8), tcp(), tcp()];
    ceilings_are_kept(&ceilings(&wire_10mbit(), &loads, 1, 60, &[8, 1]));
}
