//! Strangers send to a relay's UDP port for 20 s: its circuits go on, and none ends.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heddle_lab::traffic::Content;

use crate::quic::{metrics, wait_for_pairs};
use crate::{CHOICE, lab};

const FLOOD: Duration = Duration::from_secs(20);
/// Datagrams of a burst, and the pause between two: some 20,000 a second of each stranger, so that other tests have
/// processors, too.
const BURST: usize = 64;
const PAUSE: Duration = Duration::from_millis(3);
const STRANGERS: u8 = 2;
/// So many must have come, or it was no flood.
const DATAGRAMS_MIN: f64 = 100_000.0;

/// Sends datagrams of each kind that a first byte can tell, until told to stop.
fn flood(stranger: u8, port: u16, is_over: &AtomicBool, sent: &AtomicU64) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    let mut datagram: Vec<u8> = (0..1200_u32).map(|at| (at * 37) as u8 ^ stranger).collect();
    while !is_over.load(Ordering::Relaxed) {
        for number in 0..BURST {
            datagram[0] = (number * 4) as u8;
            datagram[1] = datagram[1].wrapping_add(1);
            // A full queue is what a flood makes.
            sent.fetch_add(u64::from(socket.send(&datagram).is_ok()), Ordering::Relaxed);
        }
        thread::sleep(PAUSE);
    }
}

fn circuits_outlive_a_flood(middle: &str, transport: &str) {
    let (lab, _shared) = (lab(), CHOICE.read().unwrap());
    wait_for_pairs(lab, middle, transport);
    let path = ["heddleguard", middle, "heddleexit"];
    let [busy, idle] = [(); 2].map(|()| lab.first_circuit(&path));
    let port = lab.network.relay(middle).unwrap().or_port();
    let before = metrics(middle);
    let (is_over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for stranger in 0..STRANGERS {
            let (is_over, sent) = (&is_over, &sent);
            scope.spawn(move || flood(stranger, port, is_over, sent));
        }
        let begun = Instant::now();
        let mut downloads = Vec::new();
        while begun.elapsed() < FLOOD {
            downloads.push(lab.download(Some(busy), Content { seed: 7, len: 2_000_000 }));
            if downloads.last().is_some_and(Result::is_err) {
                break;
            }
        }
        // Strangers stop whatever became of the downloads.
        is_over.store(true, Ordering::Relaxed);
        assert!(downloads.into_iter().all(|download| download.unwrap().sha256_ok), "{middle}");
    });
    let sent = sent.into_inner() as f64;
    assert!(sent >= DATAGRAMS_MIN, "{middle}: {sent} datagrams are no flood");
    lab.both_ways(idle, Content { seed: 8, len: 100_000 });
    lab.both_ways(busy, Content { seed: 9, len: 100_000 });
    let share = metrics(middle).cell_share(&before, transport).unwrap();
    assert!(share >= 0.99, "{middle}: {share}");
    lab.close(busy);
    lab.close(idle);
}

#[test]
fn a_flood_of_20_s_at_the_port_ends_no_circuit_over_quic() {
    circuits_outlive_a_flood("floodedquic", "quic");
}

#[test]
fn a_flood_of_20_s_at_the_port_ends_no_circuit_over_tcp_dtls() {
    circuits_outlive_a_flood("floodeddtls", "tcp-dtls");
}
