//! Which episode of congestion a sender is in, and what it would take back if the episode was a mistake.
//!
//! ```text
//!            loss found                     all acknowledged that was sent when it began
//!  Open ────────────────────▶ Repair ────────────────────────────────────────────────────▶ Open
//!    │ congestion mark, or a lost probe repaired                                            ▲
//!    ├──────────────────────▶ Reduced ──────────────────────────────────────────────────────┤
//!    │ timer expired (from any)                                                             │
//!    └──────────────────────▶ Loss ─────────────────────────────────────────────────────────┘
//! ```
//!
//! An episode of losses is undone, that is the window comes back, when it turns out that nothing was lost:
//!
//! - *Eifel* (RFC 3522): an acknowledgement echoes a time before the first retransmission.
//! - *DSACK* (RFC 3708): the receiver reported every retransmission as a duplicate.
//! - *Nothing repaired*: what was taken for lost arrived before it was sent again.
//! - *F-RTO* (RFC 5682), after a time-out: something was delivered that was sent once, before the timer expired.

use super::prr::Prr;
use crate::segment::Range;

/// The episode.
#[derive(Clone, Debug, Default)]
pub(crate) enum Recovery {
    /// None.
    #[default]
    Open,
    /// The window is being reduced without a loss to repair.
    Reduced { high: u64, prr: Prr },
    /// Losses that acknowledgements told of are being repaired.
    Repair { high: u64, prr: Prr },
    /// The timer expired; everything that is lost is sent again in slow start.
    Loss { high: u64, frto: Frto },
}

/// How far F-RTO got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frto {
    /// The time-out was genuine, or cannot be told.
    Off,
    /// The first segment was sent again; the next acknowledgement tells.
    Armed,
    /// It advanced. New data goes out, and no retransmissions, until the next one.
    Probing,
}

impl Recovery {
    /// The proportional rate reduction under way.
    pub(crate) fn prr(&self) -> Option<&Prr> {
        match self {
            Recovery::Reduced { prr, .. } | Recovery::Repair { prr, .. } => Some(prr),
            Recovery::Open | Recovery::Loss { .. } => None,
        }
    }

    /// The proportional rate reduction under way.
    pub(crate) fn prr_mut(&mut self) -> Option<&mut Prr> {
        match self {
            Recovery::Reduced { prr, .. } | Recovery::Repair { prr, .. } => Some(prr),
            Recovery::Open | Recovery::Loss { .. } => None,
        }
    }

    /// What has to be acknowledged for the episode to end.
    pub(crate) fn high(&self) -> Option<u64> {
        match self {
            Recovery::Open => None,
            Recovery::Reduced { high, .. } | Recovery::Repair { high, .. } | Recovery::Loss { high, .. } => {
                Some(*high)
            }
        }
    }

    /// Whether losses are being repaired.
    pub(crate) fn is_repairing(&self) -> bool {
        matches!(self, Recovery::Repair { .. } | Recovery::Loss { .. })
    }
}

/// How many retransmissions of an episode are remembered. With more of them its duplicates tell nothing.
const REMEMBERED_MAX: usize = 16;

/// What is needed to tell that an episode of losses was a mistake.
#[derive(Clone, Debug)]
pub(crate) struct Undo {
    /// Retransmissions that no duplicate was reported for. A wire that repeats segments by itself explains nothing.
    unexplained: Vec<Range>,
    /// Whether there are more than are remembered.
    overflowed: bool,
    /// The timestamp of the first retransmission.
    first_ms: Option<u32>,
    /// Whether a retransmission filled a hole: something was lost.
    is_genuine: bool,
}

impl Undo {
    pub(crate) fn new() -> Self {
        Undo { unexplained: Vec::new(), overflowed: false, first_ms: None, is_genuine: false }
    }

    pub(crate) fn on_retransmitted(&mut self, now_ms: u32, range: Range) {
        self.first_ms.get_or_insert(now_ms);
        if self.unexplained.len() < REMEMBERED_MAX {
            self.unexplained.push(range);
        } else {
            self.overflowed = true;
        }
    }

    /// The receiver reported a duplicate. Gives whether a retransmission explains it.
    pub(crate) fn on_dsack(&mut self, duplicate: Range) -> bool {
        let place = self.unexplained.iter().position(|range| duplicate.contains(*range));
        place.map(|place| self.unexplained.swap_remove(place)).is_some()
    }

    /// Whether the receiver reported every retransmission as a duplicate.
    pub(crate) fn is_explained(&self) -> bool {
        self.first_ms.is_some() && self.unexplained.is_empty() && !self.overflowed
    }

    /// Whether nothing was sent again yet.
    pub(crate) fn is_idle(&self) -> bool {
        self.first_ms.is_none()
    }

    /// Segments that were sent again are acknowledged up to `una`, by an acknowledgement with this echo. Gives whether
    /// originals filled all holes.
    pub(crate) fn on_acknowledged(&mut self, echoed_ms: u32, una: u64) -> bool {
        let Some(first_ms) = self.first_ms else { return false };
        self.is_genuine |= !super::is_before(echoed_ms, first_ms);
        let is_last = self.unexplained.iter().all(|range| range.end <= una);
        is_last && !self.is_genuine && !self.overflowed
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.unexplained.capacity() * size_of::<Range>()
    }
}
