//! A channel that never was: whatever is asked of it, it names the reason.

use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::channel::{Channel, ChannelError, Incoming};
use heddle_seam::rng::Rng;
use heddle_seam::time::{Instant, UnixTime};

/// Stands in for a channel that rustls would not make or that a client was asked to accept. Its
/// time-out is due at once, so that its owner hears of it.
pub(super) struct Refused {
    pub(super) error: ChannelError,
    pub(super) since: Instant,
}

impl Channel for Refused {
    fn handle_read(&mut self, _now: Instant, _bytes: &[u8]) -> Result<usize, ChannelError> {
        Err(self.error.clone())
    }

    fn handle_eof(&mut self, _now: Instant) -> Result<(), ChannelError> {
        Err(self.error.clone())
    }

    fn handle_writable(&mut self, _now: Instant, _bytes: usize) {}

    fn handle_window(&mut self, _bytes: usize) {}

    fn handle_timeout(&mut self, _now: Instant) -> Result<(), ChannelError> {
        Err(self.error.clone())
    }

    fn handle_wall_clock(&mut self, _now: UnixTime) {}

    fn next_incoming(&mut self, _now: Instant) -> Result<Option<Incoming<'_>>, ChannelError> {
        Err(self.error.clone())
    }

    fn capacity(&self) -> usize {
        0
    }

    fn send(&mut self, _now: Instant, _circ_id: CircId, _command: Command, _body: &Body) {}

    fn send_vpadding(&mut self, _now: Instant, _body: &[u8]) {}

    fn export_secret(&self, _label: &[u8], _context: &[u8], _out: &mut [u8]) -> bool {
        false
    }

    fn propose_circ_id(&self, _rng: &mut Rng) -> CircId {
        CircId::new(1).expect("one is not zero")
    }

    fn poll_transmit(&mut self, _now: Instant, _out: &mut Vec<u8>) -> bool {
        false
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.since)
    }

    fn close(&mut self) {}
}
