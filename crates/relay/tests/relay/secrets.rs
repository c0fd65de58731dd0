//! What secrets are made of: each draw is new, and is used once.

use super::bench::{Bench, Sock, config};
use super::client::{Client, Kind, theirs};
use super::pipe::Pipe;
use heddle_proto::cell::create::Created2;
use heddle_proto::crypto::NtorKeypair;
use heddle_seam::rng::{Entropy, Seed};
use heddle_seam::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Stands for the system's randomness: no draw is like another, whoever asks.
#[derive(Clone, Default)]
struct System {
    draws: Arc<AtomicU64>,
}

impl System {
    fn draws(&self) -> u64 {
        self.draws.load(Ordering::Relaxed)
    }

    fn bench(&self) -> (Bench, Sock) {
        let entropy = |_| -> Box<dyn Entropy> { Box::new(self.clone()) };
        let mut bench = Bench::with_entropy(config(), &entropy, Some(Pipe::default));
        let sock = bench.relay_channel(0, 1);
        (bench, sock)
    }
}

impl Entropy for System {
    fn seed(&mut self) -> Seed {
        Seed::from_number(self.draws.fetch_add(1, Ordering::Relaxed))
    }

    fn branch(&mut self) -> Box<dyn Entropy> {
        Box::new(self.clone())
    }
}

/// The relay's ephemeral key in the answer to CREATE2 of a new circuit.
fn ephemeral(bench: &mut Bench, sock: Sock, circ_id: u32) -> [u8; 32] {
    let mut client = Client::new(sock, theirs(circ_id));
    let (_, command, body) = client.onionskin(Kind::Ntor, super::bench::OURS);
    bench.send(sock, theirs(circ_id), command, &body);
    let cells = bench.cells(sock);
    let [created] = &cells[..] else { panic!("CREATED2 is expected: {cells:?}") };
    *Created2::parse(&created.body).expect("a CREATED2").hdata.first_chunk().expect("a key")
}

#[test]
fn each_handshake_draws_and_leaves_nothing_behind() {
    let system = System::default();
    // As a machine and its copy: all that they remember is the same.
    let (mut first, sock) = system.bench();
    let (mut copy, copys_sock) = system.bench();
    let mut seen = Vec::new();
    for circ_id in 1..=5 {
        for (bench, sock) in [(&mut first, sock), (&mut copy, copys_sock)] {
            let before = system.draws();
            let key = ephemeral(bench, sock, circ_id);
            assert_eq!(system.draws(), before + 1, "one draw for each handshake");
            let drawn = NtorKeypair::generate(&mut Seed::from_number(before).rng());
            assert_eq!(&key, drawn.public(), "the key is of the newest draw alone");
            assert!(!seen.contains(&key));
            seen.push(key);
        }
    }
}

#[test]
fn each_key_of_pairs_is_drawn_when_it_begins() {
    let system = System::default();
    let (mut bench, _) = system.bench();
    let before = system.draws();
    bench.pass(Duration::from_secs(23 * 3600));
    assert_eq!(system.draws(), before);
    bench.pass(Duration::from_secs(2 * 3600));
    assert_eq!(system.draws(), before + 1);
}
