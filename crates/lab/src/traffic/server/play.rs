//! Playing a client's instructions: bursts of bytes with pauses before them, while what the client sends is discarded.

use std::collections::VecDeque;

use heddle_seam::time::Instant;

use super::wants::Wants;
use crate::traffic::script::{BURST_WIRE_BYTES, BURSTS_MAX, Burst, FINISHED};

/// What is sent of bursts.
static ZEROS: [u8; 16 * 1024] = [0; 16 * 1024];

/// A script that is too long, or no whole number of bursts.
#[derive(Debug)]
pub(super) struct ScriptError;

/// A script under way. Pauses count from the end of the burst before, and the first from when the script is there.
pub(super) struct Play {
    /// What came of the script.
    script: Vec<u8>,
    script_bytes: usize,
    /// What is still to come of the client's bytes.
    upload_bytes: u64,
    /// Bursts that have not begun.
    bursts: VecDeque<Burst>,
    /// When the next burst begins.
    due: Option<Instant>,
    /// What is left of the burst under way.
    left: usize,
    has_begun: bool,
    has_finished: bool,
}

impl Play {
    /// A script of so many bytes, beside so many bytes of the client's.
    pub(super) fn new(script_bytes: u64, upload_bytes: u64) -> Result<Play, ScriptError> {
        let whole = script_bytes.is_multiple_of(BURST_WIRE_BYTES as u64);
        if !whole || script_bytes > (BURSTS_MAX * BURST_WIRE_BYTES) as u64 {
            return Err(ScriptError);
        }
        Ok(Play {
            script: Vec::new(),
            script_bytes: script_bytes as usize,
            upload_bytes,
            bursts: VecDeque::new(),
            due: None,
            left: 0,
            has_begun: false,
            has_finished: false,
        })
    }

    fn is_whole(&self) -> bool {
        self.script.len() == self.script_bytes
    }

    /// Takes the script and then what the client sends.
    pub(super) fn on_read(&mut self, now: Instant, bytes: &[u8]) {
        let of_script = bytes.len().min(self.script_bytes - self.script.len());
        self.script.extend_from_slice(&bytes[..of_script]);
        self.upload_bytes = self.upload_bytes.saturating_sub((bytes.len() - of_script) as u64);
        if self.is_whole() && !self.has_begun {
            self.has_begun = true;
            self.bursts = self.script.chunks_exact(BURST_WIRE_BYTES).map(Burst::from_wire).collect();
            self.due = self.bursts.front().map(|burst| now + burst.pause());
        }
    }

    /// Hands over what is due, and at the end of both ways says that it has finished.
    pub(super) fn write(&mut self, now: Instant, take: &mut dyn FnMut(&[u8]) -> usize) {
        if self.left == 0
            && self.due.is_some_and(|due| due <= now)
            && let Some(burst) = self.bursts.pop_front()
        {
            (self.left, self.due) = (burst.bytes as usize, None);
        }
        if self.left > 0 {
            self.left -= take(&ZEROS[..self.left.min(ZEROS.len())]);
        }
        if self.left == 0 && self.due.is_none() {
            self.due = self.bursts.front().map(|burst| now + burst.pause());
        }
        if self.is_done() && !self.has_finished {
            self.has_finished = take(&[FINISHED]) == 1;
        }
    }

    /// Whether all was sent and all has come.
    fn is_done(&self) -> bool {
        self.is_whole() && self.bursts.is_empty() && self.left == 0 && self.upload_bytes == 0
    }

    pub(super) fn is_over(&self) -> bool {
        self.has_finished
    }

    pub(super) fn wants(&self) -> Wants {
        let writes = self.left > 0 || self.is_done();
        let reads = !self.is_whole() || self.upload_bytes > 0;
        Wants { read: reads, write: writes, wakes: self.due, end: false }
    }
}
