//! Links without encryption make the same run: whoever looks at the wires sees the same packets at the same times, and
//! what is delivered is the same.

use heddle_netem::pcapng::Place;
use heddle_network::{Net, Plan, download, pattern_sha256, upload};
use heddle_seam::time::{Duration, Instant};
use heddle_sim::{HostId, TraceHash, Wire, WireWatch};
use heddle_transport::{Ciphers, registry};
use std::sync::{Arc, Mutex};

const BYTES: u64 = 150_000;

/// A packet: when and where it was seen, how long it was, and whether its end says that nothing hides it.
type Seen = (u64, HostId, HostId, String, usize, bool);

/// What null tags say.
const TAG: &[u8] = b"null cryptograph";

/// Keeps what it sees of all packets.
#[derive(Clone, Default)]
struct Watch(Arc<Mutex<Vec<Seen>>>);

impl WireWatch for Watch {
    fn wants(&self, _: HostId, _: HostId) -> bool {
        true
    }

    fn on_packet(&mut self, at: Instant, from: HostId, to: HostId, place: Place, packet: &[u8]) {
        let (place, has_tag) = (format!("{place:?}"), packet.windows(TAG.len()).any(|bytes| bytes == TAG));
        self.0.lock().unwrap().push((at.as_nanos(), from, to, place, packet.len(), has_tag));
    }
}

/// Brings a network up from nothing, downloads and uploads over it, and tells what the wires saw.
fn run(over: Option<&str>, ciphers: Ciphers) -> (Vec<Seen>, TraceHash) {
    let wire = Wire { loss_ppm: 5_000, ..Wire::default() };
    let mut plan = Plan { seed: 23, wire, ciphers, ..Plan::default() };
    if let Some(name) = over {
        plan = plan.speaking(registry::named(name).expect("it is registered"), &[0, 1, 2]);
    }
    let mut net = Net::new(&plan);
    let watch = Watch::default();
    net.sim.watch_wires(Box::new(watch.clone()));
    net.build(&[0, 1, 2], true);
    net.sim.run_for(Duration::from_secs(5));
    let circuit = net.build(&[0, 1, 2], true);
    let before = over.map(|name| net.cells_out_over(1, name));

    let down = net.begin(circuit, download(BYTES));
    let up = net.begin(circuit, upload(BYTES));
    let minute = Duration::from_secs(60);
    let status = net.await_status(down, minute, |status| status.received_bytes == BYTES);
    assert_eq!(status.received_sha256, pattern_sha256(BYTES));
    let status = net.await_status(up, minute, |status| status.received_bytes == 32);
    assert_eq!(status.received_head, pattern_sha256(BYTES));

    if let Some((name, before)) = over.zip(before) {
        let carried = net.cells_out_over(1, name) - before;
        assert!(carried > BYTES / 498 * 2, "{name} carried {carried} cells");
    }
    let seen = std::mem::take(&mut *watch.0.lock().unwrap());
    (seen, net.sim.trace_hash())
}

fn null_is_as_real(over: Option<&str>) {
    let (real, real_hash) = run(over, Ciphers::default());
    let (null, null_hash) = run(over, heddle_nullcrypto::ciphers());
    let tags = |seen: &[Seen]| seen.iter().filter(|packet| packet.5).count();
    assert_eq!(tags(&real), 0);
    assert!(tags(&null) > 100, "{} of {} packets have null tags", tags(&null), null.len());
    let bare =
        |seen: Vec<Seen>| seen.into_iter().map(|(at, from, to, place, len, _)| (at, from, to, place, len));
    assert_eq!(real.len(), null.len());
    for (real, null) in bare(real).zip(bare(null)) {
        assert_eq!(real, null);
    }
    assert_eq!(real_hash, null_hash);
}

#[test]
fn tls_is_as_long_and_as_fast() {
    null_is_as_real(None);
}

#[test]
fn quic_is_as_long_and_as_fast() {
    null_is_as_real(Some("quic"));
}

#[test]
fn tcp_in_dtls_is_as_long_and_as_fast() {
    null_is_as_real(Some("tcp-dtls"));
}

#[test]
fn sctp_in_dtls_is_as_long_and_as_fast() {
    null_is_as_real(Some("sctp-dtls"));
}

/// A relay that encrypts and one that does not understand nothing of each other.
#[test]
fn real_and_null_do_not_meet() {
    let mut net = Net::new(&Plan::default());
    let client = heddle_network::add_client_with(&mut net.sim, 1, heddle_nullcrypto::ciphers());
    let path = net.path(&[0, 1, 2], true);
    let asked = |proxy: &mut heddle_client::OnionProxy, _| proxy.build(path);
    let circuit = net.sim.with(client, 0, asked).expect("the path has relays");
    net.sim.run_for(Duration::from_secs(90));
    let events = net.sim.with(client, 0, |proxy: &mut heddle_client::OnionProxy, _| proxy.take_events());
    assert!(!events.contains(&heddle_client::ProxyEvent::Built(circuit)), "{events:?}");
}
