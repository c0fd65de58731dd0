//! The relay behind a guard as an attacker: it times how soon its circuit's cells are spoken of, and asks whether the
//! guard is busy with another circuit, which goes over another relay (DefenestraTor, section 6; Reardon's thesis,
//! section 8.1.7).
//!
//! What speaks of its cells are the client's SENDMEs, which every middle relay can count, and with N23 the guard's own
//! words of credit. The attacker's circuit has a thin download, which its own wire bounds. The other circuit downloads
//! as fast as it can, and comes and goes. In which seconds it is there is what the attacker wants to know.

use crate::upgraded::transport::find_each_other;
use heddle_client::OnionProxy;
use heddle_network::{Net, Plan, add_client, begin, build, download};
use heddle_proto::cell::Command;
use heddle_proto::credit::{CreditMessage, HopCredit};
use heddle_proto::flow_control::FlowChoice;
use heddle_relay::{CircuitLog, Happened, Relay, What};
use heddle_seam::time::{Duration, Instant};
use heddle_sim::Wire;
use heddle_transport::registry;
use std::sync::{Arc, Mutex};

const GUARD: usize = 0;
const ATTACKER: usize = 1;
const OTHER: usize = 2;
const EXIT: usize = 3;
/// Of the wire between the exit and the attacker, of clients' wires, and of a guard whose operator allows no more.
const THIN_BYTES_PER_S: u64 = 60_000;
const RATE_BYTES_PER_S: u64 = 250_000;
/// How often the other circuit comes and goes, and for how many seconds it is then looked.
const ROUNDS: usize = 3;
const SECONDS: usize = 8;
/// Until queues are as they stay.
const SETTLE: Duration = Duration::from_secs(3);

/// What the attacker heard on its circuit.
#[derive(Default)]
struct Heard {
    /// When each cell left for the guard.
    sent: Vec<Instant>,
    /// When cells of the client's came.
    answered: Vec<Instant>,
    /// When the guard spoke of credit, and how many cells of the circuit it takes in all.
    granted: Vec<(Instant, u64)>,
}

struct Ear(Arc<Mutex<Heard>>);

impl CircuitLog for Ear {
    fn on_circuit(&mut self, at: Instant, happened: &Happened<'_>) {
        let mut heard = self.0.lock().expect("nobody panics with it");
        match happened.what {
            What::CellOut { command: Command::RELAY, is_forward: false, .. } => heard.sent.push(at),
            What::CellIn { command: Command::RELAY, is_forward: true, .. } => heard.answered.push(at),
            What::CreditIn { message: CreditMessage::Granted { cells }, is_forward: true } => {
                heard.granted.push((at, cells));
            }
            _ => {}
        }
    }
}

/// A word that speaks of a cell: when it came, and how many seconds after the cell left.
type Word = (Instant, f64);

impl Heard {
    fn word(&self, at: Instant, cell: usize) -> Word {
        (at, at.since(self.sent[cell]).as_secs_f64())
    }

    /// The client's SENDMEs of a download that began after `before` cells had left and `asked` had come.
    fn sendmes(&self, flow_control: FlowChoice, before: usize, asked: usize) -> Vec<Word> {
        // BEGIN and what is asked of the server.
        let sendmes = self.answered[asked + 2..].iter().enumerate();
        sendmes.map(|(number, at)| self.word(*at, before + acknowledged(flow_control, number))).collect()
    }

    /// The guard's words, where N2 and N3 make so many cells.
    fn credit(&self, queue_cells: u32) -> Vec<Word> {
        let granted = self.granted.iter().filter(|(_, cells)| *cells > queue_cells.into());
        granted.map(|(at, cells)| self.word(*at, *cells as usize - queue_cells as usize - 1)).collect()
    }
}

/// How many cells with data the client had when it sent its SENDME of this number.
fn acknowledged(flow_control: FlowChoice, number: usize) -> usize {
    match flow_control {
        // One for 31 cells (`cc_sendme_inc`).
        FlowChoice::Vegas => 31 * (number + 1),
        // One for 50 of a stream, one for 100 of a circuit.
        _ => 100 * (number / 3) + [50, 100, 100][number % 3],
    }
}

/// Where the other circuit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    /// It is the same client's, over the same channel to the guard.
    SameClient,
    /// Another client's, over a guard that has enough for both.
    OtherClient,
    /// Another client's, who fills the rate that the guard's operator allows.
    BusyGuard,
}

/// How queues are controlled.
#[derive(Clone, Copy)]
struct Control {
    name: &'static str,
    over: Option<&'static str>,
    flow_control: FlowChoice,
    hop_credit: &'static str,
}

const CONTROLS: [Control; 4] = [
    Control { name: "tls, Vegas", over: None, flow_control: FlowChoice::Vegas, hop_credit: "none" },
    Control { name: "quic, Vegas", over: Some("quic"), flow_control: FlowChoice::Vegas, hop_credit: "none" },
    Control { name: "tls, 1000", over: None, flow_control: FlowChoice::Fixed1000, hop_credit: "none" },
    Control { name: "tls, N23", over: None, flow_control: FlowChoice::Fixed1000, hop_credit: "n23 10 70" },
];

impl Control {
    fn network(self, beside: Beside) -> Net {
        let wire =
            Wire { latency: Duration::from_millis(20), jitter: Duration::from_millis(2), ..Wire::default() };
        let slow = (beside == Beside::BusyGuard).then_some((GUARD, RATE_BYTES_PER_S));
        let mut plan = Plan { seed: 23, wire, shards: vec![1; 4], slow, ..Plan::default() };
        plan.torrc.heddle.flow_control = self.flow_control;
        plan.torrc.heddle.hop_credit = self.hop_credit.parse().expect("that is a scheme");
        if let Some(name) = self.over {
            plan = plan.speaking(registry::named(name).expect("it is registered"), &[0, 1, 2, 3]);
        }
        let mut net = Net::new(&plan);
        let (attacker, exit) = (net.relays[ATTACKER].host, net.relays[EXIT].host);
        net.sim.set_wire(exit, attacker, Wire { rate_bytes_per_s: Some(THIN_BYTES_PER_S), ..wire });
        net.sim.set_wire(
            net.relays[GUARD].host,
            net.client,
            Wire { rate_bytes_per_s: Some(RATE_BYTES_PER_S), ..wire },
        );
        if self.over.is_some() {
            find_each_other(&mut net, &[GUARD, ATTACKER, EXIT]);
            find_each_other(&mut net, &[GUARD, OTHER, EXIT]);
        }
        net
    }
}

/// The seconds that the attacker looked at, without the other circuit and with it.
type Looked = [Vec<Instant>; 2];

/// What the attacker heard while the other circuit came and went, and what was before the download.
fn listen(control: Control, beside: Beside) -> (Heard, [usize; 2], Looked) {
    let mut net = control.network(beside);
    let heard = Arc::new(Mutex::new(Heard::default()));
    let (attacker, ear) = (net.relays[ATTACKER].host, Ear(Arc::clone(&heard)));
    net.sim.equip(attacker, 0, |relay: &mut Relay| relay.follow_circuits(Box::new(ear)));
    let thin = net.build(&[GUARD, ATTACKER, EXIT], true);
    let beside = if beside == Beside::SameClient { net.client } else { add_client(&mut net.sim, 1) };
    let path = net.path(&[GUARD, OTHER, EXIT], true);
    let other = build(&mut net.sim, beside, path);
    let before = {
        let heard = heard.lock().expect("nobody panics with it");
        // CONNECTED is no cell with data.
        [heard.sent.len(), heard.answered.len()]
    };
    net.begin(thin, download(1 << 40));
    let mut looked: Looked = Default::default();
    for _ in 0..ROUNDS {
        look(&mut net, &mut looked[0]);
        let busy = begin(&mut net.sim, beside, other, download(1 << 40));
        look(&mut net, &mut looked[1]);
        net.sim.with(beside, 0, |proxy: &mut OnionProxy, now| proxy.end(now, busy));
    }
    drop(net);
    let heard = Arc::into_inner(heard).expect("the network is gone").into_inner();
    (heard.expect("nobody panics with it"), before, looked)
}

/// Lets queues settle, and then seconds pass that are looked at.
fn look(net: &mut Net, seconds: &mut Vec<Instant>) {
    net.sim.run_for(SETTLE);
    for _ in 0..SECONDS {
        seconds.push(net.sim.now());
        net.sim.run_for(Duration::from_secs(1));
    }
}

/// What the words of each second said.
fn by_second(words: &[Word], seconds: &[Instant]) -> Vec<Vec<f64>> {
    let within = |begin: &Instant| {
        let second = *begin..*begin + Duration::from_secs(1);
        words.iter().filter(|(at, _)| second.contains(at)).map(|(_, took_s)| *took_s).collect()
    };
    seconds.iter().map(within).collect()
}

/// The probability that a second with the other circuit has the greater mean; seconds without words are left out.
fn auc([without, with]: &[Vec<Vec<f64>>; 2]) -> f64 {
    let mean = |said: &Vec<f64>| (!said.is_empty()).then(|| said.iter().sum::<f64>() / said.len() as f64);
    let [without, with] = [without, with].map(|seconds| seconds.iter().filter_map(mean).collect::<Vec<_>>());
    let pairs = with.iter().flat_map(|with| without.iter().map(move |without| with.total_cmp(without)));
    let wins = pairs.map(|order| match order {
        core::cmp::Ordering::Greater => 1.0,
        core::cmp::Ordering::Equal => 0.5,
        core::cmp::Ordering::Less => 0.0,
    });
    wins.sum::<f64>() / (with.len() * without.len()) as f64
}

/// What the attacker is right by, and how many words it has in a second.
#[derive(Debug)]
struct Right {
    auc: f64,
    words_per_s: f64,
}

fn right(words: &[Word], looked: &Looked) -> Right {
    let said = looked.each_ref().map(|seconds| by_second(words, seconds));
    let count: usize = said.iter().flatten().map(Vec::len).sum();
    Right { auc: auc(&said), words_per_s: count as f64 / (2 * ROUNDS * SECONDS) as f64 }
}

/// By SENDMEs, and by words of credit where there are any.
fn attack(control: Control, beside: Beside) -> (Right, Option<Right>) {
    let (heard, [before, asked], looked) = listen(control, beside);
    let by_sendmes = right(&heard.sendmes(control.flow_control, before, asked), &looked);
    let by_credit = match control.hop_credit.parse().expect("that is a scheme") {
        HopCredit::None => None,
        HopCredit::N23(n23) => Some(right(&heard.credit(n23.queue_cells_max()), &looked)),
    };
    println!("{}, {beside:?}: by SENDMEs {by_sendmes:.3?}, by credit {by_credit:.3?}", control.name);
    (by_sendmes, by_credit)
}

/// Of 24 seconds with the other circuit and 24 without, chance is right about half of the pairs, with an error of 0.08.
/// So this bounds large leaks only.
const CHANCE: core::ops::RangeInclusive<f64> = 0.2..=0.8;
const CERTAIN: f64 = 0.9;

#[test]
fn credit_tells_a_neighbour_of_a_busy_guard_and_not_of_a_busy_client() {
    for control in CONTROLS {
        // Whoever is acknowledged by a client learns of the queue before it, over stock relays as well.
        let (by_sendmes, by_credit) = attack(control, Beside::SameClient);
        assert!(by_sendmes.auc >= CERTAIN, "{by_sendmes:?}");
        if let Some(by_credit) = by_credit {
            assert!(CHANCE.contains(&by_credit.auc), "{by_credit:?}");
            assert!(by_credit.words_per_s > 2.5 * by_sendmes.words_per_s, "{by_credit:?} {by_sendmes:?}");
        }
        let (by_sendmes, by_credit) = attack(control, Beside::OtherClient);
        for right in [Some(by_sendmes), by_credit].into_iter().flatten() {
            assert!(CHANCE.contains(&right.auc), "a guard that has enough for both tells nothing: {right:?}");
        }
        let (by_sendmes, by_credit) = attack(control, Beside::BusyGuard);
        let right = by_credit.unwrap_or(by_sendmes);
        assert!(right.auc >= CERTAIN, "{right:?}");
    }
}
