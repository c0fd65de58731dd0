//! A program with queues that is looked into, as whoever takes the crate would write it.

use heddle_spe::{
    Clock, Collector, FUEL_MAX, Family, Field, INDICES_MAX, Index, Observer, PERIOD_MIN, RECORD_MAX,
    ROWS_MAX, SERIES_MAX, Series, SeriesId, Snapshot, VALUE_MAX, Watch, Watches, When,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const QUEUES: Family = Family {
    name: "queues",
    about: "a queue of the program",
    fields: &[Field { name: "items", unit: "1" }, Field { name: "oldest_ns", unit: "ns" }],
};

const SERIES: &[Series] = &[
    Series { name: "wait", unit: "ns", about: "how long an item waits" },
    Series { name: "length", unit: "1", about: "how long a queue is when an item joins it" },
    Series { name: "round", unit: "ns", about: "the time between two rounds" },
    Series { name: "serve", unit: "ns", about: "the time that a round takes" },
];
const WAIT: SeriesId = SeriesId(0);
const LENGTH: SeriesId = SeriesId(1);
const ROUND: SeriesId = SeriesId(2);
const SERVE: SeriesId = SeriesId(3);

#[derive(Clone, Default)]
struct Hand(Arc<AtomicU64>);

impl Hand {
    fn advance(&self, ns: u64) {
        self.0.fetch_add(ns, Ordering::Relaxed);
    }
}

impl Clock for Hand {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Two queues, of which each round serves the longer one. Items are the times at which they joined.
struct Program {
    clock: Hand,
    collector: Collector,
    queues: [VecDeque<u64>; 2],
}

impl Program {
    fn join(&mut self, queue: usize) {
        self.collector.data_point(LENGTH, queue as u32, self.queues[queue].len() as u64);
        self.queues[queue].push_back(self.clock.now_ns());
    }

    fn round(&mut self) {
        self.collector.period(ROUND, 0);
        let timer = self.collector.start(SERVE);
        self.clock.advance(10);
        let longer = usize::from(self.queues[1].len() > self.queues[0].len());
        if let Some(joined) = self.queues[longer].pop_front() {
            self.collector.data_points(WAIT, longer as u32, self.clock.now_ns() - joined, 1);
        }
        self.collector.stop(SERVE, 0, timer);
    }

    fn snapshot(&self, index: Option<u64>) -> Snapshot {
        let mut snapshot = Snapshot::of(&QUEUES);
        for (number, queue) in
            (0..).zip(&self.queues).filter(|(number, _)| index.is_none_or(|i| i == *number))
        {
            let oldest_ns = queue.front().map_or(0, |joined| self.clock.now_ns() - joined);
            snapshot.push(self.clock.now_ns(), number, &[queue.len() as i64, oldest_ns as i64]);
        }
        snapshot
    }
}

#[test]
fn a_program_shows_its_queues_and_its_times() {
    let clock = Hand::default();
    let collector = Collector::new(SERIES, Box::new(clock.clone()));
    let mut program = Program { clock: clock.clone(), collector, queues: Default::default() };
    (0..4).for_each(|series| program.collector.turn(SeriesId(series), true));
    let mut watches = Watches::default();
    let watch = |index, observer: Option<&str>| Watch {
        family: QUEUES.name.to_owned(),
        index,
        when: When::Every(2 * PERIOD_MIN),
        observer: observer.map(str::to_owned),
    };
    let all = watches.begin(Duration::ZERO, watch(None, None)).unwrap();
    let changes = watches.begin(Duration::ZERO, watch(Some(1), Some("changes"))).unwrap();
    let module = wat::parse_str(include_str!("../observers/changes.wat")).unwrap();
    let mut observer = Observer::load("changes", &module).unwrap();

    let (mut lengths, mut records) = (Vec::new(), Vec::new());
    for round in 0..8 {
        // Items join the second queue while the first rounds are made.
        (0..2).filter(|_| round < 4).for_each(|_| program.join(1));
        program.round();
        clock.advance(PERIOD_MIN.as_nanos() as u64 - 10);
        let time_ns = clock.now_ns();
        for id in watches.due(Duration::from_nanos(time_ns)) {
            let snapshot = program.snapshot(watches.get(id).unwrap().index);
            match id {
                _ if id == all => lengths.push(snapshot.rows().map(|row| row.fields[0]).collect::<Vec<_>>()),
                _ => {
                    let row = snapshot.rows().next().unwrap();
                    let record = observer.observe(&row).unwrap();
                    records.extend((!record.is_empty()).then(|| record.to_vec()));
                }
            }
        }
    }
    assert_eq!(lengths, [[0, 1], [0, 3], [0, 3], [0, 1]]);
    // Number, length, change, and for how long it had stayed; that nothing had changed is no record.
    assert_eq!(records, [[1, 3, 2, 2_000_000], [1, 1, -2, 4_000_000]]);
    assert!(watches.end(changes));

    let of = |series| program.collector.collected(series);
    assert_eq!((of(SERVE)[0].count, of(SERVE)[0].mean), (8, 10.0));
    assert_eq!((of(ROUND)[0].count, of(WAIT)[0].index), (7, Index::Of(1)));
    // Two join in each of four rounds, and one leaves: before each of them there are 0, 1, 1, 2, 2, 3, 3 and 4.
    assert_eq!(of(LENGTH)[0].cdf.last(), Some(&(4, 1.0)));
}

#[test]
fn everything_has_its_bound() {
    let many: &'static [Series] = Vec::leak(vec![SERIES[0]; SERIES_MAX + 1]);
    let collector = Collector::new(many, Box::new(Hand::default()));
    let last = SeriesId(SERIES_MAX as u8);
    collector.turn(last, true);
    collector.data_point(last, 0, 1);
    assert!(!collector.is_on(last) && !collector.is_any_on());
    collector.turn(WAIT, true);
    (0..1_000).for_each(|index| collector.data_point(WAIT, index, u64::MAX));
    let collected = collector.collected(WAIT);
    assert_eq!(collected.len(), INDICES_MAX + 1);
    assert!(collected.iter().all(|at| at.cdf.iter().all(|(value, _)| *value < 2 * VALUE_MAX)));

    let mut snapshot = Snapshot::of(&QUEUES);
    (0..2 * ROWS_MAX as u64).for_each(|index| snapshot.push(0, index, &[]));
    assert_eq!((snapshot.rows().count(), snapshot.left_out()), (ROWS_MAX, ROWS_MAX as u64));

    let talks = format!(
        "(module (import \"spe\" \"record\" (func $record (param i64))) (func (export \"observe\") {}))",
        "(call $record (i64.const 1))".repeat(RECORD_MAX + 1)
    );
    let works = "(module (func (export \"observe\") (loop $on (br $on))))".to_owned();
    let why = |module: String| {
        let mut observer = Observer::load("mine", &wat::parse_str(module).unwrap()).unwrap();
        let row = snapshot.rows().next().unwrap();
        observer.observe(&row).unwrap_err().to_string()
    };
    assert!(why(talks).contains(&format!("more than {RECORD_MAX} numbers")));
    assert!(why(works).contains(&format!("more than {FUEL_MAX} of fuel")));
}
