use super::*;
use heddle_dir::consensus::RelayFlags;
use std::io::Read;
use std::net::SocketAddr;

/// A port whose shards are none.
fn start(policy: &[&str]) -> SocketAddr {
    let rules: Vec<_> = policy.iter().map(|rule| rule.parse().unwrap()).collect();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (sender, stats) = mpsc::sync_channel(ANSWERS_MAX);
    let policy = ExitPolicy::from_rules(&rules);
    let known = Known::default();
    known.set(Facts {
        flags: Some(RelayFlags { fast: true, ..RelayFlags::default() }),
        relays: 7,
        signing_expires_unix_s: 1_800_000_000,
        freed_cells: 2,
    });
    let timings = Some(Arc::new(Timings::new()));
    let port = MetricsPort { listener: Some(listener), policy, sender, stats, known, timings };
    port.start(Vec::new(), Some(1000)).unwrap();
    addr
}

fn ask(addr: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    // It may have been closed already.
    let _ = stream.write_all(request);
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn metrics_are_told_to_those_that_may_ask() {
    let addr = start(&["accept 127.0.0.1"]);
    let answer = ask(addr, b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200 OK\r\n"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    for line in [
        "tor_relay_load_socket_total 1000",
        "tor_relay_signing_cert_expiry_timestamp 1800000000",
        "tor_relay_load_oom_bytes_total{subsys=\"cell\"} 1028",
        "tor_relay_flag{type=\"Fast\"} 1",
        "tor_relay_flag{type=\"Running\"} 1",
        "tor_relay_flag{type=\"Exit\"} 0",
        "heddle_consensus_relays 7",
        "heddle_queue_delay_seconds_bucket{le=\"+Inf\"} 0",
        "heddle_step_seconds_count{step=\"datapath\"} 0",
    ] {
        assert!(body.lines().any(|found| found == line), "{line} is missing:\n{body}");
    }
    for line in body.lines().filter(|line| !line.starts_with('#')) {
        let (_, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
}

#[test]
fn whoever_may_not_ask_hears_nothing() {
    for policy in [&[][..], &["reject 127.0.0.1", "accept *"]] {
        assert_eq!(ask(start(policy), b"GET /metrics HTTP/1.1\r\n\r\n"), "");
    }
}

#[test]
fn what_is_not_understood_is_refused_and_the_next_is_served() {
    let addr = start(&["accept *"]);
    assert_eq!(ask(addr, b"GET / HTTP/1.1\r\n\r\n"), "HTTP/1.0 404 Not Found\r\n\r\n");
    assert_eq!(ask(addr, b"PUT /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.0 405 Method Not Allowed\r\n\r\n");
    // Longer than any head may be; no more of it is read than that.
    assert_eq!(ask(addr, &[b'x'; 1024]), "HTTP/1.0 400 Bad Request\r\n\r\n");
    drop(TcpStream::connect(addr).unwrap());
    assert!(ask(addr, b"GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.0 200"));
}

#[test]
fn every_refusal_is_documented() {
    let row = |(what, whys): &(&str, &[&str])| format!("| `{what}` | `{}` |", whys.join("`, `"));
    let rows: Vec<String> = heddle_relay::REFUSALS.iter().map(row).collect();
    let document = include_str!("../../../../../docs/reference/metrics.md");
    assert!(document.contains(&rows.join("\n")), "{}", rows.join("\n"));
}
