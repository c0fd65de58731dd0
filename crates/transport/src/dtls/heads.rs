//! What stands before a transport's own bytes in a record: a stamp, and counts of marks.

use super::ecn::{Ecn, split_told};
use super::stamped::{self, STAMPED_LEN, split_stamp};
use super::{control, ecn::EcnCounts};
use crate::connections::stamps::Stamps;
use heddle_seam::time::Instant;

/// The heads of one session's records, in both directions.
#[derive(Debug)]
pub(crate) struct Heads {
    ecn: Ecn,
    stamps: Stamps,
}

/// What was written before a transport's bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    /// Bytes of all heads.
    pub(crate) bytes: usize,
    tells: bool,
}

/// What a record of a transport begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read<'a> {
    /// When it left, as the peer says.
    pub(crate) stamp: Option<u32>,
    told: Option<EcnCounts>,
    /// The transport's own bytes.
    pub(crate) contents: &'a [u8],
}

/// Takes the heads off a record; `None` for one of the session itself.
pub(crate) fn read(record: &[u8]) -> Option<Read<'_>> {
    let (stamp, contents) = split_stamp(record);
    let told = split_told(contents);
    if stamp.is_none() && told.is_none() && control::is_control(contents) {
        return None;
    }
    let (told, contents) = told.map_or((None, contents), |(told, contents)| (Some(told), contents));
    Some(Read { stamp, told, contents })
}

impl Heads {
    pub(crate) fn new(now: Instant, marks_ecn: bool) -> Self {
        Heads { ecn: Ecn::new(marks_ecn), stamps: Stamps::new(now) }
    }

    /// A record of the transport came in a datagram with this codepoint. Returns whether routers marked some of ours.
    pub(crate) fn on_read(&mut self, read: &Read<'_>, codepoint: u8) -> bool {
        self.ecn.on_received(codepoint);
        read.told.is_some_and(|told| self.ecn.on_told(told))
    }

    /// Appends the heads of a record that leaves now, where so many bytes wait.
    pub(crate) fn write(&mut self, now: Instant, waiting_bytes: u64, out: &mut Vec<u8>) -> Written {
        let is_stamped = self.stamps.is_due(now, usize::try_from(waiting_bytes).unwrap_or(usize::MAX));
        if is_stamped {
            stamped::emit(self.stamps.stamp(now), out);
        }
        let told_bytes = self.ecn.tell(out);
        Written { bytes: told_bytes + if is_stamped { STAMPED_LEN } else { 0 }, tells: told_bytes > 0 }
    }

    /// A record with such heads is sealed.
    pub(crate) fn on_sealed(&mut self, written: Written) {
        if written.tells {
            self.ecn.on_tell();
        }
    }

    /// What a batch is sent with that leaves now.
    pub(crate) fn codepoint(&self, now: Instant) -> u8 {
        self.ecn.codepoint(now)
    }

    /// A datagram of the transport leaves.
    pub(crate) fn on_sent(&mut self, now: Instant, codepoint: u8) {
        self.ecn.on_sent(now, codepoint);
    }
}
