//! Explicit congestion notification (RFC 3168): marks that routers put on datagrams in the place of dropping them.
//!
//! A datagram is of several flows. So the connection counts, as QUIC does (RFC 9000, section 13.4), and not the flows:
//! each side tells how many datagrams with segments came with which codepoint, and the other compares that with what it
//! sent.
//!
//! ```text
//!            the peer tells of some           some lost the codepoint, or nothing but marks comes
//!   Testing ────────────────────────▶ Capable ──────────────────────────────────────────────────▶ Failed
//! ```
//!
//! While testing, [`TESTED_MAX`] datagrams carry the codepoint, for [`TESTED_FOR`] at most. A path that drops what can
//! be marked loses no more than these.

use heddle_seam::time::{Duration, Instant};

/// Codepoints of the IP header: a datagram that can be marked, and one that was.
const CAPABLE: u8 = 0b10;
const MARKED: u8 = 0b11;

/// How many datagrams may carry the codepoint before the peer tells of any, and for how long.
const TESTED_MAX: u32 = 10;
const TESTED_FOR: Duration = Duration::from_secs(1);

/// So many marks without a datagram between them that has none are no router's that has congestion to tell of.
const MARKED_ALONE_MAX: u32 = 32;

/// Counts are told once in so many datagrams, and so often after each mark, because a datagram may be lost.
const TOLD_EVERY: u32 = 32;
const TOLD_MARKS: u32 = 3;

/// What a record begins with that tells the counts. Segments follow.
const TOLD: u8 = 11;
const COUNT_LEN: usize = 3;
/// Bytes that this takes.
pub(crate) const TOLD_LEN: usize = 1 + 3 * COUNT_LEN;
const COUNT_MASK: u32 = (1 << 24) - 1;

/// Datagrams by their codepoint, modulo 2^24. What was marked could be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EcnCounts {
    plain: u32,
    capable: u32,
    marked: u32,
}

impl EcnCounts {
    /// How many more these are than `before`; nothing where a count is older.
    fn since(self, before: EcnCounts) -> EcnCounts {
        let more = |now: u32, before: u32| {
            let more = now.wrapping_sub(before) & COUNT_MASK;
            if more <= COUNT_MASK / 2 { more } else { 0 }
        };
        EcnCounts {
            plain: more(self.plain, before.plain),
            capable: more(self.capable, before.capable),
            marked: more(self.marked, before.marked),
        }
    }

    fn add(&mut self, more: EcnCounts) {
        let sum = |count: &mut u32, more: u32| *count = count.wrapping_add(more) & COUNT_MASK;
        sum(&mut self.plain, more.plain);
        sum(&mut self.capable, more.capable);
        sum(&mut self.marked, more.marked);
    }
}

/// Counts that a record begins with, and the segments behind them.
pub(crate) fn split_told(contents: &[u8]) -> Option<(EcnCounts, &[u8])> {
    let (head, segments) = contents.split_first_chunk::<TOLD_LEN>()?;
    let (kind, counts) = head.split_first()?;
    let count = |index: usize| {
        let bytes = &counts[index * COUNT_LEN..][..COUNT_LEN];
        u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]])
    };
    let told = EcnCounts { plain: count(0), capable: count(1), marked: count(2) };
    (*kind == TOLD).then_some((told, segments))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Testing { since: Option<Instant> },
    Capable,
    Failed,
}

/// One connection's, in both directions.
#[derive(Debug)]
pub(crate) struct Ecn {
    state: State,
    sent: EcnCounts,
    /// What the peer told last.
    told: EcnCounts,
    /// Marks in a row that it told of.
    marked_alone: u32,
    came: EcnCounts,
    /// Datagrams that came since the peer was told of some, and how often it is to be told soon.
    untold: u32,
    due: u32,
}

impl Ecn {
    /// `sends` is whether our datagrams are to be marked at all.
    pub(crate) fn new(sends: bool) -> Self {
        Ecn {
            state: if sends { State::Testing { since: None } } else { State::Failed },
            sent: EcnCounts::default(),
            told: EcnCounts::default(),
            marked_alone: 0,
            came: EcnCounts::default(),
            // The first is told at once.
            untold: TOLD_EVERY,
            due: 0,
        }
    }

    /// What a batch is sent with that leaves now.
    pub(crate) fn codepoint(&self, now: Instant) -> u8 {
        let may_be_marked = match self.state {
            State::Testing { since } => {
                let is_over = since.is_some_and(|since| now.since(since) >= TESTED_FOR);
                self.sent.capable < TESTED_MAX && !is_over
            }
            State::Capable => true,
            State::Failed => false,
        };
        if may_be_marked { CAPABLE } else { 0 }
    }

    /// A datagram with segments leaves.
    pub(crate) fn on_sent(&mut self, now: Instant, codepoint: u8) {
        let is_capable = u32::from(codepoint == CAPABLE);
        if let State::Testing { since } = &mut self.state {
            since.get_or_insert(now);
        }
        self.sent.add(EcnCounts { plain: 1 - is_capable, capable: is_capable, marked: 0 });
    }

    /// A datagram with segments came.
    pub(crate) fn on_received(&mut self, codepoint: u8) {
        let count = |codepoints: &[u8]| u32::from(codepoints.contains(&codepoint));
        let (capable, marked) = (count(&[CAPABLE]), count(&[MARKED]));
        self.came.add(EcnCounts { plain: 1 - capable - marked, capable, marked });
        self.untold += 1;
        if marked > 0 {
            self.due = TOLD_MARKS;
        } else if self.untold >= TOLD_EVERY {
            self.due = self.due.max(1);
        }
    }

    /// Appends what a record with segments begins with. Returns the length of it.
    pub(crate) fn tell(&self, out: &mut Vec<u8>) -> usize {
        if self.due == 0 {
            return 0;
        }
        out.push(TOLD);
        for count in [self.came.plain, self.came.capable, self.came.marked] {
            out.extend_from_slice(&count.to_be_bytes()[4 - COUNT_LEN..]);
        }
        TOLD_LEN
    }

    /// What [`Ecn::tell`] wrote leaves.
    pub(crate) fn on_tell(&mut self) {
        (self.untold, self.due) = (0, self.due.saturating_sub(1));
    }

    /// The peer told of what came. Returns whether there are new marks, which are to be heeded.
    pub(crate) fn on_told(&mut self, told: EcnCounts) -> bool {
        let more = told.since(self.told);
        self.told.add(more);
        if self.state == State::Failed || more == EcnCounts::default() {
            return false;
        }
        let arrived = self.told.capable.wrapping_add(self.told.marked) & COUNT_MASK;
        let beyond = EcnCounts { capable: arrived, ..self.told }.since(self.sent);
        self.marked_alone = if more.capable > 0 { 0 } else { self.marked_alone + more.marked };
        // Some lost the codepoint, or the path or the peer made some up.
        let is_wrong = beyond.plain > 0 || beyond.capable > 0;
        if is_wrong || self.marked_alone >= MARKED_ALONE_MAX {
            self.state = State::Failed;
            return false;
        }
        if arrived > 0 {
            self.state = State::Capable;
        }
        more.marked > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::ZERO;

    fn counts(plain: u32, capable: u32, marked: u32) -> EcnCounts {
        EcnCounts { plain, capable, marked }
    }

    /// One that has sent so many datagrams, as it liked.
    fn after_sending(datagrams: u32) -> Ecn {
        let mut ecn = Ecn::new(true);
        send(&mut ecn, datagrams);
        ecn
    }

    fn send(ecn: &mut Ecn, datagrams: u32) {
        for _ in 0..datagrams {
            let codepoint = ecn.codepoint(NOW);
            ecn.on_sent(NOW, codepoint);
        }
    }

    fn told_by(ecn: &mut Ecn) -> Option<EcnCounts> {
        let mut record = Vec::new();
        let len = ecn.tell(&mut record);
        assert_eq!(len, record.len());
        record.extend_from_slice(b"segments");
        let (told, rest) = split_told(&record)?;
        ecn.on_tell();
        assert_eq!(rest, b"segments");
        Some(told)
    }

    #[test]
    fn ten_datagrams_are_tried_until_the_peer_tells_of_them() {
        let mut ecn = after_sending(15);
        assert_eq!(ecn.sent, counts(5, 10, 0));
        assert!(!ecn.on_told(counts(5, 0, 0)));
        assert_eq!(ecn.codepoint(NOW), 0);
        assert!(!ecn.on_told(counts(5, 9, 0)));
        assert_eq!(ecn.codepoint(NOW), CAPABLE);
        // Without an answer a few are tried for a second.
        let ecn = after_sending(1);
        assert_eq!(ecn.codepoint(NOW + TESTED_FOR), 0);
    }

    #[test]
    fn what_the_path_took_off_or_made_up_ends_it() {
        for told in [counts(1, 0, 0), counts(0, 11, 0), counts(0, 5, 6), counts(0, 0, 200)] {
            let mut ecn = after_sending(10);
            assert!(!ecn.on_told(told), "{told:?}");
            assert_eq!((ecn.state, ecn.codepoint(NOW)), (State::Failed, 0), "{told:?}");
        }
        // A path that is changed to one that takes it off.
        let mut ecn = after_sending(10);
        assert!(!ecn.on_told(counts(0, 10, 0)));
        send(&mut ecn, 100);
        assert!(!ecn.on_told(counts(1, 50, 0)));
        assert_eq!(ecn.codepoint(NOW), 0);
    }

    #[test]
    fn nothing_but_marks_is_not_believed_for_long() {
        let mut ecn = after_sending(10);
        let mut heeded = 0;
        for told in 1..=100 {
            send(&mut ecn, 1);
            heeded += u32::from(ecn.on_told(counts(0, 0, told)));
        }
        assert_eq!((heeded, ecn.state), (MARKED_ALONE_MAX - 1, State::Failed));
        // One in two is congestion.
        let mut ecn = after_sending(10);
        for told in 1..=100 {
            send(&mut ecn, 2);
            assert!(ecn.on_told(counts(0, told, told)));
        }
    }

    #[test]
    fn each_mark_is_heard_of_once_however_often_and_late_it_is_told() {
        let mut ecn = after_sending(10);
        assert!(ecn.on_told(counts(0, 5, 1)));
        assert!(!ecn.on_told(counts(0, 5, 1)));
        assert!(!ecn.on_told(counts(0, 2, 0)));
        assert!(!ecn.on_told(counts(0, 8, 1)));
        assert!(ecn.on_told(counts(0, 8, 2)));
    }

    #[test]
    fn counts_begin_again_after_2_to_the_24() {
        let mut ecn = after_sending(10);
        assert!(!ecn.on_told(counts(0, 1, 0)));
        let near = counts(0, COUNT_MASK - 3, 3);
        (ecn.sent, ecn.told) = (EcnCounts { capable: COUNT_MASK, ..near }, near);
        send(&mut ecn, 3);
        assert_eq!(ecn.sent.capable, 2);
        assert!(!ecn.on_told(counts(0, COUNT_MASK - 1, 3)));
        assert!(ecn.on_told(counts(0, COUNT_MASK - 1, 4)));
        assert_eq!(ecn.state, State::Capable);
        assert!(!ecn.on_told(counts(0, 0, 4)));
        assert_eq!(ecn.state, State::Failed);
    }

    #[test]
    fn the_first_datagram_each_mark_and_every_thirty_second_are_told() {
        let mut ecn = Ecn::new(true);
        assert_eq!(told_by(&mut ecn), None);
        ecn.on_received(CAPABLE);
        assert_eq!(told_by(&mut ecn), Some(counts(0, 1, 0)));
        assert_eq!(told_by(&mut ecn), None);
        ecn.on_received(MARKED);
        for _ in 0..TOLD_MARKS {
            assert_eq!(told_by(&mut ecn), Some(counts(0, 1, 1)));
        }
        assert_eq!(told_by(&mut ecn), None);
        // Another capable codepoint than ours is none.
        (0..TOLD_EVERY).for_each(|_| ecn.on_received(1));
        assert_eq!(told_by(&mut ecn), Some(counts(TOLD_EVERY, 1, 1)));
        assert_eq!(split_told(&[TOLD; TOLD_LEN - 1]), None);
        assert_eq!(split_told(&[0; TOLD_LEN]), None);
    }
}
