//! The streams of traffic programs, as programs see them: they ask for one, read and write what there is and what
//! fits, and close it. Who carries them is somebody else's affair: real sockets ([`super::sockets`]), or in virtual
//! time the circuits of an onion proxy and a host's kernel.

use std::collections::BTreeSet;

use heddle_seam::time::Instant;

use crate::error::Error;

/// A stream, by the order in which streams were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LineId(pub(crate) u64);

/// Where streams go and by what, by the order in which ways were told to whoever carries them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WayId(pub(crate) usize);

/// How far a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineState {
    Asked,
    Open,
    /// It is over; what came before can be read still.
    Over,
}

/// What opens, carries and closes streams.
pub(crate) trait Lines {
    /// Asks for a stream.
    fn open(&mut self, now: Instant, way: WayId) -> LineId;

    /// How far it is.
    fn state(&self, line: LineId) -> LineState;

    /// Why a stream is over; to be asked once.
    fn take_error(&mut self, line: LineId) -> Error;

    /// Appends what has come, as far as one read goes, and returns how many bytes that is. What is not read keeps the
    /// far end waiting at last.
    fn read(&mut self, now: Instant, line: LineId, into: &mut Vec<u8>) -> usize;

    /// Takes as many of these bytes as there is room for, perhaps none, and returns how many.
    fn write(&mut self, now: Instant, line: LineId, bytes: &[u8]) -> usize;

    /// Closes a stream and forgets it.
    fn close(&mut self, now: Instant, line: LineId);

    /// Streams of which something is new since the last call: they are open or over, there is something to read, or
    /// they take bytes again after they took less than they were given.
    fn take_touched(&mut self) -> BTreeSet<LineId>;
}
