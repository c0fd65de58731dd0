//! What streams meet at a Heddle exit, as a stock client tells it.

use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use heddle_lab::control::CircuitId;
use heddle_lab::socks::{self, Target};
use heddle_lab::traffic::{self, Content, Echo, Server};

use super::house;
use super::support::TIMEOUT;
use super::support::not_run::not_run;

const PATH: [&str; 3] = ["stockguard", "heddlemiddle", "heddleexit"];

/// Whether there is a name server of our own; without one, what a test does with it is told as not run.
fn has_name_server(what: &str) -> bool {
    let is_there = house().name_server.is_some();
    if !is_there {
        not_run(&format!("{what}, for want of a name server on port 53"));
    }
    is_there
}

/// Opens a stream that must fail, and returns the exit's reason and the SOCKS error.
fn refusal(circuit: CircuitId, target: &Target) -> (String, String) {
    let lab = &house().lab;
    let mut control = lab.network.control().unwrap();
    control.subscribe(&["STREAM"]).unwrap();
    let error = lab.stream(Some(circuit), target).unwrap_err().to_string();
    let mark = format!("SOCKS_USERNAME=\"{}\"", circuit.isolation().username);
    let end = Instant::now() + TIMEOUT;
    loop {
        let event = control.next_event(end.saturating_duration_since(Instant::now())).unwrap();
        let event = event.unwrap_or_else(|| panic!("no END was seen of {target:?}"));
        let reason = event.text.split(' ').find_map(|word| word.strip_prefix("REMOTE_REASON="));
        if let Some(reason) = reason.filter(|_| event.text.contains(&mark)) {
            return (reason.to_owned(), error);
        }
    }
}

/// Opens a stream to a server and has bytes come back.
fn reach(circuit: CircuitId, target: &Target) {
    let stream = house().lab.stream(Some(circuit), target).unwrap_or_else(|e| panic!("{target:?}: {e}"));
    Echo::new(stream, TIMEOUT).unwrap().round_trip(b"there and back").unwrap();
}

#[test]
fn a_closed_port_refuses() {
    let lab = &house().lab;
    let circuit = lab.circuit(&PATH);
    // Nobody's choice: a port that was free a moment ago may be somebody else's by now.
    let (reason, error) = refusal(circuit, &Target::Addr("127.0.0.1:1".parse().unwrap()));
    assert_eq!(reason, "CONNECTREFUSED");
    assert!(error.contains("connection refused"), "{error}");
    reach(circuit, &lab.target());
    lab.close(circuit);
    lab.check();
}

#[test]
fn the_exit_policy_holds_for_addresses_and_for_names() {
    let lab = &house().lab;
    let circuit = lab.circuit(&PATH);
    let mut targets =
        vec![Target::Addr("127.0.0.1:79".parse().unwrap()), Target::Name("localhost".into(), 79)];
    if has_name_server("the exit policy of a name that a name server knows") {
        targets.push(Target::Name("four.example.com".into(), 79));
    }
    for target in targets {
        assert_eq!(refusal(circuit, &target).0, "EXITPOLICY", "{target:?}");
    }
    reach(circuit, &lab.target());
    lab.close(circuit);
    lab.check();
}

#[test]
fn no_stream_leads_back_into_the_network() {
    if !has_name_server("streams to relays by name") {
        return;
    }
    let lab = &house().lab;
    // The client itself refuses addresses of relays, but not names of theirs. A stock exit says the same as ours.
    let listeners = lab.network.authority_control(0).unwrap().get_info("net/listeners/dir").unwrap();
    let dir_port = listeners.trim_matches('"').rsplit(':').next().unwrap().parse().unwrap();
    let ports = [lab.network.relay("stockguard").unwrap().or_port(), dir_port];
    for exit in ["stockone", "heddleexit"] {
        let circuit = lab.circuit(&["stockguard", "heddlemiddle", exit]);
        for port in ports {
            let target = Target::Name("four.example.com".into(), port);
            // An exit may learn of relays one consensus later than its client.
            let start = Instant::now();
            while lab.stream(Some(circuit), &target).is_ok() {
                assert!(start.elapsed() < 4 * TIMEOUT, "{exit} connects to port {port}");
                std::thread::sleep(Duration::from_secs(1));
            }
            assert_eq!(refusal(circuit, &target).0, "CONNECTREFUSED", "{exit} to port {port}");
        }
        lab.close(circuit);
    }
    lab.check();
}

#[test]
fn a_relay_without_an_exit_policy_is_no_exit() {
    let lab = &house().lab;
    let circuit = lab.circuit(&["stockguard", "heddleexit", "heddlemiddle"]);
    assert_eq!(refusal(circuit, &lab.target()).0, "EXITPOLICY");
    lab.close(circuit);
    lab.check();
}

#[test]
fn names_are_looked_up_at_the_exit() {
    let lab = &house().lab;
    let circuit = lab.circuit(&PATH);
    let port = lab.server.addr().port();
    // Every machine's hosts file has this one.
    reach(circuit, &Target::Name("localhost".into(), port));
    if has_name_server("names that a name server knows") {
        reach(circuit, &Target::Name("four.example.com".into(), port));
        let six = Server::start_on(Ipv6Addr::LOCALHOST.into()).unwrap();
        reach(circuit, &Target::Name("six.example.com".into(), six.addr().port()));
        for unknown in ["nobody.example.com", "broken.example.com"] {
            let (reason, _) = refusal(circuit, &Target::Name(unknown.into(), 80));
            assert_eq!(reason, "RESOLVEFAILED", "{unknown}");
        }
    }
    lab.close(circuit);
    lab.check();
}

#[test]
fn resolve_answers_without_a_stream() {
    let lab = &house().lab;
    let circuit = lab.circuit(&PATH);
    if has_name_server("resolution by a name server") {
        assert_eq!(lab.resolve(circuit, "four.example.com").unwrap(), IpAddr::from([127, 0, 0, 1]));
        assert_eq!(lab.resolve(circuit, "six.example.com").unwrap(), IpAddr::from(Ipv6Addr::LOCALHOST));
        assert!(lab.resolve(circuit, "nobody.example.com").is_err());
        let isolation = circuit.isolation();
        let ptr =
            |addr: [u8; 4]| socks::resolve_ptr(lab.network.socks(), addr.into(), Some(&isolation), TIMEOUT);
        assert_eq!(ptr([192, 0, 2, 7]).unwrap(), "seven.example.com");
        assert!(ptr([192, 0, 2, 8]).is_err());
    }
    assert!(lab.resolve(circuit, "localhost").unwrap().is_loopback());
    lab.close(circuit);
    lab.check();
}

#[test]
fn ipv6_addresses_are_reached() {
    let lab = &house().lab;
    let circuit = lab.circuit(&PATH);
    let server = Server::start_on(Ipv6Addr::LOCALHOST.into()).unwrap();
    let content = Content { seed: 6, len: 1_000_000 };
    let stream = lab.stream(Some(circuit), &Target::Addr(server.addr())).unwrap();
    let start = Instant::now();
    let transfer = traffic::download(stream, content, content.sha256(), start, TIMEOUT, &mut |_| ());
    assert!(transfer.unwrap().sha256_ok);
    lab.close(circuit);
    lab.check();
}

#[test]
fn an_exit_without_ipv6_refuses_its_addresses() {
    let lab = &house().lab;
    let circuit = lab.circuit(&["stockguard", "heddlemiddle", "heddleone"]);
    let (reason, _) = refusal(circuit, &Target::Addr("[::1]:80".parse().unwrap()));
    assert_eq!(reason, "EXITPOLICY");
    lab.close(circuit);
    lab.check();
}
