//! Runs a traffic program over real sockets, on the caller's thread and in its network namespace.

use std::time::Duration;

use heddle_seam::time::Instant;

use super::clock;
use super::lines::{Lines, WayId};
use super::program::{Journal, Program};
use super::report::Event;
use super::route::Route;
use super::sockets::OverSockets;
use super::stop::Stop;
use crate::error::Result;

/// How long a wait lasts before it is looked whether somebody asked for the end.
const SLICE: Duration = Duration::from_millis(50);

/// Makes a program and runs it until it is over. `stop` asks it to end, and what it does then is its own affair;
/// `abort`, or Ctrl-C, ends it at once.
///
/// # Errors
///
/// When the system does not wait for streams.
pub(crate) fn drive(
    make: impl FnOnce(Instant, WayId) -> Box<dyn Program>,
    route: &Route,
    stop: &Stop,
    abort: &Stop,
    on_event: &mut dyn FnMut(&Event),
) -> Result<()> {
    let mut lines = OverSockets::new(route);
    let begun = clock::now();
    let (mut program, mut journal) = (make(begun, OverSockets::WAY), Journal::new(begun));
    loop {
        let is_aborted = abort.is_asked();
        let now = clock::now();
        if is_aborted || stop.is_asked() {
            program.stop(now);
        }
        // A step looks at all streams of the program, so that nothing of them is new after it but what it finds itself.
        drop(lines.take_touched());
        program.step(now, &mut lines, &mut journal);
        journal.take().iter().for_each(|(_, event)| on_event(event));
        if is_aborted || program.is_over() {
            return Ok(());
        }
        let at_most = program.wakes().map_or(SLICE, |wakes| wakes.since(clock::now()).min(SLICE));
        lines.wait(at_most)?;
    }
}
