//! A Heddle relay's life in a network: listed, limited, reloaded, drained, stopped, killed and back.
//!
//! Every test has a relay of its own to do it to.

mod counter;
#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use counter::Counter;
use heddle_lab::Error;
use heddle_lab::control::CircuitId;
use heddle_lab::machine::process::Signal;
use heddle_lab::testnet::{NetworkOptions, Relay, RelayOptions};
use heddle_lab::traffic::{self, Content};
use support::{Lab, TIMEOUT, eventually};

/// What the slow relay may carry: its RelayBandwidthRate.
const RATE_BYTES_PER_S: f64 = 1048576.0;
/// How long the lingering relay waits for its circuits: its ShutdownWaitLength.
const LINGERS: Duration = Duration::from_secs(5);
/// Longer than any test takes: who has this for ShutdownWaitLength and ends has not waited for it.
const WAITS_FOR_EVER: &str = "ShutdownWaitLength 2 hours";

fn lab() -> &'static Lab {
    static LAB: OnceLock<Lab> = OnceLock::new();
    LAB.get_or_init(|| {
        let relays = vec![
            RelayOptions::stock("stockguard"),
            RelayOptions::stock("stockexit").exit(),
            RelayOptions::heddle("heddlemiddle"),
            RelayOptions::heddle("heddleexit").exit(),
            RelayOptions::heddle("victim"),
            RelayOptions::heddle("secondvictim"),
            RelayOptions::heddle("phoenix"),
            RelayOptions::heddle("stopped").line(WAITS_FOR_EVER),
            RelayOptions::heddle("drained").line(WAITS_FOR_EVER),
            RelayOptions::heddle("lingering")
                .line(&format!("ShutdownWaitLength {} seconds", LINGERS.as_secs())),
            // What it carries between itself and the guard passes a counter.
            RelayOptions::heddle("slow")
                .line(&format!("ORPort 127.0.0.1:{} NoListen", counter().port()))
                .line(&format!("ORPort 127.0.0.1:{} NoAdvertise", counter().relay_port()))
                .line("RelayBandwidthRate 1 MBytes")
                .line("RelayBandwidthBurst 1 MBytes")
                .line("CountPrivateBandwidth 1")
                // A circuit has the whole rate to itself, whichever shard its channels are in.
                .line("HeddleShards 3"),
        ];
        Lab::start(NetworkOptions { relays, ..NetworkOptions::default() })
    })
}

fn counter() -> &'static Counter {
    static COUNTER: OnceLock<Counter> = OnceLock::new();
    COUNTER.get_or_init(Counter::start)
}

fn relay(nickname: &str) -> &'static Relay {
    lab().network.relay(nickname).unwrap()
}

/// A circuit with this relay in its middle.
fn circuit_over(nickname: &str) -> CircuitId {
    lab().circuit(&["stockguard", nickname, "stockexit"])
}

/// A circuit over this relay, if one can be built now.
fn build_over(nickname: &str) -> heddle_lab::Result<CircuitId> {
    let network = &lab().network;
    let path = network.path(&["stockguard", nickname, "stockexit"]).unwrap();
    network.control().unwrap().build_circuit(&path, TIMEOUT)
}

fn log_of(nickname: &str) -> String {
    fs::read_to_string(relay(nickname).dir().join("log")).unwrap()
}

#[test]
fn a_consensus_lists_every_heddle_relay_three_times_in_a_row() {
    let lab = lab();
    let mut control = lab.network.authority_control(0).unwrap();
    control.subscribe(&["NEWCONSENSUS"]).unwrap();
    for _ in 0..3 {
        control.next_event(TIMEOUT).unwrap().expect("authorities vote every 20 s");
        for authority in 0..3 {
            let listings = lab.network.consensus(authority).unwrap();
            for nickname in ["heddlemiddle", "heddleexit", "slow"] {
                let listing = listings.iter().find(|entry| entry.nickname == nickname);
                assert!(listing.is_some_and(|entry| entry.usable()), "{nickname}: {listing:?}");
            }
        }
    }
}

#[test]
fn a_restart_keeps_the_identity() {
    let lab = lab();
    circuit_over("phoenix");
    let keys = relay("phoenix").dir().join("data/keys");
    let ed25519 = || fs::read(keys.join("ed25519_master_id_public_key")).unwrap();
    let before = ed25519();
    relay("phoenix").kill();
    relay("phoenix").restart().unwrap();
    // A guard that tries too early remembers for a minute that it could not connect.
    let or_port = (Ipv4Addr::LOCALHOST, relay("phoenix").or_port());
    eventually("the restarted relay", || TcpStream::connect(or_port).is_ok());
    eventually("a circuit over the restarted relay", || build_over("phoenix").is_ok());
    // The path names both identities, and the guard checks them.
    lab.both_ways(circuit_over("phoenix"), Content { seed: 1, len: 100_000 });
    assert_eq!(ed25519(), before);
    let fingerprint = format!("Our fingerprint is phoenix {}", relay("phoenix").fingerprint());
    assert_eq!(log_of("phoenix").matches(&fingerprint).count(), 2);
    let mut control = lab.network.authority_control(0).unwrap();
    control.subscribe(&["NEWCONSENSUS"]).unwrap();
    eventually("the authorities to take its descriptor again", || {
        log_of("phoenix").matches("3 authorities took it").count() >= 2
    });
    control.next_event(TIMEOUT).unwrap().expect("authorities vote every 20 s");
    let listings = lab.network.consensus(0).unwrap();
    let listing = listings.iter().find(|entry| entry.nickname == "phoenix");
    assert!(listing.is_some_and(|entry| entry.usable()), "{listing:?}");
}

#[test]
fn killing_a_relay_ends_its_streams_at_once_and_no_others() {
    let lab = lab();
    let bystander = lab.circuit(&["stockguard", "heddlemiddle", "heddleexit"]);
    let mut echo = lab.echo(bystander);
    // A stock guard may keep the news to itself until it has something else to tell its client, which
    // the echo sees to.
    kill_mid_transfer(["stockguard", "victim", "stockexit"], || {
        echo.round_trip(b"still there").unwrap();
    });
    kill_mid_transfer(["heddlemiddle", "secondvictim", "heddleexit"], || ());
    echo.round_trip(b"still there").unwrap();
    lab.both_ways(bystander, Content { seed: 2, len: 1_000_000 });
}

/// Kills the relay in the middle of a path that carries a download, and does something `meanwhile`
/// until the client's stream has ended.
fn kill_mid_transfer(path: [&str; 3], mut meanwhile: impl FnMut()) {
    let lab = lab();
    let doomed = lab.circuit(&path);
    let flowing = AtomicBool::new(false);
    thread::scope(|scope| {
        let transfer = scope.spawn(|| {
            let stream = lab.stream(Some(doomed), &lab.target()).unwrap();
            // More than can be through before the relay is dead.
            let content = Content { seed: 1, len: 2_000_000_000 };
            let mut on_bytes = |bytes| flowing.store(bytes > 1_000_000, Ordering::Relaxed);
            traffic::download(stream, content, [0; 32], Instant::now(), TIMEOUT, &mut on_bytes)
        });
        eventually("bytes to flow", || flowing.load(Ordering::Relaxed));
        relay(path[1]).kill();
        let killed = Instant::now();
        eventually("the stream to end", || {
            meanwhile();
            transfer.is_finished()
        });
        // Sooner than a download gives up that nothing comes for. That it takes less than five seconds is tested in
        // virtual time (`networks/network.rs`), because a busy machine delays this clock.
        assert!(killed.elapsed() < TIMEOUT / 2, "{path:?}: {:?}", killed.elapsed());
        // The stream breaks or ends too soon.
        let transfer = transfer.join().unwrap();
        assert!(transfer.is_err() || !transfer.unwrap().sha256_ok);
    });
}

#[test]
fn term_stops_a_relay_at_once() {
    let lab = lab();
    let circuit = circuit_over("stopped");
    let mut control = lab.network.control().unwrap();
    control.subscribe(&["CIRC"]).unwrap();
    relay("stopped").signal(Signal::Term).unwrap();
    assert!(relay("stopped").wait_exit(TIMEOUT).unwrap(), "{}", log_of("stopped"));
    control.wait_closed(circuit, TIMEOUT).unwrap();
    let state = fs::read_to_string(relay("stopped").dir().join("data/state")).unwrap();
    assert!(state.contains("BWHistoryReadMaxima "), "what it carried is kept: {state}");
}

#[test]
fn int_lets_circuits_finish() {
    let lab = lab();
    let mut echo = lab.echo(circuit_over("drained"));
    relay("drained").signal(Signal::Int).unwrap();
    eventually("new circuits to be refused", || matches!(build_over("drained"), Err(Error::Refused { .. })));
    echo.round_trip(b"still there").unwrap();
    // A second one does not wait for them.
    relay("drained").signal(Signal::Int).unwrap();
    assert!(relay("drained").wait_exit(TIMEOUT).unwrap(), "{}", log_of("drained"));
}

#[test]
fn int_stops_a_relay_when_it_has_waited_for_its_circuits() {
    circuit_over("lingering");
    let signalled = Instant::now();
    relay("lingering").signal(Signal::Int).unwrap();
    assert!(relay("lingering").wait_exit(LINGERS + TIMEOUT).unwrap(), "{}", log_of("lingering"));
    assert!(signalled.elapsed() >= LINGERS);
}

#[test]
fn hup_costs_no_circuit() {
    let lab = lab();
    let mut echo = lab.echo(lab.circuit(&["stockguard", "heddlemiddle", "heddleexit"]));
    relay("heddlemiddle").signal(Signal::Hup).unwrap();
    relay("heddleexit").signal(Signal::Hup).unwrap();
    for nickname in ["heddlemiddle", "heddleexit"] {
        eventually("the reload", || log_of(nickname).contains("Read again: log files"));
    }
    echo.round_trip(b"still there").unwrap();
}

/// That it also uses its rate is shown in virtual time, where no other test takes the processor
/// (`crates/network/tests/networks/rates.rs`).
#[test]
fn a_relay_keeps_to_its_rate() {
    let lab = lab();
    let circuit = circuit_over("slow");
    let content = Content { seed: 3, len: 8 << 20 };
    // The burst goes first; from then on there is the rate alone.
    lab.download(Some(circuit), Content { seed: 2, len: 2 << 20 }).unwrap();
    for way in ["up", "down"] {
        let before = counter().passed();
        let transfer = match way {
            "down" => lab.download(Some(circuit), content),
            _ => lab.upload(Some(circuit), content),
        };
        let transfer = transfer.unwrap();
        assert!(transfer.sha256_ok);
        let carried = counter().passed().iter().zip(before).map(|(now, before)| now - before).max();
        let carried = carried.expect("two ways") as f64;
        println!("{way}: {carried} bytes in {:.2} s", transfer.seconds);
        // A bucket promises no more than its rate and a burst, which is a second of it, after something was held up.
        let carried_max = 1.02 * RATE_BYTES_PER_S * (transfer.seconds + 1.0);
        assert!(carried <= carried_max, "{way}: {carried} bytes, at most {carried_max:.0}");
        assert!(carried >= content.len as f64, "{way}: {carried} bytes are not all");
    }
    lab.close(circuit);
}
