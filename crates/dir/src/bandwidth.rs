//! What the relay has been seen to carry, for the descriptor's observed bandwidth (dir-spec, "bandwidth").
//!
//! Stock Tor keeps that in the lines `BWHistory…` of its `state` file, and so do we: a relay that starts again, or that
//! was stock Tor before, says at once what it can carry. Of each of the last days the lines have the bytes of each
//! direction and the rate of the best ten seconds, both rounded down to 1024.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use crate::files::Files;
use crate::{iso_time, state};

/// The observed bandwidth is the best of so many seconds in a row.
const WINDOW_S: u64 = 10;
/// What one value of the history stands for.
const PERIOD_S: u64 = 24 * 3600;
/// So many periods count beside the present one.
const PERIODS: usize = 5;
/// What values are rounded down to.
const UNIT: u64 = 1024;

const READ: Keywords = Keywords {
    ends: "BWHistoryReadEnds",
    interval: "BWHistoryReadInterval",
    values: "BWHistoryReadValues",
    maxima: "BWHistoryReadMaxima",
};
const WRITE: Keywords = Keywords {
    ends: "BWHistoryWriteEnds",
    interval: "BWHistoryWriteInterval",
    values: "BWHistoryWriteValues",
    maxima: "BWHistoryWriteMaxima",
};

/// Bytes read and written, second by second and day by day.
#[derive(Debug)]
pub struct BandwidthHistory {
    read: Direction,
    written: Direction,
    last_second: Option<u64>,
}

/// The lines of one direction. `ends` is when the period of the last value is over.
struct Keywords {
    ends: &'static str,
    interval: &'static str,
    values: &'static str,
    maxima: &'static str,
}

#[derive(Debug, PartialEq, Eq)]
struct Direction {
    total: u64,
    /// The last [`WINDOW_S`] seconds.
    seconds: VecDeque<u64>,
    /// The last [`PERIODS`] that are over, newest last.
    over: VecDeque<Period>,
    present: Period,
    /// When the present one ends.
    ends_unix_s: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Period {
    bytes: u64,
    /// Bytes per second of the best window.
    best: u64,
}

impl BandwidthHistory {
    /// A history that begins now.
    pub fn new(now_unix_s: u64) -> Self {
        let direction = || Direction::new(now_unix_s);
        BandwidthHistory { read: direction(), written: direction(), last_second: None }
    }

    /// Reads the history from the `state` file in `data_directory`. Lines that are not there, make no sense, or are of
    /// other periods than stock Tor's today tell nothing.
    pub fn load(files: &dyn Files, data_directory: &Path, now_unix_s: u64) -> io::Result<Self> {
        Ok(BandwidthHistory::parse(&state::read(files, &state::path(data_directory))?, now_unix_s))
    }

    fn parse(state: &str, now_unix_s: u64) -> Self {
        let direction =
            |keywords| Direction::parse(state, keywords, now_unix_s).unwrap_or(Direction::new(now_unix_s));
        BandwidthHistory { read: direction(&READ), written: direction(&WRITE), last_second: None }
    }

    /// Writes the history into the `state` file in `data_directory`.
    pub fn save(&self, files: &dyn Files, data_directory: &Path) -> io::Result<()> {
        let lines = [self.read.lines(&READ), self.written.lines(&WRITE)].concat();
        state::set(files, &state::path(data_directory), &lines)
    }

    /// Notes all bytes read and written so far, about once a second. What came since the last time counts as spread
    /// evenly, because whoever calls may have been busy.
    pub fn sample(&mut self, now_unix_s: u64, read: u64, written: u64) {
        if self.last_second == Some(now_unix_s) {
            return;
        }
        // A clock that was set back does not tell how long it was.
        let elapsed_s = self.last_second.map_or(1, |last| now_unix_s.saturating_sub(last).max(1));
        self.last_second = Some(now_unix_s);
        self.read.sample(now_unix_s, elapsed_s, read);
        self.written.sample(now_unix_s, elapsed_s, written);
    }

    /// The observed bandwidth: the best of what was read or of what was written, whichever is less, in bytes per
    /// second.
    pub fn observed(&self) -> u32 {
        u32::try_from(self.read.best().min(self.written.best())).unwrap_or(u32::MAX)
    }
}

impl Direction {
    fn new(now_unix_s: u64) -> Self {
        Direction {
            total: 0,
            seconds: VecDeque::new(),
            over: VecDeque::new(),
            present: Period::default(),
            ends_unix_s: now_unix_s.saturating_add(PERIOD_S),
        }
    }

    fn parse(state: &str, keywords: &Keywords, now_unix_s: u64) -> Option<Self> {
        let numbers = |keyword| -> Option<Vec<u64>> {
            state::value(state, keyword)?.split(',').map(|number| number.trim().parse().ok()).collect()
        };
        let ends_unix_s = iso_time::parse(state::value(state, keywords.ends)?)?;
        let (bytes, best) = (numbers(keywords.values)?, numbers(keywords.maxima)?);
        if numbers(keywords.interval)? != [PERIOD_S] || bytes.len() != best.len() {
            return None;
        }
        let periods = bytes.into_iter().zip(best).map(|(bytes, best)| Period { bytes, best });
        let mut over: VecDeque<Period> = periods.rev().take(PERIODS + 1).collect();
        over.make_contiguous().reverse();
        let present = over.pop_back()?;
        let mut direction = Direction { over, present, ends_unix_s, ..Direction::new(now_unix_s) };
        direction.turn_to(now_unix_s);
        Some(direction)
    }

    fn lines(&self, keywords: &Keywords) -> Vec<(&'static str, String)> {
        let join = |number: fn(&Period) -> u64| {
            let periods = self.over.iter().chain([&self.present]);
            let numbers = periods.map(|period| (number(period) / UNIT * UNIT).to_string());
            numbers.collect::<Vec<_>>().join(",")
        };
        vec![
            (keywords.ends, iso_time::format(self.ends_unix_s)),
            (keywords.interval, PERIOD_S.to_string()),
            (keywords.values, join(|period| period.bytes)),
            (keywords.maxima, join(|period| period.best)),
        ]
    }

    fn sample(&mut self, now_unix_s: u64, elapsed_s: u64, total: u64) {
        let bytes = total.saturating_sub(self.total);
        self.total = total;
        for _ in 0..elapsed_s.min(WINDOW_S) {
            self.seconds.push_back(bytes / elapsed_s);
        }
        let forgotten = self.seconds.len().saturating_sub(WINDOW_S as usize);
        self.seconds.drain(..forgotten);
        self.turn_to(now_unix_s);
        self.present.bytes = self.present.bytes.saturating_add(bytes);
        self.present.best = self.present.best.max(self.seconds.iter().sum::<u64>() / WINDOW_S);
    }

    /// Ends the periods that are over by now.
    fn turn_to(&mut self, now_unix_s: u64) {
        // A clock that was set back by days must not prolong the present one by as much.
        self.ends_unix_s = self.ends_unix_s.min(now_unix_s.saturating_add(PERIOD_S));
        let turns = (now_unix_s + PERIOD_S - self.ends_unix_s) / PERIOD_S;
        self.ends_unix_s += turns * PERIOD_S;
        for _ in 0..turns.min(PERIODS as u64 + 1) {
            self.over.push_back(core::mem::take(&mut self.present));
        }
        let forgotten = self.over.len().saturating_sub(PERIODS);
        self.over.drain(..forgotten);
    }

    fn best(&self) -> u64 {
        self.over.iter().chain([&self.present]).map(|period| period.best).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::InMemory;
    use proptest::prelude::*;

    const START: u64 = 1_700_000_000;

    /// As many bytes read as written, for so many seconds each.
    fn carry(history: &mut BandwidthHistory, rates: &[(u64, u64)]) -> u64 {
        let (mut now, mut total) = (START, 0);
        for (seconds, rate) in rates {
            for _ in 0..*seconds {
                now += 1;
                total += rate;
                history.sample(now, total, total);
            }
        }
        now
    }

    #[test]
    fn a_sample_that_is_late_counts_for_all_seconds_since_the_last() {
        let mut history = BandwidthHistory::new(START);
        for second in [0, 1, 2, 63, 64, 75] {
            let total = 1_000 * (second + 1);
            history.sample(START + second, total, total);
        }
        assert_eq!(history.observed(), 1_000);
        history.sample(START + 20, 76_100, 76_100);
        assert_eq!(history.observed(), 1_000, "the clock was set back");
    }

    #[test]
    fn the_lesser_direction_counts() {
        let mut history = BandwidthHistory::new(START);
        for second in 0..20 {
            history.sample(START + second, 1_000 * second, 300 * second);
        }
        assert_eq!(history.observed(), 300);
    }

    #[test]
    fn the_best_ten_seconds_count_for_five_days_and_the_present_one() {
        let mut history = BandwidthHistory::new(START);
        carry(&mut history, &[(40, 10), (10, 1_000), (50, 10)]);
        assert_eq!(history.observed(), 1_000);
        let total = 40 * 10 + 10 * 1_000 + 50 * 10;
        history.sample(START + (PERIODS as u64 + 1) * PERIOD_S - 1, total, total);
        assert_eq!(history.observed(), 1_000);
        history.sample(START + (PERIODS as u64 + 1) * PERIOD_S, total, total);
        assert_eq!(history.observed(), 0);
    }

    #[test]
    fn it_outlives_the_relay() {
        let (files, directory) = (InMemory::default(), Path::new("data"));
        files.create_private_dir(directory).unwrap();
        let mut history = BandwidthHistory::new(START);
        let now = carry(&mut history, &[(20, 102_400)]);
        history.save(&files, directory).unwrap();
        let again = BandwidthHistory::load(&files, directory, now + 3600).unwrap();
        assert_eq!((again.observed(), history.observed()), (102_400, 102_400));
        let text = state::read(&files, &state::path(directory)).unwrap();
        assert!(text.contains("BWHistoryReadEnds 2023-11-15 22:13:20\n"), "{text}");
        assert!(text.contains("BWHistoryWriteValues 2048000\nBWHistoryWriteMaxima 102400\n"), "{text}");
        let late = BandwidthHistory::load(&files, directory, now + 7 * PERIOD_S).unwrap();
        assert_eq!(late.observed(), 0);
    }

    /// As tor 0.4.9 wrote it after a few days, of which more are kept than count.
    const STOCK: &str = "\
TorVersion Tor 0.4.9.11
BWHistoryReadEnds 2023-11-15 10:00:00
BWHistoryReadInterval 86400
BWHistoryReadMaxima 9216,8192,1024,2048,3072,1024,512000
BWHistoryReadValues 90112,80896,1024,2048,3072,1024,4194304
BWHistoryWriteEnds 2023-11-15 10:00:00
BWHistoryWriteInterval 86400
BWHistoryWriteMaxima 9216,8192,1024,2048,3072,1024,409600
BWHistoryWriteValues 90112,80896,1024,2048,3072,1024,4194304
";

    #[test]
    fn stock_tors_history_is_ours() {
        let history = BandwidthHistory::parse(STOCK, START);
        assert_eq!(history.observed(), 409_600);
        assert_eq!(history.read.over.len(), PERIODS);
        assert_eq!(history.read.over[0], Period { bytes: 80_896, best: 8_192 });
        let five_days_on = BandwidthHistory::parse(STOCK, START + 5 * PERIOD_S);
        assert_eq!((five_days_on.observed(), five_days_on.read.over[4]), (409_600, Period::default()));
    }

    #[test]
    fn what_makes_no_sense_tells_nothing() {
        for (from, to) in [
            ("86400", "900"),
            ("512000", "much"),
            ("512000", "1,2"),
            ("2023-11-15", "soon"),
            ("Maxima", "Minima"),
        ] {
            let history = BandwidthHistory::parse(&STOCK.replace(from, to), START);
            assert_eq!(history.observed(), 0, "{from} {to}");
        }
        // A clock that was set back by years does not make the period last for years.
        let early = BandwidthHistory::parse(STOCK, START - 1000 * PERIOD_S);
        assert_eq!((early.observed(), early.read.ends_unix_s), (409_600, START - 999 * PERIOD_S));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(days in proptest::collection::vec((any::<u64>(), any::<u64>()), 1..9)) {
            let mut direction = Direction::new(START);
            for (bytes, best) in days {
                direction.over.push_back(direction.present);
                direction.present = Period { bytes: bytes / UNIT * UNIT, best: best / UNIT * UNIT };
            }
            let forgotten = direction.over.len().saturating_sub(PERIODS);
            direction.over.drain(..forgotten);
            let lines = direction.lines(&READ);
            let text: String = lines.iter().map(|(keyword, value)| format!("{keyword} {value}\n")).collect();
            prop_assert_eq!(Direction::parse(&text, &READ, START), Some(direction));
        }

        #[test]
        fn any_text_is_taken(text in "(BWHistoryReadEnds [0-9-]{10} [0-9:]{8}\n|BWHistoryRead(Interval 86400|Values [0-9,]{0,30}|Maxima [0-9,]{0,30})\n){0,8}", now in any::<u32>()) {
            let mut history = BandwidthHistory::parse(&text, now.into());
            history.sample(u64::from(now) + 1, 10, 10);
            prop_assert!(history.read.over.len() <= PERIODS);
        }
    }
}
