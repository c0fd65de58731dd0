//! N23 from hop to hop: the paper's numbers, and chains of relays in virtual time under any readers, losses of credit
//! and neighbours.

use heddle_proto::credit::{CreditMessage, CreditViolation, Ledger, N3, N23};
use heddle_seam::rng::{Rng, Seed};
use heddle_seam::time::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};

fn n23(n2_cells: u16, n3: u16) -> N23 {
    N23 { n2_cells, n3: N3::Static(n3) }
}

fn at_ms(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

/// A side that sends so many cells that the other has credit for; returns their number.
fn send_all(from: &mut Ledger, to: &mut Ledger) -> u32 {
    let mut sent = 0;
    while from.has_room() {
        from.on_sent(at_ms(0));
        to.on_received().unwrap();
        sent += 1;
    }
    sent
}

fn both(credit: N23) -> (Ledger, Ledger) {
    (Ledger::new(credit, credit), Ledger::new(credit, credit))
}

/// Section 4.2: "an initial credit balance of N2 + N3 cells"; "for typical parameter values (N3 = 500 and N2 = 10), N23
/// ensures a strict circuit queue bound of 510 cells"; figure 9: N3 = 70 and N2 = 20 make 90.
#[test]
fn the_first_balance_is_the_papers_bound() {
    for (n2, n3, bound) in [(10, 500, 510), (20, 70, 90), (20, 100, 120)] {
        let (mut before, mut behind) = both(n23(n2, n3));
        assert_eq!((n23(n2, n3).queue_cells_max(), send_all(&mut before, &mut behind)), (bound, bound));
        assert_eq!(behind.on_received(), Err(CreditViolation::Overrun));
    }
}

/// "For every N2 cells forwarded, the downstream router sends a flow control cell": 10 % of the cells with N2 = 10, 5 %
/// with N2 = 20 (section 5.1).
#[test]
fn credit_comes_after_every_n2_cells() {
    for (n2, percent) in [(10, 10), (20, 5)] {
        let (mut before, mut behind) = both(n23(n2, 100));
        let mut grants = 0;
        for cell in 1..=1000_u32 {
            before.on_sent(at_ms(0));
            behind.on_received().unwrap();
            behind.on_passed_on(at_ms(0), 1, Duration::ZERO);
            assert_eq!(behind.has_word(), cell % u32::from(n2) == 0, "cell {cell}");
            if let Some(word) = behind.next_word() {
                let cells = u64::from(cell) + u64::from(n2) + 100;
                assert_eq!(word, CreditMessage::Granted { cells });
                before.on_message(word).unwrap();
                grants += 1;
            }
        }
        assert_eq!(grants, 10 * percent);
        assert_eq!(send_all(&mut before, &mut behind), u32::from(n2) + 100);
    }
}

/// What a relay says itself counts for nobody: a side that took nothing grants nothing.
#[test]
fn nothing_is_granted_for_cells_that_never_came() {
    let (_, mut behind) = both(n23(10, 70));
    behind.on_passed_on(at_ms(0), 1000, Duration::ZERO);
    assert_eq!(behind.next_word(), None);
}

#[test]
fn messages_are_read_as_they_are_written() {
    for message in [
        CreditMessage::Asked,
        CreditMessage::Granted { cells: 0 },
        CreditMessage::Granted { cells: u64::MAX },
    ] {
        let mut bytes = message.encode().to_vec();
        assert_eq!(CreditMessage::parse(&bytes), Ok(message));
        bytes.resize(509, 0);
        assert_eq!(CreditMessage::parse(&bytes), Ok(message));
        assert!(CreditMessage::parse(&bytes[..CreditMessage::LEN - 1]).is_err());
        bytes[0] = 3;
        assert!(CreditMessage::parse(&bytes).is_err());
    }
}

/// A neighbour that grants what it cannot have is found out, one that repeats old grants gains and loses nothing, and
/// one that grants nothing costs its own circuit only: we ask, later each time.
#[test]
fn a_lying_neighbour_gains_nothing() {
    let (mut before, mut behind) = both(n23(10, 70));
    let granted = |cells| CreditMessage::Granted { cells };
    assert_eq!(before.on_message(granted(81)), Err(CreditViolation::Boundless));
    assert_eq!(before.on_message(granted(u64::MAX)), Err(CreditViolation::Boundless));
    assert_eq!(before.on_message(granted(80)), Ok(()));
    assert_eq!(send_all(&mut before, &mut behind), 80);
    assert_eq!(before.on_message(granted(7)), Ok(()));
    assert!(!before.has_room());
    let mut asks = || {
        let asks_at = |ms: &u64| {
            before.on_starving(at_ms(*ms));
            before.next_word() == Some(CreditMessage::Asked)
        };
        (0..64_000).filter(asks_at).collect::<Vec<_>>()
    };
    assert_eq!(asks(), [1, 3, 7, 15, 31, 47, 63].map(|s| s * 1000));
    assert_eq!(before.on_message(granted(90)), Ok(()));
    assert_eq!(send_all(&mut before, &mut Ledger::new(n23(10, 70), n23(10, 70))), 10);
}

/// A chain of relays: who is before each hop, what is behind it, and what is on the wires.
struct Chain {
    credit: N23,
    /// Of hop `n`, as relay `n` keeps it, and as relay `n + 1` does.
    before: Vec<Ledger>,
    behind: Vec<Ledger>,
    /// Cells by number, in each relay but the first, with when they came.
    queues: Vec<VecDeque<(u64, Instant)>>,
    wires: BTreeMap<(Instant, u64), Event>,
    events: u64,
    rng: Rng,
    /// Of a hundred credit messages so many are lost.
    loss_percent: u64,
    longest: u64,
    lost: u64,
    asked: u64,
}

#[derive(Clone, Copy)]
enum Event {
    Cell { hop: usize, number: u64 },
    Backward { hop: usize, message: CreditMessage },
    Forward { hop: usize, message: CreditMessage },
}

const WIRE: Duration = Duration::from_millis(20);

impl Chain {
    fn new(credit: N23, hops: usize, seed: u64, loss_percent: u64) -> Self {
        Chain {
            credit,
            before: (0..hops).map(|_| Ledger::new(credit, credit)).collect(),
            behind: (0..hops).map(|_| Ledger::new(credit, credit)).collect(),
            queues: vec![VecDeque::new(); hops],
            wires: BTreeMap::new(),
            events: 0,
            rng: Seed::from_number(seed).rng(),
            loss_percent,
            longest: 0,
            lost: 0,
            asked: 0,
        }
    }

    /// Cells keep their order on a wire, as on a channel; credit may be late or lost.
    fn put(&mut self, now: Instant, event: Event) {
        let is_credit = !matches!(event, Event::Cell { .. });
        if is_credit && self.rng.below(100) < self.loss_percent {
            self.lost += 1;
            return;
        }
        let late_ms = if is_credit { self.rng.below(60) } else { 0 };
        self.events += 1;
        self.wires.insert((now + WIRE + Duration::from_millis(late_ms), self.events), event);
    }

    fn deliver(&mut self, now: Instant) {
        while let Some(entry) = self.wires.first_entry().filter(|entry| entry.key().0 <= now) {
            match entry.remove() {
                Event::Cell { hop, number } => {
                    self.behind[hop].on_received().unwrap();
                    self.queues[hop].push_back((number, now));
                }
                Event::Backward { hop, message } => self.before[hop].on_message(message).unwrap(),
                Event::Forward { hop, message } => {
                    self.asked += 1;
                    self.behind[hop].on_message(message).unwrap();
                    self.speak(now, hop);
                }
            }
        }
    }

    /// What both sides of a hop have to say leaves.
    fn speak(&mut self, now: Instant, hop: usize) {
        if let Some(message) = self.behind[hop].next_word() {
            assert!(matches!(message, CreditMessage::Granted { .. }), "whoever takes cells grants");
            self.put(now, Event::Backward { hop, message });
        }
        if let Some(message) = self.before[hop].next_word() {
            assert_eq!(message, CreditMessage::Asked, "whoever sends cells asks");
            self.put(now, Event::Forward { hop, message });
        }
    }

    /// Sends so many cells through a chain whose relays pass on at most so many cells a millisecond each, the reader
    /// with pauses of its own; returns the numbers as they arrived.
    fn run(&mut self, cells: u64, rates: &[u64]) -> Vec<u64> {
        let (mut next, mut arrived) = (0, Vec::new());
        let mut reader_pauses_until = 0;
        for ms in 0..3_000_000 {
            let now = at_ms(ms);
            self.deliver(now);
            for _ in 0..rates[0] {
                if next < cells && self.before[0].has_room() {
                    self.before[0].on_sent(now);
                    self.put(now, Event::Cell { hop: 0, number: next });
                    next += 1;
                }
            }
            for hop in 0..self.queues.len() {
                let is_reader = hop + 1 == self.queues.len();
                if is_reader && self.rng.below(2_000) == 0 {
                    reader_pauses_until = ms + self.rng.below(3_000);
                }
                for _ in 0..rates[hop + 1] {
                    let may_go =
                        if is_reader { ms >= reader_pauses_until } else { self.before[hop + 1].has_room() };
                    let Some((number, came_at)) = self.queues[hop].front().copied().filter(|_| may_go) else {
                        break;
                    };
                    self.queues[hop].pop_front();
                    if is_reader {
                        arrived.push(number);
                    } else {
                        self.before[hop + 1].on_sent(now);
                        self.put(now, Event::Cell { hop: hop + 1, number });
                    }
                    self.behind[hop].on_passed_on(now, 1, now.since(came_at));
                    self.speak(now, hop);
                }
                self.before[hop].on_starving(now);
                self.speak(now, hop);
                self.look(hop);
            }
            if arrived.len() as u64 == cells {
                return arrived;
            }
        }
        panic!("{} of {cells} cells arrived: the chain stands still", arrived.len());
    }

    /// The queue of a relay is within the bound at every instant.
    fn look(&mut self, hop: usize) {
        let queued = self.queues[hop].len() as u64;
        self.longest = self.longest.max(queued);
        assert!(queued <= self.credit.queue_cells_max().into(), "{queued} cells wait in relay {hop}");
    }
}

/// No cell is lost, doubled or overtaken, no queue is above its bound, and nothing stands still, for static and
/// adaptive N3, short and long chains, a bottleneck at any place, readers that pause, and credit that is late or lost.
#[test]
fn chains_carry_everything_within_their_bounds() {
    let mut rng = Seed::from_number(1).rng();
    for seed in 0..60 {
        let n3 = match rng.below(3) {
            0 => N3::Adaptive,
            _ => N3::Static(rng.below(120) as u16),
        };
        let credit = N23 { n2_cells: rng.below(30) as u16, n3 };
        let hops = 1 + rng.below(4) as usize;
        let mut chain = Chain::new(credit, hops, seed, [0, 5, 40][rng.below(3) as usize]);
        let rates: Vec<u64> = (0..=hops).map(|_| 1 + rng.below(6)).collect();
        let cells = 400;
        assert_eq!(chain.run(cells, &rates), (0..cells).collect::<Vec<_>>(), "seed {seed}");
    }
}

/// The middle passes on a cell in a millisecond, everybody else six. With credit for all that is sent it waits there;
/// with less the queue is the paper's N2 + N3 = 90 cells, and the bottleneck is as busy.
#[test]
fn back_pressure_keeps_the_queue_before_a_bottleneck_short() {
    let rates = [6, 6, 1, 6];
    let mut free = Chain::new(n23(1, u16::MAX), 3, 7, 0);
    free.run(3_000, &rates);
    assert!(free.longest > 2_000, "{}", free.longest);
    let mut bounded = Chain::new(n23(20, 70), 3, 7, 0);
    bounded.run(3_000, &rates);
    assert!((80..=90).contains(&bounded.longest), "{}", bounded.longest);
}

/// Where every grant is lost for a while, questions bring credit back.
#[test]
fn lost_credit_is_asked_for() {
    let mut chain = Chain::new(n23(10, 10), 2, 9, 50);
    let cells = 500;
    assert_eq!(chain.run(cells, &[6, 6, 6]), (0..cells).collect::<Vec<_>>());
    assert!(chain.lost > 40 && chain.asked > 0, "{} lost, {} asked", chain.lost, chain.asked);
}

/// Congestion behind a relay lowers its N3 to the paper's 100 cells, and its end raises it again.
#[test]
fn adaptive_n3_follows_the_wait_for_the_next_hop() {
    let (_, mut behind) = both(N23 { n2_cells: 10, n3: N3::Adaptive });
    let mut passed = 0;
    let mut n3_after = |from_ms: u64, wait_ms| {
        let mut granted = 0;
        for ms in from_ms..from_ms + 2_000 {
            behind.on_received().unwrap();
            behind.on_passed_on(at_ms(ms), 1, Duration::from_millis(wait_ms));
            passed += 1;
            if let Some(CreditMessage::Granted { cells }) = behind.next_word() {
                granted = cells;
            }
        }
        granted - passed - 10
    };
    assert_eq!(
        [n3_after(0, 0), n3_after(2_000, 200), n3_after(4_000, 30), n3_after(6_000, 1)],
        [500, 100, 100, 500]
    );
}
