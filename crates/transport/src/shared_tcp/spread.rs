//! On which connection a circuit sends.

use super::frame::Number;
use super::options::SharedTcpOptions;
use super::{IMUX, TORCHESTRA};
use heddle_proto::transport::Transport;
use heddle_seam::time::{Duration, Instant};

/// A rule by which each end spreads what it sends.
pub(crate) trait Spread: Send + Sized + 'static {
    const TRANSPORT: &'static Transport;

    fn new(options: &SharedTcpOptions) -> Self;

    /// How many connections there are.
    fn lanes(options: &SharedTcpOptions) -> usize;

    /// Where a circuit begins, at either end.
    fn first(&self, number: Number) -> usize;

    /// A cell of a circuit is about to leave on a connection. Returns on which it better leaves.
    fn next(&mut self, now: Instant, lane: usize, load: &mut Load) -> usize;
}

/// A number of cells that halves again and again, so that it tells of the last while.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    cells: f64,
    at: Instant,
}

impl Load {
    /// It halves in this time. Stock Tor's circuit priorities have the same by default.
    const HALF_LIFE: Duration = Duration::from_secs(30);

    pub(super) fn new(now: Instant) -> Self {
        Load { cells: 0.0, at: now }
    }

    /// A cell more.
    fn add(&mut self, now: Instant) -> f64 {
        let half_lives = now.since(self.at).as_secs_f64() / Self::HALF_LIFE.as_secs_f64();
        self.cells = self.cells * libm::exp2(-half_lives) + 1.0;
        self.at = now;
        self.cells
    }
}

/// IMUX: circuits go to the connections one after another, and stay.
pub(crate) struct Even {
    lanes: usize,
}

impl Spread for Even {
    const TRANSPORT: &'static Transport = &IMUX;

    fn new(options: &SharedTcpOptions) -> Self {
        Even { lanes: Self::lanes(options) }
    }

    fn lanes(options: &SharedTcpOptions) -> usize {
        options.connections
    }

    fn first(&self, number: Number) -> usize {
        number.count() as usize % self.lanes
    }

    fn next(&mut self, _now: Instant, lane: usize, _load: &mut Load) -> usize {
        lane
    }
}

/// The connection of circuits that send little, on which all begin, and that of the others.
const LIGHT: usize = 0;
const BULK: usize = 1;

/// A circuit is bulk from so many cells of late on, and light again below so many: a page of 320 KiB every 15 s comes
/// to 2,200, and 35 KB/s without a pause to 3,000.
const BULK_CELLS_MIN: f64 = 3000.0;
const LIGHT_CELLS_MAX: f64 = 1500.0;

/// Torchestra: one for those that send little, and one for those that send much.
pub(crate) struct LightAndBulk;

impl Spread for LightAndBulk {
    const TRANSPORT: &'static Transport = &TORCHESTRA;

    fn new(_options: &SharedTcpOptions) -> Self {
        LightAndBulk
    }

    fn lanes(_options: &SharedTcpOptions) -> usize {
        2
    }

    fn first(&self, _number: Number) -> usize {
        LIGHT
    }

    fn next(&mut self, now: Instant, lane: usize, load: &mut Load) -> usize {
        let cells = load.add(now);
        let least = if lane == BULK { LIGHT_CELLS_MAX } else { BULK_CELLS_MIN };
        if cells >= least { BULK } else { LIGHT }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_proto::channel::Role;

    fn number(count: u32) -> Number {
        Number::new(Role::Initiator, count).unwrap()
    }

    #[allow(clippy::disallowed_methods, reason = "an anchor can be had no other way")]
    fn options() -> SharedTcpOptions {
        SharedTcpOptions::new(std::time::Instant::now())
    }

    #[test]
    fn connections_have_equally_many_circuits() {
        let spread = Even::new(&options());
        let mut circuits = vec![0; Even::lanes(&options())];
        (1..=400).for_each(|count| circuits[spread.first(number(count))] += 1);
        assert_eq!(circuits, [100; 4]);
    }

    /// Where a circuit is at the end of each second that sends so many cells in it.
    fn lanes(cells_s: &[u32]) -> Vec<usize> {
        let mut spread = LightAndBulk::new(&options());
        let (mut lane, mut load) = (LIGHT, Load::new(Instant::ZERO));
        let seconds = (0..).map(|second| Instant::ZERO + Duration::from_secs(second));
        let each = seconds.zip(cells_s).map(|(now, cells)| {
            for _ in 0..*cells {
                lane = spread.next(now, lane, &mut load);
            }
            lane
        });
        each.collect()
    }

    #[test]
    fn who_sends_much_is_bulk_until_it_has_sent_little_for_a_while() {
        let by_second = lanes(&[&[200; 30][..], &[1; 120]].concat());
        assert_eq!(by_second[0], LIGHT);
        assert!(by_second[20..30].iter().all(|lane| *lane == BULK), "{by_second:?}");
        let changes = by_second.windows(2).filter(|two| two[0] != two[1]).count();
        assert!(changes == 2 && by_second.last() == Some(&LIGHT), "{by_second:?}");
    }

    #[test]
    fn who_fetches_a_page_now_and_then_is_light() {
        let page = |second: u32| if second.is_multiple_of(15) { 643 } else { 0 };
        let cells: Vec<u32> = (0..600).map(page).collect();
        assert!(lanes(&cells).iter().all(|lane| *lane == LIGHT));
    }
}
