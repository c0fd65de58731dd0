//! The client's side of one scripted stream.

use std::thread;
use std::time::{Duration, Instant};

use super::model::Script;
use crate::error::{Error, Result};
use crate::traffic::CHUNK;
use crate::traffic::peer::{Peer, closed};
use crate::traffic::route::{Route, Stage};
use crate::traffic::script::{Burst, FINISHED};
use crate::traffic::stop::Stop;

/// The times of one complete stream.
pub(super) struct Played {
    pub(super) open_ms: f64,
    /// Without the script's own pause; none when the script brings nothing.
    pub(super) first_byte_ms: Option<f64>,
    pub(super) stream_s: f64,
}

/// Opens a stream, hands the server its part of the script and plays the other.
///
/// A stream may be silent for as long as its script is, and for the route's time-out on top.
pub(super) fn play(
    route: &Route,
    script: &Script,
    over: &Stop,
) -> std::result::Result<Played, (Stage, Error)> {
    let start = Instant::now();
    let peer = route.open_peer(over).map_err(|error| (Stage::Open, error))?;
    let open_ms = start.elapsed().as_secs_f64() * 1e3;
    let patience = route.timeout + pauses(&script.up) + pauses(&script.down);
    let peer = peer.patient_for(patience);
    let first_byte_ms = both_ways(peer, script, start).map_err(|error| (Stage::Transfer, error))?;
    Ok(Played { open_ms, first_byte_ms, stream_s: start.elapsed().as_secs_f64() })
}

fn pauses(bursts: &[Burst]) -> Duration {
    bursts.iter().map(|burst| burst.pause()).sum()
}

fn both_ways(mut peer: Peer, script: &Script, start: Instant) -> Result<Option<f64>> {
    let wire: Vec<u8> = script.down.iter().flat_map(|burst| burst.to_wire()).collect();
    let head = format!("PLAY\r\nContent-Length: {}\r\nUpload: {}\r\n\r\n", wire.len(), script.up_bytes());
    peer.send(&[head.as_bytes(), &wire].concat())?;
    // The reader hears of the program's end and passes it on.
    let done = Stop::default();
    let writer = peer.try_clone()?.stopped_by(&done);
    thread::scope(|scope| {
        scope.spawn(|| send_bursts(writer, &script.up, &done));
        let received = receive_bursts(&mut peer, script, start);
        done.ask();
        received
    })
}

/// What fails here fails for the reader too: the server finishes only when it has everything.
fn send_bursts(mut peer: Peer, bursts: &[Burst], done: &Stop) {
    let zeros = [0; 16 * 1024];
    for burst in bursts {
        if !done.sleep_until(Instant::now() + burst.pause()) {
            return;
        }
        let mut left = burst.bytes as usize;
        while left > 0 {
            let len = left.min(zeros.len());
            peer.begin();
            if peer.send(&zeros[..len]).is_err() {
                return;
            }
            left -= len;
        }
    }
}

fn receive_bursts(peer: &mut Peer, script: &Script, start: Instant) -> Result<Option<f64>> {
    let scripted_ms = script.down.first().map(|burst| burst.pause().as_secs_f64() * 1e3);
    let mut first_byte_ms = None;
    let mut left = script.down_bytes() + 1;
    let mut chunk = vec![0; CHUNK];
    while left > 0 {
        peer.begin();
        let at_most = left.min(CHUNK as u64) as usize;
        let len = match peer.receive(&mut chunk[..at_most])? {
            0 => return Err(closed("the file server")),
            len => len,
        };
        let elapsed_ms = start.elapsed().as_secs_f64() * 1e3;
        first_byte_ms = first_byte_ms.or(scripted_ms.map(|scripted_ms| (elapsed_ms - scripted_ms).max(0.0)));
        left -= len as u64;
        if left == 0 && chunk[len - 1] != FINISHED {
            return Err(Error::Malformed { by: "the file server", sent: "an end too early".into() });
        }
    }
    Ok(first_byte_ms)
}
