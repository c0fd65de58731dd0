//! N23 from hop to hop: the paper's numbers, and chains of relays in virtual time under any readers, losses of credit
//! and neighbours.

use heddle_proto::credit::{Accounts, Balance, CreditMessage, CreditViolation, HopCredit, N3, N23};
use heddle_seam::rng::{Rng, Seed};
use heddle_seam::time::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};

fn n23(n2_cells: u16, n3: u16) -> N23 {
    N23 { n2_cells, n3: N3::Static(n3) }
}

fn at_ms(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

/// Section 4.2: "an initial credit balance of N2 + N3 cells"; "for typical parameter values (N3 = 500 and N2 = 10), N23
/// ensures a strict circuit queue bound of 510 cells"; figure 9: N3 = 70 and N2 = 20 make 90.
#[test]
fn the_first_balance_is_the_papers_bound() {
    for (n2, n3, bound) in [(10, 500, 510), (20, 70, 90), (20, 100, 120)] {
        let credit = HopCredit::N23(n23(n2, n3));
        let (mut balance, mut accounts) = (Balance::new(credit), Accounts::new(credit));
        assert_eq!((n23(n2, n3).queue_cells_max(), balance.room()), (bound, bound));
        for left in (0..bound).rev() {
            balance.on_sent(at_ms(0));
            accounts.on_received().unwrap();
            assert_eq!(balance.room(), left, "it decrements its credit balance by one");
        }
        assert_eq!(accounts.queued_cells(), u64::from(bound));
        assert_eq!(accounts.on_received(), Err(CreditViolation::Overrun));
    }
}

/// "For every N2 cells forwarded, the downstream router sends a flow control cell": 10 % of the cells with N2 = 10, 5 %
/// with N2 = 20 (section 5.1).
#[test]
fn credit_comes_after_every_n2_cells() {
    for (n2, percent) in [(10, 10), (20, 5)] {
        let credit = HopCredit::N23(n23(n2, 100));
        let (mut balance, mut accounts) = (Balance::new(credit), Accounts::new(credit));
        let mut grants = 0;
        for cell in 1..=1000_u32 {
            balance.on_sent(at_ms(0));
            accounts.on_received().unwrap();
            let granted = accounts.on_passed_on(at_ms(0), Duration::ZERO);
            assert_eq!(granted.is_some(), cell % u32::from(n2) == 0, "cell {cell}");
            if let Some(CreditMessage::Granted { cells }) = granted {
                assert_eq!(cells, u64::from(cell) + u64::from(n2) + 100);
                balance.on_granted(cells).unwrap();
                assert_eq!(balance.room(), u32::from(n2) + 100);
                grants += 1;
            }
        }
        assert_eq!(grants, 10 * percent);
    }
}

#[test]
fn without_credit_nothing_is_bounded_and_nothing_is_told() {
    let (mut balance, mut accounts) = (Balance::new(HopCredit::None), Accounts::new(HopCredit::None));
    for _ in 0..5_000 {
        balance.on_sent(at_ms(0));
        accounts.on_received().unwrap();
        assert_eq!(accounts.on_passed_on(at_ms(0), Duration::ZERO), None);
    }
    assert_eq!((balance.room(), balance.poll_timeout(), accounts.on_asked()), (u32::MAX, None, None));
    assert_eq!(balance.on_granted(1), Err(CreditViolation::Boundless));
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
    let credit = HopCredit::N23(n23(10, 70));
    let mut balance = Balance::new(credit);
    assert_eq!(balance.on_granted(81), Err(CreditViolation::Boundless));
    assert_eq!(balance.on_granted(u64::MAX), Err(CreditViolation::Boundless));
    assert_eq!(balance.on_granted(80), Ok(()));
    (0..80).for_each(|_| balance.on_sent(at_ms(0)));
    assert_eq!(balance.on_granted(7), Ok(()));
    assert_eq!(balance.room(), 0);
    let mut asked_at = Vec::new();
    while asked_at.len() < 7 {
        let due = balance.poll_timeout().unwrap();
        assert!(balance.take_ask(due) && !balance.take_ask(due));
        asked_at.push(due.since(at_ms(0)).as_secs());
    }
    assert_eq!(asked_at, [1, 3, 7, 15, 31, 47, 63]);
    assert_eq!(balance.on_granted(90), Ok(()));
    assert_eq!((balance.room(), balance.poll_timeout()), (10, None));
}

/// A chain of relays: who is before each hop, what is behind it, and what is on the wires.
struct Chain {
    credit: HopCredit,
    /// Of hop `n`, between relay `n` and relay `n + 1`.
    balances: Vec<Balance>,
    accounts: Vec<Accounts>,
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
    fn new(credit: HopCredit, hops: usize, seed: u64, loss_percent: u64) -> Self {
        Chain {
            credit,
            balances: (0..hops).map(|_| Balance::new(credit)).collect(),
            accounts: (0..hops).map(|_| Accounts::new(credit)).collect(),
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
                    self.accounts[hop].on_received().unwrap();
                    self.queues[hop].push_back((number, now));
                }
                Event::Backward { hop, message: CreditMessage::Granted { cells } } => {
                    self.balances[hop].on_granted(cells).unwrap();
                }
                Event::Forward { hop, message: CreditMessage::Asked } => {
                    self.asked += 1;
                    if let Some(message) = self.accounts[hop].on_asked() {
                        self.put(now, Event::Backward { hop, message });
                    }
                }
                Event::Backward { .. } | Event::Forward { .. } => unreachable!("nobody sends these"),
            }
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
                if next < cells && self.balances[0].room() > 0 {
                    self.balances[0].on_sent(now);
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
                        if is_reader { ms >= reader_pauses_until } else { self.balances[hop + 1].room() > 0 };
                    let Some((number, came_at)) = self.queues[hop].front().copied().filter(|_| may_go) else {
                        break;
                    };
                    self.queues[hop].pop_front();
                    if is_reader {
                        arrived.push(number);
                    } else {
                        self.balances[hop + 1].on_sent(now);
                        self.put(now, Event::Cell { hop: hop + 1, number });
                    }
                    if let Some(message) = self.accounts[hop].on_passed_on(now, now.since(came_at)) {
                        self.put(now, Event::Backward { hop, message });
                    }
                }
                if self.balances[hop].take_ask(now) {
                    self.put(now, Event::Forward { hop, message: CreditMessage::Asked });
                }
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
        assert_eq!(queued, self.accounts[hop].queued_cells());
        self.longest = self.longest.max(queued);
        if let HopCredit::N23(n23) = self.credit {
            assert!(queued <= n23.queue_cells_max().into(), "{queued} cells wait in relay {hop}");
        }
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
        let credit = HopCredit::N23(N23 { n2_cells: rng.below(30) as u16, n3 });
        let hops = 1 + rng.below(4) as usize;
        let mut chain = Chain::new(credit, hops, seed, [0, 5, 40][rng.below(3) as usize]);
        let rates: Vec<u64> = (0..=hops).map(|_| 1 + rng.below(6)).collect();
        let cells = 400;
        assert_eq!(chain.run(cells, &rates), (0..cells).collect::<Vec<_>>(), "seed {seed}");
    }
}

/// The middle passes on a cell in a millisecond, everybody else six. Without credit all that is sent waits there; with
/// it the queue is the paper's N2 + N3 = 90 cells, and the bottleneck is as busy.
#[test]
fn back_pressure_keeps_the_queue_before_a_bottleneck_short() {
    let rates = [6, 6, 1, 6];
    let mut free = Chain::new(HopCredit::None, 3, 7, 0);
    free.run(3_000, &rates);
    assert!(free.longest > 2_000, "{}", free.longest);
    let mut bounded = Chain::new(HopCredit::N23(n23(20, 70)), 3, 7, 0);
    bounded.run(3_000, &rates);
    assert!((80..=90).contains(&bounded.longest), "{}", bounded.longest);
}

/// Where every grant is lost for a while, questions bring credit back.
#[test]
fn lost_credit_is_asked_for() {
    let mut chain = Chain::new(HopCredit::N23(n23(10, 10)), 2, 9, 50);
    let cells = 500;
    assert_eq!(chain.run(cells, &[6, 6, 6]), (0..cells).collect::<Vec<_>>());
    assert!(chain.lost > 40 && chain.asked > 0, "{} lost, {} asked", chain.lost, chain.asked);
}

/// Congestion behind a relay lowers its N3 to the paper's 100 cells, and its end raises it again.
#[test]
fn adaptive_n3_follows_the_wait_for_the_next_hop() {
    let credit = HopCredit::N23(N23 { n2_cells: 10, n3: N3::Adaptive });
    let mut accounts = Accounts::new(credit);
    let mut pass = |from_ms: u64, wait_ms| {
        for ms in from_ms..from_ms + 2_000 {
            accounts.on_received().unwrap();
            accounts.on_passed_on(at_ms(ms), Duration::from_millis(wait_ms));
        }
        accounts.n3_cells()
    };
    assert_eq!(
        [pass(0, 0), pass(2_000, 200), pass(4_000, 30), pass(6_000, 1)],
        [500, 100, 100, 500].map(Some)
    );
}
