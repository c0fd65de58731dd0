//! The low-cost privacy attack (Reardon and Goldberg 2009, section 5.1.1; the thesis, section 8.1.8): a guard measures
//! how long the exit takes to answer, takes off what the way to the middle takes, and looks which relay is so far from
//! the middle.
//!
//! The guard knows its own round trip to the middle, and all relays' to it, exactly. What it sees of the circuit is
//! when datagrams with cells pass between it and the middle. It takes the shortest time between the first cell after a
//! pause and the first cell that comes back that it sees a few times.

use super::transport::Transport;
use heddle_client::ExchangeState;
use heddle_network::{Net, Plan, upload};
use heddle_seam::rng::{Rng, Seed};
use heddle_seam::time::{Duration, Instant};
use heddle_sim::{Tapped, Wire};

/// One-way delays between relays in ms, by tenths of all pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delays(pub [f64; 11]);

/// Between any two of the 183 countries of the topology that Jansen and others measured in 2014, but for the slowest
/// hundredth.
pub const ALL_COUNTRIES: Delays = Delays([7.5, 25.5, 31.0, 36.1, 41.4, 48.2, 57.2, 70.8, 95.2, 163.2, 400.0]);
/// The same between the 28 countries that have most of Tor's relays.
pub const RELAYS_COUNTRIES: Delays =
    Delays([14.0, 21.4, 23.2, 25.0, 26.9, 28.4, 30.1, 31.5, 33.8, 36.8, 45.9]);

/// How the circuit's cells go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cells {
    /// As datagrams that nobody on the way answers.
    Forwarded,
    /// In a TCP connection from hop to hop.
    HopByHop,
}

/// What the guard may see on the path, and what there is to be told apart.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    pub cells: Cells,
    pub delays: Delays,
    /// Added to each packet on each wire, at most.
    pub jitter: Duration,
    /// How often the guard has to see an answer to believe it.
    pub often: usize,
}

/// What came of one circuit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guess {
    /// The round trip between middle and exit, in ms.
    pub true_ms: f64,
    /// What the guard takes for it.
    pub guessed_ms: f64,
}

/// Uploads of a circuit, with pauses between.
const UPLOADS: usize = 12;
/// Seven cells each, which TCP sends at once.
const UPLOAD_BYTES: u64 = 3_000;
/// Datagrams with a cell are longer, others shorter: DTLS hides what is in them, but not how long they are.
const CELL_BYTES: usize = 500;
/// Whoever sends a cell after such a pause begins something, or goes on once it was answered.
const PAUSE: Duration = Duration::from_millis(60);
/// Answers that differ by less may be the same.
const ALIKE: Duration = Duration::from_millis(2);

impl Delays {
    fn draw(&self, rng: &mut Rng) -> Duration {
        let at = rng.below(10_000_000) as f64 / 1e6;
        let tenth = at as usize;
        let ms = self.0[tenth] + (self.0[tenth + 1] - self.0[tenth]) * at.fract();
        Duration::from_nanos((ms * 1e6) as u64)
    }
}

impl Attack {
    /// A circuit over relays whose distances are drawn.
    pub fn on_circuit(&self, seed: u64) -> Guess {
        let mut rng = Seed::from_number(seed).child("distances", 0).rng();
        let mut draw = || self.delays.draw(&mut rng);
        let (client, middle, exit, server) = (draw(), draw(), draw(), draw());
        let mut net = self.network(seed);
        let hosts = [0, 1, 2].map(|relay| net.relays[relay].host);
        let wire = |latency| Wire { latency, jitter: self.jitter, ..Wire::default() };
        net.sim.set_wire(net.client, hosts[0], wire(client));
        net.sim.set_wire(hosts[0], hosts[1], wire(middle));
        net.sim.set_wire(hosts[1], hosts[2], wire(exit));
        net.sim.set_wire(hosts[2], net.server, wire(server));
        let circuit = net.build(&[0, 1, 2], true);
        net.sim.tap_datagrams(hosts[0], hosts[1]);
        for _ in 0..UPLOADS {
            let exchange = net.begin(circuit, upload(UPLOAD_BYTES));
            net.await_status(exchange, Duration::from_secs(120), |status| {
                matches!(status.state, ExchangeState::Ended(_)) || status.received_bytes == 32
            });
            net.sim.run_for(Duration::from_secs(2));
        }
        let tapped = net.sim.tap_datagrams(hosts[0], hosts[1]);
        let answered = fastest_answer(&tapped, net.relays[0].hop.target.addrs[0].ip(), middle, self.often);
        let answered = answered.expect("the circuit carried cells both ways");
        // What is tapped is seen as it leaves: the guard would see what comes back as much later as it takes to come.
        let guessed_ms = 1e3 * (answered.as_secs_f64() - middle.as_secs_f64());
        Guess { true_ms: 2e3 * exit.as_secs_f64(), guessed_ms }
    }

    fn network(&self, seed: u64) -> Net {
        let mut plan = Plan { seed, ..Plan::default() };
        plan.torrc.heddle.forward_datagrams = true;
        let mut net = Transport::named("tcp-dtls").paired(&plan);
        net.proxy(|proxy| proxy.forward_datagrams(self.cells == Cells::Forwarded));
        net
    }
}

/// The shortest time from a cell after a pause to the next that comes back, of those that came so often and
/// are not too short for a relay beyond the middle: what was on its way already comes sooner.
fn fastest_answer(
    tapped: &[Tapped],
    guard: core::net::IpAddr,
    to_middle: Duration,
    often: usize,
) -> Option<Duration> {
    let with_cells = tapped.iter().filter(|datagram| datagram.data.len() >= CELL_BYTES);
    let (mut last, mut begun, mut answers): (Option<Instant>, Option<Instant>, Vec<Duration>) =
        (None, None, Vec::new());
    for datagram in with_cells {
        if datagram.from.ip() == guard {
            if last.is_none_or(|last| datagram.at.since(last) >= PAUSE) {
                begun = Some(datagram.at);
            }
            last = Some(datagram.at);
        } else if let Some(begun) = begun.take() {
            answers.push(datagram.at.since(begun));
        }
    }
    answers.retain(|answer| *answer > to_middle);
    answers.sort_unstable();
    let alike = answers.windows(often).find(|alike| alike[often - 1] - alike[0] < ALIKE);
    alike.map(|alike| alike[0])
}

/// How many of so many relays are at least as near to what was guessed as the exit is: one, if the guess is right.
pub fn rank(guess: &Guess, delays: Delays, relays: usize, rng: &mut Rng) -> usize {
    let off = |ms: f64| (ms - guess.guessed_ms).abs();
    let others = (1..relays).map(|_| 2e3 * delays.draw(rng).as_secs_f64());
    1 + others.filter(|ms| off(*ms) <= off(guess.true_ms)).count()
}

/// The middle of the errors, in ms, and the share of circuits whose exit is the best guess among so many relays.
pub fn success(guesses: &[Guess], delays: Delays, relays: usize) -> (f64, f64) {
    let mut errors: Vec<f64> = guesses.iter().map(|guess| (guess.guessed_ms - guess.true_ms).abs()).collect();
    errors.sort_by(f64::total_cmp);
    let mut rng = Seed::from_number(relays as u64).rng();
    let right = guesses.iter().filter(|guess| rank(guess, delays, relays, &mut rng) == 1).count();
    (errors[errors.len() / 2], right as f64 / guesses.len() as f64)
}

#[test]
fn a_guard_tells_the_exit_by_its_round_trip() {
    let of = |cells, delays, often| {
        let attack = Attack { cells, delays, jitter: Duration::from_micros(500), often };
        let guesses: Vec<Guess> = (1..=12).map(|seed| attack.on_circuit(seed)).collect();
        println!("{cells:?} {often}: {guesses:.1?}");
        success(&guesses, delays, 20)
    };
    let forwarded = of(Cells::Forwarded, RELAYS_COUNTRIES, 3);
    let far = of(Cells::Forwarded, ALL_COUNTRIES, 3);
    let hop_by_hop = of(Cells::HopByHop, RELAYS_COUNTRIES, 3);
    let once = of(Cells::HopByHop, RELAYS_COUNTRIES, 1);
    println!("datagrams {forwarded:?}, among all countries {far:?}");
    println!("from hop to hop {hop_by_hop:?}, the shortest of all {once:?}");
    assert!(forwarded.0 < 1.5 && far.0 < 1.5, "the exit's TCP answers at once");
    assert!(forwarded.1 > hop_by_hop.1 && far.1 > forwarded.1, "among twenty relays");
    assert!(hop_by_hop.0 > 10.0, "else what comes back is mostly a server's answer");
    assert!(
        once.0 < 5.0,
        "but the exit's SENDMEs come at once, too, one for 31 cells: so it is in Tor of today"
    );
}
